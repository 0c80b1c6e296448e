"""Standing rules about tool calls (spec 8.5)."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.errors import GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.server.auth import caller_of, for_all_users, needs
from graphflow.server.bodies import Id, JsonBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.service.catalog.decisions import decisions
from graphflow.service.catalog.rules import rule_dict

router = APIRouter(prefix="/api", tags=["approvals"])


class RuleBody(JsonBody):
    """`POST /api/rules`."""

    tool: str
    decision: Literal["allow", "ask", "deny"]
    args: str | None = None
    thread_id: Id | None = None
    agent_key: str | None = None
    expires: str | None = None
    reason: str | None = None


@router.get("/rules", summary="List rules", dependencies=[Depends(needs("read"))])
async def listed(request: Request) -> Response:
    """All standing rules that have not expired, oldest first."""
    for_all_users(request)
    app = application(request)
    await app.runs.ready()
    return success([rule_dict(rule) for rule in await app.rules.standing()])


@router.post("/rules", summary="Add a rule", dependencies=[Depends(needs("admin"))], openapi_extra=schema(RuleBody))
async def add(request: Request, given: Annotated[RuleBody, Depends(body(RuleBody))]) -> Response:
    """Adds a rule."""
    for_all_users(request)
    app = application(request)
    await app.runs.ready()
    # The fields of the body are the parameters, so a new one needs no third list of names.
    rule = await app.rules.add(**given.model_dump(), by=caller_of(request).name)
    return success(rule_dict(rule))


@router.delete("/rules/{rule_id}", summary="Remove a rule", dependencies=[Depends(needs("admin"))])
async def remove(request: Request, rule_id: str) -> Response:
    """Deletes a rule."""
    for_all_users(request)
    app = application(request)
    await app.runs.ready()
    if not await app.rules.remove(rule_id):
        raise GraphflowError(f"no standing rule has the id {excerpt_of(rule_id, 160)}", code="not_found")
    return success({"id": rule_id, "removed": True})


@router.get(
    "/threads/{thread_id}/decisions", summary="List decisions of a thread", dependencies=[Depends(needs("read"))]
)
async def decided(request: Request, thread_id: str) -> Response:
    """Every decision about tool calls of a thread: who decided, when, what was shown, what ran."""
    return success(await decisions(application(request), thread_id))
