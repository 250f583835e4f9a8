"""The tools for work on code, together. Here lives the choice alone; each tool has a module of its own."""

from __future__ import annotations

from .. import Tool
from ._files import edit_file, read_file, write_file
from ._search import find_files, grep, list_dir
from ._shell import bash
from ._workspace import WorkspacePath, as_workspace
from ._writing import remove_litter


def coding_tools(workspace: WorkspacePath, *, allow_write: bool = True, allow_shell: bool = False) -> tuple[Tool, ...]:
    """Tools confined to one folder: `read_file`, `list_dir`, `find_files`, `grep`, and those that write.

    With `allow_shell` also `bash`, which is confined by nothing but the system's rights.

    With `allow_write` the temporary files of writers that were killed are taken away first, which walks the folder
    and blocks. Raises `OSError` for what is no folder.
    """
    space = as_workspace(workspace)
    tools = [read_file(space), list_dir(space), find_files(space), grep(space)]
    if allow_write:
        remove_litter(space)
        tools += [write_file(space), edit_file(space)]
    if allow_shell:
        tools.append(bash(space))
    return tuple(tools)
