"""Runs in the background: the client leaves with the run's id, and is sent word if it asked for that (spec 3.1)."""

from __future__ import annotations

import asyncio
from typing import Any

from graphflow.runtime.queue_codec import Webhook, encode_queued, kind_of
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import QueuedInput
from graphflow.service.requests import bad_argument
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.run_resource import links_of

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
        rule = "must be an http or https URL whose host has a public address, or is one of `webhooks.private_hosts`"
        raise bad_argument("webhook", rule) from None


async def in_background(
    context: ServiceContext, begun: StartedRun | QueuedInput, webhook: str | None
) -> dict[str, Any]:
    """What the client is told of a run that was accepted: it is durable, and so is the wish for word of it."""
    if isinstance(begun, StartedRun) and begun.run.journal is not None:
        await begun.run.journal.flush()
    if webhook is not None:
        await subscribe(context, begun.chat_id, Webhook(run_id=begun.run_id, url=webhook))
    out = {
        "runId": begun.run_id,
        "chatId": begun.chat_id,
        "requestId": begun.request_id,
        "status": "queued" if isinstance(begun, QueuedInput) else "running",
        "queuePosition": begun.place if isinstance(begun, QueuedInput) else None,
        "links": links_of(begun.run_id, begun.chat_id),
    }
    return {key: value for key, value in out.items() if value is not None}


async def subscribe(context: ServiceContext, thread_id: str, webhook: Webhook) -> int:
    """Keeps the webhook with its thread; its place there."""
    body = encode_queued(webhook)
    return await context.store.enqueue(thread_id, body, now=context.clock.now_ms(), kind=kind_of(webhook))
