"""What operators ask (spec 3.2)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.errors import GraphflowError
from graphflow.server.envelope import failure, success
from graphflow.server.routes._parts import application

router = APIRouter(prefix="/api", tags=["operators"])


@router.get("/health")
async def health() -> Response:
    """The process answers."""
    return success({"status": "ok"})


@router.get("/ready")
async def ready(request: Request) -> Response:
    """The store is open and new runs are taken."""
    app = application(request)
    if app.stopping:
        return failure(503, "the server is stopping")
    try:
        await app.runs.ready()
    except GraphflowError as error:
        return failure(503, "the store can't be used", {"error": error.as_dict()})
    return success({"status": "ready", "agents": len(app.agents.list()), "runs": len(app.runs.by_thread)})
