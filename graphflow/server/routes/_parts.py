"""What the routers share: the application behind a request, and runs as responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import Query, Request
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from graphflow.errors import GraphflowError
from graphflow.graph.core.immutable import thaw
from graphflow.runtime.result import RunResult, result_from
from graphflow.server.envelope import rested
from graphflow.server.paths import put_slashes_back
from graphflow.server.rate_limits import RunLimit
from graphflow.server.sse import EventStream
from graphflow.service.application import Application
from graphflow.service.inbox import interrupt_dict
from graphflow.service.requests import bad_argument
from graphflow.service.run_log import StreamFrame
from graphflow.service.runs.event_stream import follow
from graphflow.service.runs.input_queue import StartedRun
from graphflow.telemetry.run_metrics import ServerMetrics

T = TypeVar("T")
R = TypeVar("R", bound=Response)
RUN_ID = "Graphflow-Run-Id"
Limit = Annotated[int, Query(ge=1, le=500, description="Lines of a page.")]
Cursor = Annotated[str | None, Query(description="`cursor` of the page before.")]
METADATA = "metadata."
Metadata = Annotated[
    str | None,
    Query(
        alias="metadata.{key}", description="Only threads whose metadata have `key` with this value; repeatable by key."
    ),
]
"""Any parameter whose name begins so; `metadata_of` reads them."""
EVENTS: dict[str, Any] = {
    "responses": {
        200: {"content": {"text/event-stream": {}}, "description": "The run's events (docs/reference/events.md)."}
    }
}


def application(request: Request) -> Application:
    found: Application = request.app.state.application
    return found


async def check_parameters(request: Request) -> None:
    """Refuses U+0000 in a path and its query, and a query parameter that the route does not have or that is given twice.

    Raises:
        GraphflowError: `invalid_input`.
    """
    # Here, before anything reads them: this is the first dependency of every route.
    if request.path_params:
        put_slashes_back(request.path_params)
    given = request.query_params.multi_items()
    for name, value in (*request.path_params.items(), *given):
        # No name has it, and not every store can even look for it.
        if "\0" in name + value:
            raise bad_argument(to_camel(name.replace("\0", "\\0")), "must not hold the character U+0000")
    route = request.scope["route"]
    # A page for people ignores what mail programs and search engines append to its address.
    if not given or not route.include_in_schema:
        return
    known = [field.alias for field in route.dependant.query_params]
    names = [name for name, _ in given]
    for name in names:
        # A misspelt filter that is ignored would return everything.
        if name not in known and not (name.startswith(METADATA) and METADATA + "{key}" in known):
            raise bad_argument(f"{name:.80}", f"unknown parameter; parameters are {', '.join(known) or 'none'}")
        if names.count(name) > 1:
            raise bad_argument(name, "given more than once")


def metadata_of(request: Request) -> dict[str, str]:
    """The values of `metadata.KEY=VALUE` by key."""
    given = request.query_params.items()
    return {name.removeprefix(METADATA): value for name, value in given if name.startswith(METADATA)}


def room_for_run(request: Request) -> AbstractContextManager[None]:
    """Room for the run that the request begins; raises `overloaded` when there is none."""
    limit: RunLimit | None = request.app.state.run_limit
    return nullcontext() if limit is None else limit.room(application(request))


def families_of(text: str | None) -> tuple[str, ...] | None:
    """`?events=contract,graph`.

    Raises:
        GraphflowError: `invalid_input` for an unknown family.
    """
    if text is None or not text.strip():
        return None
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if unknown := [word for word in words if word not in ("contract", "graph")]:
        raise bad_argument("events", f"{unknown[0]!r} is not an event family; use contract or graph")
    return words


def stream(
    request: Request,
    run_id: str,
    batches: AsyncIterator[list[StreamFrame]],
    families: Collection[str] | None,
    left: Callable[[], None] | None = None,
) -> EventStream:
    heartbeat_s = application(request).settings.server.heartbeat_s
    metrics: ServerMetrics = request.app.state.metrics
    return EventStream(
        batches,
        _header(run_id),
        families=families,
        heartbeat_s=heartbeat_s,
        left=left,
        count=metrics.streams.add,
    )


def named(response: R, run_id: str) -> R:
    """The response with its run in the header, which a client has before the first event."""
    response.headers.update(_header(run_id))
    return response


def _header(run_id: str) -> dict[str, str]:
    return {RUN_ID: quote(run_id, safe=":")}  # an older id may have what no header can carry


def stream_run(
    request: Request, begun: StartedRun, families: Collection[str] | None, on_disconnect: str
) -> EventStream:
    """A run that this request has set going, as its events."""
    assert begun.run.log is not None
    # Leaving a stream only unsubscribes, unless the client asked for a cancel.
    left = begun.run.executor.cancel if on_disconnect == "cancel" else None
    return stream(request, begun.run_id, follow(begun.run.log, begun.after), families, left)


async def one_body(request: Request, begun: StartedRun, on_disconnect: str) -> Response:
    """A run that this request has set going, as one JSON body once it rests."""
    if await left_by(request, begun.run.over.wait()) is None:
        if on_disconnect == "cancel":
            begun.run.executor.cancel()
        return Response(status_code=499)
    return named(rested(outcome(begun)), begun.run_id)


async def left_by(request: Request, wanted: Coroutine[Any, Any, T]) -> T | None:
    """What is awaited, or None when the client leaves before."""
    task = asyncio.ensure_future(wanted)  # noqa: TID251 - awaited or cancelled below
    watch = asyncio.ensure_future(_left(request))  # noqa: TID251 - cancelled below
    try:
        # `receive` is the only way to learn that the client left, so it is awaited together with the result.
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def outcome(begun: StartedRun) -> dict[str, Any]:
    """The outcome of a run that rests: the answer, usage, and the questions if it paused.

    Raises:
        GraphflowError: the store failed.
    """
    executor = begun.run.executor
    if executor.error is not None:
        raise executor.error
    # A shutdown leaves the run at a checkpoint, so it has no outcome yet.
    if begun.run.executor.abandoned:
        raise GraphflowError(
            "the server stopped before the run's end; resume it", code="shutting_down", runId=begun.run_id
        )
    result = result_from(executor.plan, executor.machine, begun.chat_id, executor.checkpoint_id)
    # A resumed run has no request of its own.
    ids = {"requestId": begun.request_id, "chatId": begun.chat_id}
    return {key: value for key, value in ids.items() if value is not None} | result_dict(result)


def result_dict(result: RunResult) -> dict[str, Any]:
    """A run's outcome as a body shows it."""
    out = {
        "runId": result.run_id,
        "status": result.status,
        "answer": thaw(result.output),
        "finishReason": result.finish_reason,
        "usage": result.usage,
        "checkpointId": result.checkpoint_id,
        "interrupts": [interrupt_dict(interrupt) for interrupt in result.interrupts] or None,
        "error": result.error,
    }
    return {key: value for key, value in out.items() if value is not None}
