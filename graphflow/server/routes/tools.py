"""Tools, their whole results, and the viewports of frontend tools (spec 3.1)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import needs
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.service.catalog import tools as service

router = APIRouter(prefix="/api", tags=["tools"], dependencies=[Depends(needs("read"))])


@router.get("/tools", summary="List tools")
async def tools(request: Request) -> Response:
    """All tools with kind and schema; rejected descriptions with their error."""
    return success(service.tools(application(request)))


@router.get("/tool", summary="Get a tool")
async def tool(request: Request, name: Annotated[str, Query(alias="toolName")]) -> Response:
    """One tool."""
    return success(service.tool(application(request), name))


@router.get("/tool/result", summary="Read a tool result in full")
async def tool_result(
    request: Request,
    chat_id: Annotated[str, Query(alias="chatId")],
    tool_id: Annotated[str, Query(alias="toolId")],
) -> Response:
    """The whole result of a call, even if the model received only a part of it."""
    return success(await service.tool_result(application(request), chat_id, tool_id))


@router.get("/viewport", summary="Get a viewport")
async def viewport(request: Request, key: Annotated[str, Query(alias="viewportKey")]) -> Response:
    """What a client renders for a frontend tool: `{"html": text}`, or the JSON of any other kind."""
    return success(service.viewport(application(request), key))
