"""Arguments against a JSON Schema: whether they fit, and in words for the model what does not.

Here lives the one use of the validating library, the reading of arguments' JSON text, and the arguments of a tool
whose schema comes from elsewhere. How annotated types are decoded is in `_decoding.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from ._errors import ArgumentError, ToolDefinitionError
from ._json import dumps, loads
from ._schema_strict import at_pointer, is_array, is_object, json_type, strict_schema, without_nulls

_LONGEST_VALUE: Final = 80  # characters of a value that an error quotes
_LONGEST_LIST: Final = 400  # characters of the choices that an error lists
_MOST_PROBLEMS: Final = 8
_ARTICLES: Final = {"integer": "an integer", "object": "an object", "array": "an array", "null": "null"}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LIMITS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} keys",
    "maxProperties": "at most {} keys",
    "pattern": "text that matches the regular expression {}",
    "format": "text in the format {}",
    "const": "{}",
}


# Reading


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object that the text is; blank text and null are an empty one. Raises `ArgumentError`."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite) if text.strip() else None
    except RecursionError:
        raise ArgumentError("$: the JSON is nested too deeply") from None
    except ValueError as error:
        raise ArgumentError(f"$: this is not valid JSON: {error}; send one JSON object") from None
    if value is None:
        return {}
    if not is_object(value):
        raise ArgumentError(f"$: expected an object with the parameters as keys, got {shown(value)}")
    return dict(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{cut(text, 20)} is out of range")
    return number


# Words


def cut(text: str, longest: int = _LONGEST_VALUE) -> str:
    """Text of bounded length; it says so where something was left out."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(value: object) -> str:
    """A value as short JSON that can be sent anywhere: characters that UTF-8 has no bytes for are escaped."""
    return cut(dumps(value).encode("utf-8", "backslashreplace").decode())


def shown(value: object) -> str:
    """A value that came, with what it is: `the string "ten"`."""
    kind = json_type(value)
    if value is None:
        return "null"
    try:
        return f"the {kind} {quoted(value)}"
    except RecursionError:  # what could just be parsed cannot always be written again
        return f"a deeply nested {kind}"


def listed(choices: Iterable[object]) -> str:
    return cut(", ".join([str(choice) for choice in choices]), _LONGEST_LIST)


