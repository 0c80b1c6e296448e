"""Why a thread went where it went: which condition, with which values, took an edge (spec 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import CODES
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.record_decoder import RecordBody, decode_body, decode_meta
from graphflow.errors import CheckpointNotFound
from graphflow.graph.core.machine import Frame, Machine, all_frames
from graphflow.graph.core.plan import Plan, PlanNode
from graphflow.graph.core.route_trace import Move, read_moves, short
from graphflow.graph.core.routing import matches
from graphflow.graph.core.scope import limits_in
from graphflow.graph.definition.document import END
from graphflow.graph.definition.old_words import renewed_error
from graphflow.runtime.history.walk import machine_before


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One route of a node, in their order."""

    when: str | None = msgspec.field(name="if")
    """None: the way when no other fits."""
    to: str
    held: bool | None
    """None: it was not looked at, because one before it held."""
    values: dict[str, Any]
    """What it names, with the values of that moment; large ones by their size."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where one node led, and by what."""

    node: str
    to: str
    how: str
    """`only` (there is one way), `condition`, `choice` (the node's function named it), `error` (its error route),
    `budget` (the budget's `onExceeded`), `stopped` (no error route took it: the run failed at this node), `failed` (nothing there took the failure: it went to the node above), `collect` and `skip`
    (its join took the failure so), `expired`, or the source of a checkpoint in which no node led anywhere (`input`, `ask`, `edit`, …)."""
    visit: int = 1
    path: str = ""
    """Of the node's frame."""
    conditions: tuple[Condition, ...] = ()
    error: dict[str, Any] | None = None
    """Code and message of the failure that was routed."""


