"""Messages of a thread: pages of them, answering one anew, putting other words in its place (spec 3.2)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from msgspec.structs import replace
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import needs
from graphflow.server.bodies import EditMessageBody, RegenerateBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.routes._begin import ACCEPTED, Begun, begin
from graphflow.server.routes._parts import EVENTS, Cursor, Limit, application
from graphflow.service.access import Caller
from graphflow.service.application import Application
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
    responses={**EVENTS["responses"], **ACCEPTED},
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

    def start(context: Application, caller: Caller, run_id: str | None) -> Awaitable[Begun]:
        return service.regenerate(
            context,
            thread_id,
            message_id,
            effects=given.effects,
            cancel=given.cancel,
            hold_ms=given.hold_ms(),
            run_id=run_id,
            caller=caller,
        )

    return await begin(request, given, f"regenerate {thread_id} {message_id}", start)


@router.post(
    "/{message_id}/edit",
    summary="Edit a message",
    dependencies=RUN,
    openapi_extra=schema(EditMessageBody),
    responses={**EVENTS["responses"], **ACCEPTED},
)
async def edit(
    request: Request,
    thread_id: str,
    message_id: str,
    given: Annotated[EditMessageBody, Depends(body(EditMessageBody))],
) -> Response:
    """Puts other words in the place of a user's message and runs from there; what came after it stays in the tree."""

    def start(context: Application, caller: Caller, run_id: str | None) -> Awaitable[Begun]:
        wanted = replace(given.to_request(), run_id=run_id)
        return service.edit_message(context, thread_id, message_id, wanted, cancel=given.cancel, caller=caller)

    return await begin(request, given, f"edit {thread_id} {message_id}", start)
