"""A lawful and an unlawful trace for each rule that one trace can show, as JSON objects, and how rules are shown.

Here live the examples that tests hold against the judge, that `trio-agent explain` prints, and the table for the
README. The words of the rules are in `_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from .._codec import decode
from ._judge import check_trace
from ._judge_walk import Violation
from ._render import render
from ._rules import BY_NAME, RULES

JSONEvent: TypeAlias = dict[str, Any]
Part: TypeAlias = JSONEvent | Sequence[JSONEvent]


@attrs.frozen
class Example:
    """A trace that keeps a rule and one that breaks it alone. `given` are further keywords of `check_trace`."""

    lawful: tuple[JSONEvent, ...]
    unlawful: tuple[JSONEvent, ...]
    given: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    given_unlawful: Mapping[str, Any] | None = None

    def judge(self, *, lawful: bool) -> list[Violation]:
        """What the judge finds in one of the two."""
        trace = self.lawful if lawful else self.unlawful
        given = self.given if lawful or self.given_unlawful is None else self.given_unlawful
        return check_trace(trace, complete=True, **given)


# -- parts of traces ----------------------------------------------------------------------------------------------


def _flat(parts: Sequence[Part]) -> list[JSONEvent]:
    return [event for part in parts for event in ([part] if isinstance(part, dict) else part)]


def _run(*parts: Part, outcome: str = "completed", reason: str | None = None) -> tuple[JSONEvent, ...]:
    events = _flat(parts)
    turns = sum(event["type"] == "turn_start" for event in events)
    end = {"type": "agent_end", "outcome": outcome, "reason": reason, "turns": turns}
    return ({"type": "agent_start"}, *events, end)


def _turn(number: int, *parts: Part) -> list[JSONEvent]:
    events = _flat(parts)
    ends = [event["message"] for event in events if event["type"] == "message_end"]
    said = [event["message"] for event in events if "message" in event]
    end = {
        "type": "turn_end",
        "turn": number,
        "message": [message for message in said if message["role"] == "assistant"][-1],
        "tool_results": [message for message in ends if message["role"] == "tool_result"],
    }
    return [{"type": "turn_start", "turn": number}, *events, end]


def _message(text: str) -> JSONEvent:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _user(text: str) -> list[JSONEvent]:
    return [{"type": kind, "message": _message(text)} for kind in ("message_start", "message_end")]


def _answer(text: str, stop: str = "stop", *, calls: Sequence[str] = (), error: str | None = None) -> list[JSONEvent]:
    content: list[JSONEvent] = [{"type": "text", "text": text}] if text else []
    start: JSONEvent = {"role": "assistant", "content": [], "stop_reason": None}
    deltas: list[JSONEvent] = [{"type": "text_delta", "index": 0, "text": text}] if text else []
    deltas += [
        {"type": "tool_call_delta", "index": 1 + at, "id": call, "name": "read", "json": ""}
        for at, call in enumerate(calls)
    ]
    content += [{"type": "tool_call", "id": call, "name": "read", "arguments": {}} for call in calls]
    end: JSONEvent = {"role": "assistant", "content": content, "stop_reason": stop, "error_message": error}
    return [
        {"type": "message_start", "message": start},
        *[{"type": "message_update", "delta": delta} for delta in deltas],
        {"type": "message_end", "message": end},
    ]


def _calls(*calls: str, stop: str = "tool_use") -> list[JSONEvent]:
    return _answer("", stop, calls=calls)


def _of(call: str) -> JSONEvent:
    return {"tool_call_id": call, "tool_name": "read"}


def _start(call: str) -> JSONEvent:
    return {"type": "tool_execution_start", **_of(call), "arguments": {}}


def _update(call: str, text: str) -> JSONEvent:
    return {"type": "tool_execution_update", **_of(call), "partial": [{"type": "text", "text": text}]}


def _result_message(call: str, *, error: bool = False) -> JSONEvent:
    text = "failed" if error else f"what {call} found"
    return {"role": "tool_result", **_of(call), "is_error": error, "content": [{"type": "text", "text": text}]}


def _end(call: str, *, error: bool = False) -> JSONEvent:
    result = _result_message(call, error=error)
    return {"type": "tool_execution_end", **_of(call), "is_error": error, "result": result}


def _results(*calls: str, error: bool = False) -> list[JSONEvent]:
    messages = [_result_message(call, error=error) for call in calls]
    return [{"type": kind, "message": message} for message in messages for kind in ("message_start", "message_end")]


def _ran(*calls: str, error: bool = False) -> list[JSONEvent]:
    ends = [_end(call, error=error) for call in calls]
    return [*[_start(call) for call in calls], *ends, *_results(*calls, error=error)]


def _retry(attempt: int, outcome: str = "resumed") -> list[JSONEvent]:
    error = {"kind": "overloaded", "message": "busy", "status": 529}
    return [
        {"type": "retry_start", "attempt": attempt, "max_attempts": 4, "delay": 1.5, "error": error},
        {"type": "retry_end", "attempt": attempt, "outcome": outcome},
    ]


def _compaction(first_kept: int | None, reason: str = "threshold", outcome: str = "compacted") -> list[JSONEvent]:
    summary = None if first_kept is None else _message("so far")
    return [
        {"type": "compaction_start", "reason": reason},
        {"type": "compaction_end", "outcome": outcome, "summary": summary, "first_kept": first_kept},
    ]


_HELLO: Final = [*_user("hi"), *_answer("hello")]
_ASKED: Final = [*_user("hi"), *_calls("c1")]
_TWO: Final = [*_user("hi"), *_calls("a", "b")]
_BUSY: Final = _answer("he", "error", error="busy")
_BROKE: Final = _answer("", "error", error="broke")
_STOPPED: Final = _answer("", "aborted", error="aborted")
_DONE: Final = _turn(2, *_answer("done"))
_ONE_TURN: Final = _run(_turn(1, _HELLO))


def _two_calls(*events: Part) -> tuple[JSONEvent, ...]:
    return _run(_turn(1, _TWO, *events), _DONE)


_SWAPPED: Final = [*_results("b"), *_results("a")]

EXAMPLES: Final[Mapping[str, Example]] = {
    "L1": Example(_ONE_TURN, (*_ONE_TURN, _update("c1", "late"))),
    "L2": Example(_ONE_TURN, _run(_turn(1, _HELLO, _answer("hello again")))),
    "L3": Example(_ONE_TURN, _run(_turn(1, _HELLO[:-1]))),
    "L4": Example(_ONE_TURN, _run(_turn(1, [*_HELLO[:-2], *_answer("hello!")[1:2], _HELLO[-1]]))),
    "T1": Example(
        _two_calls(_start("a"), _start("b"), _end("b"), _end("a"), _results("a", "b")),
        _two_calls(_start("b"), _start("a"), _end("b"), _end("a"), _results("a", "b")),
    ),
    "T2": Example(
        _two_calls(_start("a"), _start("b"), _end("a"), _update("b", "…"), _end("b"), _results("a", "b")),
        _two_calls(_start("a"), _start("b"), _update("b", "…"), _end("a"), _end("b"), _results("a", "b")),
        {"serial_tools": ["read"]},
    ),
    "T3": Example(
        _two_calls(_start("a"), _start("b"), _end("b"), _update("a", "…"), _end("a"), _results("a", "b")),
        _two_calls(_start("a"), _start("b"), _end("b"), _end("b"), _end("a"), _results("a", "b")),
    ),
    "T4": Example(
        _two_calls(_start("a"), _start("b"), _end("b"), _end("a"), _results("a", "b")),
        _two_calls(_start("a"), _start("b"), _end("b"), _end("a"), _SWAPPED),
    ),
    "T6": Example(
        _run(_turn(1, _user("hi"), _calls("c1", stop="length"), _ran("c1", error=True)), _DONE),
        _run(_turn(1, _user("hi"), _calls("c1", stop="length"), _ran("c1")), _DONE),
    ),
    "T7": Example(
        _run(_turn(1, _ASKED, _ran("c1")), _turn(2, _calls("c2"), _ran("c2")), _turn(3, _answer("done"))),
        _run(_turn(1, _ASKED, _ran("c1")), _turn(2, _calls("c1"), _ran("c1")), _turn(3, _answer("done"))),
    ),
    "Q1": Example(
        _run(_turn(1, _ASKED, _ran("c1")), _turn(2, _user("and now?"), _answer("done"))),
        _run(_turn(1, _ASKED, _ran("c1"), _user("and now?")), _DONE),
    ),
    "Q2": Example(
        _run(_turn(1, _HELLO), _turn(2, _user("and now?"), _answer("done"))),
        _run(_turn(1, _HELLO), _turn(2, _user("and now?"), _user("and now?"), _answer("done"))),
        {"steered": [decode(_message("and now?"))]},
    ),
    "Q3": Example(
        _run(_turn(1, _HELLO), _turn(2, _user("one"), _answer("1")), _turn(3, _user("two"), _answer("2"))),
        _run(_turn(1, _HELLO), _turn(2, _user("two"), _answer("2")), _turn(3, _user("one"), _answer("1"))),
        {"followed_up": [decode(_message("one")), decode(_message("two"))]},
    ),
    "P1": Example(
        _ONE_TURN,
        _ONE_TURN,
        {"phases": ["turn"] * len(_ONE_TURN)},
        {"phases": ["turn", "streaming", *["turn"] * (len(_ONE_TURN) - 2)]},
    ),
    "P2": Example(
        _ONE_TURN,
        _ONE_TURN,
        {"phases": ["turn"] * len(_ONE_TURN)},
        {"phases": [*["turn"] * (len(_ONE_TURN) - 1), "idle"]},
    ),
    "P3": Example(
        _run(_turn(1, _user("hi"), _retry(1), _answer("hello"))),
        _run(_turn(1, _user("hi"), _retry(1), _answer("hello"))),
        {"phases": [*["turn"] * 4, "retry", "retry", *["turn"] * 5]},
        {"phases": [*["turn"] * 4, "retry", "turn", *["turn"] * 5]},
    ),
    "F1": Example(_run(_turn(1, _user("hi"), _BROKE), outcome="error"), _run(_turn(1, _HELLO), outcome="error")),
    "F2": Example(
        _run(_turn(1, _ASKED, _ran("c1", error=True)), _turn(2, _BROKE), outcome="error"),
        _run(_turn(1, _ASKED, _start("c1"), _BROKE), outcome="error"),
    ),
    "F8": Example(
        _run(_turn(1, _user("hi"), _BUSY, _retry(1), _answer("hello"))),
        _run(_turn(1, _HELLO, _retry(1), _answer("hello"))),
    ),
    "F9": Example(
        _run(_turn(1, _ASKED, _ran("c1")), _turn(2, _compaction(1), _answer("done"))),
        _run(_turn(1, _ASKED, _ran("c1")), _turn(2, _compaction(2), _answer("done"))),
        {"history": ()},
    ),
    "F10": Example(
        _run(_turn(1, _user("hi"), _STOPPED), outcome="aborted"),
        _run(_turn(1, _user("hi"), _STOPPED), outcome="error"),
    ),
    "A2": Example(
        _run(_turn(1, _user("hi"), _retry(1, "aborted"), _STOPPED), outcome="aborted"),
        _run(_turn(1, _user("hi"), _retry(1, "aborted"), _answer("hello"))),
    ),
    "A8": Example(
        _run(_turn(1, _ASKED, _ran("c1")), outcome="stopped", reason="max_turns"),
        _run(_turn(1, _ASKED, _ran("c1"))),
    ),
}

# -- rules, shown -------------------------------------------------------------------------------------------------


def explain_rule(name: str) -> str:
    """A rule in full, with its examples as short lines; what the judge finds is marked in the unlawful one.

    Raises `KeyError` for a name that no rule has.
    """
    rule = BY_NAME[name]
    example = EXAMPLES.get(name)
    parts = [f"{rule.name}  {rule.title}", rule.text]
    if example is None:
        parts.append("One trace cannot show it: it is about more than the order and content of events.")
        return "\n\n".join(parts)
    parts.append("\n".join(["Lawful:", *[f"    {line}" for line in render(example.lawful)]]))
    found = example.judge(lawful=False)
    marks = {violation.index for violation in found}
    lines = [f"{'  > ' if at in marks else '    '}{line}" for at, line in enumerate(render(example.unlawful))]
    parts.append("\n".join(["Unlawful:", *lines, *[str(violation) for violation in found]]))
    if example.given:
        parts.append(f"The judge sees it where it is told more: {', '.join(example.given)}.")
    return "\n\n".join(parts)


def rules_table() -> str:
    """The rules as a Markdown table: name, title, and what the judge needs to see a breach of it."""
    rows = [f"| {rule.name} | {rule.title} | {_seen_in(rule.name)} |" for rule in RULES]
    return "\n".join(["| rule | in short | judged from |", "| --- | --- | --- |", *rows])


def _seen_in(name: str) -> str:
    example = EXAMPLES.get(name)
    if example is None:
        return "tests of its own"
    return "a trace, and " + ", ".join(f"`{keyword}`" for keyword in example.given) if example.given else "a trace"
