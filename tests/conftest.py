"""What every test has: a virtual clock that jumps, and a deadline on it. Nothing about the kernel lives here."""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Awaitable, Callable, Generator
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


def pytest_configure() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, which some tests send to themselves or a child."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # pragma: no cover - by the shell that starts the tests
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put a deadline around each async test, so that a hang is a failure with a name."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            seconds = REAL_SECONDS if item.get_closest_marker("real_time") else VIRTUAL_SECONDS
            item.obj = _within(seconds, item.obj)


@pytest.hookimpl(hookwrapper=True, trylast=True)  # innermost: pytest-trio has put its own runner around the test
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Give pytest-trio's runner a clock that jumps when all tasks wait, except under the marker `real_time`.

    It takes a clock only from the arguments of the test function: test_an_async_test_has_a_virtual_clock.
    """
    is_async = isinstance(item, pytest.Function) and item.get_closest_marker("trio")
    if is_async and not item.get_closest_marker("real_time"):
        clock = trio.testing.MockClock(autojump_threshold=0)
        item.obj = functools.partial(item.obj, virtual_clock=clock)  # type: ignore[attr-defined]
    yield


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: Any, virtual_clock: object = None, **kwargs: Any) -> None:
        with trio.fail_after(seconds):
            await test(*args, **kwargs)

    return bounded
