"""What really happened, as the world outside would tell it: one file of lines, each appended by one system call.

A process that is killed leaves every whole line that it wrote, and the order of the lines is the order of what happened,
because one process at a time drives the thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

MOST_LINES = 5_000
"""More lines than any life needs: a thread that asks the same question for ever is found by what it does, not by a clock."""
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class Diary:
    """The lines of one thread's processes.

    Args:
        life: which process writes, counted from 1.
        sync: effects go to the disk before the effect returns, as a bank's would.
    """

    def __init__(self, path: Path, life: int, *, sync: bool = False) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # a kill cuts a line off where it crosses a page
        self._life, self._sync, self._lines = life, sync, 0

    def note(self, kind: str, **facts: Any) -> None:
        """`looks, looks again, begin, start, effect, read, queued, durable, sent, answers, killed, error`."""
        os.write(self._file, _encode({"kind": kind, "life": self._life, **facts}) + b"\n")
        self._lines += 1
        if kind != "error" and self._lines > MOST_LINES:
            raise AssertionError(
                f"life {self._life} goes on for ever: {self._lines} lines, the last one of kind {kind!r}"
            )

    def close(self) -> None:
        os.close(self._file)

    def effect(self, **facts: Any) -> None:
        """Something that can't be taken back: it has happened when this returns."""
        self.note("effect", **facts)
        if self._sync:
            os.fdatasync(self._file)


def read_diary(path: Path) -> Iterator[dict[str, Any]]:
    """The lines so far, oldest first; one that a kill cut off was never said."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line)
