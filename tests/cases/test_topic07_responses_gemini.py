"""Topic 7: quirks of OpenAI's Responses API and of Gemini, as others have met them, through the whole agent.

What B071 says of the Responses API is here too. B080 and B084 are Anthropic's; what they ask of Gemini is here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import test_gemini as gemini
from tests import test_openai_responses as responses
from tests.google_types import validate_generate_request
from tests.openai_types import validate_responses_request
from tests.test_gemini import chunk
from tests.test_openai_responses import CREATED, call_item, called, completed, event, said, thought
from tests.wire_agent import RETRY, agent_over
from tests.wire_files import data, delta, played
from trio_agent import Message, RunResult, decode, encode
from trio_agent._errors import ProviderError
from trio_agent._messages import Usage
from trio_agent.providers import Gemini, OpenAIChat, OpenAIResponses


def error_of(result: RunResult) -> ProviderError:
    assert isinstance(result.error, ProviderError)
    return result.error


def kinds_of(body: dict[str, Any]) -> list[str]:
    validate_responses_request(body)
    return [item.get("role", item.get("type")) for item in body["input"]]


async def test_b071_a_heartbeat_of_an_unknown_type() -> None:
    """B071: a keep-alive in the form of an event that is none changes nothing."""
    alive = data({"type": "keepalive", "sequence_number": 12})
    answer = await played(OpenAIResponses, [alive, CREATED, alive, said("a"), alive, completed(), alive])
    assert answer.clean().text == "a"


HALF = [CREATED, event("output_text.delta", output_index=0, delta="half")]
COUNTS = {"input_tokens": 3, "output_tokens": 4}
INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": COUNTS}
FAILED = {"status": "failed", "error": {"code": "server_error", "message": "x"}}


@pytest.mark.parametrize(
    ("end", "kind", "again"),
    [
        (event("failed", response=FAILED), "server", True),
        (data({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}), "rate_limit", True),
        (b"", "network", True),
    ],
    ids=["failed", "error", "cut"],
)
async def test_b089_no_end_but_completed_is_a_success(end: bytes, kind: str, again: bool) -> None:
    """B089: a failed response, an error event and a plain end of the body are errors, with the text before them."""
    async with agent_over(OpenAIResponses, [*HALF, end]) as (agent, _, _):
        result = await agent.prompt("go")
    assert (result.outcome, result.text) == ("error", "half")
    assert (error_of(result).kind, error_of(result).retryable) == (kind, again)


async def test_b089_an_incomplete_response_is_a_cut_one() -> None:
    """B089: what reached the limit is `length`, its usage is recorded, and it is not tried again."""
    end = event("incomplete", response=INCOMPLETE)
    async with agent_over(OpenAIResponses, [*HALF, end], retry=RETRY) as (agent, service, _):
        result = await agent.prompt("go")
    assert (result.outcome, result.reason, result.text) == ("completed", "length", "half")
    assert (result.usage, len(service.requests)) == (Usage(3, 4, total=7), 1)


async def test_b091_reasoning_goes_back_directly_before_its_call() -> None:
    """B091: the next request has reasoning, call and output in this order, with what was encrypted unchanged."""
    first = [CREATED, thought("rs1", "E1"), called("k1", '{"n":1}', 1), completed()]
    async with agent_over(OpenAIResponses, first, responses.BYE) as (agent, service, _):
        assert (await agent.prompt("go")).text == "bye"
    items = service.requests[1]["input"]
    assert kinds_of(service.requests[1]) == ["user", "reasoning", "function_call", "function_call_output"]
    assert items[1] == {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "E1"}
    assert (items[2]["call_id"], items[2]["arguments"], items[3]["call_id"]) == ("k1", '{"n":1}', "k1")


async def test_b091_two_calls_after_one_item_of_reasoning() -> None:
    """B091: reasoning, both calls, then both outputs, also when the second call ends first, and from a log."""
    first = [CREATED, thought("rs1", "E1"), called("k1", '{"n":1}', 1), called("k2", '{"n":2}', 2), completed()]
    wanted = ["user", "reasoning", "function_call", "function_call", "function_call_output", "function_call_output"]
    async with agent_over(OpenAIResponses, first, responses.BYE) as (agent, service, ran):
        ran.delays[1] = 5.0
        await agent.prompt("go")
        history = agent.state.messages
    assert kinds_of(service.requests[1]) == wanted
    assert [item["output"] for item in service.requests[1]["input"][4:]] == ["result 1", "result 2"]
    from_log: list[Message] = [decode(encode(message)) for message in history]
    async with agent_over(OpenAIResponses, responses.BYE, messages=from_log) as (agent, service, _):
        await agent.prompt("on")
    assert service.requests[0]["input"][1]["encrypted_content"] == "E1"
    assert kinds_of(service.requests[0])[:6] == wanted


async def test_b093_no_filler_and_no_lonely_reasoning() -> None:
    """B093: reasoning is followed by its call or its message, never by an empty one; alone it is not sent."""
    mixed = [CREATED, thought("rs1", "E1"), said("a", 1), called("k1", place=2), completed()]
    async with agent_over(OpenAIResponses, mixed, responses.BYE) as (agent, service, _):
        await agent.prompt("go")
    assert kinds_of(service.requests[1]) == (
        ["user", "reasoning", "assistant", "function_call", "function_call_output"]
    )
    lonely = [CREATED, thought("rs1", "E1")]
    async with agent_over(OpenAIResponses, lonely, responses.BYE) as (agent, service, _):
        assert (await agent.prompt("go")).outcome == "error"
        await agent.prompt("on")
    assert kinds_of(service.requests[1]) == ["user", "user"]


async def test_call_ids_that_a_service_uses_again() -> None:
    """A service that gives every call the same id, turn after turn, gets ids back that are one call's each."""
    turn = [CREATED, called("call_0"), completed(call_item("call_0"))]
    async with agent_over(OpenAIResponses, turn, turn, responses.BYE) as (agent, service, ran):
        assert (await agent.prompt("go")).text == "bye"
    made = [item["call_id"] for item in service.requests[2]["input"] if item.get("type") == "function_call"]
    got = [item["call_id"] for item in service.requests[2]["input"] if item.get("type") == "function_call_output"]
    assert (made == got, len(set(made)), len(ran.calls)) == (True, 2, 2)


