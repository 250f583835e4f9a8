"""`OpenAIChat` turns history of any shape into a request that OpenAI's types accept, at the price of what is new."""

from __future__ import annotations

import gc
import itertools
import json
import re
import time
from collections.abc import Iterable
from typing import Any

import attrs
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.openai_types import validate_chat_request
from tests.wire_files import DONE, a_request, asked, call_delta, delta, played, sent
from trio_agent import (
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._request import ModelSettings, ToolSpec
from trio_agent.providers import ChatDialect, OpenAIChat
from trio_agent.providers._base_url import BaseURL
from trio_agent.providers._openai_chat_dialect import PLAIN, dialect_of
from trio_agent.providers._openai_chat_request import ChatRequestWriter

BYE = [delta({"content": "bye"}, "stop"), DONE]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def body_of(messages: Iterable[Message] = (), dialect: ChatDialect = PLAIN, **fields: Any) -> dict[str, Any]:
    """The body that is written for these messages, checked against OpenAI's types."""
    text, _ = ChatRequestWriter(dialect, "openai-chat").write(a_request(messages, **fields))
    body: dict[str, Any] = json.loads(text)
    validate_chat_request(body)
    return body


def messages_of(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(messages, **options)["messages"]
    return found


GOOD_BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"messages": [{"role": "user", "content": "hi", "unknown": 1}]},
        {"messages": [{"role": "none"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]},
        {"temperature": "hot"},
        {"stream": False},
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"id": "k", "type": "function", "function": {"name": "f"}}]}
            ]
        },
        {"tools": [{"type": "function", "function": {"description": "no name"}}]},
    ],
    ids=repr,
)
def test_the_judge_refuses_what_is_wrong(change: dict[str, Any]) -> None:
    """The types that judge our requests refuse unknown keys, and wrong values also where they are read lazily."""
    validate_chat_request(GOOD_BODY)
    with pytest.raises(ValidationError):
        validate_chat_request({**GOOD_BODY, **change})


