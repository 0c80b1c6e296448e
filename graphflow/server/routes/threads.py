"""Threads: time travel and control, and the inbox (spec 3.2)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import needs
from graphflow.server.bodies import EditBody, ForkBody, ResumeBody, RewindBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.routes._parts import EVENTS, Cursor, Limit, application, one_body, stream_run
from graphflow.service import threads as service
from graphflow.service.inbox import inbox as read_inbox
from graphflow.service.requests import bad_argument

router = APIRouter(prefix="/api", tags=["threads"])
READ, RUN, ADMIN = [Depends(needs("read"))], [Depends(needs("run"))], [Depends(needs("admin"))]


@router.get("/threads/{thread_id}", dependencies=READ)
async def summary(request: Request, thread_id: str) -> Response:
    """Head checkpoint, status, what waits, usage."""
    return success(await service.summary(application(request), thread_id))


@router.get("/threads/{thread_id}/checkpoints", dependencies=READ)
async def checkpoints(request: Request, thread_id: str, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """The tree of checkpoints, newest first."""
    found, following = await service.checkpoints(application(request), thread_id, cursor=cursor, limit=limit)
    return success([service.checkpoint_dict(info) for info in found], cursor=following)


@router.get("/threads/{thread_id}/state", dependencies=READ)
async def state(
    request: Request, thread_id: str, checkpoint_id: Annotated[str | None, Query(alias="checkpointId")] = None
) -> Response:
    """The full state at the head or at a checkpoint."""
    return success(await service.state(application(request), thread_id, checkpoint_id))


@router.get("/threads/{thread_id}/diff", dependencies=READ)
async def diff(
    request: Request,
    thread_id: str,
    first: Annotated[str, Query(alias="from")],
    second: Annotated[str, Query(alias="to")],
) -> Response:
    """What changed from one checkpoint to another: JSON Patch per state key."""
    return success(await service.diff(application(request), thread_id, first, second))


@router.patch("/threads/{thread_id}/state", dependencies=ADMIN, openapi_extra=schema(EditBody))
async def edit(request: Request, thread_id: str, given: Annotated[EditBody, Depends(body(EditBody))]) -> Response:
    """Edits state as if a node had written it: a new checkpoint."""
    if given.path:
        raise bad_argument("path", "frames below the root can't be edited in this version")
    checkpoint_id = await service.edit(
        application(request),
        thread_id,
        given.values,
        as_node=given.as_node,
        replace=given.replace,
        checkpoint_id=given.checkpoint_id,
        effects=given.effects,
        cancel=given.cancel,
    )
    return success({"threadId": thread_id, "checkpointId": checkpoint_id})


@router.post("/threads/{thread_id}/rewind", dependencies=ADMIN, openapi_extra=schema(RewindBody))
async def rewind(request: Request, thread_id: str, given: Annotated[RewindBody, Depends(body(RewindBody))]) -> Response:
    """Commits a new head that goes on from a checkpoint."""
    options: dict[str, Any] = {"effects": given.effects, "cancel": given.cancel}
    checkpoint_id = await service.rewind(application(request), thread_id, given.checkpoint_id, **options)
    return success({"threadId": thread_id, "checkpointId": checkpoint_id})


@router.post("/threads/{thread_id}/fork", dependencies=RUN, openapi_extra=schema(ForkBody, required=False))
async def fork(
    request: Request, thread_id: str, given: Annotated[ForkBody, Depends(body(ForkBody, optional=True))]
) -> Response:
    """A new thread that shares the past up to a checkpoint."""
    made = await service.fork(application(request), thread_id, given.checkpoint_id, given.thread_id, given.effects)
    return success(made)


@router.post(
    "/threads/{thread_id}/resume", dependencies=RUN, openapi_extra=schema(ResumeBody, required=False), **EVENTS
)
async def resume(
    request: Request,
    thread_id: str,
    given: Annotated[ResumeBody, Depends(body(ResumeBody, optional=True))],
) -> Response:
    """Goes on from the head or from a checkpoint, with or without answers."""
    begun = await service.resume(
        application(request),
        thread_id,
        answers=given.answers,
        checkpoint_id=given.checkpoint_id,
        effects=given.effects,
        budget=given.budget,
        hold_ms=None if given.stream else 0,
    )
    if not given.stream:
        return await one_body(request, begun, given.on_disconnect)
    return stream_run(request, begun, given.events, given.on_disconnect)


@router.post("/threads/{thread_id}/cancel", dependencies=RUN)
async def cancel(request: Request, thread_id: str) -> Response:
    """Stops the run that drives or waits on the thread."""
    return success({"threadId": thread_id, "cancelled": await service.cancel(application(request), thread_id)})


@router.delete("/threads/{thread_id}", dependencies=ADMIN)
async def delete(request: Request, thread_id: str) -> Response:
    """Deletes everything of a thread."""
    await service.delete(application(request), thread_id)
    return success({"threadId": thread_id, "deleted": True})


@router.get("/inbox", dependencies=READ)
async def inbox(
    request: Request,
    owner: str | None = None,
    role: str | None = None,
    agent_key: Annotated[str | None, Query(alias="agentKey")] = None,
    thread_id: Annotated[str | None, Query(alias="threadId")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """What waits for people, oldest first."""
    lines, following = await read_inbox(
        application(request),
        owner=owner,
        role=role,
        agent_key=agent_key,
        thread_id=thread_id,
        cursor=cursor,
        limit=limit,
    )
    return success(lines, cursor=following)
