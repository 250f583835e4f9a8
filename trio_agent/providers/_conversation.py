"""History of any shape to one that every API accepts, and names and ids to the alphabets that they allow.

Here lives what all wires need before they write a request: pairing, clean text, mapped names. Pure. How a
message looks on a wire is the wire's business.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import attrs

from .._errors import ProviderError
from .._json import dumps
from .._messages import AssistantMessage, CustomMessage, Message, Text, ToolCall, ToolResultMessage, UserMessage
from ._json_values import list_of, object_of

Sendable: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage

NO_RESULT: Final = "no result: the call was not run"


def paired(messages: Iterable[Message]) -> list[Sendable]:
    """The messages that a model may see, each call followed by exactly one result, in the order of the calls (I1).

    Messages are passed on as they are, so that what is known about one still holds. A call without a
    result gets one that says so; a result without a call becomes a user message behind the group.
    """
    found: list[Sendable] = []
    waiting: list[ToolCall] = []
    results: list[ToolResultMessage] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            results.append(message)
            continue
        if isinstance(message, CustomMessage):
            continue
        if waiting or results:
            found += _in_order(waiting, results)
            waiting, results = [], []
        found.append(message)
        if isinstance(message, AssistantMessage):
            waiting = list(message.tool_calls)
    if waiting or results:
        found += _in_order(waiting, results)
    return found


def _in_order(calls: list[ToolCall], results: list[ToolResultMessage]) -> list[Sendable]:
    if [call.id for call in calls] == [result.tool_call_id for result in results]:
        return list(results)
    left = list(results)
    found: list[Sendable] = []
    for call in calls:
        result = next((known for known in left if known.tool_call_id == call.id), None)
        if result is None:
            found.append(_missing_result(call.id, call.name))
        else:
            found.append(result)
            left.remove(result)
    return found + [_as_user_message(result) for result in left]


def _missing_result(call_id: str, name: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, name, NO_RESULT, is_error=True)


def _as_user_message(result: ToolResultMessage) -> UserMessage:
    return UserMessage([Text(f"[result of an earlier call of {result.tool_name}]"), *result.content])


_UNSAFE: Final = re.compile("[\x00\ud800-\udfff]")


def safe_text(text: str) -> str:
    """The text without what breaks servers: halves of a pair are joined, lone halves and NUL become U+FFFD."""
    if text.isascii():
        return text if "\0" not in text else text.replace("\0", "\ufffd")
    if _UNSAFE.search(text) is None:
        return text
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return _UNSAFE.sub("\ufffd", joined)


def is_safe(text: str) -> bool:
    """Whether the text can be sent as it is. What a signature proves goes so, or not at all."""
    return "\0" not in text if text.isascii() else _UNSAFE.search(text) is None


def safe_json(value: Any) -> Any:
    """The JSON value with every text made safe, keys too."""
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, list):
        return [safe_json(item) for item in list_of(value)]
    if isinstance(value, dict):
        return {safe_text(str(key)): safe_json(item) for key, item in object_of(value).items()}
    return value


def is_blank(text: str) -> bool:
    return not text or text.isspace()


@attrs.frozen
class Alphabet:
    """Which characters an id or a name may hold, and how many. `exact`: no fewer either."""

    pattern: re.Pattern[str]
    length: int
    exact: bool = False

    @classmethod
    def of(cls, characters: str, length: int, *, exact: bool = False) -> Alphabet:
        """`characters` as in a regular expression's brackets."""
        count = f"{{{length}}}" if exact else f"{{1,{length}}}"
        return cls(re.compile(f"[{characters}]{count}"), length, exact)

    def fit(self, text: str) -> str:
        """The text itself where it is allowed, else one made of it, always the same (and not another text's)."""
        if self.pattern.fullmatch(text):
            return text
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if self.exact or self.length < 24:
            return digest[: self.length]
        readable = re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_")[: self.length - 17]
        return f"{readable}_{digest[:16]}" if readable else f"x_{digest[:16]}"


TOOL_NAMES: Final = Alphabet.of("a-zA-Z0-9_-", 64)


@attrs.frozen
class ToolNames:
    """The names of a request's tools on the wire, and back."""

    _own: dict[str, str]
    alphabet: Alphabet = TOOL_NAMES

    @classmethod
    def of(cls, names: Iterable[str], alphabet: Alphabet = TOOL_NAMES) -> ToolNames:
        """Raises `ProviderError("invalid_request", …)` for a name that occurs twice."""
        own: dict[str, str] = {}
        for name in names:
            if own.setdefault(alphabet.fit(name), name) != name:
                raise ProviderError("invalid_request", f"two tools would be called {alphabet.fit(name)!r} on the wire")
        return cls(own, alphabet)

    def wire(self, name: str) -> str:
        return self.alphabet.fit(name)

    def own(self, wire: str) -> str:
        """Our name for what the model called; what is no tool of the request stays as it came."""
        return self._own.get(wire, wire)


def object_arguments(call: ToolCall) -> str:
    """The arguments' text byte for byte where it is a JSON object, else an object that holds it.

    APIs and chat templates parse what they get back; a call that was cut or malformed must not break
    every later request, and the model should still see what it wrote.
    """
    if isinstance(call.arguments, dict):
        return safe_text(call.raw)
    return dumps({"invalid_arguments": safe_text(call.raw)})


_SAME_MODEL: Final = re.compile(r"[-@:.](\d{4}-?\d{2}-?\d{2}|\d{4}|latest|preview.*|exp.*|v\d+.*|free|\d{3})")


def same_model(asked: str, answered: str | None) -> bool:
    """Whether a message of the one can be shown to the other as its own: a date or a vendor is no difference."""
    if answered is None:
        return False
    left, right = asked.rpartition("/")[2].lower(), answered.rpartition("/")[2].lower()
    shorter, longer = sorted((left, right), key=len)
    if not longer.startswith(shorter):
        return False
    return left == right or _SAME_MODEL.fullmatch(longer[len(shorter) :]) is not None
