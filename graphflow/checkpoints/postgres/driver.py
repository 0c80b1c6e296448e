"""Steps the work of `sql` on PostgreSQL: what one `yield` names together is one round trip."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from graphflow.checkpoints.postgres.pipeline import Call, Statement
from graphflow.checkpoints.sql.statement import Ask, Native, Query, Rows, SharedStatement, Work, filled

T = TypeVar("T")

_SPAN = "lineage = $1 AND ordinal BETWEEN $2 AND $3"
SLOTS = {
    "begun": "begun",
    "by": "ordinal",
    "effects": f"{_SPAN} AND effect",
    "greatest": "greatest",
    "key": "$",
    "lineage": "lineage = $1",
    "lock": "FOR UPDATE",
    "note": "name",
    "notes": "@.notes",
    "number": "t.lineage",
    "ordinal": "ordinal",
    "own": "number",
    "span": _SPAN,
    "token": ", token = NULL",
}


@functools.cache
def native(statement: SharedStatement) -> Statement:
    """A shared statement as PostgreSQL prepares it."""
    return Statement(filled(statement.sql, SLOTS), statement.parameters, statement.columns)


def call_of(ask: Ask) -> Call:
    if type(ask) is Native:
        call: Call = ask.what
        return call
    assert type(ask) is Query
    return native(ask.statement)(*ask.values)


async def drive(run: Callable[..., Awaitable[list[Rows]]], work: Work[T]) -> T:
    """The result of the work; `run` sends statements together and gives the rows of each."""
    try:
        asks = next(work)
        while True:
            asks = work.send(await run(*map(call_of, asks)) if asks else [])
    except StopIteration as end:
        result: T = end.value
        return result
