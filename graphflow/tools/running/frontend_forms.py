"""Frontend tools: the client renders a viewport, and what a person submits there is the call's result (spec 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.graph.core.immutable import digest_of, thaw
from graphflow.masking import mask_excerpt
from graphflow.messages import ToolCall
from graphflow.tools.context import RunnerContext
from graphflow.tools.envelope import json_text
from graphflow.tools.log import log_info, logs_info
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult


def form_key(key: str) -> str:
    """The key of the form's question for the call with operation `key`."""
    return f"frontend:{key}"


async def await_form(
    tool: Tool | None, call: ToolCall, arguments: dict[str, Any] | None, ctx: RunnerContext, *, key: str
) -> ToolResult:
    """What a person submits for this call.

    The answer is bound to the model's call, so a tool file that changes or goes while the thread waits
    loses no answer; it is checked against the tool's `payload` as it was when the question was asked.

    Args:
        tool: None when its file has gone since the question was asked.
        call: the client names it by its id.
        arguments: what the viewport shows; None when the call waits already.
        ctx: asks.
        key: of the call's operation.
    """
    message = f"{call.name} waits for your input." if tool is None or not tool.description else tool.description
    payload = {"message": message}
    if tool is not None and tool.viewport is not None:
        payload |= {"toolType": str(tool.viewport_type), "viewportKey": tool.viewport}
    if arguments is not None and logs_info():
        log_info("tool.start", tool=call.name, call_id=call.id, arguments=mask_excerpt(arguments))
    # The run's clock: the wait may span a restart, which a monotonic clock does not.
    began = ctx.now_ms()
    answer = await ctx.ask(
        message,
        kind="frontend",
        key=form_key(key),
        schema=None if tool is None or tool.payload is None else dict(tool.payload),
        payload=payload,
        tool_id=call.id,
        tool_name=call.name,
        arguments=arguments,
        hold_ms=None if tool is None else tool.hold_ms,
        digest=digest_of([call.name, call.arguments]),
    )
    result = submitted_result(thaw(answer))
    if logs_info():
        ms, chars = ctx.now_ms() - began, len(result.text) or len(json_text(result.data))
        log_info("tool.end", tool=call.name, call_id=call.id, status=result.status, chars=chars, ms=ms)
    return result


def submitted_result(payload: Any) -> ToolResult:
    """The result for a submitted payload: an object is its data, text its text, nothing `{}`, anything else JSON text."""
    if isinstance(payload, Mapping) and payload:
        return ToolResult(data=dict(payload))
    if payload is None or payload == {} or (isinstance(payload, str) and not payload.strip()):
        return ToolResult(text="{}")
    return ToolResult(text=payload if isinstance(payload, str) else json_text(payload))
