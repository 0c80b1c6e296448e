"""Ports of the engine: what it needs from outside, declared here and filled from above (E21)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from graphflow.events import Event

if TYPE_CHECKING:
    from graphflow.graph.core.commands import Commit
    from graphflow.graph.core.machine import Machine

T = TypeVar("T")

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

    def is_over(self, now: int) -> bool:
        """Whether that time is over; `now` is epoch ms."""

    async def confirm(self) -> None:
        """Returns when the thread is surely still this epoch's.

        Raises:
            Fenced: it is another's.
        """


class Journal(Protocol):
    """The thread's journal as the executor sees it: ordered, atomic, fenced (E3)."""

    def prepare(self, commit: Commit, taken: Any = None) -> Any:
        """The commit encoded, nothing written yet. Its `media` says that messages with media are new in it.

        Args:
            taken: what `without_bytes` took out of it.

        Raises:
            CodecError: a value can't be stored; names its channel and type.
        """

    def without_bytes(self, value: T, machine: Machine) -> tuple[T, Any]:
        """The value with references in the place of large bytes of messages, and these for `prepare`.

        Args:
            machine: where the thread is before it.
        """

    async def read_bytes(self, name: str, machine: Machine) -> bytes | None:
        """The bytes of this SHA-256 that the thread has stored; None if it has none.

        Args:
            machine: where the thread is now.
        """

    def write(self, prepared: Any, events: list[Logged], seq: int, tail: int, release: bool) -> Durable:
        """Queues the record; never blocks. Later records are never durable before earlier ones.

        Args:
            events: what the log keeps of the events since the record before, numbered.
            seq: number of the last event sent, live-only ones included.
            tail: how many events will follow the commit before any other record can keep them (E1).
            release: gives the thread back in the same transaction.
        """

    def together(self) -> AbstractContextManager[None]:
        """What is written inside, without an await, becomes one commit: all of it or nothing is kept."""

    def hurry(self) -> None:
        """The run goes no further before its last record is durable: a store that can writes it at once."""

    async def release(self) -> None:
        """Gives the thread back, unless the last record did."""

    async def flush(self) -> None:
        """Returns when everything that was written is durable; raises what made it fail."""


class OperationRecovery(Protocol):
    """What one write keeps before it acts, so that a crash need not be a person's question."""

    async def before(self) -> Any:
        """What is recorded with the intent; nobody but this write, its undo and its recovery gets it."""

    async def outcome(self, kept: Any) -> Any:
        """After a crash: the write's result, `outcomes.AGAIN` where it surely did nothing, None where nobody knows."""
