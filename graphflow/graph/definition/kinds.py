"""Kinds of nodes: the ports through which documents find what runs them (E21)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from graphflow.graph.definition.document import GraphDefinition, NodeDefinition

if TYPE_CHECKING:
    from graphflow.errors import Issue

NodeFunction = Callable[[Any, Any], Awaitable[Any]]
"""What runs a node: `(arguments, context) → out`. `arguments` is the evaluated `with`."""


class Kind(Protocol):
    """One kind of node: how its documents are checked and what runs it.

    A kind is registered under the word before the colon of `use` (`model`, `tools`, `tool:NAME`).
    """

    @property
    def name(self) -> str: ...

    @property
    def effects(self) -> str:
        """Default `effects` of its nodes: `none`, `read` or `write` (E6)."""

    @property
    def with_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of `with`; `None` accepts any object."""

    @property
    def out_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of `out`, for type-checking `set` and `next`; `None` is dynamic."""

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        """Errors of this node beyond its shape: unknown tool, unknown function, …

        Pointers are relative to the node (`/use`, `/with/tools/0`).
        """

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        """The function that runs the node; called once, when the plan is built."""


class Kinds(Protocol):
    """Every registered kind; also resolves subgraphs and named reducers."""

    def find(self, use: str) -> Kind | None:
        """The kind behind a `use` value (`model`, `tool:bash`), or None."""

    def names(self) -> list[str]:
        """All kinds, for hints."""

    def graph(self, key: str) -> Mapping[str, Any] | None:
        """The document of a subgraph (`KEY` or `KEY@VERSION`) as plain JSON data, or None."""

    def reducer(self, name: str) -> Callable[[Any, Any], Any] | None:
        """The registered pure function behind `"x-reducer": "fn:NAME"`."""


@runtime_checkable
class DeclaresStates(Protocol):
    """Kinds that know the Python classes which declare the states of graphs."""

    def state_class(self, key: str) -> Any:
        """The `StateClass` of the graph at this key of the plan's table (`""` is the root), or None."""
