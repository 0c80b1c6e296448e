"""For k answers every finished node and every recorded operation has run exactly once (E5).

Random graphs of questions are answered in random orders, in parts, with restarts, wrong answers and live processes in
between; the end is that of asking nobody twice.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow import Context, Graph, MemoryCheckpointer, SqliteCheckpointer, tool
from graphflow.errors import AnswerRefused
from graphflow.graph.core.machine import Interrupt
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.launch import launch_answer
from graphflow.testing import FakeIds
from tests.campaign import size
from tests.launching import launch
from tests.patience import PATIENCE_S

STATE = {
    "type": "object",
    "properties": {"log": {"type": "array", "default": [], "x-reducer": "append"}, "said": {"type": "array", "default": []}},
}  # fmt: skip
NUMBER = {"type": "integer"}
stages = st.lists(
    st.recursive(
        st.tuples(st.sampled_from(["row", "group", "ask", "tools", "plain"]), st.integers(1, 3)),
        lambda inner: st.tuples(st.just("sub"), st.lists(inner, min_size=1, max_size=3)),
        max_leaves=4,
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


class Bench:
    """A graph of questions, and how often each of its parts has run."""

    def __init__(self, plan: Any) -> None:
        self.ran: Counter[str] = Counter()
        """Recorded operations, and nodes that finished."""
        self._made = 0
        self.graph = self._graph(plan, "r")

        @tool(parameters={"type": "object", "properties": {"what": {"type": "string"}}}, approval_hint="It is dear.")
        async def pay(what: str) -> str:
            """Pays."""
            self.ran[f"pay {what}"] += 1
            return what

        self.tools = [pay]
        self.ids = FakeIds()
        """Of all processes: ids are never given twice."""

    def open(self, store: Any) -> CompiledGraph:
        """The graph as another process would open it."""
        return self.graph.compile(checkpointer=store, ids=self.ids, tools=self.tools)

    def _graph(self, plan: Any, key: str) -> Graph:
        graph = Graph(STATE, name=key, result="state.log")
        names = [f"{key}{index}" for index in range(len(plan))]
        for name, following, (kind, what) in zip(names, [*names[1:], "end"], plan, strict=True):
            if kind == "sub":
                graph.subgraph(name, self._graph(what, f"{name}x"), set={"log": "out"}, next=following)
            elif kind == "ask":
                graph.ask(name, f"{name}?", schema=NUMBER, set={"log": "[answer]"}, next=following)
            elif kind == "tools":
                calls = [
                    {"id": f"{name}c{n}", "name": "pay", "arguments": {"what": f"{name}.{n}"}} for n in range(what)
                ]
                graph.add(name, use="tools", with_={"calls": calls}, set={"log": "out.results"}, next=following)
            else:
                node = {"row": self._row, "group": self._group, "plain": self._plain}[kind]
                graph.node(name=name, next=following)(node(name, what))
        return graph

    def _act(self, label: str) -> Any:
        async def act() -> str:
            self.ran[label] += 1
            return label

        return act

    def _row(self, name: str, count: int) -> Any:
        async def row(state: Any, ctx: Context) -> dict[str, Any]:
            log: list[Any] = []
            for n in range(count):
                log.append(await ctx.step(None, self._act(f"{name} once {n}")))
                log.append(await ctx.ask(f"{name} {n}?", schema=NUMBER))
            self.ran[f"{name} ends"] += 1
            return {"log": log}

        return row

    def _group(self, name: str, count: int) -> Any:
        async def group(state: Any, ctx: Context) -> dict[str, Any]:
            async def one(n: int) -> Any:
                answer = await ctx.ask(f"{name} {n}?", key=f"q{n}", schema=NUMBER)
                return [answer, await ctx.step(f"o{n}", self._act(f"{name} once {n}"))]

            async with asyncio.TaskGroup() as tasks:
                parts = [tasks.create_task(one(n)) for n in range(count)]
            self.ran[f"{name} ends"] += 1
            return {"log": [part.result() for part in parts]}

        return group

    def _plain(self, name: str, count: int) -> Any:
        async def plain(state: Any) -> dict[str, Any]:
            self.ran[f"{name} ends"] += 1
            return {"log": [name]}

        return plain


def answer_to(asked: Interrupt) -> Any:
    """Depends on the question alone, so that the order of the answers must not show."""
    if asked.kind == "approval":
        return {"decision": "approve"}
    return sum(map(ord, str(asked.payload["message"]))) % 97


async def answered(bench: Bench, store: Any, draw: random.Random) -> tuple[Any, int]:
    """Answers until nothing is asked any more; the last result, and how many answers it took."""
    app = bench.open(store)
    result = await app.run({}, thread_id="t")
    count = 0
    while result.status == "waiting":
        seen = {i.id for i in result.interrupts}
        assert seen == {i.id for i in (await app.thread("t").state()).interrupts}
        if draw.random() < 0.4:
            app = bench.open(store)
        if draw.random() < 0.5:
            runs = app.host.runs
            assert runs is not None
            runs.forget("t")
        if draw.random() < 0.3:
            with pytest.raises(AnswerRefused):
                await app.answer("t", {draw.choice(sorted(seen)): "no number"})
        some = draw.sample(result.interrupts, draw.randint(1, len(result.interrupts)))
        count += len(some)
        result = await app.answer("t", {i.id: answer_to(i) for i in some})
    return result, count


async def answered_live(bench: Bench, store: Any, draw: random.Random) -> Any:
    """Answers a process that holds its questions open, which now and then lets go of them."""
    app = bench.open(store)
    live = await launch(app, {}, "t", hold_ms=60_000)
    while True:
        assert live.log is not None
        async for event in live.log.follow(live.log.mark):
            executor = live.executor
            open_ = [i for i in executor.machine.interrupts.values() if i.id in _asked(live)]
            if event.type not in ("interrupt.request", "interrupt.resolve") or not open_ or executor.ending:
                continue
            if draw.random() < 0.2:
                executor.release()
            elif draw.random() < 0.8:
                asked = draw.choice(open_)
                executor.answer(asked.id, answer_to(asked), "approve" if asked.kind == "approval" else "answered")
            else:
                executor.release()
        await live.over.wait()
        state = await app.thread("t").state()
        if state.status != "waiting":
            return live.executor.machine
        some = draw.sample(state.interrupts, draw.randint(1, len(state.interrupts)))
        live = await launch_answer(app.host, "t", {i.id: answer_to(i) for i in some}, hold_ms=60_000)


def _asked(live: Any) -> set[str]:
    """Questions that clients have been shown."""
    return {e.interrupt_id for e in live.log.ring if e.type == "interrupt.request"} | set(
        live.executor.machine.interrupts
    )


def check(plan: Any, seed: int, kind: str, *, live: bool) -> None:
    async def whole() -> None:
        plain = Bench(plan)
        expected, _ = await answered(plain, MemoryCheckpointer(), random.Random(0))
        assert set(plain.ran.values()) <= {1}
        bench, draw = Bench(plan), random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            store: Any = MemoryCheckpointer() if kind == "memory" else SqliteCheckpointer(Path(folder) / "t.db")
            async with asyncio.timeout(PATIENCE_S):
                if live:
                    root = (await answered_live(bench, store, draw)).root
                    log = root.state["log"]
                else:
                    result, _ = await answered(bench, store, draw)
                    assert result.status == expected.status == "completed"
                    log = result.state.log
            await store.close()
        assert bench.ran == plain.ran
        assert [_plain(item) for item in log] == [_plain(item) for item in expected.state.log]

    asyncio.run(whole())


def _plain(item: Any) -> Any:
    return item["text"] if isinstance(item, dict) and "text" in item else item


QUICK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}


@pytest.mark.campaign
@settings(max_examples=size(20, long=2_000), **QUICK)  # type: ignore[arg-type]
@given(plan=stages, seed=st.integers(0, 1 << 30))
def test_in_whatever_order_questions_are_answered_everything_runs_once(plan: Any, seed: int) -> None:
    check(plan, seed, "memory", live=False)


@pytest.mark.campaign
@settings(max_examples=size(12, long=1_500), **QUICK)  # type: ignore[arg-type]
@given(plan=stages, seed=st.integers(0, 1 << 30))
def test_the_same_while_processes_hold_the_questions_and_let_go(plan: Any, seed: int) -> None:
    check(plan, seed, "memory", live=True)


@pytest.mark.parametrize("live", [False, True], ids=["answered later", "answered live"])
@pytest.mark.parametrize("seed", range(6))
def test_the_same_over_a_file(seed: int, live: bool) -> None:
    draw = random.Random(seed)
    simple = [(draw.choice(["row", "group", "ask", "tools", "plain"]), draw.randint(1, 3)) for _ in range(3)]
    check([*simple, ("sub", simple[:2])], seed, "sqlite", live=live)
