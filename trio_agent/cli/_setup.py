"""From options to things: the prompt, the tools, the provider.

Here lives the looking up of what the command line names; whatever is not there is a `UsageError`. Providers are
imported only when they are asked for.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from .._errors import ToolDefinitionError
from .._failures import describe
from .._tools import Tool, tool
from ._arguments import AgentOptions, ModelOptions, RunOptions, ServiceOptions
from ._readonly_tools import read_only_tools
from ._usage import UsageError

if TYPE_CHECKING:
    from .._provider import Provider
    from ..providers._service import HTTPProvider

_EMBEDDED_LIMIT = 2_000  # characters of a file; a model of that size loses the thread beyond


def read_prompt(options: RunOptions) -> str:
    """The prompt, from stdin where the command line says so. May block: call it before the event loop is there."""
    text = options.prompt
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"the prompt on stdin is not UTF-8: {error.reason} at byte {error.start}") from None
    if not text.strip():
        raise UsageError("the prompt is empty")
    return text


def load_tools(options: AgentOptions) -> tuple[Tool, ...]:
    """The tools of the user's, then the built-in ones that none of these replaces by its name."""
    given = [_load_tool(reference) for reference in options.tools]
    names = [one.name for one in given]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two tools are called {name!r}; name one of them differently with @tool(name=...)")
    return (*given, *[one for one in _builtin_tools(options) if one.name not in names])


def _builtin_tools(options: AgentOptions) -> tuple[Tool, ...]:
    if not options.builtin_tools:
        return ()
    if not options.workspace.is_dir():
        raise UsageError(f"the workspace {str(options.workspace)!r} is no folder")
    if _is_embedded(options):
        return read_only_tools(options.workspace, limit=_EMBEDDED_LIMIT, list_choices=True)
    return read_only_tools(options.workspace)


def _is_embedded(options: ModelOptions) -> bool:
    return options.provider == "local" and options.model is None


def _load_tool(reference: str) -> Tool:
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise UsageError(f"--tool {reference!r} is not of the form MODULE:NAME")
    found: Any = _import(module_name, reference)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"--tool {reference}: {module_name} has no {name}") from None
    if isinstance(found, Tool):
        return found
    if not callable(found):
        raise UsageError(f"--tool {reference}: that is {type(found).__name__}; name a tool or a typed function")
    try:
        made: Tool = tool(found)
    except ToolDefinitionError as error:
        raise UsageError(f"--tool {reference}: {error}") from error
    return made


def _import(module_name: str, reference: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:  # `python -m` has it there, an installed command has not
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything while it is imported
        raise UsageError(f"--tool {reference}: {module_name} cannot be imported: {describe(error)}") from error


def open_provider(options: ModelOptions) -> AbstractAsyncContextManager[Provider]:
    """The provider, not entered yet. Raises `UsageError`."""
    if options.provider == "local":
        from ..providers._local import Local

        return Local(options.model)
    return open_service(options)


def open_service(options: ServiceOptions) -> HTTPProvider:
    """The provider of a service, not entered yet. Raises `UsageError`."""
    made = _service_class(options.provider)
    key = None
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise UsageError(f"the environment variable {options.api_key_env} (--api-key-env) is not set")
    try:
        provider = made(base_url=options.base_url, api_key=key)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if (variable := provider.missing_key) is not None:
        raise UsageError(f"{provider.base_url} wants a key; set {variable}, or name another variable by --api-key-env")
    return provider


def _service_class(name: str) -> Callable[..., HTTPProvider]:
    if name == "anthropic":
        from ..providers._anthropic import Anthropic

        return Anthropic
    if name == "gemini":
        from ..providers._gemini import Gemini

        return Gemini
    if name == "openai-responses":
        from ..providers._openai_responses import OpenAIResponses

        return OpenAIResponses
    from ..providers._openai_chat import OpenAIChat

    return OpenAIChat
