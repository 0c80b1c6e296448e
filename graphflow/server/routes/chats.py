"""Chats (spec 3.1)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.runtime.thread_status import ThreadStatus
from graphflow.server.auth import caller_of, needs
from graphflow.server.envelope import success
from graphflow.server.public_failures import public_error
from graphflow.server.routes._parts import Cursor, Limit, Metadata, application, metadata_of
from graphflow.service.chats import chats as service

router = APIRouter(prefix="/api", tags=["chats"], dependencies=[Depends(needs("read"))])


@router.get("/chats", summary="List chats")
async def chats(
    request: Request,
    cursor: Cursor = None,
    limit: Limit = 50,
    agent_key: Annotated[str | None, Query(alias="agentKey")] = None,
    q: Annotated[str | None, Query(max_length=500)] = None,
    status: Annotated[ThreadStatus | None, Query()] = None,
    metadata: Metadata = None,
) -> Response:
    """Chats, newest first; with `q` those that contain each of its words, in the name or in what was said; with
    `metadata.KEY=VALUE` those whose metadata have all of these.

    A chat whose process died is `stopped`; `driven` says whether a live process owns it. A page may be shorter than
    `limit` although more follow: read on while there is a `cursor`.
    """
    user = caller_of(request).user
    lines, following = await service.chats(
        application(request),
        cursor=cursor,
        limit=limit,
        agent_key=agent_key,
        user=user,
        query=q,
        status=status,
        metadata=metadata_of(request),
    )
    return success(lines, cursor=following)


@router.get("/chat", summary="Get a chat")
async def chat(
    request: Request,
    chat_id: Annotated[str, Query(alias="chatId")],
    raw_messages: Annotated[bool, Query(alias="includeRawMessages")] = False,
    cursor: Cursor = None,
    limit: Limit = 500,
) -> Response:
    """One chat: its history as events; a `finishReason` of `stop` is `end_turn` here. A page is the newest `limit` events
    before `cursor`, oldest first: put the page of a `cursor` in front of what you have. `references` are those of the
    page's queries.
    """
    found = await service.chat(application(request), chat_id, raw_messages=raw_messages, cursor=cursor, limit=limit)
    older = found.pop("cursor", None)
    found["events"] = [{**e, "error": public_error(e["error"])} if "error" in e else e for e in found["events"]]
    return success(found, cursor=older)
