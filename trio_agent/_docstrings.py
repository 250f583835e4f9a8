"""What a docstring says about a function or class: its description, and a text for each parameter.

Here lives the reading of docstrings in Google, NumPy and reST form. What becomes of the texts is in `_schema.py`;
no docstring at all, as under `python -OO`, is as good as an empty one.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, Final

import attrs


@attrs.frozen
class Docs:
    """`description` is the summary and the paragraphs behind it; `parameters` maps names to their whole texts."""

    description: str = ""
    parameters: dict[str, str] = attrs.field(factory=dict[str, str])


NO_DOCS: Final = Docs()
_NO_SUMMARY: Final = "-"


def read_docstring(text: str | None) -> Docs:
    """Take a docstring apart. Sections such as Returns, Raises and Examples are left out; never raises."""
    cleaned = inspect.cleandoc(text or "").strip()
    if "\n" not in cleaned:
        return Docs(cleaned)
    # Imported at the first docstring of several lines: it takes longer to load than all of this package.
    import docstring_parser

    # Never raises: of the styles that it tries, NumPy's takes any text.
    parsed = docstring_parser.parse(_with_summary(cleaned))
    return Docs(_description(parsed), _parameters(parsed))


def class_docs(cls: type) -> Docs:
    """What a class's own docstring says; one that was generated, or inherited, says nothing."""
    text: str | None = vars(cls).get("__doc__")
    if text is None or text.startswith(f"{cls.__name__}("):  # dataclasses make one of the signature
        return NO_DOCS
    return read_docstring(text)


def _with_summary(text: str) -> str:
    """The text, with a stand-in in front where it opens with a section, which would be taken for its summary."""
    first, _, rest = text.partition("\n")
    if set(rest.partition("\n")[0]) == {"-"}:
        return f"{_NO_SUMMARY}\n\n{text}"
    if not first.endswith(":") or " " in first:
        return text
    # `cleandoc` took the indentation of the section for that of the docstring where nothing stands left of it.
    body = rest if rest.startswith(" ") else textwrap.indent(rest, "    ")
    return f"{_NO_SUMMARY}\n\n{first}\n{body}"


def _description(parsed: Any) -> str:
    short = parsed.short_description or ""
    parts = ["" if short == _NO_SUMMARY else short, parsed.long_description or ""]
    return ("\n\n" if parsed.blank_after_short_description else "\n").join([part for part in parts if part]).strip()


def _parameters(parsed: Any) -> dict[str, str]:
    """The texts by name. NumPy docstrings may give several names one text."""
    return {
        name.strip().lstrip("*"): parameter.description.strip()
        for parameter in parsed.params
        if parameter.description
        for name in parameter.arg_name.split(",")
    }
