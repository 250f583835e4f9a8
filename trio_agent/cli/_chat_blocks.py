"""Parts of a conversation that do not change any more: what the user said, what a tool did, what went before.

Here live functions from messages to rich's renderables. What happens when is in `_chat_view.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from .._messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ._chat_paint import markdown
from ._chat_text import call_words, diff_of, excerpt, seconds, shown

Kind: TypeAlias = Literal["user", "answer", "thinking", "tool", "note"]
_RESULT_LINES: Final = 4
_RESULT_CHARACTERS: Final = 300  # of a line
_DIFF_LINES: Final = 60
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def user_words(message: UserMessage, label: str = "") -> RenderableType:
    """What the user said, marked as such."""
    images = len(message.content) - sum(1 for block in message.content if hasattr(block, "text"))
    text = shown(message.text) + (f" [{images} image{'' if images == 1 else 's'}]" if images else "")
    return Text.assemble(
        ("› ", "bold magenta"), (text.replace("\n", "\n  "), "bold"), (label and f"  ↳ {label}", "dim magenta")
    )


def tool_block(result: ToolResultMessage, arguments: str, duration: float | None) -> RenderableType:
    """A call that is over: what it was, how long it took, and what came of it."""
    mark, style = ("✗", "red") if result.is_error else ("✓", "green")
    time = "" if duration is None else f" ({seconds(duration)})"
    head = Text.assemble((f"{mark} {shown(result.tool_name)}", style), f" {excerpt(arguments, 160)}", (time, "dim"))
    diff = diff_of(result)
    body = _diff(diff) if diff is not None else _result(shown(result.text), result.is_error)
    return Group(head, Padding(body, (0, 0, 0, 2))) if body else head


def _result(text: str, is_error: bool) -> Text:
    lines = [line for line in text.split("\n") if line.strip()]
    kept = lines[:_RESULT_LINES]
    if len(lines) > len(kept):
        kept.append(f"… {len(lines) - len(kept)} more lines")
    return Text(
        "\n".join([line if len(line) <= _RESULT_CHARACTERS else f"{line[:_RESULT_CHARACTERS]}…" for line in kept]),
        "red" if is_error else "dim",
    )


def _diff(diff: str) -> Text:
    lines = [line for line in diff.split("\n") if not line.startswith(("---", "+++"))]
    body = Text()
    for line in lines[:_DIFF_LINES]:
        body.append(f"{line}\n", _DIFF_STYLES.get(line[:1], "dim"))
    if len(lines) > _DIFF_LINES:
        body.append(f"… {len(lines) - _DIFF_LINES} more lines", "dim")
    body.rstrip()
    return body


def history_blocks(messages: Sequence[Message]) -> list[tuple[Kind, RenderableType]]:
    """The end of an earlier conversation: from the last thing that the user said on."""
    last = max((index for index, one in enumerate(messages) if isinstance(one, UserMessage)), default=0)
    blocks: list[tuple[Kind, RenderableType]] = []
    arguments: dict[str, str] = {}
    for message in messages[last:]:
        if isinstance(message, AssistantMessage):
            arguments |= {call.id: call_words(call) for call in message.tool_calls}
        match message:
            case UserMessage():
                blocks.append(("user", user_words(message)))
            case AssistantMessage(text=text) if text.strip():
                blocks.append(("answer", markdown(shown(text))))
            case ToolResultMessage():
                blocks.append(("tool", tool_block(message, arguments.get(message.tool_call_id, ""), None)))
            case _:
                pass
    return blocks
