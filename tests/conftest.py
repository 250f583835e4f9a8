"""What every test has: a virtual clock that jumps, and a deadline on it. Nothing about the kernel lives here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import hypothesis
import pytest
import trio
import trio.testing

VIRTUAL_SECONDS = 10_000
REAL_SECONDS = 60

hypothesis.settings.register_profile(
    "here", deadline=None, database=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")


@pytest.fixture(autouse=True)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock | None:
    """A clock that jumps when all tasks wait; the real one under the marker `real_time`."""
    if request.node.get_closest_marker("real_time"):
        return None
    return trio.testing.MockClock(autojump_threshold=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put a deadline around each async test, so that a hang is a failure with a name."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            seconds = REAL_SECONDS if item.get_closest_marker("real_time") else VIRTUAL_SECONDS
            item.obj = _within(seconds, item.obj)


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: Any, **kwargs: Any) -> None:
        with trio.fail_after(seconds):
            await test(*args, **kwargs)

    return bounded
