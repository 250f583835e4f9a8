"""Rules Q1 to Q5 and A8 of the specification: steering, follow-ups, limits and edges. Sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from scenes import Recorder, assert_paired, assert_settled, make_agent, on, said

from trio_agent import (
    Agent,
    AssistantMessage,
    CustomMessage,
    Event,
    Hooks,
    Image,
    Limits,
    Message,
    MessageStart,
    NothingToResumeError,
    ProviderError,
    RetryPolicy,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool,
)
from trio_agent.testing import ScriptedProvider, call, finish, sleep, stall, text, usage, wait


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await trio.sleep(seconds)
    return "slept"


def replies(*texts: str) -> list[list[Any]]:
    """So many answers of a model that wants nothing more."""
    return [[text(words), finish()] for words in texts]


NAP: list[Any] = [call(None, "nap", {"seconds": 1}), finish("tool_use")]


def injected(recorder: Recorder) -> list[str]:
    """What was said to the model, turn by turn: `1 go`, `2 hurry`."""
    turn = 0
    lines: list[str] = []
    for event in recorder.events:
        if event.type == "agent_start":
            turn = 0
        if event.type == "turn_start":
            turn = event.turn
        if isinstance(event, MessageStart) and isinstance(event.message, UserMessage):
            lines.append(f"{turn} {event.message.text}")
    return lines


def queued(agent: Agent) -> list[str]:
    state = agent.state
    return [message.text for message in (*state.steering_queue, *state.follow_up_queue)]  # type: ignore[union-attr]


# -- Q1 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "during", ["message_start", "message_update", "tool_execution_start", "tool_execution_end", "turn_end"]
)
async def test_Q1_steer_enters_at_the_next_turn_boundary(during: str) -> None:
    """Whenever in a turn it is said, a steered message is the first thing of the next turn."""
    agent, recorder = make_agent(ScriptedProvider([text("I look"), *NAP], *replies("done")), tools=[nap])
    on(agent, during, lambda event: agent.steer("hurry"))
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 hurry"]
    at = recorder.lines.index("turn_start 2")
    assert recorder.lines[at + 1 : at + 3] == ["message_start user", 'message_end user "hurry"']
    assert_settled(recorder)


async def test_Q1_steering_goes_before_any_follow_up() -> None:
    """Said later, a steered message still comes first, one turn earlier than the follow-up."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b", "c")))
    on(agent, "turn_start", lambda event: (agent.follow_up("f"), agent.steer("s")))
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 s", "3 f"]
    assert_settled(recorder)


async def test_Q1_running_tools_are_not_skipped() -> None:
    """A message that is steered while tools run waits for all of them, also those that have not begun."""

    @tool(serial=True)
    async def later() -> str:
        """Run behind the others."""
        return "ran"

    provider = ScriptedProvider(
        [call("a", "nap", {"seconds": 5}), call("b", "later"), finish("tool_use")], *replies("ok")
    )
    agent, recorder = make_agent(provider, tools=[nap, later])
    on(agent, "tool_execution_start", lambda event: agent.steer("stop that"))
    await agent.prompt("go")
    assert said(provider.requests[1].messages) == [
        'user "go"',
        "assistant tool_use a:nap b:later",
        'tool_result a ok "slept"',
        'tool_result b ok "ran"',
        'user "stop that"',
    ]
    assert_settled(recorder)


async def test_Q1_follow_ups_enter_only_when_the_run_would_end() -> None:
    """A turn whose tools want an answer takes no follow-up; the one behind which nothing is left to do does."""
    agent, recorder = make_agent(ScriptedProvider(NAP, NAP, *replies("done", "more")), tools=[nap])
    on(agent, "turn_start", lambda event: agent.follow_up("and then?"))
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "4 and then?"]
    assert recorder.types.count("agent_start") == 1
    assert_settled(recorder)


async def test_Q1_what_is_steered_in_the_wait_before_a_retry_does_not_change_the_request() -> None:
    """A retry lies within its turn: the same request is sent again, and the message enters the next turn."""
    provider = ScriptedProvider([ProviderError("overloaded", "busy")], *replies("a", "b"))
    agent, recorder = make_agent(provider, retry=RetryPolicy(base_delay=1, jitter=False))
    on(agent, "retry_start", lambda event: agent.steer("s"))
    await agent.prompt("go")
    assert said(provider.requests[0].messages) == said(provider.requests[1].messages) == ['user "go"']
    assert injected(recorder) == ["1 go", "2 s"]
    assert_settled(recorder)


