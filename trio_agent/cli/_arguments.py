"""What the command line says: options of `trio-agent run`, parsed and checked.

Here lives the parser, which touches nothing but the strings it is given. What an option names is looked for in
`_setup.py`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NoReturn

import attrs

from ._usage import UsageError

_DESCRIPTION = """\
Run an agent until it is idle. Its answer goes to stdout, what its tools do and how it ended to stderr.
Exit codes: 0 completed or stopped, 1 error, 2 usage, 130 aborted. Ctrl-C aborts and settles the run; a second one
leaves at once."""

# They parse their own arguments, and are listed here for --help alone.
_OTHER_COMMANDS: Final[dict[str, str]] = {
    "check": "check that a trace of JSON lines is lawful",
    "explain": "say what a rule of the lifecycle means",
}


@attrs.frozen(kw_only=True)
class RunOptions:
    """The options of `trio-agent run`. `timeout` is in seconds."""

    prompt: str
    provider: Literal["local", "openai-chat"]
    base_url: str | None
    model: str | None
    api_key_env: str | None
    tools: tuple[str, ...] = attrs.field(converter=tuple)
    builtin_tools: bool
    workspace: Path
    system: str
    max_turns: int | None
    timeout: float | None
    json: bool
    debug: bool


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, raised and not printed."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def parse(argv: Sequence[str]) -> RunOptions:
    """Raises `UsageError`; `SystemExit` after printing what `--help` or `--version` asked for."""
    parsed = _parser().parse_args(argv)
    options = RunOptions(**{name: value for name, value in vars(parsed).items() if name != "command"})
    if options.provider == "local":
        for given, option in ((options.base_url, "--base-url"), (options.api_key_env, "--api-key-env")):
            if given is not None:
                raise UsageError(f"{option} is for a service; add --provider openai-chat")
    elif options.model is None:
        raise UsageError("--provider openai-chat needs --model, the name that the service knows the model by")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="trio-agent", description="An agent kernel on Trio, from the command line.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in _OTHER_COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    run = commands.add_parser("run", help="run an agent", description=_DESCRIPTION)
    run.add_argument("prompt", metavar="PROMPT", help="what to say to the model; - reads it from stdin")
    _add_model_options(run)
    _add_tool_options(run)
    run.add_argument("--system", metavar="TEXT", default="", help="the system prompt")
    run.add_argument("--max-turns", metavar="N", type=_count, default=None, help="stop after so many turns")
    run.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=None, help="abort the run after so long")
    run.add_argument("--json", action="store_true", help="print the events, one JSON object per line, and nothing else")
    run.add_argument("--debug", action="store_true", help="print the traceback of an error too")
    return parser


def _add_model_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--provider",
        choices=("local", "openai-chat"),
        default="local",
        help="local (the default) runs a model on this machine, openai-chat asks a service",
    )
    run.add_argument("--base-url", metavar="URL", default=None, help="where the service is, up to and with /v1")
    run.add_argument(
        "--model",
        metavar="MODEL",
        default=None,
        help="the model's name; with local, the path of a GGUF file (default: the embedded model)",
    )
    run.add_argument("--api-key-env", metavar="NAME", default=None, help="the environment variable that holds the key")


def _add_tool_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--tool",
        metavar="MODULE:NAME",
        dest="tools",
        action="append",
        default=[],
        help="a tool, or a typed function to make one of; may be repeated",
    )
    run.add_argument(
        "--no-builtin-tools",
        dest="builtin_tools",
        action="store_false",
        help="leave out list_dir and read_file",
    )
    run.add_argument(
        "--workspace",
        metavar="FOLDER",
        type=Path,
        default=Path(),
        help="the folder that list_dir and read_file are confined to (default: this one)",
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"trio-agent {version('trio-agent')}"
    except PackageNotFoundError:
        return "trio-agent, not installed"


def _count(text: str) -> int:
    count = int(text) if text.strip().isdecimal() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return count


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds
