"""Whether values of one schema can ever fit another: what a node gives or a person answers, and the state key that takes it.

Only what is certain counts: a schema that says nothing of a part, or allows more than the key takes, is left to the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphflow.graph.definition.json_schema import is_type, same_json
from graphflow.graph.definition.types import JSON_TYPES, declared_types, json_type, show, show_types
from graphflow.graph.expressions.ast import Choice, Constant, ListOf, MapOf, Node, Path
from graphflow.graph.expressions.environment import Environment

MAX_DEPTH = 20


def disagreement(node: Node, environment: Environment, wanted: Any) -> str | None:
    """Why no value of the expression fits the schema, with the place in it; None if one may."""
    return next((why for given in _schemas(node, environment) for why in _Pair(given, wanted).reasons()), None)


def _schemas(node: Node, environment: Environment) -> Iterator[Any]:
    """The schemas of what the expression gives, one for each way through it."""
    if isinstance(node, Choice):
        yield from _schemas(node.then, environment)
        yield from _schemas(node.other, environment)
    else:
        yield _schema(node, environment)


def _schema(node: Node, environment: Environment) -> Any:
    match node:
        case Constant(value=value):
            return {"const": value}
        case Path() if not node.test:
            return environment.schema_of(node)
        case ListOf(items=items):
            return {"type": "array", "prefixItems": [_schema(item, environment) for item in items]}
        case MapOf(entries=entries):
            parts = {key: _schema(item, environment) for key, item in entries}
            return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
    return None


class _Pair:
    """What is given, and what is wanted."""

    def __init__(self, given: Any, wanted: Any) -> None:
        self._given, self._wanted = given, wanted

    def reasons(self) -> Iterator[str]:
        yield from self._differ(self._given, self._wanted, "", 0)

    def _differ(self, given: Any, wanted: Any, place: str, depth: int) -> Iterator[str]:
        given, wanted = _referred(given, self._given), _referred(wanted, self._wanted)
        if not isinstance(given, Mapping) or not isinstance(wanted, Mapping) or depth > MAX_DEPTH:
            return
        kinds, taken = _types(given), _types(wanted)
        if kinds is not None and taken is not None and not any(_fits(kind, taken) for kind in kinds):
            yield f"{_at(place)}is {_shown(given, kinds)}, not {show_types(sorted(taken, key=JSON_TYPES.index))}"
            return
        values, allowed = _values(given), _values(wanted)
        if values is not None and allowed is not None and not any(same_json(a, b) for a in values for b in allowed):
            yield f"{_at(place)}is {_listed(values)}, not {_listed(allowed)}"
            return
        if kinds == {"object"}:
            yield from self._objects(given, wanted, place, depth)
        elif kinds == {"array"}:
            yield from self._arrays(given, wanted, place, depth)

    def _objects(self, given: Mapping[str, Any], wanted: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        have, take = _mapping(given.get("properties")), _mapping(wanted.get("properties"))
        rest, others = given.get("additionalProperties", True), wanted.get("additionalProperties", True)
        free = "patternProperties" not in wanted
        for name, part in have.items():
            if name in take:
                yield from self._differ(part, take[name], f"{place}.{name}", depth + 1)
            elif others is False and free and name in _list(given.get("required")):
                yield f"{_at(place)}has {name!r}, which is not allowed there"
            else:
                yield from self._differ(part, others, f"{place}.{name}", depth + 1)
        for name in _list(wanted.get("required")):
            if rest is False and name not in have and "patternProperties" not in given:
                yield f"{_at(place)}has no {name!r}, which is required there"
        if not have and not take:
            yield from self._differ(rest, others, f"{place}.*", depth + 1)

    def _arrays(self, given: Mapping[str, Any], wanted: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        first, items = _list(wanted.get("prefixItems")), wanted.get("items")
        for index, part in enumerate(_list(given.get("prefixItems"))):
            taken = first[index] if index < len(first) else items
            yield from self._differ(part, taken, f"{place}[{index}]", depth + 1)
        if not first:
            yield from self._differ(given.get("items"), items, f"{place}[]", depth + 1)


def _referred(schema: Any, root: Any) -> Any:
    """The schema behind a reference to a definition of the whole."""
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith(("#/$defs/", "#/definitions/")):
            break
        _, group, name = reference.split("/", 2)
        schema = _mapping(_mapping(root).get(group)).get(name)
    return schema


def _types(schema: Mapping[str, Any]) -> set[str] | None:
    """The JSON types that values may have; None if it doesn't say."""
    if names := declared_types(schema):
        return set(names) & set(JSON_TYPES) or None
    if (values := _values(schema)) is not None:
        return {"integer" if is_type(value, "integer") else json_type(value) for value in values}
    for word in ("anyOf", "oneOf"):
        parts = [_types(part) if isinstance(part, Mapping) else None for part in _list(schema.get(word))]
        if parts and all(part is not None for part in parts):
            return {name for part in parts if part is not None for name in part}
    return None


def _fits(kind: str, taken: set[str]) -> bool:
    # A number may be whole, and counts as an integer then.
    return kind in taken or ({kind} | taken) >= {"integer", "number"}


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if isinstance(schema.get("enum"), list | tuple) else None


def _shown(schema: Mapping[str, Any], kinds: set[str]) -> str:
    values = _values(schema)
    return show_types(sorted(kinds, key=JSON_TYPES.index)) if values is None else _listed(values)


def _listed(values: list[Any]) -> str:
    return " or ".join(map(show, values[:5]))


def _at(place: str) -> str:
    return f"its {place.lstrip('.')} " if place else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()
