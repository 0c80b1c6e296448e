"""Runs in the background: the client leaves with the run's id, and is sent word if it asked for that (spec 3.1)."""

from __future__ import annotations

import asyncio
from typing import Any

from graphflow.runtime.queue_codec import Webhook, decode_queued, encode_queued, kind_of
from graphflow.runtime.runs.run_list import ENDED, QUEUED
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import QueuedInput, find_queued
from graphflow.service.requests import bad_argument
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.run_resource import links_of, run_resource

RESOLVE_S = 5.0


async def check_webhook(context: ServiceContext, url: str, *, background: bool) -> None:
    """Refuses what no webhook can be sent to; each delivery checks the address again.

    Raises:
        GraphflowError: `invalid_input`.
    """
    from graphflow.tools.builtin.addresses import RequestRefused, parsed_url, public_address

    settings = context.settings.webhooks
    if not background:
        raise bad_argument("webhook", "needs `background: true`")
    if not settings.secrets:
        raise bad_argument("webhook", "the server has no secret to sign it with; set `webhooks.secrets`")
    try:
        target = parsed_url(url)
        if target.userinfo:
            raise bad_argument("webhook", "must not hold a user or a password; the signature says who calls")
        async with asyncio.timeout(RESOLVE_S):
            await public_address(target, settings.private_hosts)
    except (RequestRefused, TimeoutError):
        # Which address a name has here is nothing for clients.
        rule = "must be an http or https URL, with a port from 1 to 65535 if any, whose host has a public address, or is one of `webhooks.private_hosts`"
        raise bad_argument("webhook", rule) from None


async def make_durable(begun: StartedRun | QueuedInput) -> None:
    """Returns when the run would be known after a crash; a queued one is."""
    if isinstance(begun, StartedRun) and begun.run.journal is not None:
        await begun.run.journal.flush()


async def in_background(
    context: ServiceContext, begun: StartedRun | QueuedInput, webhook: str | None
) -> dict[str, Any]:
    """What the client is told of a durable run, once the wish for word of it is durable too."""
    if webhook is not None:
        await keep_webhook(context, begun.chat_id, begun.run_id, webhook)
    place = begun.place if isinstance(begun, QueuedInput) else None
    status = "running" if place is None else "queued"
    return _accepted(begun.run_id, begun.chat_id, begun.request_id, status, place)


async def accepted_again(
    context: ServiceContext, run_id: str, request_id: str | None, webhook: str | None
) -> dict[str, Any]:
    """The same for a client that asks again.

    Raises:
        ThreadNotFound: the run is gone.
    """
    found = await run_resource(context, run_id)
    thread_id, status = found["threadId"], found["status"]
    if webhook is not None and status not in ENDED:
        # The server may have died after it began the run, and before it kept the webhook.
        await keep_webhook(context, thread_id, run_id, webhook)
    queued = await find_queued(context, run_id) if status == "queued" else None
    return _accepted(run_id, thread_id, request_id, status, None if queued is None else queued.place)


def _accepted(run_id: str, chat_id: str, request_id: str | None, status: str, place: int | None) -> dict[str, Any]:
    out = {
        "runId": run_id,
        "chatId": chat_id,
        "requestId": request_id,
        "status": status,
        "queuePosition": place,
        "links": links_of(run_id, chat_id),
    }
    return {key: value for key, value in out.items() if value is not None}


async def keep_webhook(context: ServiceContext, thread_id: str, run_id: str, url: str) -> None:
    """Keeps the webhook of a run, which has one at most: a run that goes on may have been given it before."""
    kept = await context.store.queue(thread_id, kind="webhook", limit=QUEUED)
    if all(decode_queued(entry).run_id != run_id for entry in kept):
        await subscribe(context, thread_id, Webhook(run_id=run_id, url=url))


async def subscribe(context: ServiceContext, thread_id: str, webhook: Webhook) -> int:
    """Keeps the webhook with its thread; its place there."""
    body = encode_queued(webhook)
    return await context.store.enqueue(thread_id, body, now=context.clock.now_ms(), kind=kind_of(webhook))