class TestTexts:
    """What people and models wrote arrives as they wrote it, and nothing blank does."""

    def test_a_plain_conversation(self) -> None:
        """System prompt, user, assistant and tool messages in the plain form that every server takes."""
        found = messages_of(
            UserMessage("hi"),
            AssistantMessage([Text("let me "), Text("see"), ToolCall("k1", "f", {"a": 1})], "tool_use"),
            ToolResultMessage("k1", "f", "2"),
            AssistantMessage("two"),
            system_prompt="be brief",
        )
        function = {"name": "f", "arguments": '{"a":1}'}
        assert found == [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "let me see",
                "tool_calls": [{"id": "k1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "k1", "content": "2"},
            {"role": "assistant", "content": "two"},
        ]

    def test_nothing_blank_is_sent(self) -> None:
        """Blank prompts, blocks, results and answers are left out, or stand as words where something must stand."""
        found = messages_of(
            UserMessage([Text(""), Text("hi"), Text(" \n")]),
            AssistantMessage([Text(" "), Thinking("hm")]),
            UserMessage(" "),
            AssistantMessage([Text("\n"), ToolCall("k1", "f", {})], "tool_use"),
            ToolResultMessage("k1", "f", " "),
            AssistantMessage(()),
            system_prompt="  ",
        )
        assert [message["role"] for message in found] == ["user", "user", "assistant", "tool"]
        assert [message["content"] for message in found] == ["hi", "(no text)", None, "(no output)"]

    def test_images_are_parts_and_text_alone_is_text(self) -> None:
        """A user message with an image is a list of parts; several texts without one are one text."""
        found = messages_of(UserMessage([Text("look"), Image(PNG, "image/png")]), UserMessage([Text("a"), Text("b")]))
        assert [part["type"] for part in found[0]["content"]] == ["text", "image_url"]
        assert found[1]["content"] == "a\nb"

    @pytest.mark.parametrize(
        ("text", "wanted"), [("a\ud83d\ude00b", "a\U0001f600b"), ("a\ud800b", "a\ufffdb"), ("a\0b", "a\ufffdb")]
    )
    def test_half_characters_and_nul_are_made_safe(self, text: str, wanted: str) -> None:
        """Lone surrogates and NUL, wherever they are, become U+FFFD, and two halves the character that they make."""
        tool = ToolSpec("f", text, {"type": "object", "properties": {"x": {"description": text}}})
        call = ToolCall("k1", "f", raw=f'{{"a":"{text}"}}')
        body = body_of(
            [UserMessage(text), AssistantMessage([Text(text), call], "tool_use"), ToolResultMessage("k1", "f", text)],
            system_prompt=text,
            tools=(tool,),
            settings=ModelSettings(extra_body={"user": text}),
        )
        assert [message["content"] for message in body["messages"]] == [wanted] * 4
        assert body["tools"][0]["function"]["description"] == wanted
        assert body["user"] == wanted
        arguments = body["messages"][2]["tool_calls"][0]["function"]["arguments"]
        assert json.loads(arguments) in ({"a": wanted}, {"invalid_arguments": f'{{"a":"{wanted}"}}'})

    def test_a_request_without_any_message_is_refused(self) -> None:
        """Nothing to send is the caller's mistake, in plain words."""
        with pytest.raises(Exception, match="no message"):
            body_of([])


class TestCalls:
    """Calls and results pair up, and go back as they came."""

    @pytest.mark.parametrize("raw", ['{ "a" :1.0}', '{"a":1e2,"a":2}', '{"é":"\\u00e9\\ud800"}', '{\n\n"x": [ ]\n}'])
    def test_arguments_go_back_byte_for_byte(self, raw: str) -> None:
        """Valid arguments are not written anew: white space, numbers and escapes stay."""
        found = messages_of(
            AssistantMessage([ToolCall("k1", "f", raw=raw)], "tool_use"), ToolResultMessage("k1", "f", "x")
        )
        assert found[0]["tool_calls"][0]["function"]["arguments"] == raw

    def test_dangling_calls_and_results_are_mended(self) -> None:
        """A call without a result gets one, one without a call is told as text, and the order is that of the calls."""
        found = messages_of(
            ToolResultMessage("k0", "f", "early"),
            AssistantMessage([ToolCall("k1", "f", {}), ToolCall("k2", "f", {})], "tool_use"),
            ToolResultMessage("k2", "f", "2"),
            ToolResultMessage("k9", "g", "whose?"),
            ToolResultMessage("k2", "f", "again"),
            CustomMessage("note", {"a": 1}),
            UserMessage("next"),
            AssistantMessage([ToolCall("k3", "f", {})], "tool_use"),
        )
        assert [message["role"] for message in found] == (
            ["user", "assistant", "tool", "tool", "user", "user", "user", "assistant", "tool"]
        )
        assert [message.get("tool_call_id") for message in found if message["role"] == "tool"] == ["k1", "k2", "k3"]
        assert "early" in found[0]["content"]
        assert "whose?" in found[4]["content"]
        assert "no result" in found[2]["content"]

    IDS = st.one_of(st.text(max_size=80), st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True))

    @settings(max_examples=200)
    @given(one=IDS, other=IDS, names=st.lists(st.text(min_size=1, max_size=90), min_size=2, max_size=2, unique=True))
    def test_ids_and_names_are_mapped_to_what_is_allowed(self, one: str, other: str, names: list[str]) -> None:
        """Ids and names of any text become allowed ones, the same every time, different for different texts."""
        calls = [ToolCall(one, names[0], {}), ToolCall(other, names[1], {})]
        results = [ToolResultMessage(one, names[0], "x"), ToolResultMessage(other, names[1], "y")]
        tools = tuple([ToolSpec(name, "", OBJECT) for name in names])
        for characters, dialect in ((r"[a-zA-Z0-9_-]{1,40}", ChatDialect()), (r"[a-zA-Z0-9]{9}", MISTRAL)):
            body = body_of([AssistantMessage(calls, "tool_use"), *results], dialect, tools=tools)
            sent_calls = body["messages"][0]["tool_calls"]
            ids = [call["id"] for call in sent_calls]
            assert ids == [message["tool_call_id"] for message in body["messages"][1:]]
            assert all(re.fullmatch(characters, call_id) for call_id in ids)
            assert (ids[0] == ids[1]) == (one == other)
            assert [call["function"]["name"] for call in sent_calls] == [
                tool["function"]["name"] for tool in body["tools"]
            ]
            assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"]) for call in sent_calls)
            assert (
                body["messages"]
                == body_of([AssistantMessage(calls, "tool_use"), *results], dialect, tools=tools)["messages"]
            )

    async def test_a_mapped_name_comes_back_as_the_tools_own(self) -> None:
        """A call by a mapped name is a call of the tool whose name was mapped."""
        tool = ToolSpec("files.read", "", OBJECT)
        wire_name = body_of([UserMessage("go")], tools=(tool,))["tools"][0]["function"]["name"]
        assert wire_name != "files.read"
        entry = {"index": 0, "id": "k1", "function": {"name": wire_name, "arguments": "{}"}}
        answer = await played(
            OpenAIChat,
            [call_delta(entry), delta({}, "tool_calls"), DONE],
            a_request([UserMessage("go")], tools=(tool,)),
        )
        assert answer.clean().tool_calls[0].name == "files.read"


MISTRAL = dialect_of(BaseURL.parse("https://api.mistral.ai/v1"))


class TestTools:
    """Tools and how they may be called."""

    def test_a_tool_as_it_is_sent(self) -> None:
        """Name, description and schema, the schema always that of an object with properties."""
        tools = (ToolSpec("f", "does f", OBJECT), ToolSpec("g", " ", {"description": "nothing"}))
        assert body_of([UserMessage("go")], tools=tools)["tools"] == [
            {"type": "function", "function": {"name": "f", "description": "does f", "parameters": OBJECT}},
            {
                "type": "function",
                "function": {"name": "g", "parameters": {"description": "nothing", "type": "object", "properties": {}}},
            },
        ]

    def test_strict_is_asked_for_where_it_can_be(self) -> None:
        """A strict tool gets the strict variant and the flag; one that has none is sent plain, as without support."""
        loose = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}}
        tools = (ToolSpec("f", "", OBJECT, True), ToolSpec("g", "", loose, True), ToolSpec("h", "", OBJECT, False))
        strict, plain, off = (tool["function"] for tool in body_of([UserMessage("go")], tools=tools)["tools"])
        assert (strict["strict"], strict["parameters"]["additionalProperties"]) == (True, False)
        assert "strict" not in plain
        assert plain["parameters"] == loose
        assert "strict" not in off
        unsupported = body_of([UserMessage("go")], ChatDialect(strict_tools=False), tools=tools)
        assert not any("strict" in tool["function"] for tool in unsupported["tools"])

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            ("auto", "auto"),
            ("none", "none"),
            ("required", "required"),
            ("f", {"type": "function", "function": {"name": "f"}}),
        ],
    )
    def test_tool_choice(self, choice: str, wanted: Any) -> None:
        """The words pass; a tool's name becomes the object that names it."""
        body = body_of(
            [UserMessage("go")],
            tools=(ToolSpec("f", "", OBJECT),),
            settings=ModelSettings(tool_choice=choice, parallel_tool_calls=False),
        )
        assert (body["tool_choice"], body["parallel_tool_calls"]) == (wanted, False)

    def test_without_tools_nothing_is_said_of_them(self) -> None:
        """Servers refuse a tool choice without tools."""
        body = body_of([UserMessage("go")], settings=ModelSettings(tool_choice="auto", parallel_tool_calls=True))
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)

    def test_a_choice_that_is_no_tool_is_refused(self) -> None:
        """A tool choice that names no tool of the request is the caller's mistake."""
        with pytest.raises(Exception, match="none of the request's tools"):
            body_of([UserMessage("go")], tools=(ToolSpec("f", "", OBJECT),), settings=ModelSettings(tool_choice="g"))

    def test_changed_tools_are_written_anew(self) -> None:
        """A writer that has written tools before writes those of the request, and none where there are none."""
        writer = ChatRequestWriter(ChatDialect(), "p")
        for names in (["f"], ["f", "g"], ["g"], [], ["f"]):
            tools = tuple([ToolSpec(name, "", OBJECT) for name in names])
            body = json.loads(writer.write(a_request([UserMessage("go")], tools=tools))[0])
            assert [tool["function"]["name"] for tool in body.get("tools", [])] == names


