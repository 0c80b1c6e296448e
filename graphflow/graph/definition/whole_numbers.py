"""Floats without a fraction, where a schema asks for an integer: JSON Schema counts `2.0` as one, and it becomes `2`.

One rule for everything that a schema checks (inputs, answers, arguments of tools, what a model gives, state keys): what is
accepted as an integer is one from there on, so that nothing behind the check meets a float where an integer is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphflow.graph.definition.json_pointer import unescape
from graphflow.graph.definition.types import declared_types

MAX_DEPTH = 100
"""Levels that are looked through; the checks go no deeper either."""
_MAX_REFERENCES = 12
"""Schemas within schemas for one value: of those that refer to themselves twice, each level doubles the work."""
_PARTS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("then", "else")


def whole_numbers(value: Any, schema: Any) -> Any:
    """A value that fits the schema, with the integers that it asks for; the very value if that changes nothing."""
    return _IntegerWalk(schema).walked(value, [schema], 0)


class _IntegerWalk:
    def __init__(self, root: Any) -> None:
        self.root = root

    def walked(self, value: Any, schemas: Iterable[Any], depth: int) -> Any:
        kind = type(value)
        if (kind is not float and not isinstance(value, dict | list | tuple)) or depth > MAX_DEPTH:
            return value
        applied = [part for schema in schemas for part in self._applied(schema, 0)]
        if kind is float:
            return int(value) if value.is_integer() and any(map(_asks, applied)) else value
        if not applied:
            return value
        if isinstance(value, dict):
            pairs = [(name, self.walked(item, list(_named(applied, name)), depth + 1)) for name, item in value.items()]
            return dict(pairs) if any(item is not value[name] for name, item in pairs) else value
        items = [self.walked(item, list(_at(applied, index)), depth + 1) for index, item in enumerate(value)]
        return items if any(map(_other, items, value)) else value

    def _applied(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        """The schema and those that it applies to the same value."""
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return
        yield schema
        inner = [part for word in _PARTS for part in _items(schema.get(word))]
        inner += [schema[word] for word in _BRANCHES if word in schema]
        inner += schema["dependentSchemas"].values() if isinstance(schema.get("dependentSchemas"), Mapping) else ()
        if isinstance(reference := schema.get("$ref"), str):
            inner.append(self._referred(reference))
        for part in inner:
            yield from self._applied(part, depth + 1)

    def _referred(self, reference: str) -> Any:
        """What a reference names inside the schema: by its place, by an anchor, or by an id."""
        if reference == "#" or reference.startswith("#/"):
            found = self.root
            for token in map(unescape, reference.split("/")[1:]):
                if isinstance(found, Mapping):
                    found = found.get(token)
                else:
                    found = found[int(token)] if isinstance(found, list) and token.isdecimal() else None
            return found
        for name in ("$defs", "definitions"):
            for part in _values(self.root, name):
                anchor = part.get("$anchor") if isinstance(part, Mapping) else None
                if anchor is not None and reference == f"#{anchor}":
                    return part
                if isinstance(part, Mapping) and part.get("$id") == reference:
                    return part
        return None


class NumberWalk(_IntegerWalk):
    """Where a schema says `number`: there a whole number counts as a double in expressions."""

    def walked(self, value: Any, schemas: Iterable[Any], depth: int) -> Any:
        kind = type(value)
        if (kind is not int and not isinstance(value, dict | list | tuple)) or depth > MAX_DEPTH:
            return value
        schemas = list(schemas)
        if kind is int:
            return _as_double(value) if any("number" in (self.types(schema) or ()) for schema in schemas) else value
        if isinstance(value, dict):
            return {name: self.walked(item, self.named(schemas, name), depth + 1) for name, item in value.items()}
        return [self.walked(item, self.at(schemas, index), depth + 1) for index, item in enumerate(value)]

    def named(self, schemas: Iterable[Any], name: Any) -> list[Any]:
        """The schemas of a key below values of these schemas."""
        out: list[Any] = []
        for schema in self._all(schemas):
            properties = schema.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                out.append(properties[name])
            else:
                out += [*_values(schema, "patternProperties"), schema.get("additionalProperties")]
        return [schema for schema in out if isinstance(schema, Mapping)]

    def at(self, schemas: Iterable[Any], index: int | None) -> list[Any]:
        """The schemas of an item; of every item if the index is None."""
        applied = self._all(schemas)
        if index is not None and index >= 0:
            return [schema for schema in _at(applied, index) if isinstance(schema, Mapping)]
        out = [part for schema in applied for part in (*_items(schema.get("prefixItems")), schema.get("items"))]
        return [schema for schema in out if isinstance(schema, Mapping)]

    def keys(self, schemas: Iterable[Any]) -> list[Any]:
        """The schemas of all keys."""
        found = [
            part
            for schema in self._all(schemas)
            for part in (
                *_values(schema, "properties"),
                *_values(schema, "patternProperties"),
                schema.get("additionalProperties"),
            )
        ]
        return [schema for schema in found if isinstance(schema, Mapping)]

    def types(self, schema: Any, depth: int = 0) -> set[str] | None:
        """The types that the schema leaves a value; None if it says nothing about them."""
        if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
            return None
        names = set(declared_types(schema)) or None
        whole = [*_items(schema.get("allOf"))]
        if isinstance(reference := schema.get("$ref"), str):
            whole.append(self._referred(reference))
        said = [self.types(part, depth + 1) for part in whole]
        for word in ("anyOf", "oneOf"):
            choices = [self.types(part, depth + 1) for part in _items(schema.get(word))]
            known = [names for names in choices if names is not None]
            if known and len(known) == len(choices):
                said.append(set().union(*known))
        for other in said:
            names = other if names is None else names if other is None else _both(names, other)
        return names

    def _all(self, schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
        return [part for schema in schemas for part in self._applied(schema, 0)]


def _both(names: set[str], others: set[str]) -> set[str]:
    whole = (
        {"integer"}
        if ("integer" in names | others) and {"integer", "number"} & names and ({"integer", "number"} & others)
        else set()
    )
    return (names & others) | whole


def _as_double(value: int) -> float | int:
    try:
        return float(value)
    except OverflowError:
        return value


def _asks(schema: Mapping[str, Any]) -> bool:
    names = declared_types(schema)
    return "integer" in names and "number" not in names


def _named(schemas: Iterable[Mapping[str, Any]], name: Any) -> Iterator[Any]:
    for schema in schemas:
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        if isinstance(properties, Mapping) and name in properties:
            yield properties[name]
        else:
            yield schema.get("additionalProperties")
        # Of every pattern, matching or not: for JSON an integer is the number that it was, and no pattern is run here.
        yield from patterns.values() if isinstance(patterns, Mapping) else ()


def _at(schemas: Iterable[Mapping[str, Any]], index: int) -> Iterator[Any]:
    for schema in schemas:
        first = _items(schema.get("prefixItems"))
        yield first[index] if index < len(first) else schema.get("items")


def _items(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()


def _values(schema: Any, name: str) -> Iterable[Any]:
    part = schema.get(name) if isinstance(schema, Mapping) else None
    return part.values() if isinstance(part, Mapping) else ()


def _other(a: Any, b: Any) -> bool:
    return a is not b
