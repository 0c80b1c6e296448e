"""What a finished or waiting run returns to its caller."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from graphflow.errors import GraphflowError
from graphflow.graph.core.budget import known_usage
from graphflow.graph.core.immutable import State, freeze, thaw
from graphflow.graph.core.machine import ROOT, Interrupt, Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.scope import result_of, scope_of
from graphflow.graph.definition.types import show

RunStatus = Literal["completed", "waiting", "failed", "cancelled", "running", "stopped"]
_STATUS: dict[str, RunStatus] = {"idle": "completed", "waiting": "waiting", "failed": "failed", "stopped": "cancelled"}


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `run`, `answer` or `resume`."""

    status: RunStatus
    """`running` only from `Thread.result`: a process drives the run. `stopped`: the process that drove it died."""
    state: State
    """The root's values, read-only."""
    output: Any = None
    """The document's `result`, by default the last assistant text; None unless completed."""
    interrupts: tuple[Interrupt, ...] = ()
    """What waits for an answer."""
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    run_id: str = ""
    thread_id: str = ""
    checkpoint_id: str | None = None
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    """`{code, message, node?, retryable, detail?}` of a failed run."""
    cause: BaseException | None = None
    """The exception that failed it, in the process that ran it."""

    def __repr__(self) -> str:
        """What there is, each value cut to one line: the whole ones are in the fields."""
        parts = [self.status, *([self.finish_reason] if self.finish_reason not in (None, "stop") else [])]
        if self.error is not None:
            node = f" at {self.error['node']!r}" if self.error.get("node") else ""
            parts.append(f"{self.error['code']}{node}: {show(self.error['message'], 160)}")
        if self.output is not None:
            parts.append(f"output={show(self.output)}")
        parts += [f"waits for {one.kind} {one.id!r} at {one.node!r}" for one in self.interrupts]
        state = ", ".join(f"{key!r}: {show(thaw(value))}" for key, value in self.state.items())
        return f"<RunResult {'; '.join(parts)}; state={{{state}}}; thread_id={self.thread_id!r}>"

    def raise_for_error(self) -> RunResult:
        """Returns itself; raises a `GraphflowError` with the run's code if it failed, from `cause`."""
        if self.error is not None:
            detail = self.error.get("detail") or {}
            raise GraphflowError(self.error["message"], code=self.error["code"], **detail) from self.cause
        return self


def result_from(
    plan: Plan, machine: Machine, thread_id: str, checkpoint_id: str | None, cause: BaseException | None = None
) -> RunResult:
    """The result of a run, read from its machine; `cause` is what failed it in this process."""
    status = _STATUS.get(machine.status, "stopped")
    frame = machine.frames.get(ROOT)
    done = status == "completed" and frame is not None
    return RunResult(
        status=status,
        state=frame.state if frame is not None else State(),
        output=freeze(result_of(plan, frame, scope_of(plan, machine, frame))) if done and frame is not None else None,
        interrupts=tuple(machine.interrupts.values()),
        usage=known_usage(machine.usage),
        run_id=machine.run_id,
        thread_id=thread_id,
        checkpoint_id=checkpoint_id,
        finish_reason=machine.finish_reason or None if done else None,
        error=dict(machine.error) if status == "failed" and machine.error else None,
        cause=cause if status == "failed" else None,
    )
