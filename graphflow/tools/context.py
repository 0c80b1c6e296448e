"""The context of a running tool, and what the runner needs from the node that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from graphflow.errors import GraphflowError
from graphflow.tools.input_needed import InputGiven, ToolQuestion


async def _nobody(question: ToolQuestion, number: int) -> Any:
    raise GraphflowError(f"nobody can be asked here: {question.message}", code="invalid_input")


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Injected into a tool function's parameter that is annotated `ToolContext` or named `ctx`."""

    call_id: str
    tool_name: str
    thread_id: str
    run_id: str
    idempotency_key: str
    """The same on a retry and after a crash (E6); hand it to services that know such keys."""
    results: Mapping[str, Any]
    """Data of the latest result of each tool in this run, by tool name."""
    now_ms: Callable[[], int]
    """Milliseconds since the epoch, from the run's clock: the only clock a tool should read."""
    progress: Callable[[Any], Awaitable[None]]
    """Sends a JSON-able value as `tool.progress`."""
    ask: Callable[[ToolQuestion, int], Awaitable[Any]] = _nobody
    """A person's answer to the question with this number of the call. The call's time limit pauses meanwhile; it may leave
    by a signal that is no `Exception`, and the tool is run again from its beginning after the answer."""
    given: InputGiven | None = None
    """The answers for a tool that returned `InputNeeded`."""
    document: Any = None
    """The document of the agent whose model made the call (`GraphDefinition`); None outside any node."""
    agent_key: str | None = None
    """The agent that the run is of; None outside any."""
    starter: dict[str, Any] | None = None
    """Who asked for the run, `{by, can?}`; None: the local person."""
    notes: ThreadNotes | None = None
    """What tools note about the thread; None outside any."""
    show_plan: Callable[..., None] | None = None
    """`(steps, new=…)` sends a plan to readers, as `plan.create` if it is new, else as `plan.update`."""
    undoes: Any = None
    """In a tool that takes a write back: what the write kept before it acted, `{}` for nothing."""


class ThreadNotes:
    """Notes that tools leave with a thread for their later calls, by key: stored with it, and shown to nobody.

    Args:
        stored: what the thread has.
    """

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        self._stored = {} if stored is None else stored
        self.changes: dict[str, Any] = {}
        """What is to be stored once the call has ended."""

    def get(self, key: str) -> Any:
        """The note, or None."""
        return self.changes[key] if key in self.changes else self._stored.get(key)

    def put(self, key: str, note: Any) -> None:
        """Leaves a JSON-able note, or drops it with None."""
        self.changes[key] = note


class RunnerContext(Protocol):
    """The part of a node's context that running a tool call needs."""

    @property
    def thread_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch, from the run's clock."""

    def idempotency_key(self, key: str) -> str:
        """The idempotency key of the operation `key` of this node run (E6)."""

    def call_key(self, call_id: str) -> str:
        """The operation key of the next call with this id; each time another one."""

    def recorded(self, key: str) -> bool:
        """Whether the operation `key` is on record or its question open, so the node is being re-entered."""

    def charge_tool_call(self, key: str | None = None, *, counted: bool = False) -> None:
        """Counts one tool call; raises `BudgetExceeded` when none is left.

        Args:
            key: the call's operation; its first record stores the charge.
            counted: a record counts it already; it only enters the usage of this node run.
        """

    @property
    def kept(self) -> Mapping[str, Any]:
        """What tools have noted about the thread."""

    def keep(self, notes: Mapping[str, Any]) -> None:
        """Records notes for later calls; None drops one."""

    async def step(
        self,
        name: str,
        fn: Callable[[], Awaitable[Any]],
        *,
        effects: str = "write",
        idempotent: bool = False,
        undo: str | None = None,
        arguments: Any = None,
        kind: str = "once",
        ends_node: bool = False,
        refers: bool = False,
        deciders: Mapping[str, Any] | None = None,
        recovery: Any = None,
    ) -> Any:
        """`fn`'s JSON-able value, recorded under `name`; the recorded one on re-entry (E5).

        An exception of `fn` is not recorded. The runner lets `fn` raise `timeout` and `connection` failures only
        for a `write` that is not idempotent: its outcome is unknown then (E6). `undo` names what takes the call back;
        `refers` says that the messages of the state hold the arguments, and `deciders` who decides about an unknown outcome:
        `{role?, approval?}` of the question by which people have approved the call. `recovery` is what a write keeps before
        it acts.
        """

    async def ask(
        self,
        message: str,
        *,
        kind: str = "ask",
        key: str | None = None,
        schema: dict[str, Any] | None = None,
        payload: Any = None,
        tool_id: str | None = None,
        tool_name: str | None = None,
        arguments: Any = None,
        hold_ms: int | None = None,
        owner: str | None = None,
        role: str | None = None,
        expires: str | None = None,
        digest: str | None = None,
    ) -> Any:
        """A person's answer, checked against `schema`; may leave by a signal that is no `Exception`.

        `digest` identifies what the answer is valid for; default: everything that is shown.
        """

    async def tool_progress(self, call_id: str, data: Any) -> None: ...

    async def tool_result(self, call_id: str, text: str, action: bool = False, param: Any = None) -> None:
        """Sends the call's result; for an action after `param`, its parsed arguments."""

    def source(self, facts: dict[str, Any]) -> None:
        """Sends `source.snapshot` for one source of a result."""


class Terminated(GraphflowError):
    """A person ended the run instead of approving a call: `run.complete` with finish reason `rejected` (E13)."""

    code = "rejected"
