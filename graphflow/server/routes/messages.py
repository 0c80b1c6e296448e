"""Messages of a thread: pages of them, answering one anew, putting other words in its place (spec 3.2)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import caller_of, needs
from graphflow.server.bodies import EditMessageBody, RegenerateBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.routes._parts import EVENTS, Cursor, Limit, application, one_body, room_for_run, stream_run
from graphflow.service.runs import turns as service

router = APIRouter(prefix="/api/threads/{thread_id}/messages", tags=["threads"])
RUN = [Depends(needs("run"))]


@router.get("", summary="List messages", dependencies=[Depends(needs("read"))])
async def messages(request: Request, thread_id: str, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """What was said and answered on the present branch, newest first, each with its id."""
    found, following = await service.messages(application(request), thread_id, cursor=cursor, limit=limit)
    return success(found, cursor=following)


@router.post(
    "/{message_id}/regenerate",
    summary="Answer a message again",
    dependencies=RUN,
    openapi_extra=schema(RegenerateBody, required=False),
    **EVENTS,
)
async def regenerate(
    request: Request,
    thread_id: str,
    message_id: str,
    given: Annotated[RegenerateBody, Depends(body(RegenerateBody, optional=True))],
) -> Response:
    """Goes back to before the answer and runs again; takes the id of the user's message or of any block of its answer.

    The former answer stays in the tree of checkpoints.
    """
    with room_for_run(request):
        begun = await service.regenerate(
            application(request),
            thread_id,
            message_id,
            effects=given.effects,
            cancel=given.cancel,
            hold_ms=None if given.stream else 0,
            caller=caller_of(request),
        )
    if not given.stream:
        return await one_body(request, begun, given.on_disconnect)
    return stream_run(request, begun, given.events, given.on_disconnect)


@router.post(
    "/{message_id}/edit",
    summary="Edit a message",
    dependencies=RUN,
    openapi_extra=schema(EditMessageBody),
    **EVENTS,
)
async def edit(
    request: Request,
    thread_id: str,
    message_id: str,
    given: Annotated[EditMessageBody, Depends(body(EditMessageBody))],
) -> Response:
    """Puts other words in the place of a user's message and runs from there; what came after it stays in the tree."""
    with room_for_run(request):
        begun = await service.edit_message(
            application(request),
            thread_id,
            message_id,
            given.to_request(),
            cancel=given.cancel,
            caller=caller_of(request),
        )
    if not given.stream:
        return await one_body(request, begun, given.on_disconnect)
    return stream_run(request, begun, given.events, given.on_disconnect)
