"""The machine: where a thread is, as immutable plain data; and the ticks and commands around it.

`transition.advance(plan, machine, tick)` makes the next machine.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from graphflow.graph.core.channels import ListView, State

if TYPE_CHECKING:
    from graphflow.graph.core.patches import Patch

Status = Literal["idle", "running", "waiting", "failed", "stopped"]
"""`idle`: nothing unfinished; `stopped`: unfinished and driven by nobody (spec 3.2)."""

ROOT = 0
"""Number of the root frame, which lives as long as the thread."""


WAITS = ("signal", "timer")
"""Kinds of interrupts that no answer of a person closes: those of `wait` nodes."""


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
    """`approval`, `ask`, `frontend`, `breakpoint`, `outcome_unknown`; of a `wait` node `signal` or `timer`."""
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


class Opened(msgspec.Struct, frozen=True):
    """What stays the same while the frames below a `graph`, `map` or `parallel` node run."""

    node_run_id: str
    """Of the node that is open; it ends under this id, also in a later life."""
    items: Any = None
    """What a `map` goes through, as it was at the opening."""
    binds: str = ""
    """The `as` name of its items."""


class Join(msgspec.Struct, frozen=True):
    """How far the branches of a frame's `map` or `parallel` are (spec 2.1 rule 5)."""

    total: int
    pending: range | tuple[int, ...]
    """Positions of the branches that have not begun, in the order in which they may."""
    running: int = 0
    """Begun and not ended, waiting ones included."""
    counted: int = 0
    """Ended and counting for `wait`."""
    ended: ListView = msgspec.field(default_factory=lambda: ListView([]))
    """Frames of the branches that have ended, in tick order; they left the table."""


class Branch(msgspec.Struct, frozen=True):
    """What makes a frame a branch of its parent's `map` or `parallel`."""

    index: int
    """Position in input order, or among the branches as declared."""
    inherited: dict[str, int] = msgspec.field(default_factory=dict)
    """Log channel → entries of the branches that it came `after`, which are not its own writes."""
    out: Any = None
    """Of the node that ended it (E10)."""
    own: dict[str, Sequence[Any]] | None = msgspec.field(default_factory=dict)
    """Key → what the branch wrote to it, before reduction and in order (to a log: its items): the join reduces it
    (E10). None when the body is a subgraph, which has a state of its own."""


ENDED = ("done", "lost")
"""Statuses of a branch that waits for its join: it reached its end, or failed and is collected or skipped."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one graph is: the root, a branch, or a subgraph."""

    number: int
    graph: str = ""
    """Which plan of the table it runs; `""` is the root's."""
    parent: int = -1
    path: str = ""
    """`node#visit` per level, with `[index]` or `[branch]`, joined by `/`; empty at the root (E3)."""
    node: str = ""
    """The current node; `end` when the frame has finished."""
    visit: int = 1
    """Entries of the current node in this frame since the run's input, this one included."""
    attempt: int = 1
    status: str = "ready"
    """`ready` (to run or running), `open` (child frames run), `waiting`, `backoff`, `done`, `failed`, `lost`."""
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
    opened: Opened | None = None
    """Set while the status is `open`."""
    join: Join | None = None
    """Set while a `map` or `parallel` is open."""
    branch: Branch | None = None
    """Set in a branch. A branch sees its parent's state as it was at the opening plus its own writes, and the `as`
    names around it; a branch whose body is a subgraph has its own."""
    state: State = msgspec.field(default_factory=State)


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread at one moment. Everything that a crash must not reset is in here (E17)."""

    status: Status = "idle"
    run_id: str = ""
    frames: MutableMapping[int, Frame] = msgspec.field(default_factory=dict)
    """By number, parents before their children; never changed in place."""
    interrupts: dict[str, Interrupt] = msgspec.field(default_factory=dict)
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    """Since the run's input: promptTokens, completionTokens, reasoningTokens, cachedTokens, modelCalls, toolCalls, costUsd,
    activeMs as far as it rested; and of the model calls those whose tokens the provider did not tell (uncountedCalls), that
    were cut off (cutOffCalls), and whose cost is not known for any reason (unpricedCalls)."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Breakpoints of this run, the document's included."""
    params: Any = None
    document: str = ""
    """Version hash of the document that the run began under, or was migrated to (E23)."""
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
    """The budget's `then` node runs, or what follows it; it runs once."""
    granted: dict[str, int] = msgspec.field(default_factory=dict)
    """While it wraps up: the `steps` and `modelCalls` that the run may reach, whatever its limits say (E11)."""
    finish_reason: str = ""
    error: dict[str, Any] | None = None
    durability: str = "async"
    signals: tuple[tuple[str, Any], ...] = ()
    """`(name, payload)` of signals that came before their `wait` node was reached, oldest first."""
    reuse: dict[str, Any] = msgspec.field(default_factory=dict)
    """Write effects of a past that was left with `effects: reuse`, by id: where each was and its record, or only where it
    was if it may be done again (E8). What runs again takes up their results; what matches none is asked about."""

    @property
    def root(self) -> Frame:
        return self.frames[ROOT]


