"""The long-term store of the caller's own user (spec 5.3)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

import graphflow.server.paths  # noqa: F401 - it registers `text`
from graphflow.server.auth import caller_of, needs
from graphflow.server.bodies import MemoryBody, body, schema
from graphflow.server.envelope import success
from graphflow.server.routes._parts import Cursor, Limit, application
from graphflow.service import memory as service

router = APIRouter(prefix="/api/memory", tags=["memory"])
READ, RUN = [Depends(needs("read"))], [Depends(needs("run"))]
Namespace = Annotated[
    str | None, Query(max_length=2048, description="Within what is the caller's own; parts joined by `/`.")
]


@router.get("", summary="List memory items", dependencies=READ)
async def items(
    request: Request,
    cursor: Cursor = None,
    limit: Limit = 50,
    namespace: Namespace = None,
    q: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """What is kept for the caller's user, the most recently written first; with `q` items that contain each of its words."""
    found, following = await service.search(
        application(request), caller_of(request), namespace=namespace, query=q, cursor=cursor, limit=limit
    )
    return success(found, cursor=following)


@router.get("/{key:text}", summary="Get a memory item", dependencies=READ)
async def item(request: Request, key: str, namespace: Namespace = None) -> Response:
    """What is kept for the caller's user under a key."""
    return success(await service.get(application(request), caller_of(request), key, namespace))


@router.put("/{key:text}", summary="Add a memory item", dependencies=RUN, openapi_extra=schema(MemoryBody))
async def put(
    request: Request, key: str, given: Annotated[MemoryBody, Depends(body(MemoryBody))], namespace: Namespace = None
) -> Response:
    """Keeps a value for the caller's user, in the place of an earlier one of this key."""
    return success(
        await service.put(
            application(request), caller_of(request), key, given.value, namespace=namespace, ttl_s=given.ttl_s
        )
    )


@router.delete("/{key:text}", summary="Delete a memory item", dependencies=RUN)
async def delete(request: Request, key: str, namespace: Namespace = None) -> Response:
    """Deletes what is kept for the caller's user under a key."""
    await service.delete(application(request), caller_of(request), key, namespace)
    return success({"key": key, "deleted": True})
