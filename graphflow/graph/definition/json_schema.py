"""JSON Schema checks for documents and for values that people enter (E20).

Flat schemas (`type, enum, const, required, properties, items, additionalProperties` and the simple
bounds) are checked by the few lines here, in their own words and without a library. Any other keyword
goes to jsonschema-rs, imported when the first such schema is compiled. Once it is imported, it accepts
values for flat schemas too, in a tenth of the time; what it does not accept is still described here, so
a message never depends on whether the library was loaded.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.errors import Issue
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.definition.types import JSON_TYPES, Hole, declared_types, fits, holds, json_type, show, show_types
from graphflow.graph.definition.whole_numbers import whole_numbers
from graphflow.suggestions import Suggestion, choose, meant, nearest

MAX_ISSUES = 100
MAX_DEPTH = 100

_ANNOTATIONS = frozenset(
    "title description default examples $schema $comment deprecated readOnly writeOnly format contentMediaType "
    "contentEncoding discriminator example".split()
)
_BOUNDS = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems minProperties "
    "maxProperties".split()
)
_FLAT = frozenset("type enum const required properties items additionalProperties".split()) | _BOUNDS | _ANNOTATIONS
_OTHER = frozenset(
    "$ref $defs definitions $id $anchor $dynamicRef $dynamicAnchor $vocabulary allOf anyOf oneOf not if then else "
    "dependentSchemas dependentRequired dependencies prefixItems contains minContains maxContains uniqueItems "
    "patternProperties propertyNames unevaluatedItems unevaluatedProperties multipleOf pattern additionalItems".split()
)
KEYWORDS = _FLAT | _OTHER
_OPEN = _ANNOTATIONS | {"type", "properties"}


class Checker:
    """A compiled schema."""

    __slots__ = ("_named", "_validator", "is_flat", "schema")

    def __init__(self, schema: Any, validator: Any) -> None:
        self.schema = schema
        self._validator = validator
        self.is_flat = validator is None
        """Whether no library is involved."""
        self._named: Mapping[str, Any] | None = None
        """The properties of a schema under which every object without any of them fits."""
        if self.is_flat and isinstance(schema, Mapping) and schema.get("type") == "object" and schema.keys() <= _OPEN:
            self._named = _mapping(schema.get("properties"))

    def errors(self, value: Any) -> list[Issue]:
        """The errors of the value, with pointers relative to it; `[]` if it fits.

        Frozen and lazy collections of the state count as the plain ones they stand for.
        """
        if self._named is not None and isinstance(value, dict) and self._named.keys().isdisjoint(value):
            return []
        if self._validator is None:
            return [] if _accepted(value, self.schema) else _first(_check(value, self.schema, "", 0))
        return _first(_by_library(self._validator, value, self.schema))

    def taken(self, value: Any) -> Any:
        """A value without errors as it counts from here on: `2.0` is `2` where the schema asks for an integer."""
        return whole_numbers(value, self.schema)


def compile_schema(schema: Mapping[str, Any] | bool) -> Checker:
    """The checker of a schema; see `check_schema` for one that may itself be wrong.

    Raises:
        ValueError: the schema is beyond flat and is not a valid JSON Schema.
    """
    if _is_flat(schema):
        return Checker(schema, None)
    return Checker(schema, _validator(msgspec.json.encode(_plain(schema))))


def compile_items(schema: Mapping[str, Any]) -> Checker:
    """The checker of one item of the lists that a schema describes, with the definitions that it may refer to."""
    items = schema["items"]
    return compile_schema(
        {"$defs": schema["$defs"], **items} if isinstance(items, Mapping) and "$defs" in schema else items
    )


def check_schema(schema: Any) -> list[Issue]:
    """What is wrong with the schema itself; pointers are relative to it.

    A key that is not a keyword is an error only when it looks like a misspelt one: JSON Schema allows others.
    """
    issues = _first(_check_schema(schema, "", 0))
    if issues or _is_flat(schema):
        return issues
    try:
        compile_schema(schema)
    except ValueError as error:
        return [Issue(pointer="", message=f"not a valid JSON Schema: {error}", kind="type")]
    return []


def check_sketch(sketch: Any, schema: Any) -> list[Issue]:
    """Errors of a value with holes in it (`Template.sketch`); only what is certain is reported.

    Beyond flat schemas a value with holes is not looked into.
    """
    if not isinstance(schema, Mapping) or (has_holes(sketch) and not _is_flat(schema)):
        return []
    # Flat schemas never by the library here, even where it is loaded: it knows no holes.
    return compile_schema(schema).errors(sketch) if not _is_flat(schema) else _first(_check(sketch, schema, "", 0))


def has_holes(sketch: Any) -> bool:
    """Whether some part of the value is known only at run time."""
    if isinstance(sketch, Mapping):
        return any(map(has_holes, sketch.values()))
    if isinstance(sketch, list | tuple):
        return any(map(has_holes, sketch))
    return isinstance(sketch, Hole)


# --- flat schemas ---------------------------------------------------------------------------------


def _is_flat(schema: Any, depth: int = 0) -> bool:
    """Whether every keyword, here and below, is one that this module checks itself."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return False
    if any(key in _OTHER for key in schema):
        return False
    below = [*_mapping(schema.get("properties")).values()]
    below += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return all(_is_flat(part, depth + 1) for part in below)


