"""Steps the work of `sql` on a SQLite connection.

Records have one key made of lineage and ordinal (see `rows.py`), ids are packed, and notes stand among the documents.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from graphflow.checkpoints.ids import check_text, clean_title, long_id, short_id
from graphflow.checkpoints.sql.statement import Ask, Native, Query, Rows, SharedStatement, Work, filled

T = TypeVar("T")
NOTE = "note:"
"""Notes stand among the documents: a document's digest never begins so."""

_SPAN = "record BETWEEN (@key1 << 32) + $2 AND (@key1 << 32) + $3"
NUMBER = "(SELECT l.number FROM lineages l WHERE l.lineage = t.{})"
SLOTS = {
    "begun": "lineage",
    "by": "record",
    "effects": f"record IN (SELECT record FROM effects WHERE {_SPAN})",  # noqa: S608 – constants only
    "greatest": "max",
    "key": "(SELECT lineage FROM lineages WHERE number = $)",
    "lineage": "record BETWEEN (@key1 << 32) AND (@key1 << 32) + 4294967295",
    "lock": "",
    "note": "digest",
    "notes": "documents",
    "number": NUMBER.format("lineage"),
    "ordinal": "record & 4294967295",
    "own": "lineage",
    "span": _SPAN,
    "token": "",
}


class SqliteStatement(NamedTuple):
    """A shared statement in SQLite's words."""

    sql: str
    pack: list[tuple[int, Callable[[Any], Any]]]
    """Parameters that are stored in another form."""
    unpack: list[tuple[int, Callable[[Any], Any]]]
    counts: bool
    """It gives no rows but how many it changed."""


def _checked(text: str) -> str:
    check_text(text)
    return text


_PACK: dict[str, Callable[[Any], Any]] = {
    "d": short_id,
    "t": _checked,
    "c": clean_title,
    "n": lambda name: NOTE + _checked(name),
}
_UNPACK: dict[str, Callable[[Any], Any]] = {"d": long_id, "b": bool}


@functools.cache
def prepared(statement: SharedStatement) -> SqliteStatement:
    sql = filled(statement.sql, SLOTS).replace("@.", "").replace("$", "?")
    parameters, columns = enumerate(statement.parameters), enumerate(statement.columns)
    return SqliteStatement(
        sql,
        [(at, _PACK[letter]) for at, letter in parameters if letter in _PACK],
        [(at, _UNPACK[letter]) for at, letter in columns if letter in _UNPACK],
        not statement.columns,
    )


def rows_of(db: sqlite3.Connection, ask: Ask) -> Rows:
    """The rows of one statement."""
    if type(ask) is Native:
        return ask.what(db)  # type: ignore[no-any-return]  # made by the dialect
    assert type(ask) is Query
    statement = prepared(ask.statement)
    values = list(ask.values)
    for at, change in statement.pack:
        if values[at] is not None:
            values[at] = change(values[at])
    cursor = db.execute(statement.sql, values)
    # DDL and PRAGMA count -1, which gives no rows either.
    if statement.counts:
        return [()] * cursor.rowcount
    if not statement.unpack:
        return cursor.fetchall()
    out: Rows = []
    for row in cursor:
        columns = list(row)
        for at, change in statement.unpack:
            if columns[at] is not None:
                columns[at] = change(columns[at])
        out.append(tuple(columns))
    return out


def drive(db: sqlite3.Connection, work: Work[T]) -> T:
    """The result of the work, statement by statement, in the transaction that has begun."""
    try:
        asks = next(work)
        while True:
            asks = work.send([rows_of(db, ask) for ask in asks])
    except StopIteration as end:
        result: T = end.value
        return result
