"""The `tools` node runs the calls of a model's turn; `tool:NAME` runs one tool with given arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphflow.errors import Issue, NodeFailed
from graphflow.excerpts import excerpt_of
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.json_data import encode_json
from graphflow.messages import AIMessage, ToolCall
from graphflow.nodes.calls.agent_tools import with_agents
from graphflow.nodes.calls.branches import call_groups, calls_agents
from graphflow.nodes.calls.turn_calls import OUT_SCHEMA, TOOLS_WITH, approval_of, offer, tools_output
from graphflow.tools.envelope import completed
from graphflow.tools.result import failed
from graphflow.tools.running.arguments import LatestResults
from graphflow.tools.running.policy import CallPolicy
from graphflow.tools.selection import unknown_tools

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction
    from graphflow.tools.port import Tool
    from graphflow.tools.registry import ToolRegistry
    from graphflow.tools.running.runner import ToolRunner


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
    out_schema: Mapping[str, Any] | None = OUT_SCHEMA

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return unknown_tools(self._tools, node.with_)

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        offered = offer(document)

        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            names, policy = offered(arguments, ctx)
            runner: ToolRunner = ctx.tool
            if arguments.get("agents"):
                runner = runner.over(with_agents(runner.registry, names or (), ctx))
            messages, most = ctx.state.get("messages", ()), arguments.get("max")
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
            elif arguments.get("agents") and calls_agents(calls, names or (), most):
                return {"results": [], "messages": [], "calls": call_groups(calls, most)}
            else:
                results = await runner.run_all(
                    calls,
                    ctx,
                    policy=policy,
                    results=LatestResults(messages),
                    max_calls=most,
                    parallel=arguments.get("parallel", True),
                    ends_node=True,
                    in_state=arguments.get("calls") is None,
                )
            return tools_output(calls, results, arguments, ctx)

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
        text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
        call_id = call.get("id") or f"call_{ctx.idempotency_key(f'calls[{index}]')[:16]}"
        return ToolCall(id=str(call_id), name=str(call["name"]), arguments=text)
    raise NodeFailed(f"a tool call is an object with id, name and arguments, not {excerpt_of(call)}", code="validation")


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
        approval, tool, tools = approval_of(document), self._tool, self._tools

        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            runner: ToolRunner = ctx.tool
            policy = CallPolicy(approval=approval, names_tool=True, agent_key=ctx.agent_key, templates=False)
            # From the node run: the same on re-entry, so readers see one call.
            call_id = f"call_{ctx.node_run_id}"
            text = encode_json(arguments).decode()
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
