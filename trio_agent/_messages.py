"""What a conversation consists of: messages, their content blocks, and token counts.

Here live frozen values only. What a run *tells* is in `_events.py`, what a provider *streams* in
`_chunks.py`, and JSON in `_codec.py`. Nothing in here can be changed by whoever gets hold of it:
sequences are tuples, and JSON values are kept as text and decoded afresh at every look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

import attrs

from ._json import JSONValue, arguments_text, dumps, loads, loads_or_none
from ._quick import quick

StopReason: TypeAlias = Literal["stop", "length", "tool_use", "error", "aborted"]


@attrs.frozen
class Text:
    """Text that a person or a model wrote. `signature` is a provider's, to be sent back unchanged."""

    text: str
    signature: str | None = None


@attrs.frozen
class Thinking:
    """A model's reasoning.

    `signature` proves to its provider that the text is unchanged. `redacted` is the opaque data of
    reasoning that the provider does not show; `text` is empty then. Both go back as they came.
    """

    text: str
    signature: str | None = None
    redacted: str | None = None


@attrs.frozen
class Image:
    """An image: its bytes, and its media type such as `image/png`."""

    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    media_type: str


@attrs.frozen(init=False)
class ToolCall:
    """A model's request to run a tool.

    `raw` is the arguments' JSON text as it came, byte for byte, except that blank text and `null` are
    kept as `{}`. `arguments` decodes a fresh value at every look, so nobody can change history through
    it; it is None where the text is not JSON. `signature` is a provider's, to be sent back unchanged.
    """

    id: str
    name: str
    raw: str
    signature: str | None

    def __init__(
        self,
        id: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        raw: str | None = None,
        signature: str | None = None,
    ) -> None:
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            id, name, arguments_text(arguments, raw), signature
        )

    @property
    def arguments(self) -> JSONValue:
        return loads_or_none(self.raw)


UserBlock: TypeAlias = Text | Image
AssistantBlock: TypeAlias = Text | Thinking | ToolCall
Block: TypeAlias = Text | Thinking | Image | ToolCall


def _user_blocks(content: str | UserBlock | Iterable[UserBlock]) -> tuple[UserBlock, ...]:
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, Text | Image):
        return (content,)
    return tuple(content)


def _assistant_blocks(content: str | Iterable[AssistantBlock]) -> tuple[AssistantBlock, ...]:
    return (Text(content),) if isinstance(content, str) else tuple(content)


def joined_text(content: Iterable[Block]) -> str:
    """The text blocks of a content, joined without a separator."""
    return "".join([block.text for block in content if isinstance(block, Text)])


@attrs.frozen
class Usage:
    """Tokens. A count that the provider did not give is None, not 0.

    `input` is what was read afresh; `cache_read` and `cache_write` come on top of it. `output` includes
    `reasoning`. `total` is the provider's own figure, or the sum of input, cache and output.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    total: int | None = None

    @property
    def known_total(self) -> int | None:
        """The total, or where it was not given the sum of the parts that were; None if nothing was."""
        if self.total is not None:
            return self.total
        parts = [part for part in (self.input, self.cache_read, self.cache_write, self.output) if part is not None]
        return sum(parts) if parts else None

    def __add__(self, other: Usage) -> Usage:
        """Add count by count. A sum is None only if both parts are."""
        if other is NO_USAGE:
            return self
        if self is NO_USAGE:
            return other
        return Usage(
            _plus(self.input, other.input),
            _plus(self.output, other.output),
            _plus(self.cache_read, other.cache_read),
            _plus(self.cache_write, other.cache_write),
            _plus(self.reasoning, other.reasoning),
            _plus(self.total, other.total),
        )


def _plus(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right


NO_USAGE = Usage()
_COUNTS: Final = tuple([field.name for field in attrs.fields(Usage)])


def checked_usage(usage: object) -> Usage:
    """A usage whose counts can be added up. Raises `TypeError` for what is none."""
    if not isinstance(usage, Usage):
        raise TypeError(f"usage is a Usage, not {type(usage).__name__}")
    for name in _COUNTS:
        count = getattr(usage, name)
        if count is not None and type(count) is not int:
            raise TypeError(f"the usage's {name} is a number of tokens or None, not {count!r}")
    return usage


@attrs.frozen
class UserMessage:
    """What a person, or the application in a person's place, said."""

    role: ClassVar[Literal["user"]] = "user"
    content: tuple[UserBlock, ...] = attrs.field(converter=_user_blocks)

    @property
    def text(self) -> str:
        return joined_text(self.content)


@attrs.frozen
class AssistantMessage:
    """What a model answered, whole or as far as it came.

    `stop_reason` is None only while the message is streaming. With `error` and `aborted`,
    `error_message` says why. `model` and `provider` tell whose thinking signatures these are.
    """

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: tuple[AssistantBlock, ...] = attrs.field(default=(), converter=_assistant_blocks)
    stop_reason: StopReason | None = "stop"
    usage: Usage = NO_USAGE
    model: str | None = None
    provider: str | None = None
    error_message: str | None = None
    response_id: str | None = None

    @property
    def text(self) -> str:
        return joined_text(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([block for block in self.content if type(block) is ToolCall])


@attrs.frozen(init=False)
class ToolResultMessage:
    """What a tool call came to. `details` are for the application; the model never sees them."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str
    tool_name: str
    content: tuple[UserBlock, ...]
    is_error: bool
    _details: str | None

    def __init__(
        self,
        tool_call_id: str,
        tool_name: str,
        content: str | UserBlock | Iterable[UserBlock] = (),
        is_error: bool = False,
        details: JSONValue = None,
    ) -> None:
        frozen = None if details is None else dumps(details)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            tool_call_id, tool_name, _user_blocks(content), is_error, frozen
        )

    @property
    def text(self) -> str:
        return joined_text(self.content)

    @property
    def details(self) -> JSONValue:
        return None if self._details is None else loads(self._details)


@attrs.frozen(init=False)
class CustomMessage:
    """A message of the application's own kind, kept in history and log, not shown to the model.

    `payload` is any JSON value; each look decodes a fresh one.
    """

    role: ClassVar[Literal["custom"]] = "custom"
    kind: str
    _payload: str

    def __init__(self, kind: str, payload: JSONValue = None) -> None:
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            kind, dumps(payload)
        )

    @property
    def payload(self) -> JSONValue:
        return loads(self._payload)


Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage | CustomMessage

# The kernel's own quick way of making what every turn makes. They take the fields as they are kept: tuples of blocks,
# a call's arguments as text that `arguments_text` has seen, details as JSON text.
quick_text = quick(Text)
assistant_message = quick(AssistantMessage)
tool_call = cast("Callable[[str, str, str, str | None], ToolCall]", quick(ToolCall))
tool_result_message = cast(
    "Callable[[str, str, tuple[UserBlock, ...], bool, str | None], ToolResultMessage]", quick(ToolResultMessage)
)