async def test_Q1_a_custom_message_can_be_steered_and_the_model_does_not_see_it() -> None:
    """An application's own message goes the same way as a user's, into history and not into the request."""
    provider = ScriptedProvider(*replies("a", "b"))
    agent, recorder = make_agent(provider)
    on(agent, "turn_end", lambda event: agent.steer(CustomMessage("note", {"k": 1})))
    await agent.prompt("go")
    assert said(agent.state.messages) == [
        'user "go"',
        'assistant stop "a"',
        'custom note {"k":1}',
        'assistant stop "b"',
    ]
    assert [m.role for m in provider.requests[1].messages] == ["user", "assistant"]
    assert_settled(recorder)


# -- Q2 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["abort", "cancel", "provider fails", "subscriber fails", "stopped"])
async def test_Q2_none_is_lost_to_the_end_of_a_run(how: str) -> None:
    """What was queued during a run that ends early is still in its queue, in order; the next run delivers it once."""
    first: list[Any] = (
        [text("a"), ProviderError("authentication", "no key")]
        if how == "provider fails"
        else [text("a"), sleep(5), finish()]
    )
    provider = ScriptedProvider(first, *replies("b", "c", "d"))
    hooks = Hooks(should_stop_after_turn=lambda state: how == "stopped" and len(provider.requests) == 1)
    agent, recorder = make_agent(provider, hooks=hooks, steering_mode="all")
    scope = trio.CancelScope()

    def at_update(event: Event) -> None:
        agent.steer("s1")
        agent.steer("s2")
        agent.follow_up("f")
        if how == "abort":
            agent.abort()
        if how == "cancel":
            scope.cancel()
        if how == "subscriber fails":
            raise ValueError("oops")

    on(agent, "message_update", at_update)
    with scope:
        await agent.prompt("go")
    assert queued(agent) == ["s1", "s2", "f"]
    await agent.prompt("again")
    assert injected(recorder) == ["1 go", "1 s1", "1 s2", "1 again", "2 f"]
    assert queued(agent) == []
    assert_settled(recorder)


async def test_Q2_none_enters_a_run_that_has_been_aborted() -> None:
    """Aborted between two turns, a run takes nothing more from its queues."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")))

    def at_the_boundary(event: Event) -> None:
        agent.steer("s")
        agent.follow_up("f")
        agent.abort()

    on(agent, "turn_end", at_the_boundary)
    assert (await agent.prompt("go")).outcome == "aborted"
    assert injected(recorder) == ["1 go"]
    assert queued(agent) == ["s", "f"]
    assert_settled(recorder)


@pytest.mark.parametrize("how", ["abort", "raise"])
@pytest.mark.parametrize(("at", "left"), [("message_start", ["s2", "s3"]), ("message_end", ["s2", "s3"])])
async def test_Q2_what_was_taken_but_not_yet_emitted_goes_back_in_place(at: str, left: list[str], how: str) -> None:
    """Cut in the middle of a batch, the rest of it is in its queue, in front of what was queued since."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")), steering_mode="all")

    def listener(event: Any) -> None:
        if event.type == "turn_end" and event.turn == 1:
            for words in ("s1", "s2", "s3"):
                agent.steer(words)
        if event.type == at and event.message.role == "user" and event.message.text == "s1":
            agent.steer("s4")
            if how == "raise":
                raise ValueError("oops")
            agent.abort()

    agent.subscribe(listener)
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 s1"]
    assert queued(agent) == [*left, "s4"]
    assert_settled(recorder)


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_Q2_the_queues_are_looked_at_behind_the_subscribers_of_turn_end(queue: str) -> None:
    """What a slow subscriber of `turn_end` queues counts: the run goes on with it."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")))

    async def slow(event: Event) -> None:
        await trio.sleep(10)
        getattr(agent, queue)("more")

    on(agent, "turn_end", slow)
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 more"]
    assert recorder.types.count("agent_end") == 1
    assert_settled(recorder)


async def test_Q2_what_the_last_hook_of_a_turn_queues_counts_as_well() -> None:
    """The look at the queues is the last thing before the decision: `should_stop_after_turn` comes before it."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")))

    async def hook(state: Any) -> bool:
        await trio.sleep(1)
        if state.turn == 1:
            agent.follow_up("more")
        return False

    agent.configure(hooks=Hooks(should_stop_after_turn=hook))
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 more"]
    assert_settled(recorder)


