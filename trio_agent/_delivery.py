"""Hands one event to every subscriber exactly once, in the order in which they subscribed.

Here lives the list of subscribers and the cursor: who has not been called yet for the event that is being
delivered. A delivery that was cut goes on behind whom it was cut at. What a failure means for the run is
decided by the `Judge`; protection against cancellation comes from the caller's scopes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from types import CoroutineType, FunctionType, MethodType, TracebackType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from weakref import ref

from ._cancellation import part
from ._interrupts import exposed, protected
from ._settlement import Budget

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)
Listener: TypeAlias = Callable[[E], object]


class Owner(Protocol):
    """The agent, as its subscriptions see it."""

    def forget(self, subscription: Subscription[Any]) -> None:
        """Call it no more. Raises if this comes from where the agent cannot be reached."""
        ...


class Subscription(Generic[E]):
    """One subscriber's place in the list. Call it, or leave it as a context manager, to unsubscribe.

    Once that has returned, the listener is not called again.
    """

    __slots__ = ("_owner", "active", "call", "listener", "observer")

    def __init__(self, listener: Listener[E], observer: bool, owner: Owner) -> None:
        self._owner = ref(owner)  # weak, or no agent would be freed before the garbage collector comes by
        self.listener = listener
        self.call = _function_of(listener)
        self.observer = observer
        self.active = True

    @protected
    def __call__(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.forget(self)
        self.active = False

    @protected
    def __enter__(self) -> Subscription[E]:
        return self

    @protected
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self()

    def __repr__(self) -> str:
        return f"<subscription of {name_of(self.listener)}>"


class Subscribers(Generic[E]):
    """The subscribers of one agent. `all` is a tuple that is replaced, never changed: a delivery keeps its own."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: tuple[Subscription[E], ...] = ()

    def add(self, listener: Listener[E], observer: bool, owner: Owner) -> Subscription[E]:
        subscription = Subscription(listener, observer, owner)
        self.all = (*self.all, subscription)
        return subscription

    def remove(self, subscription: Subscription[E]) -> None:
        self.all = tuple([other for other in self.all if other is not subscription])


class Halt(BaseException):
    """Leaves a run's work for its settlement. Never seen outside of the run's own task."""


class Judge(Protocol[E_contra]):
    """Who is told when a subscriber fails or is cut, and knows whether to go on."""

    @property
    def stopping(self) -> bool: ...

    def subscriber_failed(self, listener: object, observer: bool, event: E_contra, failure: Exception) -> None: ...
    def subscriber_cut(self, listener: object, event: E_contra) -> None: ...


class Delivery(Generic[E]):
    """The delivery of one event after the other (L5). One task uses it."""

    __slots__ = ("_current", "_event", "_judge", "_rest", "_subscribers")

    def __init__(self, subscribers: Subscribers[E], judge: Judge[E]) -> None:
        self._subscribers = subscribers
        self._judge = judge
        self._event: E | None = None
        self._rest: Iterator[Subscription[E]] = iter(())
        self._current: Subscription[E] | None = None

    def deliver(self, event: E) -> Awaitable[None]:
        """Call every subscriber, then raise `Halt` if the run is to stop. Checkpoints only where a subscriber does.

        To be awaited at once. Cancellation and interrupts pass through, and leave the rest to `finish`: from this call
        on, not from the first step of what it gives.
        """
        self._event = event
        self._rest = rest = iter(self._subscribers.all)
        return self._call(event, rest)

    @exposed
    async def _call(self, event: E, rest: Iterator[Subscription[E]]) -> None:
        for subscription in rest:
            if subscription.active:
                self._current = subscription
                try:
                    result: Any = subscription.call(event)
                    # No call lies between a coroutine and its await: a Ctrl-C would be raised there.
                    if result is not None and (result.__class__ is CoroutineType or inspect.isawaitable(result)):
                        await result
                except BaseException as exc:  # noqa: ASYNC103  # _caught raises what must go on
                    self._caught(subscription, event, exc)
        self._current = None
        if self._judge.stopping:
            raise Halt

    async def deliver_bounded(self, event: E, budget: Budget) -> None:
        """The same, each subscriber in a protected scope of its own, so that one that hangs costs only its share."""
        self._event = event
        self._rest = iter(self._subscribers.all)
        await self.finish(budget)

    async def finish(self, budget: Budget) -> None:
        """Call those whom the last delivery did not reach, each in a protected scope of its own."""
        event = self._event
        for subscription in self._rest:
            if subscription.active and event is not None:
                await self._bounded(subscription, event, budget)
        self._current = None

    def report_cut(self) -> None:
        """Say who was being called when the scope around `deliver` was cut.

        Only a subscriber can be cut there: whatever else a run waits for is woken by its stop, before the deadline.
        """
        assert self._current is not None
        assert self._event is not None
        self._judge.subscriber_cut(self._current.listener, self._event)
        self._current = None

    async def _bounded(self, subscription: Subscription[E], event: E, budget: Budget) -> None:
        self._current = None
        try:
            with budget.protected() as scope:
                await self._hear(subscription, event)
            if scope.cancelled_caught:
                self._judge.subscriber_cut(subscription.listener, event)
        except BaseException as exc:  # noqa: ASYNC103  # _caught raises what must go on
            if self._current is None:  # a Ctrl-C came before the call
                self._rest = chain((subscription,), self._rest)
            self._caught(subscription, event, exc)

    @exposed
    async def _hear(self, subscription: Subscription[E], event: E) -> None:
        self._current = subscription
        result: Any = subscription.call(event)
        if result is not None and (result.__class__ is CoroutineType or inspect.isawaitable(result)):
            await result

    @protected
    def _caught(self, subscription: Subscription[E], event: E, exc: BaseException) -> None:
        """Report what went wrong, raise what must go on."""
        failure, rest = part(exc)
        if failure is not None:
            self._judge.subscriber_failed(subscription.listener, subscription.observer, event, failure)
        if rest is exc:
            raise exc
        if rest is not None:
            raise rest from None


def _function_of(listener: Listener[E]) -> Listener[E]:
    """What to call for a listener, so that CPython does not look for signals between the call and its await.

    It does on its way back from an object that can be called, not on its way back from a function of Python's: a
    Ctrl-C there would lose the coroutine. So an object's method is called, and of a partial a function.
    """
    if isinstance(listener, FunctionType | MethodType):
        return listener
    kind: type = type(listener)
    for cls in kind.__mro__:
        call = cls.__dict__.get("__call__")
        if call is not None:
            return MethodType(call, listener) if isinstance(call, FunctionType) else _made_of_partial(listener)
    return listener  # pragma: no cover - what can be called has it


def _made_of_partial(listener: Listener[E]) -> Listener[E]:
    if not inspect.iscoroutinefunction(listener):
        return listener

    @protected
    def made(event: E) -> object:  # making its coroutine runs nothing of the application's
        return listener(event)

    return made


def name_of(listener: Any) -> str:
    """What to call a callable in a message."""
    name = getattr(listener, "__qualname__", None)
    return name if isinstance(name, str) else type(listener).__qualname__
