"""What the command line says: options in groups that commands share, and those of `trio-agent run`.

Here lives the parsing and checking, which touch nothing but the strings they are given. What an option names is looked
for in `_setup.py`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar, get_args

import attrs

from .._request import ModelSettings, Reasoning
from ._session import add_session_options
from ._usage import UsageError

ProviderName: TypeAlias = Literal["local", "openai-chat", "openai-responses", "anthropic", "gemini"]
_SERVICES: Final = "openai-chat, openai-responses, anthropic or gemini"
Options = TypeVar("Options", bound="ServiceOptions")

_DESCRIPTION = """\
Run an agent until it is idle. Its answer goes to stdout, what its tools do and how it ended to stderr.
Exit codes: 0 completed or stopped, 1 error, 2 usage, 130 aborted. Ctrl-C aborts and settles the run; a second one
leaves at once."""

# They parse their own arguments, and are listed here for --help alone.
_OTHER_COMMANDS: Final[dict[str, str]] = {
    "chat": "talk with an agent, and steer it while it works",
    "check": "check that a trace of JSON lines is lawful",
    "explain": "say what a rule of the lifecycle means",
    "models": "list the models that a service offers",
    "show": "tell what is in a session file or a trace",
    "trace": "turn a log into Chrome trace events, for Perfetto",
    "timeline": "draw a log as swim-lanes, in an SVG or HTML file",
    "replay": "tell a run again from its log, in its own time",
}


@attrs.frozen(kw_only=True)
class ServiceOptions:
    """Who is asked. Made by `add_service_options`."""

    provider: ProviderName
    base_url: str | None
    api_key_env: str | None

    def check(self) -> None:
        """Raise `UsageError` for options that do not go together."""
        if self.provider == "local":
            for given, option in ((self.base_url, "--base-url"), (self.api_key_env, "--api-key-env")):
                if given is not None:
                    raise UsageError(f"{option} is for a service; add --provider {_SERVICES}")


@attrs.frozen(kw_only=True)
class ModelOptions(ServiceOptions):
    """Which model is asked, and how. Made by `add_model_options`."""

    model: str | None
    reasoning: Reasoning
    temperature: float | None
    max_output_tokens: int | None

    @property
    def model_name(self) -> str:
        """What an `Agent` is told as its model."""
        return self.model or "local"

    @property
    def settings(self) -> ModelSettings:
        """What an `Agent` is told as its settings."""
        return ModelSettings(temperature=self.temperature, max_output_tokens=self.max_output_tokens)

    def check(self) -> None:
        super().check()
        if self.provider != "local" and self.model is None:
            raise UsageError(f"--provider {self.provider} needs --model, the name that the service knows the model by")


@attrs.frozen(kw_only=True)
class AgentOptions(ModelOptions):
    """A model with tools. Made by `add_model_options` and `add_tool_options`."""

    tools: tuple[str, ...] = attrs.field(converter=tuple)
    builtin_tools: bool
    workspace: Path


@attrs.frozen(kw_only=True)
class RunOptions(AgentOptions):
    """The options of `trio-agent run`. `timeout` is in seconds."""

    prompt: str
    system: str
    max_turns: int | None
    timeout: float | None
    session: Path | None
    trace: bool
    json: bool
    debug: bool


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, raised as `UsageError` and not printed."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def options_from(cls: type[Options], parsed: argparse.Namespace) -> Options:
    """The options of this class, checked. Raises `UsageError`."""
    given: dict[str, Any] = {field.name: getattr(parsed, field.name) for field in attrs.fields(cls)}
    options = cls(**given)
    options.check()
    return options


def parse(argv: Sequence[str]) -> RunOptions:
    """Raises `UsageError`; `SystemExit` after printing what `--help` or `--version` asked for."""
    return options_from(RunOptions, _parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trio-agent", description="An agent kernel on Trio, from the command line.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in _OTHER_COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    run = commands.add_parser("run", help="run an agent", description=_DESCRIPTION)
    run.add_argument("prompt", metavar="PROMPT", help="what to say to the model; - reads it from stdin")
    add_model_options(run)
    add_tool_options(run)
    add_session_options(run)
    run.add_argument("--system", metavar="TEXT", default="", help="the system prompt")
    run.add_argument("--max-turns", metavar="N", type=count, default=None, help="stop after so many turns")
    run.add_argument("--timeout", metavar="SECONDS", type=seconds, default=None, help="abort the run after so long")
    run.add_argument("--json", action="store_true", help="print the events, one JSON object per line, and nothing else")
    run.add_argument("--debug", action="store_true", help="print the traceback of an error too")
    return parser


def add_service_options(parser: argparse.ArgumentParser) -> None:
    """The options of `ServiceOptions`."""
    parser.add_argument(
        "--provider",
        choices=get_args(ProviderName),
        default="local",
        help="local (the default) is a model on this machine; the others are the API that a service speaks",
    )
    parser.add_argument(
        "--base-url", metavar="URL", default=None, help="where the service is (default: where its maker has it)"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        default=None,
        help="the environment variable that holds the key (default: the usual one, such as OPENAI_API_KEY, and that"
        " for the address of its own service alone)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """The options of `ModelOptions`."""
    add_service_options(parser)
    parser.add_argument(
        "--model",
        metavar="MODEL",
        default=None,
        help="the model's name; with local, the path of a GGUF file (default: the embedded model)",
    )
    parser.add_argument(
        "--reasoning", choices=get_args(Reasoning), default="off", help="how hard the model shall think (default: off)"
    )
    parser.add_argument(
        "--temperature", metavar="NUMBER", type=_temperature, default=None, help="how freely the model chooses words"
    )
    parser.add_argument(
        "--max-output-tokens", metavar="N", type=count, default=None, help="how long one answer may become"
    )


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """The options that `AgentOptions` has beyond `ModelOptions`."""
    parser.add_argument(
        "--tool",
        metavar="MODULE:NAME",
        dest="tools",
        action="append",
        default=[],
        help="a tool, or a typed function to make one of; may be repeated",
    )
    parser.add_argument(
        "--no-builtin-tools",
        dest="builtin_tools",
        action="store_false",
        help="leave out list_dir and read_file",
    )
    parser.add_argument(
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


def count(text: str) -> int:
    """For `type=`: a whole number from 1 on."""
    number = int(text) if text.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return number


def seconds(text: str) -> float:
    """For `type=`: a positive number of seconds."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return number


def _temperature(text: str) -> float:
    number = _number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
