"""JSON Schema for arguments: flat schemas are checked by the few lines here, all others by `jsonschema-rs` (E20).

A flat schema uses only `type, enum, const, required, properties, items` and `additionalProperties: true | false`
beside annotations. Checking one loads no library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphflow.graph.definition.json_schema import is_type, same_json
from graphflow.masking import mask
from graphflow.suggestions import nearest

# Keywords that never refuse a value, so ignoring them is exact.
_ANNOTATIONS = frozenset(
    "title description default examples $schema $id $comment format deprecated readOnly writeOnly strict".split()
)
# What the checker below understands; a schema with any other keyword goes to the library as a whole.
_FLAT = frozenset("type enum const required properties items additionalProperties".split()) | _ANNOTATIONS


def schema_issues(value: Any, schema: Mapping[str, Any], name: str = "") -> list[str]:
    """Everything in `value` that breaks `schema`: one text each, with the field, the value and the rule."""
    if is_flat(schema):
        return list(_flat_issues(value, schema, name))
    return list(_library_issues(value, schema, name))


def is_flat(schema: Any) -> bool:
    """Whether the checker in this module covers the whole schema."""
    if schema is True:
        return True
    if not isinstance(schema, Mapping) or not _FLAT.issuperset(schema):
        return False
    children = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return isinstance(schema.get("additionalProperties", True), bool) and all(is_flat(child) for child in children)


def parameters_error(schema: Any) -> str | None:
    """The error in a parameters schema itself, or None; tools take an object."""
    if isinstance(schema, Mapping) and schema.get("type", "object") != "object":
        return f"parameters have type {schema['type']!r}; a tool takes an object"
    return schema_error(schema, "parameters")


def schema_error(schema: Any, name: str) -> str | None:
    """The error in the schema with this name itself, or None."""
    if not isinstance(schema, Mapping):
        return f"{name}: {shown(schema)} is not a JSON Schema; expected an object"
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(dict(schema))
    except (ValueError, jsonschema_rs.ValidationError) as error:
        return f"{name}: not a valid JSON Schema: {str(error).splitlines()[0]}"
    return None


def shown(value: Any, limit: int = 80) -> str:
    """A value for an error text: masked, and cut to `limit` characters."""
    text = repr(mask(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """` Did you mean 'x'?` with a leading space, or an empty string."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near!r}?"


def unknown_argument(name: str, known: Sequence[str]) -> str:
    """The error text for an argument that the tool does not take."""
    listed = ", ".join(known) or "none"
    return f"{name}: no such argument; arguments are {listed}.{did_you_mean(name.rpartition('.')[2], known)}"


def _flat_issues(value: Any, schema: Any, name: str) -> Iterator[str]:
    if schema is True:
        return
    label = name or "arguments"
    # With a wrong type the other rules would only repeat the error.
    if "type" in schema and not is_type(value, schema["type"]):
        yield f"{label}: {shown(value)} is not of type {_type_words(schema['type'])}"
        return
    if "enum" in schema and not any(same_json(value, allowed) for allowed in schema["enum"]):
        yield f"{label}: {shown(value)} is not one of {', '.join(repr(allowed) for allowed in schema['enum'])}"
    if "const" in schema and not same_json(value, schema["const"]):
        yield f"{label}: {shown(value)} is not {schema['const']!r}"
    if isinstance(value, Mapping):
        yield from _object_issues(value, schema, name)
    elif isinstance(value, list | tuple) and "items" in schema:
        for index, item in enumerate(value):
            yield from _flat_issues(item, schema["items"], f"{name}[{index}]")


def _object_issues(value: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    prefix = f"{name}." if name else ""
    for required in schema.get("required", ()):
        if required not in value:
            yield f"{prefix}{required}: required and not given"
    for key, item in value.items():
        if key in properties:
            yield from _flat_issues(item, properties[key], prefix + key)
        elif schema.get("additionalProperties", True) is False:
            yield unknown_argument(prefix + key, list(properties))


def _type_words(expected: str | Sequence[str]) -> str:
    return expected if isinstance(expected, str) else " or ".join(expected)


def _library_issues(value: Any, schema: Mapping[str, Any], name: str) -> Iterator[str]:
    # Loaded only for schemas that need it: resuming and answering load no such library (E20).
    import jsonschema_rs

    for error in jsonschema_rs.validator_for(dict(schema)).iter_errors(value):
        place = name
        for part in error.instance_path:
            place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
        yield f"{place or 'arguments'}: {error.message}"
