"""A client of an application's HTTP face, over a socket of this machine: streams arrive as they do elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from graphflow.service.application import Application


@asynccontextmanager
async def app_client(application: Application, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serves the application on a free port of 127.0.0.1 while the block runs.

    Args:
        options: of the client: `headers`, `timeout` …

    Raises:
        GraphflowError: the server could not start.
    """
    import httpx

    from graphflow.server.run import make_server

    server = make_server(application, port=0)

    served = asyncio.ensure_future(server.serve())  # noqa: TID251 - awaited below
    try:
        while not server.started:
            if served.done():
                await served
            await asyncio.sleep(0.001)
        async with httpx.AsyncClient(**{"base_url": server.url, **options}) as client:
            yield client
    finally:
        server.should_exit = True
        await asyncio.gather(served, return_exceptions=True)
