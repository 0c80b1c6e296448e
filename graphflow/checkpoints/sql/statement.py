"""SQL that both databases understand, and work on them that is written once.

Work is a generator: it yields the statements that it needs next and gets their rows back, one list for each. SQLite's driver
steps it in the thread of its connection; PostgreSQL's sends what one `yield` names together, in one round trip. So whatever
does not depend on an answer belongs into one `yield`.

What the databases say differently stands in the SQL as a slot (`@ordinal`), which `Dialect.slots` fills.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from graphflow.checkpoints.rows import LooseItem, Record

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


class SharedStatement:
    """SQL with `@.` before each table, `$1`, `$2` … for parameters and `@name` for slots.

    Args:
        parameters: a letter each: `d` an id, `n` the name of a note, `c` a text for people, `t`ext, `i`nteger, `l` for bigint, `b`oolean,
            `y` for bytes.
        columns: the same; a column of any integer type is an `i`. A statement without columns gives an empty row for each
            row that it changed.
    """

    __slots__ = ("columns", "parameters", "sql")

    def __init__(self, sql: str, parameters: str = "", columns: str = "") -> None:
        self.sql, self.parameters, self.columns = sql, parameters, columns

    def __call__(self, *values: Any) -> Query:
        return Query(self, values)


class Query(NamedTuple):
    """A statement with its parameters."""

    statement: SharedStatement
    values: tuple[Any, ...]


class Native(NamedTuple):
    """What only one of the databases can be asked; its dialect makes it and its driver understands it."""

    what: Any


Ask = Query | Native
Work = Generator[Sequence[Ask], list[Rows], T]


class Paged(NamedTuple):
    """How the blobs of a table are found, page by page."""

    key: str
    """Columns."""
    types: str
    place: str
    """Columns of what `Place` is made of."""
    where: str = "true"


class Dialect(ABC):
    """What differs between the databases."""

    slots: Mapping[str, str]
    record_tables: Sequence[str]
    """Tables whose rows are found by lineage and ordinal of a record."""
    drop_lineage: Sequence[SharedStatement]
    """What is left of a lineage without records."""
    drop_items: SharedStatement
    """Log entries of a lineage that later records wrote."""
    whole_records: SharedStatement
    """Records of a lineage up to an ordinal: ordinal, id, checkpoint, meta, data, snapshot, effect."""
    whole_items: SharedStatement
    """Log entries of a lineage that records up to an ordinal wrote: record, frame, channel, ordinal, data."""
    share_trees: Sequence[Ask]
    """Keeps others from taking away rows of lineages until the transaction ends."""
    lock_trees: Sequence[Ask]
    """Keeps others from beginning lineages too."""
    paged: Mapping[str, Paged]

    @abstractmethod
    def find_checkpoint(self, thread_id: str, checkpoint_id: str) -> Ask:
        """Lineage and ordinal of a checkpoint in the thread's tree; no row when there is none."""

    @abstractmethod
    def enqueue(self, thread_id: str, at: int, kind: str, body: bytes) -> Ask:
        """Appends to the queue of a thread that is there; the position."""

    @abstractmethod
    def dequeue(self, thread_id: str) -> Ask:
        """Removes the oldest input; its body."""

    @abstractmethod
    def add_records(self, lineage: int, records: Sequence[Record]) -> Sequence[Ask]: ...

    @abstractmethod
    def add_items(self, items: Sequence[LooseItem]) -> Sequence[Ask]: ...


_SLOT = re.compile(r"@([a-z]+)(\d*)")


def filled(sql: str, slots: Mapping[str, str]) -> str:
    """The SQL with what a database says in the place of each slot; `@key3` is its slot `key` for the parameter `$3`."""

    # A slot may hold slots itself, as `span` holds `key`.
    def fill(slot: re.Match[str]) -> str:
        return slots[slot[1]].replace("$", f"${slot[2]}") if slot[2] else filled(slots[slot[1]], slots)

    return _SLOT.sub(fill, sql)


def one(ask: Ask) -> Work[Rows]:
    """The rows of one statement."""
    [rows] = yield [ask]
    return rows
