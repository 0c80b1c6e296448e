"""The machine: where a thread is, as immutable plain data, and the patch that leads from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal

import msgspec

from graphflow.graph.core.channels import Update
from graphflow.graph.core.immutable import SMALL, ChunkedTable, ListView, State

Status = Literal["idle", "running", "waiting", "failed", "stopped"]
"""`idle`: nothing unfinished; `stopped`: unfinished and not driven by any process (spec 3.2)."""

ROOT = 0
"""Number of the root frame, which lives as long as the thread."""


WAITS = ("signal", "timer")
"""Interrupt kinds of `wait` nodes; a person's answer cannot close them."""


class Operation(msgspec.Struct, frozen=True, array_like=True, gc=False):
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


class Interrupt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
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
    """The node run that asked; it goes on under this id after the answer, also in a later epoch."""


class InterruptTable(MutableMapping[str, Interrupt]):
    """Interrupts by id in the order in which they were opened, and by frame; copies share what they have in common.

    A tick works on a copy. With thousands of branches that all ask, copying a dict or looking through it for the questions
    of one frame would make each of them cost what all of them do.
    """

    __slots__ = ("_frames", "_ordinals", "_rows")

    def __init__(self, interrupts: Mapping[str, Interrupt] | None = None) -> None:
        self._ordinals: dict[str, int] = {}
        """Id → place in the order. Only grows, so all copies share it; `_rows` says which of them are open."""
        self._rows: ChunkedTable[Interrupt] = ChunkedTable()
        self._frames: ChunkedTable[tuple[int, ...]] = ChunkedTable()
        for key, interrupt in (interrupts or {}).items():
            self[key] = interrupt

    def copy(self) -> InterruptTable:
        """A table that can change without affecting this one; this one must not change any more."""
        out = InterruptTable()
        out._ordinals, out._rows, out._frames = self._ordinals, self._rows.copy(), self._frames.copy()
        return out

    def of_frame(self, number: int) -> list[Interrupt]:
        """The open interrupts of a frame, oldest first."""
        return [self._rows[ordinal] for ordinal in self._frames.get(number) or ()]

    def __getitem__(self, key: str) -> Interrupt:
        interrupt = self._rows.get(self._ordinals.get(key, -1))
        if interrupt is None:
            raise KeyError(key)
        return interrupt

    def __setitem__(self, key: str, interrupt: Interrupt) -> None:
        ordinal = self._ordinals.setdefault(key, len(self._ordinals))
        if ordinal in self._rows:
            self._forget(ordinal)
        self._rows[ordinal] = interrupt
        self._frames[interrupt.frame] = (*(self._frames.get(interrupt.frame) or ()), ordinal)

    def __delitem__(self, key: str) -> None:
        ordinal = self._ordinals[key]
        if ordinal not in self._rows:
            raise KeyError(key)
        self._forget(ordinal)
        del self._rows[ordinal]

    def _forget(self, ordinal: int) -> None:
        frame = self._rows[ordinal].frame
        if rest := tuple([other for other in self._frames[frame] if other != ordinal]):
            self._frames[frame] = rest
        else:
            del self._frames[frame]

    def __iter__(self) -> Iterator[str]:
        return (interrupt.id for interrupt in self._rows.values())

    def values(self) -> Iterator[Interrupt]:  # type: ignore[override]
        return self._rows.values()

    def __len__(self) -> int:
        return len(self._rows)


def copied_interrupts(table: MutableMapping[str, Interrupt]) -> MutableMapping[str, Interrupt]:
    """A copy to work on."""
    if isinstance(table, InterruptTable):
        return dict(table) if len(table) <= SMALL // 4 else table.copy()
    return dict(table) if len(table) <= SMALL else InterruptTable(table)


def changed_interrupts(
    table: MutableMapping[str, Interrupt], changes: Mapping[str, Interrupt | None]
) -> MutableMapping[str, Interrupt]:
    """The table after a patch: interrupts opened, or closed with None."""
    out = copied_interrupts(table)
    for key, interrupt in changes.items():
        if interrupt is None:
            out.pop(key, None)
        else:
            out[key] = interrupt
    return out


def of_frame(table: Mapping[str, Interrupt], number: int) -> list[Interrupt]:
    """The open interrupts of a frame, oldest first."""
    if isinstance(table, InterruptTable):
        return table.of_frame(number)
    return [interrupt for interrupt in table.values() if interrupt.frame == number]


class Opened(msgspec.Struct, frozen=True, gc=False):
    """What stays the same while the frames below a `graph`, `map` or `parallel` node run."""

    node_run_id: str
    """Of the node that is open; it ends under this id, also in a later epoch."""
    items: Any = None
    """What a `map` goes through, as it was at the opening."""
    binds: str = ""
    """The `as` name of its items."""
    at_once: int | None = None
    """Branches that may run at a time, waiting ones not counted; kept here, so that a run goes on as it began whatever
    the settings say now. None in runs of versions that kept no such number."""


class JoinState(msgspec.Struct, frozen=True, gc=False):
    """How far the branches of a frame's `map` or `parallel` are (spec 2.1 rule 5)."""

    total: int
    pending: range | tuple[int, ...]
    """Positions of the branches that have not begun, in the order in which they may."""
    running: int = 0
    """Begun and not ended, waiting ones included."""
    counted: int = 0
    """Ended and counting for `wait`."""
    waiting: int = 0
    """Of the running ones: those in which nothing runs, because all that is open in them waits for an answer."""
    ended: ListView = msgspec.field(default_factory=lambda: ListView([]))
    """Frames of the branches that have ended, in tick order; they left the table."""

    @property
    def working(self) -> int:
        """Branches that take a place among those that may run at a time."""
        return self.running - self.waiting


