"""The invariant monitor: enforces `invariants` at run time where the proof does not apply (spec 2.1 rule 10).

A proof covers what the graph does by itself; not an edit, a skipped breakpoint, a migration, or a limit that a request
raised. The monitor keeps its marks in the `visits` of frames, under keys that no node can have (they contain a space):
`entered X` and `finished Y` in the frame that runs the graph, `joined fan#1[a] Y` in the frame of a fan whose branches
still run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.errors import NodeFailed
from graphflow.graph.core.machine import Frame
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.unit_of_work import UnitOfWork
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import Branch
from graphflow.graph.definition.regions import predecessors
from graphflow.graph.invariants.properties import AtMost, Before, EndReachable, entered_by, finished_by, parse


class InvariantMonitor(msgspec.Struct, frozen=True, kw_only=True):
    """The table of one plan."""

    before: dict[str, tuple[tuple[str, frozenset[str]], ...]]
    """X → (property, Y) that must hold when X begins."""
    most: dict[str, tuple[tuple[str, dict[str, int], int], ...]]
    """X → (property, every X and its weight, N)."""
    noted: frozenset[str]
    """Every Y: that it has finished is noted."""

    def note_entered(self, work: UnitOfWork, number: int, name: str) -> None:
        """A node is entered: counted in the frame that runs the graph, whatever branch it is in."""
        if name in self.most:
            owner = work.table[number]
            while (parent := _fan_frame(work, owner)) is not None:
                owner = parent
            key = f"entered {name}"
            work.change(owner.number, {}, visits={key: owner.visits.get(key, 0) + 1})

    def note_finished(self, work: UnitOfWork, number: int, node: PlanNode) -> None:
        """A node has finished by itself: not skipped, failed, expired, or edited over."""
        frame = work.table[number]
        names = [node.name] if node.name in self.noted else []
        if node.form in ("map", "parallel"):
            mark = f"joined {node.name}#{frame.visit}["
            # The marks of the branches become those of this frame at the join: until then a sibling must not see
            # them.
            joined = [key for key in frame.visits if key.startswith(mark)]
            names += [key.rpartition(" ")[2] for key in joined]
            if joined:
                work.change(number, {}, visits=dict.fromkeys(joined))  # type: ignore[arg-type]  # None drops a count
        for name in dict.fromkeys(names):
            work.change(number, {}, visits={f"finished {name}": 1})
            if (parent := _fan_frame(work, frame)) is not None:
                work.change(parent.number, {}, visits={f"joined {_branch_of(work, frame, parent)} {name}": 1})

    def breach(self, work: UnitOfWork, number: int) -> dict[str, Any] | None:
        """The error of beginning the node under the frame's cursor now; None when every property allows it."""
        frame = work.table[number]
        for text, nodes in self.before.get(frame.node, ()):
            if not any(_has_finished(work, frame, node) for node in nodes):
                names = " or ".join(map(repr, sorted(nodes)))
                return _error(
                    frame.node,
                    text,
                    f"{names} has not finished in this run; rewind to before it, or edit the thread as an earlier node",
                )
        for text, weights, count in self.most.get(frame.node, ()):
            owner = frame
            while (parent := _fan_frame(work, owner)) is not None:
                owner = parent
            entered = sum(owner.visits.get(f"entered {node}", 0) * weight for node, weight in weights.items())
            if entered > count:
                return _error(
                    frame.node, text, f"this would be entry {entered} in this run; rewind, or send a new input"
                )
        return None


def monitor_of(checked: CheckedDocument) -> InvariantMonitor | None:
    """The table of a checked document; None without properties that must be kept, so that others pay nothing."""
    before: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {}
    most: dict[str, tuple[tuple[str, dict[str, int], int], ...]] = {}
    noted: set[str] = set()
    for text in checked.document.invariants:
        match parse(text):
            case Before(node=name, first=first):
                nodes = finished_by(checked.document, first)
                noted |= nodes
                for node in entered_by(checked.document, checked.subgraphs, name):
                    before[node] = (*before.get(node, ()), (text, nodes))
            case AtMost(node=name, count=count):
                weights = entered_by(checked.document, checked.subgraphs, name, count)
                for node in weights:
                    most[node] = (*most.get(node, ()), (text, weights, count))
            case EndReachable():
                pass  # a fact of the graph: nothing that happens can change it
    return InvariantMonitor(before=before, most=most, noted=frozenset(noted)) if before or most else None


def _error(node: str, text: str, why: str) -> dict[str, Any]:
    failure = NodeFailed(
        f"node {node!r} was not run: it would break the property {text!r} of the document: {why}",
        code="property_violated",
        property=text,
    )
    return failure.as_dict(node)


def _has_finished(work: UnitOfWork, frame: Frame, name: str) -> bool:
    """Whether Y has finished by now, as the frame sees it: in it, or before the branches around it opened."""
    if f"finished {name}" in frame.visits:
        return True
    parent = _fan_frame(work, frame)
    if parent is None:
        return False
    fan = work.plan_of(parent).document.nodes[parent.node]
    if fan.parallel is not None:
        after = {branch: body.after if isinstance(body, Branch) else () for branch, body in fan.parallel.items()}
        # A branch sees what finished before it began: in the frame around it, and in the branches that it runs
        # `after`.
        own = frame.path.rpartition("[")[2].removesuffix("]")
        for earlier in predecessors(after).get(own, ()):
            if f"joined {parent.node}#{parent.visit}[{earlier}] {name}" in parent.visits:
                return True
    return _has_finished(work, parent, name)


def _fan_frame(work: UnitOfWork, frame: Frame) -> Frame | None:
    """The frame that stands on the fan whose branch this frame is; None when it is not a branch of its own graph."""
    parent = work.table.get(frame.parent)
    return parent if parent is not None and parent.graph == frame.graph else None


def _branch_of(work: UnitOfWork, frame: Frame, parent: Frame) -> str:
    """`fan#1[a]`; a map's branches share `fan#1[]`, so that ten thousand items leave one mark."""
    is_map = work.plan_of(parent).document.nodes[parent.node].map is not None
    branch = "" if is_map else frame.path.rpartition("[")[2].removesuffix("]")
    return f"{parent.node}#{parent.visit}[{branch}]"