def _check(value: Any, schema: Any, pointer: str, depth: int) -> Iterator[Issue]:
    if schema is True or depth > MAX_DEPTH:
        return
    if schema is False:
        yield _issue(pointer, "nothing is allowed here")
        return
    if isinstance(value, Hole):
        yield from _check_hole(value, schema, pointer)
        return
    word = _WORDS.get(type(value)) or json_type(value)
    declared = schema.get("type")
    # A value of the wrong type gets no further message: its length or bounds would only repeat the same mistake.
    if declared is not None and not is_type(value, declared, word):
        yield _issue(pointer, f"expected {_shown_type(declared)}, not {show(value)}")
        return
    if "enum" in schema and not any(same_json(value, allowed) for allowed in schema["enum"]):
        words = [show(allowed) for allowed in schema["enum"]]
        hint = meant(value, [w for w in schema["enum"] if isinstance(w, str)]) if isinstance(value, str) else None
        yield _issue(pointer, f"expected one of {', '.join(words)}, not {show(value)}", hint)
    if "const" in schema and not same_json(value, schema["const"]):
        yield _issue(pointer, f"expected {show(schema['const'])}, not {show(value)}")
    match word:
        case "object":
            yield from _check_object(value, schema, pointer, depth)
        case "array":
            yield from _check_array(value, schema, pointer, depth)
        case "string":
            yield from _check_length(len(value), schema, pointer, "minLength", "maxLength", "characters")
        case "integer" | "number":
            yield from _check_number(value, schema, pointer)


_WORDS = {
    str: "string", dict: "object", list: "array", int: "integer", float: "number", bool: "boolean", type(None): "null",
}  # fmt: skip
"""The types of values that JSON text gives, which is nearly every value; the others go through `json_type`."""


def _check_hole(hole: Hole, schema: Mapping[str, Any], pointer: str) -> Iterator[Issue]:
    names = declared_types(schema)
    if not fits(hole.type, names):
        yield _issue(pointer, f"expected {show_types(names)}, and expression {hole.source!r} gives {hole.type}")


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], pointer: str, depth: int) -> Iterator[Issue]:
    properties = _mapping(schema.get("properties"))
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield _issue(pointer, f"{name!r} is missing", _describe(properties.get(name)))
    yield from _check_length(len(value), schema, pointer, "minProperties", "maxProperties", "keys")
    for name, item in value.items():
        token = str(name)
        below = f"{pointer}/{token if token.isidentifier() else escape(token)}"
        if name in properties:
            yield from _check(item, properties[name], below, depth + 1)
        elif others is False:
            yield _issue(below, f"unknown key {name!r}", choose(str(name), properties, none="no keys are allowed"))
        elif others is not True:
            yield from _check(item, others, below, depth + 1)


def _check_array(value: Sequence[Any], schema: Mapping[str, Any], pointer: str, depth: int) -> Iterator[Issue]:
    yield from _check_length(len(value), schema, pointer, "minItems", "maxItems", "items")
    items = schema.get("items", True)
    if items is not True:
        for index, item in enumerate(value):
            yield from _check(item, items, f"{pointer}/{index}", depth + 1)


def _check_length(
    length: int, schema: Mapping[str, Any], pointer: str, least: str, most: str, what: str
) -> Iterator[Issue]:
    if least in schema and length < schema[least]:
        yield _issue(pointer, f"at least {schema[least]} {what}, not {length}")
    if most in schema and length > schema[most]:
        yield _issue(pointer, f"at most {schema[most]} {what}, not {length}")


