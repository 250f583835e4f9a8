"""A pytest plugin that lies beside the patched copy: it writes down the first failure, and that the copy was tested.

Here lives what must happen in the process of the tests. It is copied out of this package and imports nothing of it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

_COPY = Path(__file__).resolve().parent
_REPORT = Path(os.environ["SEEDED_BUG_REPORT"])


def _write(**found: object) -> None:
    _REPORT.write_text(json.dumps(found), encoding="utf-8")


def pytest_configure() -> None:
    """Refuse to test anything but the copy."""
    import trio_agent.testing  # what does not even import is no seeded bug

    where = Path(trio_agent.__file__).resolve()
    if not where.is_relative_to(_COPY):
        pytest.exit(f"trio_agent was found at {where}, not in the copy", returncode=9)
    _write(began=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "failed" not in json.loads(_REPORT.read_text(encoding="utf-8")):
        _write(began=True, failed=report.nodeid, said=_last_line(report))


def _last_line(report: pytest.TestReport) -> str:
    """What the test said: the last line of a failure that names an exception."""
    lines = [line.strip(" |E") for line in str(report.longrepr).splitlines()]
    return next((line for line in reversed(lines) if "Error" in line or "Violation" in line), "")[:200]


def pytest_sessionfinish() -> None:
    """A module of the package that came from elsewhere would make the verdict worthless."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.split(".")[0] == "trio_agent" and file and not Path(file).resolve().is_relative_to(_COPY):
            pytest.exit(f"{name} was imported from {file}, not from the copy", returncode=9)
