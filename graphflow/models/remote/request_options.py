"""What the options of a call mean for the request of any protocol: compute, the schema in words, strict schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.models.options import ChatOptions, OneTool, ToolSpec
from graphflow.models.profiles import Knobs, knows_compute


def compute_fields(knobs: Knobs, model: str, tools: Sequence[ToolSpec], options: ChatOptions) -> dict[str, Any]:
    """The provider's fields for `compute`; none where it isn't set, and for models that don't know it."""
    forced = bool(tools) and (options.tool_choice == "required" or isinstance(options.tool_choice, OneTool))
    # Some providers refuse a forced call while the model thinks.
    compute = knobs.when_forced if forced and knobs.when_forced is not None else options.compute
    fields: dict[str, Any] = getattr(knobs, compute) if compute is not None and knows_compute(knobs, model) else {}
    return fields


def schema_rule(schema: Mapping[str, Any]) -> str:
    """The schema in words, for models that can't be bound to one."""
    text = "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n"
    return text + msgspec.json.encode(schema).decode()


_STRICT = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "description", "title", "anyOf", "$ref",
    "$defs", "definitions", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems",
})  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


def fits_strict(schema: Any, *, root: bool = True) -> bool:
    """Whether OpenAI takes the schema as a strict one; others it refuses when they are sent as strict.

    https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
    """
    if not isinstance(schema, Mapping) or not schema or not _STRICT.issuperset(schema):
        return False
    if root and schema.get("type") != "object":
        return False
    if "format" in schema and schema["format"] not in _FORMATS:
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or "properties" in schema:
        given = schema.get("required", ())
        if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
            return False
        if not isinstance(given, list | tuple) or set(given) != properties.keys():
            return False
    inner = [*(properties.values() if isinstance(properties, Mapping) else ())]
    for name in ("$defs", "definitions"):
        inner += schema[name].values() if isinstance(schema.get(name), Mapping) else ()
    inner += schema["anyOf"] if isinstance(schema.get("anyOf"), list) else ()
    inner += [schema["items"]] if "items" in schema else ()
    return all(fits_strict(part, root=False) for part in inner)
