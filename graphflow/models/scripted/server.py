"""The scripted model as a real HTTP server that speaks the OpenAI chat-completions protocol.

    async with serve_scripted() as server:
        print(server.url)          # http://127.0.0.1:49152/v1

`POST /v1/chat/completions` (streamed or not) and `GET /v1/models`. Whatever key is sent is accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import msgspec

from graphflow.models.accumulator import TurnAccumulator
from graphflow.models.deltas import Finish
from graphflow.models.openai.wire_types import (
    ChatRequest,
    chunk,
    completion_body,
    read_request,
    sse,
    usage_chunk,
    wire_delta,
)
from graphflow.models.scripted.model import Performance, ScriptedModel, error_payload
from graphflow.models.scripted.script import ScriptedError

MAX_BODY_BYTES = 64 * 1024 * 1024

Gate = Callable[[int], Awaitable[None]]
"""Awaited before each delta is sent, with the number of deltas that this server sent before it."""


class DeltaGate:
    """A gate that a test opens delta by delta."""

    def __init__(self) -> None:
        self._open = 0
        self._moved = asyncio.Event()

    async def __call__(self, number: int) -> None:
        # A loop, since another waiter may have used up what was released.
        while number >= self._open:
            self._moved.clear()
            await self._moved.wait()

    def release(self, count: int = 1) -> None:
        """Lets `count` more deltas through."""
        self._open += count
        self._moved.set()

    def release_all(self) -> None:
        """Stops holding anything."""
        self.release(1 << 60)


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass
class ScriptedServer:
    """A running server; see `serve_scripted`."""

    model: ScriptedModel
    gate: Gate | None = None
    url: str = ""
    """Base URL with `/v1`, for `LLM_BASE_URL`."""
    requests: list[RecordedRequest] = field(default_factory=list)
    """Every request so far, for tests."""
    sent: int = 0
    """Deltas that were sent so far."""
    _due_errors: deque[ScriptedError] = field(default_factory=deque)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _listener: asyncio.Server | None = None

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    def fail_next(self, error: ScriptedError, times: int = 1) -> None:
        """Answers the next `times` chat requests by this error, whatever the script says."""
        self._due_errors.extend([error] * times)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listens; port 0 takes a free one.

        Raises:
            OSError: the address is taken or not this machine's.
        """
        self._listener = await asyncio.start_server(self._serve, host, port)
        bound = self._listener.sockets[0].getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{bound}/v1"

    async def serve_forever(self) -> None:
        """Runs until cancelled."""
        assert self._listener is not None
        await self._listener.serve_forever()

    async def aclose(self) -> None:
        """Stops at once; open streams are cut."""
        if self._listener is not None:
            self._listener.close()
        # A copy: each task removes itself from the set when it ends.
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await _HttpConnection(self, reader, writer).run()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the server closes: either way this connection is over
        finally:
            self._tasks.discard(task)
            writer.close()

    # --- what the connections ask ----------------------------------------------------------------

    def next_error(self) -> ScriptedError | None:
        return self._due_errors.popleft() if self._due_errors else None

    async def before_delta(self) -> None:
        """Waits at the gate, then counts one delta."""
        if self.gate is not None:
            await self.gate(self.sent)
        self.sent += 1


@asynccontextmanager
async def serve_scripted(
    model: ScriptedModel | None = None, *, host: str = "127.0.0.1", port: int = 0, gate: Gate | None = None
) -> AsyncIterator[ScriptedServer]:
    """A server that runs while the block does; `server.url` is its base URL."""
    server = ScriptedServer(model or ScriptedModel(), gate)
    await server.start(host, port)
    try:
        yield server
    finally:
        await server.aclose()


class _ClientGone(ConnectionError):
    """The client closed the connection."""


