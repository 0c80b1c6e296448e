"""Replacing the blobs of a store in place, page by page, each page in one transaction."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from graphflow.checkpoints.rows import Place, Rewrite
from graphflow.checkpoints.sql.statement import Dialect, SharedStatement, Work, one

_LEAST = {"l": -(1 << 62), "i": -1, "t": "", "d": ""}
_KINDS: dict[str, tuple[str, str, Callable[..., Place]]] = {
    "records": ("data", "iid", lambda lineage, ordinal, name: Place("record", name, lineage, ordinal)),
    "snapshots": ("data", "ii", lambda lineage, ordinal: Place("snapshot", "", lineage, ordinal)),
    "items": (
        "data",
        "iitii",
        lambda lineage, frame, channel, ordinal, record: Place("item", "", lineage, ordinal, frame, channel, record),
    ),
    "interrupts": ("data", "dd", lambda thread, id_: Place("interrupt", f"{thread} {id_}")),
    "documents": ("data", "t", lambda digest: Place("document", digest)),
    "inputs": ("body", "d", lambda thread: Place("input", thread)),
    "threads": ("title", "d", lambda name: Place("title", name)),
    "about": ("about", "d", lambda name: Place("about", name)),
}
"""Per kind: the column with the blob, the types of what its place is made of, and that place. Texts pass as UTF-8."""
_TABLES = {"about": "threads"}
"""Kind → its table, where that has another name."""
_ORDER = list(_KINDS)


PAGE_BYTES = 32 << 20
"""Blobs of a page are held in memory, before and after: it ends once they are more, whatever its limit."""


class _Page(NamedTuple):
    """The statements for the blobs of one table."""

    weigh: SharedStatement
    """The sizes of the page's blobs."""
    read: SharedStatement
    """Key columns, those of the place, the blob; parameters are the key before the page and its length."""
    write: SharedStatement
    """Parameters are the key and the blob."""
    start: Sequence[Any]
    """A key before all others."""


@functools.cache
def _page(kind: str, key: str, types: str, made_of: str, where: str) -> _Page:
    column, place_types, _ = _KINDS[kind]
    table = _TABLES.get(kind, kind)
    width = len(types)
    slots = ", ".join(f"${n}" for n in range(1, width + 1))
    matches = " AND ".join(f"{part.strip()} = ${n}" for n, part in enumerate(key.split(","), 1))
    blob = "t" if column in ("title", "about") else "y"
    start = f"FROM @.{table} t WHERE ({key}) > ({slots}) AND {column} IS NOT NULL AND {where} ORDER BY {key} LIMIT ${width + 1}"
    return _Page(
        SharedStatement(f"SELECT length({column}) {start}", types + "l", "i"),
        SharedStatement(
            f"SELECT {key}, {made_of}, {column} {start} @lock",
            types + "l",
            types.replace("l", "i") + place_types + blob,
        ),
        SharedStatement(f"UPDATE @.{table} SET {column} = ${width + 1} WHERE {matches}", types + blob),  # noqa: S608 – constants only
        [_LEAST[letter] for letter in types],
    )


def rewrite(db: Dialect, change: Rewrite, after: str | None, limit: int) -> Work[str | None]:
    """One page of one table; the cursor is the table and the last key of it."""
    name, key = (_ORDER[0], None) if after is None else msgspec.json.decode(after)
    place = _KINDS[name][2]
    page = _page(name, *db.paged[_TABLES.get(name, name)])
    first = page.start if key is None else key
    sizes = yield from one(page.weigh(*first, limit))
    fitting = max(1, sum(total <= PAGE_BYTES for total in itertools.accumulate(size for (size,) in sizes)))
    if fitting < len(sizes):
        limit = fitting
    # The rows of the page are locked: a commit must not write a blob anew between reading and replacing it.
    rows = yield from one(page.read(*first, limit))
    width = len(page.start)
    writes = []
    for row in rows:
        blob = row[-1]
        old = blob.encode() if type(blob) is str else blob
        new = change(place(*row[width:-1]), old)
        if new != old:
            writes.append(page.write(*row[:width], new.decode() if type(blob) is str else new))
    if writes:
        yield writes
    # A page that is not full was the last one of its table.
    if len(rows) == limit:
        return msgspec.json.encode([name, rows[-1][:width]]).decode()
    following = _ORDER[_ORDER.index(name) + 1 :]
    return msgspec.json.encode([following[0], None]).decode() if following else None
