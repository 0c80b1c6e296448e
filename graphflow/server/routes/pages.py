"""Pages for people: the start page and the API docs. They work offline and without JavaScript."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from html import escape

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from graphflow.server.api_docs import BASE, api_docs
from graphflow.server.html import Markup, page, table, tag
from graphflow.server.routes._parts import application

router = APIRouter(include_in_schema=False)
METHODS = ["GET", "HEAD"]
_NETLOC = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


@router.api_route("/", methods=METHODS)
async def start_page(request: Request) -> Response:
    """What this server serves; with tokens configured, only what needs none."""
    needs_token = bool(request.app.state.tokens)
    # The page itself asks for no token, so with tokens it must not say what is behind them.
    agents = () if needs_token else application(request).agents.list()
    body: dict[str, str] = {"agentKey": agents[0].key} if agents else {}
    token = ' -H "Authorization: Bearer $GRAPHFLOW_TOKEN"' if needs_token else ""
    # Quoted for the shell: the agent's key comes from a file name.
    given = shlex.quote(json.dumps(body | {"message": "Hello"}, ensure_ascii=False))
    command = f"curl -N '{address(request)}/api/query'{token} -d {given}"
    if needs_token:
        listed = tag("p", "This server requires a token. ", tag("code", "GET /api/agents"), " lists its agents.")
    elif agents:
        rows = [(agent.name, tag("code", agent.key), agent.description) for agent in agents]
        listed = table(("Name", "Key", "Description"), rows)
    else:
        listed = tag("p", "No agents found. ", tag("code", "graphflow new"), " creates one.")
    links = [
        ("docs", "API docs", "every route with its parameters, body, responses and a curl command"),
        ("openapi.json", "OpenAPI document", "the same for programs"),
        ("api/health", "Health", "answers while the process runs"),
    ]
    return page(
        "graphflow",
        tag("h1", "graphflow"),
        tag("p", "The server is running, version ", request.app.version, "."),
        tag("h2", "Agents"),
        listed,
        tag("h2", "Start a run"),
        tag("pre", command),
        tag("h2", "HTTP reference"),
        tag("ul", *(tag("li", tag("a", title, href=href), f": {about}") for href, title, about in links)),
    )


@router.api_route("/docs", methods=METHODS)
async def docs(request: Request) -> Response:
    """The HTTP reference, rendered once from the OpenAPI document that this server gives."""
    state = request.app.state
    if not hasattr(state, "api_docs"):
        # The document never changes; only the address differs by client. Rendering it the first time takes a moment: in a
        # thread, so that nobody else waits for it.
        state.api_docs = await asyncio.to_thread(_rendered, request.app)
    return page("graphflow API", Markup(state.api_docs.replace(BASE, escape(address(request)))))


def _rendered(app: FastAPI) -> Markup:
    return api_docs(app.openapi(), needs_token=bool(app.state.tokens))


@router.api_route("/openapi.json", methods=METHODS)
async def openapi(request: Request) -> Response:
    """The OpenAPI document, made when it is first asked for."""
    return JSONResponse(await asyncio.to_thread(request.app.openapi))


def address(request: Request) -> str:
    """The address that the client used, or where the server listens if `Host` names none."""
    url = request.base_url
    # The `Host` header comes from the client and ends up in a command that people copy.
    if not _NETLOC.fullmatch(url.netloc):
        host, port = request.scope.get("server") or ("localhost", None)
        url = url.replace(netloc=(f"[{host}]" if ":" in host else host) + (f":{port}" if port else ""))
    return str(url).rstrip("/")
