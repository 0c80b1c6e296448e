"""A server by the SDK over HTTP: `python remote.py http|sse PORT [SECRET]`."""

from __future__ import annotations

import os
import sys

from mcp.server import MCPServer
from starlette.requests import Request

server = MCPServer("remote")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def pid() -> int:
    """The id of this process."""
    return os.getpid()


@server.custom_route("/up", methods=["GET"])
async def up(request: Request):
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("up")


def main() -> None:
    import uvicorn

    app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
    secret = sys.argv[3] if len(sys.argv) > 3 else None

    async def guarded(scope, receive, send):
        headers = dict(scope.get("headers") or [])
        wanted = f"Bearer {secret}".encode()
        if scope["type"] == "http" and secret and scope["path"] != "/up" and headers.get(b"authorization") != wanted:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    uvicorn.run(guarded, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")


main()
