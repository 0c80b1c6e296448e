"""The Python form of a document: a typed builder (spec 2.2). What it builds is the same `GraphDefinition`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar, Unpack, overload

from graphflow.arguments import checked
from graphflow.errors import ArgumentRefused, DefinitionError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.graph.builder_types import (
    AskKeys,
    CommonKeys,
    Effects,
    ErrorTo,
    GraphFields,
    Next,
    NodeKeys,
    OnError,
    Parts,
    RetryPolicy,
    SubgraphKeys,
    Wait,
)
from graphflow.graph.definition.state_classes import (
    Mark,
    Reduce,
    append,
    branch_only,
    each_run,
    max_,
    merge,
    messages,
    min_,
    reducers_of,
    schema_of,
    state_only,
    sum_,
    union,
)
from graphflow.graph.definition.types import show
from graphflow.graph.node_functions import check_node_function

if TYPE_CHECKING:
    from graphflow.graph.engine.context import Context, Goto

__all__ = [
    "GraphBuilder", "Mark", "Reduce", "append", "branch_only", "each_run", "max_", "merge", "messages", "min_", "schema_of",
    "state_only", "sum_", "union",
]  # fmt: skip

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])
Returned = TypeVar("Returned", bound="Mapping[str, Any] | Goto | Awaitable[Mapping[str, Any] | Goto | None] | None")

Body: TypeAlias = "str | GraphBuilder[Any] | Mapping[str, Any]"
"""What a branch runs: the name of its first node, a graph, a document, or `{"graph": "KEY", "with": {…}}`."""


class NodeDecorator(Protocol[S]):
    """Adds a function as a node and returns it unchanged: `f(state)` or `f(state, ctx)`, sync or async."""

    @overload
    def __call__(self, function: Callable[[S], Returned], /) -> Callable[[S], Returned]: ...
    @overload
    def __call__(self, function: Callable[[S, Context], Returned], /) -> Callable[[S, Context], Returned]: ...


class GraphBuilder(Generic[S]):
    """Builds a document from Python functions and registered kinds; `graphflow.Graph` is the one that runs."""

    def __init__(
        self,
        state: Any = None,
        *,
        name: str | None = None,
        budget: Mapping[str, Any] | None = None,
        **fields: Unpack[GraphFields],
    ) -> None:
        self.name = name
        self._schema = None if state is None else dict(state) if isinstance(state, Mapping) else schema_of(state)
        self._state_class = state if isinstance(state, type) else None
        self._budget = None if budget is None else _wired(budget)
        self._fields = _wired(fields)
        self._nodes: dict[str, dict[str, Any]] = {}
        self._own = Parts(reducers=reducers_of(state))
        self._start: str | None = None

    # --- nodes

    @overload
    def node(self, function: Callable[[S], Returned], /) -> Callable[[S], Returned]: ...
    @overload
    def node(self, function: Callable[[S, Context], Returned], /) -> Callable[[S, Context], Returned]: ...
    @overload
    def node(
        self, *, name: str | None = ..., next: Next | None = ..., error: Sequence[ErrorTo] | None = ...,
        retry: RetryPolicy | None = ..., timeout_s: float | None = ..., effects: Effects | None = ...,
        idempotent: bool | None = ..., undo: str | None = ..., description: str | None = ...,
    ) -> NodeDecorator[S]: ...  # fmt: skip
    @checked
    def node(self, function: Any = None, *, name: str | None = None, **keys: Unpack[CommonKeys]) -> Any:
        """Adds a function as a node, `f(state)` or `f(state, ctx)`; a decorator with or without options.

        Keys are those of the document (`next`, `error`, `retry`, `effects`, …); `timeout_s` stands for `timeoutMs`.
        The node's name is the function's unless `name` says otherwise; it exports as `use: node:NAME`.
        """

        def add(made: F) -> F:
            node = name or _name_of(made)
            check_node_function(node, made)
            self.add(node, use=f"node:{node}", **keys)
            self._own.nodes[node] = made
            return made

        return add if function is None else add(function)

    def function(self, made: F) -> F:
        """Registers a function under its own name, for nodes with `use="fn:NAME"`; a decorator."""
        self._own.functions[_name_of(made)] = made
        return made

    @checked
    def add(self, name: str, **keys: Unpack[NodeKeys]) -> Self:
        """Adds a node of any form by its document keys; `if_`-style names lose their underscore.

        Raises:
            ValueError: the graph has a node of this name.
        """
        node = _wired({key: value for key, value in keys.items() if value is not None})
        if "timeoutS" in node:
            given = float(node.pop("timeoutS"))
            if not math.isfinite(given):
                raise ArgumentRefused(
                    f"timeout_s of node {name!r} is {given!r}; give seconds, or leave it out for no limit"
                )
            node["timeoutMs"] = round(given * 1000)
        if name in self._nodes:
            raise ValueError(f"the graph has a node {name!r} already; give this one another name")
        self._nodes[name] = node
        self._start = self._start or name
        return self

    @checked
    def ask(
        self,
        name: str,
        message: str,
        *,
        set: Mapping[str, str] | None = None,
        next: Next = "end",
        error: Sequence[ErrorTo] | None = None,
        description: str | None = None,
        **ask: Unpack[AskKeys],
    ) -> Self:
        """Adds a question to a person.

        Args:
            message: what is asked; may hold `${…}`.
            set: state key → expression; `answer` is the answer.
            **ask: the answer's schema, who may answer, how long it waits.
        """
        asked = {"message": message, **{key: value for key, value in ask.items() if value is not None}}
        return self.add(name, ask=_wired(asked), set=set, next=next, error=error, description=description)

    @checked
    def subgraph(
        self, name: str, graph: GraphBuilder[Any] | Mapping[str, Any] | str, **keys: Unpack[SubgraphKeys]
    ) -> Self:
        """Adds a node that runs another graph: a builder, a document, or a registered key."""
        return self.add(name, graph=graph, **keys)

    @checked
    def map(
        self,
        name: str,
        items: str,
        do: Body,
        *,
        as_: str = "item",
        max: int | None = None,
        wait: Wait = "all",
        on_error: OnError = "fail",
        set: Mapping[str, str] | None = None,
        next: Next = "end",
        error: Sequence[ErrorTo] | None = None,
        retry: RetryPolicy | None = None,
        with_: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        description: str | None = None,
    ) -> Self:
        """Adds a node that runs a branch for each item of a list and joins them (E10).

        Args:
            items: an expression that gives the list, such as `state.steps`.
            do: where each branch begins: a node of this graph, which then belongs to the branches alone with every
                node that it leads to; or a graph, a document or `{"graph": "KEY"}`.
            as_: the name by which expressions in the body read the item.
            max: how many branches run at once; None is no limit.
            wait: how many branches must finish; the others are cancelled then.
            on_error: `fail`, `collect` or `skip` a failed branch.
            set: state key → expression; `out` is the list of `{index, status, out | error}`.
            retry: another attempt opens all branches anew.
            with_: the input of a `do` that is a graph.
        """
        return self.add(
            name, map=items, as_=as_, do=_body(do), max=max, join=_join(wait, on_error), set=set, next=next, error=error,
            retry=retry, with_=with_, timeout_s=timeout_s, description=description,
        )  # fmt: skip

    @checked
    def parallel(
        self,
        name: str,
        branches: Mapping[str, Body],
        *,
        after: Mapping[str, Sequence[str]] | None = None,
        wait: Wait = "all",
        on_error: OnError = "fail",
        set: Mapping[str, str] | None = None,
        next: Next = "end",
        error: Sequence[ErrorTo] | None = None,
        retry: RetryPolicy | None = None,
        with_: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        description: str | None = None,
    ) -> Self:
        """Adds a node that runs named branches at once and joins them (E10).

        Args:
            branches: name → where the branch begins, as `do` of `map`. Their order is that of the reduction.
            after: branch → the branches that it waits for; it sees what they wrote.
            set: state key → expression; `out` is an object of `{index, status, out | error}` by branch name.

        Raises:
            ValueError: `after` names a branch that is not there.
        """
        waits = after or {}
        if unknown := [branch for branch in waits if branch not in branches]:
            raise ValueError(
                f"`after` names {unknown[0]!r}, which is not a branch of {name!r}; it has {', '.join(branches)}"
            )
        made = {
            branch: {"do": _body(do), "after": list(waits[branch])} if waits.get(branch) else _branch(do)
            for branch, do in branches.items()
        }
        return self.add(
            name, parallel=made, join=_join(wait, on_error), set=set, next=next, error=error, retry=retry,
            with_=with_, timeout_s=timeout_s, description=description,
        )  # fmt: skip

    @checked
    def start(self, name: str) -> Self:
        """Names the first node; without it the first that was added."""
        self._start = name
        return self

    # --- the document

    def document(self) -> dict[str, Any]:
        """The document as plain JSON data; Python graphs inside it become inline documents.

        Raises:
            ValueError: the graph contains itself.
            TypeError: a default or argument that JSON has no form for.
        """
        return self._document(())

    def _document(self, around: tuple[GraphBuilder[Any], ...]) -> dict[str, Any]:
        if any(graph is self for graph in around):
            raise ValueError(f"graph {self.name or self._start!r} contains itself; let a route lead back instead")
        out: dict[str, Any] = {"graphflow": "1", "start": self._start or "", "nodes": self._nodes}
        given = {"key": self.name, "state": self._schema, "budget": self._budget}
        out |= {key: value for key, value in given.items() if value is not None}
        plain: dict[str, Any] = _plain({**out, **self._fields}, (*around, self))
        return plain

    def parts(self) -> Parts:
        """The functions behind the document's names, those of graphs inside it too.

        Raises:
            ValueError: two functions have one name.
        """
        out = Parts()
        for graph in self._all_graphs():
            for table, more in ((out.nodes, graph._own.nodes), (out.functions, graph._own.functions), (out.reducers, graph._own.reducers)):  # fmt: skip
                _join_tables(table, more)
        out.states.update(self._state_classes("", ()))
        return out

    def _state_classes(self, key: str, around: tuple[GraphBuilder[Any], ...]) -> Iterator[tuple[str, type]]:
        """The classes of this graph's state and of those inside it, by their keys in the plan's table."""
        if self._state_class is not None:
            yield key, self._state_class
        for name, node in self._nodes.items():
            bodies = {name: node.get("graph"), **_bodies(name, node)}
            for body, graph in bodies.items():
                if isinstance(graph, GraphBuilder) and all(graph is not other for other in (*around, self)):
                    yield from graph._state_classes(f"{key}/{body}", (*around, self))

    def _all_graphs(self) -> list[GraphBuilder[Any]]:
        """This one and those inside it, at any depth."""
        out: list[GraphBuilder[Any]] = [self]
        for graph in out:  # grows while it is walked
            out += [inner for inner in _graphs(graph._nodes) if all(inner is not known for known in out)]
        return out

    @checked
    def to_json(self, *, indent: int | None = 2) -> str:
        """The document as JSON text; `from_json` reads it back without loss."""
        import json  # not at the top: nothing else that comes with the graph API needs it

        return json.dumps(self.document(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(
        cls,
        source: str | bytes | PathLike[str] | Mapping[str, Any],
        functions: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] = (),
    ) -> Any:
        """The builder of a document, to compile or to extend."""
        data = dict(_read(source))
        nodes = data.pop("nodes", {})
        if not isinstance(nodes, Mapping):
            raise DefinitionError([Issue(pointer="/nodes", message=f"expected an object, not {show(nodes)}")])
        graph = cls(name=data.pop("key", None))
        graph._schema, graph._budget = data.pop("state", None), data.pop("budget", None)
        graph._start, graph._nodes = data.pop("start", None), dict(nodes)
        graph._fields = data
        # Into both tables: only the nodes say which of the two a name is, and graphs inside may use it as either.
        named = functions if isinstance(functions, Mapping) else {_name_of(made): made for made in functions}
        graph._own.nodes.update(named)
        graph._own.functions.update(named)
        return graph

    def __eq__(self, other: object) -> bool:
        """Whether both build the same document; the functions behind its names are not compared."""
        if not isinstance(other, GraphBuilder):
            return NotImplemented
        mine, theirs = self.document(), other.document()
        return mine == theirs and list(_orders(mine)) == list(_orders(theirs))

    __hash__ = None  # type: ignore[assignment]


# --- parts of a document


def _wire(name: str) -> str:
    """`timeout_s` → `timeoutS`, `with_` → `with`."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


