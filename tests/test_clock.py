"""The tests' own clock: a suite that waits for real seconds would not be run."""

from __future__ import annotations

import signal

import conftest
import pytest
import trio
import trio.testing


async def test_an_async_test_has_a_virtual_clock() -> None:
    """A day's sleep in a test takes no time."""
    assert isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    await trio.sleep(9_000)


@pytest.mark.real_time
async def test_a_test_of_real_things_has_a_real_clock() -> None:
    """Threads, processes and sockets run on real time."""
    assert not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)


def test_tests_get_a_ctrl_c_whatever_the_shell_ignores() -> None:
    """A shell has what it starts in the background ignore the signal; tests send it to themselves and to children."""
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        conftest.pytest_configure()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, ignored)