async def test_Q2_two_equal_texts_are_two_messages() -> None:
    """Identity counts, not text: both arrive."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b", "c")))
    on(agent, "turn_start", lambda event: (agent.steer("x"), agent.steer("x")))
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 x", "3 x"]
    assert_settled(recorder)


async def test_Q2_a_message_that_was_withdrawn_does_not_enter() -> None:
    """What is taken back before it is told, also in the middle of its batch, is not said; afterwards it is too late."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")), steering_mode="all")
    ids: dict[str, str] = {}
    withdrawn: dict[str, bool] = {}

    def listener(event: Any) -> None:
        if event.type == "turn_end" and not ids:
            ids.update({words: agent.steer(words) for words in ("s1", "s2", "s3")})
            withdrawn["s3"] = agent.withdraw(ids["s3"])
        if event.type == "message_start" and event.message == UserMessage("s1"):
            withdrawn["s2"] = agent.withdraw(ids["s2"])
            withdrawn["s1"] = agent.withdraw(ids["s1"])

    agent.subscribe(listener)
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 s1"]
    assert withdrawn == {"s3": True, "s2": True, "s1": False}
    assert not agent.withdraw("no such id")
    assert_settled(recorder)


async def test_Q2_a_batch_that_was_withdrawn_whole_leaves_a_turn_of_its_own() -> None:
    """If all that was to be said is taken back when its turn has begun, the turn asks the model all the same."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")))
    ids: list[str] = []
    on(agent, "turn_end", lambda event: ids.append(agent.steer("s")))
    on(agent, "turn_start", lambda event: agent.withdraw(ids[0]), nth=2)
    result = await agent.prompt("go")
    assert injected(recorder) == ["1 go"]
    assert result.text == "b"
    assert_settled(recorder)


async def test_Q2_cleared_queues_give_what_they_held() -> None:
    """`clear_queues()` takes out and gives everything, steering first; none of it enters any more."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")))

    def listener(event: Event) -> None:
        agent.follow_up("f")
        agent.steer("s")
        assert said(agent.clear_queues()) == ['user "s"', 'user "f"']

    on(agent, "turn_start", listener)
    await agent.prompt("go")
    assert injected(recorder) == ["1 go"]
    assert queued(agent) == []
    assert_settled(recorder)


# -- Q3 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize(
    ("mode", "expected"),
    [(None, ["2 1", "3 2", "4 3"]), ("one_at_a_time", ["2 1", "3 2", "4 3"]), ("all", ["2 1", "2 2", "2 3"])],
)
async def test_Q3_each_queue_has_its_mode_and_keeps_its_order(
    queue: str, mode: str | None, expected: list[str]
) -> None:
    """One message a turn by default, or all that there are; in the order in which they were queued."""
    option = "steering_mode" if queue == "steer" else "follow_up_mode"
    turns = int(expected[-1][0])
    agent, recorder = make_agent(
        ScriptedProvider(*replies(*["ok"] * turns)), **({} if mode is None else {option: mode})
    )
    on(agent, "turn_start", lambda event: [getattr(agent, queue)(words) for words in "123"])
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", *expected]
    assert_settled(recorder)


