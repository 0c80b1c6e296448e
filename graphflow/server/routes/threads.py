"""Threads: time travel and control, and the inbox (spec 3.2)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from graphflow.runtime.thread_status import ThreadStatus
from graphflow.server.auth import caller_of, needs
from graphflow.server.bodies import EditBody, ForkBody, ResumeBody, RewindBody, SignalBody, ThreadBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.public_failures import public_failure
from graphflow.server.routes._begin import ACCEPTED, Begun, begin
from graphflow.server.routes._parts import (
    EVENTS,
    Cursor,
    Limit,
    Metadata,
    application,
    metadata_of,
)
from graphflow.service import threads as service
from graphflow.service.access import Caller
from graphflow.service.application import Application
from graphflow.service.inbox import inbox as read_inbox
from graphflow.service.runs.input_queue import withdraw_run
from graphflow.service.runs.resume import resume as resume_thread
from graphflow.service.runs.resume import signal as send_signal

router = APIRouter(prefix="/api", tags=["threads"])
READ, RUN, ADMIN = [Depends(needs("read"))], [Depends(needs("run"))], [Depends(needs("admin"))]


@router.get("/threads", summary="List threads", dependencies=READ)
async def threads(
    request: Request,
    cursor: Cursor = None,
    limit: Limit = 50,
    agent_key: Annotated[str | None, Query(alias="agentKey")] = None,
    status: Annotated[ThreadStatus | None, Query()] = None,
    metadata: Metadata = None,
) -> Response:
    """Threads, the most recently used first; with `metadata.KEY=VALUE` those whose metadata have all of these.

    A page may be shorter than `limit` although more follow: read on while there is a `cursor`.
    """
    found, following = await service.threads(
        application(request),
        caller=caller_of(request),
        cursor=cursor,
        limit=limit,
        agent_key=agent_key,
        status=status,
        metadata=metadata_of(request),
    )
    return success([service.struct_dict(line) for line in found], cursor=following)


@router.get("/threads/{thread_id}", summary="Get a thread", dependencies=READ)
async def summary(request: Request, thread_id: str) -> Response:
    """Head checkpoint, status, open interrupts, usage; of a failed thread, with the scope `admin`, where its code failed."""
    return success(public_failure(await service.summary(application(request), thread_id, caller=caller_of(request))))


@router.patch(
    "/threads/{thread_id}", summary="Edit title and metadata", dependencies=RUN, openapi_extra=schema(ThreadBody)
)
async def update(request: Request, thread_id: str, given: Annotated[ThreadBody, Depends(body(ThreadBody))]) -> Response:
    """Renames a thread and changes its metadata, also while a run drives it; the thread's line."""
    changes = given.model_dump(exclude_unset=True)
    return success(await service.update(application(request), thread_id, changes))


@router.get("/threads/{thread_id}/checkpoints", summary="List checkpoints", dependencies=READ)
async def checkpoints(request: Request, thread_id: str, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """The tree of checkpoints, newest first."""
    found, following = await service.checkpoints(application(request), thread_id, cursor=cursor, limit=limit)
    return success([service.checkpoint_dict(info) for info in found], cursor=following)


@router.get("/threads/{thread_id}/state", summary="Read the state", dependencies=READ)
async def state(
    request: Request, thread_id: str, checkpoint_id: Annotated[str | None, Query(alias="checkpointId")] = None
) -> Response:
    """The full state at the head or at a checkpoint."""
    return success(await service.state(application(request), thread_id, checkpoint_id))


_SHOWN = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg", "audio/ogg", "audio/webm"}
)
"""Media types that browsers show without running anything in them."""