def _check_number(value: float, schema: Mapping[str, Any], pointer: str) -> Iterator[Issue]:
    # Asked this way round, NaN is within no bounds.
    if "minimum" in schema and not value >= schema["minimum"]:
        yield _issue(pointer, f"must be at least {schema['minimum']}, not {show(value)}")
    if "maximum" in schema and not value <= schema["maximum"]:
        yield _issue(pointer, f"must be at most {schema['maximum']}, not {show(value)}")
    if "exclusiveMinimum" in schema and not value > schema["exclusiveMinimum"]:
        yield _issue(pointer, f"must be above {schema['exclusiveMinimum']}, not {show(value)}")
    if "exclusiveMaximum" in schema and not value < schema["exclusiveMaximum"]:
        yield _issue(pointer, f"must be below {schema['exclusiveMaximum']}, not {show(value)}")


def is_type(value: Any, declared: str | Sequence[str], word: str | None = None) -> bool:
    """Whether the value has one of the declared types, as JSON Schema counts: `1` is a number, `1.0` is an integer.

    Args:
        word: the value's `json_type`, where the caller has it.
    """
    word = word or json_type(value)
    names = (declared,) if isinstance(declared, str) else declared
    if word in names or (word == "integer" and "number" in names):
        return True
    return word == "number" and "integer" in names and value.is_integer()


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: `1` equals `1.0`, `true` does not equal `1`."""
    kind, other = json_type(a), json_type(b)
    if {kind, other} <= {"integer", "number"}:
        return bool(a == b)
    if kind != other:
        return False
    if kind == "object":
        return len(a) == len(b) and all(key in b and same_json(item, b[key]) for key, item in a.items())
    if kind == "array":
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)


def _describe(schema: Any) -> str | None:
    """What a missing key is: `it is text: What to change`."""
    if not isinstance(schema, Mapping):
        return None
    if "enum" in schema:
        words = "one of " + ", ".join(show(word) for word in schema["enum"])
    else:
        declared = schema.get("type")
        words = _shown_type(declared) if declared is not None else ""
    about = schema.get("description")
    parts = [part for part in (words, about if isinstance(about, str) else "") if part]
    return "it is " + ": ".join(parts) if parts else None


def _shown_type(declared: Any) -> str:
    return show_types((declared,) if isinstance(declared, str) else declared)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _issue(pointer: str, message: str, hint: str | None = None) -> Issue:
    return Issue(pointer=pointer, message=message, hint=hint, kind="type")


def _first(issues: Iterator[Issue]) -> list[Issue]:
    out = []
    for issue in issues:
        out.append(issue)
        if len(out) >= MAX_ISSUES:
            break
    return out


# --- schemas themselves ---------------------------------------------------------------------------


def _check_schema(schema: Any, pointer: str, depth: int) -> Iterator[Issue]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield _issue(pointer, f"a schema is an object, not {show(schema)}", 'as in {"type": "string"}')
        return
    if depth > MAX_DEPTH:
        yield _issue(pointer, f"a schema nested deeper than {MAX_DEPTH} levels")
        return
    for key in schema:
        if (
            key not in KEYWORDS
            and not str(key).startswith("x-")
            and (near := nearest(str(key), KEYWORDS, likeness=0.8)) is not None
        ):
            hint = Suggestion.of(str(key), near)
            yield _issue(f"{pointer}/{escape(str(key))}", f"{key!r} is not a JSON Schema keyword", hint)
    yield from _check_type_keyword(schema, pointer)
    yield from _check_lists(schema, pointer)
    yield from _check_bounds(schema, pointer)
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        yield _issue(f"{pointer}/properties", f"expected an object, not {show(properties)}", "name → schema")
        properties = {}
    for name, part in properties.items():
        yield from _check_schema(part, f"{pointer}/properties/{escape(str(name))}", depth + 1)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _check_schema(schema[key], f"{pointer}/{key}", depth + 1)


def _check_type_keyword(schema: Mapping[str, Any], pointer: str) -> Iterator[Issue]:
    if "type" not in schema:
        return
    declared = schema["type"]
    names = [declared] if isinstance(declared, str) else declared
    if not isinstance(names, list | tuple) or not names:
        yield _issue(f"{pointer}/type", f"expected a type or a list of types, not {show(declared)}")
        return
    for index, name in enumerate(names):
        if name not in JSON_TYPES:
            place = f"{pointer}/type" if isinstance(declared, str) else f"{pointer}/type/{index}"
            yield _issue(place, f"{show(name)} is not a JSON type", _choose_type(str(name)))


_FOREIGN_TYPES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bool": "boolean", "dict": "object", "map": "object", "list": "array", "tuple": "array", "none": "null",
}  # fmt: skip


def _choose_type(name: str) -> str:
    if (meant := _FOREIGN_TYPES.get(name.lower())) is not None:
        return Suggestion.of(name, meant)
    return choose(name, JSON_TYPES)


def _check_lists(schema: Mapping[str, Any], pointer: str) -> Iterator[Issue]:
    if "enum" in schema and (not isinstance(schema["enum"], list | tuple) or not schema["enum"]):
        yield _issue(f"{pointer}/enum", f"expected a list of allowed values, not {show(schema['enum'])}")
    if "required" not in schema:
        return
    required = schema["required"]
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        yield _issue(
            f"{pointer}/required",
            f"expected a list of keys, not {show(required)}",
            '"required": ["key"], beside `properties`',
        )
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and schema.get("additionalProperties") is False:
        for index, name in enumerate(required):
            if name not in properties:
                yield _issue(
                    f"{pointer}/required/{index}", f"{name!r} is required and not allowed", choose(name, properties)
                )


def _check_bounds(schema: Mapping[str, Any], pointer: str) -> Iterator[Issue]:
    for key, bound in schema.items():
        if key not in _BOUNDS:
            continue
        number = json_type(bound) in ("integer", "number") and -math.inf < bound < math.inf
        if not number or (not key.endswith("imum") and (bound < 0 or bound != int(bound))):
            yield _issue(f"{pointer}/{key}", f"expected a number, not {show(bound)}")


# --- the library ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    """The library's validator; references to other documents are never fetched."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(schema.decode(), retriever=_refuse_to_fetch)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(error.message) from None
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _accepted(value: Any, schema: Any) -> bool:
    """Whether the library accepts the value under a flat schema; False also if it can't decide or is not imported."""
    if "jsonschema_rs" not in sys.modules:
        return False
    try:
        # By its text: a checker is often made for one value only, and compiling takes longer than checking.
        validator = _flat_validator(msgspec.json.encode(schema))
        return validator is not None and _is_plain(value) and validator.is_valid(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False


@functools.lru_cache(maxsize=256)
def _flat_validator(schema: bytes) -> Any:
    import jsonschema_rs

    try:
        # `format` is an annotation in flat schemas, so that the library must not reject what this module accepts.
        return jsonschema_rs.Draft202012Validator(schema.decode(), validate_formats=False)
    except (ValueError, jsonschema_rs.ReferencingError):
        return None  # not a valid schema: only the checks of this module apply, as far as they understand it


def _is_plain(value: Any) -> bool:
    """Whether the library sees the value as we do: of an enum's member it would check the member's value, and infinity is null."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return type(value) in _SCALARS and (type(value) is not float or math.isfinite(value))


def _refuse_to_fetch(uri: str) -> Any:
    # A document must not make this process open an address or a file.
    raise ValueError(f"{uri} is another document; put the schema under `$defs`")


def _by_library(validator: Any, value: Any, schema: Any) -> Iterator[Issue]:
    from graphflow.graph.definition.schema_errors import said

    try:
        errors = list(validator.iter_errors(_plain(value)))
    except (ValueError, TypeError, OverflowError) as error:  # what JSON can't hold
        yield _issue("", f"{show(value)} is not a JSON value: {error}")
        return
    # The library takes infinity and NaN for null: it names the wrong value, and bounds say nothing of null.
    unheld = dict(_unheld(value, "")) if errors or any(holds(schema, bound) for bound in _OF_NUMBERS) else {}
    for pointer, number in unheld.items():
        yield _issue(pointer, f"expected a number that JSON can hold, not {show(number)}")
    for found in errors:
        pointer = "".join(f"/{escape(str(step))}" for step in found.instance_path)
        if pointer not in unheld:
            yield _issue(pointer, said(found))


_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def _unheld(value: Any, pointer: str) -> Iterator[tuple[str, float]]:
    """The numbers that JSON can't hold, by their places."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield pointer, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _unheld(item, f"{pointer}/{escape(str(name))}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, item in enumerate(value):
            yield from _unheld(item, f"{pointer}/{index}")


def _plain(value: Any) -> Any:
    """Plain dicts and lists: the library takes no others."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