class TestSettings:
    """Options go where each server wants them."""

    def test_every_option_has_its_place(self) -> None:
        """Temperature, top_p, limits, stops and seeds in their fields; what is not set is not sent."""
        set_all = ModelSettings(temperature=0.0, top_p=0.5, max_output_tokens=9, stop=("x",), seed=7)
        body = body_of([UserMessage("go")], settings=set_all)
        assert {key: body[key] for key in ("temperature", "top_p", "max_tokens", "stop", "seed")} == (
            {"temperature": 0.0, "top_p": 0.5, "max_tokens": 9, "stop": ["x"], "seed": 7}
        )
        assert set(body_of([UserMessage("go")])) == {"model", "messages", "stream", "stream_options"}

    def test_extra_body_has_the_last_word(self) -> None:
        """What the user adds to the body replaces what we wrote."""
        settings_ = ModelSettings(temperature=1.0, extra_body={"temperature": 0.1, "metadata": {"a": "b"}})
        body = body_of([UserMessage("go")], settings=settings_)
        assert (body["temperature"], body["metadata"]) == (0.1, {"a": "b"})

    @pytest.mark.parametrize(
        ("url", "level", "wanted"),
        [
            ("https://api.openai.com/v1", "max", {"reasoning_effort": "xhigh"}),
            ("https://api.openai.com/v1", "minimal", {"reasoning_effort": "minimal"}),
            ("https://api.openai.com/v1", "off", {}),
            ("https://openrouter.ai/api/v1", "high", {"reasoning": {"effort": "high"}}),
            ("https://api.groq.com/openai/v1", "minimal", {"reasoning_effort": "low"}),
            ("https://api.deepseek.com/v1", "high", {}),
            ("http://127.0.0.1:8080/v1", "medium", {"reasoning_effort": "medium"}),
            ("http://127.0.0.1:8080/v1", "max", {"reasoning_effort": "high"}),
        ],
    )
    def test_reasoning_is_put_to_each_servers_dial(self, url: str, level: Any, wanted: dict[str, Any]) -> None:
        """The same word becomes what each host calls it."""
        text, _ = ChatRequestWriter(dialect_of(BaseURL.parse(url)), "p").write(a_request(reasoning=level))
        body = json.loads(text)
        assert {key: body[key] for key in ("reasoning_effort", "reasoning") if key in body} == wanted

    def test_known_hosts_are_spoken_to_in_their_way(self) -> None:
        """OpenAI's limit has its own name; Mistral is not asked for usage; Azure takes its key in its own header."""
        settings_ = ModelSettings(max_output_tokens=5)
        openai = body_of(
            [UserMessage("go")], dialect_of(BaseURL.parse("https://api.openai.com/v1")), settings=settings_
        )
        assert openai["max_completion_tokens"] == 5
        assert "stream_options" not in body_of([UserMessage("go")], MISTRAL)
        assert "prompt_cache_key" not in body_of([UserMessage("go")])
        azure = OpenAIChat(base_url="https://me.openai.azure.com/openai/v1", api_key="abc")
        assert azure._headers["api-key"] == "abc"
        assert "authorization" not in azure._headers

    def test_the_cache_key_is_that_of_the_conversations_beginning(self) -> None:
        """OpenAI gets a key that stays while system prompt and tools do, and changes with them."""
        openai = dialect_of(BaseURL.parse("https://api.openai.com/v1"))
        tools = (ToolSpec("f", "", OBJECT),)

        def key(text: str = "go", **fields: Any) -> str:
            found: str = body_of([UserMessage(text)], openai, **{"system_prompt": "s", "tools": tools, **fields})[
                "prompt_cache_key"
            ]
            return found

        assert key() == key("go on")
        assert len({key(), key(system_prompt="t"), key(tools=())}) == 3

    @pytest.mark.parametrize("choice", ["developer", "system"])
    def test_the_system_prompt_has_the_servers_role(self, choice: Any) -> None:
        """The role of the system prompt can be chosen."""
        found = messages_of(UserMessage("go"), system_prompt="s", dialect=ChatDialect(system_role=choice))
        assert found[0] == {"role": choice, "content": "s"}

    def test_user_messages_in_a_row_can_be_made_one(self) -> None:
        """Steered messages, and those around an answer that was left out: as text where all is text, else as parts."""
        picture = UserMessage([Text("see"), Image(PNG, "image/png")])
        strict = ChatDialect(merge_users=True)
        history = (UserMessage("one"), AssistantMessage([Text(" ")]), UserMessage('t"wo\n'), AssistantMessage("yes"))
        merged = messages_of(*history, UserMessage("three"), picture, UserMessage("four"), dialect=strict)
        assert [message["role"] for message in merged] == ["user", "assistant", "user"]
        assert merged[0]["content"] == 'one\n\nt"wo\n'
        assert [part.get("text", part["type"]) for part in merged[2]["content"]] == [
            "three",
            "see",
            "image_url",
            "four",
        ]
        assert len(messages_of(*history)) == 3

    def test_images_of_results_join_what_the_user_says_next(self) -> None:
        """They stand in a user message of their own otherwise, in front of the next one."""
        call, result = ToolCall("k1", "look", {}), ToolResultMessage("k1", "look", [Image(PNG, "image/png")])
        history = (UserMessage("go"), AssistantMessage([call], "tool_use"), result, UserMessage("and?"))
        roles = [message["role"] for message in messages_of(*history)]
        assert roles == ["user", "assistant", "tool", "user", "user"]
        merged = messages_of(*history, dialect=ChatDialect(merge_users=True))
        assert [message["role"] for message in merged] == roles[:-1]
        assert [part["type"] for part in merged[-1]["content"]] == ["text", "image_url", "text"]


