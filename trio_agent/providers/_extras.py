"""Imports what an extra of this package brings, and says how to get it where it is missing.

Here lives that one function. It is called where the module is used, so that nobody pays for an extra unasked.
"""

from __future__ import annotations

import importlib
from typing import Any


def needs(module: str, extra: str) -> Any:
    """The module. Raises `ModuleNotFoundError` that names the extra, where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        text = f"{module} is not installed; it comes with the extra `{extra}`: pip install 'trio-agent[{extra}]'"
        raise ModuleNotFoundError(text, name=module) from None
