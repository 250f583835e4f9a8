"""Tools that read, change and run things in one folder. Public names, re-exported; no code."""

from ._coding import coding_tools as coding_tools
from ._edits import Edit as Edit
from ._edits import EditError as EditError
from ._files import edit_file as edit_file
from ._files import read_file as read_file
from ._files import write_file as write_file
from ._permission import allow as allow
from ._permission import ask as ask
from ._permission import read_only as read_only
from ._search import find_files as find_files
from ._search import grep as grep
from ._search import list_dir as list_dir
from ._shell import bash as bash
from ._shell import shell_environment as shell_environment
from ._text import BinaryError as BinaryError
from ._text import EncodingError as EncodingError
from ._workspace import PathError as PathError
from ._workspace import Workspace as Workspace
from ._writing import ChangedError as ChangedError
