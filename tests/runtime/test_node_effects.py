"""Nodes that say themselves that they write: asked about after a crash, never silently done twice (E6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from graphflow import Context, Goto, Graph, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds
from tests.launching import crash, launch

STATE = {"type": "object", "properties": {"paid": {"type": "array", "default": [], "x-reducer": "append"}}}


class Till:
    """Takes money, and never comes back from it the first time."""

    def __init__(self, hangs: bool = True) -> None:
        self.taken: list[Any] = []
        self.reached = asyncio.Event()
        self.hangs = hangs

    async def take(self, what: Any) -> None:
        self.taken.append(what)
        if self.hangs and len(self.taken) == 1:
            self.reached.set()
            await asyncio.Event().wait()


def graph_of(store: Checkpointer, **keys: Any) -> Callable[..., CompiledGraph]:
    """Compiles `pay` → `after` over a function or a node."""

    def compile_over(**registered: Any) -> CompiledGraph:
        pay = {"effects": "write", "next": "after", **keys}
        nodes = {"pay": pay, "after": {"use": "fn:after", "set": {"paid": "[out]"}}}
        document = {"graphflow": "1", "start": "pay", "state": STATE, "nodes": nodes}

        async def after() -> str:
            return "after"

        functions = {"after": after, **registered.get("functions", {})}
        return load_graph(
            document, checkpointer=store, functions=functions, nodes=registered.get("nodes"), ids=FakeIds()
        )

    return compile_over


async def crash_in_the_midst(app: CompiledGraph, till: Till) -> None:
    """Leaves the thread as a killed process would, while the till is open."""
    live = await launch(app, thread_id="t")
    await till.reached.wait()
    await crash(live)


ANSWERS = [
    ({"decision": "result", "result": "paid"}, 1, ["paid", "after"]),
    ({"decision": "skip"}, 1, [None, "after"]),
    ({"decision": "retry"}, 2, ["done", "after"]),
]


@pytest.mark.parametrize(("answer", "times", "paid"), ANSWERS, ids=[a[0]["decision"] for a in ANSWERS])
async def test_after_a_crash_inside_a_writing_function_a_person_says_what_became_of_it(
    store: Checkpointer, answer: Any, times: int, paid: list[Any]
) -> None:
    till = Till()

    async def pay(what: str) -> str:
        await till.take(what)
        return "done"

    app = graph_of(store, use="fn:pay", **{"with": {"what": "tea"}, "set": {"paid": "[out]"}})(functions={"pay": pay})
    await crash_in_the_midst(app, till)
    waiting = await app.resume("t")
    assert (waiting.status, [i.kind for i in waiting.interrupts], till.taken) == (
        "waiting",
        ["outcome_unknown"],
        ["tea"],
    )
    done = await app.answer("t", answer)
    assert (done.status, list(done.state.paid), len(till.taken)) == ("completed", paid, times)


async def test_an_idempotent_writing_node_is_done_again_under_the_same_key(store: Checkpointer) -> None:
    till = Till()

    async def pay(state: Any, ctx: Context) -> dict[str, Any]:
        await till.take(ctx.idempotency_key())
        return {"paid": ["done"]}

    app = graph_of(store, use="node:pay", idempotent=True)(nodes={"pay": pay})
    await crash_in_the_midst(app, till)
    done = await app.resume("t")
    assert (done.status, list(done.state.paid)) == ("completed", ["done", "after"])
    assert till.taken[0] == till.taken[1]


async def test_a_writing_node_may_choose_its_route_and_a_failed_one_is_tried_again(store: Checkpointer) -> None:
    till = Till(hangs=False)

    async def pay(state: Any, ctx: Context) -> Any:
        await till.take(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("the till is stuck")
        return Goto("after", {"paid": ["done"]})

    retry = {"max": 2, "on": ["node_error"], "backoffMs": 0}
    app = graph_of(store, use="node:pay", retry=retry, next={"choose": ["after", "end"]})(nodes={"pay": pay})
    done = await app.run(thread_id="t")
    assert (done.status, list(done.state.paid), till.taken) == ("completed", ["done", "after"], [1, 2])


async def test_a_node_that_says_nothing_of_effects_just_runs_again(store: Checkpointer) -> None:
    till = Till()

    async def pay(what: str) -> str:
        await till.take(what)
        return "done"

    app = graph_of(store, use="fn:pay", effects="none", **{"with": {"what": "tea"}})(functions={"pay": pay})
    await crash_in_the_midst(app, till)
    assert ((await app.resume("t")).status, till.taken) == ("completed", ["tea", "tea"])


# --- another run goes on


class Bank:
    """Knows payments by their key; the first ones lose their connection, and nobody knows what became of them."""

    def __init__(self, losses: int) -> None:
        self.keys: list[str] = []
        self.undone: list[str] = []
        self._losses = losses

    async def pay(self, key: str) -> str:
        self.keys.append(key)
        if len(self.keys) <= self._losses:
            raise ConnectionResetError
        return "done"

    def app(self, store: Checkpointer, *, idempotent: bool) -> CompiledGraph:
        graph = Graph({"type": "object", "properties": {"paid": {"type": "array", "default": []}}}, name="bank")

        @graph.node(undo="tool:take_back")
        async def pay(state: Any, ctx: Context) -> dict[str, Any]:
            key = ctx.idempotency_key("pay")
            return {"paid": [await ctx.step("pay", lambda: self.pay(key), idempotent=idempotent)]}

        @tool
        async def take_back(idempotencyKey: str) -> None:  # noqa: N803 - the wire's name
            self.undone.append(idempotencyKey)

        return graph.compile(checkpointer=store, tools=[take_back])


async def test_a_run_that_goes_on_after_an_error_repeats_its_write_under_the_same_key(store: Checkpointer) -> None:
    bank = Bank(losses=2)
    app = bank.app(store, idempotent=True)
    first = await app.run(thread_id="t")
    second = await app.resume("t")
    third = await app.resume("t")
    assert [run.status for run in (first, second, third)] == ["failed", "failed", "completed"]
    assert len({run.run_id for run in (first, second, third)}) == 3, "each is a run of its own"
    assert len(bank.keys) == 3 and len(set(bank.keys)) == 1, "the bank knows that these are one payment"
    assert (await app.run(thread_id="t")).status == "completed"
    assert len(set(bank.keys)) == 2, "a new input pays anew"


async def test_a_run_that_goes_on_after_a_cancel_repeats_its_write_under_the_same_key(store: Checkpointer) -> None:
    till = Till()

    async def pay(state: Any, ctx: Context) -> dict[str, Any]:
        await till.take(ctx.idempotency_key())
        return {"paid": ["done"]}

    app = graph_of(store, use="node:pay", idempotent=True)(nodes={"pay": pay})
    live = await launch(app, thread_id="t")
    await till.reached.wait()
    await app.thread("t").cancel()
    await live.over.wait()
    assert (await app.resume("t")).status == "completed"
    assert len(till.taken) == 2 and till.taken[0] == till.taken[1]


async def test_the_question_about_a_write_names_the_key_under_which_it_was_done(store: Checkpointer) -> None:
    bank = Bank(losses=1)
    app = bank.app(store, idempotent=False)
    assert (await app.run(thread_id="t")).status == "failed"
    for _ in range(2):
        asked = (await app.resume("t")).interrupts
        assert [i.payload["idempotencyKey"] for i in asked] == bank.keys
        await app.thread("t").cancel()
    await app.resume("t")
    done = await app.answer("t", {"decision": "retry"})
    assert done.status == "completed" and len(bank.keys) == 2 and len(set(bank.keys)) == 1


async def test_what_a_run_that_went_on_has_done_is_taken_back_under_its_key(store: Checkpointer) -> None:
    bank = Bank(losses=1)
    app = bank.app(store, idempotent=True)
    await app.run(thread_id="t")
    await app.resume("t")
    begin = (await app.thread("t").history())[-1].id
    await app.thread("t").rewind(begin, effects="undo")
    assert bank.undone == bank.keys[:1]
