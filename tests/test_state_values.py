"""What is handed out: nothing of it lets anyone change history, and a picture of the state costs constant time."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from enum import Enum
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import trio_agent
from trio_agent._agent import Agent
from trio_agent._chunks import BlockEnd, Finish, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart, UsageReport
from trio_agent._events import Event, MessageEnd, MessageUpdate, ToolExecutionStart
from trio_agent._history import History, View
from trio_agent._hooks import Replace
from trio_agent._messages import (
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from trio_agent._provider import Send
from trio_agent._request import ModelRequest, ModelSettings, ToolSpec
from trio_agent._tools import Tool

VALUE_MODULES = [
    "_chunks",
    "_errors",
    "_events",
    "_hooks",
    "_messages",
    "_policies",
    "_request",
    "_result",
    "_state",
    "_tools",
]


def value_classes() -> list[type]:
    """Every attrs class of the modules whose values are handed out."""
    names = [info.name for info in pkgutil.iter_modules(trio_agent.__path__) if info.name in VALUE_MODULES]
    assert sorted(names) == VALUE_MODULES
    modules = [importlib.import_module(f"trio_agent.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return sorted(
        {c for c in found if attrs.has(c) and c.__module__.startswith("trio_agent.")}, key=lambda c: c.__qualname__
    )


@pytest.mark.parametrize("cls", value_classes(), ids=lambda cls: cls.__qualname__)
def test_every_value_class_is_frozen(cls: type) -> None:
    """No attribute of a value can be set, deleted or added."""
    value = object.__new__(cls)
    for name in [*[field.name for field in attrs.fields(cls)], "another"]:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, name, None)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            delattr(value, name)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (UserMessage, "content"),
        (AssistantMessage, "content"),
        (lambda content: ToolResultMessage("c1", "read", content), "content"),
    ],
    ids=["UserMessage", "AssistantMessage", "ToolResultMessage"],
)
def test_a_message_keeps_its_own_content(make: Any, field: str) -> None:
    """A list that a message was made of can change without the message changing."""
    blocks = [Text("a")]
    message = make(blocks)
    blocks.append(Text("b"))
    assert getattr(message, field) == (Text("a"),)


def test_settings_keep_their_own_stop_words() -> None:
    """A list that settings were made of can change without the settings changing."""
    words = ["a"]
    settings = ModelSettings(stop=words)  # type: ignore[arg-type]
    words.append("b")
    assert settings.stop == ("a",)


@pytest.mark.parametrize(
    ("make", "look"),
    [
        (lambda json: ToolCall("c1", "read", json), lambda call: call.arguments),
        (lambda json: ToolExecutionStart(ToolCall("c1", "read", json)), lambda event: event.arguments),
        (lambda json: ToolResultMessage("c1", "read", "x", details=json), lambda result: result.details),
        (lambda json: CustomMessage("note", json), lambda custom: custom.payload),
        (lambda json: ToolSpec("read", "", json), lambda spec: spec.parameters),
        (lambda json: ModelSettings(extra_body=json), lambda settings: settings.extra_body),
        (lambda json: ModelSettings(extra_headers=json), lambda settings: settings.extra_headers),
        (Replace, lambda replacement: replacement.arguments),
    ],
    ids=["arguments", "event arguments", "details", "payload", "parameters", "extra_body", "extra_headers", "Replace"],
)
def test_json_is_a_copy_going_in_and_coming_out(make: Any, look: Any) -> None:
    """Neither the JSON value that something was made of, nor one that was looked at, leads back into it."""
    given = {"path": {"parts": ["a"]}}
    value = make(given)
    given["path"]["parts"].append("in")
    look(value)["path"]["parts"].append("out")
    look(value)["more"] = 1
    assert look(value) == {"path": {"parts": ["a"]}}


def test_a_view_has_no_way_to_change() -> None:
    """A view takes no assignment, and offers none of a list's ways to change it."""
    view = History([UserMessage("a")]).view()
    with pytest.raises(TypeError):
        view[0] = UserMessage("b")  # type: ignore[index]
    with pytest.raises(TypeError):
        del view[0]  # type: ignore[attr-defined]
    for name in ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "__iadd__", "__imul__"):
        assert not hasattr(view, name)
    assert type(view[:]) is tuple
    assert type(view.__add__([UserMessage("b")])) is tuple
    assert view == (UserMessage("a"),)


