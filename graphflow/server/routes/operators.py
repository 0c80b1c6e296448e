"""Routes for operators (spec 3.2)."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response  # FastAPI reads the annotations

from graphflow.server.auth import for_all_users, needs
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.telemetry.metrics import CONTENT_TYPE
from graphflow.telemetry.run_metrics import ServerMetrics

router = APIRouter(tags=["operators"])


@router.get("/api/health", summary="Check that the process is alive")
async def health() -> Response:
    """The process answers."""
    # Without a look at the store: an orchestrator that restarts the process would not mend a database.
    return success({"status": "ok"})


@router.get("/api/ready", summary="Check that the server takes requests")
async def ready(request: Request) -> Response:
    """The store is open and new runs are accepted."""
    app = application(request)
    # A load balancer stops sending before the listener closes, so no client meets a refused connection.
    app.refuse_when_stopping()
    await app.runs.ready()
    return success({"status": "ready", "agents": len(app.agents.list()), "runs": len(app.runs.by_thread)})


@router.get(
    "/metrics",
    summary="Read metrics",
    dependencies=[Depends(needs("read"))],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text."}},
)
async def metrics(request: Request) -> Response:
    """Metrics of this process and its store, over all users; refused to a token of one user."""
    for_all_users(request)
    found: ServerMetrics = request.app.state.metrics
    return Response(await found.page(application(request)), media_type=CONTENT_TYPE)
