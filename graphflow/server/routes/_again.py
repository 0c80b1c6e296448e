"""Responses to a request that was sent before under the same `requestId`: they join what the first one began (spec 3.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.responses import Response

from graphflow.server.envelope import rested
from graphflow.server.routes._parts import application, left_by, named, one_body, result_dict, stream
from graphflow.server.routes._queued import one_body_later, stream_later
from graphflow.service.queued_inputs import find_queued, find_run
from graphflow.service.requests import unknown_run
from graphflow.service.run_log import StreamFrame
from graphflow.service.runs.event_stream import join
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.remote_runs import result_elsewhere

if TYPE_CHECKING:
    from fastapi import Request

    from graphflow.server.bodies import StartsRun
    from graphflow.service.runs.request_ids import AskedBefore


async def again(request: Request, before: AskedBefore, given: StartsRun) -> Response:
    """What the first request gets, or got; leaving ends nothing.

    Raises:
        ThreadNotFound: the run is gone: its thread was deleted, or it was removed from the queue.
    """
    app, run_id = application(request), before.run_id
    queued = await find_queued(app, run_id)
    if queued is not None:
        if given.stream:
            return stream_later(request, queued, given.events, "keep")
        return await one_body_later(request, queued, "keep")
    if given.stream:
        batches = await join(app, run_id)
        assert batches is not None  # only for who has all of it already
        return stream(request, run_id, _after(batches, before.after), given.events)
    live = next((live for live in app.runs.by_thread.values() if live.run_id == run_id), None)
    if live is not None:
        begun = StartedRun(run=live, run_id=run_id, chat_id=live.thread_id, request_id=given.request_id)
        return await one_body(request, begun, "keep")
    thread_id = await find_run(app, run_id)
    if thread_id is None:
        raise unknown_run(run_id)
    result = await left_by(request, result_elsewhere(app, thread_id, run_id))
    if result is None:
        return Response(status_code=499)
    return named(rested({"requestId": given.request_id, "chatId": thread_id} | result_dict(result)), run_id)


async def _after(batches: AsyncIterator[list[StreamFrame]], after: int) -> AsyncIterator[list[StreamFrame]]:
    """The frames with higher numbers."""
    async for batch in batches:
        # A `stream.reset` has neither id nor number.
        if left := [frame for frame in batch if frame[0] is None or frame[1].seq > after]:
            yield left
