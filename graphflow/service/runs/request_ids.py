"""`requestId`: a request that is sent again joins what the first one began, on every server over the store (spec 3.1).

What was asked under an id is kept for a day as a line in one of 4,096 notes of the store, which change by compare-and-set.
A line is written before anything begins, so of two requests at once one finds the other's, and marked once the request was
accepted. A refused request leaves no line: it may be sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from graphflow.errors import GraphflowError
from graphflow.service.access import Caller
from graphflow.service.context import ServiceContext

KEPT_MS = 24 * 3600 * 1000
MOST = 256
"""Lines of a note. Beyond it the oldest of whoever has most goes, so that nobody drives out others."""
ABANDONED_MS = 30_000
"""A line that is not marked was left by a server that died; the server refreshes it three times in that period."""
LOOK_S = 0.05


class AsDict(Protocol):
    """The body of a request."""

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


class AskedBefore(msgspec.Struct, frozen=True, array_like=True):
    """A request under an id."""

    key: bytes
    user: bytes
    body: bytes
    at: int
    """Epoch ms."""
    run_id: str
    after: int = 0
    """The requester's stream has the events with higher numbers."""
    accepted: bool = False


class Claim:
    """What a request finds: `before`, if it was sent and accepted before, else the id of the run that it may begin."""

    def __init__(self, run_id: str, before: AskedBefore | None = None) -> None:
        self.run_id, self.before = run_id, before
        self.after = 0
        self.is_accepted = False

    def accept(self, run_id: str, after: int = 0) -> None:
        """The request has begun this run, or joined it at this place."""
        self.run_id, self.after, self.is_accepted = run_id, after, True


_decoder = msgspec.msgpack.Decoder(list[AskedBefore])


@asynccontextmanager
async def once(
    context: ServiceContext, caller: Caller, what: str, request_id: str | None, body: AsDict
) -> AsyncIterator[Claim]:
    """The claim of a request to be the first under its id; kept if it is accepted within the block.

    Args:
        what: the kind of request, and what it names outside its body.

    Raises:
        GraphflowError: `request_id_reused` when the id came with another body.
    """
    if request_id is None:
        yield Claim("")
        return
    await context.runs.ready()
    whose = f"@{caller.user}" if caller.user is not None else caller.name  # no name of a token begins so
    key = _digest(what.partition(" ")[0], whose, request_id)
    text = await asyncio.to_thread(json.dumps, body.model_dump(mode="json"), sort_keys=True)
    line = AskedBefore(
        key=key,
        user=_digest(whose)[:4],
        body=await asyncio.to_thread(_digest, what, text),
        at=context.clock.now_ms(),
        run_id=context.ids.new_id(),
    )
    note = f"request-ids-1-{key.hex()[:3]}"
    before = await _claim(context, note, line, request_id)
    if before is not None:
        yield Claim(before.run_id, before)
        return
    claim = Claim(line.run_id)
    refreshing = asyncio.ensure_future(_refresh(context, note, line))  # noqa: TID251 - ended below
    try:
        yield claim
    finally:
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)
        # A run that has begun belongs to the id, whatever failed after it.
        if not claim.is_accepted and await context.store.find_run(line.run_id) is not None:
            claim.accept(line.run_id)
        done = replace(line, run_id=claim.run_id, after=claim.after, accepted=True) if claim.is_accepted else None
        await asyncio.shield(_put(context, note, line.key, done))


async def _claim(context: ServiceContext, note: str, line: AskedBefore, request_id: str) -> AskedBefore | None:
    """Writes the line; or the request that was accepted under the same id."""
    store = context.store
    while True:
        old = await store.note(note)
        now = context.clock.now_ms()
        lines = [] if old is None else [known for known in _decoder.decode(old) if known.at > now - KEPT_MS]
        found = next((known for known in lines if known.key == line.key), None)
        if found is not None:
            if found.body != line.body:
                raise GraphflowError(
                    f"requestId {request_id!r} was used in the last 24 hours with another body; a new request needs a new id",
                    code="request_id_reused",
                )
            if found.accepted or await store.find_run(found.run_id) is not None:
                return found
            if found.at > now - ABANDONED_MS:  # it is being accepted, here or elsewhere
                context.refuse_when_stopping()
                await asyncio.sleep(LOOK_S)
                continue
            lines.remove(found)
        if await store.swap_note(note, _encoded([*lines, replace(line, at=now)]), instead_of=old):
            return None


async def _refresh(context: ServiceContext, note: str, line: AskedBefore) -> None:
    while True:
        await asyncio.sleep(ABANDONED_MS / 3000)
        with suppress(GraphflowError):  # a store that is locked for a moment
            await _put(context, note, line.key, replace(line, at=context.clock.now_ms()))


async def _put(context: ServiceContext, note: str, key: bytes, line: AskedBefore | None) -> None:
    """Keeps this line in the place of that with the key, or none."""
    while True:
        old = await context.store.note(note)
        others = [known for known in _decoder.decode(old or b"\x90") if known.key != key]
        new = others if line is None else [*others, line]
        if await context.store.swap_note(note, _encoded(new), instead_of=old):
            return


def _encoded(lines: list[AskedBefore]) -> bytes:
    while len(lines) > MOST:
        (user, _), *_ = Counter(line.user for line in lines).most_common(1)
        lines.remove(min((line for line in lines if line.user == user), key=lambda line: line.at))
    return msgspec.msgpack.encode(lines)


def _digest(*texts: str) -> bytes:
    whole = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.digest()[:16]
