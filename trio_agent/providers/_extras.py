"""What an extra of this package brings: imported where it is used, with a word on how to get it where it is missing.

Here live those functions alone. They are called at the last moment, so that nobody pays for an extra unasked.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def needs(module: str, extra: str) -> Any:
    """The module. Raises `ModuleNotFoundError` that names the extra, where it is not installed."""
    check_installed(module, extra)
    return importlib.import_module(module)


def check_installed(module: str, extra: str) -> None:
    """The same without importing it, for who wants it in another process."""
    if importlib.util.find_spec(module) is None:
        text = f"{module} is not installed; it comes with the extra `{extra}`: pip install 'trio-agent[{extra}]'"
        raise ModuleNotFoundError(text, name=module)
