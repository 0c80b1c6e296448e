"""What a command of `bash` that runs in this process writes: its beginning is kept, and it ends at its limits."""

from __future__ import annotations

import threading
import time


class OutputEnded(Exception):
    """Nobody reads further output: enough is kept, the time is over or the call was cancelled."""


class Output:
    """stdout and stderr of one command; used in a thread.

    Args:
        max_chars: of each.
        timeout_s: after which the next write or check ends the command.
        stopped: set from outside when the call is cancelled.
    """

    def __init__(self, max_chars: int, timeout_s: float, stopped: threading.Event | None = None) -> None:
        self._room = max_chars * 4  # bytes: the most that UTF-8 takes for them
        self._until = time.monotonic() + timeout_s
        self._kept = (bytearray(), bytearray())
        self._dropped = False
        self._max_chars = max_chars
        self._stopped = stopped or threading.Event()
        self.timed_out = False
        self.failed = False
        """Whether a part of the command failed: exit code 1."""

    def write(self, data: bytes | str) -> None:
        """Adds to stdout.

        Raises:
            OutputEnded: the command need not go on.
        """
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        self._keep(self._kept[0], raw)
        if self._dropped:
            raise OutputEnded
        self.check()

    def complain(self, text: str) -> None:
        """Adds a line to stderr; the command goes on with its other operands."""
        self.failed = True
        self._keep(self._kept[1], f"{text}\n".encode("utf-8", "surrogateescape"))
        self.check()

    def check(self) -> None:
        """Raises `OutputEnded` when the time is over or the call was cancelled; for loops that write nothing for long."""
        if self.is_over():
            raise OutputEnded

    def is_over(self) -> bool:
        """Whether the time is over or the call was cancelled."""
        if time.monotonic() > self._until:
            self.timed_out = True
        return self.timed_out or self._stopped.is_set()

    def _keep(self, kept: bytearray, raw: bytes) -> None:
        room = self._room - len(kept)
        self._dropped = self._dropped or len(raw) > room
        kept += raw[:room]

    def _whole(self, index: int) -> str:
        return self._kept[index].decode("utf-8", errors="replace")

    @property
    def stdout(self) -> str:
        return self._whole(0)[: self._max_chars]

    @property
    def stderr(self) -> str:
        return self._whole(1)[: self._max_chars]

    @property
    def cut(self) -> bool:
        return self._dropped or any(len(self._whole(index)) > self._max_chars for index in (0, 1))
