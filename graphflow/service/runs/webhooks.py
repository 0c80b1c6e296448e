"""Webhooks: word of a run in the background each time it waits for a person or has ended, at least once (spec 3.1).

A webhook is an entry in the queue of its thread, so it outlives every process. One server at a time looks for those whose
run rests, and sends the run as `GET /api/runs/{id}` shows it. An entry leaves with its last delivery; that of a run that
waits is parked until the thread is taken again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from graphflow.checkpoints.rows import Queued, ThreadRow
from graphflow.errors import DefinitionError, Issue
from graphflow.json_data import encode_json
from graphflow.runtime.queue_codec import Webhook, decode_queued
from graphflow.runtime.runs.run_list import ENDED, RunFound, read_runs
from graphflow.service.context import ServiceContext
from graphflow.service.runs.background import subscribe
from graphflow.service.runs.run_resource import resource_of

INTERVAL_S = 1.0
AT_ONCE = 32
LONGEST_PAUSE_S = 3600.0
GONE = 410
"""A receiver that answers this wants nothing more."""

Shown = Callable[[Mapping[str, Any]], dict[str, Any]]
"""The run as clients may see it."""
log = logging.getLogger("graphflow.service")


def signing_keys(secrets: Sequence[str]) -> list[bytes]:
    """The keys of `webhooks.secrets`.

    Raises:
        DefinitionError: one is not what it says.
    """
    keys = []
    for secret in secrets:
        try:
            encoded = secret.removeprefix("whsec_")
            keys.append(secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True))
        except binascii.Error:
            keys.append(b"")
        if not keys[-1]:
            hint = "write `whsec_` and base64, or any text"
            raise DefinitionError(
                [Issue(pointer="", message="webhooks.secrets: a secret is empty or no base64", hint=hint)]
            )
    return keys


def signed(keys: Sequence[bytes], webhook_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers of the Standard Webhooks specification (https://www.standardwebhooks.com)."""
    content = f"{webhook_id}.{at_s}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


