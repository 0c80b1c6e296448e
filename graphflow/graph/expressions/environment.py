"""The variables that an expression can use in its place, with their keys and types (spec 2.1 rule 7, E16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.bounds import DEFAULTS, Bounds
from graphflow.graph.definition.types import CEL_OF_JSON, TYPE_NAMES, cel_type, state_properties
from graphflow.graph.expressions.ast import Choice, Index, ListOf, Loop, Node, Path, PathStep
from graphflow.graph.expressions.doubles import EVERY, SchemaPlace, SchemaPlaces
from graphflow.suggestions import Suggestion, choose, listed, nearest

if TYPE_CHECKING:
    from graphflow.graph.definition.document import GraphDefinition

VARIABLES = ("state", "input", "out", "answer", "visits", "limits", "usage", "error")

LIMITS = {
    "rounds": "int",
    "steps": "int",
    "modelCalls": "int",
    "toolCalls": "int",
    "tokens": "int",
    "costUsd": "double",
    "timeoutMs": "int",
}
"""`limits.NAME` → CEL type (E11)."""

USAGE = ("modelCalls", "toolCalls", "promptTokens", "completionTokens", "reasoningTokens", "cachedTokens")
"""`usage.NAME`: what the run has used since its input; 0 before the first use."""

_OUTSIDE = frozenset({"env", "environ", "environment", "os", "sys", "secrets", "settings", "config", "process"})

ANY_VARIABLE = "*"
"""In `loose`: any name may be a variable."""

Problem = tuple[str, int, str | None, str]
"""Message, offset, hint and kind of an error."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The variables that exist in one place of a document."""

    state: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """State key → its schema."""
    nodes: frozenset[str] = frozenset()
    """Names for `visits.NODE`."""
    names: frozenset[str] = frozenset()
    """`as` names."""
    schemas: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Variable (`input`, `out`, `answer`) → JSON Schema, where one is known: types of bare paths come from it."""
    absent: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variable that exists in other places only → the reason why it does not here."""
    bounds: Bounds = DEFAULTS
    """How large a value an expression may make."""
    items: Mapping[str, SchemaPlace] = msgspec.field(default_factory=dict)
    """`as` name → what schemas say of the items of its map."""
    places: SchemaPlaces = msgspec.field(default_factory=SchemaPlaces)
    """Where these schemas say `number`; one for all environments of a document."""
    bound: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variable of a comprehension → what it goes through, as it is written."""
    loose: frozenset[str] = frozenset()
    """Variables, or `ANY_VARIABLE`, whose names are not checked, because a reported error hides their declaration."""

    @classmethod
    def of(cls, document: GraphDefinition, bounds: Bounds = DEFAULTS) -> Environment:
        """Every variable that some place of the document has."""
        return cls(
            state=state_properties(document.state),
            nodes=frozenset(document.nodes),
            names=frozenset(node.as_ for node in document.nodes.values() if node.as_),
            schemas={"input": document.input} if document.input is not None else {},
            bounds=bounds,
        )

    def having(self, **schemas: Any) -> Environment:
        """The same with the schema of some variables known (None: not known)."""
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        return msgspec.structs.replace(self, schemas={**self.schemas, **known})

    def without(self, **reasons: str) -> Environment:
        """The same without some variables, each with the reason."""
        return msgspec.structs.replace(self, absent={**self.absent, **reasons})

    def loosely(self, *variables: str) -> Environment:
        """The same without checks of names below these variables."""
        return msgspec.structs.replace(self, loose=self.loose.union(variables)) if variables else self

    # --- types

    def variable_type(self, path: Path) -> str:
        """The CEL type that the path is declared with; only types that the engine itself guarantees."""
        if path.test:
            return "bool" if path.test == "has" else "int"
        # Only a key itself has a type that holds: a write checks the top-level type of its value and nothing below it.
        if len(path.steps) != 1 or path.variable in self.items:
            return "dyn"
        step = path.steps[0]
        match path.variable:
            case "state":
                kind = cel_type(self.state.get(step)) if isinstance(step, str) else "dyn"
                return "dyn" if kind == "null" else kind
            case "visits" | "usage":
                return "int"
            case "limits":
                return LIMITS.get(step, "dyn") if isinstance(step, str) else "dyn"
        return "dyn"

    def checked_type(self, path: Path) -> str:
        """The CEL type by every schema that is known: for telling whether a value fits where it goes."""
        kind = self.variable_type(path)
        return cel_type(self._schema(path.variable, path.steps)) if kind == "dyn" else kind

    def is_number(self, path: Path) -> bool:
        """Whether whole numbers of this path become DOUBLE, or may (E16)."""
        if path.variable == "limits":
            return self.variable_type(path) == "double"
        return self.places.is_double(self.place(path))

    def place(self, path: Path, steps: tuple[Any, ...] | None = None) -> SchemaPlace:
        """What schemas say of the value at the path.

        Args:
            steps: those of one evaluation, where the path has some that only a run knows.
        """
        key = _state_key(path)
        schema = self.schemas.get(path.variable) if key is None else self.state.get(key)
        if path.variable not in self.items and (schema is None or not self.places.says_number(schema)):
            return self.places.anything
        return self.declared_place(path, steps)

    def declared_place(self, path: Path, steps: tuple[Any, ...] | None = None) -> SchemaPlace:
        """What schemas say of the value at the path, also where none says `number`."""
        taken = path.steps if steps is None else steps
        known = self.items.get(path.variable)
        if known is None and path.variable == "state":
            key, taken = _state_key(path), taken[1:]
            known = self.places.anything if key is None else self.places.of(self.state.get(key))
        place = known or self.places.of(self.schemas.get(path.variable))
        for step in taken:
            place = self.places.below(place, EVERY if isinstance(step, Index) else step)
        return place

    def items_of(self, node: Node) -> SchemaPlace:
        """What schemas say of the items of a list, as far as they are those of a list that is read."""
        match node:
            case Path(test=""):
                place = self.declared_place(node)
                # Of a map, what is gone through are its keys.
                known = "object" not in self.places.names(place)
                return self.places.below(place, EVERY) if known else self.places.anything
            case Choice():
                return self.places.one_of([self.items_of(node.then), self.items_of(node.other)])
            case ListOf():
                return self.places.one_of(
                    self.declared_place(item) if isinstance(item, Path) and not item.test else self.places.anything
                    for item in node.items
                )
            case Loop(macro="filter"):
                return self.items_of(node.target)
        return self.places.anything

    def within(self, loop: Loop) -> Environment:
        """The same with the variable of a comprehension, for what stands in it."""
        variable, place = loop.variable, self.items_of(loop.target)
        return msgspec.structs.replace(
            self,
            names=self.names | {variable},
            items={**self.items, variable: place},
            absent={name: why for name, why in self.absent.items() if name != variable},
        )

    def schema_of(self, path: Path) -> Any:
        """The JSON Schema of the value at the path; None if unknown."""
        return self._schema(path.variable, path.steps)

    def _schema(self, variable: str, steps: tuple[PathStep, ...]) -> Any:
        schema = {"type": "object", "properties": self.state} if variable == "state" else self.schemas.get(variable)
        for step in steps:
            schema = _below(schema, step)
        return schema

    def _is_scalar(self, path: Path) -> bool:
        return cel_type(self._schema(path.variable, path.steps)) in ("bool", "int", "double")

    # --- problems

    def problems(self, path: Path) -> Iterator[Problem]:
        """What is wrong with naming this path here."""
        variable = path.variable
        if variable in self.loose:
            return
        if variable not in VARIABLES and variable not in self.names:
            if ANY_VARIABLE not in self.loose:
                yield self._unknown(path)
        elif variable in self.absent:
            yield f"there is no {variable!r} here", path.start, self.absent[variable], "reference"
        elif variable == "state":
            yield from self._state_problems(path)
        elif variable == "visits":
            yield from _member_problems(path, self.nodes, "node")
        elif variable == "limits":
            yield from _member_problems(path, LIMITS, "limit")
        elif variable == "usage":
            yield from _member_problems(path, USAGE, "usage counter")
        else:
            yield from self._field_problems(path)

    def _unknown(self, path: Path) -> Problem:
        variables = [name for name in (*VARIABLES, *sorted(self.names)) if name not in self.absent]
        if path.variable in _OUTSIDE:
            hint = f"expressions can't read the environment or run code; variables are {', '.join(variables)}"
        elif path.variable in self.state:
            hint = f"write 'state.{path.variable}'"
        elif (near := nearest(path.variable, variables)) is not None:
            hint = Suggestion.of(path.variable, near, f"variables are {', '.join(variables)}")
        else:
            hint = f"variables are {', '.join(variables)}; put text in quotes"
        return f"{path.variable!r} is not a variable", path.start, hint, "reference"

    def _state_problems(self, path: Path) -> Iterator[Problem]:
        at = path.start
        key = path.steps[0] if path.steps else None
        if not isinstance(key, str):
            yield (
                "name a key of the state, not the state itself",
                at,
                listed(f"state.{k}" for k in self.state),
                "reference",
            )
        elif key not in self.state:
            hint = choose(key, self.state, none="the document declares no state keys")
            yield f"{key!r} is not a state key", at, hint, "reference"
        elif path.test == "has" and len(path.steps) == 1:
            yield f"has(state.{key}) is always true", at, f"write 'state.{key} != null'", "type"
        else:
            yield from self._field_problems(path)

    def _field_problems(self, path: Path) -> Iterator[Problem]:
        """A step below a value that has none, one outside a closed object, or the size of a number."""
        steps = path.steps
        if path.test == "size" and self._is_scalar(path):
            yield "size() needs a list, a map or text", path.start, None, "type"
        for depth, step in enumerate(steps):
            if isinstance(step, Index):
                continue
            above = self._schema(path.variable, steps[:depth])
            kind = cel_type(above)
            shown = ".".join((path.variable, *map(str, steps[:depth])))
            if kind in ("bool", "int", "double", "string"):
                named = TYPE_NAMES[_JSON_OF_CEL[kind]]
                yield f"{shown!r} is {named}, so it has no {step!r}", path.start, None, "type"
                return
            if kind == "list" and isinstance(step, str):
                counted = step in ("length", "size", "len", "count") and depth == len(steps) - 1
                yield (
                    f"{shown!r} is a list, so it has no {step!r}",
                    path.start,
                    f"write size({shown})" if counted else f"take an item: {shown}[0].{step}",
                    "type",
                )
                return
            if isinstance(step, str) and _closed(above) and step not in above["properties"]:
                yield f"{shown!r} has no {step!r}", path.start, choose(step, above["properties"]), "reference"
                return


_JSON_OF_CEL = {cel: json for json, cel in CEL_OF_JSON.items()}


def _member_problems(path: Path, known: Any, what: str) -> Iterator[Problem]:
    steps = path.steps
    if not steps or not isinstance(steps[0], str):
        hint = listed(f"{path.variable}.{name}" for name in known)
        yield f"name one: {path.variable}.NAME", path.start, hint, "reference"
    elif steps[0] not in known:
        hint = choose(steps[0], known, none="there are no nodes")
        yield f"{steps[0]!r} is not a {what}", path.start, hint, "reference"
    elif len(steps) > 1:
        yield f"{path.variable}.{steps[0]} is a number, so it has no {steps[1]!r}", path.start, None, "type"


def _state_key(path: Path) -> str | None:
    key = path.steps[0] if path.variable == "state" and path.steps else None
    return key if isinstance(key, str) else None


def _closed(schema: Any) -> bool:
    return (
        isinstance(schema, Mapping)
        and schema.get("additionalProperties") is False
        and isinstance(schema.get("properties"), Mapping)
        and "patternProperties" not in schema
    )


def _below(schema: Any, step: PathStep) -> Any:
    """The schema one step below; None if unknown."""
    if not isinstance(schema, Mapping):
        return None
    if isinstance(step, str):
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and step in properties:
            return properties[step]
        return schema.get("additionalProperties")
    return schema.get("items")
