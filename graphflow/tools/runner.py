"""Runs the tool calls of a model in the order of spec 8.2: parse → templates → check → policy → run → envelope → record → event.

Whatever is wrong with a call becomes an error result that the model can act on. What passes as an exception is no
business of the model: budgets, fences, unknown outcomes, a run that a person ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphflow.messages import ToolCall, ToolMessage
from graphflow.tools.approval import ApprovalMode, approval_mode, ask_approval, must_ask
from graphflow.tools.arguments import parse_arguments, result_value
from graphflow.tools.breaker import CircuitBreaker
from graphflow.tools.context import CallContext
from graphflow.tools.envelope import completed, cut_to, from_record, record_of, wire_text
from graphflow.tools.execution import Execution, Ready
from graphflow.tools.port import Tool, refused_result
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.result import ArgumentsRefused, ToolResult, failed
from graphflow.tools.schema import did_you_mean
from graphflow.tools.templates import has_template, resolve_templates

DEFAULT_TIMEOUT_S = 120.0
DEFAULT_MAX_CHARS = 50_000
"""What of a result reaches the model before it is cut, in characters."""


@dataclass(frozen=True, kw_only=True)
class CallPolicy:
    """What the agent whose model made the calls may do."""

    tools: tuple[str, ...] | None = None
    """Names of the tools that the agent has; None: every registered one."""
    approval: str | Mapping[str, str] | None = None
    """The agent's `approval`: one word, or words by tool name and `*`."""
    disallow: bool = False
    """No tools were offered (`toolPolicy: DISALLOW`); a call that comes anyway gets an error result."""


ANY_TOOL = CallPolicy()


