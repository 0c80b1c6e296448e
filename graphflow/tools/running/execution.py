"""Really runs one call that may run: circuit breaker, time limit, cancellation, and failures as results (spec 8.2)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from graphflow.capabilities import Starter, askers
from graphflow.errors import BudgetExceeded, NodeFailed, NodeTimeout, StoreError, described
from graphflow.graph.core.immutable import thaw
from graphflow.graph.engine.outcomes import AGAIN
from graphflow.json_data import deeper_than
from graphflow.masking import SHOWN_CHARS, excerpt, mask_excerpt
from graphflow.messages import ToolCall
from graphflow.tools.context import RunnerContext, Terminated, ThreadNotes, ToolContext
from graphflow.tools.envelope import json_text, record_of, split_parts, unusable, wrap
from graphflow.tools.input_needed import FIELD, InputGiven, InputNeeded, ToolQuestion, as_record
from graphflow.tools.log import log_exception, log_info, logs_info
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.running.arguments import MAX_DEPTH
from graphflow.tools.running.circuit_breaker import BREAKING_CODES, CircuitBreaker
from graphflow.tools.running.output_bound import bounded

_CUT_OFF = ("timeout", "connection")
"""Failures after which the call may still have taken effect."""


@dataclass(frozen=True, kw_only=True)
class ReadyCall:
    """A call that was parsed, checked and approved."""

    tool: Tool
    call: ToolCall
    key: str
    """Of its recorded operation."""
    arguments: dict[str, Any]
    prepared: dict[str, Any]
    results: Mapping[str, Any]
    given: InputGiven | None = None
    """Answers of people that the tool has asked for."""
    undoes: Any = None
    """As in `ToolContext`."""


class CallExecution:
    """Runs calls for a `ToolRunner`; see there for what the arguments mean."""

    def __init__(
        self,
        *,
        breaker: CircuitBreaker,
        timeout_s: float,
        legacy: bool,
        monotonic: Callable[[], float],
        max_bytes: int,
    ) -> None:
        self._breaker = breaker
        self._timeout_s = timeout_s
        self._legacy = legacy
        self._monotonic = monotonic
        self._max_bytes = max_bytes

    async def run(self, ready: ReadyCall, ctx: RunnerContext) -> ToolResult:
        """The result of running the tool once. A refusal by the circuit breaker is recorded too, so a re-entry agrees."""
        tool = ready.tool
        circuit = (tool.name, *askers(_starter(ctx)))
        if (wait_s := self._breaker.wait_s(circuit)) is not None:
            return failed(
                "CIRCUIT_OPEN",
                f"{tool.name} failed several times in a row and is left alone for another {wait_s:.0f} s.",
                "Use another tool, or go on without it.",
            )
        if logs_info():
            log_info("tool.start", tool=tool.name, call_id=ready.call.id, arguments=mask_excerpt(ready.arguments))
        began = self._monotonic()
        try:
            result = await self._guarded(ready, ctx)
        except BaseException as error:
            # A cancel or a budget says nothing about the tool's health; only a lost connection or a time-out does.
            if isinstance(error, NodeFailed) and error.code in _CUT_OFF:
                self._breaker.report(circuit, failed=True)
            else:
                self._breaker.leave(circuit)
            raise
        time_ms = round((self._monotonic() - began) * 1000)
        self._breaker.report(circuit, failed=result.error is not None and result.error.code in BREAKING_CODES)
        if logs_info():
            size = len(result.text) or len(json_text(result.data))
            facts: dict[str, Any] = {"status": result.status, "chars": size, "ms": time_ms}
            if result.error is not None:
                facts |= {"code": result.error.code, "why": excerpt(result.error.message, SHOWN_CHARS)}
            log_info("tool.end", tool=tool.name, call_id=ready.call.id, **facts)
        return msgspec.structs.replace(result, stats={"time_ms": time_ms, **result.stats})

    async def _guarded(self, ready: ReadyCall, ctx: RunnerContext) -> ToolResult:
        """The tool's own result, or the error result for its failure."""
        tool = ready.tool
        limit = self._timeout_s if tool.timeout_s is None else tool.timeout_s
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                context = self.tool_context(ready, ctx, deadline)
                value = await tool.body.run(ready.prepared, context)
            if context.notes is not None and context.notes.changes:
                ctx.keep(context.notes.changes)
            if isinstance(value, InputNeeded):
                return ToolResult(context={FIELD: as_record(value)})
            try:
                value, parts = split_parts(value)  # media have the bound of any value (`bounds.value_bytes`)
            except ValueError as wrong:
                return unusable(tool.name, f"its result can't be used: {wrong}")
            value = bounded(value, self._max_bytes, tool.name)
            result = wrap(value, legacy=self._legacy, tool=tool.name)
            if type(value) is not str:  # objects of the user's classes are measured as what they become
                result = bounded(result, self._max_bytes, tool.name)
            if deeper_than(result.data, MAX_DEPTH):  # what can't be stored; the call itself may have acted
                rule = f"its result is nested deeper than {MAX_DEPTH} levels and can't be kept"
                return failed(
                    "EXECUTION_ERROR", f"{tool.name} has run, but {rule}.", "Go on without it, or ask for less."
                )
            return msgspec.structs.replace(result, parts=(*result.parts, *parts)) if parts else result
        # The engine's own errors end the node; a model could only misread them as the tool's.
        except (StoreError, BudgetExceeded, Terminated):
            raise
        except asyncio.CancelledError:
            # A real cancel counts on the task; without it the tool raised CancelledError itself, which must not end the run.
            if _is_cancelled():
                raise
            return failed("CANCELLED", f"{tool.name} cancelled itself.", "Try again, or go on without it.")
        # A tool that calls sys.exit() must not end the server.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's failure is a result for the model
            log_exception("tool.failed", error, tool=tool.name, call_id=ready.call.id)
            # A tool's own TimeoutError (of a socket, say) is not our limit; only `expired()` tells them apart.
            return _failure(tool, TimeoutError(f"no end after {limit:g} s") if deadline.expired() else error)

    def tool_context(self, ready: ReadyCall, ctx: RunnerContext, deadline: asyncio.Timeout) -> ToolContext:
        """What the tool is given."""
        call_id = ready.call.id
        kept = getattr(ctx, "kept", None)

        async def ask(question: ToolQuestion, number: int) -> Any:
            left = None if (when := deadline.when()) is None else when - asyncio.get_running_loop().time()
            deadline.reschedule(None)  # waiting is not the tool's time
            try:
                return await ask_person(question, ready.tool.name, call_id, ctx, key=f"{ready.key}:asked:{number}")
            finally:
                if left is not None and not deadline.expired():
                    deadline.reschedule(asyncio.get_running_loop().time() + left)

        async def progress(data: Any) -> None:
            await ctx.tool_progress(call_id, data)

        return ToolContext(
            call_id=call_id,
            tool_name=ready.tool.name,
            thread_id=ctx.thread_id,
            run_id=ctx.run_id,
            idempotency_key=ctx.idempotency_key(ready.key),
            results=ready.results,
            now_ms=ctx.now_ms,
            progress=progress,
            ask=ask,
            given=ready.given,
            document=getattr(ctx, "document", None),
            agent_key=getattr(ctx, "services", {}).get("agent_key"),
            starter=_starter(ctx),
            notes=None if kept is None else ThreadNotes(kept),
            show_plan=getattr(ctx, "show_plan", None),
            undoes=ready.undoes,
        )