class BranchState(msgspec.Struct, frozen=True, gc=False):
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


RUNS = ("ready", "backoff")
"""Statuses of a frame that has something to run."""
ENDED = ("done", "lost")
"""Statuses of a branch that waits for its join: it reached its end, or failed and is collected or skipped."""


# No cycle goes through these: the collector, whose pauses grow with what it looks at, need not follow thousands of them.
class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
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
    join: JoinState | None = None
    """Set while a `map` or `parallel` is open."""
    branch: BranchState | None = None
    """Set in a branch. A branch sees its parent's state as it was at the opening plus its own writes, and the `as`
    names around it; a branch whose body is a subgraph has its own."""
    state: State = msgspec.field(default_factory=State)
    spent: dict[str, Any] | None = None
    """Of an agent's frame: what was used in it and below, which its own budget limits. None in any other frame."""
    granted: int | None = None
    """Of an agent's frame that wraps up: the model calls that it may reach, whatever its own budget says (E11)."""


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread at one moment. Everything that a crash must not reset is in here (E17)."""

    status: Status = "idle"
    run_id: str = ""
    origin: str = ""
    """Where this run goes on after another one that failed or was cancelled: the run of the thread's input (E1)."""
    frames: MutableMapping[int, Frame] = msgspec.field(default_factory=dict)
    """By number, parents before their children; never changed in place."""
    interrupts: MutableMapping[str, Interrupt] = msgspec.field(default_factory=dict)
    """By id, oldest first; never changed in place."""
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    """Since the run's input: promptTokens, completionTokens, reasoningTokens, cachedTokens, modelCalls, toolCalls,
    costUsd, activeMs (updated when the run rests), and three counts of model calls: without token counts from the
    provider (uncountedCalls), cut off (cutOffCalls), and with an unknown cost (unpricedCalls)."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Breakpoints of this run, the document's included."""
    params: Any = None
    chosen: dict[str, Any] | None = None
    """`model` and `options` that the request chose for this run, where the document allows it."""
    starter: dict[str, Any] | None = None
    """Who asked for this run, and what it may do: `capabilities.Starter`. None: the local person, or a run that began
    before there were capabilities; nothing is held back."""
    tools: str = ""
    """Hash of the list of tools of MCP servers that the run was begun with; empty without any."""
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
    """The budget's `onExceeded` node runs, or what follows it; it runs once."""
    granted: dict[str, int] = msgspec.field(default_factory=dict)
    """While it wraps up: the `steps` and `modelCalls` that the run may reach, whatever its limits say (E11)."""
    finish_reason: str = ""
    error: dict[str, Any] | None = None
    durability: str = "async"
    signals: tuple[tuple[str, Any], ...] = ()
    """`(name, payload)` of signals that came before their `wait` node was reached, oldest first."""
    reuse: dict[str, Any] = msgspec.field(default_factory=dict)
    """Write effects of a past that was left with `effects: reuse`, by id: where each was and its record, or only where
    it was if it may be done again (E8). What runs again takes up their results; what matches none is asked about."""
    kept: dict[str, Any] = msgspec.field(default_factory=dict)
    """What tools note about the thread for their later calls, oldest first; no model, client or transcript gets it."""

    @property
    def root(self) -> Frame:
        return self.frames[ROOT]

    @property
    def input_run_id(self) -> str:
        """Run that began with the thread's input: of idempotency keys, since whoever goes on repeats its writes (E6)."""
        return self.origin or self.run_id


MAX_KEPT = 2_000


def changed_notes(kept: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`Machine.kept` after a patch: notes set, or dropped with None; beyond the bound the oldest go."""
    out = {key: value for key, value in kept.items() if key not in changes}
    out |= {key: value for key, value in changes.items() if value is not None}
    for key in list(out)[: max(0, len(out) - MAX_KEPT)]:
        del out[key]
    return out


class FramePatch(msgspec.Struct, gc=False):
    """What changes in one frame; a frame that is not there yet is opened by it."""

    fields: dict[str, Any]
    update: Update | None = None
    operations: dict[str, Operation | None] | None = None
    """Recorded operations to set, or to drop with None."""
    visits: dict[str, int] | None = None
    """Visit counts to set."""
    raw: dict[str, list[Any]] | None = None
    """In a branch: key → what was written to it, where the update holds only the result (`sum`, `fn:`, …)."""
    inherited: Update | None = None
    """What an opening branch sees of the branches that it came `after`."""


class Patch(msgspec.Struct, gc=False):
    """Everything that one tick changed."""

    machine: dict[str, Any]
    """The fields that change; of `kept` only the notes that do."""
    frames: dict[int, FramePatch | None]
    """Frame number → its changes, parents before children; None closes the frame."""
    interrupts: dict[str, Interrupt | None]
    """Interrupts opened, or closed with None."""


def all_frames(machine: Machine) -> list[Frame]:
    """Every frame, those of branches that wait for their join included, parents before children."""
    out = list(machine.frames.values())
    for frame in machine.frames.values():
        if frame.join is not None:
            out += frame.join.ended
    # Numbers grow as frames open, so their order puts parents first.
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
