"""Agents (spec 3.1)."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic.alias_generators import to_camel
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import needs
from graphflow.server.bodies import QueryBody
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.service.catalog import agents as service

IDENTITY = (
    "request_id",
    "chat_id",
    "agent_key",
    "message",
    "role",
    "stream",
    "events",
    "model",
    "options",
    "variables",
)
"""Fields of a query that say what is asked and how it is answered, not how it is run; and those of
`perRequest`, which say themselves what is allowed."""
router = APIRouter(prefix="/api", tags=["agents"], dependencies=[Depends(needs("read"))])


@router.get("/agents", summary="List agents")
async def agents(request: Request, tag: str | None = None, q: str | None = None) -> Response:
    """All agents; rejected files with their error."""
    return success(service.agents(application(request), tag=tag, q=q))


@router.get("/agent", summary="Get an agent")
async def agent(request: Request, key: Annotated[str, Query(alias="agentKey")]) -> Response:
    """One agent in full, with its compiled graph and the policies that its runs are held to."""
    # Laying out a graph of thousands of nodes takes a second.
    found = await asyncio.to_thread(service.agent, application(request), key)
    found["policies"]["request"] = [to_camel(name) for name in QueryBody.model_fields if name not in IDENTITY]
    return success(found)
