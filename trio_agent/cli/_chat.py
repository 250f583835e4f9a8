"""`trio-agent chat`: a conversation with an agent, on a terminal or over pipes.

Here lives the command: its options, and what they come to. The conversation itself is in `_chat_talk.py`, its two faces
are in `_chat_terminal.py` and `_chat_plain.py`.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from .._agent import Agent
from .._compaction import SummarizingCompaction
from .._hooks import Block, HookContext, Hooks, Replace
from .._messages import Message, ToolCall, ToolResultMessage, UserMessage
from .._policies import Limits
from .._tools import Tool
from ._arguments import AgentOptions, Parser, add_model_options, add_tool_options, count, options_from
from ._chat_talk import Face, Talk
from ._chat_tally import Tally
from ._interrupt import ABORTED, Interrupt
from ._output import leave_stdout_alone, stdout
from ._pen import pen
from ._session import OpenSession, add_session_options, open_session
from ._setup import load_tools, open_provider
from ._usage import UsageError, complain, one_line

if TYPE_CHECKING:
    from .._provider import Provider

_DESCRIPTION = """\
Talk with an agent. During a run, Enter steers it, Tab says something when it would end, Ctrl-C aborts it; at the
prompt, Ctrl-D or a second Ctrl-C leaves. Without a terminal each line of stdin is said, one that begins with >> when
the run would end; answers go to stdout, the rest to stderr. Exit codes: 0 left, 1 the last run of a pipe failed, 2
usage, 130 left by Ctrl-C."""
_WRITERS: Final = frozenset({"write_file", "edit_file", "bash"})


@attrs.frozen(kw_only=True)
class ChatOptions(AgentOptions):
    """The options of `trio-agent chat`."""

    toolset: Literal["reading", "coding"]
    allow_shell: bool
    read_only: bool
    yes: bool
    session: Path | None
    trace: bool
    system: str
    max_turns: int | None
    context_window: int | None
    plain: bool
    debug: bool

    def check(self) -> None:
        super().check()
        if self.toolset != "coding":
            for given, option in ((self.allow_shell, "--allow-shell"), (self.yes, "--yes")):
                if given:
                    raise UsageError(f"{option} is for tools that change something; add --tools coding")
        if self.read_only and (self.allow_shell or self.yes):
            raise UsageError("--read-only lets nothing change; leave out --allow-shell and --yes")


class _Front(Face, Protocol):
    """A face, and what else a front of the conversation does."""

    def starting(self, give_up: Callable[[], object]) -> None:
        """Until `hold`, Ctrl-C gives up."""
        ...

    def attend(self, agent: Agent, tally: Tally) -> None: ...
    def lent(self) -> AbstractAsyncContextManager[None]: ...
    def earlier(self, messages: Sequence[Message]) -> None: ...
    async def hold(self, talk: Talk) -> int: ...


_Verdict: TypeAlias = Block | Replace | None


def chat(argv: Sequence[str]) -> int:
    """Hold a conversation until the user leaves. Gives the exit code; raises `UsageError`, and what cannot start."""
    options = _parse(argv)
    tools = _load_tools(options)
    with open_session(options.session, trace=options.trace) as session:
        if not options.plain and _is_terminal():
            from ._chat_terminal import Terminal

            return _hold(options, tools, session, Terminal())
        return _hold_plainly(options, tools, session)


def _hold(options: ChatOptions, tools: tuple[Tool, ...], session: OpenSession, front: _Front) -> int:
    with _log_as_notes(front, debug=options.debug):
        return trio.run(_converse, options, tools, session, front)


def _hold_plainly(options: ChatOptions, tools: tuple[Tool, ...], session: OpenSession) -> int:
    from ._chat_plain import Plain

    interrupt, output = Interrupt(), stdout(exclusive=False)
    with interrupt.installed():
        code = _hold(options, tools, session, Plain(output, pen(), interrupt))
    if output.failure is not None:
        leave_stdout_alone()
        complain("error", f"stdout cannot be written to ({output.failure.strerror}), so the conversation was left")
        return 1
    return code


async def _converse(options: ChatOptions, tools: tuple[Tool, ...], session: OpenSession, front: _Front) -> int:
    with trio.CancelScope() as scope:
        front.starting(scope.cancel)
        async with open_provider(options) as provider:
            agent = Agent(
                provider,
                model=options.model_name,
                system_prompt=options.system,
                tools=tools,
                messages=session.messages,
                hooks=Hooks(before_tool_call=_policy(options, front)),
                limits=Limits(max_turns=options.max_turns),
                compaction=_compaction(options, provider),
                reasoning=options.reasoning,
                settings=options.settings,
            )
            session.attend(agent)
            tally = Tally(provider)
            agent.subscribe(tally)
            talk = Talk(agent, front)
            front.attend(agent, tally)
            _greet(session, front)
            return await front.hold(talk)
    return ABORTED


def _greet(session: OpenSession, front: _Front) -> None:
    if not session.messages:
        return
    front.earlier(session.messages)
    words = [f"going on with {len(session.messages)} messages"]
    if session.unfinished:
        words.append("the process ended during the last run")
    if session.interrupted:
        words.append(f"results lost: {session.interrupted}")
    if isinstance(session.messages[-1], UserMessage | ToolResultMessage):
        words.append("Enter alone goes on")
    front.note("; ".join(words), "magenta")


def _compaction(options: ChatOptions, provider: Provider) -> SummarizingCompaction | None:
    if options.context_window is None:
        return None
    try:
        return SummarizingCompaction(provider, model=options.model_name, window=options.context_window)
    except ValueError as error:
        raise UsageError(f"--context-window: {error}") from error


# Tools


def _load_tools(options: ChatOptions) -> tuple[Tool, ...]:
    if options.toolset == "reading" or not options.builtin_tools:
        return load_tools(options)
    from ..tools import coding_tools

    given = load_tools(attrs.evolve(options, builtin_tools=False))
    names = {one.name for one in given}
    try:
        coding = coding_tools(
            options.workspace, allow_write=not options.read_only, allow_shell=options.allow_shell and os.name == "posix"
        )
    except OSError as error:
        raise UsageError(f"the workspace {str(options.workspace)!r} cannot be used: {error.strerror}") from error
    return (*given, *[one for one in coding if one.name not in names])


def _policy(options: ChatOptions, front: _Front) -> Callable[[ToolCall, HookContext], object] | None:
    """Ask about what the package's own tools would change; what users bring along is theirs."""
    if options.toolset != "coding" or options.yes or options.read_only:
        return None
    from ..tools import ask

    question = ask()

    async def before_tool_call(call: ToolCall, context: HookContext) -> _Verdict:
        if call.name not in _WRITERS:
            return None
        async with front.lent():
            verdict = question(call, context)
            return await verdict if inspect.isawaitable(verdict) else verdict

    return before_tool_call


