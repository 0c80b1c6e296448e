"""Names of tools that belong to an MCP server: `SERVER.TOOL`, and `mcp:SERVER` for all of them."""

from __future__ import annotations

SERVER_PREFIX = "mcp:"
"""`mcp:SERVER` among an agent's tools is all tools of that server."""


def server_of(name: str) -> str:
    """The server that a name belongs to; empty for one without."""
    if name.startswith(SERVER_PREFIX):
        return name.removeprefix(SERVER_PREFIX)
    server, dot, _ = name.partition(".")
    return server if dot else ""
