"""A model on this machine: llama.cpp's server in a child process, spoken to by `OpenAIChat`.

Here lives the provider. The child's life is in `_local_child.py`, what the child does in `_local_server.py`, and how
a model that knows no tools gets some in `_grammar_tools.py`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, TypeVar

import attrs
import trio

from .._errors import ProviderError
from .._provider import Provider, Send
from .._request import DEFAULT_SETTINGS, ModelRequest, ModelSettings
from ._extras import check_installed
from ._grammar_tools import GrammarTools
from ._local_child import Child, running
from ._local_model import LocalModelError as LocalModelError
from ._local_model import checked, embedded_model
from ._openai_chat import OpenAIChat

Self = TypeVar("Self", bound="Local")

EMBEDDED_SETTINGS: Final = ModelSettings(temperature=0.0, max_output_tokens=256)
_CLOSE: Final = 2.0  # seconds that closing connections may take


class Local:
    """A GGUF model on this machine; without a path the embedded one, of 135 million parameters.

    `async with Local() as provider` starts a server of llama.cpp in a child process on a free port of 127.0.0.1,
    behind a key of its own, and waits until it answers, at most `startup_timeout` seconds. It is stopped when the block
    is left, also by cancellation, and dies with this process, however that dies. Raises `LocalModelError` when the
    model cannot be started, with what the server's log says, and `ModuleNotFoundError` without the extra `local`.

    `context` is in tokens (None: the model's own, as far as memory goes); `threads` None takes half of the processors.
    `tools`: `native` where the model's chat template knows tools, `grammar` for `GrammarTools`, `auto` for what the
    template says; `max_rounds` is that of `GrammarTools`. `settings` hold where a request has none of its own; the
    embedded model has some (temperature 0, at most 256 tokens), so that it answers the same every time.

    One request at a time: others wait in the server. A cancelled request ends in the server too.
    """

    name = "local"

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        *,
        context: int | None = None,
        threads: int | None = None,
        tools: Literal["auto", "native", "grammar"] = "auto",
        max_rounds: int | None = 1,
        settings: ModelSettings | None = None,
        startup_timeout: float = 120.0,
    ) -> None:
        for label, count in (("context", context), ("threads", threads)):
            if count is not None and count < 1:
                raise ValueError(f"{label} is {count}; give at least 1, or None")
        if tools not in ("auto", "native", "grammar"):
            raise ValueError(f"tools is {tools!r}; give 'auto', 'native' or 'grammar'")
        self._path = None if model_path is None else Path(model_path)
        self._context = context
        self._threads = threads
        self._tools = tools
        self._max_rounds = max_rounds
        self._settings = settings or (EMBEDDED_SETTINGS if model_path is None else DEFAULT_SETTINGS)
        self._startup_timeout = startup_timeout
        self._child: Child | None = None
        self._provider: Provider | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self: Self) -> Self:
        if self._child is not None:
            raise RuntimeError("this model is running already; open it once and share it")
        check_installed("xllamacpp", "local")
        path = checked(embedded_model() if self._path is None else self._path)
        key = secrets.token_urlsafe(32)
        async with AsyncExitStack() as stack:
            child = await stack.enter_async_context(
                running(
                    path, context=self._context, threads=self._threads, key=key, startup_timeout=self._startup_timeout
                )
            )
            chat = await stack.enter_async_context(_chat(child.url, key))
            self._provider = self._with_tools(chat, child)
            self._child = child
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child = self._provider = None
        await self._exit.aclose()

    async def __call__(self, request: ModelRequest, send: Send, /) -> None:
        child, provider = self._child, self._provider
        if child is None or provider is None:
            raise RuntimeError("the model is not running; use it inside `async with Local() as provider:`")
        settled = attrs.evolve(request, settings=_merged(request.settings, self._settings))
        try:
            await provider(settled, send)
        except ProviderError as error:
            if error.kind != "network":
                raise
            failure = error
        else:
            return
        raise await child.explained(failure)

    @property
    def model(self) -> str:
        """The model's name: that of its file."""
        return (embedded_model() if self._path is None else self._path).stem

    @property
    def context(self) -> int | None:
        """Tokens of the model's window, while it runs."""
        return None if self._child is None else self._child.context

    @property
    def pid(self) -> int | None:
        """The child's process id, while it runs."""
        return None if self._child is None else self._child.process.pid

    def _with_tools(self, chat: Provider, child: Child) -> Provider:
        if self._tools == "native" or (self._tools == "auto" and child.knows_tools):
            return chat
        return GrammarTools(chat, max_rounds=self._max_rounds, small=self._path is None)


@asynccontextmanager
async def _chat(url: str, key: str) -> AsyncGenerator[Provider]:
    """A chat with the child. Its client knows no proxies, which are not for this machine, and no certificates.

    It keeps no connection either: the server closes each behind a streamed answer, and a request that comes just then
    would be lost.
    """
    import httpx  # noqa: ASYNC127  # either is accepted; httpx is the declared dependency

    client = httpx.AsyncClient(trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0))
    try:
        yield OpenAIChat(base_url=f"{url}/v1", api_key=key, name=Local.name, client=client)
    finally:
        with trio.move_on_after(_CLOSE, shield=True):
            await client.aclose()


def _merged(settings: ModelSettings, defaults: ModelSettings) -> ModelSettings:
    """The settings, with a default wherever they say nothing."""
    names = [field.name for field in attrs.fields(ModelSettings) if not field.name.startswith("_")]
    missing = {name: getattr(defaults, name) for name in names if getattr(settings, name) in (None, ())}
    return attrs.evolve(
        settings,
        **missing,
        extra_body={**defaults.extra_body, **settings.extra_body},
        extra_headers={**defaults.extra_headers, **settings.extra_headers},
    )
