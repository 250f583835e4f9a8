"""Where a Ctrl-C may be raised: in the application's own code, and in the kernel only where it waits.

Here live the two marks that say so. Trio asks the innermost marked function on the stack. Between them a run's code is
`protected`, so that no line of it is half done: the interrupt comes at the main task's next checkpoint. What an
application wrote is `exposed` again, or a loop of its that never ends could not be interrupted
(test_F7_a_ctrl_c_at_any_instruction_leaves_nothing_half_done).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import trio

T = TypeVar("T")

protected: Final = trio.lowlevel.enable_ki_protection
exposed: Final = trio.lowlevel.disable_ki_protection


@exposed
async def awaited(fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Call and await a function of the application's."""
    return await fn(*args)


@exposed
async def openly(work: Awaitable[T]) -> T:
    """Await what a function of the application's has given."""
    return await work