async def test_Q3_the_modes_are_independent() -> None:
    """All of one queue and one of the other: each mode is its queue's alone."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b", "c", "d")), steering_mode="all")
    on(
        agent,
        "turn_start",
        lambda event: [(agent.steer(f"s{n}"), agent.follow_up(f"f{n}")) for n in (1, 2)],
    )
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 s1", "2 s2", "3 f1", "4 f2"]
    assert_settled(recorder)


async def test_Q3_all_means_what_is_there_at_the_boundary() -> None:
    """What is queued while a batch is being told waits for the next boundary."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b", "c")), steering_mode="all")

    def listener(event: Any) -> None:
        if event.type == "turn_end" and event.turn == 1:
            agent.steer("s1")
            agent.steer("s2")
        if event.type == "message_end" and event.message == UserMessage("s1"):
            agent.steer("s3")

    agent.subscribe(listener)
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 s1", "2 s2", "3 s3"]
    assert_settled(recorder)


def test_Q3_an_unknown_mode_is_refused() -> None:
    """A mode that does not exist is an error that names those that do."""
    with pytest.raises(ValueError, match="use 'one_at_a_time' or 'all'"):
        make_agent(ScriptedProvider(), steering_mode="some")


# -- Q4 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["one_at_a_time", "all"])
async def test_Q4_what_was_steered_while_idle_enters_before_the_prompt_all_of_it(mode: str) -> None:
    """It was said earlier: all of it is in the first turn, before the prompt, whatever the mode."""
    provider = ScriptedProvider(*replies("a"))
    agent, recorder = make_agent(provider, steering_mode=mode)
    agent.steer("s1")
    agent.steer("s2")
    await agent.prompt(["go", "on"])
    assert injected(recorder) == ["1 s1", "1 s2", "1 go", "1 on"]
    assert said(provider.requests[0].messages) == ['user "s1"', 'user "s2"', 'user "go"', 'user "on"']
    assert_settled(recorder)


async def test_Q4_what_was_followed_up_while_idle_enters_when_the_run_would_end() -> None:
    """A follow-up is no steering: it waits for the end of the run, also one from before it."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")))
    agent.follow_up("f")
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 f"]
    assert_settled(recorder)


async def test_Q4_what_was_steered_while_idle_stays_queued_if_the_run_is_aborted_before_it() -> None:
    """Aborted at `agent_start`, a run still tells its prompt, but takes nothing from a queue."""
    agent, recorder = make_agent(ScriptedProvider())
    agent.steer("s")
    on(agent, "agent_start", lambda event: agent.abort())
    await agent.prompt("go")
    assert injected(recorder) == ["1 go"]
    assert queued(agent) == ["s"]
    assert_settled(recorder)


async def test_Q4_what_is_steered_at_agent_start_waits_for_the_next_boundary() -> None:
    """Said during the run, not before it: it is no part of the first turn."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")))
    on(agent, "agent_start", lambda event: agent.steer("s"))
    await agent.prompt("go")
    assert injected(recorder) == ["1 go", "2 s"]
    assert_settled(recorder)


async def test_Q4_what_was_steered_while_idle_can_still_be_withdrawn_before_it_is_told() -> None:
    """It leaves its queue at its `message_start`, so until then it is not too late."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")))
    first = agent.steer("s1")
    agent.steer("s2")
    on(agent, "turn_start", lambda event: agent.withdraw(first))
    await agent.prompt("go")
    assert injected(recorder) == ["1 s2", "1 go"]
    assert_settled(recorder)


# -- Q5 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["hook", "max_turns", "max_tool_calls", "max_total_tokens"])
async def test_Q5_a_stop_leaves_queues_as_they_are(how: str) -> None:
    """`should_stop_after_turn` and limits end the run without a look into the queues; the next run delivers them."""
    limits = {
        "max_turns": Limits(max_turns=1),
        "max_tool_calls": Limits(max_tool_calls=1),
        "max_total_tokens": Limits(max_total_tokens=10),
    }
    provider = ScriptedProvider([usage(8, 2), *NAP], *replies("b", "c", "d"))
    agent, recorder = make_agent(
        provider,
        tools=[nap],
        limits=limits.get(how, Limits()),
        hooks=Hooks(should_stop_after_turn=lambda state: how == "hook" and len(provider.requests) == 1),
        steering_mode="all",
    )
    on(agent, "turn_start", lambda event: (agent.steer("s1"), agent.steer("s2"), agent.follow_up("f")))
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("stopped", "should_stop_after_turn" if how == "hook" else how)
    assert queued(agent) == ["s1", "s2", "f"]
    assert injected(recorder) == ["1 go"]
    if how != "max_turns":
        await agent.prompt("again")
        assert injected(recorder) == ["1 go", "1 s1", "1 s2", "1 again", "2 f"]
    assert_settled(recorder)


@pytest.mark.parametrize("next_call", ["prompt", "resume"])
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_Q5_what_is_queued_during_agent_end_waits_for_the_next_run(queue: str, next_call: str) -> None:
    """No second run starts by itself: the message is in its queue until `prompt()` or `resume()` is called."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b", "c")))
    on(agent, "agent_end", lambda event: getattr(agent, queue)("more"))
    await agent.prompt("go")
    await trio.testing.wait_all_tasks_blocked()
    assert queued(agent) == ["more"]
    assert recorder.types.count("agent_start") == 1
    if next_call == "resume":
        await agent.resume()
        assert injected(recorder) == ["1 go", "1 more"]
    else:
        await agent.prompt("again")
        assert injected(recorder)[1:] == (["1 more", "1 again"] if queue == "steer" else ["1 again", "2 more"])
    assert queued(agent) == []
    assert_settled(recorder)


