"""Replacing the blobs of a PostgreSQL store in place, page by page. Each function runs in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.pool import Transaction
from graphflow.checkpoints.rows import Place, Rewrite


class _Table(NamedTuple):
    """How the blobs of one table are paged by their key, placed, and written back."""

    page: Statement
    """Key columns, further columns of the place, the blob; parameters are the key before the page and its length."""
    write: Statement
    """Parameters are the key and the blob."""
    start: Sequence[Any]
    """A key before all others."""
    place: Callable[..., Place]
    text: bool = False
    """The blob is a text in UTF-8."""


def _table(
    name: str, column: str, key: str, types: str, start: Sequence[Any], place: Callable[..., Place], *, more: str = "",
    more_types: str = "", text: bool = False,
) -> _Table:  # fmt: skip
    width = len(types)
    slots = ", ".join(f"${n}" for n in range(1, width + 1))
    matches = " AND ".join(f"{part.strip()} = ${n}" for n, part in enumerate(key.split(","), 1))
    blob = "t" if text else "y"
    columns = types.replace("l", "i")
    return _Table(
        Statement(
            f"SELECT {key}{more}, {column} FROM @.{name} WHERE ({key}) > ({slots}) AND {column} IS NOT NULL"  # noqa: S608 – constants only
            f" ORDER BY {key} LIMIT ${width + 1} FOR UPDATE",
            types + "l",
            columns + more_types + blob,
        ),
        Statement(f"UPDATE @.{name} SET {column} = ${width + 1} WHERE {matches}", types + blob),  # noqa: S608 – constants only
        start,
        place,
        text,
    )


_LEAST = -(1 << 62)
_TABLES = {
    "records": _table(
        "records", "data", "lineage, ordinal", "li", (_LEAST, 0),
        lambda lineage, ordinal, name: Place("record", name, lineage, ordinal), more=", id", more_types="t",
    ),
    "snapshots": _table(
        "snapshots", "data", "lineage, ordinal", "li", (_LEAST, 0),
        lambda lineage, ordinal: Place("snapshot", "", lineage, ordinal),
    ),
    "items": _table(
        "items", "data", "lineage, frame, channel, ordinal", "llti", (_LEAST, 0, "", -1),
        lambda lineage, frame, channel, ordinal, record: Place("item", "", lineage, ordinal, frame, channel, record),
        more=", record", more_types="i",
    ),
    "interrupts": _table(
        "interrupts", "data", "thread, id", "tt", ("", ""), lambda thread, id_: Place("interrupt", f"{thread} {id_}")
    ),
    "documents": _table("documents", "data", "digest", "t", ("",), lambda digest: Place("document", digest)),
    "inputs": _table(
        "inputs", "body", "position", "l", (_LEAST,), lambda _, thread: Place("input", thread), more=", thread",
        more_types="t",
    ),
    "threads": _table("threads", "title", "id", "t", ("",), lambda name: Place("title", name), text=True),
}  # fmt: skip
_ORDER = list(_TABLES)


async def rewrite(db: Transaction, change: Rewrite, after: str | None, limit: int) -> str | None:
    """One page of one table; the cursor is the table and the last key of it."""
    name, key = (_ORDER[0], None) if after is None else json.loads(after)
    table = _TABLES[name]
    rows = await db.rows(table.page(*(table.start if key is None else key), limit))
    width = len(table.start)
    calls = []
    for row in rows:
        old = row[-1].encode() if table.text else row[-1]
        new = change(table.place(*row[:-1]), old)
        if new != old:
            calls.append(table.write(*row[:width], new.decode() if table.text else new))
    if calls:
        await db.run(*calls)
    if len(rows) == limit:
        return json.dumps([name, rows[-1][:width]])
    following = _ORDER[_ORDER.index(name) + 1 :]
    return json.dumps([following[0], None]) if following else None