class Why(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a checkpoint's next node is what it is."""

    checkpoint_id: str
    run_id: str
    source: str
    next: list[str]
    decisions: tuple[Decision, ...]
    """Innermost first: a node that ends its subgraph is followed by the node that ran the subgraph."""
    by: str | None = None
    """Who answered, edited, went back."""
    effects: dict[str, str] | None = None
    """What was chosen about write effects, by their id."""
    trace: list[str] | None = None
    """Where in Python the node failed: `file:line in function`, the innermost last, then the exception."""


async def why(store: Checkpointer, plan: Plan, loaded: Loaded) -> Why:
    """Why the thread went on from this checkpoint as it did.

    Args:
        plan: the version that the thread runs.
        loaded: the thread at the checkpoint.
    """
    record = loaded.last
    if record is None:
        raise CheckpointNotFound(f"thread {loaded.row.thread_id!r} has no checkpoint yet")
    body, meta = decode_body(record.data, record.id), decode_meta(record.meta, record.id)
    before = await machine_before(store, loaded.row.thread_id, loaded.chain, record)
    facts = body.facts or {}
    return Why(
        checkpoint_id=record.id,
        run_id=meta.run_id,
        source=meta.source,
        next=meta.next,
        decisions=tuple(_Reader(plan, before, loaded.machine, body).decisions()),
        by=facts.get("by"),
        effects=facts.get("effects"),
        trace=facts.get("trace"),
    )


class _Reader:
    """Reads the decisions out of one record."""

    def __init__(self, plan: Plan, before: Machine, after: Machine, body: RecordBody) -> None:
        self.plan, self.before, self.body = plan, before, body
        self.limits, self.usage = after.limits, after.usage
        self.after = {frame.number: frame for frame in all_frames(after)}
        self.facts: Mapping[str, Any] = body.facts or {}

    def decisions(self) -> list[Decision]:
        if self.body.source in ("input", "ask", "rewind", "fork", "cancel") or not self.before.frames:
            return [self._plain()]
        if moves := read_moves(self.facts):
            return [self._moved(move) for move in moves]
        frames = self._finished()
        known = [frame for frame in frames if frame.node in self.plan.graphs[frame.graph].nodes]
        if not known:
            return [self._plain()]
        conditional = [frame for frame in known if self._is_conditional(frame)]
        decided = conditional[-1] if conditional else None  # a record keeps the route of its last decision
        return [self._decision(frame, decides=frame is decided) for frame in known]

    def _moved(self, move: Move) -> Decision:
        """One of several nodes that the record led on."""
        # The frame may have closed with this record, or been opened by it.
        frame = self.before.frames.get(move.frame) or self.after.get(move.frame)
        node = None if frame is None else self.plan.graphs[frame.graph].nodes.get(move.node)
        how = move.by if isinstance(move.by, str) else "only" if move.by is None else "condition"
        if node is not None and move.by is None and (node.choose is not None or _is_conditional(node)):
            how = "choice"
        return Decision(
            node=move.node,
            to=move.to,
            how=how,
            visit=move.visit,
            path=move.path,
            conditions=_conditions(node, move) if node is not None and isinstance(move.by, int) else (),
            error=None if move.error is None else dict(zip(("code", "message"), move.error, strict=True)),
        )

    def _plain(self) -> Decision:
        """The decision of a record in which no node led anywhere: the run began, asks, or was moved."""
        frame = self.after.get(self.body.frame)
        return Decision(
            node=self.body.node,
            to=frame.node if frame is not None else END,
            how=self.body.source,
            visit=frame.visit if frame is not None else 1,
            path=frame.path if frame is not None else "",
        )

    def _finished(self) -> list[Frame]:
        """The frames whose nodes led somewhere, innermost first."""
        frames = self.before.frames
        first = next(
            (
                frames[number]
                for number in (self.body.frame, *self.body.patch.frames)
                if number in frames and frames[number].node == self.body.node and frames[number].status != "open"
            ),
            frames.get(self.body.frame),
        )
        out: list[Frame] = []
        while first is not None:
            out.append(first)
            # A frame that the record changes goes on, so the frame above it did not move.
            if first.number == self.body.frame or self.body.patch.frames.get(first.number) is not None:
                break
            first = frames.get(first.parent)
        return out

    def _node(self, frame: Frame) -> PlanNode:
        return self.plan.graphs[frame.graph].nodes[frame.node]

    def _is_conditional(self, frame: Frame) -> bool:
        return _is_conditional(self._node(frame))

    def _decision(self, frame: Frame, *, decides: bool) -> Decision:
        node, now = self._node(frame), self.after.get(frame.number)
        to = now.node if now is not None else END
        how, error = "only", None
        if self.body.source == "timer":
            how = "expired"
        if now is not None and now.status == "lost":
            how, to, error = self._loss(now), END, _told(now.error)
        # By identity: an error that the frame had before is not this node's.
        elif now is not None and now.error is not None and now.error is not frame.error and self.body.source != "edit":
            how, error = self._failure(node, now, to)
        elif self.body.source == "failed" and (told := self._failed_with(frame)) is not None:
            how, error = "error", told  # its error route ends the frame, and a frame that has ended keeps no error
        elif node.choose is not None or (self._is_conditional(frame) and "route" not in self.facts):
            how = "choice"
        elif decides:
            how = "condition"
        return Decision(
            node=frame.node,
            to=to,
            how=how,
            visit=frame.visit,
            path=frame.path,
            conditions=self._looked_at(frame, node) if how == "condition" else (),
            error=error,
        )

    def _loss(self, branch: Frame) -> str:
        """What the join did with a failed branch."""
        parent = self.after[branch.parent]
        fan = self._node(parent).fan
        return "collect" if fan is None else fan.on_error

    def _failed_with(self, frame: Frame) -> dict[str, Any] | None:
        """The error that was announced with the record; its event is kept with its fields as a map."""
        for event in self.body.events:
            if event[0] == CODES["node.error"] and (fields := event[3])["node"] == frame.node:
                return _told(renewed_error(fields["error"]))
        return None

    def _failure(self, node: PlanNode, now: Frame, to: str) -> tuple[str, dict[str, Any] | None]:
        told = _told(now.error)
        if any(matches(codes, str(told["code"])) and target == to for codes, target in node.errors):
            return "error", told
        return ("budget" if to == self.plan.on_exceeded else "stopped"), told

    def _looked_at(self, frame: Frame, node: PlanNode) -> tuple[Condition, ...]:
        refs = tuple(ref for route in node.routes if route.when is not None for ref in route.when.refs)
        return _routes(node, self.facts.get("route", 0), self._values(frame, refs))

    def _values(self, frame: Frame, refs: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        seen = self.facts.get("seen", {})
        for ref in refs:
            name = ".".join(ref)
            # `out` and `answer` are gone after the node, so the record keeps what the conditions read of them.
            if ref[0] in ("out", "answer"):
                if name in seen:
                    out[name] = seen[name]
                continue
            value = self._value(frame, ref)
            if value is not None or self._is_there(frame, ref):
                out[name] = short(value)
        return out

    def _is_there(self, frame: Frame, ref: tuple[str, ...]) -> bool:
        return ref[0] != "state" or frame.number in self.after

    def _value(self, frame: Frame, ref: tuple[str, ...]) -> Any:
        """What a condition read, in the state after the node and at the counts before the next."""
        root, *names = ref
        if root == "visits":
            return frame.visits.get(names[0], 0) if names else None
        now = self.after.get(frame.number)
        if root == "state":
            value: Any = now.state if now is not None else {}
        elif root == "limits":
            value = limits_in(self.plan.graphs[frame.graph], frame, self.limits)
        else:
            roots = {"usage": self.usage, "input": frame.input, "error": frame.error}
            value = roots[root] if root in roots else frame.scope.get(root)
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return value


def _told(error: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"code": (error or {}).get("code"), "message": (error or {}).get("message")}


def _is_conditional(node: PlanNode) -> bool:
    return bool(node.routes) and node.routes[0].when is not None


def _conditions(node: PlanNode, move: Move) -> tuple[Condition, ...]:
    assert isinstance(move.by, int)
    return _routes(node, move.by, move.seen)


def _routes(node: PlanNode, taken: int, values: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The node's routes with what their conditions read, of which the one at `taken` held."""
    out = []
    for index, route in enumerate(node.routes):
        held = None if index > taken else index == taken
        refs = () if route.when is None else map(".".join, route.when.refs)
        told = {name: values[name] for name in refs if name in values}
        when = None if route.when is None else route.when.source
        out.append(Condition(when=when, to=route.to, held=held, values=told))
    return tuple(out)
