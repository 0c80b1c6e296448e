"""Agents (spec 3.1)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import needs
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.service.catalog import agents as service

router = APIRouter(prefix="/api", tags=["agents"], dependencies=[Depends(needs("read"))])


@router.get("/agents", summary="List agents")
async def agents(request: Request, tag: str | None = None, q: str | None = None) -> Response:
    """All agents; rejected files with their error."""
    return success(service.agents(application(request), tag=tag, q=q))


@router.get("/agent", summary="Get an agent")
async def agent(request: Request, key: Annotated[str, Query(alias="agentKey")]) -> Response:
    """One agent in full, with its compiled graph."""
    return success(service.agent(application(request), key))
