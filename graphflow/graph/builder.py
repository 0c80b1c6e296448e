"""The Python form of a document: a typed builder (spec 2.2). What it builds is the same `GraphDefinition`."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

if TYPE_CHECKING:
    from graphflow.checkpoints.port import Checkpointer
    from graphflow.runtime.compiled import CompiledGraph

F = TypeVar("F", bound=Callable[..., Any])


class Reduce:
    """Marks a state key with its reducer: `Annotated[list[str], append]`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


append = Reduce("append")
merge = Reduce("merge")
union = Reduce("union")
sum_ = Reduce("sum")
messages = Reduce("messages")

_TYPES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", tuple: "array", dict: "object",
    type(None): "null",
}  # fmt: skip


class Graph:
    """Builds a document from Python functions and registered kinds.

    Args:
        state: the class that declares the state's keys (dataclass, TypedDict or pydantic model), or a JSON Schema.
        name: the graph's key.
        budget: figures of the document's budget; a graph with a cycle needs one.
    """

    def __init__(
        self, state: Any = None, *, name: str | None = None, budget: Mapping[str, Any] | None = None, **fields: Any
    ) -> None:
        self.name = name
        self._schema = state if isinstance(state, Mapping) else schema_of(state)
        self._budget = dict(budget or {})
        self._fields = fields
        self._nodes: dict[str, dict[str, Any]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._graphs: dict[str, Graph | Mapping[str, Any]] = {}
        self._start: str | None = None

    def node(self, function: F | None = None, /, *, name: str | None = None, **keys: Any) -> Any:
        """Adds a function as a node, `f(state)` or `f(state, ctx)`; a decorator with or without options.

        Keys are those of the document (`next`, `error`, `retry`, `effects`, …); `timeout_s` stands for `timeoutMs`.
        The node's name is the function's unless `name` says otherwise.
        """

        def add(made: F) -> F:
            node = name or made.__name__
            self._functions[node] = made
            self.add(node, use=f"node:{node}", **keys)
            return made

        return add if function is None else add(function)

    def add(self, name: str, **keys: Any) -> Graph:
        """Adds a node of any form by its document keys; `if_`-style names lose their underscore."""
        node = {_wire(key): value for key, value in keys.items() if value is not None}
        if "timeoutS" in node:
            node["timeoutMs"] = int(node.pop("timeoutS") * 1000)
        if name in self._nodes:
            raise ValueError(f"the graph has a node {name!r} already; give this one another name")
        self._nodes[name] = node
        self._start = self._start or name
        return self

    def ask(
        self, name: str, message: str, *, next: Any = "end", set: Mapping[str, str] | None = None, **ask: Any
    ) -> Graph:
        """Adds a question to a person."""
        return self.add(name, ask={"message": message, **{_wire(k): v for k, v in ask.items()}}, set=set, next=next)

    def subgraph(self, name: str, graph: Graph | Mapping[str, Any] | str, **keys: Any) -> Graph:
        """Adds a node that runs another graph: a builder, a document, or a registered key."""
        if isinstance(graph, str):
            return self.add(name, graph=graph, **keys)
        key = (graph.name if isinstance(graph, Graph) else graph.get("key")) or f"{name}_graph"
        self._graphs[key] = graph
        return self.add(name, graph=key, **keys)

    def start(self, name: str) -> Graph:
        """Names the first node; without it the first that was added."""
        self._start = name
        return self

    def document(self) -> dict[str, Any]:
        """The document as plain JSON data."""
        out: dict[str, Any] = {"graphflow": "1", "start": self._start or "", "nodes": self._nodes}
        if self.name:
            out["key"] = self.name
        if self._schema.get("properties"):
            out["state"] = dict(self._schema)
        if self._budget:
            out["budget"] = self._budget
        return out | {_wire(key): value for key, value in self._fields.items()}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The functions behind `node:NAME`, of subgraphs too."""
        out = dict(self._functions)
        for graph in self._graphs.values():
            if isinstance(graph, Graph):
                out |= graph.functions()
        return out

    def documents(self) -> dict[str, Mapping[str, Any]]:
        """The documents of subgraphs by key."""
        out: dict[str, Mapping[str, Any]] = {}
        for key, graph in self._graphs.items():
            if isinstance(graph, Graph):
                out[key] = graph.document()
                out |= graph.documents()
            else:
                out[key] = graph
        return out

    def compile(self, *, checkpointer: Checkpointer | None = None, **options: Any) -> CompiledGraph:
        """The graph ready to run; it is checked when it first runs.

        Raises:
            DefinitionError: at the first run, with all faults of the document.
        """
        from graphflow import _compile_builder

        return _compile_builder(self, checkpointer=checkpointer, **options)


def _wire(name: str) -> str:
    """`timeout_s` → `timeoutS`, `with_` → `with`."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


def schema_of(state: Any) -> dict[str, Any]:
    """The state schema that a class declares: types, defaults and reducers of its fields.

    Raises:
        TypeError: for something that declares no fields.
    """
    if state is None:
        return {"type": "object", "properties": {}}
    if not isinstance(state, type):
        raise TypeError(f"a state is a class with annotated fields or a JSON Schema, not {state!r}")
    hints = get_type_hints(state, include_extras=True)
    defaults = _defaults(state, hints)
    return {
        "type": "object",
        "properties": {key: _property(hint, defaults.get(key, ...)) for key, hint in hints.items()},
    }


def _defaults(state: type, hints: Mapping[str, Any]) -> dict[str, Any]:
    if dataclasses.is_dataclass(state):
        out = {}
        for field in dataclasses.fields(state):
            if field.default is not dataclasses.MISSING:
                out[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                out[field.name] = field.default_factory()
        return out
    fields = getattr(state, "model_fields", None)
    if fields is not None:  # a pydantic model
        return {
            key: field.get_default(call_default_factory=True)
            for key, field in fields.items()
            if not field.is_required()
        }
    if is_typeddict(state):
        return {}
    return {key: getattr(state, key) for key in hints if hasattr(state, key)}


def _property(hint: Any, default: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if get_origin(hint) in (typing.Required, typing.NotRequired):
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Reduce):
                out["x-reduce"] = mark.name
    names = _type_names(hint)
    if names:
        out = {"type": names[0] if len(names) == 1 else names, **out}
    if default is not ...:
        out["default"] = default
    elif out.get("x-reduce") in ("append", "messages", "union"):
        out["default"] = []
    elif out.get("x-reduce") == "merge":
        out["default"] = {}
    elif names and "null" not in names and "x-reduce" not in out:
        out["default"] = _ZEROS.get(names[0])
    return out


_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
"""Where a class gives no default, a key begins empty: a document's keys always have a value of their type."""


def _type_names(hint: Any) -> list[str]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return list(dict.fromkeys(name for arg in get_args(hint) for name in _type_names(arg)))
    if origin is typing.Literal:
        return list(dict.fromkeys(_TYPES.get(type(value), "string") for value in get_args(hint)))
    base = origin or hint
    if base is Any:
        return []
    if base in _TYPES:
        return [_TYPES[base]]
    if isinstance(base, type) and issubclass(base, Sequence):
        return ["array"]
    return ["object"] if isinstance(base, type) else []