class TestReasoning:
    """Reasoning goes back only to the model that it came from, and only where the server wants it."""

    CALLS = (ToolCall("k1", "f", {}),)
    RESULT = ToolResultMessage("k1", "f", "x")

    def answer(self, model: str = "some-model", provider: str = "openai-chat", **thought: Any) -> AssistantMessage:
        thinking = Thinking("hm", **thought)
        return AssistantMessage([thinking, *self.CALLS], "tool_use", model=model, provider=provider)

    def sent(self, message: AssistantMessage, dialect: ChatDialect, **options: Any) -> dict[str, Any]:
        text, _ = ChatRequestWriter(dialect, "openai-chat").write(a_request([message, self.RESULT], **options))
        found: dict[str, Any] = json.loads(text)["messages"][0]
        return {key: found[key] for key in found if key.startswith("reasoning")}

    def test_by_default_it_does_not_go_back(self) -> None:
        """A server of which nothing is known gets no reasoning."""
        assert self.sent(self.answer(), ChatDialect()) == {}

    @pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
    def test_it_goes_back_in_the_servers_field(self, field: Any) -> None:
        """Where the server wants it, the text goes back beside the calls."""
        assert self.sent(self.answer(), ChatDialect(reasoning_field=field)) == {field: "hm"}

    def test_details_go_back_with_what_proves_them(self) -> None:
        """OpenRouter gets signatures and opaque details as they came."""
        dialect = ChatDialect(reasoning_field="reasoning_details")
        signed = self.sent(self.answer(signature="sig"), dialect)["reasoning_details"]
        assert [(part["type"], part["text"], part["signature"]) for part in signed] == [("reasoning.text", "hm", "sig")]
        detail = {"type": "reasoning.encrypted", "data": "xyz", "id": "r1"}
        assert self.sent(self.answer(redacted=json.dumps(detail)), dialect) == {"reasoning_details": [detail]}
        assert self.sent(self.answer(redacted="of another provider"), dialect) == {"reasoning_details": []}

    def test_a_signature_does_not_go_with_a_text_that_had_to_be_changed(self) -> None:
        """What breaks servers is replaced, and then nothing proves the text any more; opaque details are made safe."""
        dialect = ChatDialect(reasoning_field="reasoning_details")
        for block in ({"text": "a\0", "signature": "sig"}, {"text": "a\ufffd", "signature": "s\ud800"}):
            answer = attrs.evolve(self.answer(), content=(Thinking(**block), *self.CALLS))
            assert self.sent(answer, dialect) == {"reasoning_details": [{"type": "reasoning.text", "text": "a\ufffd"}]}
        details = self.sent(self.answer(redacted='{"data": "a\\u0000"}'), dialect)
        assert details == {"reasoning_details": [{"data": "a\ufffd"}]}

    @pytest.mark.parametrize(
        ("model", "provider", "goes"),
        [
            ("some-model", "openai-chat", True),
            ("some-model-2026-01-31", "openai-chat", True),
            ("vendor/Some-Model", "openai-chat", True),
            ("some-model-mini", "openai-chat", False),
            ("other", "openai-chat", False),
            (None, "openai-chat", False),
            ("some-model", "anthropic", False),
        ],
    )
    def test_another_models_reasoning_stays_here(self, model: Any, provider: str, goes: bool) -> None:
        """Reasoning of another provider or model is not sent; a date in a model's name makes no other model of it."""
        dialect = ChatDialect(reasoning_field="reasoning")
        assert bool(self.sent(self.answer(model, provider), dialect)) is goes

    def test_a_change_of_model_is_noticed_in_written_messages(self) -> None:
        """A message written for its own model is written anew, without its reasoning, for another one."""
        writer = ChatRequestWriter(ChatDialect(reasoning_field="reasoning"), "openai-chat")
        message = self.answer()
        for model, goes in (("some-model", True), ("other", False), ("some-model", True)):
            body = json.loads(writer.write(a_request([message, self.RESULT], model=model))[0])
            assert ("reasoning" in body["messages"][0]) is goes


TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["", " ", "\ud800", "a\0b", "hello", "\ud83d\ude00"]))
RAWS = st.one_of(
    st.sampled_from(["", "null", "{}", "[]", "3", "{", '{"a": 1}', '{"a":"\ud800"}', "[" * 50]),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3).map(json.dumps),
)
IDS = st.one_of(st.sampled_from(["", "k1", "k2", "k3", "toolu_01", "a" * 70, "é/ü", "call:1"]), st.text(max_size=8))
NAMES = st.one_of(st.sampled_from(["f", "files.read", "mcp__x__" + "y" * 80, "ü"]), st.text(min_size=1, max_size=8))
IMAGES = st.builds(Image, st.binary(min_size=1, max_size=9), st.sampled_from(["image/png", "image/jpeg"]))
BLOCKS = st.one_of(st.builds(Text, TEXTS), IMAGES)
THOUGHTS = st.builds(Thinking, TEXTS, st.none() | st.text(max_size=5), st.none() | st.text(max_size=5))
CALLS = st.builds(lambda call_id, name, raw: ToolCall(call_id, name, raw=raw), IDS, NAMES, RAWS)
ORIGINS = st.sampled_from([None, "some-model", "claude-x", "openai-chat", "anthropic", "gemini"])
MESSAGES = st.one_of(
    st.builds(UserMessage, st.lists(BLOCKS, max_size=3)),
    st.builds(
        AssistantMessage,
        st.lists(st.one_of(st.builds(Text, TEXTS), THOUGHTS, CALLS), max_size=4),
        st.sampled_from(["stop", "length", "tool_use", "error", "aborted"]),
        model=ORIGINS,
        provider=ORIGINS,
    ),
    st.builds(ToolResultMessage, IDS, NAMES, st.lists(BLOCKS, max_size=2), st.booleans()),
    st.builds(CustomMessage, st.just("note"), st.just(None)),
)
TOOLS = st.lists(
    st.builds(
        ToolSpec, NAMES, TEXTS, st.sampled_from([OBJECT, {}, {"type": "object"}]), st.sampled_from([None, True, False])
    ),
    max_size=3,
    unique_by=lambda tool: tool.name,
)