def test_a_view_stays_as_it_was() -> None:
    """What is appended to history, or takes its place, does not show in a view that was given out before."""
    history: History[Message] = History([UserMessage("a")])
    before = history.view()
    history.append(UserMessage("b"))
    between = history.view()
    history.replace([UserMessage("summary")])
    history.append(UserMessage("c"))
    assert before == [UserMessage("a")]
    assert between == [UserMessage("a"), UserMessage("b")]
    assert history.view() == [UserMessage("summary"), UserMessage("c")]
    with pytest.raises(IndexError):
        before[1]


def test_history_keeps_its_own_list() -> None:
    """A list that history was made of, or was replaced by, can change without history changing."""
    given: list[Message] = [UserMessage("a")]
    history = History(given)
    given.append(UserMessage("b"))
    assert history.view() == [UserMessage("a")]
    history.replace(given)
    given.clear()
    assert history.view() == [UserMessage("a"), UserMessage("b")]


# -- a whole run ---------------------------------------------------------------------------------------------------


async def calls_and_answers(request: ModelRequest, send: Send) -> None:
    """A fake model: one call with thinking, and answers from then on."""
    if any(isinstance(message, ToolResultMessage) for message in request.messages):
        chunks: list[Any] = [
            TextDelta(0, "al"),
            TextDelta(0, "right"),
            UsageReport(Usage(input=9, output=2)),
            Finish("stop"),
        ]
    else:
        chunks = [
            ThinkingDelta(0, "hm"),
            BlockEnd(0, "sig"),
            ToolCallStart(1, "c1", "look"),
            ToolCallDelta(1, '{"a":'),
            ToolCallDelta(1, "[1]}"),
        ]
        chunks.append(Finish("tool_use"))
    for chunk in chunks:
        await send(chunk)


async def look(arguments: dict[str, Any]) -> list[Text | Image]:
    await trio.lowlevel.checkpoint()
    arguments["a"].append(2)  # a tool may do with its arguments what it likes
    return [Text("seen"), Image(b"x", "image/png")]


def make_agent(messages: list[Message]) -> Agent:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    return Agent(
        calls_and_answers, model="m", tools=[Tool(name="look", parameters=schema, execute=look)], messages=messages
    )


def handed_out() -> list[tuple[str, object]]:
    """Everything that one run hands out: events, the states beside them, and the result."""
    found: list[tuple[str, object]] = []
    agent = make_agent(
        [CustomMessage("note", {"a": [1]}), UserMessage([Text("x"), Image(b"x", "image/png")]), AssistantMessage("y")]
    )

    def listener(event: Event) -> None:
        found.extend([(event.type, event), (f"state at {event.type}", agent.state)])

    async def main() -> None:
        with trio.fail_after(60):
            agent.subscribe(listener)
            agent.follow_up("later")
            agent.steer("first")
            result = await agent.prompt("go")
            result.raise_for_error()
            found.append(("result", result))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return found


def mutable_parts(value: object, path: str) -> Iterator[str]:
    """Where one can get from a value, by public attributes, to something that can be changed."""
    if value is None or isinstance(value, str | bytes | int | float | Enum):
        return
    if isinstance(value, tuple | View):
        for at, item in enumerate(value):
            yield from mutable_parts(item, f"{path}[{at}]")
    elif isinstance(value, Tool) or not (attrs.has(type(value)) and type(value) in value_classes()):
        if not isinstance(value, Tool):
            yield f"{path} is a {type(value).__name__}"
    else:
        for name in public_attributes(type(value)):
            part = getattr(value, name)
            if isinstance(part, dict | list):  # decoded afresh at each look, or it can be changed
                if part is getattr(value, name):
                    yield f"{path}.{name} is the same {type(part).__name__} at each look"
            else:
                yield from mutable_parts(part, f"{path}.{name}")