# The rest


def _parse(argv: Sequence[str]) -> ChatOptions:
    parser = Parser(prog="trio-agent chat", description=_DESCRIPTION)
    add_session_options(parser)
    add_model_options(parser)
    add_tool_options(parser)
    parser.add_argument(
        "--tools",
        dest="toolset",
        choices=("reading", "coding"),
        default="reading",
        help="reading (the default): list_dir and read_file; coding: also find_files, grep, write_file, edit_file",
    )
    parser.add_argument("--allow-shell", action="store_true", help="with --tools coding: bash, which nothing confines")
    parser.add_argument("--read-only", action="store_true", help="leave out the tools that change files")
    parser.add_argument("--yes", action="store_true", help="do not ask before a tool changes something")
    parser.add_argument("--system", metavar="TEXT", default="", help="the system prompt")
    parser.add_argument("--max-turns", metavar="N", type=count, default=None, help="stop each run after so many turns")
    parser.add_argument(
        "--context-window",
        metavar="TOKENS",
        type=count,
        default=None,
        help="how much the model can take: the conversation is summarised when it comes near",
    )
    parser.add_argument("--plain", action="store_true", help="lines and plain text, also on a terminal")
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error too")
    return options_from(ChatOptions, parser.parse_args(argv))


def _is_terminal() -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    missing = [name for name in ("prompt_toolkit", "rich") if find_spec(name) is None]
    if missing:
        complain(
            "warning", f"{' and '.join(missing)} not installed, so this is plain text: pip install 'trio-agent[cli]'"
        )
    return not missing


class _Notes(logging.Handler):
    """What the package logs, as lines of the conversation."""

    def __init__(self, front: _Front, *, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._front = front
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        self._front.note(f"{record.levelname.lower()}: {one_line(record.getMessage())}", "yellow")
        if self._debug and record.exc_info:
            self._front.note(logging.Formatter().formatException(record.exc_info))


@contextmanager
def _log_as_notes(front: _Front, *, debug: bool) -> Generator[None]:
    notes = _Notes(front, debug=debug)
    logger = logging.getLogger("trio_agent")
    logger.addHandler(notes)
    try:
        yield
    finally:
        logger.removeHandler(notes)
