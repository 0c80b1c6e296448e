"""The `tools` node runs the calls of a model's turn; `tool:NAME` runs one tool with given arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.approval_mode import ApprovalRule
from graphflow.errors import Issue, NodeFailed
from graphflow.excerpts import excerpt_of
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.json_data import plain
from graphflow.messages import AIMessage, ToolCall
from graphflow.tools.envelope import completed
from graphflow.tools.result import failed
from graphflow.tools.running.arguments import LatestResults
from graphflow.tools.running.policy import CallPolicy
from graphflow.tools.selection import offered_tools, unknown_tools

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction
    from graphflow.tools.port import Tool
    from graphflow.tools.registry import ToolRegistry
    from graphflow.tools.running.runner import ToolRunner

TOOLS_WITH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "calls": {"type": "array"},
        "max": {"type": "integer", "minimum": 0},
        "parallel": {"type": "boolean"},
        "tools": {"type": "array", "items": {"type": "string"}},
        "keywords": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": False,
}


TASK_DONE = "task_done"
"""The tool that ends a team's work."""


def _approval_of(document: GraphDefinition) -> str | dict[str, str | ApprovalRule] | None:
    approval = document.approval
    return approval if approval is None or isinstance(approval, str) else dict(approval)


def _never_for_the_end(names: Iterable[str], approval: Any) -> Any:
    """The agent's `approval` without `task_done`: ending the work has no effect that needs approval."""
    # An explicit entry of the agent's author wins.
    if TASK_DONE not in names or (isinstance(approval, Mapping) and TASK_DONE in approval):
        return approval
    others = approval if isinstance(approval, Mapping) else {} if approval is None else {"*": approval}
    return {**others, TASK_DONE: "DISABLED"}


def _ends_work(result: Mapping[str, Any]) -> bool:
    return result["tool"] == TASK_DONE and "error" not in result


class ToolsKind:
    """`use: tools`.

    The calls run in order; concurrently if each of them only reads, uses no result of another and needs no approval, unless
    the node says `parallel: false`. `tools` and `keywords` replace the document's; if
    `task_done` is among these `tools`, a call of it is the run's finish reason.

    Args:
        tools: the registry that tool names are checked against.
    """

    name = "tools"
    effects = "none"
    with_schema: Mapping[str, Any] | None = TOOLS_WITH
    out_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {"results": {"type": "array"}, "messages": {"type": "array"}},
    }

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return unknown_tools(self._tools, node.with_)

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        approval, given = _approval_of(document), document.tools is not None or document.keywords is not None

        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            runner: ToolRunner = ctx.tool
            some = given or "tools" in arguments or "keywords" in arguments
            names = offered_tools(runner.registry, document, arguments) if some else None
            policy = CallPolicy(
                tools=names, approval=_never_for_the_end(names or (), approval), agent_key=ctx.services.get("agent_key")
            )
            messages = ctx.state.get("messages", ())
            last = messages[-1] if len(messages) else None
            calls = arguments.get("calls")
            if calls is None:
                calls = last.tool_calls if isinstance(last, AIMessage) else ()
            calls = [_as_call(call, index, ctx) for index, call in enumerate(calls)]
            if ctx.speaks:  # what others call is hidden, as what their models say
                for call in calls:
                    await _stream_call(ctx, call, runner.registry.get(call.name))
            # Half of an argument can be valid JSON with another meaning, so none of the turn's calls is run.
            if isinstance(last, AIMessage) and last.status == "length" and arguments.get("calls") is None:
                results = [await _cut_off(call, ctx, runner) for call in calls]
            else:
                results = await runner.run_all(
                    calls,
                    ctx,
                    policy=policy,
                    results=LatestResults(messages),
                    max_calls=arguments.get("max"),
                    parallel=arguments.get("parallel", True),
                    ends_node=True,
                    in_state=arguments.get("calls") is None,
                )
            replies = [runner.message(call, result) for call, result in zip(calls, results, strict=True)]
            told = [{"tool": call.name, **_plain(result)} for call, result in zip(calls, results, strict=True)]
            if TASK_DONE in arguments.get("tools", ()) and any(map(_ends_work, told)):
                ctx.finish_reason = TASK_DONE
            return {"results": told, "messages": replies}

        return run


async def _cut_off(call: ToolCall, ctx: NodeRun, runner: ToolRunner) -> Any:
    """A turn that ended by `length` runs none of its calls (spec 7)."""
    result = completed(
        failed(
            "INVALID_PARAM",
            "this call was not run: the model's turn was cut off at its length limit; write less and call again",
        ),
        {},
    )
    tool = runner.registry.get(call.name)
    await ctx.tool_result(call.id, runner.wire_text(call, result), tool is not None and tool.kind == "action")
    return result


def _as_call(call: Any, index: int, ctx: NodeRun) -> ToolCall:
    """A call of the node's `calls`; one without an id gets one that no other call of the run has, also after a crash."""
    if isinstance(call, ToolCall):
        return call
    if isinstance(call, Mapping) and "name" in call:
        arguments = call.get("arguments", "{}")
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments, enc_hook=plain).decode()
        call_id = call.get("id") or f"call_{ctx.idempotency_key(f'calls[{index}]')[:16]}"
        return ToolCall(id=str(call_id), name=str(call["name"]), arguments=text)
    raise NodeFailed(f"a tool call is an object with id, name and arguments, not {excerpt_of(call)}", code="validation")


def _plain(result: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"status": result.status, "data": result.data, "text": result.text}
    if result.error is not None:
        out["error"] = msgspec.to_builtins(result.error)
    return out


async def _stream_call(ctx: NodeRun, call: ToolCall, tool: Tool | None) -> None:
    """Sends a call that no model streamed, in one piece; does nothing if readers know it, as on re-entry."""
    facts: dict[str, Any] = {"tool_type": "function"} if tool is None else tool.start_facts
    action = tool is not None and tool.kind == "action"
    await ctx.whole_call(call.id, call.name, call.arguments, action=action, **facts)


class ToolKind:
    """`use: tool:NAME`: the node's `with` are the tool's arguments; out is `{data, text, status}`.

    Args:
        tools: where the tool is looked up.
        tool: its name.
    """

    name = "tool"

    def __init__(self, tools: ToolRegistry, tool: str) -> None:
        self._tools, self._tool = tools, tool
        found = tools.get(tool)
        self.effects = found.effects if found is not None else "write"
        self.with_schema: Mapping[str, Any] | None = None
        self.out_schema: Mapping[str, Any] | None = {
            "type": "object",
            "properties": {"data": {}, "text": {"type": "string"}, "status": {"type": "string"}},
        }

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return ()

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        approval, tool, tools = _approval_of(document), self._tool, self._tools

        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            runner: ToolRunner = ctx.tool
            policy = CallPolicy(
                approval=approval, names_tool=True, agent_key=ctx.services.get("agent_key"), templates=False
            )
            # From the node run: the same on re-entry, so readers see one call.
            call_id = f"call_{ctx.node_run_id}"
            text = msgspec.json.encode(arguments, enc_hook=plain).decode()
            call = ToolCall(id=call_id, name=tool, arguments=text)
            await _stream_call(ctx, call, tools.get(tool))
            result = await runner.run(call, ctx, policy=policy, key="call", ends_node=True)
            if result.error is not None:
                # A recorded error result would be returned to every retry of the node.
                ctx.forget("call")
                code = "timeout" if result.error.code == "TIMEOUT" else "tool_error"
                raise NodeFailed(
                    f"tool {tool!r} failed: {result.error.message}", code=code, toolError=result.error.code
                )
            return {"data": result.data, "text": result.text, "status": result.status}

        return run
