"""One request to a provider and its answer, block by block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from graphflow.errors import ModelError
from graphflow.models.deltas import Delta, Finish
from graphflow.models.options import ChatOptions
from graphflow.models.remote.answer_head import MOST_EVENTS, read_head
from graphflow.models.remote.api_keys import ApiKeys
from graphflow.models.remote.failures import Masker, failure, http_failure, request_id
from graphflow.models.remote.sse_decoder import EventTooLong, SseDecoder, SseEvent
from graphflow.models.remote.timeouts import LimitReached, TurnTimeouts
from graphflow.models.remote.transport import Response, Transport, TransportError
from graphflow.models.replay.refusals import LeftOut, left_out_after

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Limit of an answer that is not streamed, in bytes."""
MAX_ERROR_BYTES = 64 * 1024
_HEAD_BYTES = 500
_DRAIN_S = 0.1
"""Wait for the end of the body after the turn; only a body read to its end lets the connection be reused."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where and how requests are sent: what all turns of a model share."""

    provider: str
    url: str
    headers: Mapping[str, str]
    mask: Masker
    transport: Transport
    connect_s: float
    keys: ApiKeys | None = None
    """Where the key comes from, if it is not in the headers."""
    key_headers: Callable[[str], dict[str, str]] = lambda key: {"authorization": f"Bearer {key}"}
    """The headers for a key of `keys`."""

    def for_call(self, options: ChatOptions) -> Endpoint:
        """The same with the headers and the connect limit of a call; headers of ours win."""
        connect_s = None if options.limits is None else options.limits.connect_s
        if not options.headers and connect_s is None:
            return self
        headers = {name.lower(): value for name, value in options.headers.items()} | dict(self.headers)
        return replace(self, headers=headers, connect_s=connect_s or self.connect_s)

    @property
    def place(self) -> str:
        """Scheme, host and path of the address: a query or user part may hold a key."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Reader(Protocol):
    """Reads one turn of one protocol. `feed` each event, then `close` once; all but the properties raise `ModelError`."""

    done: bool
    """Nothing follows."""

    @property
    def finished(self) -> bool:
        """Whether a finish reason has come; later deltas still count."""

    @property
    def began(self) -> bool:
        """Whether anything that readers see has arrived."""

    @property
    def progress(self) -> str:
        """What has arrived, for error texts: `after 12 characters of text and 1 tool call`."""

    def feed(self, event: SseEvent, out: list[Delta]) -> None:
        """Adds the deltas of one event to `out`; what was added before an error stays valid."""

    def feed_pending(self, event: SseEvent, out: list[Delta]) -> None:
        """Adds an event that the stream ended in the middle of."""

    def feed_body(self, body: bytes, out: list[Delta]) -> None:
        """Reads a turn that came as one JSON body although a stream was asked for."""

    def close(self, out: list[Delta], *, beginning: bytes = b"") -> None:
        """Ends the turn with `Finish`; `beginning` is that of the body, shown in an error if nothing came of it."""

    def no_answer(self, what: str, body: bytes) -> ModelError:
        """The error for a success without an answer in it."""


class Exchange:
    """One turn over the wire: `open` (again for a retry), `read` until `ended`, then `drain` and `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        watch: TurnTimeouts,
        body: bytes,
        new_reader: Callable[[], Reader],
        *,
        bare_body: Callable[[ModelError], bytes],
    ) -> None:
        """`new_reader` makes the reader of one try, `bare_body` the request without the state that was refused."""
        self._endpoint = endpoint
        self._body = body
        self._new_reader = new_reader
        self._bare_body = bare_body
        self.left_out: tuple[LeftOut, ...] = ()
        self._response: Response | None = None
        self._blocks: AsyncGenerator[bytes, None] | None = None
        self.watch = watch
        self.ended = False

    async def open(self) -> None:
        """Sends the request; returns when the head of a success is there."""
        # Decoder and reader are made anew for each try: a retry must not see half an event of the failed one.
        self._decoder = SseDecoder()
        self._reader = self._new_reader()
        self._failure: ModelError | None = None
        self._head: bytes | None = b""  # the beginning of the body, until it is known what the body is
        self._shown = b""
        self._beginning: list[bytes] = []  # the first events
        self.ended = False
        try:
            self._response = await self.watch.guard(self._sent())
        except TransportError as error:
            raise self._broken(error) from error
        except LimitReached as error:
            raise self._too_slow(error) from error
        self._blocks = self._response.blocks()
        if not 200 <= self._response.status < 300:
            raise await self._refused(self._response)

    def without_state(self, error: ModelError) -> bool:
        """Takes the state out of the request if that is what was refused; whether it is another request now."""
        left_out = left_out_after(error, self.left_out)
        if left_out == self.left_out:
            return False
        self.left_out = left_out
        sent, self._body = self._body, self._bare_body(error)
        return self._body != sent

    async def _sent(self) -> Response:
        """The head of the answer."""
        endpoint = self._endpoint
        keys = endpoint.keys
        if keys is None:
            return await endpoint.transport.post(
                endpoint.url, endpoint.headers, self._body, connect_s=endpoint.connect_s
            )
        for last in (False, True):
            key = await keys.present()
            headers = {**endpoint.headers, **endpoint.key_headers(key)}
            response = await endpoint.transport.post(endpoint.url, headers, self._body, connect_s=endpoint.connect_s)
            if response.status != 401 or last:
                break
            # It may have ended or been withdrawn before its time: one more try with another.
            keys.refused(key)
            await response.aclose()
        return response

    async def read(self) -> list[Delta]:
        """The deltas of the next block; the last ones end with `Finish` and set `ended`."""
        if self._failure is not None:
            raise self._failure
        out: list[Delta] = []
        try:
            await self._advance(out)
        except ModelError as error:
            if self._response is not None and (found := request_id(self._response.headers, self._endpoint.mask)):
                error.detail.setdefault("request_id", found)
            # What was read before the fault is the caller's; the fault comes with the next read.
            if not out:
                raise
            self._failure = error
        return out

    async def _advance(self, out: list[Delta]) -> None:
        try:
            block = await self._next_block()
        except StopAsyncIteration:
            self._end(out)
            return
        except TransportError as error:
            # After a finish reason nothing is missing, so a broken or silent connection ends the turn well.
            if not self._reader.finished:
                raise self._broken(error) from error
            self._end(out)
            return
        except LimitReached as error:
            if not self._reader.finished:
                raise self._too_slow(error) from error
            self._end(out)
            return
        if self._head is not None:
            await self._sniff(block, out)
        else:
            self._feed(block, out)
        if self._reader.done:
            self._end(out)

    async def _next_block(self) -> bytes:
        assert self._blocks is not None
        return await self.watch.guard(self._blocks.__anext__())

    def _feed(self, block: bytes, out: list[Delta]) -> None:
        provider, reader = self._endpoint.provider, self._reader
        try:
            events = self._decoder.feed(block)
        except EventTooLong as error:
            raise failure(f"provider {provider!r}: {error}", "provider_error", provider, retryable=False) from error
        if not events:
            return
        if len(self._beginning) < MOST_EVENTS:
            self._beginning += [event.data for event in events[:MOST_EVENTS]]
        for event in events:
            reader.feed(event, out)
            if reader.done:
                break
        # Only events count as data; comments keep a connection open while the provider may have stopped.
        self.watch.data()
        if reader.finished:
            self.watch.finished()

    async def _sniff(self, block: bytes, out: list[Delta]) -> None:
        """Looks at how the body begins: providers and gateways say `text/event-stream` of anything."""
        head = (self._head or b"") + block
        # Without a visible byte nothing can be decided yet; past the limit the decoder takes what it is.
        start = head.removeprefix(_BOM).lstrip()[:1]
        if not start and len(head) < _HEAD_BYTES:
            self._head = head
            return
        self._head = None
        self._shown = head
        if start in (b"{", b"["):
            # A request for a stream can still be answered by one JSON body, an error or a whole turn.
            body = await self._rest(head, MAX_BODY_BYTES)
            self._beginning = [body.removeprefix(_BOM)]
            self._reader.feed_body(body.removeprefix(_BOM), out)
        elif start == b"<":
            raise self._reader.no_answer("a page instead of a stream", await self._rest(head, MAX_ERROR_BYTES))
        else:
            self._feed(head, out)

    def _end(self, out: list[Delta]) -> None:
        """The body is over, or nothing more is waited for."""
        if self._head is not None:  # nothing but white space came
            self._shown, self._head = self._head, None
        for event in self._decoder.close():
            self._reader.feed_pending(event, out)
        self._reader.close(out, beginning=self._shown)
        finish, response = out[-1], self._response
        self.ended = isinstance(finish, Finish)
        if isinstance(finish, Finish) and response is not None:
            mask = self._endpoint.mask
            served, answer_id = (mask(said) or None if said else None for said in read_head(self._beginning))
            asked = request_id(response.headers, mask) or answer_id
            out[-1] = msgspec.structs.replace(finish, served_model=served, request_id=asked)

    async def _rest(self, head: bytes, limit: int) -> bytes:
        """`head` and what follows of the body, at most `limit` bytes."""
        parts, size = [head], len(head)
        try:
            while size < limit:
                block = await self._next_block()
                parts.append(block)
                size += len(block)
        except StopAsyncIteration:
            pass
        except TransportError as error:
            raise self._broken(error) from error
        except LimitReached as error:
            raise self._too_slow(error) from error
        return b"".join(parts)[:limit]

    async def drain(self) -> None:
        """Reads the body's end, if it is there already, so that the connection can be used again."""
        assert self._blocks is not None
        # The turn is already whole; a failure here costs the connection's reuse and nothing else.
        with suppress(TransportError, TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(_DRAIN_S):
                while True:
                    await self._blocks.__anext__()

    async def aclose(self) -> None:
        # Cleared before the first await, so that a second close finds nothing to do.
        blocks, self._blocks = self._blocks, None
        response, self._response = self._response, None
        if blocks is not None:
            await blocks.aclose()
        if response is not None:
            await response.aclose()

    # --- errors ----------------------------------------------------------------------------------

    async def _refused(self, response: Response) -> ModelError:
        try:
            body = await self._rest(b"", MAX_ERROR_BYTES)
        except ModelError:
            body = b""  # the status says enough
        endpoint = self._endpoint
        return http_failure(
            endpoint.provider, response.status, response.headers, body, endpoint.mask, where=endpoint.place
        )

    def _broken(self, error: TransportError) -> ModelError:
        endpoint = self._endpoint
        cause = endpoint.mask(str(error))
        if error.connecting:
            text = f"provider {endpoint.provider!r} at {endpoint.place} can't be reached: {cause}; {error.hint}"
        else:
            text = f"the connection to provider {endpoint.provider!r} broke {self._reader.progress}: {cause}"
        # A refused certificate or address is refused again: a retry would only delay the error.
        return failure(text, "connection", endpoint.provider, retryable=not error.lasting, excerpt=cause)

    def _too_slow(self, error: LimitReached) -> ModelError:
        provider, seconds = self._endpoint.provider, f"{error.seconds:g} s"
        what = {
            # Without a head it may be the connection that takes so long.
            "first_data": f"did not answer for {seconds}"
            if self._response is None
            else f"sent no {'whole event' if self._decoder.is_within_event else 'data'} for {seconds}",
            "idle": f"fell silent for {seconds} {self._reader.progress}",
            "total": f"was not done after {seconds}, {self._reader.progress}",
        }[error.limit]
        # Once the head of the answer is there the provider works on the request, perhaps thinking: asked again it would
        # begin anew, and both would be paid for.
        # What some send at once (a role, `message_start`, a ping) is no part of the answer either.
        thinking = self._response is not None and not self._reader.began
        return failure(
            f"provider {provider!r} {what}",
            "timeout",
            provider,
            retryable=False if thinking else None,
            limit=error.limit,
            seconds=error.seconds,
        )
