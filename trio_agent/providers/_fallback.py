"""Several providers as one: the next is asked where one fails before it has said anything.

Here lives the choice of who is asked next, and the error that tells of all who failed. Waiting and trying again
are the run's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs
import trio

from .._chunks import Chunk, ResponseInfo, UsageReport
from .._errors import PROVIDER_ERROR_KINDS, ProviderError, ProviderErrorKind
from .._provider import Provider, Send
from .._request import ModelRequest
from ._keys import Secret

Self = TypeVar("Self", bound="FallbackProvider")
Member: TypeAlias = Provider | tuple[Provider, str]

# What another service may do better. A key or a request that is wrong should be put right and not be papered over; a
# context that overflows is shortened by the run.
DEFAULT_KINDS: Final[frozenset[ProviderErrorKind]] = frozenset(
    {"rate_limit", "overloaded", "server", "network", "timeout", "protocol"}
)


@attrs.frozen
class _Member:
    provider: Provider
    model: str | None

    @property
    def name(self) -> str | None:
        name = getattr(self.provider, "name", None)
        return name if isinstance(name, str) else None

    def asked(self, request: ModelRequest) -> ModelRequest:
        return request if self.model is None else attrs.evolve(request, model=self.model)


@attrs.frozen
class _Failure:
    member: _Member
    error: ProviderError

    def __str__(self) -> str:
        names = [name for name in (self.member.name, self.member.model) if name]
        return f"{' '.join(names) or type(self.member.provider).__name__}: {self.error.kind}: {self.error.message}"


class FallbackProvider:
    """Asks the first provider, and the next one when it fails with one of the kinds in `on`.

    A member is a provider, which is asked for the request's own model, or a pair of a provider and the model that it is
    asked for. `on` is by default `rate_limit` (an exhausted quota too), `overloaded`, `server`, `network`, `timeout`
    and `protocol`; any other failure, and any other exception, ends the asking. So does what comes after a first piece
    of the answer: what a model said is not taken back. Until then what a member tells about its answer (`ResponseInfo`,
    `UsageReport`) is held back.

    `AssistantMessage.provider` and `.model` say who answered. When several failed, the `ProviderError` tells of each,
    and has an `ExceptionGroup` of them as its cause; it is retryable if one of them was, `retry_after` being when the
    first of those may be asked again.

    `async with` enters the members, each once, and leaves them. Cancellation passes through.
    """

    def __init__(
        self,
        *providers: Member,
        on: Iterable[ProviderErrorKind] = DEFAULT_KINDS,
        name: str = "fallback",
    ) -> None:
        if not providers:
            raise ValueError("a FallbackProvider needs at least one provider, and is of use with two")
        self.name = name
        self._on = _checked_kinds(on)
        self._members = tuple([_member(given) for given in providers])
        self._exit = AsyncExitStack()
        self._entered = False

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The members' keys, so that they can be kept out of what is written."""
        return tuple([secret for member in self._members for secret in secrets_of(member.provider)])

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        failures: list[_Failure] = []
        for member in self._members:
            opening = _Opening(member, request, send)
            try:
                await member.provider(member.asked(request), opening.send)
                await opening.begin()
            except ProviderError as error:
                failures.append(_Failure(member, error))
                stands = opening.begun or error.kind not in self._on
                if len(failures) == 1 and (stands or len(self._members) == 1):
                    raise
                if stands:
                    break
            else:
                return
        raise _combined(failures) from _causes(failures)

    async def __aenter__(self: Self) -> Self:
        if self._entered:
            raise RuntimeError("the provider is open already; open it once and share it")
        async with AsyncExitStack() as stack:
            # One provider may be listed with several models. By identity: providers need not be hashable.
            for provider in {id(member.provider): member.provider for member in self._members}.values():
                if hasattr(provider, "__aenter__"):
                    await stack.enter_async_context(cast("Any", provider))
            self._exit = stack.pop_all()
        self._entered = True
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        await self._exit.__aexit__(exc_type, exc, traceback)  # noqa: ASYNC102  # each member shields its own closing

    def __repr__(self) -> str:
        members = ", ".join([" ".join(filter(None, (member.name, member.model))) for member in self._members])
        return f"<FallbackProvider {members}>"


class _Opening:
    """Holds back what a member tells about its answer until the answer begins: until then it may still fail."""

    def __init__(self, member: _Member, request: ModelRequest, send: Send) -> None:
        self.begun = False
        self._send = send
        self._held: list[Chunk] = [ResponseInfo(None, member.model or request.model, member.name)]

    async def send(self, chunk: Chunk) -> None:
        if self.begun:
            await self._send(chunk)
        elif isinstance(chunk, ResponseInfo | UsageReport):
            self._held.append(chunk)
            await trio.lowlevel.checkpoint()
        else:
            await self.begin()
            await self._send(chunk)

    async def begin(self) -> None:
        """Pass on what was held back; from here on the answer is this member's."""
        self.begun = True
        held, self._held = self._held, []
        for chunk in held:
            await self._send(chunk)


def secrets_of(provider: object) -> tuple[Secret, ...]:
    """The keys that a provider holds, where it tells them."""
    held = getattr(provider, "secrets", ())
    found = cast("tuple[object, ...]", held) if isinstance(held, tuple) else ()
    return tuple([secret for secret in found if isinstance(secret, Secret)])


def _member(given: Any) -> _Member:
    # mypy knows what pyright does not: that a tuple of Any is what is left.
    pair = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else (given, None)  # type: ignore[redundant-cast]
    if len(pair) != 2 or not callable(pair[0]) or isinstance(pair[0], type):
        raise TypeError(f"a member is a provider or a pair (provider, model), not {given!r}")
    provider, model = pair
    if pair is given and not (isinstance(model, str) and model):
        raise TypeError(f"the second of a pair is the name of the model, not {model!r}")
    return _Member(provider, model)


def _checked_kinds(kinds: Iterable[object]) -> frozenset[str]:
    given = frozenset([kinds] if isinstance(kinds, str) else kinds)
    if unknown := given - PROVIDER_ERROR_KINDS:
        names = ", ".join(sorted(map(repr, unknown)))
        raise ValueError(f"{names}: no kind of provider error; use some of {', '.join(sorted(PROVIDER_ERROR_KINDS))}")
    return cast("frozenset[str]", given)


def _combined(failures: Sequence[_Failure]) -> ProviderError:
    """One error for all of them. A retry asks everybody again, so it may come as soon as one of them takes it."""
    errors = [failure.error for failure in failures]
    soonest = min(
        [error for error in errors if error.retryable], key=lambda error: error.retry_after or 0, default=None
    )
    # The run cures an overflow itself, so it must see that there was one.
    leading = errors[-1] if soonest is None or errors[-1].kind == "context_overflow" else soonest
    text = f"all {len(failures)} providers that were asked failed: {'; '.join(map(str, failures))}"
    return ProviderError(
        leading.kind, text, soonest is not None, None if soonest is None else soonest.retry_after, leading.status
    )


def _causes(failures: Sequence[_Failure]) -> ExceptionGroup[ProviderError]:
    return ExceptionGroup("the attempts, in order", [failure.error for failure in failures])
