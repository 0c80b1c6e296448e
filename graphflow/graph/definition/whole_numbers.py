"""Floats without a fraction, where a schema asks for an integer: JSON Schema counts `2.0` as one, and it becomes `2`.

One rule for everything that a schema checks (inputs, answers, arguments of tools, what a model gives, state keys): what is
accepted as an integer is one from there on, so that nothing behind the check meets a float where an integer is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any
from urllib.parse import unquote

from graphflow.graph.definition.json_pointer import unescape
from graphflow.graph.definition.types import declared_types

MAX_DEPTH = 100
"""Levels that are looked through; the checks go no deeper either."""
_PARTS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("then", "else")


def whole_numbers(value: Any, schema: Any) -> Any:
    """A value that fits the schema, with the integers that it asks for; the very value if that changes nothing."""
    return _IntegerWalk(schema).walked(value, [schema], 0)


class _IntegerWalk:
    def __init__(self, root: Any) -> None:
        self._root = root

    def walked(self, value: Any, schemas: Iterable[Any], depth: int) -> Any:
        kind = type(value)
        if (kind is not float and not isinstance(value, dict | list | tuple)) or depth > MAX_DEPTH:
            return value
        applied = self._applied(schemas)
        if kind is float:
            return int(value) if value.is_integer() and any(map(_asks, applied)) else value
        if not applied:
            return value
        if isinstance(value, dict):
            pairs = [(name, self.walked(item, list(_named(applied, name)), depth + 1)) for name, item in value.items()]
            return dict(pairs) if any(item is not value[name] for name, item in pairs) else value
        items = [self.walked(item, list(_at(applied, index)), depth + 1) for index, item in enumerate(value)]
        return items if any(map(_other, items, value)) else value

    def _applied(self, schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
        """The schemas and those that they apply to the same value; each once, however often they refer to each other."""
        found: dict[int, Mapping[str, Any]] = {}
        pending = list(schemas)
        while pending:
            schema = pending.pop()
            if not isinstance(schema, Mapping) or id(schema) in found:
                continue
            found[id(schema)] = schema
            pending += [part for word in _PARTS for part in _items(schema.get(word))]
            pending += [schema[word] for word in _BRANCHES if word in schema]
            pending += _values(schema, "dependentSchemas")
            if isinstance(reference := schema.get("$ref"), str):
                pending.append(referred(self._root, reference)[0])
        return list(found.values())


def referred(root: Any, reference: str) -> tuple[Any, Any]:
    """What a reference names inside a schema, by its place, by an anchor or by an id; and what references there are relative to."""
    name, _, place = reference.partition("#")
    found = root if not name else _marked(root, "$id", name)
    base = found
    if place and not place.startswith("/"):
        return _marked(found, "$anchor", place), base
    for token in map(unescape, unquote(place).split("/")[1:]):
        if isinstance(found, Mapping):
            found = found.get(token)
        else:
            found = found[int(token)] if isinstance(found, list | tuple) and _is_index(token, found) else None
    return found, base


def _is_index(token: str, items: Sized) -> bool:
    return token.isascii() and token.isdecimal() and len(token) < 9 and int(token) < len(items)


def _marked(root: Any, word: str, name: str) -> Any:
    """The first part whose `$anchor` or `$id` is this one."""
    pending = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            if part.get(word) == name:
                return part
            pending += part.values()
        elif isinstance(part, list | tuple):
            pending += part
    return None


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
