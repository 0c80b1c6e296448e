"""The lock of a file: what a thread has last seen or written of it, noted in the thread's record.

Only what a thread has read may be changed by it, and only as long as the content is the same: the same bytes under
another inode or with another time are no conflict, other bytes with the same size and time are one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from graphflow.tools.coding.snapshot import Snapshot
from graphflow.tools.context import ThreadNotes
from graphflow.tools.workspace import FileRefused

READ_FIRST = "Read the file before you change it."


def note_content(notes: ThreadNotes, resolved: str, facts: os.stat_result, digest: str) -> None:
    """Notes that the thread knows this content."""
    row = [facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, digest]
    notes.put(_key(resolved), row)


def forget_content(notes: ThreadNotes, resolved: str) -> None:
    """Notes that nothing is there."""
    if notes.get(_key(resolved)) is not None:
        notes.put(_key(resolved), None)


def known_digest(notes: ThreadNotes, resolved: str) -> str | None:
    """SHA-256 of the content that the thread knows; None if it has not read the file."""
    row = notes.get(_key(resolved))
    return None if row is None else str(row[5])


def check_lock(notes: ThreadNotes, resolved: str, path: str, now: Snapshot | None, expected: Mapping[str, Any]) -> None:
    """Whether the thread may change the file as it is now; None is no file.

    Args:
        expected: `expected_mtime_ms` and `expected_size_bytes`, where the call has them: they only refuse more.

    Raises:
        FileRefused: `INVALID_PARAM` for a file that was not read, `CONFLICT` for one that has changed since.
    """
    known = known_digest(notes, resolved)
    if now is None:
        if known is not None:
            raise FileRefused("CONFLICT", f"{path!r} has been deleted since this thread read it")
        return
    if known is None:
        raise FileRefused("INVALID_PARAM", f"{path!r} exists and this thread has not read it: read first. {READ_FIRST}")
    if known != now.digest:
        raise FileRefused("CONFLICT", f"{path!r} has changed since this thread read it")
    facts = {"expected_mtime_ms": now.facts.st_mtime_ns // 1_000_000, "expected_size_bytes": len(now.data)}
    for name, value in facts.items():
        if expected.get(name, value) != value:
            raise FileRefused("CONFLICT", f"{path!r}: {name} is {expected[name]}, and the file has {value}")


def _key(resolved: str) -> str:
    return f"read:{resolved}"
