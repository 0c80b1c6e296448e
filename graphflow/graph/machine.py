"""The machine: where a thread is, as immutable plain data; and the ticks, commands and patches around it.

`transition.advance(plan, machine, tick)` makes the next machine. It does so by building a `Patch` and
applying it with `apply_patch`, the same function that loading uses: what was stored is what ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from graphflow.graph.state import State, Update, apply_update

Status = Literal["idle", "running", "waiting", "failed", "stopped"]
"""`idle`: nothing unfinished; `stopped`: unfinished and driven by nobody (spec 3.2)."""

ROOT = 0
"""Number of the root frame, which lives as long as the thread."""


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """A recorded operation inside a node that has not finished (E5)."""

    kind: str
    """`once`, `tool`, `model` or `ask`."""
    digest: str
    """Of its arguments; another digest under the same key is `node_not_deterministic`."""
    effects: str = "none"
    state: str = "done"
    """`intent` (a write is about to act), `done`, or `unknown` (a crash between the two, E6)."""
    result: Any = None
    idempotent: bool = False


class Interrupt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that waits for an answer (spec 2.4); durable before anybody is asked (E12)."""

    id: str
    kind: str
    """`approval`, `ask`, `frontend`, `breakpoint`, `outcome_unknown` or `timer`."""
    run_id: str
    node: str
    frame: int
    key: str
    """The operation of the node run that asked; `""` for the node itself."""
    schema: Any = msgspec.field(default_factory=dict)
    payload: Any = None
    path: str = ""
    tool_id: str | None = None
    tool_name: str | None = None
    arguments: Any = None
    digest: str = ""
    """Of tool and arguments: an answer to other arguments is void."""
    owner: str | None = None
    role: str | None = None
    hold_ms: int | None = None
    opened_at: int = 0
    expires_at: int | None = None
    on_expire: str | None = None
    reissue_of: str | None = None
    node_run_id: str = ""
    """The node run that asked; it goes on under this id after the answer, also in a later life."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one graph is: the root, a branch, or a subgraph."""

    number: int
    graph: str = ""
    """Which plan of the table it runs; `""` is the root's."""
    parent: int = -1
    path: str = ""
    """`node#visit` per level, joined by `/`; empty at the root (E3)."""
    node: str = ""
    """The current node; `end` when the frame has finished."""
    visit: int = 1
    """Entries of the current node in this frame since the run's input, this one included."""
    attempt: int = 1
    status: str = "ready"
    """`ready` (to run or running), `open` (a child frame runs), `waiting`, `backoff`, `done`, `failed`."""
    visits: dict[str, int] = msgspec.field(default_factory=dict)
    """Entries of nodes that lie on a cycle; any other node has been entered once at most."""
    input: Any = None
    scope: dict[str, Any] = msgspec.field(default_factory=dict)
    """`as` names of the branches around it."""
    error: dict[str, Any] | None = None
    """The failure that an error route is handling, the expression root `error`."""
    operations: dict[str, Operation] = msgspec.field(default_factory=dict)
    passed: str = ""
    """The node whose breakpoint was answered, so that it does not stop there again."""
    until: int = 0
    """Epoch ms at which a backoff ends."""
    state: State = msgspec.field(default_factory=State)


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread at one moment. Everything that a crash must not reset is in here (E17)."""

    status: Status = "idle"
    run_id: str = ""
    frames: dict[int, Frame] = msgspec.field(default_factory=dict)
    interrupts: dict[str, Interrupt] = msgspec.field(default_factory=dict)
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    """Since the run's input: promptTokens, completionTokens, reasoningTokens, cachedTokens, modelCalls, toolCalls."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Breakpoints of this run, the document's included."""
    params: Any = None
    steps: int = 0
    """Nodes finished since the input."""
    begun: int = 0
    """Nodes begun since the input."""
    frames_made: int = 1
    """Frame numbers are never reused in a lineage (E4)."""
    active_ms: int = 0
    """Time with something running, the time that `timeoutMs` limits (E11)."""
    last_at: int = 0
    wrapping: bool = False
    """The budget's `then` node runs; it runs once."""
    finish_reason: str = ""
    error: dict[str, Any] | None = None
    durability: str = "async"

    @property
    def root(self) -> Frame:
        return self.frames[ROOT]


def next_nodes(machine: Machine) -> list[str]:
    """The nodes that run next, with their frame's path unless it is the root."""
    out = []
    for frame in machine.frames.values():
        if frame.status not in ("open", "done"):
            out.append(f"{frame.path}/{frame.node}" if frame.path else frame.node)
    return out


# --- patches -------------------------------------------------------------------------------------


class FramePatch(msgspec.Struct):
    """What changes in one frame; a frame that is not there yet is opened by it."""

    fields: dict[str, Any]
    update: Update | None = None
    operations: dict[str, Operation | None] | None = None
    """Recorded operations to set, or to drop with None."""
    visits: dict[str, int] | None = None
    """Visit counts to set."""


class Patch(msgspec.Struct):
    """Everything that one tick changed."""

    machine: dict[str, Any]
    frames: dict[int, FramePatch | None]
    """Frame number → its changes; None closes the frame."""
    interrupts: dict[str, Interrupt | None]
    """Interrupts opened, or closed with None."""
    reset: bool = False
    """The machine starts from nothing but its root state (a new input): frames and interrupts are dropped."""


