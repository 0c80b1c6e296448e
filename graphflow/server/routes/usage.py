"""What was used, over all threads (spec 1.3)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import for_all_users, needs
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.service import usage as service

router = APIRouter(prefix="/api", tags=["operators"])
DayQuery = Annotated[str | None, Query(description="A day (UTC) as `2026-11-22`, included.")]


@router.get("/usage", summary="Read usage and cost", dependencies=[Depends(needs("read"))])
async def usage(
    request: Request,
    since: DayQuery = None,
    until: DayQuery = None,
    agent_key: Annotated[str | None, Query(alias="agentKey")] = None,
    by: Annotated[str, Query(description="Group by these of `day`, `agentKey`, `model`.")] = ",".join(service.AXES),
) -> Response:
    """Tokens, calls, time and cost by day, agent and model; refused to a token of one user."""
    # The sums have no user in them, so there is nothing to filter by.
    for_all_users(request)
    axes = tuple(axis.strip() for axis in by.split(",") if axis.strip())
    told = await service.usage(application(request), since=since, until=until, agent_key=agent_key, by=axes)
    return success(told)
