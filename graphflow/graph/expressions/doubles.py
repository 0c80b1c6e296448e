"""Where schemas say `number`: there a whole number counts as a double in expressions, whatever JSON wrote.

Types say it, and nothing else does: `enum`, `const` and bounds declare none. What holds at a place of a value is a `SchemaPlace`: one
schema, or several of which all hold (`allOf`, `$ref`) or one does (`anyOf`, `oneOf`). Each place is made once, when a value or a
path leads to it, so a schema that refers to itself costs no more than the value is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphflow.graph.definition.types import declared_types, holds
from graphflow.graph.definition.whole_numbers import MAX_DEPTH, referred
from graphflow.graph.expressions import cel_library

UNSAID = "*"
"""Among the names of a place: types that no schema declares."""

EVERY = object()
"""The step to any key or item; for those that only a run knows."""

_LARGEST = 256
"""Schemas of one place; above it the place is taken as one where any of them may hold."""
_MOST = 4096


class SchemaPlace:
    """What schemas say of one place in a value."""

    __slots__ = ("below", "beside", "names", "parts", "root", "schema", "tells", "word")

    def __init__(self, word: str, parts: tuple[SchemaPlace, ...] = (), schema: Any = None, root: Any = None) -> None:
        self.word, self.parts = word, parts
        """`all`, `any`, or `""` for a single schema."""
        self.schema, self.root = schema, root
        """The root is what references in the schema are relative to."""
        self.names: frozenset[str] | None = None
        self.tells: bool | None = None
        self.beside: list[SchemaPlace] | None = None
        self.below: dict[Any, SchemaPlace] = {}


class SchemaPlaces:
    """The places of one document's schemas."""

    def __init__(self) -> None:
        self._known: dict[Any, SchemaPlace] = {}
        self._roots: dict[int, Any] = {}
        self._mentioned: set[str] = set()
        self._patterns: dict[str, Any] = {}
        self._longest = 0
        self._telling: dict[int, tuple[Any, bool]] = {}
        self.anything, self.nothing = SchemaPlace("all"), SchemaPlace("any")

    # --- what a path or a value leads to

    def of(self, schema: Any, root: Any = None) -> SchemaPlace:
        """The place that a schema describes; a root of its own unless it is part of one."""
        if not isinstance(schema, Mapping):
            return self.nothing if schema is False else self.anything
        if root is None or "$id" in schema:
            root = schema
            if id(root) not in self._roots:
                self._roots[id(root)] = root
                self._survey(root)
        return self._made(("", id(schema), id(root)), lambda: SchemaPlace("", (), schema, root))

    def says_number(self, schema: Any) -> bool:
        """Whether `number` stands anywhere in a whole schema: most say it nowhere, and need no places."""
        known = self._telling.get(id(schema))
        if known is None:
            known = self._telling[id(schema)] = schema, holds(schema, "number")
        return known[1]

    def one_of(self, places: Iterable[SchemaPlace]) -> SchemaPlace:
        """A place where one of these holds."""
        return self._joined("any", places)

    def below(self, place: SchemaPlace, step: Any) -> SchemaPlace:
        """The place one step below: a key, a position, or `EVERY`."""
        step = self._canonical(step)
        found = place.below.get(step)
        if found is None:
            place.below[step] = self.anything  # of a schema that refers to itself alone
            if place.word:
                found = self._joined(place.word, [self.below(part, step) for part in place.parts])
            elif place.schema is None:
                found = place
            else:
                parts = [self._own(place, step), *(self.below(part, step) for part in self._beside(place))]
                found = self._joined("all", parts)
            place.below[step] = found
        return found

    def names(self, place: SchemaPlace) -> frozenset[str]:
        """The types that a value of this place may have; `UNSAID` is among them if others are not excluded."""
        if place.names is None:
            place.names = frozenset({UNSAID})
            if place.word == "any":
                found = frozenset[str]().union(*map(self.names, place.parts))
            else:
                found = frozenset(declared_types(place.schema)) or place.names
                for part in self._beside(place):
                    found = _both(found, self.names(part))
            place.names = found
        return place.names

    def is_double(self, place: SchemaPlace) -> bool:
        """Whether a whole number is a double here."""
        return "number" in self.names(place)

    def tells(self, place: SchemaPlace) -> bool:
        """Whether there may be doubles here or below."""
        if place.tells is None:
            if place.word:
                place.tells = any(map(self.tells, place.parts))
            else:
                schema = place.schema
                place.tells = holds(schema, "number") or (holds(schema, "$ref") and holds(place.root, "number"))
        return place.tells

    def doubled(self, value: Any, place: SchemaPlace, depth: int = 0) -> Any:
        """A plain value with doubles for the whole numbers that are some.

        Raises:
            Unconvertible: of an integer that no double holds.
        """
        kind = type(value)
        if kind is int:
            return cel_library.to_double(value) if self.is_double(place) else value
        if (kind is not dict and kind is not list) or depth > MAX_DEPTH or not self.tells(place):
            return value
        if kind is dict:
            return {name: self.doubled(item, self.below(place, name), depth + 1) for name, item in value.items()}
        return [self.doubled(item, self.below(place, index), depth + 1) for index, item in enumerate(value)]

    # --- how places are made

    def _made(self, key: Any, make: Any) -> SchemaPlace:
        found: SchemaPlace | None = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[key] = make()
        return found

    def _joined(self, word: str, places: Iterable[SchemaPlace]) -> SchemaPlace:
        parts: dict[SchemaPlace, None] = {}
        for place in places:
            # `anything` is an `all` of nothing, and `nothing` an `any` of nothing.
            parts.update(dict.fromkeys(place.parts if place.word == word else (place,)))
        if len(parts) == 1:
            return next(iter(parts))
        if not parts:
            return self.anything if word == "all" else self.nothing
        leaves = dict.fromkeys(leaf for part in parts for leaf in _leaves(part))
        if len(leaves) > _LARGEST:
            word, parts = "any", leaves
        return self._made((word, frozenset(parts)), lambda: SchemaPlace(word, tuple(parts)))

    def _beside(self, place: SchemaPlace) -> Iterable[SchemaPlace]:
        """What holds of the same value too."""
        if place.word:
            return place.parts
        if place.beside is None:
            schema, root, place.beside = place.schema, place.root, []
            place.beside += [self.of(part, root) for part in _items(schema.get("allOf"))]
            if isinstance(reference := schema.get("$ref"), str):
                place.beside.append(self.of(*referred(root, reference)))
            for word in ("anyOf", "oneOf"):
                if choices := _items(schema.get(word)):
                    place.beside.append(self.one_of(self.of(part, root) for part in choices))
        return place.beside

    def _own(self, place: SchemaPlace, step: Any) -> SchemaPlace:
        """What the schema itself, without those that it refers to, says of a key or an item."""
        schema, root = place.schema, place.root
        names = declared_types(schema)
        keys: list[Any] = []
        items: list[Any] = []
        if not isinstance(step, int) and (not names or "object" in names):
            keys = self._of_key(schema, step)
        if (isinstance(step, int) or step is EVERY) and (not names or "array" in names):
            items = _of_item(schema, step)
        if step is EVERY:
            return self.one_of(self.of(part, root) for part in [*keys, *items])
        found = [*keys, *items]
        return self._joined("all", [self.of(part, root) for part in found]) if found else self.nothing

    def _of_key(self, schema: Mapping[str, Any], step: Any) -> list[Any]:
        properties, patterns = _mapping(schema.get("properties")), _mapping(schema.get("patternProperties"))
        rest = schema.get("additionalProperties", True)
        if step is EVERY:
            return [*properties.values(), *patterns.values(), rest]
        name, matching = step
        found = [properties[name]] if name in properties else []
        found += [part for pattern, part in patterns.items() if pattern in matching]
        return found or [rest]

    def _canonical(self, step: Any) -> Any:
        """One step for all that schemas can't tell apart: what is kept of values must not grow with them."""
        if isinstance(step, int):
            return min(step, self._longest) if step >= 0 else EVERY
        if not isinstance(step, str):
            return step if isinstance(step, tuple) else EVERY
        matching = tuple(pattern for pattern, matches in self._patterns.items() if matches(step))
        return (step if step in self._mentioned else None), matching

    def _survey(self, schema: Any) -> None:
        """Notes the keys, patterns and positions that a root speaks of."""
        pending = [schema]
        while pending:
            part = pending.pop()
            if isinstance(part, Mapping):
                self._mentioned.update(map(str, _mapping(part.get("properties"))))
                for pattern in _mapping(part.get("patternProperties")):
                    self._patterns.setdefault(pattern, _matcher(pattern))
                self._longest = max(self._longest, len(_items(part.get("prefixItems"))))
                pending += part.values()
            elif isinstance(part, list | tuple):
                pending += part


def _of_item(schema: Mapping[str, Any], step: Any) -> list[Any]:
    first, rest = _items(schema.get("prefixItems")), schema.get("items", True)
    if step is EVERY:
        return [*first, rest]
    return [first[step] if step < len(first) else rest]


def _both(names: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """The types of values of which both hold; an integer is a number."""
    if UNSAID in names:
        return names | others if UNSAID in others else others
    if UNSAID in others:
        return names
    counts = frozenset({"integer", "number"})
    whole = "integer" in names | others and names & counts and others & counts
    return names & others | (frozenset({"integer"}) if whole else frozenset())


def _matcher(pattern: str) -> Any:
    """Whether a key matches, by the library that checks the value: its dialect of patterns is the schema's."""
    validator: Any = None

    def matches(name: str) -> bool:
        nonlocal validator
        if validator is None:
            from graphflow.graph.definition.json_schema import compile_schema

            validator = compile_schema({"patternProperties": {pattern: False}})
        return bool(validator.errors({name: 0}))

    return matches


def _leaves(place: SchemaPlace) -> Iterable[SchemaPlace]:
    return [leaf for part in place.parts for leaf in _leaves(part)] if place.parts else [place]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()
