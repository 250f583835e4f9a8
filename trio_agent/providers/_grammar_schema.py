"""The JSON schema of one reply: a call of one of the tools, or an answer in text.

Here lives the translation of tools into a schema that a server can turn into a grammar. What the model is told
in words is in `_grammar_prompt.py`; what a call's arguments must be is still judged by the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from .._request import ToolSpec
from ._json_values import list_of, object_of

JSONSchema: TypeAlias = dict[str, Any]

# What the makers of grammars know in common. They refuse the whole request over some of the other words (`pattern`
# without anchors, `true` for a schema), and the kernel checks those once the call is there.
_VALUE_WORDS: Final = frozenset(
    {"const", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum"}
)
_LIST_WORDS: Final = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf", "prefixItems": "prefixItems"}
_HOMES: Final = ("$defs", "definitions")
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})


def reply_schema(tools: Sequence[ToolSpec], *, answer: bool, required_only: bool) -> JSONSchema:
    """The schema that holds a reply to `{"tool": NAME, "arguments": {…}}`, or `{"answer": TEXT}` if allowed.

    With `required_only` a call has no arguments but the required ones: a very small model invents the others.
    """
    definitions: JSONSchema = {}
    replies: list[JSONSchema] = []
    for number, spec in enumerate(tools):
        home = f"tool{number}"
        translation = _Translation(spec.parameters, f"#/$defs/{home}", required_only)
        arguments = translation.parameters()
        if translation.refers:
            definitions[home], arguments = arguments, {"$ref": f"#/$defs/{home}"}
        replies.append(_object(tool={"enum": [spec.name]}, arguments=arguments))
    if answer:
        replies.append(_object(answer={"type": "string"}))
    schema = replies[0] if len(replies) == 1 else {"anyOf": replies}
    return {**schema, "$defs": definitions} if definitions else schema


def _object(**properties: JSONSchema) -> JSONSchema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class _Translation:
    """One tool's schema, cut down to what every maker of grammars understands.

    What is left out allows more, never less. References are kept where they lead to the schema itself or to one
    of its definitions, and point below `home` from then on; any other allows anything. `refers` says whether
    there was one.
    """

    def __init__(self, source: JSONSchema, home: str, required_only: bool) -> None:
        self._source = source
        self._home = home
        self._required_only = required_only
        self._targets = {"#"} | {f"#/{word}/{name}" for word in _HOMES for name in object_of(source.get(word))}
        self.refers = False

    def parameters(self) -> JSONSchema:
        """The translated schema. Arguments are an object also where the source does not say so."""
        out = self._schema(self._source)
        if out.keys() & {"$ref", "anyOf", "allOf", "additionalProperties"}:
            return out
        bare: JSONSchema = {"type": "object", "properties": {}, "additionalProperties": False}
        return bare | out

    def _schema(self, schema: Any) -> JSONSchema:
        source = object_of(schema)  # `true` is one too, and allows anything; `false` cannot be said
        reference = source.get("$ref")
        if isinstance(reference, str):
            return self._reference(reference)
        out: JSONSchema = {word: value for word, value in source.items() if word in _VALUE_WORDS}
        if list_of(source.get("enum")):
            out["enum"] = source["enum"]
        if _is_type(source.get("type")):
            out["type"] = source["type"]
        for word in _HOMES:
            if word in source:
                out[word] = {name: self._schema(inner) for name, inner in object_of(source[word]).items()}
        for word, name in _LIST_WORDS.items():
            if inner := list_of(source.get(word)):
                out[name] = [self._schema(one) for one in inner]
        if items := object_of(source.get("items")):
            out["items"] = self._schema(items)
        return out | self._properties(source)

    def _reference(self, reference: str) -> JSONSchema:
        if reference not in self._targets:
            return {}
        self.refers = True
        return {"$ref": self._home + reference[1:]}

    def _properties(self, source: JSONSchema) -> JSONSchema:
        properties = object_of(source.get("properties"))
        if not properties:
            extra = object_of(source.get("additionalProperties"))
            return {"additionalProperties": self._schema(extra)} if extra else {}
        required = [name for name in list_of(source.get("required")) if name in properties]
        kept = required if self._required_only else properties
        return {
            "properties": {name: self._schema(inner) for name, inner in properties.items() if name in kept},
            "required": required,
            "additionalProperties": False,
        }


def _is_type(value: Any) -> bool:
    names = list_of(value) or [value]
    return all(isinstance(name, str) and name in _TYPES for name in names)


def named_choices(tools: Sequence[ToolSpec], text: str) -> tuple[ToolSpec, ...]:
    """The tools of which a text names a choice (`enum`) of some parameter, or else the name; narrowed to what it names.

    Nothing, where it names none.
    """
    narrowed = [_narrowed(tool, text) for tool in tools]
    chosen = tuple([tool for tool in narrowed if tool is not None])
    return chosen or tuple([tool for tool in tools if _names(text, tool.name)])


def _narrowed(tool: ToolSpec, text: str) -> ToolSpec | None:
    schema = tool.parameters
    found: list[str] = []
    for name, inner in object_of(schema.get("properties")).items():
        named = [choice for choice in list_of(object_of(inner).get("enum")) if _names(text, choice)]
        if named:
            inner["enum"] = named
            found.append(name)
    schema["required"] = [*list_of(schema.get("required")), *found]  # what was named shall not be left out
    return ToolSpec(tool.name, tool.description, schema, tool.strict) if found else None


def _names(text: str, choice: Any) -> bool:
    """Whether a text has a choice in it, as a whole: not `a.py` in `b/a.py`, nor `a` in `a.py`."""
    if not isinstance(choice, str) or not any(map(str.isalnum, choice)):
        return False
    return re.search(rf"(?<![\w/.-]){re.escape(choice)}(?![\w/-]|\.\w)", text) is not None
