"""Random graphs, random interleavings, random crash points: the engine gives what a naive interpreter gives.

The pure core is driven by hand, so that every order in which nodes may end is possible; every commit goes through the
records as a store has them, and a crash goes on from what was read back.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphflow.checkpoints.record_decoder import (
    Folded,
    decode_body,
    decode_snapshot,
    fold_records,
    wanted_logs,
    with_logs,
)
from graphflow.checkpoints.record_encoder import after_commit, encode_commit, encode_data, encode_snapshot
from graphflow.checkpoints.record_fields import Counts
from graphflow.errors import ExpressionFailed, NodeFailed
from graphflow.graph.core.commands import (
    Backoff,
    CancelNode,
    Commit,
    Ended,
    Erred,
    Finished,
    Request,
    Resolve,
    RunNode,
    Started,
)
from graphflow.graph.core.fan_out import Branches
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import RUNS, Frame, Interrupt, Machine
from graphflow.graph.core.patches import apply_patch
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.plan_builder import build_plan
from graphflow.graph.core.scope import scope_of
from graphflow.graph.core.ticks import (
    Answered,
    AnyTick,
    BackoffOver,
    Input,
    NodeAsked,
    NodeErrored,
    NodeSucceeded,
    Recovered,
)
from graphflow.graph.core.transition import advance, full_path
from graphflow.graph.validation.validate import check_document
from tests.campaign import size
from tests.graph.random_documents import REDUCERS, RandomDocument, random_documents
from tests.graph.reference import Call, Failure, Record, answer, interpret, work


class Store:
    """What a store has of one thread: records, log rows, and a snapshot now and then."""

    def __init__(self) -> None:
        self.counts: Counts = {}
        self.rows: dict[tuple[int, str], list[bytes]] = {}
        self.start: bytes | None = None
        self.bodies: list[bytes] = []

    def take(self, commit: Commit, snapshot: bool) -> None:
        body, items = encode_commit(commit, self.counts)
        for item in items:
            rows = self.rows.setdefault((item.frame, item.channel), [])
            assert item.ordinal == len(rows)
            rows.append(item.data)
        after_commit(commit.patch.frames, self.counts)
        self.bodies.append(encode_data(body, 0, 0, []))
        if snapshot and commit.machine is not None:
            self.start, self.bodies = encode_snapshot(commit.machine, 0, 0, self.counts), []

    def load(self) -> Machine:
        start = Folded(Machine(), {}) if self.start is None else decode_snapshot(self.start)
        folded = fold_records(start, [decode_body(body) for body in self.bodies])
        logs = {
            (number, channel): self.rows.get((number, channel), [])[:count]
            for number, channel, count in wanted_logs(folded)
        }
        return with_logs(folded, logs)


class Driver:
    """One run of a plan: what happens next is drawn."""

    def __init__(self, plan: Plan, random: Random, crashes: bool = True) -> None:
        self.plan, self.random, self.crashes = plan, random, crashes
        self.machine = Machine()
        self.store = Store()
        self.ticks: list[AnyTick] = []
        self.records: dict[str, list[Record]] = {}
        self.running: dict[int, None] = {}
        self.resting: dict[int, None] = {}
        self.started: dict[int, Started] = {}
        self.finished: str | None = None

    def feed(self, tick: AnyTick) -> None:
        before = self.machine
        self.machine, (commit, *commands) = advance(self.plan, before, tick)
        assert isinstance(commit, Commit)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Branches, "_open_alike", lambda *args: False)
            assert full_path(self.plan, before, tick) == (self.machine, [commit, *commands])
        self.ticks.append(tick)
        assert plain(apply_patch(before, commit.patch)) == plain(self.machine)
        check_places(self.machine)
        self.store.take(commit, self.random.random() < 0.1)
        for command in commands:
            match command:
                case Started():
                    self.started[command.frame] = command
                case RunNode():
                    self.running[command.frame] = None
                case Backoff():
                    self.resting[command.frame] = None
                case Ended():
                    self._over(command, "done")
                case Erred():
                    self._over(command, "failed")
                case CancelNode():
                    self.running.pop(command.frame, None)
                    self.resting.pop(command.frame, None)
                case Finished():
                    self.finished = command.how
                case Request() | Resolve():
                    pass

    def _over(self, command: Ended | Erred, ended: str) -> None:
        self.running.pop(command.frame, None)
        begun = self.started[command.frame]
        assert begun.node == command.node
        record = Record(begun.node, begun.visit, begun.attempt, ended)
        self.records.setdefault(begun.path, []).append(record)

    def run(self) -> None:
        self.feed(Input(**self._facts(), run_id="run", input={}, limits=dict(self.plan.limits)))
        while self.finished is None:
            assert self.running or self.resting or self.machine.interrupts, "nothing can go on"
            if self.crashes and self.random.random() < 0.05:
                self._crash()
            self._move()

    def _facts(self) -> dict[str, Any]:
        return {"id": f"t{len(self.ticks)}", "at": len(self.ticks) + 1}

    def _crash(self) -> None:
        """A new life begins with what was stored."""
        loaded = self.store.load()
        assert plain(loaded) == plain(self.machine)
        self.machine = loaded
        self.running, self.resting = {}, {}
        self.feed(Recovered(**self._facts()))

    def _move(self) -> None:
        interrupts = list(self.machine.interrupts)
        place = self.random.randrange(len(self.running) + len(self.resting) + len(interrupts))
        if place < len(self.running):
            self._end_node(list(self.running)[place])
        elif place < len(self.running) + len(self.resting):
            number = list(self.resting)[place - len(self.running)]
            del self.resting[number]
            self.feed(BackoffOver(**self._facts(), frame=number))
        else:
            self._answer(self.machine.interrupts[interrupts[place - len(self.running) - len(self.resting)]])

    def _answer(self, interrupt: Interrupt) -> None:
        call = self._call(self.machine.frames[interrupt.frame])
        self.feed(Answered(**self._facts(), interrupt_id=interrupt.id, answer=answer(call), decision="answered"))

    def _end_node(self, number: int) -> None:
        del self.running[number]
        frame = self.machine.frames[number]
        node = self.plan.graphs[frame.graph].nodes[frame.node]
        facts = self._facts()
        if node.form == "ask":
            asked = Interrupt(id="", kind="ask", run_id="", node=node.name, frame=number, key="", path=frame.path)
            self.feed(NodeAsked(**facts, frame=number, interrupt=asked))
            return
        try:
            gave = work(self._call(frame))
        except Failure as failure:
            error = NodeFailed(str(failure), code=failure.code).as_dict(node.name)
            self.feed(NodeErrored(**facts, frame=number, error=error))
        except ExpressionFailed as failed:
            self.feed(NodeErrored(**facts, frame=number, error=failed.as_dict(node.name)))
        else:
            self.feed(NodeSucceeded(**facts, frame=number, out=gave.out, goto=gave.goto))

    def _call(self, frame: Frame) -> Call:
        plan = self.plan.graphs[frame.graph]
        node = plan.nodes[frame.node]
        arguments: Any = {}
        if node.arguments is not None:
            arguments = node.arguments.evaluate(scope_of(plan, self.machine, frame))
        return Call(
            node=frame.node,
            path=frame.path,
            visit=frame.visit,
            attempt=frame.attempt,
            state=thaw(frame.state),
            arguments=thaw(arguments),
            choices=node.choose or (),
        )


def check_places(machine: Machine) -> None:
    """The branches that a join counts as waiting are those below which nothing runs, and the run waits if its root does."""
    below: dict[int, list[Frame]] = {}
    for frame in machine.frames.values():
        below.setdefault(frame.parent, []).append(frame)

    def rests(frame: Frame) -> bool:
        children = below.get(frame.number, [])
        return all(map(rests, children)) if children else frame.status == "waiting"

    for frame in machine.frames.values():
        if frame.join is not None and machine.status in ("running", "waiting"):
            assert frame.join.running == len(below.get(frame.number, []))
            assert frame.join.waiting == sum(map(rests, below.get(frame.number, [])))
        elif frame.join is not None:
            assert frame.join.waiting == 0
    if machine.status in ("running", "waiting"):
        runs = any(frame.status in RUNS for frame in machine.frames.values())
        assert (machine.status == "running") == (runs or not machine.interrupts)


def plain(machine: Machine) -> Any:
    """The machine as data that compares: without the order in which branches ended, which a snapshot forgets."""
    frames = {number: _plain_frame(frame) for number, frame in machine.frames.items()}
    return frames, msgspec.structs.asdict(msgspec.structs.replace(machine, frames={}))


def _plain_frame(frame: Frame) -> Any:
    out = msgspec.structs.asdict(frame)
    out["state"] = thaw(frame.state)
    if frame.join is not None:
        ended = sorted((_plain_frame(f) for f in frame.join.ended), key=lambda f: f["number"])
        out["join"] = [*msgspec.structs.astuple(frame.join)[:-1], ended]
        out["join"][1] = list(frame.join.pending)
    if frame.branch is not None:
        own = {key: [thaw(value) for value in values] for key, values in (frame.branch.own or {}).items()}
        out["branch"] = [frame.branch.index, frame.branch.inherited, thaw(frame.branch.out), own]
    return out


def plan_of(made: RandomDocument) -> tuple[Any, Plan]:
    checked = check_document(made.document, made.kinds)
    return checked, build_plan(checked, made.kinds)


def finished(records: dict[str, list[Record]], plan: Plan) -> dict[str, list[Record]]:
    """Without the failures of open nodes: one that nothing takes leaves them open, so that a resume goes on below."""
    opens = {node.name for below in plan.graphs.values() for node in below.nodes.values() if node.opens}
    kept = {path: [r for r in rows if r.ended == "done" or r.node not in opens] for path, rows in records.items()}
    return {path: rows for path, rows in kept.items() if rows}


@given(random_documents(asks=True), st.randoms(use_true_random=False))
@pytest.mark.campaign
@settings(max_examples=size(60, long=7_500), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_every_interleaving_and_crash_gives_what_running_one_by_one_gives(made: RandomDocument, random: Random) -> None:
    checked, plan = plan_of(made)
    expected = interpret(checked, reducers=REDUCERS)
    driver = Driver(plan, random)
    driver.run()
    assert driver.finished == expected.status
    if expected.status == "complete":
        assert thaw(driver.machine.root.state) == expected.state
        assert len(driver.machine.frames) == 1
    else:
        assert expected.error is not None and driver.machine.error is not None
        if expected.exact:
            assert driver.machine.error["code"] == expected.error["code"]
    if expected.exact:
        assert finished(driver.records, plan) == finished(expected.records, plan)


def waits_for(document: Any, random: Random) -> None:
    """Lets every fan of the document, and of the graphs in it, wait for any or some of its branches."""
    if isinstance(document, dict):
        if "map" in document or "parallel" in document:
            most = len(document.get("parallel", ())) or 3
            document["join"] = {**(document.get("join") or {}), "wait": random.choice(["all", "any", 1, most])}
        for value in document.values():
            waits_for(value, random)


@given(random_documents(), st.randoms(use_true_random=False))
@pytest.mark.campaign
@settings(max_examples=size(30, long=4_000), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_the_recorded_order_of_ticks_gives_the_same_winners_again(made: RandomDocument, random: Random) -> None:
    waits_for(made.document, random)
    waits_for(made.graphs, random)
    _, plan = plan_of(made)
    driver = Driver(plan, random)
    driver.run()
    machine = Machine()
    for tick in driver.ticks:
        machine, _ = advance(plan, machine, tick)
    assert plain(machine) == plain(driver.machine)