class Webhooks:
    """Delivers webhooks for one process that serves.

    Args:
        shown: the run as clients may see it.
    """

    def __init__(self, context: ServiceContext, shown: Shown) -> None:
        self._context, self._shown = context, shown
        self._keys = signing_keys(context.settings.webhooks.secrets)
        self._seen: dict[int, tuple[Any, ...]] = {}
        """Position of an entry → how its thread stood when there was nothing to send."""
        self._queued: set[int] = set()
        """Positions of those whose runs were in the queue then: a run that is withdrawn changes nothing of its thread."""

    async def serve(self) -> None:
        """Delivers what is due, again and again, until it is cancelled."""
        while self._keys:
            try:
                if not self._context.stopping:
                    await self.look()
            except Exception:  # a store that is locked for a moment must not end the deliveries
                log.exception("looking for webhooks failed; it tries again")
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Delivers what is due, once."""
        if not await self._due():
            return
        # One server at a time: others would send the same again.
        async with self._context.store.alone("webhooks") as mine:
            if not mine:
                return
            room = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for entry, row in await self._due():
                    group.create_task(self._handle(room, entry, row))

    async def _due(self) -> list[tuple[Queued, ThreadRow]]:
        now, known = self._context.clock.now_ms(), self._seen
        listed = await self._context.store.unparked("webhook")
        self._seen = {entry.position: known[entry.position] for entry, _ in listed if entry.position in known}
        self._queued &= self._seen.keys()
        return [
            (entry, row)
            for entry, row in listed
            if (entry.position in self._queued or self._seen.get(entry.position) != self._mark(row))
            and self._is_due(decode_queued(entry), row, now)
        ]

    def _is_due(self, webhook: Webhook, row: ThreadRow, now: int) -> bool:
        if webhook.not_before > now:
            return False
        return row.facts.run_id != webhook.run_id or not self._context.runs.is_driven(row)

    def _mark(self, row: ThreadRow) -> tuple[Any, ...]:
        return row.fence, row.head, row.facts.status, self._context.runs.is_driven(row)

    async def _handle(self, room: asyncio.Semaphore, entry: Queued, row: ThreadRow) -> None:
        async with room:
            try:
                unchanged = self._seen.get(entry.position) == self._mark(row)
                self._seen[entry.position] = self._mark(row)
                await self._deliver(entry, row, decode_queued(entry), unchanged)
            except Exception:  # one that can't be read must not hold up the others
                self._seen.pop(entry.position, None)
                log.exception("a webhook of thread %s could not be handled; it is tried again", row.thread_id)

    async def _deliver(self, entry: Queued, row: ThreadRow, webhook: Webhook, unchanged: bool) -> None:
        store = self._context.store
        if unchanged and await store.find_run(webhook.run_id) == row.thread_id:
            return  # still in the queue
        self._queued.discard(entry.position)
        found = (await read_runs(self._context.runs, [(webhook.run_id, row)], logs=True))[0]
        if await store.find_run(webhook.run_id) != row.thread_id:  # withdrawn from the queue, or refused at its turn
            found = RunFound(info=replace(found.info, status="cancelled"))
        status = found.info.status
        if status == "queued":
            self._queued.add(entry.position)
        if status == "queued" and row.facts.status == "waiting":
            await store.park(row.thread_id, row.fence, position=entry.position)
        if status != "waiting" and status not in ENDED:
            return
        resource = self._shown(await resource_of(self._context, found))
        webhook_id = f"{webhook.run_id}_{found.info.checkpoint_id or 'none'}_{status}"
        failure, final = await self._send(webhook.url, webhook_id, encode_json(resource))
        attempts = webhook.attempts + 1
        if failure is not None and not final and attempts < self._context.settings.webhooks.max_attempts:
            log.info("webhook of run %s, attempt %d: %s; tried again later", webhook.run_id, attempts, failure)
            await self._replace(entry, replace(webhook, attempts=attempts, not_before=self._later(attempts)))
            return
        if failure is not None:
            log.warning("webhook of run %s, attempt %d: %s; given up", webhook.run_id, attempts, failure)
        if status != "waiting":
            await store.withdraw(row.thread_id, entry.position)
            return
        position = entry.position
        if webhook.attempts:
            position = await self._replace(entry, Webhook(run_id=webhook.run_id, url=webhook.url))
            self._seen[position] = self._mark(row)
        await store.park(row.thread_id, row.fence, position=position)

    async def _replace(self, entry: Queued, webhook: Webhook) -> int:
        # The new one first: a crash in between sends twice, and loses nothing.
        position = await subscribe(self._context, entry.thread_id, webhook)
        await self._context.store.withdraw(entry.thread_id, entry.position)
        return position

    def _later(self, attempts: int) -> int:
        pause_s = min(LONGEST_PAUSE_S, self._context.settings.webhooks.retry_s * 2 ** (attempts - 1))
        return self._context.clock.now_ms() + int(pause_s * 1000)

    async def _send(self, url: str, webhook_id: str, body: bytes) -> tuple[str | None, bool]:
        """Why it was not taken, and whether trying again is of no use. Never names the URL, which may hold a secret."""
        import httpx

        from graphflow.tools.builtin.addresses import (
            RequestRefused,
            open_client,
            parsed_url,
            pinned_request,
            public_address,
        )

        settings = self._context.settings.webhooks
        headers = {"Content-Type": "application/json", "User-Agent": "graphflow"}
        headers |= signed(self._keys, webhook_id, self._context.clock.now_ms() // 1000, body)
        try:
            async with asyncio.timeout(settings.timeout_s), await open_client(settings.timeout_s) as client:
                target = parsed_url(url)
                address = await public_address(target, settings.private_hosts)
                request = pinned_request(client, "POST", target, address, headers, body)
                response = await client.send(request, stream=True, follow_redirects=False)
                status = response.status_code
                await response.aclose()
        except RequestRefused:
            return "its host has no public address", False
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            return f"no answer ({type(error).__name__})", False
        return (None if 200 <= status < 300 else f"the receiver answered {status}"), status == GONE