async def test_Q5_a_run_that_begins_with_a_follow_up_takes_as_many_as_its_mode_says() -> None:
    """A bare `resume()` behind an answer begins with the follow-ups, one at a time or all."""
    for mode, expected in (("one_at_a_time", ["1 f1", "2 f2"]), ("all", ["1 f1", "1 f2"])):
        agent, recorder = make_agent(
            ScriptedProvider(*replies("b", "c")),
            messages=[UserMessage("go"), AssistantMessage("a")],
            follow_up_mode=mode,
        )
        agent.follow_up("f1")
        agent.follow_up("f2")
        await agent.resume()
        assert injected(recorder) == expected
        assert_settled(recorder)


# -- A8: what prompt() takes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("input", "error", "words"),
    [
        ([], ValueError, "nothing to say"),
        ((), ValueError, "nothing to say"),
        ("", ValueError, "blank"),
        (" \n", ValueError, "blank"),
        (["hi", ""], ValueError, "blank"),
        (AssistantMessage("hi"), TypeError, "role assistant"),
        (["hi", AssistantMessage("hi")], TypeError, "role assistant"),
        (ToolResultMessage("c1", "nap", "x"), TypeError, "role tool_result"),
        (None, TypeError, "NoneType"),
        (3, TypeError, "int"),
        ([b"hi"], TypeError, "bytes"),
        ({"role": "user"}, TypeError, "dict"),
    ],
)
@pytest.mark.parametrize("entry", ["prompt", "stream"])
async def test_A8_what_nobody_can_say_is_refused_before_any_event(
    input: Any, error: type[Exception], words: str, entry: str
) -> None:
    """`ValueError` for nothing to say, `TypeError` for what only a model or a tool says; nothing has happened then."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")))
    before = agent.state

    async def call() -> None:
        if entry == "prompt":
            await agent.prompt(input)
        else:
            agent.stream(input)

    with pytest.raises(error, match=words):
        await call()
    assert recorder.events == []
    assert agent.state == before
    assert (await agent.prompt("go")).text == "a"


@pytest.mark.parametrize("name", ["steer", "follow_up"])
@pytest.mark.parametrize(
    ("input", "error"), [("", ValueError), (AssistantMessage("hi"), TypeError), (["hi"], TypeError), (None, TypeError)]
)
def test_A8_the_queues_refuse_the_same(name: str, input: Any, error: type[Exception]) -> None:
    """`steer` and `follow_up` take one message that a person or the application can say; the error names them."""
    agent, _ = make_agent(ScriptedProvider())
    with pytest.raises(error, match=name):
        getattr(agent, name)(input)
    assert queued(agent) == []


async def test_A8_an_image_without_a_word_is_something_to_say() -> None:
    """`prompt("")` is refused only without images; they go into the user message, behind its text."""
    image = Image(b"png", "image/png")
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b", "c")))
    await agent.prompt("", images=[image])
    await agent.prompt("look", images=[image])
    await agent.prompt(["first", UserMessage("second")], images=[image])
    assert [m.content for m in agent.state.messages if isinstance(m, UserMessage)] == [
        (image,),
        (Text("look"), image),
        (Text("first"),),
        (Text("second"), image),
    ]
    assert_settled(recorder)


async def test_A8_images_that_are_none_or_have_no_message_to_go_into_are_refused() -> None:
    """Images are `Image` objects, and a custom message cannot take them."""
    agent, recorder = make_agent(ScriptedProvider())
    with pytest.raises(TypeError, match="Image"):
        await agent.prompt("hi", images=[b"png"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="user message"):
        await agent.prompt(CustomMessage("note"), images=[Image(b"png", "image/png")])
    assert recorder.events == []


async def test_A8_several_messages_enter_the_first_turn_in_order() -> None:
    """A prompt of several messages is told in one turn, each with its own start and end."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")))
    await agent.prompt(["one", UserMessage("two"), CustomMessage("note", 3)])
    assert recorder.lines[1:8] == [
        "turn_start 1",
        "message_start user",
        'message_end user "one"',
        "message_start user",
        'message_end user "two"',
        "message_start custom note",
        "message_end custom note 3",
    ]
    assert_settled(recorder)


