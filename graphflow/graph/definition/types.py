"""The few words that documents use for types and times: JSON types, CEL types, ISO 8601 durations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

JSON_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

TYPE_NAMES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
"""JSON type → how a message names it."""

CEL_OF_JSON = {
    "boolean": "bool",
    "integer": "int",
    "number": "double",
    "string": "string",
    "array": "list",
    "object": "map",
    "null": "null",
}

_FITS = {
    "bool": {"boolean"},
    "int": {"integer", "number"},
    "uint": {"integer", "number"},
    "double": {"number"},
    "string": {"string"},
    "list": {"array"},
    "map": {"object"},
    "null": {"null"},
}
"""CEL type → the JSON types that take its values."""


class Hole:
    """Where a value comes from an expression: its CEL type, for checking the rest against a schema."""

    __slots__ = ("source", "type")

    def __init__(self, type: str, source: str) -> None:
        self.type, self.source = type, source


def json_type(value: Any) -> str:
    """The JSON type of a value (`integer` for a whole number); a foreign one gives its Python name."""
    if value is None:
        return "null"
    # Before `int`: for Python `True` is one, for JSON it is not.
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "array"
    return type(value).__name__


def declared_types(schema: Any) -> tuple[str, ...]:
    """The JSON types that a schema names, `()` when it names none (anything goes)."""
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list | tuple) else []
    return tuple(name for name in names if isinstance(name, str))


def state_properties(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """State key → its schema, with the definitions that stand beside all keys where it refers to some."""
    properties, definitions = state.get("properties"), state.get("$defs")
    if not isinstance(properties, Mapping) or definitions is None:
        return properties if isinstance(properties, Mapping) else {}
    return {
        key: {"$defs": definitions, **schema} if isinstance(schema, Mapping) and holds(schema, "$ref") else schema
        for key, schema in properties.items()
    }


def holds(schema: Any, word: str) -> bool:
    """Whether the word stands anywhere in a schema."""
    if isinstance(schema, Mapping):
        return word in schema or any(holds(part, word) for part in schema.values())
    return any(holds(part, word) for part in schema) if isinstance(schema, list | tuple) else bool(schema == word)


def cel_type(schema: Any) -> str:
    """The CEL type of a value with this schema: nullable, mixed or unknown is `dyn` (spec 2.1 rule 7)."""
    names = declared_types(schema)
    return CEL_OF_JSON.get(names[0], "dyn") if len(names) == 1 else "dyn"


def fits(cel: str, names: Iterable[str]) -> bool:
    """Whether values of a CEL type fit one of these JSON types; `dyn` and no types fit always."""
    allowed = set(names)
    if not allowed or cel == "dyn":
        return True
    return bool(_FITS.get(cel, set()) & allowed)


def show_types(names: Iterable[str]) -> str:
    """`["string", "null"]` → `text or null`."""
    return " or ".join(TYPE_NAMES.get(name, name) for name in names)


def show(value: Any, width: int = 60) -> str:
    """A value shortened for a message, in JSON's words where it has one; secrets are masked."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    # Loaded with the first message: most documents and values have no error.
    from graphflow.masking import mask

    # Masked before it is cut: nothing recognizes the head of a secret.
    text = repr(mask(value))
    return text if len(text) <= width else text[: width - 1] + "…"


_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+(?:[.,]\d+)?)W)?(?:(?P<days>\d+(?:[.,]\d+)?)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+(?:[.,]\d+)?)H)?(?:(?P<minutes>\d+(?:[.,]\d+)?)M)?(?:(?P<seconds>\d+(?:[.,]\d+)?)S)?)?",
    re.ASCII,
)
_UNIT_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def parse_duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration: `P2D`, `PT15M`, `P1W`, `PT0.5S`.

    Raises:
        ValueError: for anything else; years and months have no fixed length and are refused.
    """
    # The length bounds the numbers too: longer ones could be infinite as floats.
    match = _DURATION.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(
            f"{show(text)} is not an ISO 8601 duration of weeks, days, hours, minutes and seconds; "
            "write P2D for two days, PT15M for fifteen minutes"
        )
    total = sum(
        float(value.replace(",", ".")) * _UNIT_MS[unit]
        for unit, value in match.groupdict().items()
        if value is not None
    )
    # Expiry times are 64-bit milliseconds; and beyond a century it is a slip of the pen.
    if total > 100 * 366 * 86_400_000:
        raise ValueError(f"{show(text)} is longer than a hundred years")
    return round(total)
