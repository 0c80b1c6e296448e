"""JSON Schemas as structured output takes them: closed objects, without the limits that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_REFUSED = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems",
    "uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties", "propertyNames",
    "patternProperties", "if", "then", "else", "not", "dependentRequired", "dependentSchemas", "default", "examples", "$schema",
    "unevaluatedProperties", "unevaluatedItems", "prefixItems", "pattern",
})  # fmt: skip
"""https://platform.claude.com/docs/en/build-with-claude/structured-outputs; said in the description instead."""
_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "allOf")


class CannotBeAsked(ValueError):
    """No schema of structured output allows what this one allows."""


def structured_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema for `output_config.format`; None for one that it has no form for (open objects)."""
    try:
        return _closed(schema)
    except (CannotBeAsked, RecursionError):
        return None


def _closed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or "oneOf" in schema:
        raise CannotBeAsked
    out: dict[str, Any] = {}
    said = {name: value for name, value in schema.items() if name in _REFUSED and name not in ("default", "$schema")}
    for name, value in schema.items():
        if name == "minItems" and value not in (0, 1):
            said[name] = value
        elif name in _NAMED:
            out[name] = {key: _closed(inner) for key, inner in value.items()}
        elif name in _LISTED:
            out[name] = [_closed(inner) for inner in value]
        elif name == "items":
            out[name] = _closed(value)
        elif name not in _REFUSED:
            out[name] = value
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema:
        if schema.get("additionalProperties") not in (None, False) or not schema.get("properties"):
            raise CannotBeAsked
        out["additionalProperties"] = False
    if said:
        rules = ", ".join(f"{name} {msgspec.json.encode(value).decode()}" for name, value in said.items())
        out["description"] = f"{out.get('description', '')} ({rules})".strip()
    return out


def input_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's parameters as `input_schema`, which must be an object at its top, without a choice of several."""
    schema = {name: value for name, value in parameters.items() if name not in ("anyOf", "oneOf", "allOf")}
    schema["type"] = "object"
    if len(schema) < len(parameters) + ("type" not in parameters):
        rules = {name: value for name, value in parameters.items() if name not in schema}
        text = f"Must also fit: {msgspec.json.encode(rules).decode()}"
        schema["description"] = f"{schema.get('description', '')} {text}".strip()
    return schema