def public_attributes(cls: type) -> list[str]:
    fields = [field.name for field in attrs.fields(cls)]
    properties = [name for c in cls.__mro__ for name, value in vars(c).items() if isinstance(value, property)]
    return [name for name in [*fields, *properties] if not name.startswith("_")]


def test_nothing_that_a_run_hands_out_can_be_changed() -> None:
    """From every event, state and result of a run, public attributes lead to values that nobody can change."""
    found = handed_out()
    assert len(found) > 30
    assert [path for name, value in found for path in mutable_parts(value, name)] == []


def test_the_walk_finds_what_could_be_changed() -> None:
    """The walk of the test before does tell of a list in a field."""
    event = MessageEnd([UserMessage("a")])  # type: ignore[arg-type]
    assert list(mutable_parts(event, "event")) == ["event.message is the same list at each look"]
    event = MessageEnd(UserMessage)  # type: ignore[arg-type]
    assert list(mutable_parts(event, "event")) == ["event.message is a type"]


def test_a_tool_that_changes_its_arguments_changes_its_own() -> None:
    """What a tool does to the arguments that it was given shows nowhere in history or events."""
    events = [value for name, value in handed_out() if isinstance(value, MessageEnd | ToolExecutionStart)]
    calls = [event.call for event in events if isinstance(event, ToolExecutionStart)]
    calls += [
        c
        for e in events
        if isinstance(e, MessageEnd) and isinstance(e.message, AssistantMessage)
        for c in e.message.tool_calls
    ]
    assert [call.arguments for call in calls] == [{"a": [1]}, {"a": [1]}]
    assert {call.raw for call in calls} == {'{"a":[1]}'}


def test_an_update_shows_the_message_as_it_was_then() -> None:
    """L4: read after the run, each update still shows as much of the message as had come."""
    updates = [value for _, value in handed_out() if isinstance(value, MessageUpdate)]
    texts = [update.message.content for update in updates if update.message is not None]
    assert texts[0] == (Thinking("hm"),)
    assert texts[-2:] == [(Text("al"),), (Text("alright"),)]


def test_a_state_stays_as_it_was() -> None:
    """A state that was taken during a run does not change with the run, nor does its streaming message."""
    states = [value for name, value in handed_out() if name.startswith("state")]
    lengths = [len(state.messages) for state in states]  # type: ignore[attr-defined]
    assert lengths == sorted(lengths)
    assert lengths[0] == 3
    assert lengths[-1] == 10
    streaming = [s.streaming_message.text for s in states if s.streaming_message is not None]  # type: ignore[attr-defined]
    assert {"", "al", "alright"} <= set(streaming)


# -- the cost of a picture -----------------------------------------------------------------------------------------


class Counting(list[Message]):
    """A list that counts how often any of its items is read."""

    reads = 0

    def __iter__(self) -> Iterator[Message]:
        for item in super().__iter__():
            self.reads += 1
            yield item

    def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
        items = super().__getitem__(index)
        self.reads += len(items) if isinstance(index, slice) else 1
        return items

    def copy(self) -> list[Message]:
        self.reads += len(self)
        return super().copy()


def reads_of_a_picture(length: int) -> int:
    agent = make_agent([])
    counting = Counting([UserMessage("x")] * length)
    agent._conversation.history._items = counting
    for _ in range(3):
        state = agent.state
        assert len(state.messages) == length
    return counting.reads


def test_a_picture_reads_none_of_history() -> None:
    """Taking the state reads no message, however long the history is."""
    assert reads_of_a_picture(10) == reads_of_a_picture(10_000) == 0


def test_the_counting_list_counts() -> None:
    """The count of the test before does notice a copy, a slice and a loop."""
    counting = Counting([UserMessage("x")] * 10)
    assert [tuple(counting), list(counting), counting[:], counting.copy(), [*counting]]
    assert counting.reads == 50


def test_pictures_share_one_list() -> None:
    """A thousand pictures of a growing history hold one list between them."""
    history: History[Message] = History()
    views = []
    for _ in range(1000):
        history.append(UserMessage("x"))
        views.append(history.view())
    assert len({id(view._items) for view in views}) == 1
    assert [len(view) for view in views] == list(range(1, 1001))