# -- A8: limits -------------------------------------------------------------------------------------------------------


async def test_A8_limits_are_looked_at_before_turn_start_and_tools_asked_for_have_run() -> None:
    """Two turns are allowed: two are made whole, the tools of the second have run, and no third begins."""
    agent, recorder = make_agent(ScriptedProvider(NAP, NAP, NAP), tools=[nap], limits=Limits(max_turns=2))
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("stopped", "max_turns")
    assert recorder.lines[-2:] == ["turn_end 2", "agent_end stopped max_turns"]
    assert recorder.types.count("turn_start") == 2
    assert [m.text for m in result.messages if isinstance(m, ToolResultMessage)] == ["slept", "slept"]
    assert_paired(agent.state.messages)
    assert_settled(recorder)


async def test_A8_limits_count_per_run() -> None:
    """A second run has its own turns, calls and tokens."""
    turn = [usage(5, 5), *NAP]
    provider = ScriptedProvider(turn, turn, turn, turn)
    agent, recorder = make_agent(
        provider, tools=[nap], limits=Limits(max_turns=2, max_tool_calls=2, max_total_tokens=20)
    )
    for _ in range(2):
        result = await agent.prompt("go")
        assert (result.outcome, result.usage.input) == ("stopped", 10)
    assert len(provider.requests) == 4
    assert agent.state.usage.input == 20
    assert_settled(recorder)


@pytest.mark.parametrize("limits", [Limits(max_tool_calls=0), Limits(max_total_tokens=0)])
async def test_A8_limits_are_never_looked_at_before_the_first_turn(limits: Limits) -> None:
    """Even a limit of nothing lets the first turn be made, with its tools."""
    provider = ScriptedProvider(NAP)
    agent, recorder = make_agent(provider, tools=[nap], limits=limits)
    result = await agent.prompt("go")
    assert result.outcome == "stopped"
    assert len(provider.requests) == 1
    assert 'tool_execution_end call_1 ok "slept"' in recorder.lines
    assert_settled(recorder)


async def test_A8_a_limit_that_is_reached_by_the_last_turn_stops_nothing() -> None:
    """A run that would end anyway is completed, however many turns, calls and tokens it took."""
    limits = Limits(max_turns=2, max_tool_calls=2, max_total_tokens=10)
    provider = ScriptedProvider(NAP, [text("done"), usage(50, 50), finish()])
    agent, recorder = make_agent(provider, tools=[nap], limits=limits)
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("completed", None)
    assert_settled(recorder)


async def test_A8_a_limit_that_is_reached_while_a_message_waits_stops_the_run() -> None:
    """A run is completed if no message waits: with one in a queue the limit decides, and the message stays there."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")), limits=Limits(max_turns=1))
    agent.follow_up("f")
    result = await agent.prompt("go")
    assert (result.outcome, result.reason, queued(agent)) == ("stopped", "max_turns", ["f"])
    assert_settled(recorder)


async def test_A8_limits_count_no_closing_turn() -> None:
    """A failure behind the last turn that is allowed is still told, in a turn of its own."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a")), limits=Limits(max_turns=1))

    def fail(event: Event) -> None:
        raise ValueError("oops")

    on(agent, "turn_end", fail)
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("error", None)
    assert recorder.types.count("turn_start") == 2
    assert recorder.events[-1].turns == 2  # type: ignore[union-attr]
    assert_settled(recorder)


