"""A plugin for pytest, `-p tests.wire_cases`: which cases were tried against which wire, and how each went.

Here lives the watching; the counting is in `wire_table.py`. It imports nothing of the package, for a plugin is loaded
before pytest has prepared what it rewrites.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

REPORT: Final = "WIRE_CASES_REPORT"  # the environment variable that says where to write to
SHARED: Final = "shared"
APIS: Final = ("OpenAIChat", "OpenAIResponses", "Anthropic", "Gemini")
_NUMBER: Final = re.compile(r"\bB(\d{3})\b|_b(\d{3})_", re.IGNORECASE)
_known: dict[str, dict[str, Any]] = {}
_outcomes: list[dict[str, Any]] = []


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        numbers = {one or other for one, other in _NUMBER.findall(f"{item.name} {inspect.getdoc(item.obj)}")}
        _known[item.nodeid] = {"apis": sorted(apis_of(item.obj, *parameters)) or [SHARED], "numbers": sorted(numbers)}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        _outcomes.append({"test": report.nodeid, "outcome": report.outcome, **_known[report.nodeid]})


def pytest_sessionfinish() -> None:
    Path(os.environ[REPORT]).write_text(json.dumps(_outcomes))


def apis_of(*values: Any) -> set[str]:
    """The providers among these, or that these functions name, or any function that they call in the tests."""
    found: set[str] = set()
    seen: set[Any] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if inspect.isclass(value):
            found |= {value.__name__} & set(APIS) if value.__module__.startswith("trio_agent.providers") else set()
        elif isinstance(value, FunctionType) and value not in seen:
            seen.add(value)
            plain = inspect.unwrap(value)
            if "/tests/" in plain.__code__.co_filename:
                names = _names_in(plain.__code__)
                waiting += [plain.__globals__[name] for name in names if name in plain.__globals__]
    return found


def _names_in(code: CodeType) -> set[str]:
    return set(code.co_names).union(*[_names_in(part) for part in code.co_consts if isinstance(part, CodeType)])