async def ask_person(question: ToolQuestion, tool: str, call_id: str, ctx: RunnerContext, *, key: str) -> Any:
    """A person's answer to a question of a tool, checked against its schema; recorded under `key`."""
    payload = {"message": question.message}
    schema = dict(question.schema)
    return thaw(
        await ctx.ask(question.message, key=key, schema=schema, payload=payload, tool_id=call_id, tool_name=tool)
    )


@dataclass(frozen=True, kw_only=True)
class CallRecovery:
    """The `OperationRecovery` of one call."""

    execution: CallExecution
    ready: ReadyCall
    ctx: RunnerContext

    def _context(self) -> ToolContext:
        return self.execution.tool_context(self.ready, self.ctx, asyncio.timeout(None))

    async def before(self) -> Any:
        """As of the tool; what it notes is recorded."""
        tool, context = self.ready.tool, self._context()
        assert tool.recovery is not None
        kept = await tool.recovery.before(self.ready.prepared, context)
        if context.notes is not None and context.notes.changes:
            self.ctx.keep(context.notes.changes)
        return kept

    async def outcome(self, kept: Any) -> Any:
        """As of the tool, as a record."""
        tool, context = self.ready.tool, self._context()
        assert tool.recovery is not None
        found = await tool.recovery.outcome(self.ready.prepared, kept, context)
        if context.notes is not None and context.notes.changes:
            self.ctx.keep(context.notes.changes)
        return record_of(found) if isinstance(found, ToolResult) else AGAIN if found is False else None


def _starter(ctx: RunnerContext) -> Starter | None:
    machine = getattr(ctx, "machine", None)
    return None if machine is None else machine.starter


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _outcome_unknown(error: BaseException) -> bool:
    """Whether a call that failed like this may still have taken effect (E6)."""
    if isinstance(error, NodeFailed):
        return error.code in _CUT_OFF
    # Looked up, not imported: if httpx is not loaded, the error can't be one of its own.
    httpx: Any = sys.modules.get("httpx")
    if httpx is not None and isinstance(error, httpx.TransportError):
        # No connection, no request: those are known not to have acted.
        return not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    # A refused connection never carried the request; a broken one may have.
    return isinstance(error, TimeoutError | ConnectionError) and not isinstance(error, ConnectionRefusedError)


def _failure(tool: Tool, error: BaseException) -> ToolResult:
    """The error result for the model; raises instead if it is unknown whether a `write` took effect (E6)."""
    words = described(error)
    if tool.effects == "write" and not tool.idempotent and _outcome_unknown(error):
        message = f"{tool.name} was cut off: {words}; whether it did its work is unknown"
        raise NodeTimeout(message) if isinstance(error, TimeoutError) else NodeFailed(message, code="connection")
    if isinstance(error, TimeoutError):
        return failed("TIMEOUT", f"{tool.name} failed: {words}.", "Ask for less, or go on without it.")
    return failed("EXECUTION_ERROR", f"{tool.name} failed: {words}.", "Change the arguments, or go on without it.")