@router.get(
    "/threads/{thread_id}/bytes/{sha256}",
    summary="Read an image, a sound or a file",
    dependencies=READ,
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The bytes."}},
)
async def part_bytes(
    request: Request,
    thread_id: str,
    sha256: str,
    checkpoint_id: Annotated[str | None, Query(alias="checkpointId")] = None,
) -> Response:
    """The bytes of a part of a message, which the state names by their hash (`blob`); images and sounds under their media type."""
    data, media_type = await service.part_bytes(application(request), thread_id, sha256, checkpoint_id)
    headers = {
        "Cache-Control": "private, max-age=31536000, immutable",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    if media_type not in _SHOWN:
        media_type, headers["Content-Disposition"] = "application/octet-stream", "attachment"
    return Response(data, media_type=media_type, headers=headers)


@router.get("/threads/{thread_id}/diff", summary="Compare two checkpoints", dependencies=READ)
async def diff(
    request: Request,
    thread_id: str,
    first: Annotated[str, Query(alias="from")],
    second: Annotated[str, Query(alias="to")],
    other: Annotated[
        str | None, Query(alias="toThread", description="The thread of `to`, a fork for instance.")
    ] = None,
) -> Response:
    """What changed from one checkpoint to another: JSON Patch per state key."""
    return success(await service.diff(application(request), thread_id, first, second, other))


@router.get("/threads/{thread_id}/blame", summary="Find the node that wrote a value", dependencies=READ)
async def blame(
    request: Request,
    thread_id: str,
    key: Annotated[str, Query(description="`state.draft`, `state.messages[3]`, …")],
    checkpoint_id: Annotated[str | None, Query(alias="checkpointId")] = None,
    path: Annotated[str, Query(description="The frame, of those that are open; empty for the root.")] = "",
) -> Response:
    """Who wrote a value: checkpoint, node, visit, frame and model call."""
    return success(await service.blame(application(request), thread_id, key, checkpoint_id, path))


@router.get("/threads/{thread_id}/why", summary="Explain a routing decision", dependencies=READ)
async def why(
    request: Request, thread_id: str, checkpoint_id: Annotated[str | None, Query(alias="checkpointId")] = None
) -> Response:
    """Which condition, with which values, chose the route after a checkpoint; with the scope `admin`, the trace of a failure."""
    found = await service.why(application(request), thread_id, checkpoint_id, caller=caller_of(request))
    return success(public_failure(found))


@router.get("/threads/{thread_id}/cost", summary="Read the cost of a thread", dependencies=READ)
async def cost(request: Request, thread_id: str) -> Response:
    """What the thread has used, by run, node and model."""
    return success(await service.cost(application(request), thread_id))


@router.patch(
    "/threads/{thread_id}/state", summary="Edit the state", dependencies=ADMIN, openapi_extra=schema(EditBody)
)
async def edit(request: Request, thread_id: str, given: Annotated[EditBody, Depends(body(EditBody))]) -> Response:
    """Edits state as if a node had written it: a new checkpoint."""
    checkpoint_id = await service.edit(
        application(request),
        thread_id,
        given.values,
        as_node=given.as_node,
        path=given.path,
        replace=given.replace,
        checkpoint_id=given.checkpoint_id,
        effects=given.effects,
        cancel=given.cancel,
        by=caller_of(request),
    )
    return success({"threadId": thread_id, "checkpointId": checkpoint_id})


@router.post(
    "/threads/{thread_id}/rewind", summary="Rewind a thread", dependencies=ADMIN, openapi_extra=schema(RewindBody)
)
async def rewind(request: Request, thread_id: str, given: Annotated[RewindBody, Depends(body(RewindBody))]) -> Response:
    """Commits a new head that continues from a checkpoint."""
    options: dict[str, Any] = {"effects": given.effects, "cancel": given.cancel, "by": caller_of(request)}
    checkpoint_id = await service.rewind(application(request), thread_id, given.checkpoint_id, **options)
    return success({"threadId": thread_id, "checkpointId": checkpoint_id})


@router.post(
    "/threads/{thread_id}/fork",
    summary="Fork a thread",
    dependencies=RUN,
    openapi_extra=schema(ForkBody, required=False),
)
async def fork(
    request: Request, thread_id: str, given: Annotated[ForkBody, Depends(body(ForkBody, optional=True))]
) -> Response:
    """A new thread that shares the past up to a checkpoint."""
    options = (given.checkpoint_id, given.thread_id, given.effects)
    return success(await service.fork(application(request), thread_id, *options, caller=caller_of(request)))


@router.post(
    "/threads/{thread_id}/resume",
    summary="Resume a run",
    dependencies=RUN,
    openapi_extra=schema(ResumeBody, required=False),
    responses={**EVENTS["responses"], **ACCEPTED},
)
async def resume(
    request: Request,
    thread_id: str,
    given: Annotated[ResumeBody, Depends(body(ResumeBody, optional=True))],
) -> Response:
    """Continues from the head or from a checkpoint, with or without answers."""

    def start(context: Application, caller: Caller, run_id: str | None) -> Awaitable[Begun]:
        return resume_thread(
            context,
            thread_id,
            answers=given.answers,
            checkpoint_id=given.checkpoint_id,
            effects=given.effects,
            budget=given.budget,
            hold_ms=given.hold_ms(),
            run_id=run_id,
            by=caller,
        )

    # An answer goes on with a run that was let in once; refusing it would lose what a person has written.
    return await begin(request, given, f"resume {thread_id}", start, counted=not given.answers)


@router.post("/threads/{thread_id}/cancel", summary="Cancel a run", dependencies=RUN)
async def cancel(request: Request, thread_id: str) -> Response:
    """Cancels the thread's run, whether it is running or waiting. `cancelled` is false if there is none, or it ended by itself first."""
    return success({"threadId": thread_id, "cancelled": await service.cancel(application(request), thread_id)})


@router.post("/threads/{thread_id}/signal", summary="Send a signal", dependencies=RUN, openapi_extra=schema(SignalBody))
async def signal(request: Request, thread_id: str, given: Annotated[SignalBody, Depends(body(SignalBody))]) -> Response:
    """Wakes a `wait` node; a signal that arrives before its node is kept until the run ends."""
    woken = await send_signal(application(request), thread_id, given.name, given.payload)
    return success({"threadId": thread_id, "name": given.name, "woken": woken})


@router.get("/threads/{thread_id}/queue", summary="List queued inputs", dependencies=READ)
async def queue(request: Request, thread_id: str) -> Response:
    """Queued inputs, in order."""
    return success(await service.queue(application(request), thread_id))


@router.delete("/threads/{thread_id}/queue/{run_id}", summary="Remove a queued input", dependencies=RUN)
async def withdraw(request: Request, thread_id: str, run_id: str) -> Response:
    """Removes an input from the queue before its run begins."""
    withdrawn = await withdraw_run(application(request), thread_id, run_id)
    return success({"threadId": thread_id, "runId": run_id, "withdrawn": withdrawn})


@router.delete("/threads/{thread_id}", summary="Delete a thread", dependencies=ADMIN)
async def delete(request: Request, thread_id: str) -> Response:
    """Deletes a thread and everything that belongs to it."""
    await service.delete(application(request), thread_id)
    return success({"threadId": thread_id, "deleted": True})


@router.get("/inbox", summary="List open interrupts", dependencies=READ)
async def inbox(
    request: Request,
    owner: str | None = None,
    role: str | None = None,
    agent_key: Annotated[str | None, Query(alias="agentKey")] = None,
    thread_id: Annotated[str | None, Query(alias="threadId")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Open interrupts, oldest first."""
    lines, following = await read_inbox(
        application(request),
        owner=owner,
        role=role,
        agent_key=agent_key,
        thread_id=thread_id,
        user=caller_of(request).user,
        cursor=cursor,
        limit=limit,
    )
    return success(lines, cursor=following)
