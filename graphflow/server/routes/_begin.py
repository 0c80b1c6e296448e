"""The one way in which a route starts a run: once per `requestId`, followed or in the background (spec 3.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from graphflow.runtime.runs.remote_answer import RemoteRun
from graphflow.server.auth import caller_of
from graphflow.server.envelope import success
from graphflow.server.routes._again import again
from graphflow.server.routes._parts import application, named, one_body, room_for_run, stream_run
from graphflow.server.routes._queued import one_body_elsewhere, one_body_later, stream_elsewhere, stream_later
from graphflow.service.access import Caller
from graphflow.service.application import Application
from graphflow.service.queued_inputs import QueuedInput
from graphflow.service.requests import bad_argument
from graphflow.service.runs.background import accepted_again, check_webhook, in_background, keep_webhook, make_durable
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.request_ids import once

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.responses import Response

    from graphflow.server.bodies import StartsRun

Begun = StartedRun | QueuedInput | RemoteRun
Start = Callable[[Application, Caller, str | None], Awaitable[Begun]]
"""Starts what a route is asked for; gets the id for a run that is new, if it has one already."""
ACCEPTED: dict[int | str, Any] = {202: {"description": "The run goes on in the background."}}
"""Beside the stream, in the documents of such a route."""


async def begin(
    request: Request,
    given: StartsRun,
    what: str,
    start: Start,
    *,
    counted: bool = True,
) -> Response:
    """Starts a run and streams its events; with `stream: false` one body when it ends or waits, with `background` 202.

    Args:
        what: the kind of request, and what it names outside its body.
        start: begins it; see `Start`.
        counted: it needs room among the runs; what was let in once does not.
    """
    caller, context = caller_of(request), application(request)
    if given.background and given.on_disconnect == "cancel":
        raise bad_argument("onDisconnect", "`cancel` does not go with `background`: nobody stays connected")
    # Without an id there is nothing to claim: the commonest request goes straight to its run.
    async with (
        nullcontext() if given.request_id is None else once(context, caller, what, given.request_id, given) as claim
    ):
        if claim is not None and claim.before is not None:
            if given.background:
                return _accepted(await accepted_again(context, claim.before.run_id, given.request_id, given.webhook))
            return await again(request, claim.before, given)
        if given.webhook is not None:
            await check_webhook(context, given.webhook, background=given.background)
        # The room counts while the run is being begun; then the run itself counts.
        with room_for_run(request) if counted else nullcontext():
            begun = await start(context, caller, None if claim is None else claim.run_id)
        if isinstance(begun, StartedRun) and given.request_id is not None:
            begun = replace(begun, request_id=given.request_id)
        if not isinstance(begun, RemoteRun) and (given.background or claim is not None):
            await make_durable(begun)
        data = None
        if given.background:
            if isinstance(begun, RemoteRun):
                if given.webhook is not None:
                    await keep_webhook(context, begun.thread_id, begun.run_id, given.webhook)
                data = await accepted_again(context, begun.run_id, given.request_id, None)
            else:
                data = await in_background(context, begun, given.webhook)
        if claim is not None:
            claim.accept(begun.run_id, 0 if data is not None else _after(begun))
        if data is not None:
            return _accepted(data)
    return await _follow(request, given, begun)


def _after(begun: Begun) -> int:
    """The number of the last event that is not the requester's."""
    if isinstance(begun, RemoteRun):
        return begun.seq
    return begun.after if isinstance(begun, StartedRun) else 0


async def _follow(request: Request, given: StartsRun, begun: Begun) -> Response:
    if isinstance(begun, RemoteRun):
        if given.stream:
            return stream_elsewhere(request, begun, given.events)
        return await one_body_elsewhere(request, begun)
    if isinstance(begun, QueuedInput):
        if given.stream:
            return stream_later(request, begun, given.events, given.on_disconnect)
        return await one_body_later(request, begun, given.on_disconnect)
    if given.stream:
        return stream_run(request, begun, given.events, given.on_disconnect)
    return await one_body(request, begun, given.on_disconnect)


def _accepted(data: dict[str, Any]) -> Response:
    return named(success(data, status=202, headers={"Location": data["links"]["run"]}), data["runId"])
