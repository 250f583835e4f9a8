"""Topic 10, the policy's part: compaction and context overflow as others have met them (B121, B124, B126)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing
from scenes import assert_paired

from trio_agent._chunks import Finish, TextDelta
from trio_agent._compaction import CompactionError, SummarizingCompaction
from trio_agent._messages import AssistantMessage, Message, ToolCall, ToolResultMessage, Usage, UserMessage
from trio_agent._policies import Compaction, CompactionReason
from trio_agent._projection import INTERRUPTED, project
from trio_agent._provider import Send
from trio_agent._request import ModelRequest
from trio_agent._state import AgentState, Phase


class Summariser:
    """A fake model that answers every request with the same short summary, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest, send: Send) -> None:
        self.requests.append(request)
        await send(TextDelta(0, "S"))
        await send(Finish("stop"))


def compact(policy: SummarizingCompaction, messages: Sequence[Message], reason: CompactionReason) -> list[Message]:
    """The history as a run makes it of the policy's compaction."""

    async def main() -> Compaction:
        with trio.fail_after(60):
            return await policy.compact(messages, reason)

    compaction = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert compaction.first_kept > 0
    return [compaction.summary, *messages[compaction.first_kept :]]


def asks(*ids: str, usage: Usage | None = None) -> AssistantMessage:
    calls = [ToolCall(call_id, "read", {"path": "notes.txt"}) for call_id in ids]
    return AssistantMessage(calls, "tool_use") if usage is None else AssistantMessage(calls, "tool_use", usage)


def answers(call_id: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", f"what {call_id} found, and some more of it")


def words(text: str) -> str:
    return " ".join([text] * 8)


def state(messages: Sequence[Message]) -> AgentState:
    return AgentState(phase=Phase.TURN, messages=messages, system_prompt="", tools=(), model="m", reasoning="off")


WHOLE: list[Message] = [
    UserMessage(words("first question")),
    asks("c1", "c2"),
    answers("c1"),
    answers("c2"),
    asks("c3"),
    answers("c3"),
    UserMessage(words("second question")),
    AssistantMessage(words("the answer")),
]
DANGLING = [
    message for message in WHOLE if not (isinstance(message, ToolResultMessage) and message.tool_call_id == "c3")
]


@pytest.mark.parametrize("reason", ["threshold", "overflow"])
@pytest.mark.parametrize(("history", "lost"), [(WHOLE, []), (DANGLING, ["c3"])], ids=["whole", "dangling"])
def test_b121_no_budget_parts_a_call_from_its_result(
    history: list[Message], lost: list[str], reason: CompactionReason
) -> None:
    """B121: for every budget the summary request and the next request are paired, and no result is lost."""
    lengths = set()
    for keep in range(250):
        model = Summariser()
        policy = SummarizingCompaction(model, model="small", window=1000, keep_recent=keep)
        shortened = compact(policy, history, reason)
        lengths.add(len(shortened))
        sent = project([*shortened, UserMessage("and now?")])
        assert_paired(sent)
        placeholders = [m.tool_call_id for m in sent if isinstance(m, ToolResultMessage) and m.text == INTERRUPTED]
        assert set(placeholders) <= set(lost)
        for request in model.requests:
            assert_paired(request.messages)
            assert not request.tools
    assert len(lengths) > 1  # the budgets did lead to different cuts


def test_b124_a_provider_that_always_overflows_is_not_compacted_for_ever() -> None:
    """B124: overflow upon overflow shrinks history a few times and ends in an error; nothing is added to it."""
    policy = SummarizingCompaction(Summariser(), model="small", window=1000)
    history: list[Message] = [*WHOLE, UserMessage(words("third question"))]
    lengths = [len(history)]
    while lengths[-1] > 1:
        assert len(lengths) <= 5
        history = compact(policy, history, "overflow")
        lengths.append(len(history))
    assert lengths == sorted(lengths, reverse=True)
    with pytest.raises(CompactionError, match="nothing to summarise"):
        compact(policy, history, "overflow")


def test_b124_compactions_with_good_turns_between_go_on() -> None:
    """B124: five compactions spread over five good turns each bring the context below the threshold."""
    policy = SummarizingCompaction(Summariser(), model="small", window=1000)
    history: list[Message] = list(WHOLE)
    for turn in range(5):
        history += [UserMessage(words("more")), AssistantMessage(words("sure"), usage=Usage(input=880, output=20))]
        assert policy.threshold(state(history))
        history = compact(policy, history, "threshold")
        assert not policy.threshold(state(history)), f"still over the threshold after compaction {turn + 1}"


def test_b126_the_threshold_is_noticed_inside_a_tool_loop() -> None:
    """B126: in a window of 1000, reserve 200, usage of 300, 600, 850 calls for compaction before turn 4 only."""
    policy = SummarizingCompaction(Summariser(), model="small", window=1000, reserve=200)
    history: list[Message] = [UserMessage("go")]
    crossed = []
    for turn, tokens in enumerate((300, 600, 850), 1):
        crossed.append(policy.threshold(state(history)))
        history += [asks(f"c{turn}", usage=Usage(input=tokens - 10, output=10)), answers(f"c{turn}")]
    assert crossed == [False, False, False]
    assert policy.threshold(state(history))
    assert not policy.threshold(state(compact(policy, history, "threshold")))