class _HttpConnection:
    """One connection: requests are answered one after another."""

    def __init__(self, server: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        try:
            while (request := await self._next_request()) is not None:
                self._server.requests.append(request)
                await self._answer(request)
                # A broken or refused request leaves bytes that can't be read as the next one.
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    break
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            # An answer may have begun; then nothing but closing the connection is left.
            with suppress(h11.LocalProtocolError):
                await self._error(error.error_status_hint, str(error))

    async def _next_request(self) -> RecordedRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Request):
                head = event
                # Without it a client that sends `Expect: 100-continue` would wait with its body.
                if self._http.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
                return RecordedRequest(
                    method=head.method.decode(), path=head.target.decode(), headers=headers, body=bytes(body)
                )
            else:
                return None  # closed

    async def _send(self, *events: Any) -> None:
        for event in events:
            data = self._http.send(event)
            if data:
                self._writer.write(data)
        await self._writer.drain()

    async def _head(self, status: int, content_type: str, **headers: str) -> None:
        fields = {"content-type": content_type, **headers}
        await self._send(h11.Response(status_code=status, headers=list(fields.items())))

    async def _whole(self, status: int, body: bytes, **headers: str) -> None:
        await self._head(status, "application/json", **{"content-length": str(len(body)), **headers})
        await self._send(h11.Data(data=body), h11.EndOfMessage())

    async def _error(self, status: int, message: str, **headers: str) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        body = {"error": {"message": message, "type": kind, "param": None, "code": None}}
        await self._whole(status, msgspec.json.encode(body), **headers)

    # --- answers ---------------------------------------------------------------------------------

    async def _answer(self, request: RecordedRequest) -> None:
        path = request.path.partition("?")[0].rstrip("/").removeprefix("/v1")
        if path == "/chat/completions":
            if request.method == "POST":
                await self._chat(request)
            else:
                await self._error(405, f"{request.method} is not allowed here; use POST", allow="POST")
        elif path == "/models" and request.method == "GET":
            model = {"id": self._server.model.model, "object": "model", "created": 0, "owned_by": "graphflow"}
            await self._whole(200, msgspec.json.encode({"object": "list", "data": [model]}))
        else:
            await self._error(404, f"no {request.method} {path!r} here; there are /v1/chat/completions and /v1/models")

    async def _chat(self, recorded: RecordedRequest) -> None:
        try:
            request = read_request(recorded.body)
        except (ValueError, msgspec.MsgspecError) as error:
            await self._error(400, str(error))
            return
        # After the check of the request: a refused request must not use up an error.
        due = self._server.next_error()
        if due is not None:
            await self._scripted_error(due)
            return
        play = await self._server.model.performed(request.messages, request.tools, request.options)
        # Nothing was sent yet, so the error can have its real status.
        if play.error is not None and not play.deltas:
            await self._scripted_error(play.error)
        elif request.stream:
            await self._while_connected(self._stream(recorded, request, play))
        else:
            await self._while_connected(self._complete(recorded, request, play))

    async def _scripted_error(self, error: ScriptedError) -> None:
        body = msgspec.json.encode(error_payload(error))
        await self._whole(error.status, body, **{k.lower(): v for k, v in error.headers.items()})

    async def _stream(self, recorded: RecordedRequest, request: ChatRequest, play: Performance) -> None:
        head = self._chunk_head(recorded, request)
        await self._head(200, "text/event-stream; charset=utf-8", **{"cache-control": "no-cache"})
        await self._send(h11.Data(data=chunk(head, {"role": "assistant", "content": ""})))
        for delta in play.deltas:
            if play.delay_s:
                await asyncio.sleep(play.delay_s)
            await self._server.before_delta()
            await self._send(h11.Data(data=chunk(head, wire_delta(delta))))
        if play.hang:
            await asyncio.Event().wait()
        # No end of message: the client must see a broken connection, not a finished body.
        if play.cut:
            raise _ClientGone("the script cuts the connection")
        if play.error is not None:
            await self._send(h11.Data(data=sse(error_payload(play.error))), h11.EndOfMessage())
            return
        last = chunk(head, {}, play.finish.raw_reason)
        if request.include_usage:
            last += usage_chunk(head, play.finish.usage)
        await self._send(h11.Data(data=last + b"data: [DONE]\n\n"), h11.EndOfMessage())

    async def _complete(self, recorded: RecordedRequest, request: ChatRequest, play: Performance) -> None:
        if play.hang:
            await asyncio.Event().wait()
        if play.cut:
            raise _ClientGone("the script cuts the connection")
        if play.error is not None:
            await self._scripted_error(play.error)
            return
        turn = TurnAccumulator()
        for delta in (*play.deltas, play.finish):
            if not isinstance(delta, Finish):
                await self._server.before_delta()
            turn.feed(delta)
        head = self._chunk_head(recorded, request)
        await self._whole(200, completion_body(head, turn.completion()))

    def _chunk_head(self, recorded: RecordedRequest, request: ChatRequest) -> dict[str, Any]:
        # From the body, so that the same request gets the same id.
        digest = hashlib.sha256(recorded.body).hexdigest()[:24]
        model = request.model or self._server.model.model
        return {"id": f"chatcmpl-{digest}", "created": int(time.time()), "model": model}

    async def _while_connected(self, work: Awaitable[None]) -> None:
        """Awaits `work`, cut short when the client leaves meanwhile."""
        try:
            async with asyncio.TaskGroup() as group:
                # A stream that hangs or waits at the gate sends nothing, so only a read notices a client that left.
                watcher = group.create_task(self._watch_client())
                await work
                watcher.cancel()
        except BaseExceptionGroup as errors:
            # The group wraps the one error; the caller expects it bare.
            raise errors.exceptions[0] from None

    async def _watch_client(self) -> None:
        while data := await self._reader.read(65536):
            self._http.receive_data(data)  # a pipelined request; it is answered after this one
        raise _ClientGone("the client left")
