"""Queries, answers, and joining a run (spec 3.1)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from msgspec.structs import replace
from starlette.responses import Response

from graphflow.faces import spoken
from graphflow.public_text import public_text
from graphflow.runtime.runs.run_list import RunState
from graphflow.server.auth import caller_of, needs
from graphflow.server.bodies import QueryBody, SubmitBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.public_failures import public_failure
from graphflow.server.routes._begin import ACCEPTED, Begun, begin
from graphflow.server.routes._parts import (
    EVENTS,
    Cursor,
    Limit,
    application,
    families_of,
    named,
    stream,
)
from graphflow.server.routes._queued import stream_later
from graphflow.service.access import Caller
from graphflow.service.application import Application
from graphflow.service.queued_inputs import find_queued
from graphflow.service.requests import SubmitRequest, bad_argument
from graphflow.service.runs.event_stream import join
from graphflow.service.runs.query import query
from graphflow.service.runs.request_ids import once
from graphflow.service.runs.run_resource import list_runs, run_resource
from graphflow.service.runs.submit import accepted_before, submit

router = APIRouter(prefix="/api", tags=["runs"])


@router.post(
    "/query",
    summary="Start a run",
    dependencies=[Depends(needs("run"))],
    openapi_extra=schema(QueryBody),
    responses={**EVENTS["responses"], **ACCEPTED},
)
async def start(request: Request, given: Annotated[QueryBody, Depends(body(QueryBody))]) -> Response:
    """Starts a run and streams its events; with `stream: false` returns one JSON body when it ends or waits, with `background` 202."""

    def start_query(context: Application, caller: Caller, run_id: str | None) -> Awaitable[Begun]:
        wanted = given.to_request()
        return query(context, wanted if run_id is None else replace(wanted, run_id=run_id), caller=caller)

    return await begin(request, given, "query", start_query)


@router.post(
    "/submit", summary="Answer an interrupt", dependencies=[Depends(needs("answer"))], openapi_extra=schema(SubmitBody)
)
async def answer(request: Request, given: Annotated[SubmitBody, Depends(body(SubmitBody))]) -> Response:
    """Answers an interrupt; an answer that is not accepted changes nothing: `accepted` is false, `status`, `code` and `detail` say why.
    `unmatched`: `interrupt_not_found`, `thread_not_found`. `stale`: `answer_stale`. `invalid`: `answer_invalid`, `answer_forbidden`,
    `answer_ambiguous`, `limit_exceeded`.
    """
    # Not a required field: the reference gateway's clients know only `toolId`.
    if (asked := given.interrupt_id or given.tool_id) is None:
        raise bad_argument("interruptId", "give `interruptId` or `toolId` of the `interrupt.request` that is answered")
    wanted = SubmitRequest(
        chat_id=given.chat_id,
        run_id=given.run_id,
        asked=asked,
        tool_id=given.tool_id,
        payload=given.payload,
        request_id=given.request_id,
        view_id=given.view_id,
    )
    caller, context = caller_of(request), application(request)
    async with once(context, caller, "submit", given.request_id, given) as claim:
        if claim.before is not None:
            return named(success(accepted_before(wanted)), given.run_id)
        submitted = await submit(context, wanted, caller=caller)
        if submitted.detail is not None:
            submitted = replace(submitted, detail=public_text(spoken(submitted.detail, "http")))
        if submitted.accepted:
            claim.accept(given.run_id)
    return named(success(submitted), submitted.run_id) if submitted.accepted else success(submitted)


@router.get("/runs", summary="List runs", dependencies=[Depends(needs("read"))])
async def runs(
    request: Request,
    status: Annotated[RunState | None, Query()] = None,
    thread_id: Annotated[str | None, Query(alias="threadId")] = None,
    agent_key: Annotated[str | None, Query(alias="agentKey")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Runs, newest first, those that have not begun included. A rewind, fork or edit is none until the thread goes on or waits
    there. A page may be shorter than `limit` although more follow: read on while there is a `cursor`.
    """
    lines, following = await list_runs(
        application(request),
        status=status,
        thread_id=thread_id,
        agent_key=agent_key,
        user=caller_of(request).user,
        cursor=cursor,
        limit=limit,
    )
    return success([public_failure(line) for line in lines], cursor=following)


@router.get("/runs/{run_id}", summary="Get a run", dependencies=[Depends(needs("read"))])
async def run(request: Request, run_id: str) -> Response:
    """Status, times, usage, open questions, and the answer or the error of a run that has ended."""
    return success(public_failure(await run_resource(application(request), run_id, caller=caller_of(request))))


@router.get(
    "/runs/{run_id}/events",
    summary="Join a run",
    dependencies=[Depends(needs("read"))],
    response_class=Response,
    responses={
        **EVENTS["responses"],
        204: {"description": "The run has ended or waits, and the client has all events."},
    },
)
async def events(
    request: Request,
    run_id: str,
    last_event_id: Annotated[str | None, Header()] = None,
    # `EventSource` of a browser sends the header only when it reconnects by itself; a page that reloads has the query.
    lastEventId: str | None = None,  # noqa: N803 - the wire's name
    events: str | None = None,
) -> Response:
    """Sends the events that the client missed, then live events; 204 when the run rests and the client has all of them."""
    families = families_of(events)
    queued = await find_queued(application(request), run_id)
    # A queued input has no events yet: its stream waits for the turn.
    if queued is not None:
        return stream_later(request, queued, families, "keep")
    batches = await join(application(request), run_id, last_event_id or lastEventId, families)
    # A stream that ends at once would bring a browser's `EventSource` back each second; after 204 it stays away.
    return named(Response(status_code=204), run_id) if batches is None else stream(request, run_id, batches, families)