def all_frames(machine: Machine) -> list[Frame]:
    """Every frame, those of branches that wait for their join included, parents before children."""
    out = list(machine.frames.values())
    for frame in machine.frames.values():
        if frame.join is not None:
            out += frame.join.ended
    return sorted(out, key=lambda frame: frame.number)


NEXT_SHOWN = 8
"""Nodes that a checkpoint names as next: a list of all would make a wide fan's log grow with its square."""


def next_nodes(machine: Machine) -> list[str]:
    """The nodes that run next, with their frame's path unless it is the root; the first 8 of them."""
    out: list[str] = []
    for frame in machine.frames.values():
        if frame.status not in ("open", "done"):
            out.append(f"{frame.path}/{frame.node}" if frame.path else frame.node)
            if len(out) == NEXT_SHOWN:
                break
    return out


# --- ticks: what happened (E17) ------------------------------------------------------------------


class Tick(msgspec.Struct, kw_only=True):
    """What every tick carries: the record's id and the time in epoch ms."""

    id: str
    at: int
    usages: Mapping[int, dict[str, Any]] | None = None
    """Frame → what its node run, which has not ended by itself, has used: of those that the tick ends."""


class Input(Tick):
    run_id: str
    input: Any
    limits: dict[str, Any]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    params: Any = None
    durability: str = "async"
    document: str = ""


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


class NodeErrored(Tick):
    frame: int
    error: dict[str, Any]
    jitter: float = 0.0
    partial: Any = None
    """The message as far as it came (E15)."""
    usage: dict[str, Any] | None = None
    final: bool = False
    """Not to be retried, whatever the policy says (an outcome-unknown write)."""
    facts: dict[str, Any] | None = None
    """The `model` that it called, for what it has used."""


class NodeAsked(Tick):
    """An `ask` node, a breakpoint, `ctx.ask`, an approval or an unknown outcome opens an interrupt."""

    frame: int
    interrupt: Interrupt
    usage: dict[str, Any] | None = None
    """What the node run has used before it asked, as with a recorded operation."""
    facts: dict[str, Any] | None = None


class OperationRecorded(Tick):
    frame: int
    key: str | None
    """None records no operation, only what the node run has used so far."""
    operation: Operation | None
    usage: dict[str, Any] | None = None
    facts: dict[str, Any] | None = None
    """Of a write's intent: where it was done, its arguments if nothing else holds them, and what takes it back (E6)."""
    settles: str | None = None
    """The effect of `Machine.reuse` whose place this operation takes."""


class Answered(Tick):
    interrupt_id: str
    answer: Any
    decision: str
    by: str | None = None


class Expired(Tick):
    interrupt_id: str


def timed(at: int) -> dict[str, Any]:
    """The `out` of a `wait` node whose time has come."""
    return {"by": "timer", "at": at}


class Signalled(Tick):
    """A named signal has come from outside."""

    name: str
    payload: Any = None


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

    partials: dict[int, Any] = msgspec.field(default_factory=dict)
    """Frame → the message as far as it came (E15)."""


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
    reuse: dict[str, Any] = msgspec.field(default_factory=dict)
    facts: dict[str, Any] | None = None
    """By whom, and the choices about effects (E8)."""


class Moved(Tick):
    """A rewind or fork made this machine the head (E8)."""

    source: str
    run_id: str
    reuse: dict[str, Any] = msgspec.field(default_factory=dict)
    facts: dict[str, Any] | None = None
    """By whom, and the choices about effects (E8)."""


class Migrated(Tick):
    """The thread goes on under another version of its document."""

    run_id: str
    """The run that goes on from it: the same while the thread waits or rests, else another."""
    migration: Any = None
    """The `Migration` that was planned: what becomes of frames and questions."""
    facts: dict[str, Any] | None = None
    """By whom, and which node names were mapped."""


AnyTick = (
    Input
    | NodeSucceeded
    | NodeErrored
    | NodeAsked
    | OperationRecorded
    | Answered
    | Expired
    | Signalled
    | BackoffOver
    | Recovered
    | Resumed
    | Deadline
    | Cancel
    | Edited
    | Moved
    | Migrated
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
    next: list[str] | None = None
    """The nodes that run next, once somebody asked (`announcements.next_of`)."""
    spent: dict[str, Any] | None = None
    """What it adds to the run's usage."""


class Started(msgspec.Struct):
    """A node begins; for an open `graph` node too, which nothing runs."""

    frame: int
    node: str
    visit: int
    attempt: int
    step: int
    path: str
    node_run_id: str = ""
    """Set for a `graph`, `map` or `parallel` node: frames below it run, not the node itself."""


class RunNode(msgspec.Struct):
    """Run the frame's node, or go on with it."""

    frame: int


class Ended(msgspec.Struct):
    frame: int
    node: str
    writes: tuple[str, ...]


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
    """Ends the frame's node run, if one is under way; the run goes on without it, or is over."""

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


Command = Commit | Started | RunNode | Ended | Erred | Backoff | CancelNode | Request | Resolve | Finished