def _wired(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {_wire(key): value for key, value in keys.items()}


def _join(wait: str | int, on_error: str) -> dict[str, Any] | None:
    join = {**({"wait": wait} if wait != "all" else {}), **({"onError": on_error} if on_error != "fail" else {})}
    return join or None


def _body(do: Body) -> Any:
    """A node's name or `{"graph": …}`."""
    if not isinstance(do, str | GraphBuilder | Mapping):
        raise TypeError(
            f'a branch begins at the name of a node, or is a graph, not {excerpt_of(do)}; add a function with @graph.node(next="end")'
            " and give its name"
        )
    is_document = isinstance(do, Mapping) and "nodes" in do
    return {"graph": do} if is_document or isinstance(do, GraphBuilder) else do


def _bodies(name: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """The graphs that a map or a parallel runs, by the names of its bodies."""
    from graphflow.graph.definition.regions import body_name  # not at the top: importing the builder parses no document

    branches = node.get("parallel")
    given = branches if isinstance(branches, Mapping) else {"": node["do"]} if "do" in node else {}
    out = {}
    for branch, do in given.items():
        inner = do.get("do", do) if isinstance(do, Mapping) else do
        out[body_name(name, branch)] = inner.get("graph") if isinstance(inner, Mapping) else None
    return out


def _branch(do: Body) -> Any:
    """A branch without `after`, in its short form if it is just the name of a node."""
    body = _body(do)
    return body if isinstance(body, str) else {"do": body}


def _plain(value: Any, around: tuple[GraphBuilder[Any], ...]) -> Any:
    """Plain JSON data: graphs become documents, sets are sorted, so that no version depends on hash order."""
    if isinstance(value, GraphBuilder):
        return value._document(around)
    if isinstance(value, Mapping):
        return {key: _plain(item, around) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, around) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [_plain(item, around) for item in value]
    if isinstance(value, Enum):
        return _plain(value.value, around)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    import msgspec

    def model(part: Any) -> Any:
        """A model of pydantic, also one inside a dataclass."""
        return part.model_dump(mode="json")

    try:
        return msgspec.to_builtins(value, order="deterministic", enc_hook=model)
    except (TypeError, AttributeError):
        message = (
            f"a document is JSON, which has no form for {excerpt_of(value)}; leave it out, and let a node write it"
        )
        raise TypeError(message) from None


def _name_of(made: Callable[..., Any]) -> str:
    """The function's own name, by which the document knows it."""
    name = getattr(made, "__name__", None)
    if name is None:
        raise TypeError(f'{made!r} has no name; give it one: @graph.node(name="…"), or define it with `def`')
    return str(name)


def _graphs(value: Any) -> Iterator[GraphBuilder[Any]]:
    """The graphs that were given as Python, in the order of the document."""
    if isinstance(value, GraphBuilder):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _graphs(item)


def _join_tables(table: dict[str, Callable[..., Any]], more: Mapping[str, Callable[..., Any]]) -> None:
    for name, function in more.items():
        if table.setdefault(name, function) is not function:
            raise ValueError(
                f"two functions are named {name!r}, and a document tells functions apart by name only; "
                f'give one of them another: @graph.node(name="…")'
            )


def _orders(value: Any) -> Iterator[list[str]]:
    """The order of branches, of every parallel: it is part of what a document says."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            if key == "parallel" and isinstance(value[key], Mapping):
                yield list(value[key])
            yield from _orders(value[key])


def _read(source: str | bytes | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    from graphflow.graph.definition.plain_data import without_schema

    if isinstance(source, Mapping):
        return without_schema(source)
    from pathlib import Path

    from graphflow.graph.definition.source import decode_utf8, parse_source, read_source

    if isinstance(source, str | bytes):
        data = parse_source(source if isinstance(source, str) else decode_utf8(source)).data
    else:
        data = read_source(Path(source)).data
    if not isinstance(data, Mapping):
        message = f"a document is a JSON object, not {show(data)}"
        raise DefinitionError([Issue(pointer="", message=message, hint='begin with {"graphflow": "1"')])
    return without_schema(data)
