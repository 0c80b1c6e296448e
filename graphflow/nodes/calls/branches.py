"""The nodes around a turn's calls of agents: what opens a branch, what ends one, and what puts the results in order.

`modes/agent_calls.py` puts them behind each `tools` node that offers agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphflow.errors import Issue
from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.document import DEFAULT_INPUT_SCHEMA, GraphDefinition, NodeDefinition
from graphflow.graph.definition.kinds import NodeFunction
from graphflow.graph.engine.node_run import NodeRun
from graphflow.messages import ToolCall
from graphflow.nodes.calls.agent_tools import INPUT, with_agents
from graphflow.nodes.calls.turn_calls import OUT_SCHEMA, TOOLS_WITH, offer, tools_output
from graphflow.tools.envelope import completed, from_record, record_of, wrap
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.running.arguments import LatestResults
from graphflow.tools.running.calls import one_too_many
from graphflow.tools.selection import unknown_tools
from graphflow.tools.wire_names import AGENT, agent_key

if TYPE_CHECKING:
    from graphflow.tools.registry import ToolRegistry
    from graphflow.tools.running.runner import ToolRunner

ANSWERS: dict[str, Any] = {
    "type": "object",
    "properties": {"agent": {"type": "string"}, "given": {"type": "object"}, "answers": {"type": "array"}},
}


def call_groups(calls: Sequence[ToolCall], most: int | None) -> list[dict[str, Any]]:
    """The calls of a turn as the items of a map: one for each call of an agent, and one for all others.

    Args:
        most: calls that the turn may make; those beyond stand under `over` of the others.
    """
    plain: dict[str, Any] = {"calls": [], "over": [], "most": most}
    items: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        row = {"at": index, "id": call.id, "name": call.name, "arguments": call.arguments}
        if most is not None and index >= most:
            plain["over"].append(row)
        elif agent_key(call.name) is not None:
            items.append({"calls": [row], "agent": agent_key(call.name)})
            continue
        else:
            plain["calls"].append(row)
        if plain not in items:
            items.append(plain)
    return items


def calls_agents(calls: Sequence[ToolCall], names: Iterable[str], most: int | None) -> bool:
    """Whether one of the calls that the turn may make is of an agent that is offered."""
    offered = {name for name in names if agent_key(name) is not None}
    return any(call.name in offered for call in calls[:most])


def _call_of(row: Mapping[str, Any]) -> ToolCall:
    return ToolCall(id=row["id"], name=row["name"], arguments=row["arguments"])


def _answer(row: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    return {"at": row["at"], "id": row["id"], "name": row["name"], "result": record_of(result)}


class AgentCallKind:
    """`use: agent_call`: begins a branch of a turn's calls.

    Plain calls are run: `out.answers` has their results. The call of an agent is parsed, checked and approved: `out.agent` is
    the key, and `out.given` the agent's input; of a call that is refused `out.agent` is empty, and `out.answers` says why.
    """

    name = "agent_call"
    effects = "none"
    out_schema: Mapping[str, Any] | None = ANSWERS

    with_schema: Mapping[str, Any] | None = {
        **TOOLS_WITH,
        "properties": {"call": {"type": "object"}, **TOOLS_WITH["properties"]},
        "required": ["call"],
    }

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return unknown_tools(self._tools, node.with_)

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        offered = offer(document)

        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            item = arguments["call"]
            names, policy = offered(arguments, ctx)
            runner: ToolRunner = ctx.tool
            results = LatestResults(ctx.state.get("messages", ()))
            if "agent" not in item:
                return await _plain(item, arguments, ctx, policy, results)
            runner = runner.over(with_agents(runner.registry, names or (), ctx))
            row = item["calls"][0]
            call = _call_of(row)
            result = await runner.prepare(call, ctx, policy=policy, results=results, ends_node=True)
            if result.ok and INPUT in result.data:
                return {"agent": item["agent"], "given": result.data[INPUT], "answers": []}
            # Refused, or answered by the person who was asked to approve it.
            return {"agent": "", "given": {}, "answers": [_answer(row, await runner.tell(call, result, ctx))]}

        return run


async def _plain(
    item: Mapping[str, Any], arguments: Mapping[str, Any], ctx: NodeRun, policy: Any, results: LatestResults
) -> dict[str, Any]:
    runner: ToolRunner = ctx.tool
    rows, over = item["calls"], item["over"]
    given = await runner.run_all(
        [_call_of(row) for row in rows],
        ctx,
        policy=policy,
        results=results,
        parallel=arguments.get("parallel", True),
        ends_node=not over,
    )
    given += [await runner.tell(_call_of(row), one_too_many(item["most"]), ctx) for row in over]
    return {"agent": "", "given": {}, "answers": [*map(_answer, [*rows, *over], given)]}


class AgentResultKind:
    """`use: agent_result`: ends the branch of an agent's call: its output, or its failure, as the call's result."""

    name = "agent_result"
    effects = "none"
    with_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {"call": {"type": "object"}, "given": {"type": "object"}, "error": {}},
        "required": ["call", "given"],
        "additionalProperties": False,
    }
    out_schema: Mapping[str, Any] | None = ANSWERS

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return ()

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            row, error = arguments["call"]["calls"][0], arguments.get("error")
            runner: ToolRunner = ctx.tool
            runner = runner.over(with_agents(runner.registry, [row["name"]], ctx))
            if error is None:
                result = wrap(thaw(arguments["given"].get("output")), tool=row["name"])
            else:
                result = _failure(row["name"], error)
            result = await runner.tell(_call_of(row), completed(result, {}), ctx)
            return {"agent": "", "given": {}, "answers": [_answer(row, result)]}

        return run


_CODES = {"timeout": "TIMEOUT", "validation": "INVALID_PARAM"}


def _failure(name: str, error: Mapping[str, Any]) -> ToolResult:
    code, message = error["code"], error["message"]
    return failed(_CODES.get(code, "EXECUTION_ERROR"), f"{name} has failed ({code}): {message}", "Go on without it.")


class TurnResultsKind:
    """`use: turn_results`: the results of a turn's calls in call order, as the `tools` node gives them."""

    name = "turn_results"
    effects = "none"
    with_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {"answers": {"type": "array"}, "tools": {"type": "array"}},
        "required": ["answers"],
        "additionalProperties": False,
    }

    out_schema: Mapping[str, Any] | None = OUT_SCHEMA

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return ()

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            # Each entry is what one branch of the map gave.
            rows = [row for branch in arguments["answers"] for row in (branch.get("out") or {}).get("answers", ())]
            rows.sort(key=lambda row: row["at"])
            calls = [ToolCall(id=row["id"], name=row["name"], arguments="{}") for row in rows]
            results = [from_record(row["result"]) for row in rows]
            return tools_output(calls, results, arguments, ctx)

        return run


class AgentKind:
    """`use: agent:KEY`: opens the agent; what it is given is checked by its input schema."""

    name = "agent"
    effects = "none"
    out_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "output": {}},
    }

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.with_schema: Mapping[str, Any] | None = data.get("input") or DEFAULT_INPUT_SCHEMA

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return ()

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        raise TypeError(f"{node.use} opens a frame and runs no function; it builds nothing for {AGENT}")