def assert_acceptable(body: dict[str, Any]) -> None:
    """What no type says: pairing (I1), nothing blank, arguments that are objects, ids and names in their alphabets."""
    awaited: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == awaited.pop(0)
        else:
            assert awaited == []
        for call in message.get("tool_calls", ()):
            awaited.append(call["id"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call["id"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
        content = message["content"]
        texts = (
            [content]
            if isinstance(content, str)
            else [part["text"] for part in content or () if part["type"] == "text"]
        )
        assert content is not None or message.get("tool_calls")
        assert content != []
        assert all(text.strip() and "\0" not in text for text in texts)
    assert awaited == []


@settings(max_examples=400)
@given(
    messages=st.lists(MESSAGES, max_size=8),
    tools=TOOLS,
    images=st.booleans(),
    field=st.sampled_from([None, "reasoning"]),
    merge_users=st.booleans(),
)
def test_any_history_becomes_a_request_that_openais_types_accept(
    messages: list[Message], tools: list[ToolSpec], images: bool, field: Any, merge_users: bool
) -> None:
    """Whatever is in a history, from whatever provider: valid by OpenAI's own types, paired, nothing blank."""
    request = a_request([UserMessage("go"), *messages], tools=tuple(tools), system_prompt="s")
    dialect = ChatDialect(images=images, reasoning_field=field, merge_users=merge_users)
    text, _ = ChatRequestWriter(dialect, "openai-chat").write(request)
    body = json.loads(text.decode("utf-8", "strict"))
    assert_acceptable(body)
    roles = [message["role"] for message in body["messages"]]
    assert not merge_users or ("user", "user") not in itertools.pairwise(roles)
    for message in body["messages"]:
        message.pop("reasoning", None)  # no field of OpenAI's
    validate_chat_request(body)


@settings(max_examples=100)
@given(messages=st.lists(MESSAGES, max_size=6))
def test_what_was_written_once_is_written_alike_ever_after(messages: list[Message]) -> None:
    """A history that grows keeps its beginning byte for byte, which is what a prompt cache needs."""
    writer = ChatRequestWriter(ChatDialect(), "openai-chat")
    ends = [at for at, message in enumerate(messages) if not isinstance(message, ToolResultMessage)]
    texts = [writer.write(a_request([UserMessage("go"), *messages[: at + 1]]))[0] for at in ends]
    fresh = [
        ChatRequestWriter(ChatDialect(), "openai-chat").write(a_request([UserMessage("go"), *messages[: at + 1]]))[0]
        for at in ends
    ]
    assert texts == fresh


class TestCost:
    """A request costs what is new in it."""

    @staticmethod
    def history(turns: int) -> list[Message]:
        found: list[Message] = []
        for turn in range(turns):
            call = ToolCall(f"k{turn}", "read", {"path": f"file-{turn}.txt", "limit": turn})
            found += [UserMessage(f"question {turn} " * 20), AssistantMessage([Text("let me look"), call], "tool_use")]
            found += [ToolResultMessage(call.id, "read", "line of text\n" * 40), AssistantMessage("an answer " * 30)]
        return found

    def seconds(self, turns: int) -> tuple[float, float]:
        """Per message: written for the first time, and written again."""
        request = a_request(self.history(turns))
        first: list[float] = []
        again: list[float] = []
        for _ in range(5):
            writer = ChatRequestWriter(ChatDialect(), "p")
            for taken in (first, again):
                start = time.perf_counter()
                writer.write(request)
                taken.append((time.perf_counter() - start) / len(request.messages))
        return min(first), min(again)

    @pytest.mark.real_time
    def test_a_long_history_costs_no_more_per_message_than_a_short_one(self) -> None:
        """Per message, writing a request again takes as long with 2,000 turns as with 50, and less than at first."""
        (_, short), (first, long) = self.seconds(50), self.seconds(2000)
        assert (long < 6 * short, 2 * long < first) == (True, True), (short, first, long)

    def test_messages_are_written_once(self) -> None:
        """Each message is written when it is first seen, and never again while it lives."""
        writer = ChatRequestWriter(ChatDialect(), "p")
        written: list[Message] = []
        write = writer._fragments._write
        writer._fragments._write = lambda message, variant: (written.append(message), write(message, variant))[1]
        messages = self.history(3)
        for length in (4, 8, 12, 12):
            writer.write(a_request(messages[:length]))
        assert [id(message) for message in written] == [id(message) for message in messages]

    def test_what_was_written_is_forgotten_with_its_message(self) -> None:
        """The cache holds no message and nothing of a message that is gone."""
        writer = ChatRequestWriter(ChatDialect(), "p")
        messages = self.history(3)
        writer.write(a_request(messages))
        assert len(writer._fragments) == 12
        del messages[6:]
        gc.collect()
        assert len(writer._fragments) == 6


async def test_the_request_goes_to_its_path_with_its_headers() -> None:
    """POST to chat/completions below the base URL, JSON both ways, streamed."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"".join(BYE))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await asked(OpenAIChat(base_url="http://h.test/api/v1/", client=client, api_key="k"))
    [request] = seen
    assert (request.method, str(request.url)) == ("POST", "http://h.test/api/v1/chat/completions")
    assert request.headers["content-type"] == "application/json"
    assert "text/event-stream" in request.headers["accept"]
    assert int(request.headers["content-length"]) == len(request.content)


async def test_a_conversation_moves_between_providers() -> None:
    """A history of Anthropic's and Gemini's words is sent without anything that is only theirs."""
    history = (
        UserMessage("go"),
        AssistantMessage(
            [
                Thinking("hm", signature="sig"),
                Thinking("", redacted="xyz"),
                Text("ok"),
                ToolCall("toolu_01", "f", {}, signature="s"),
            ],
            "tool_use",
            provider="anthropic",
            model="claude-x",
        ),
        ToolResultMessage("toolu_01", "f", "x"),
    )
    body = await sent(OpenAIChat, a_request(history), BYE)
    assert set(body["messages"][1]) == {"role", "content", "tool_calls"}
    assert set(body["messages"][1]["tool_calls"][0]) == {"id", "type", "function"}
