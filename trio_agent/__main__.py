"""The door to the command line: `trio-agent`, and `python -m trio_agent`.

Here lives the choice of the command, and the promise that whatever goes wrong is one line and an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

# Commands that parse their own arguments: the function of that name in the module, from the arguments to the exit code.
_COMMANDS: Final[dict[str, str]] = {
    "chat": "_chat",
    "check": "_check",
    "explain": "_explain",
    "models": "_models",
    "replay": "_replay",
    "show": "_show",
    "timeline": "_timeline",
    "trace": "_trace",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code: 0, 1 for an error, 2 for wrong usage, 130 for an aborted run.

    Raises `SystemExit` for `--help` and `--version` alone.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    try:
        return _command(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a command line has nobody above it to whom a failure could go
        return _failed(error, debug="--debug" in arguments)


def _open_what_is_closed() -> None:
    """Read nothing from a standard input that is closed (`<&-`), and write to nobody where an output is."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process lives


def _command(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in _COMMANDS:
        code: int = getattr(import_module(f".cli.{_COMMANDS[name]}", __package__ or "trio_agent"), name)(rest)
        return code
    from .cli._arguments import parse
    from .cli._run import run

    return run(parse(arguments))


def _failed(error: Exception, *, debug: bool) -> int:
    from .cli._usage import UsageError, complain, worded

    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, UsageError):
        complain("usage", str(error))
        return 2
    complain("error", worded(error))
    return 1


if __name__ == "__main__":
    sys.exit(main())
