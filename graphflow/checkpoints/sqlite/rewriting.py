"""Replacing the blobs of a SQLite store in place, and its notes about itself. Each function runs in the writer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from graphflow.checkpoints.rows import SEAL, Place, Rewrite
from graphflow.checkpoints.sqlite.rows import ORDINALS, unpack

NOTE = "note:"
"""Notes stand among the documents: a document's digest never begins so."""
_PARTS = ("small", "records", "snapshots", "items")


def put_note(db: sqlite3.Connection, name: str, note: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO documents (digest, data) VALUES (?, ?)", (NOTE + name, note))


def swap_note(db: sqlite3.Connection, name: str, note: bytes, instead_of: bytes | None) -> bool:
    row = db.execute("SELECT data FROM documents WHERE digest = ?", (NOTE + name,)).fetchone()
    if (None if row is None else row[0]) != instead_of:
        return False
    put_note(db, name, note)
    return True


def is_sealed(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM documents WHERE digest = ?", (NOTE + SEAL,)).fetchone() is not None


def rewrite(db: sqlite3.Connection, change: Rewrite, after: str | None, limit: int) -> str | None:
    """One page; the cursor is the table and the last key of it."""
    part, _, last = (after or "small:0").partition(":")
    if part == "small":
        _interrupts(db, change)
        _documents(db, change)
        _inputs(db, change)
        _titles(db, change)
        reached = None
    else:
        page = {"records": _records, "snapshots": _snapshots, "items": _items}[part]
        reached = page(db, change, int(last), limit)
    if reached is not None:
        return f"{part}:{reached}"
    following = _PARTS[_PARTS.index(part) + 1 :]
    return f"{following[0]}:0" if following else None


def _write(db: sqlite3.Connection, table: str, column: str, rows: Iterable[tuple[Any, bytes, bytes]]) -> None:
    values = [(new, key) for key, old, new in rows if new != old]
    db.executemany(f"UPDATE {table} SET {column} = ? WHERE {_KEYS[table]} = ?", values)  # noqa: S608 – constants only


_KEYS = {"records": "record", "snapshots": "record", "items": "item", "documents": "digest", "inputs": "position"}


def _records(db: sqlite3.Connection, change: Rewrite, after: int, limit: int) -> int | None:
    numbers = _numbers(db)
    sql = "SELECT record, id, data FROM records WHERE record > ? ORDER BY record LIMIT ?"
    rows = db.execute(sql, (after, limit)).fetchall()
    places = (
        (key, Place("record", unpack(id_), numbers[key // ORDINALS], key % ORDINALS), data) for key, id_, data in rows
    )
    _write(db, "records", "data", [(key, data, change(place, data)) for key, place, data in places])
    return rows[-1][0] if rows else None


def _snapshots(db: sqlite3.Connection, change: Rewrite, after: int, limit: int) -> int | None:
    numbers = _numbers(db)
    rows = db.execute(
        "SELECT record, data FROM snapshots WHERE record > ? ORDER BY record LIMIT ?", (after, limit)
    ).fetchall()
    places = ((key, Place("snapshot", "", numbers[key // ORDINALS], key % ORDINALS), data) for key, data in rows)
    _write(db, "snapshots", "data", [(key, data, change(place, data)) for key, place, data in places])
    return rows[-1][0] if rows else None


def _items(db: sqlite3.Connection, change: Rewrite, after: int, limit: int) -> int | None:
    sql = "SELECT g.log, l.number, g.frame, g.channel FROM logs g JOIN lineages l ON l.lineage = g.lineage"
    logs = {log: (number, frame, channel) for log, number, frame, channel in db.execute(sql)}
    sql = "SELECT item, record, data FROM items WHERE item > ? ORDER BY item LIMIT ?"
    rows = db.execute(sql, (after, limit)).fetchall()
    out = []
    for key, record, data in rows:
        number, frame, channel = logs[key // ORDINALS]
        out.append((key, data, change(Place("item", "", number, key % ORDINALS, frame, channel, record), data)))
    _write(db, "items", "data", out)
    return rows[-1][0] if rows else None


def _numbers(db: sqlite3.Connection) -> dict[int, int]:
    return dict(db.execute("SELECT lineage, number FROM lineages").fetchall())


def _interrupts(db: sqlite3.Connection, change: Rewrite) -> None:
    for thread, id_, data in db.execute("SELECT thread, id, data FROM interrupts").fetchall():
        new = change(Place("interrupt", f"{unpack(thread)} {unpack(id_)}"), data)
        db.execute("UPDATE interrupts SET data = ? WHERE thread = ? AND id = ?", (new, thread, id_))


def _documents(db: sqlite3.Connection, change: Rewrite) -> None:
    rows = db.execute("SELECT digest, data FROM documents").fetchall()
    own = [(digest, data) for digest, data in rows if not digest.startswith(NOTE)]
    _write(db, "documents", "data", [(digest, data, change(Place("document", digest), data)) for digest, data in own])


def _inputs(db: sqlite3.Connection, change: Rewrite) -> None:
    rows = db.execute("SELECT position, thread, body FROM inputs").fetchall()
    _write(
        db, "inputs", "body", [(key, body, change(Place("input", unpack(thread)), body)) for key, thread, body in rows]
    )


def _titles(db: sqlite3.Connection, change: Rewrite) -> None:
    for id_, title in db.execute("SELECT id, title FROM threads WHERE title IS NOT NULL").fetchall():
        new = change(Place("title", unpack(id_)), title.encode()).decode()
        db.execute("UPDATE threads SET title = ? WHERE id = ?", (new, id_))
