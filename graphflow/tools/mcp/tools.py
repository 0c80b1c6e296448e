"""Tools of servers as tools of graphflow: `SERVER.TOOL`, with effects by the settings and the server's hints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from graphflow.tools.context import ToolContext
from graphflow.tools.input_needed import InputNeeded
from graphflow.tools.mcp.config import ServerConfig
from graphflow.tools.mcp.elicitation import CannotAsk, needed, responses
from graphflow.tools.mcp.listing import McpTool
from graphflow.tools.mcp.results import result_of
from graphflow.tools.mcp.sdk import sdk
from graphflow.tools.mcp.server import McpServer, McpUnavailable
from graphflow.tools.port import Effects, Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.signature import SchemaSignature


class McpBody:
    """Sends a call to its server."""

    def __init__(self, server: McpServer, listed: McpTool, *, repeatable: bool) -> None:
        self.server, self.listed = server, listed
        self._repeatable = repeatable
        self._signature = SchemaSignature(listed.parameters)

    @property
    def parameters(self) -> dict[str, Any]:
        return self._signature.parameters

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._signature.prepare(arguments)

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult | InputNeeded:
        """The server's result, or what it asks people; what it refuses, and a server that is not there, are error results.

        Raises:
            ConnectionError: the connection was lost while the call ran, and it may have taken effect.
        """

        async def progress(done: float, total: float | None, message: str | None) -> None:
            facts = {"progress": done, "total": total, "message": message}
            await ctx.progress({name: value for name, value in facts.items() if value is not None})

        async def act(client: Any) -> Any:
            given: dict[str, Any] = {}
            if ctx.given is not None:
                types = sdk().types
                made = responses(ctx.given.memo, ctx.given.answers)
                given["input_responses"] = {key: types.ElicitResult(**value) for key, value in made.items()}
                given["request_state"] = ctx.given.memo.get("state")
            sent = client.session.call_tool(
                self.listed.name, dict(arguments), progress_callback=progress, allow_input_required=True, **given
            )
            # With a newer protocol a question is a result, so the call needs no listener.
            if self.server.asks_by_results:
                return await sent
            return await self.server.calls.run(sent, ctx, repeatable=self._repeatable)

        config = self.server.config
        try:
            answer = await self.server.use(act, repeatable=self._repeatable)
        except McpUnavailable as error:
            return failed("EXECUTION_ERROR", str(error), "Go on without it, or try again later.")
        except sdk().MCPError as error:
            words = config.masked(str(error))
            return failed("EXECUTION_ERROR", f"the MCP server {config.name!r} refuses the call: {words}")
        raw = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        if raw.get("resultType") != "input_required":
            return result_of(raw)
        try:
            return needed(config.name, raw)
        except CannotAsk as error:
            return failed("EXECUTION_ERROR", f"the MCP server {config.name!r} asks for what it can't get: {error}")


def tools_of(server: McpServer, listed: Iterable[McpTool]) -> list[Tool]:
    """The tools of a server, as it has described them."""
    return [_tool(server, each) for each in listed]


def _tool(server: McpServer, listed: McpTool) -> Tool:
    config = server.config
    effects, idempotent = effects_of(config, listed)
    return Tool(
        name=f"{config.name}.{listed.name}",
        description=listed.description,
        body=McpBody(server, listed, repeatable=effects != "write" or idempotent),
        effects=effects,
        idempotent=idempotent,
        capabilities=config.capabilities,
        timeout_s=config.timeout_s,
        asks=True,
        fingerprint=hashlib.sha256(msgspec.json.encode(listed)).hexdigest(),
    )


def effects_of(config: ServerConfig, listed: McpTool) -> tuple[Effects, bool]:
    """What a tool does to the world, and whether its write may be repeated.

    The settings decide. A server's hints make a tool stricter than the settings say, and laxer only with `trust`.
    """
    hints = listed.annotations
    given = config.effects.get(listed.name) or config.effects.get("*")
    effects = given or ("read" if config.trust and hints.get("readOnlyHint") is True else "write")
    # What the settings say of this very tool stands; `*` was written without a look at it.
    if listed.name not in config.effects and (
        hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True
    ):
        effects = "write"
    idempotent = not {listed.name, "*"}.isdisjoint(config.idempotent)
    idempotent = idempotent or (config.trust and hints.get("idempotentHint") is True)
    if listed.name not in config.idempotent and hints.get("idempotentHint") is False:
        idempotent = False
    return cast("Effects", effects), idempotent
