"""Branch coverage of the package and of its tests, the processes that they start included.

    python -m tests.branch_coverage [--include PATTERN]... [-- PYTEST ARGUMENTS]

Runs the whole suite, or what the arguments for pytest say, and reports which lines and branches of `[tool.coverage]`
in pyproject.toml nothing reached (of the files that match a pattern, if there are any); the status is pytest's where
tests failed, and 1 under 100 %. Needs the extras `coverage` and `test`. Leaves `.coverage` behind, for `coverage html`.

Here live the command, and the plugin for pytest that it uses. Coverage measures child processes by a file in the
environment's site-packages and by a variable. Children that are isolated from both (`-I -S`) begin with
`measured_child.py` instead, for this run alone. What they start sees neither.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
CHILD: Final = Path(__file__).with_name("measured_child.py")


def pytest_configure() -> None:
    """Have every isolated child of this process measured."""
    import coverage

    measuring = coverage.Coverage.current()
    assert measuring is not None, "this plugin is for `python -m tests.branch_coverage`"
    library = str(Path(coverage.__file__).parent.parent)
    data = str(Path(str(measuring.get_option("run:data_file"))).absolute())
    start: Any = subprocess.Popen.__init__

    def started(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        start(self, measured(args, library, data), *rest, **options)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]


def measured(command: Any, library: str, data: str) -> Any:
    """A command that starts one of the package's programs isolated, with the measuring before it; another as it is."""
    if not isinstance(command, list) or command[:2] != [sys.executable, "-I"]:
        return command
    at = next((at for at, word in enumerate(command) if not str(word).startswith("-") and at), len(command))
    is_ours = at < len(command) and Path(command[at]).is_relative_to(ROOT / "trio_agent")
    return [*command[:at], str(CHILD), library, data, *command[at:]] if is_ours else command


def main(arguments: list[str]) -> int:
    """Measure, put together what each process measured, and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.branch_coverage")
    parser.add_argument("--include", action="append", default=[], metavar="PATTERN")
    parser.add_argument("pytest", nargs="*", metavar="PYTEST ARGUMENT")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data = f"--data-file={Path(folder) / '.coverage'}"
        tests = coverage("run", data, "-m", "pytest", "-p", "tests.branch_coverage", *options.pytest)
        if coverage("combine", "--quiet", "--data-file=.coverage", folder):
            return 1
    chosen = [f"--include={','.join(options.include)}"] if options.include else []
    report = coverage("report", "--data-file=.coverage", "--fail-under=100", *chosen)
    return tests or min(report, 1)


def coverage(command: str, *arguments: str) -> int:
    """The status of one of coverage's own commands, in the project's folder."""
    configuration = f"--rcfile={ROOT / 'pyproject.toml'}"
    line = [sys.executable, "-m", "coverage", command, configuration, *arguments]
    return subprocess.run(line, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
