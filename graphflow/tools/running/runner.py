"""Runs the tool calls of a model in the order of spec 8.2: parse → templates → check → policy → run → envelope → record → event.

Whatever is wrong with a call becomes an error result that the model can act on. What passes as an exception is no
business of the model: budgets, fences, unknown outcomes, a run that a person ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from graphflow.approval_mode import ApprovalMode
from graphflow.bounds import DEFAULTS
from graphflow.content import Content, TextPart
from graphflow.errors import BudgetExceeded
from graphflow.messages import ToolCall, ToolMessage
from graphflow.tools.context import RunnerContext
from graphflow.tools.envelope import completed, from_record, record_of
from graphflow.tools.input_needed import InputGiven, from_context
from graphflow.tools.port import Tool, refused_result
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.result import ArgumentsRefused, ToolResult, failed
from graphflow.tools.running.approval import approval_key, approval_rule
from graphflow.tools.running.approval_gate import ApprovalGate, rule_key
from graphflow.tools.running.arguments import parse_arguments, readable_arguments, result_value
from graphflow.tools.running.calls import as_called, find_tool, one_too_many, own_calls, source_facts
from graphflow.tools.running.circuit_breaker import CircuitBreaker
from graphflow.tools.running.execution import CallExecution, CallRecovery, ReadyCall, ask_person
from graphflow.tools.running.frontend_forms import await_form, form_key
from graphflow.tools.running.policy import ANY_TOOL, CallPolicy, lacking, policy_of
from graphflow.tools.running.result_text import cut_to, wire_text
from graphflow.tools.running.standing_rules import NoRules, RuleSource
from graphflow.tools.running.templates import refers, resolve_templates

__all__ = ["ANY_TOOL", "CallPolicy", "ToolRunner"]

ALWAYS_ASKED = "it changes what agents may do, so a person with the scope `admin` is asked about each call"
APPROVED_BY_OTHERS = "an agent of this thread has its calls approved by several people, or by another one"
DEFAULT_TIMEOUT_S = 120.0
MOST_ROUNDS = 10
"""How often one call may ask for input."""
DEFAULT_MAX_CHARS = 50_000
"""Longest text of a result that the model gets, in characters; the rest is cut."""


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a call, before its result is sent as an event."""

    result: ToolResult
    arguments: dict[str, Any] | None = None
    """As far as they could be read and resolved."""