def f(n: int, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": "f", "args": {"n": n}}, **more}


async def test_b095_only_the_first_parallel_call_is_signed() -> None:
    """B095: both calls go back in one content, the signature on the first alone, and one content holds both results."""
    calls = [chunk(f(1, thoughtSignature="c2ln"), f(2), finish="STOP")]
    async with agent_over(Gemini, calls, gemini.BYE, model="m") as (agent, service, _):
        assert (await agent.prompt("go")).text == "bye"
    validate_generate_request(service.requests[1])
    _, model, user = service.requests[1]["contents"]
    assert model == {"role": "model", "parts": [f(1, thoughtSignature="c2ln"), f(2)]}
    assert user["role"] == "user"
    assert [part["functionResponse"]["response"]["output"] for part in user["parts"]] == ["result 1", "result 2"]


async def test_b095_a_signature_survives_log_and_change_of_provider() -> None:
    """B095: from a log, and back from another provider, the signature is in its part; the other one never saw it."""
    calls = [chunk(f(1, thoughtSignature="c2ln"), finish="STOP")]
    async with agent_over(Gemini, calls, gemini.BYE, model="m") as (agent, _, _):
        await agent.prompt("go")
        history: list[Message] = [decode(encode(message)) for message in agent.state.messages]
    chat = [delta({"content": "other"}, "stop"), b"data: [DONE]\n\n"]
    async with agent_over(OpenAIChat, chat, model="y", messages=history) as (agent, service, _):
        await agent.prompt("on")
        history = list(agent.state.messages)
    assert "c2ln" not in json.dumps(service.requests[0])
    async with agent_over(Gemini, gemini.BYE, model="m", messages=history) as (agent, service, _):
        await agent.prompt("back")
    assert service.requests[0]["contents"][1]["parts"] == [f(1, thoughtSignature="c2ln")]


async def test_b097_two_calls_of_one_tool_without_ids() -> None:
    """B097: two calls, two ids, results in order although the second ends first; no id is sent that was not given."""
    calls = [chunk(f(1)), chunk(f(2), finish="STOP")]
    async with agent_over(Gemini, calls, gemini.BYE) as (agent, service, ran):
        ran.delays[1] = 5.0
        assert (await agent.prompt("go")).text == "bye"
        ids = [result.tool_call_id for result in agent.state.messages if result.role == "tool_result"]
    assert len(set(ids)) == 2
    _, model, user = service.requests[1]["contents"]
    assert [part["functionCall"]["args"]["n"] for part in model["parts"]] == [1, 2]
    assert [part["functionResponse"]["response"]["output"] for part in user["parts"]] == ["result 1", "result 2"]
    assert "id" not in {key for part in model["parts"] + user["parts"] for value in part.values() for key in value}


async def test_b097_an_id_that_was_given_goes_back() -> None:
    """B097: where the service did give ids, call and result carry them."""
    part = {"functionCall": {"name": "f", "args": {"n": 1}, "id": "fc-9"}}
    async with agent_over(Gemini, [chunk(part, finish="STOP")], gemini.BYE) as (agent, service, _):
        await agent.prompt("go")
    _, model, user = service.requests[1]["contents"]
    assert (model["parts"], user["parts"][0]["functionResponse"]["id"]) == ([part], "fc-9")


def ended(reason: str, *parts: Any, **fields: Any) -> bytes:
    content = {"content": {"parts": list(parts)}} if parts else {}
    candidate = {"index": 0, "finishReason": reason, **content, **fields}
    return data({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 4}})


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (ended("MALFORMED_FUNCTION_CALL", finishMessage="bad"), "protocol"),
        (ended("MALFORMED_FUNCTION_CALL", f(1), finishMessage="bad"), "protocol"),
        (ended("UNEXPECTED_TOOL_CALL", finishMessage="bad"), "protocol"),
        (ended("SAFETY", finishMessage="bad"), "content_filter"),
        (ended("RECITATION", finishMessage="bad"), "content_filter"),
        (data({"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "bad"}}), "content_filter"),
    ],
    ids=["malformed", "malformed beside a call", "unexpected", "safety", "recitation", "prompt"],
)
async def test_b098_an_end_without_content_is_no_success(body: bytes, wanted: str) -> None:
    """B098: each is an error that says why; a call beside it is not run; usage is kept."""
    async with agent_over(Gemini, [body]) as (agent, _, ran):
        result = await agent.prompt("go")
    assert (result.outcome, error_of(result).kind, ran.calls) == ("error", wanted, [])
    assert "bad" in error_of(result).message
    assert result.usage.input == (None if b"promptFeedback" in body else 4)


async def test_b098_a_malformed_call_may_be_tried_again() -> None:
    """B098: the model gets another chance, at most so many times as the policy says."""
    bad = [ended("MALFORMED_FUNCTION_CALL")]
    async with agent_over(Gemini, bad, gemini.BYE, retry=RETRY) as (agent, _, _):
        assert (await agent.prompt("go")).text == "bye"
    async with agent_over(Gemini, bad, bad, bad, retry=RETRY) as (agent, service, _):
        assert (await agent.prompt("go")).outcome == "error"
    assert len(service.requests) == 2


async def test_b098_the_limit_without_content_is_a_cut_answer() -> None:
    """B098: an answer that was all thought and reached the limit is `length`, not an error."""
    async with agent_over(Gemini, [ended("MAX_TOKENS")]) as (agent, _, _):
        result = await agent.prompt("go")
    assert (result.outcome, result.reason, result.text) == ("completed", "length", "")


@pytest.mark.parametrize("content", [{}, {"parts": []}, {"parts": None}, None], ids=repr)
async def test_b099_stop_with_empty_parts(content: Any) -> None:
    """B099: behind a text it ends the answer; alone it is an empty answer that goes back in no request."""
    last = data({"candidates": [{"content": content, "finishReason": "STOP"}]})
    async with agent_over(Gemini, [chunk({"text": "a"}), last], [last], gemini.BYE) as (agent, service, _):
        assert (await agent.prompt("go")).text == "a"
        assert (await agent.prompt("on")).outcome == "completed"
        await agent.prompt("still there?")
    validate_generate_request(service.requests[2])
    roles = [(found["role"], len(found["parts"])) for found in service.requests[2]["contents"]]
    assert roles == [("user", 1), ("model", 1), ("user", 2)]


async def test_b099_a_stop_behind_a_call_is_still_a_call() -> None:
    """B099: STOP in the chunk after a call does not make a stop of it."""
    last = data({"candidates": [{"content": {}, "finishReason": "STOP"}]})
    answer = await played(Gemini, [chunk(f(1)), last])
    assert answer.clean().stop_reason == "tool_use"


async def test_b080_users_in_a_row_are_one_content() -> None:
    """B080 for Gemini: what users say in a row, and results before what was steered, is one content."""
    refused = [data({"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}})]
    calls = [chunk(f(1), finish="STOP")]
    async with agent_over(Gemini, refused, calls, gemini.BYE) as (agent, service, _):
        await agent.prompt("one")
        agent.subscribe(lambda event: agent.steer("faster") if event.type == "tool_execution_start" else None)
        await agent.prompt("two")
    first, _, results = service.requests[2]["contents"]
    assert [part["text"] for part in first["parts"]] == ["one", "two"]
    assert [next(iter(part)) for part in results["parts"]] == ["functionResponse", "text"]
