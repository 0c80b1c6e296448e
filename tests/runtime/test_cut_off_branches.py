"""A thread that was cut off, or taken back, while one branch waits and another one works: what wakes the one lets both go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import ThreadWaiting
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.launch import launch_expired
from graphflow.testing import FakeClock, collect
from tests.launching import crash, launch
from tests.runtime.branches import document
from tests.runtime.questions import forget

ASK = {"ask": {"message": "which?", "schema": {"type": "integer"}}, "set": {"results": "[answer]"}}
WAIT = {"use": "wait", "with": {"signal": "go"}, "set": {"results": "[out.by]"}}
EXPIRE = {"ask": {"message": "which?", "schema": {"type": "integer"}, "expires": "PT1M"}, "error": [{"on": ["timeout"], "to": "late"}]}  # fmt: skip


class Cut:
    """A thread `t`: branch `person` waits, branch `machine` works; its process dies in the midst of that work."""

    def __init__(self, store: Checkpointer, waits: dict[str, Any]) -> None:
        self.clock, self.inside, self.gate = FakeClock(), asyncio.Event(), asyncio.Event()
        self.begun = 0
        nodes = {
            "fan": {"parallel": {"person": "person", "machine": "machine"}, "next": "after"},
            "person": waits,
            "machine": {"use": "fn:work", "set": {"results": "[out]"}},
            "after": {"use": "fn:after", "set": {"results": "[out]"}},
        }
        if "error" in waits:
            nodes["late"] = {"use": "fn:late", "set": {"results": "[out]"}}
        functions = {"work": self.work, "after": self.after, "late": self.late}
        self.app: CompiledGraph = load_graph(document(nodes), checkpointer=store, functions=functions, clock=self.clock)

    async def work(self) -> str:
        self.begun += 1
        self.inside.set()
        await self.gate.wait()
        return "worked"

    async def after(self) -> str:
        return "after"

    async def late(self) -> str:
        return "late"

    async def off(self) -> str:
        """Cuts it off; the id of what is open."""
        live = await launch(self.app, {}, "t")
        await self.inside.wait()
        while not live.executor.machine.interrupts:
            await asyncio.sleep(0)
        await live.executor.flush()
        await crash(live)
        self.gate.set()
        forget(self.app)
        state = await self.app.thread("t").state()
        assert state.status == "stopped"
        (waiting,) = state.interrupts
        return waiting.id


async def test_an_answer_after_a_crash_lets_what_was_cut_off_beside_it_go_on(store: Checkpointer) -> None:
    cut = Cut(store, ASK)
    question = await cut.off()
    events = await collect(cut.app.stream_answer("t", {question: 5}))
    assert [e.type for e in events if e.type.startswith("run.")] == ["run.resume", "run.complete"]
    result = await cut.app.thread("t").result()
    assert (result.status, list(result.state.results)) == ("completed", [5, "worked", "after"])
    assert cut.begun == 2
    log = [event for event, _ in await cut.app.thread("t").events()]
    assert [e.seq for e in log] == sorted({e.seq for e in log})
    assert log[-1].type == "run.complete"


async def test_a_signal_after_a_crash_lets_what_was_cut_off_beside_it_go_on(store: Checkpointer) -> None:
    cut = Cut(store, WAIT)
    await cut.off()
    assert await cut.app.thread("t").signal("go")
    live = cut.app.host.live("t")
    assert live is not None
    await live.over.wait()
    result = await cut.app.thread("t").result()
    assert (result.status, list(result.state.results)) == ("completed", ["signal", "worked", "after"])


async def test_an_expiry_after_a_crash_lets_what_was_cut_off_beside_it_go_on(store: Checkpointer) -> None:
    cut = Cut(store, EXPIRE)
    question = await cut.off()
    cut.clock.advance(61)
    live = await launch_expired(cut.app.host, "t", [question])
    await live.over.wait()
    result = await cut.app.thread("t").result()
    assert (result.status, list(result.state.results)) == ("completed", ["late", "worked", "after"])


async def test_an_answer_on_a_fork_lets_the_branches_that_it_left_unfinished_go_on(store: Checkpointer) -> None:
    cut = Cut(store, ASK)
    question = await cut.off()
    fork = await cut.app.thread("t").fork()
    (asked,) = (await fork.state()).interrupts
    done = await cut.app.answer(fork.id, {asked.id: 7})
    assert (done.status, list(done.state.results)) == ("completed", [7, "worked", "after"])
    assert (await cut.app.answer("t", {question: 5})).state.results[0] == 5


async def test_new_input_drops_no_question_of_a_thread_that_was_cut_off(store: Checkpointer) -> None:
    cut = Cut(store, ASK)
    question = await cut.off()
    with pytest.raises(ThreadWaiting) as refused:
        await cut.app.run({}, "t")
    assert [each["interruptId"] for each in refused.value.detail["interrupts"]] == [question]
    assert [i.id for i in (await cut.app.thread("t").state()).interrupts] == [question]
    again = await cut.app.run({}, "t", on_waiting="cancel")
    assert again.status == "waiting" and again.interrupts[0].id != question
    assert "cancel" in [row.source for row in await cut.app.thread("t").history()]


async def test_nodes_that_waited_in_an_earlier_life_end_once_when_what_they_wait_for_comes(store: Checkpointer) -> None:
    """V3: the branch is closed by the answer, and its node, and the fan around it, have begun in another life."""
    nodes = {"fan": {"map": "state.items", "as": "item", "do": "ask", "join": {"wait": 2}}, "ask": ASK}
    app = load_graph(document(nodes), checkpointer=store)
    events: list[Any] = await collect(app.stream({}, "t"))
    for asked in (await app.thread("t").state()).interrupts[:2]:
        forget(app)
        events += await collect(app.stream_answer("t", {asked.id: 1}))
    begun = [(e.node, e.node_run_id) for e in events if e.type == "node.start"]
    over = [(e.type, e.node, e.node_run_id) for e in events if e.type in ("node.end", "node.error")]
    assert sorted(begun) == sorted((node, run) for _, node, run in over)
    assert [kind for kind, _, _ in over] == ["node.end", "node.end", "node.error", "node.end"], "one is not needed"
    assert (over[-1][1], events[-1].type) == ("fan", "run.complete")
