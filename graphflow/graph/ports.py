"""Ports of the engine: what it needs from outside, declared here and filled from above (E21)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from graphflow.errors import Fault
    from graphflow.graph.context import Context
    from graphflow.graph.document import GraphDefinition, NodeDefinition
    from graphflow.graph.machine import Commit

NodeFunction = Callable[[Any, "Context"], Awaitable[Any]]
"""What runs a node: `(arguments, context) → out`. `arguments` is the evaluated `with`."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds, for durations and timeouts."""

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def new_id(self) -> str:
        """A unique, time-ordered id (UUIDv7)."""

    def random(self) -> float:
        """A draw in [0, 1), for jitter."""


class Kind(Protocol):
    """One kind of node: how its documents are checked and what runs it.

    A kind is registered under the word before the colon of `use` (`model`, `tools`, `tool:NAME`).
    """

    name: str

    effects: str
    """Default `effects` of its nodes: `none`, `read` or `write` (E6)."""

    with_schema: Mapping[str, Any] | None
    """JSON Schema of `with`; `None` accepts any object."""

    out_schema: Mapping[str, Any] | None
    """JSON Schema of `out`, for type-checking `set` and `next`; `None` is dynamic."""

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Fault]:
        """Faults of this node beyond its shape: unknown tool, unknown function, …

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
        """The registered pure function behind `"x-reduce": "fn:NAME"`."""


class Durable(Protocol):
    """The promise of one commit."""

    done: bool

    def __await__(self) -> Any:
        """Returns when the commit is durable; raises what made it fail."""

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back on the event loop once durable; at once if it is already."""


class Journal(Protocol):
    """The thread's journal as the executor sees it: ordered, atomic, fenced (E3)."""

    def commit(self, commit: Commit) -> Durable:
        """Queues one record; never blocks. Later records are never durable before earlier ones."""

    async def flush(self) -> None:
        """Returns when everything that was committed is durable."""
