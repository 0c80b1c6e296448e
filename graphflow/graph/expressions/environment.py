"""What an expression may name: the roots of its place, their keys and types (spec 2.1 rule 7, E16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.graph.definition.suggestions import choose, listed, nearest
from graphflow.graph.definition.types import CEL_OF_JSON, TYPE_NAMES, cel_type, declared_types
from graphflow.graph.expressions.ast import Index, Path, PathStep

if TYPE_CHECKING:
    from graphflow.graph.definition.document import GraphDefinition

ROOTS = ("state", "input", "out", "answer", "visits", "limits", "usage", "error")

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

ANY_ROOT = "*"
"""Among `loose`: whatever name may be a root."""

Problem = tuple[str, int, str | None, str]
"""Message, offset, hint and kind of a fault."""


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """The roots that exist in one place of a document."""

    state: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """State key → its schema."""
    nodes: frozenset[str] = frozenset()
    """Names for `visits.NODE`."""
    names: frozenset[str] = frozenset()
    """`as` names."""
    schemas: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Root (`input`, `out`, `answer`) → JSON Schema, where one is known: types of bare paths come from it."""
    absent: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Root that exists elsewhere → why not here."""
    loose: frozenset[str] = frozenset()
    """Roots, or `ANY_ROOT`, of which too little is known to call a name wrong: a fault that was told has hidden the rest."""

    @classmethod
    def of(cls, document: GraphDefinition) -> Roots:
        """Every root that some place of the document has."""
        properties = document.state.get("properties")
        return cls(
            state=properties if isinstance(properties, Mapping) else {},
            nodes=frozenset(document.nodes),
            names=frozenset(node.as_ for node in document.nodes.values() if node.as_),
            schemas={"input": document.input} if document.input is not None else {},
        )

    def having(self, **schemas: Any) -> Roots:
        """The same with the schema of some roots known (None: not known)."""
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        return msgspec.structs.replace(self, schemas={**self.schemas, **known})

    def without(self, **reasons: str) -> Roots:
        """The same without some roots, each with the reason."""
        return msgspec.structs.replace(self, absent={**self.absent, **reasons})

    def loosely(self, *roots: str) -> Roots:
        """The same where no name below these roots is wrong."""
        return msgspec.structs.replace(self, loose=self.loose.union(roots)) if roots else self

    # --- types

    def variable_type(self, path: Path) -> str:
        """The CEL type that the path is declared with: only what the engine itself guarantees."""
        if path.test:
            return "bool" if path.test == "has" else "int"
        if len(path.steps) != 1:
            return "dyn"
        step = path.steps[0]
        match path.root:
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
        return cel_type(self._schema(path.root, path.steps)) if kind == "dyn" else kind

    def is_number(self, path: Path) -> bool:
        """Whether whole numbers of this path become DOUBLE: `number` keys, nullable ones too (E16)."""
        if path.root == "limits":
            return self.variable_type(path) == "double"
        if path.root != "state" or len(path.steps) != 1 or not isinstance(path.steps[0], str):
            return False
        return "number" in declared_types(self.state.get(path.steps[0]))

    def schema_of(self, path: Path) -> Any:
        """The JSON Schema of what the path names, None when it is not told."""
        return self._schema(path.root, path.steps)

    def _schema(self, root: str, steps: tuple[PathStep, ...]) -> Any:
        schema = {"type": "object", "properties": self.state} if root == "state" else self.schemas.get(root)
        for step in steps:
            schema = _below(schema, step)
        return schema

    def _is_scalar(self, path: Path) -> bool:
        return cel_type(self._schema(path.root, path.steps)) in ("bool", "int", "double")

    # --- problems

    def problems(self, path: Path) -> Iterator[Problem]:
        """What is wrong with naming this path here."""
        root = path.root
        if root in self.loose:
            return
        if root not in ROOTS and root not in self.names:
            if ANY_ROOT not in self.loose:
                yield self._unknown(path)
        elif root in self.absent:
            yield f"there is no {root!r} here", path.start, self.absent[root], "reference"
        elif root == "state":
            yield from self._state_problems(path)
        elif root == "visits":
            yield from _member_problems(path, self.nodes, "node")
        elif root == "limits":
            yield from _member_problems(path, LIMITS, "limit")
        elif root == "usage":
            yield from _member_problems(path, USAGE, "usage figure")
        else:
            yield from self._field_problems(path)

    def _unknown(self, path: Path) -> Problem:
        roots = [name for name in (*ROOTS, *sorted(self.names)) if name not in self.absent]
        if path.root in _OUTSIDE:
            hint = f"a document names no environment and no code; roots are {', '.join(roots)}"
        elif path.root in self.state:
            hint = f"write 'state.{path.root}'"
        elif (near := nearest(path.root, roots)) is not None:
            hint = f"did you mean {near!r}? roots are {', '.join(roots)}"
        else:
            hint = f"roots are {', '.join(roots)}; text stands in quotes"
        return f"{path.root!r} is no root", path.start, hint, "reference"

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
            yield f"{key!r} is no state key", at, hint, "reference"
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
            above = self._schema(path.root, steps[:depth])
            kind = cel_type(above)
            shown = ".".join((path.root, *map(str, steps[:depth])))
            if kind in ("bool", "int", "double", "string"):
                named = TYPE_NAMES[_JSON_OF_CEL[kind]]
                yield f"{shown!r} is {named}, so it has no {step!r}", path.start, None, "type"
                return
            if kind == "list" and isinstance(step, str):
                yield (
                    f"{shown!r} is a list, so it has no {step!r}",
                    path.start,
                    f"take an item: {shown}[0].{step}",
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
        hint = listed(f"{path.root}.{name}" for name in known)
        yield f"name one: {path.root}.NAME", path.start, hint, "reference"
    elif steps[0] not in known:
        hint = choose(steps[0], known, none="there are no nodes")
        yield f"{steps[0]!r} is no {what}", path.start, hint, "reference"
    elif len(steps) > 1:
        yield f"{path.root}.{steps[0]} is a number, so it has no {steps[1]!r}", path.start, None, "type"


def _closed(schema: Any) -> bool:
    return (
        isinstance(schema, Mapping)
        and schema.get("additionalProperties") is False
        and isinstance(schema.get("properties"), Mapping)
        and "patternProperties" not in schema
    )


def _below(schema: Any, step: PathStep) -> Any:
    """The schema of one step further, None when it is not told."""
    if not isinstance(schema, Mapping):
        return None
    if isinstance(step, str):
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and step in properties:
            return properties[step]
        return schema.get("additionalProperties")
    return schema.get("items")
