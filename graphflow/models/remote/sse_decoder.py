"""Server-sent events decoded from bytes as they arrive (WHATWG HTML, section 9.2).

Two departures from the standard, because providers need them: at the end of the stream a pending event
is returned instead of dropped, and the unknown field `error` is kept, because some gateways put their
error there.
"""

from __future__ import annotations

import functools

import msgspec

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Limit of one event in bytes: no provider comes near, and a broken one must not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event with data (or with an `error` field); events with neither are skipped."""

    data: bytes
    """The data lines, joined by newlines."""
    name: str | None = None
    """The `event` field."""
    error: bytes | None = None
    """The field `error`, which the standard does not know."""


class EventTooLong(ValueError):
    """An event without an end, longer than `MAX_EVENT_BYTES`."""


class SseDecoder:
    """Takes blocks of bytes, cut anywhere; returns each event as soon as its blank line has arrived."""

    __slots__ = ("_after_cr", "_head", "_pending", "_pending_bytes")

    def __init__(self) -> None:
        self._head: bytes | None = b""  # bytes seen while a byte order mark is still possible
        self._after_cr = False
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @property
    def is_within_event(self) -> bool:
        """Whether an event has begun whose blank line has not arrived."""
        return bool(self._pending_bytes)

    def feed(self, block: bytes) -> list[SseEvent]:
        """The events that `block` completes."""
        if self._head is not None:
            block = self._without_bom(block)
        if self._after_cr or b"\r" in block:
            # Line ends are unified first, so that every later step knows one blank line only.
            block = self._plain_newlines(block)
        if b"\n" not in block:
            self._hold(block)
            return []
        # The blank line may itself be cut, so what is pending is searched again together with the block.
        if self._pending:
            self._pending.append(block)
            block = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
        *complete, rest = block.split(b"\n\n")
        if rest:
            self._hold(rest)
        events = []
        for lines in complete:
            # The common case, one data line: no further look at it.
            if lines.startswith(b"data: ") and b"\n" not in lines:
                if len(lines) > 6:
                    events.append(SseEvent(lines[6:]))
                continue
            # The other common case: a name, and one data line.
            if lines.startswith(b"event: "):
                head, _, data = lines.partition(b"\n")
                if data.startswith(b"data: ") and b"\n" not in data:
                    if len(data) > 6:
                        events.append(SseEvent(data[6:], _name(head)))
                    continue
            if (event := _event(lines)) is not None:
                events.append(event)
        return events

    def close(self) -> list[SseEvent]:
        """The event that was pending when the stream ended, if it had data."""
        rest = (self._head or b"") + b"".join(self._pending)
        self._pending.clear()
        self._head = None
        event = _event(rest)
        return [] if event is None else [event]

    def _without_bom(self, block: bytes) -> bytes:
        head = (self._head or b"") + block
        # The byte order mark may be cut over several blocks.
        if len(head) < 3 and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _plain_newlines(self, block: bytes) -> bytes:
        if not block:
            return block
        # A CR ends its line at once; an LF that follows it in the next block belongs to it.
        if self._after_cr and block.startswith(b"\n"):
            block = block[1:]
        if block:
            self._after_cr = block.endswith(b"\r")
        else:
            self._after_cr = False
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _hold(self, block: bytes) -> None:
        if not block:
            return
        self._pending.append(block)
        self._pending_bytes += len(block)
        if self._pending_bytes > MAX_EVENT_BYTES:
            raise EventTooLong(f"an event of the stream is longer than {MAX_EVENT_BYTES} bytes and has no end")


@functools.lru_cache(maxsize=64)
def _name(line: bytes) -> str | None:
    """The name in a line `event: NAME`; a protocol has a few."""
    return line[7:].decode("utf-8", "replace") or None


def _event(lines: bytes) -> SseEvent | None:
    data: list[bytes] = []
    name: str | None = None
    error: bytes | None = None
    for line in lines.split(b"\n"):
        field, _, value = line.partition(b":")
        # The standard removes one leading space, not more: the rest belongs to the value.
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            # Broken UTF-8 in a field must not end the stream.
            name = value.decode("utf-8", "replace") or None
        elif field == b"error" and value:
            error = value
    joined = b"\n".join(data)
    if not joined and error is None:
        return None
    return SseEvent(joined, name, error)
