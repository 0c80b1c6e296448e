"""`invariants` with branches: what is proved is never stopped, and what people change in a branch is kept (spec 2.1 rule 10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from graphflow.graph.core.invariants import InvariantMonitor
from graphflow.graph.core.machine import all_frames
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.unit_of_work import UnitOfWork
from graphflow.graph.invariants.model_checker import path_around, path_exceeding
from graphflow.graph.invariants.properties import MOST
from graphflow.graph.validation.validate import check_document
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeClock
from tests.campaign import size
from tests.graph.random_documents import RandomDocument, random_documents
from tests.runtime.test_branches_against_the_reference import WorkingKinds
from tests.runtime.test_invariants_kept import review


class Hasty(FakeClock):
    """Nobody waits for a retry."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class Watching:
    """In the place of a plan's table: notes which properties of the root's nodes a run breaks, and stops nothing."""

    def __init__(self, names: Collection[str]) -> None:
        self._monitor = InvariantMonitor(
            before={node: tuple((first, frozenset((first,))) for first in names) for node in names},
            most=dict.fromkeys(names, ()),
            noted=frozenset(names),
        )
        self.early: set[tuple[str, str]] = set()
        """(X, Y): X began before Y had finished."""
        self.entries: Counter[str] = Counter()

    def note_entered(self, work: UnitOfWork, number: int, name: str) -> None:
        self.entries[name] += 1
        self._monitor.note_entered(work, number, name)

    def note_finished(self, work: UnitOfWork, number: int, node: PlanNode) -> None:
        self._monitor.note_finished(work, number, node)

    def breach(self, work: UnitOfWork, number: int) -> None:
        node = work.table[number].node
        for first, firsts in self._monitor.before[node]:
            if (
                msgspec.structs.replace(self._monitor, before={node: ((first, firsts),)}).breach(work, number)
                is not None
            ):
                self.early.add((node, first))


@given(made=random_documents())
@pytest.mark.campaign
@settings(max_examples=size(25, long=3_000), deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_a_run_breaks_is_refused(made: RandomDocument):
    """The other way round: what is proved is never broken."""
    kinds = WorkingKinds(made)
    checked = check_document(made.document, kinds)
    names = list(checked.document.nodes)
    watching = Watching(names)
    app = CompiledGraph(checked, kinds=kinds, clock=Hasty())
    nodes = {name: msgspec.structs.replace(node, plain=False) for name, node in app.plan.nodes.items()}
    app.host.documents._newest = app.plan.graphs[""] = msgspec.structs.replace(app.plan, monitor=watching, nodes=nodes)
    asyncio.run(app.run({}, "t"))
    for node, first in watching.early:
        assert path_around(checked.document, {node: 1}, frozenset((first,))) is not None, (node, first)
    for node, count in watching.entries.items():
        if node in names and count <= MOST:
            assert path_exceeding(checked.document, {node: 1}, count - 1) is not None, (node, count)


def node(name: str, after: str = "end", **fields: Any) -> dict[str, Any]:
    return {"use": f"node:{name}", "next": after, **fields}


STATE = {
    "type": "object",
    "properties": {"n": {"type": "integer", "default": 0, "x-reducer": "max"}, "list": {"default": [1, 2]}},
}


async def test_a_branch_that_comes_after_another_has_what_that_one_finished(store):
    ran: list[str] = []
    nodes = {
        "fan": {"parallel": {"x": "approve", "y": {"do": "send", "after": ["x"]}}, "next": "wrap_up"},
        "approve": node("approve"),
        "send": node("send"),
        "wrap_up": node("wrap_up"),
    }
    always = ["before send visit approve", "before wrap_up visit approve", "send at most 1", "before wrap_up visit fan"]
    result = await review(store, ran, state=STATE, start="fan", nodes=nodes, invariants=always).run({}, "t")
    assert (result.status, ran) == ("completed", ["approve", "send", "wrap_up"])


async def test_skipping_in_one_item_fails_that_item_and_not_its_siblings(store):
    ran: list[str] = []
    nodes = {
        "fan": {"map": "state.list", "as": "it", "do": "approve", "join": {"onError": "skip"}, "next": "wrap_up"},
        "approve": node("approve", "send"),
        "send": node("send"),
        "wrap_up": node("wrap_up"),
    }
    app = review(store, ran, state=STATE, start="fan", nodes=nodes, invariants=["before send visit approve"])
    first, second = (await app.run({}, "t", interrupt_before=["approve"])).interrupts
    await app.answer("t", {first.id: {"decision": "continue"}})
    result = await app.answer("t", {second.id: {"decision": "skip"}})
    assert (result.status, ran) == ("completed", ["approve", "send", "wrap_up"])


async def test_an_edit_past_a_node_in_a_branch_is_kept_too(store):
    ran: list[str] = []
    nodes = {
        "fan": {"parallel": {"x": "approve"}, "next": "end"},
        "approve": node("approve", "send"),
        "send": node("send"),
    }
    app = review(store, ran, state=STATE, start="fan", nodes=nodes, invariants=["before send visit approve"])
    await app.run({}, "t", interrupt_before=["approve"])
    await app.thread("t").edit({}, as_node="approve", path="fan#1[x]")
    result = await app.resume("t")
    assert (result.status, (result.error or {})["code"], ran) == ("failed", "property_violated", [])


@pytest.mark.parametrize("items", [1, 40])
async def test_marks_of_a_fans_branches_do_not_stay_behind(store, items):
    nodes = {
        "fan": {"map": "state.list", "as": "it", "do": "approve", "next": "send"},
        "approve": node("approve", "end"),
        "send": node("send", [{"if": "visits.fan < 3", "to": "fan"}, {"to": "end"}]),  # type: ignore[arg-type]
    }
    state = {"type": "object", "properties": {"n": STATE["properties"]["n"], "list": {"default": list(range(items))}}}  # type: ignore[index]
    app = review(
        store, [], state=state, start="fan", nodes=nodes, invariants=["before send visit fan"], budget={"maxSteps": 999}
    )
    assert (await app.run({}, "t")).status == "completed"
    live = app.host.runs
    assert live is not None
    row = await live.take("t", create=False)
    loaded = await live.load(row)
    assert loaded is not None
    visits: Mapping[str, int] = next(iter(all_frames(loaded.machine))).visits
    assert {key for key in visits if " " in key} == {"finished fan"}
    await store.release("t", row.fence)