class ToolRunner:
    """Runs calls of registered tools; one per application, so that the circuit breaker sees all of them.

    Args:
        registry: the tools that exist.
        approval: the mode for agents that say nothing (`AGENT_TOOLS_APPROVAL_MODE`).
        timeout_s: seconds, for tools that name none.
        max_result_chars: what of a result the model gets at most.
        legacy: read dicts of the older result format (`ENABLE_LEGACY_ADAPTER`).
        breaker: default: 3 straight failures open a tool's circuit for 300 s.
        monotonic: seconds of a clock that only goes forward, for durations.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        approval: ApprovalMode | None = "AUTO",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_result_chars: int = DEFAULT_MAX_CHARS,
        legacy: bool = True,
        breaker: CircuitBreaker | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self.approval = approval or "AUTO"
        self._max_chars = max_result_chars
        breaker = breaker or CircuitBreaker(monotonic)
        self._execution = Execution(breaker=breaker, timeout_s=timeout_s, legacy=legacy, monotonic=monotonic)

    async def run_all(
        self,
        calls: Sequence[ToolCall],
        ctx: CallContext,
        *,
        policy: CallPolicy = ANY_TOOL,
        results: Mapping[str, Any] | None = None,
        max_calls: int | None = None,
        parallel: bool = False,
        ends_node: bool = False,
        in_state: bool = False,
    ) -> list[ToolResult]:
        """One result per call, in the order of the calls.

        Args:
            calls: of one model turn.
            ctx: the context of the node that runs them.
            policy: what the agent may do.
            results: data of the latest result of each tool in this run; a later call also sees those of this turn.
            max_calls: further calls get an error result; 0: no tools were offered at all.
            parallel: run concurrently if all are read-only, none holds a template and no person is to be asked.
            ends_node: nothing follows in this node, so its own commit records the last call (E5).
            in_state: the calls stand in the messages of the state.
        """
        if max_calls == 0:
            policy, max_calls = replace(policy, disallow=True), None
        keys = _unique_keys(calls)
        earlier: Mapping[str, Any] = {} if results is None else results  # not `or`: their number takes reading them all
        if (
            parallel
            and max_calls is None
            and len(calls) > 1
            and all(self._is_plain_read(call, policy) for call in calls)
        ):
            return await self._run_together(calls, keys, ctx, policy, earlier)
        of_turn: dict[str, Any] = {}
        seen: Mapping[str, Any] = ChainMap(of_turn, earlier)  # type: ignore[arg-type] # only its first is written
        out: list[ToolResult] = []
        last = (len(calls) if max_calls is None else min(max_calls, len(calls))) - 1
        for index, call in enumerate(calls):
            if index > last:
                out.append(await self._finish(call, _one_too_many(max_calls or 0), None, ctx))
                continue
            ends = ends_node and index == last
            result = await self.run(
                call, ctx, policy=policy, results=seen, key=keys[index], ends_node=ends, in_state=in_state
            )
            if result.ok:
                of_turn[call.name] = result_value(result)
            out.append(result)
        return out

    async def run(
        self,
        call: ToolCall,
        ctx: CallContext,
        *,
        policy: CallPolicy = ANY_TOOL,
        results: Mapping[str, Any] | None = None,
        key: str | None = None,
        ends_node: bool = False,
        in_state: bool = False,
    ) -> ToolResult:
        """The result of one call, recorded and sent as an event.

        Args:
            call: as the model wrote it; it need not parse.
            ctx: the context of the node that runs it.
            policy: what the agent may do.
            results: data of the latest result of each tool in this run, for templates.
            key: of the recorded operation; default: the call's id.
            ends_node: nothing follows in this node, so its own commit records the call (E5).
            in_state: the call stands in the messages of the state.

        Raises:
            BudgetExceeded: no tool call is left.
            Terminated: a person ended the run.
            GraphflowError: the engine's own: unknown outcome, fence, store.
        """
        tool = self._find(call.name, policy)
        if isinstance(tool, ToolResult):
            return await self._finish(call, tool, None, ctx)
        ready = await self._prepare(tool, call, ctx, policy, {} if results is None else results, key or call.id)
        if isinstance(ready, ToolResult):
            return await self._finish(call, ready, tool, ctx)
        result = await self._run_once(ready, ctx, ends_node, in_state)
        return await self._finish(call, completed(result, ready.arguments), tool, ctx, ready.arguments)

    async def undo(self, name: str, effect: Mapping[str, Any], ctx: CallContext, *, key: str) -> ToolResult:
        """Runs the tool that takes an effect back; who asked for that has decided, so nobody is asked again.

        Args:
            name: the tool.
            effect: `{arguments, result, idempotencyKey}` of the effect; the tool gets those that its schema names.
            ctx: records the call, once.
            key: of the recorded operation.
        """
        tool = self._find(name, ANY_TOOL)
        if isinstance(tool, ToolResult):
            return tool
        named = tool.parameters.get("properties") or effect
        given = {field: value for field, value in effect.items() if field in named}
        try:
            prepared = tool.prepare(given)
        except ArgumentsRefused as refused:
            return refused_result(name, refused)
        call = ToolCall(id=key, name=name, arguments="{}")
        ready = Ready(tool=tool, call=call, key=key, arguments=given, prepared=prepared, results={})
        return await self._run_once(ready, ctx, ends_node=False, in_state=False)

    def wire_text(self, call: ToolCall, result: ToolResult) -> str:
        """The text of a call's result that the wire and the model get."""
        return wire_text(result, self.registry.get(call.name))

    def message(self, call: ToolCall, result: ToolResult) -> ToolMessage:
        """The message that answers a call, with the same text as its event."""
        text = self.wire_text(call, result)
        return ToolMessage(tool_call_id=call.id, name=call.name, content=text, error=not result.ok)

    # finding and preparing

    def _find(self, name: str, policy: CallPolicy) -> Tool | ToolResult:
        if policy.disallow:
            return failed(
                "PERMISSION_DENIED",
                f"{name!r} was not run: no tools are offered in this turn.",
                "Answer from what you know already.",
            )
        offered = self.registry.names() if policy.tools is None else list(policy.tools)
        tool = self.registry.get(name) if name in offered else None
        if tool is not None:
            return tool
        listed = ", ".join(offered) or "none"
        return failed("NOT_FOUND", f"there is no tool {name!r}; tools are {listed}.{did_you_mean(name, offered)}")

    async def _prepare(
        self, tool: Tool, call: ToolCall, ctx: CallContext, policy: CallPolicy, results: Mapping[str, Any], key: str
    ) -> Ready | ToolResult:
        try:
            arguments = self._resolved(tool, parse_arguments(call.arguments), results)
            prepared = tool.prepare(arguments)
        except ArgumentsRefused as refused:
            return refused_result(tool.name, refused)
        ctx.charge_tool_call()
        if not must_ask(tool, approval_mode(tool.name, policy.approval, self.approval)):
            return Ready(tool=tool, call=call, key=key, arguments=arguments, prepared=prepared, results=results)
        decision = await ask_approval(tool, call.id, arguments, ctx, key=key)
        if isinstance(decision, ToolResult):
            return decision
        if decision.edited:
            try:
                arguments = self._resolved(tool, decision.arguments, results)
                prepared = tool.prepare(arguments)
            except ArgumentsRefused as refused:
                return refused_result(tool.name, refused)
        return Ready(tool=tool, call=call, key=key, arguments=arguments, prepared=prepared, results=results)

    @staticmethod
    def _resolved(tool: Tool, arguments: dict[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
        return resolve_templates(arguments, results) if tool.templates and has_template(arguments) else arguments

    # running

    async def _run_once(self, ready: Ready, ctx: CallContext, ends_node: bool, in_state: bool) -> ToolResult:
        async def act() -> dict[str, Any]:
            return record_of(await self._execution.run(ready, ctx))

        record = await ctx.once(
            ready.key,
            act,
            effects=ready.tool.effects,
            idempotent=ready.tool.idempotent,
            undo=ready.tool.undo,
            arguments={"tool": ready.tool.name, "arguments": ready.arguments},
            kind="tool",
            ends_node=ends_node,
            refers=in_state and _as_called(ready),
        )
        return from_record(record)

    # several at once, and the end of each

    def _is_plain_read(self, call: ToolCall, policy: CallPolicy) -> bool:
        """Whether a call may run beside others: it only looks, refers to no other result and asks nobody."""
        tool = self._find(call.name, policy)
        if isinstance(tool, ToolResult):
            return True
        if tool.effects == "write" or must_ask(tool, approval_mode(tool.name, policy.approval, self.approval)):
            return False
        try:
            return not (tool.templates and has_template(parse_arguments(call.arguments)))
        except ArgumentsRefused:
            return True

    async def _run_together(
        self,
        calls: Sequence[ToolCall],
        keys: Sequence[str],
        ctx: CallContext,
        policy: CallPolicy,
        results: Mapping[str, Any],
    ) -> list[ToolResult]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.run(call, ctx, policy=policy, results=results, key=key))
                    for call, key in zip(calls, keys, strict=True)
                ]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _finish(
        self, call: ToolCall, result: ToolResult, tool: Tool | None, ctx: CallContext, param: Any = None
    ) -> ToolResult:
        """Cuts what is too long for the model, then sends the result and its sources."""
        result = cut_to(completed(result, {}), tool, self._max_chars)
        text = wire_text(result, tool)
        await ctx.tool_result(call.id, text, tool is not None and tool.kind == "action", param)
        for source in result.sources:
            ctx.source(source)
        return result


def _as_called(ready: Ready) -> bool:
    """Whether the call as the model wrote it says what was done: nothing was resolved or edited, and its id is the key."""
    if ready.tool.effects != "write" or ready.key != ready.call.id:
        return False
    return parse_arguments(ready.call.arguments) == ready.arguments


def _unique_keys(calls: Sequence[ToolCall]) -> list[str]:
    """The calls' ids; a model that uses one twice gets a number behind it, as a key names one operation (E5)."""
    counts: dict[str, int] = {}
    keys = []
    for call in calls:
        counts[call.id] = count = counts.get(call.id, 0) + 1
        keys.append(call.id if count == 1 else f"{call.id}#{count}")
    return keys


def _one_too_many(allowed: int) -> ToolResult:
    rule = "one tool per round" if allowed == 1 else f"{allowed} tools per round"
    return failed("REJECTED", f"{rule}: this call was not run.", "If it is still needed, call it in the next round.")