async def test_A8_calls_that_were_refused_count_as_calls() -> None:
    """`max_tool_calls` counts what the model asked for, so that one that only asks for nonsense is stopped too."""
    nonsense: list[Any] = [call(None, "nope"), call(None, "nope"), finish("tool_use")]
    agent, recorder = make_agent(ScriptedProvider(nonsense, nonsense), tools=[nap], limits=Limits(max_tool_calls=3))
    result = await agent.prompt("go")
    assert (result.outcome, result.reason, recorder.events[-1].turns) == ("stopped", "max_tool_calls", 2)  # type: ignore[union-attr]
    assert_settled(recorder)


def test_A8_a_limit_of_no_turns_is_refused() -> None:
    """`max_turns` is at least 1, since a run has at least one turn."""
    with pytest.raises(ValueError, match="max_turns"):
        Limits(max_turns=0)


# -- A8: ends ---------------------------------------------------------------------------------------------------------


async def test_A8_a_hook_that_stops_where_the_model_had_stopped_anyway_stops() -> None:
    """The outcome is `stopped`, although there was nothing left to do."""
    agent, recorder = make_agent(
        ScriptedProvider(*replies("a")), hooks=Hooks(should_stop_after_turn=lambda state: True)
    )
    result = await agent.prompt("go")
    assert (result.outcome, result.text) == ("stopped", "a")
    assert_settled(recorder)


async def test_A8_length_without_calls_is_completed_with_that_reason() -> None:
    """An answer that was cut by the output limit completes the run, and the reason says `length`."""
    agent, recorder = make_agent(ScriptedProvider([text("and so"), finish("length")]))
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("completed", "length")
    assert recorder.lines[-1] == "agent_end completed length"
    assert_settled(recorder)


async def test_A8_length_without_calls_does_not_hold_up_what_is_queued() -> None:
    """A message that waits enters behind a cut answer as behind any other, and the reason is the last turn's."""
    agent, recorder = make_agent(ScriptedProvider([text("and so"), finish("length")], *replies("b")))
    agent.follow_up("go on")
    result = await agent.prompt("go")
    assert (result.outcome, result.reason) == ("completed", None)
    assert injected(recorder) == ["1 go", "2 go on"]
    assert_settled(recorder)


# -- A8: resume() -----------------------------------------------------------------------------------------------------

ASKED = [
    UserMessage("go"),
    AssistantMessage([ToolCall("c1", "nap", {"seconds": 1})], "tool_use"),
    ToolResultMessage("c1", "nap", "slept"),
]
EMPTY = AssistantMessage((), "error", error_message="no key")
EMPTY_ABORTED = AssistantMessage((), "aborted", error_message="aborted")


@pytest.mark.parametrize(
    "history",
    [
        [UserMessage("go")],
        ASKED,
        [UserMessage("go"), EMPTY],
        [*ASKED, EMPTY_ABORTED],
        [UserMessage("go"), EMPTY, EMPTY_ABORTED, EMPTY],
        [UserMessage("go"), CustomMessage("note")],
    ],
)
async def test_A8_resume_looks_through_an_empty_closing_message_to_what_lies_before(history: list[Message]) -> None:
    """A history that ends in a user or tool-result message, closing messages aside, can be answered."""
    provider = ScriptedProvider(*replies("here"))
    agent, recorder = make_agent(provider, messages=history)
    result = await agent.resume()
    assert (result.outcome, result.text) == ("completed", "here")
    assert injected(recorder) == []
    assert [m.role for m in provider.requests[0].messages if m.role == "assistant"] == (
        ["assistant"] if history[:3] == ASKED else []
    )
    assert_settled(recorder)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [CustomMessage("note")],
        [UserMessage("go"), AssistantMessage("a")],
        [UserMessage("go"), AssistantMessage("a"), EMPTY],
        [UserMessage("go"), AssistantMessage("a"), CustomMessage("note")],
        [UserMessage("go"), AssistantMessage("half", "aborted", error_message="aborted")],
        [EMPTY],
    ],
)
async def test_A8_resume_refuses_a_history_that_nobody_could_answer(history: list[Message]) -> None:
    """Where the model has had its say there is nothing to resume: an error that names `prompt()`, and no event."""
    agent, recorder = make_agent(ScriptedProvider(), messages=history)
    with pytest.raises(NothingToResumeError, match=r"prompt\(\)"):
        await agent.resume()
    assert recorder.events == []
    assert agent.state.phase.value == "idle"


