"""Server-sent events: our own small response (spec 3.3).

A subscriber, not the run's driver: a client that leaves, reads slowly or falls behind is disconnected and rejoins by
id. One event is one frame, written at once; frames that are ready together share a write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from graphflow.errors import GraphflowError
from graphflow.events import STREAM_ENDS, Event, encode_event, in_families
from graphflow.runtime.runs.event_ring import Behind
from graphflow.server.public_failures import FAILURES, public_event
from graphflow.service.run_log import StreamFrame

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
WRITE_BYTES = 64 * 1024
"""Frames that share a write, at most: what waits for a slow reader stays small."""
SLICE = 200
"""Frames that are encoded without a turn of the event loop."""
STALL_S = 60.0
"""A reader that takes nothing for this long is disconnected."""
HEARTBEAT = b": heartbeat\n\n"
REJOIN = b"retry: 1000\n: the stream was left before the run's end; rejoin with Last-Event-ID\n\n"

log = logging.getLogger("graphflow.server")


def encode_frame(frame: StreamFrame) -> bytes:
    """`id`, `event: message` and one line of JSON; `stream.reset` has no id."""
    sse_id, event = frame
    if type(event) in FAILURES:  # asked here, without a call for each delta
        event = public_event(event)
    head = b"" if sse_id is None else b"id: %b\n" % sse_id.encode()
    return b"%bevent: message\ndata: %b\n\n" % (head, encode_event(event))


class EventStream(StreamingResponse):
    """The frames of a run as a response.

    Args:
        batches: frames as they come; closed when the client leaves.
        headers: beside those of every stream.
        families: event families that are sent besides those that always are; None sends all.
        heartbeat_s: a silent stream gets a comment after this pause.
        left: called when the client leaves before the end.
        count: called with +1 when the stream begins and -1 when it is over.
    """

    def __init__(
        self,
        batches: AsyncIterator[list[StreamFrame]],
        headers: Mapping[str, str],
        *,
        families: Collection[str] | None = None,
        heartbeat_s: float = 15.0,
        left: Callable[[], None] | None = None,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__((), media_type="text/event-stream", headers={**HEADERS, **headers})
        self._batches, self._families = batches, families
        self._heartbeat_s, self._left, self._count = heartbeat_s, left, count
        self._written_at = 0.0
        self._writing = False
        self._last: Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._count(1)
        self._written_at = asyncio.get_running_loop().time()
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._pump(send))
                watchers = (group.create_task(self._watch(receive, pump)), group.create_task(self._beat(send, pump)))
                # Whichever way the pump ends, its watchers would otherwise keep the task group open.
                pump.add_done_callback(lambda _: [watcher.cancel() for watcher in watchers])
        finally:
            self._count(-1)

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._batches) as batches:  # type: ignore[type-var] # it is a generator
            try:
                async for batch in batches:
                    await self._send_frames(send, batch)
            except Behind:
                log.info("sse: a reader fell behind the ring and is let go")
            except GraphflowError as error:
                log.warning("sse: the stream breaks off: %s", error.message)
        # Headers are long sent, so a comment is the only way to report why the stream ends.
        if not isinstance(self._last, STREAM_ENDS):
            await self._write(send, REJOIN)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_frames(self, send: Send, batch: list[StreamFrame]) -> None:
        parts: list[bytes] = []
        size = 0
        for place, frame in enumerate(batch, 1):
            if place % SLICE == 0:
                await asyncio.sleep(0)
            event = frame[1]
            self._last = event
            if not in_families(event, self._families):
                continue
            data = encode_frame(frame)
            parts.append(data)
            size += len(data)
            if size >= WRITE_BYTES:
                await self._write(send, b"".join(parts))
                # A fast reader's writes never wait, and the loop would not turn before the last of them.
                await asyncio.sleep(0)
                parts, size = [], 0
        if parts:
            await self._write(send, b"".join(parts))

    async def _write(self, send: Send, data: bytes) -> None:
        self._writing = True
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._writing = False
        self._written_at = asyncio.get_running_loop().time()

    async def _watch(self, receive: Receive, pump: asyncio.Task[Any]) -> None:
        """Ends the stream when the client leaves; that only unsubscribes."""
        while (await receive())["type"] != "http.disconnect":
            pass
        # After an ending event there is nothing left to cancel.
        if self._left is not None and not isinstance(self._last, STREAM_ENDS):
            self._left()
        pump.cancel()

    async def _beat(self, send: Send, pump: asyncio.Task[Any]) -> None:
        """A comment in every long silence: proxies keep the connection, and a dead client is noticed."""
        loop = asyncio.get_running_loop()
        while True:
            silent = loop.time() - self._written_at
            # A pending write means that the reader is the one who is slow; a heartbeat would only queue behind it.
            if self._writing:
                if silent > STALL_S:
                    log.info("sse: a reader took nothing for %d s and is let go", STALL_S)
                    pump.cancel()
                    return
                await asyncio.sleep(min(self._heartbeat_s, STALL_S))
            elif silent < self._heartbeat_s:
                await asyncio.sleep(self._heartbeat_s - silent)
            else:
                with suppress(OSError):
                    await self._write(send, HEARTBEAT)