class ToolRunner:
    """Runs calls of registered tools; one per application, so that the circuit breaker sees all of them.

    Args:
        registry: the tools that exist.
        approval: the mode for agents that say nothing (`AGENT_TOOLS_APPROVAL_MODE`).
        timeout_s: seconds, for tools that name none.
        max_result_chars: longest text of a result that the model gets.
        max_output_bytes: most that is kept of what a tool gives.
        legacy: read dicts of the older result format (`ENABLE_LEGACY_ADAPTER`).
        breaker: default: 3 straight failures open a tool's circuit for 300 s.
        rules: standing rules about calls; default: none.
        monotonic: seconds of a clock that only goes forward, for durations.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        approval: ApprovalMode | None = "AUTO",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_result_chars: int = DEFAULT_MAX_CHARS,
        max_output_bytes: int = DEFAULTS.tool_output_bytes,
        legacy: bool = True,
        breaker: CircuitBreaker | None = None,
        rules: RuleSource | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self.approval = approval or "AUTO"
        self._max_chars = max_result_chars
        self._gate = ApprovalGate(self.approval, rules or NoRules())
        breaker = breaker or CircuitBreaker(monotonic)
        self._execution = CallExecution(
            breaker=breaker, timeout_s=timeout_s, legacy=legacy, monotonic=monotonic, max_bytes=max_output_bytes
        )

    async def run_all(
        self,
        calls: Sequence[ToolCall],
        ctx: RunnerContext,
        *,
        policy: CallPolicy | None = None,
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
            policy: what the agent may do; None: what the node's own agent may (`policy_of`).
            results: data of the latest result of each tool in this run; a later call also sees those of this turn.
            max_calls: further calls get an error result; 0: no tools were offered at all.
            parallel: run concurrently if all are read-only, none holds a template and no person is to be asked.
            ends_node: nothing follows in this node, so its own commit records the last call (E5).
            in_state: the calls stand in the messages of the state.
        """
        policy = policy or policy_of(self.registry, ctx)
        if max_calls == 0:
            # No tools were offered, so the model made the name up: a refusal says more than a limit of zero.
            policy, max_calls = replace(policy, disallow=True), None
        calls, keys = own_calls(calls, ctx)
        earlier: Mapping[str, Any] = {} if results is None else results  # not `or`: their number takes reading them all
        if parallel and max_calls is None and len(calls) > 1 and await self._are_plain_reads(calls, policy, ctx):
            return await self._run_together(calls, keys, ctx, policy, earlier)
        # One after another: a later call may refer to the result of an earlier one, and a write must not overtake a read.
        of_turn: dict[str, Any] = {}
        seen: Mapping[str, Any] = ChainMap(of_turn, earlier)  # type: ignore[arg-type] # only its first is written
        out: list[ToolResult] = []
        last = (len(calls) if max_calls is None else min(max_calls, len(calls))) - 1
        for index, call in enumerate(calls):
            if index > last:
                out.append(await self._finish(call, _Outcome(one_too_many(max_calls or 0)), ctx))
                continue
            ends = ends_node and index == last
            result = await self.run(
                call, ctx, policy=policy, results=seen, key=keys[index], ends_node=ends, in_state=in_state
            )
            # A failed call leaves the latest good result in place, so a template never resolves to an error text.
            if result.ok:
                of_turn[call.name] = result_value(result)
            out.append(result)
        return out

    async def run(
        self,
        call: ToolCall,
        ctx: RunnerContext,
        *,
        policy: CallPolicy | None = None,
        results: Mapping[str, Any] | None = None,
        key: str | None = None,
        ends_node: bool = False,
        in_state: bool = False,
    ) -> ToolResult:
        """The result of one call, recorded and sent as an event.

        Args:
            call: as the model wrote it; it need not parse.
            ctx: the context of the node that runs it.
            policy: what the agent may do; None: what the node's own agent may (`policy_of`).
            results: data of the latest result of each tool in this run, for templates.
            key: of the recorded operation; default: the call's id, with a number if this node has called with it before.
            ends_node: nothing follows in this node, so its own commit records the call (E5).
            in_state: the call stands in the messages of the state.

        Raises:
            BudgetExceeded: no tool call is left.
            Terminated: a person ended the run.
            GraphflowError: the engine's own: unknown outcome, fence, store.
        """
        if key is None:
            (call,), (key,) = own_calls([call], ctx)
        outcome = await self._outcome(
            call,
            ctx,
            policy or policy_of(self.registry, ctx),
            {} if results is None else results,
            key,
            ends_node,
            in_state,
        )
        return await self._finish(call, outcome, ctx)

    async def undo(
        self,
        name: str,
        effect: Mapping[str, Any],
        ctx: RunnerContext,
        *,
        key: str,
        approvals: Iterable[str | Mapping[str, Any] | None] = (),
    ) -> ToolResult:
        """Runs the tool that undoes an effect, without approval: the undo itself was a person's decision.

        One person's: a tool whose calls not just anybody alone approves is not run.

        Args:
            name: the tool.
            effect: `{arguments, result, idempotencyKey}` of the effect; the tool gets those that its schema names. Beside
                them `kept`, what the write kept before it acted, which is in the tool's context.
            ctx: records the call, once.
            key: of the recorded operation.
            approvals: `approval` of the agents that the effect may be of.
        """
        # Any policy: the agent may have lost the tool since, and its effect must still be undone.
        tool = find_tool(self.registry, name, ANY_TOOL)
        if isinstance(tool, ToolResult):
            return tool
        if tool.is_guarded:  # nobody is asked here
            return failed("PERMISSION_DENIED", f"{name} undoes nothing by itself: {ALWAYS_ASKED}")
        if any(approval_rule(name, each, self.approval).is_special for each in approvals):
            return failed("PERMISSION_DENIED", f"{name} undoes nothing by itself: {APPROVED_BY_OTHERS}")
        if (denied := lacking(tool, replace(ANY_TOOL, names_tool=True), ctx)) is not None:
            return denied
        named = tool.parameters.get("properties") or {}
        undoes, effect = effect.get("kept") or {}, {key: value for key, value in effect.items() if key != "kept"}
        takes_all = not named and tool.parameters.get("additionalProperties") is not False
        given = {field: value for field, value in effect.items() if takes_all or field in named}
        try:
            prepared = tool.prepare(given)
        except ArgumentsRefused as refused:
            return refused_result(name, refused)
        # No model wrote this call; its arguments are in `ready`, already checked.
        call = ToolCall(id=key, name=name, arguments="{}")
        ready = ReadyCall(tool=tool, call=call, key=key, arguments=given, prepared=prepared, results={}, undoes=undoes)
        return await self._run_once(ready, ctx, ends_node=False, in_state=False, deciders=None)

    async def prepare(
        self, call: ToolCall, ctx: RunnerContext, *, policy: CallPolicy, results: Mapping[str, Any], ends_node: bool
    ) -> ToolResult:
        """The result of one call as `run` gives it, on record, and not sent: more is to come before there is one to send."""
        (call,), (key,) = own_calls([call], ctx)
        outcome = await self._outcome(call, ctx, policy, results, key, ends_node, False)
        return completed(outcome.result, outcome.arguments or {})

    async def tell(self, call: ToolCall, result: ToolResult, ctx: RunnerContext) -> ToolResult:
        """Sends the result of a call that was not run here; cut to what the model gets, it comes back."""
        return await self._finish(call, _Outcome(result), ctx)

    def over(self, registry: ToolRegistry) -> ToolRunner:
        """The same runner over other tools: circuits, rules and limits are shared."""
        other = copy(self)
        other.registry = registry
        return other

    def wire_text(self, call: ToolCall, result: ToolResult) -> str:
        """The text of a call's result that the wire and the model get."""
        return wire_text(result, self.registry.get(call.name))

    def message(self, call: ToolCall, result: ToolResult) -> ToolMessage:
        """The message that answers a call, with the same text as its event, and the whole of what was cut."""
        text = self.wire_text(call, result)
        content: Content = (TextPart(text=text), *result.parts) if result.parts else text
        whole = result.whole_text or None
        return ToolMessage(tool_call_id=call.id, name=call.name, content=content, error=not result.ok, whole=whole)

    # finding and preparing

    async def _outcome(
        self,
        call: ToolCall,
        ctx: RunnerContext,
        policy: CallPolicy,
        results: Mapping[str, Any],
        key: str,
        ends_node: bool,
        in_state: bool,
    ) -> _Outcome:
        if ctx.recorded(form_key(key)):  # the form waits or was answered, even if its tool has changed or gone since
            ctx.charge_tool_call(key, counted=True)
            return _Outcome(await await_form(self.registry.get(call.name), call, None, ctx, key=key))
        tool = find_tool(self.registry, call.name, policy)
        if isinstance(tool, ToolResult):
            return _Outcome(tool)
        if tool.capabilities and (refused := lacking(tool, policy, ctx)) is not None:
            return _Outcome(refused)
        try:
            ready = self._ready(tool, call, parse_arguments(call.arguments), results, key, policy)
        except ArgumentsRefused as refused:
            return _Outcome(refused_result(tool.name, refused))
        # A re-entered node has paid for this call already; charging twice would end a run early after a crash.
        entered_before = any(ctx.recorded(known) for known in (key, rule_key(key), approval_key(key)))
        # Charged after the checks and before anybody is asked: a call that can't run costs nothing, and nobody approves
        # a call that the budget then refuses.
        ctx.charge_tool_call(key, counted=entered_before)
        decision = await self._gate.decide(tool, call.id, ready.arguments, policy, ctx, key=key, taken=ready.prepared)
        if isinstance(decision, ToolResult):
            return _Outcome(decision, ready.arguments)
        # A person may have written anything, so edited arguments pass the same checks as the model's.
        if decision.edited:
            try:
                ready = self._ready(tool, call, decision.arguments, results, key, policy)
            except ArgumentsRefused as refused:
                return _Outcome(refused_result(tool.name, refused), ready.arguments)
        if (
            decision.asked
            and (denied := await self._gate.denial(tool, ready.arguments, policy, ctx, key=key, taken=ready.prepared))
            is not None
        ):
            return _Outcome(denied, ready.arguments)
        # After the approval check: a rule may deny a form before any person sees it.
        if tool.kind == "frontend":
            return _Outcome(await await_form(tool, call, ready.arguments, ctx, key=key), ready.arguments)
        # A call that was decided about has a record of its own: the list of decisions tells by it whether the call was made.
        ends = ends_node and not (decision.asked or decision.by_rule)
        deciders = self._gate.deciders(tool, policy) if decision.asked else None
        return _Outcome(await self._run_once(ready, ctx, ends, in_state, deciders), ready.arguments)

    @staticmethod
    def _ready(
        tool: Tool, call: ToolCall, given: dict[str, Any], results: Mapping[str, Any], key: str, policy: CallPolicy
    ) -> ReadyCall:
        """The call with its templates resolved and its arguments checked; raises `ArgumentsRefused`."""
        # Source text may contain `{{ }}` of its own, so both the agent and the tool can switch templates off.
        looks = policy.templates and tool.templates and refers(given, len(call.arguments))
        resolved = resolve_templates(given, results) if looks else given
        prepared = tool.prepare(resolved)
        return ReadyCall(tool=tool, call=call, key=key, arguments=resolved, prepared=prepared, results=results)

    # running

    async def _run_once(
        self, ready: ReadyCall, ctx: RunnerContext, ends_node: bool, in_state: bool, deciders: Mapping[str, Any] | None
    ) -> ToolResult:
        """The recorded result. A tool that needs people's input is run again with their answers, each run on record."""
        if not ready.tool.asks:
            return await self._run_recorded(ready, ctx, ends_node, in_state, deciders)
        key, rounds = ready.key, 0
        result = await self._run_recorded(ready, ctx, False, in_state, deciders)
        while (needed := from_context(result.context)) is not None:
            if (rounds := rounds + 1) > MOST_ROUNDS:
                return failed("EXECUTION_ERROR", f"{ready.tool.name} asks for input more than {MOST_ROUNDS} times")
            answers = {
                name: await ask_person(
                    question, ready.tool.name, ready.call.id, ctx, key=f"{key}:input:{rounds}:{name}"
                )
                for name, question in needed.questions.items()
            }
            given = InputGiven(answers=answers, memo=needed.memo)
            ready = replace(ready, key=f"{key}:round:{rounds}", given=given)
            result = await self._run_recorded(ready, ctx, False, False, deciders)
        return result

    async def _run_recorded(
        self, ready: ReadyCall, ctx: RunnerContext, ends_node: bool, in_state: bool, deciders: Mapping[str, Any] | None
    ) -> ToolResult:
        given = {} if ready.given is None else {"input": dict(ready.given.answers)}

        async def act() -> dict[str, Any]:
            return record_of(await self._execution.run(ready, ctx))

        recovers: dict[str, Any] = {}
        if ready.tool.recovery is not None:
            recovers["recovery"] = CallRecovery(execution=self._execution, ready=ready, ctx=ctx)
        # The digest covers tool and arguments: a re-entered node that calls something else must not get this result.
        record = await ctx.step(
            ready.key,
            act,
            effects=ready.tool.effects,
            idempotent=ready.tool.idempotent,
            undo=ready.tool.undo,
            arguments={"tool": ready.tool.name, "arguments": ready.arguments, **given},
            kind="tool",
            ends_node=ends_node,
            refers=in_state and as_called(ready),
            deciders=deciders,
            **recovers,
        )
        return from_record(record)

    # several at once, and the end of each

    async def _are_plain_reads(self, calls: Sequence[ToolCall], policy: CallPolicy, ctx: RunnerContext) -> bool:
        """Whether the calls may run concurrently: each only reads, uses no other result and needs no approval."""
        for call in calls:
            tool = find_tool(self.registry, call.name, policy)
            # Nothing runs for a name that does not exist, so it can't disturb the other calls.
            if isinstance(tool, ToolResult):
                continue
            # Writes keep the order of the model; actions and forms keep the order in which a person sees them.
            if tool.effects == "write" or tool.kind != "backend":
                return False
            try:
                arguments = parse_arguments(call.arguments)
                looks = tool.templates and refers(arguments, len(call.arguments))
            except ArgumentsRefused:
                continue
            if looks or not await self._gate.is_free(tool, arguments, policy, ctx):
                return False
        return True

    async def _run_together(
        self,
        calls: Sequence[ToolCall],
        keys: Sequence[str],
        ctx: RunnerContext,
        policy: CallPolicy,
        results: Mapping[str, Any],
    ) -> list[ToolResult]:
        """Runs the calls concurrently and sends their results in call order, each as soon as the earlier ones are sent.

        If the budget ends among them, the earlier calls still run and send their results, as they would in sequence.
        """

        async def affordable(call: ToolCall, key: str) -> _Outcome | BudgetExceeded:
            try:
                return await self._outcome(call, ctx, policy, results, key, False, False)
            except BudgetExceeded as error:  # raised in its turn: in here it would cancel the calls before it
                return error

        told: list[ToolResult] = []
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(affordable(call, key)) for call, key in zip(calls, keys, strict=True)]
                for call, task in zip(calls, tasks, strict=True):
                    # Awaited in call order, not as they finish: a replay must send the same events in the same order.
                    outcome = await task
                    if isinstance(outcome, BudgetExceeded):
                        raise outcome
                    told.append(await self._finish(call, outcome, ctx))
        except BaseExceptionGroup as several:
            # The group holds one error: the first failure cancelled the others.
            raise several.exceptions[0] from None
        return told

    async def _finish(self, call: ToolCall, outcome: _Outcome, ctx: RunnerContext) -> ToolResult:
        """Cuts what is too long for the model, then sends the result and its sources."""
        tool = self.registry.get(call.name)
        # Cut after the record: the whole result stays with the thread, only the model and the wire get less.
        # What the model wrote also where it breaks the tool's schema: for envelopes, and for clients of an action.
        given = readable_arguments(call.arguments) if outcome.arguments is None else outcome.arguments
        result = cut_to(completed(outcome.result, given or {}), tool, self._max_chars)
        action = tool is not None and tool.kind == "action"
        await ctx.tool_result(call.id, wire_text(result, tool), action, given)
        for number, source in enumerate(result.sources, 1):
            ctx.source(source_facts(source, f"{call.id}_source_{number}"))
        return result