async def test_A8_resume_after_a_failure_sends_the_same_question_again() -> None:
    """A run that failed before its answer began can be resumed as it is: the prompt is in history, once."""
    provider = ScriptedProvider([ProviderError("authentication", "no key")], *replies("here"))
    agent, recorder = make_agent(provider, retry=RetryPolicy(max_attempts=1))
    assert (await agent.prompt("go")).outcome == "error"
    result = await agent.resume()
    assert result.outcome == "completed"
    assert provider.requests[0].messages == provider.requests[1].messages
    assert said(result.messages) == ['assistant stop "here"']
    assert_settled(recorder)


async def test_A8_resume_after_an_abort_among_tools_goes_on_with_their_results() -> None:
    """An aborted tool turn ends in an empty closing message; resumed, the model reads that its call was cut off."""
    provider = ScriptedProvider([call("c1", "nap", {"seconds": 100}), finish("tool_use")], *replies("I see"))
    agent, recorder = make_agent(provider, tools=[nap])
    on(agent, "tool_execution_start", lambda event: agent.abort())
    assert (await agent.prompt("go")).outcome == "aborted"
    result = await agent.resume()
    assert result.text == "I see"
    assert_paired(provider.requests[1].messages)
    assert provider.requests[1].messages[-1].role == "tool_result"
    assert_settled(recorder)


@pytest.mark.parametrize("how", ["steer", "follow_up"])
async def test_A8_resume_begins_with_a_queued_message_where_nothing_else_could_be_answered(how: str) -> None:
    """Queued messages are enough to resume, also behind an answer."""
    agent, recorder = make_agent(ScriptedProvider(*replies("b")), messages=[UserMessage("go"), AssistantMessage("a")])
    getattr(agent, how)("more")
    assert (await agent.resume()).text == "b"
    assert injected(recorder) == ["1 more"]
    assert_settled(recorder)


async def test_A8_resume_says_first_what_was_steered_and_keeps_a_follow_up_for_later() -> None:
    """With a history that can be answered, steering enters the first turn and a follow-up waits for the end."""
    agent, recorder = make_agent(ScriptedProvider(*replies("a", "b")), messages=[UserMessage("go")])
    agent.follow_up("f")
    agent.steer("s")
    await agent.resume()
    assert injected(recorder) == ["1 s", "2 f"]
    assert_settled(recorder)


@pytest.mark.parametrize("gate", [True, False])
async def test_A8_an_agent_can_be_prompted_from_a_sibling_task_once_it_is_idle(gate: bool) -> None:
    """Whoever waits for idle may prompt at once: the next run begins where the last one ended."""
    event = trio.Event()
    agent, recorder = make_agent(
        ScriptedProvider([text("a"), *([wait(event)] if gate else []), finish()], *replies("b"))
    )

    async def next_one() -> None:
        await agent.wait_for_idle()
        await agent.prompt("again")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(next_one)
        event.set()
    assert [m.text for m in agent.state.messages if isinstance(m, AssistantMessage)] == ["a", "b"]
    assert_settled(recorder)


async def test_A8_a_stalled_run_keeps_what_is_queued_until_it_is_resumed() -> None:
    """Nothing of a run that hangs and is aborted is lost: the prompt is in history, the steering in its queue."""
    agent, recorder = make_agent(ScriptedProvider([stall()], *replies("b")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await trio.testing.wait_all_tasks_blocked()
        agent.steer("are you there?")
        agent.abort()
    assert queued(agent) == ["are you there?"]
    await agent.resume()
    assert injected(recorder) == ["1 go", "1 are you there?"]
    assert_settled(recorder)
