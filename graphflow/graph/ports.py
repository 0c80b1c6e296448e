"""Ports of the engine: what it needs from outside, declared here and filled from above (E21)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from graphflow.events import Event

if TYPE_CHECKING:
    from graphflow.errors import Fault
    from graphflow.graph.core.machine import Commit
    from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
    from graphflow.graph.engine.context import Context

NodeFunction = Callable[[Any, "Context"], Awaitable[Any]]
"""What runs a node: `(arguments, context) → out`. `arguments` is the evaluated `with`."""


Logged = tuple[Event, int]
"""An event as the stored log keeps it, and the number of the first event that it stands for."""


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


@runtime_checkable
class Durable(Protocol):
    """The promise of one commit."""

    @property
    def done(self) -> bool: ...

    @property
    def error(self) -> BaseException | None:
        """Why the commit failed; None while it is under way or once it is durable."""

    def __await__(self) -> Any:
        """Returns when the commit is durable; raises what made it fail."""

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back on the event loop once durable; at once if it is already."""


class Lease(Protocol):
    """How long this process surely drives the thread (E2)."""

    until: int
    """Epoch ms."""

    async def confirm(self) -> None:
        """Returns when the thread is surely still this life's.

        Raises:
            Fenced: it is another's.
        """


class Journal(Protocol):
    """The thread's journal as the executor sees it: ordered, atomic, fenced (E3)."""

    def prepare(self, commit: Commit) -> Any:
        """The commit encoded, nothing written yet.

        Raises:
            CodecError: a value can't be stored; names its channel and type.
        """

    def write(self, prepared: Any, events: list[Logged], seq: int, tail: int, release: bool) -> Durable:
        """Queues the record; never blocks. Later records are never durable before earlier ones.

        Args:
            events: what the log keeps of the events since the record before, numbered.
            seq: number of the last event sent, live-only ones included.
            tail: how many events will follow the commit before any other record can keep them (E1).
            release: gives the thread back in the same transaction.
        """

    def hurry(self) -> None:
        """The run goes no further before its last record is durable: a store that can writes it at once."""

    async def release(self) -> None:
        """Gives the thread back, unless the last record did."""

    async def flush(self) -> None:
        """Returns when everything that was written is durable; raises what made it fail."""
