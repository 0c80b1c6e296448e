"""Responses for inputs that wait for their turn: the response waits with them (spec 3.1, `onBusy: enqueue`).

The headers tell the run's id and its place at once. The stream is silent (but for heartbeats) until the run begins. A
client that leaves rejoins by the run's id; the input stays in the queue unless `onDisconnect: cancel` was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from graphflow.errors import GraphflowError, ThreadNotFound
from graphflow.events import RunCancel, RunError
from graphflow.runtime.runs.remote_answer import RemoteRun
from graphflow.server.envelope import rested, success
from graphflow.server.routes._parts import application, left_by, named, one_body, result_dict, stream
from graphflow.server.sse import EventStream
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import QueuedInput
from graphflow.service.run_log import StreamFrame
from graphflow.service.runs import input_queue
from graphflow.service.runs.event_stream import follow
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.remote_runs import follow_stored, result_elsewhere

if TYPE_CHECKING:
    from fastapi import Request

PLACE = "Graphflow-Queue-Position"


def stream_later(
    request: Request, queued: QueuedInput, families: Collection[str] | None, on_disconnect: str
) -> EventStream:
    """The run's events, once its turn has come."""
    app = application(request)
    begun: list[StartedRun] = []

    def left() -> None:
        if begun:
            begun[0].run.executor.cancel()
        else:
            # A plain callback can't await, so the withdrawal is a task of its own.
            task = asyncio.ensure_future(input_queue.withdraw(app, queued))  # noqa: TID251 - a single write to the store
            _withdrawing.add(task)
            task.add_done_callback(_withdrawing.discard)

    batches = _batches(app, queued, begun)
    response = stream(request, queued.run_id, batches, families, left if on_disconnect == "cancel" else None)
    response.headers[PLACE] = str(queued.place)
    return response


# The event loop holds tasks weakly; this keeps a withdrawal alive until it is done.
_withdrawing: set[asyncio.Task[bool]] = set()


async def _batches(
    app: ServiceContext, queued: QueuedInput, begun: list[StartedRun]
) -> AsyncIterator[list[StreamFrame]]:
    run_id = queued.run_id
    try:
        turn = await input_queue.wait_for_turn(app, queued)
    except GraphflowError as refusal:
        if refusal.code == "shutting_down":
            return  # its turn comes in another process: the client rejoins
        yield [(None, RunError(run_id=run_id, error=refusal.as_dict(), seq=1, timestamp=app.clock.now_ms()))]
        return
    if isinstance(turn, StartedRun):
        begun.append(turn)
        assert turn.run.log is not None
        async for batch in follow(turn.run.log, turn.after):
            yield batch
    # A withdrawn run is known nowhere any more; one that another process has begun is.
    elif await app.store.find_run(run_id) is None:
        yield [(None, RunCancel(run_id=run_id, seq=1, timestamp=app.clock.now_ms()))]
    else:
        async for batch in follow_stored(app, queued.chat_id, run_id):
            yield batch


async def one_body_later(request: Request, queued: QueuedInput, on_disconnect: str) -> Response:
    """The run's outcome, once its turn has come and it rests."""
    app = application(request)
    turn = await left_by(request, input_queue.wait_for_turn(app, queued))
    if turn is None:
        if on_disconnect == "cancel":
            await input_queue.withdraw(app, queued)
        return Response(status_code=499)
    if isinstance(turn, StartedRun):
        return await one_body(request, turn, on_disconnect)
    if await app.store.find_run(queued.run_id) is None:
        return named(success(_ids(queued) | {"status": "cancelled"}), queued.run_id)
    result = await left_by(request, _result(app, queued))
    if result is None:
        return Response(status_code=499)
    return named(rested(_ids(queued) | result_dict(result)), queued.run_id)


def stream_elsewhere(request: Request, run: RemoteRun, families: Collection[str] | None) -> EventStream:
    """A run that another server drives, from this request's answers on."""
    batches = follow_stored(application(request), run.thread_id, run.run_id, after=run.seq)
    return stream(request, run.run_id, batches, families)


async def one_body_elsewhere(request: Request, run: RemoteRun) -> Response:
    """The outcome of a run that another server drives."""
    result = await left_by(request, run.result())
    if result is None:
        return Response(status_code=499)
    return named(rested({"chatId": run.thread_id, "runId": run.run_id} | result_dict(result)), run.run_id)


async def _result(app: ServiceContext, queued: QueuedInput) -> Any:
    try:
        return await result_elsewhere(app, queued.chat_id, queued.run_id)
    except ThreadNotFound as gone:
        raise GraphflowError(gone.message, code="cancelled") from None


def _ids(queued: QueuedInput) -> dict[str, Any]:
    ids = {"requestId": queued.request_id, "chatId": queued.chat_id, "runId": queued.run_id}
    return {name: value for name, value in ids.items() if value is not None}
