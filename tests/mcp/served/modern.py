"""A server of the protocol 2026-07-28 that asks: its questions are results, and it keeps nothing between two calls."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

FOLDER = Path(sys.argv[1])
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def mark(line: str) -> None:
    with (FOLDER / "calls").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


async def list_tools(ctx, params):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in ("ask", "ask_and_die")])


async def call_tool(ctx, params):
    answers = params.input_responses
    mark(f"{params.request_state} {answers['who'].content if answers and answers['who'].content else answers and 'no'}")
    if not answers:
        asked = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM))
        return types.InputRequiredResult(input_requests={"who": asked}, request_state="state-1")
    if params.name == "ask_and_die":
        os._exit(3)
    said = answers["who"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"{said.action}: {said.content}")])


async def main() -> None:
    server = Server("modern", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
