"""The door to the command line: `trio-agent`, and `python -m trio_agent`.

Here lives the choice of the command, and the promise that whatever goes wrong is one line and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code: 0, 1 for an error, 2 for wrong usage, 130 for an aborted run.

    Raises `SystemExit` for `--help` and `--version` alone.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _command(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a command line has nobody above it to whom a failure could go
        return _failed(error, debug="--debug" in arguments)


def _command(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "check":
        from .cli._check import check

        return check(rest)
    if name == "explain":
        from .cli._explain import explain

        return explain(rest)
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