def near_miss(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant, if one is close."""
    import difflib

    plain = {candidate.strip().casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.strip().casefold()[:100], list(plain), n=1, cutoff=0.75)
    return plain[close[0]] if close else None


def path_text(path: Iterable[str | int]) -> str:
    """A JSON path: `$.points[0].x`, `$["a b"]`."""
    steps = [f"[{step}]" if isinstance(step, int) else _key(step) for step in path]
    return "$" + "".join(steps)


def _key(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{quoted(name)}]"


def argument_error(problems: Iterable[str]) -> ArgumentError:
    """One error for several problems, each named once."""
    distinct = list(dict.fromkeys(problems))
    more = len(distinct) - _MOST_PROBLEMS
    return ArgumentError("; ".join(distinct[:_MOST_PROBLEMS]) + (f"; and {more} more" if more > 0 else ""))


# Checking


class SchemaValidator:
    """A JSON Schema, made ready once. Raises `ToolDefinitionError` where it is none.

    The dialect is the one that `$schema` names, else 2020-12. References to other documents are refused, never
    fetched. Formats are hints and are not checked.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported at the first schema from elsewhere, or the first misfit: `import trio_agent` does without it.
        import jsonschema_rs

        try:
            self._validator: Any = jsonschema_rs.validator_for(
                dict(schema), validate_formats=False, retriever=_refuse_retrieval
            )
        except (ValueError, RecursionError) as error:
            first_line = str(error).partition("\n")[0]
            raise ToolDefinitionError(f"the parameters are not a usable JSON Schema: {cut(first_line, 300)}") from None
        self._schema = schema

    def accepts(self, value: Any) -> bool:
        with suppress(ValueError):  # half of a surrogate pair, or nested too deeply for the library
            return bool(self._validator.is_valid(value))
        with suppress(ValueError, RecursionError):  # what could just be decoded may be too deep to be encoded
            return bool(self._validator.is_valid(_without_surrogates(value)))
        return False

    def problems(self, value: Any) -> list[str]:
        """What does not fit, in words. Empty where all does, and where the value is no JSON."""
        try:
            errors = list(self._validator.iter_errors(_without_surrogates(value)))
        except (ValueError, RecursionError):
            return []
        return [text for error in errors for text in self._words(error)]

    def _words(self, error: Any) -> Iterator[str]:
        where = path_text(error.instance_path)
        keyword = _keyword(error)
        if keyword == "required":
            yield f"{where}: the key {quoted(error.kind.property)} is missing"
        elif keyword in ("additionalProperties", "unevaluatedProperties") and hasattr(error.kind, "unexpected"):
            properties = self._neighbour(error, "properties")
            known = list(properties) if is_object(properties) else []
            yield from [f"{where}: {_unknown_key(name, known)}" for name in error.kind.unexpected]
        elif keyword in ("anyOf", "oneOf") and hasattr(error.kind, "context"):
            yield from self._words_for_alternatives(where, error)
        else:
            yield f"{where}: {self._expectation(keyword, error)}, got {shown(error.instance)}"

    def _words_for_alternatives(self, where: str, error: Any) -> Iterator[str]:
        """Of alternatives, only those that the value comes near to; where it comes near to none, what all expect."""
        branches: list[list[Any]] = error.kind.context
        if not all(branches):  # one without errors fits
            yield f"{where}: fits several of {len(branches)} alternatives of which it must fit one"
            return
        near = [branch for branch in branches if not any(_is_other_type(inner, error) for inner in branch)]
        # A tag that differs rules an alternative out, unless it does so for all of them.
        near = [branch for branch in near if not any(_keyword(e) in ("enum", "const") for e in branch)] or near
        if len(near) == 1:
            for inner in near[0]:
                yield from self._words(inner)
        elif near:
            options = [" and ".join(text for inner in branch for text in self._words(inner)) for branch in near]
            yield f"{where}: fits none of {len(near)} alternatives: " + cut(" | ".join(options), 4 * _LONGEST_LIST)
        else:
            types = [self._expectation("type", inner) for branch in branches for inner in branch[:1]]
            expected = " or ".join(dict.fromkeys([text.removeprefix("expected ") for text in types]))
            yield f"{where}: expected {expected or 'another value'}, got {shown(error.instance)}"

    def _expectation(self, keyword: str, error: Any) -> str:
        value = self._neighbour(error, keyword)
        if keyword == "type" and value is not None:
            types = value if is_array(value) else [value]
            return "expected " + " or ".join([_ARTICLES.get(str(name), f"a {name}") for name in types])
        if keyword == "enum" and is_array(value):
            return f"expected one of {listed(map(quoted, value))}"
        if keyword == "uniqueItems":
            return "expected no item twice"
        if keyword in _LIMITS and value is not None:
            return "expected " + _LIMITS[keyword].format(quoted(value))
        return cut(str(error.message).partition("\n")[0], 200)

    def _neighbour(self, error: Any, keyword: str) -> Any:
        """The value of a keyword in the very schema that the error comes from."""
        found: Any = self._schema
        for step in error.schema_path[:-1]:
            try:
                found = at_pointer(self._schema, found["$ref"]) if step == "$ref" else found[step]
            except (KeyError, IndexError, TypeError):
                return None
        return found.get(keyword) if is_object(found) else None


def _without_surrogates(value: Any) -> Any:
    """The value as far as the library can read it: halves of surrogate pairs are no characters to it."""
    return loads(_SURROGATE.sub("\ufffd", dumps(value)))


def _refuse_retrieval(uri: str) -> NoReturn:
    raise LookupError(f"the schema refers to {uri}; references to other documents are not followed")


def _keyword(error: Any) -> str:
    return str(error.schema_path[-1]) if error.schema_path else ""


def _is_other_type(inner: Any, outer: Any) -> bool:
    """Whether an alternative is not even of the value's own type."""
    return _keyword(inner) == "type" and list(inner.instance_path) == list(outer.instance_path)


def _unknown_key(name: str, known: Sequence[str]) -> str:
    meant = near_miss(name, known)
    hint = f" (did you mean {quoted(meant)}?)" if meant is not None else ""
    allowed = f", the keys are {listed(map(quoted, known))}" if known else ""
    return f"unknown key {quoted(name)}{hint}{allowed}"


class SchemaArguments:
    """The arguments of a tool whose JSON Schema comes from elsewhere: JSON values that fit it."""

    def __init__(self, parameters: Mapping[str, Any], strict: bool) -> None:
        try:
            self._text = dumps({"type": "object", "properties": {}, **parameters})
            self._schema: dict[str, Any] = loads(self._text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolDefinitionError(f"the parameters are not a JSON Schema: {error}") from None
        self._validator = SchemaValidator(self._schema)
        if self._schema["type"] != "object":
            raise ToolDefinitionError('the parameters must be a JSON Schema of "type": "object"')
        self._strict = strict
        if strict:
            strict_schema(self._schema)

    @property
    def description(self) -> str:
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._schema["properties"])

    def defaults(self) -> dict[str, Any]:
        """The defaults that the schema tells the model, which whoever executes the call goes by."""
        properties: dict[str, Any] = loads(self._text)["properties"]
        return {name: inner["default"] for name, inner in properties.items() if is_object(inner) and "default" in inner}

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = loads(self._text)
        return schema

    def decode(self, text: str) -> dict[str, Any]:
        return self._checked(parse_object(text))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._checked(parse_object(dumps(dict(arguments))))
        except (TypeError, RecursionError) as error:
            raise ArgumentError(f"$: the arguments are not JSON: {error}") from None

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._strict:
            arguments = without_nulls(arguments, self._schema, self._schema)
        if not self._validator.accepts(arguments):
            raise argument_error(
                self._validator.problems(arguments)
                or ["$: the arguments do not fit the schema, or are nested too deeply"]
            )
        return arguments
