"""The provider contract: an async callable that turns a request into chunks.

Here lives the protocol alone; services are in `providers/`, the scripted fake in `testing/`. No
generator crosses this boundary: the return of the call is the end of the stream, and nothing can be
abandoned half-read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from ._chunks import Chunk
from ._request import ModelRequest

Send: TypeAlias = Callable[[Chunk], Awaitable[None]]


class Provider(Protocol):
    """`await provider(request, send)`: sends each chunk, `Finish` last but for a usage report, and returns.

    `send` takes the chunk at once; when the run is behind, it waits until there is room, and that is
    where cancellation arrives in a provider that never blocks otherwise. Chunks that were taken but not
    told when the run is aborted are dropped. A failure is raised as `ProviderError`; any other exception
    counts as a failure that is not retryable. The provider runs in a task of its own; when it is cancelled it must
    release what it holds and let `trio.Cancelled` pass.

    An attribute `name: str`, where there is one, becomes `AssistantMessage.provider`, unless a `ResponseInfo` names
    another that answered.
    """

    async def __call__(self, request: ModelRequest, send: Send, /) -> None: ...
