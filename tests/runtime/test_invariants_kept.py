"""What no proof can promise, because people change things from outside, is kept at run time: the node is never run
(spec 2.1 rule 10).
"""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Goto, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds

STATE = {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}


def review(store: Checkpointer | None, ran: list[str], **keys: Any) -> CompiledGraph:
    """`draft` → `approve` → `send`, where `approve` must come before `send`."""

    def node(name: str) -> Any:
        async def run(state: Any) -> dict[str, Any]:
            ran.append(name)
            return {"n": state["n"] + 1}

        return run

    data: dict[str, Any] = {
        "graphflow": "1",
        "state": STATE,
        "start": "draft",
        "nodes": {
            "draft": {"use": "node:draft", "next": "approve"},
            "approve": {"use": "node:approve", "next": "send"},
            "send": {"use": "node:send", "next": "end"},
        },
        "invariants": ["before node:send visit approve"],
        **keys,
    }
    names = ("draft", "approve", "send", "wrap_up")
    return load_graph(data, checkpointer=store, ids=FakeIds(), nodes={name: node(name) for name in names})


async def test_a_run_that_keeps_its_properties_is_not_stopped(store):
    ran: list[str] = []
    result = await review(store, ran).run({}, "t")
    assert (result.status, ran) == ("completed", ["draft", "approve", "send"])


async def test_skipping_what_must_be_visited_fails_the_node_after_it(store):
    ran: list[str] = []
    app = review(store, ran)
    await app.run({}, "t", interrupt_before=["approve"])
    result = await app.answer("t", {"decision": "skip"})
    assert (result.status, ran) == ("failed", ["draft"])
    assert result.error is not None
    assert result.error["code"] == "property_violated"
    assert result.error["node"] == "send"
    assert result.error["detail"]["property"] == "before node:send visit approve"
    assert "'approve' has not finished in this run" in result.error["message"]


async def test_editing_past_it_fails_the_node_when_the_thread_goes_on_and_again_when_it_is_tried_again(store):
    ran: list[str] = []
    app = review(store, ran)
    await app.run({}, "t", interrupt_before=["approve"])
    await app.thread("t").edit({"n": 5}, as_node="approve")
    assert (await app.thread("t").state()).next == ["send"]
    for _ in range(2):
        result = await app.resume("t")
        assert (result.status, (result.error or {})["code"]) == ("failed", "property_violated")
    assert ran == ["draft"]
    history = await app.thread("t").history()
    assert history[0].error == "property_violated"


async def test_the_way_through_is_still_open(store):
    ran: list[str] = []
    app = review(store, ran)
    await app.run({}, "t", interrupt_before=["approve"])
    await app.thread("t").edit({"n": 5}, as_node="approve")
    await app.resume("t")
    await app.thread("t").edit({"n": 6}, as_node="draft")
    result = await app.answer("t", {"decision": "continue"})  # the run's own breakpoint before `approve`
    assert (result.status, ran) == ("completed", ["draft", "approve", "send"])


async def test_the_nodes_error_route_takes_the_failure(store):
    ran: list[str] = []
    nodes = {
        "draft": {"use": "node:draft", "next": "approve"},
        "approve": {"use": "node:approve", "next": "send"},
        "send": {"use": "node:send", "next": "end", "error": [{"on": ["any"], "to": "wrap_up"}]},
        "wrap_up": {"use": "node:wrap_up", "next": "end"},
    }
    app = review(store, ran, nodes=nodes)
    await app.run({}, "t", interrupt_before=["approve"])
    result = await app.answer("t", {"decision": "skip"})
    assert (result.status, ran) == ("completed", ["draft", "wrap_up"])


async def test_a_new_input_begins_without_what_the_last_run_visited(store):
    ran: list[str] = []
    app = review(store, ran)
    await app.run({}, "t")
    await app.run({}, "t", interrupt_before=["approve"])
    assert (await app.answer("t", {"decision": "skip"})).status == "failed"


async def test_a_fork_inherits_what_was_visited_before_it(store):
    ran: list[str] = []
    app = review(store, ran)
    await app.run({}, "t")
    before_send = next(c for c in await app.thread("t").history() if c.next == ["send"])
    other = await app.thread("t").fork(before_send.id)
    assert (await app.resume(other.id)).status == "completed"


@pytest.mark.parametrize(("rounds", "status", "times"), [(2, "completed", 2), (5, "failed", 3)])
async def test_a_limit_that_a_request_raises_does_not_raise_how_often_a_node_may_be_entered(
    store, rounds, status, times
):
    ran: list[str] = []
    loop = {
        "draft": {"use": "node:draft", "next": [{"if": "visits.draft < limits.rounds", "to": "draft"}, {"to": "end"}]}
    }
    budget = {"maxRounds": 3, "maxSteps": 50}
    app = review(store, ran, nodes=loop, budget=budget, invariants=["draft at most 3"])
    result = await app.run({}, "t", budget={"maxRounds": rounds})
    assert (result.status, len(ran)) == (status, times)
    if status == "failed":
        assert "entry 4" in (result.error or {})["message"]


async def test_a_goto_past_a_condition_does_not_raise_how_often_a_node_may_be_entered():
    ran: list[str] = []

    async def draft(state: Any) -> Goto:
        ran.append("draft")
        return Goto("draft")

    data = {
        "graphflow": "1",
        "start": "draft",
        "nodes": {"draft": {"use": "node:draft", "next": [{"if": "visits.draft < 2", "to": "draft"}, {"to": "end"}]}},
        "budget": {"maxSteps": 50},
        "invariants": ["draft at most 2"],
    }
    result = await load_graph(data, nodes={"draft": draft}).run({})
    assert ((result.error or {})["code"], len(ran)) == ("property_violated", 2)


async def test_a_thread_without_a_store_is_kept_too():
    ran: list[str] = []
    assert (await review(None, ran).run({})).status == "completed"