def apply_patch(machine: Machine, patch: Patch) -> Machine:
    """The machine after the patch; live and on loading alike."""
    changes = dict(patch.machine)
    frames = patch.frames
    if frames:
        table = dict(machine.frames)
        for number, change in frames.items():
            if change is None:
                table.pop(number, None)
            else:
                table[number] = patched(table.get(number), number, change)
        changes["frames"] = table
    if patch.interrupts:
        open_ = dict(machine.interrupts)
        for key, interrupt in patch.interrupts.items():
            if interrupt is None:
                open_.pop(key, None)
            else:
                open_[key] = interrupt
        changes["interrupts"] = open_
    return msgspec.structs.replace(machine, **changes)


def patched(frame: Frame | None, number: int, change: FramePatch) -> Frame:
    """The frame after its part of a patch; None begins one."""
    fields = change.fields
    if frame is None:
        frame = Frame(number=number)
    if change.update is not None or change.operations or change.visits:
        fields = dict(fields)
        if change.update is not None:
            fields["state"] = apply_update(fields.get("state", frame.state), change.update)
        if change.operations:
            fields["operations"] = _merged(fields.get("operations", frame.operations), change.operations)
        if change.visits:
            fields["visits"] = _merged(fields.get("visits", frame.visits), change.visits)
    return msgspec.structs.replace(frame, **fields)


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    out = {**old, **changes}
    for key, value in changes.items():
        if value is None:
            del out[key]
    return out


# --- ticks: what happened (E17) ------------------------------------------------------------------


class Tick(msgspec.Struct, kw_only=True):
    """What every tick carries: the record's id and the time in epoch ms."""

    id: str
    at: int


class Input(Tick):
    run_id: str
    input: Any
    limits: dict[str, Any]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    params: Any = None
    durability: str = "async"


class NodeSucceeded(Tick):
    frame: int
    out: Any = None
    updates: Mapping[str, Any] | None = None
    """What a `node:` function returned; `set` expressions make the updates of every other kind."""
    goto: str | None = None
    usage: dict[str, Any] | None = None
    finish: str | None = None
    facts: dict[str, Any] | None = None
    """What the record keeps of the node's operations (E5): kind, key, model and usage of each."""


class NodeFailed(Tick):
    frame: int
    error: dict[str, Any]
    jitter: float = 0.0
    partial: Any = None
    """The message as far as it came (E15)."""
    usage: dict[str, Any] | None = None
    final: bool = False
    """Not to be retried, whatever the policy says (an outcome-unknown write)."""


class NodeAsked(Tick):
    """An `ask` node, a breakpoint, `ctx.ask`, an approval or an unknown outcome opens an interrupt."""

    frame: int
    interrupt: Interrupt


class OperationRecorded(Tick):
    frame: int
    key: str
    operation: Operation | None
    usage: dict[str, Any] | None = None


class Answered(Tick):
    interrupt_id: str
    answer: Any
    decision: str
    by: str | None = None


class Expired(Tick):
    interrupt_id: str


class BackoffOver(Tick):
    frame: int


class Recovered(Tick):
    """A new life takes over after a crash."""


class Resumed(Tick):
    """A stopped or failed thread goes on, as a new run when `run_id` is another."""

    run_id: str
    limits: dict[str, Any]
    before: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None


class Deadline(Tick):
    """The run's active time is used up."""


class Cancel(Tick):
    partials: dict[int, Any] = msgspec.field(default_factory=dict)
    """Frame → the message as far as it came (E15)."""


class Edited(Tick):
    values: dict[str, Any]
    run_id: str
    """The run that goes on from it: the same while the thread waits, else another."""
    as_node: str | None = None
    frame: int = ROOT
    replace: tuple[str, ...] = ()


class Moved(Tick):
    """A rewind or fork made this machine the head (E8)."""

    source: str
    run_id: str


AnyTick = (
    Input
    | NodeSucceeded
    | NodeFailed
    | NodeAsked
    | OperationRecorded
    | Answered
    | Expired
    | BackoffOver
    | Recovered
    | Resumed
    | Deadline
    | Cancel
    | Edited
    | Moved
)


# --- commands: what the executor shall do --------------------------------------------------------


class Commit(msgspec.Struct):
    """Write this record; always the first command, unless nothing changed."""

    id: str
    at: int
    source: str
    """Of spec 3.2: `input, node, ask, answer, …`; also `failed`, `retry`, `operation`, `recovered` (no checkpoint)."""
    checkpoint: bool
    patch: Patch
    node: str = ""
    frame: int = ROOT
    facts: dict[str, Any] | None = None
    before: Machine | None = None
    machine: Machine | None = None
    """The machine after it."""


class Started(msgspec.Struct):
    """A node begins; for an open `graph` node too, which nothing runs."""

    frame: int
    node: str
    visit: int
    attempt: int
    step: int
    path: str
    open: bool = False
    """It is a `graph` node: its child frame runs, not the node itself."""


class Run(msgspec.Struct):
    """Run the frame's node, or go on with it."""

    frame: int


class Ended(msgspec.Struct):
    frame: int
    node: str
    writes: tuple[str, ...]
    usage: dict[str, Any] | None = None


class Erred(msgspec.Struct):
    frame: int
    node: str
    error: dict[str, Any]
    will_retry: bool
    again: bool = False
    """The same node begins another attempt at once or after a backoff."""


class Backoff(msgspec.Struct):
    frame: int
    until: int


class CancelNode(msgspec.Struct):
    frame: int


class Request(msgspec.Struct):
    """An interrupt is open: ask, once the commit is durable."""

    interrupt: Interrupt


class Resolve(msgspec.Struct):
    """An interrupt is closed; whoever waits in the live process gets `answer`."""

    interrupt: Interrupt
    decision: str
    answer: Any = None


class Finished(msgspec.Struct):
    """The run is over: `complete`, `error` or `cancel`."""

    how: Literal["complete", "error", "cancel"]


Command = Commit | Started | Run | Ended | Erred | Backoff | CancelNode | Request | Resolve | Finished
