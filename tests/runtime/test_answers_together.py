"""Several answers in one call: all of them are kept or none, for a thread that is parked and for a run that lives."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

import pytest

from graphflow import Context, Graph, MemoryCheckpointer, append
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import AnswerRefused
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds
from tests.runtime.conftest import Compile


class Said(TypedDict):
    said: Annotated[list[Any], append]


def three_questions(release: asyncio.Event | None = None) -> Graph:
    """Three branches that ask; with an event, a fourth that works until it is set."""
    graph = Graph(Said)
    names = ["a", "b", "c"]
    branches = {name: name for name in names} | ({"busy": "busy"} if release is not None else {})
    graph.parallel("all", branches)
    for name in names:

        async def ask(state: Any, ctx: Context, name: str = name) -> dict[str, Any]:
            return {"said": [(name, await ctx.ask(f"{name}?", schema={"type": "integer"}))]}

        graph.node(ask, name=name)  # type: ignore[call-overload] # the name is bound by a default

    async def busy(state: Any) -> dict[str, Any]:
        assert release is not None
        await release.wait()
        return {"said": [("busy", True)]}

    if release is not None:
        graph.node(busy)
    return graph


class Counting(MemoryCheckpointer):
    """Notes how many records each commit has."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    def commit(self, *given: Any, **options: Any) -> Any:
        self.commits.append(len(given[3]))
        return super().commit(*given, **options)


async def asked(app: CompiledGraph) -> dict[str, str]:
    """Node → the id of its open question."""
    return {interrupt.node: interrupt.id for interrupt in (await app.thread("t").state()).interrupts}


async def test_the_answers_to_a_parked_thread_are_one_commit_with_a_checkpoint_each() -> None:
    store = Counting()
    app = three_questions().compile(checkpointer=store, ids=FakeIds())
    await app.run({}, "t")
    questions, before = await asked(app), len(await app.thread("t").history())
    store.commits.clear()
    done = await app.answer("t", {questions[name]: number for number, name in enumerate("abc")})
    assert (done.status, sorted(done.state.said)) == ("completed", [("a", 0), ("b", 1), ("c", 2)])
    assert 3 in store.commits
    assert len(await app.thread("t").history()) >= before + 3


async def test_the_answers_to_a_living_run_are_one_commit() -> None:
    store, release = Counting(), asyncio.Event()
    app = three_questions(release).compile(checkpointer=store, ids=FakeIds())
    async with asyncio.TaskGroup() as group:
        run = group.create_task(app.run({}, "t"))
        while len(questions := await asked(app) if store.commits else {}) < 3:
            await asyncio.sleep(0)
        store.commits.clear()
        group.create_task(app.answer("t", {questions[name]: number for number, name in enumerate("abc")}))
        while not store.commits:
            await asyncio.sleep(0)
        assert store.commits[0] == 3
        release.set()
    assert (run.result().status, len(run.result().state.said)) == ("completed", 4)


async def test_after_a_restart_the_answers_are_all_there(compile_graph: Compile, store: Checkpointer) -> None:
    app = compile_graph(three_questions())
    await app.run({}, "t")
    questions = await asked(app)
    assert (await app.answer("t", {questions["a"]: 1, questions["b"]: 2})).status == "waiting"
    later = three_questions().compile(checkpointer=store, ids=FakeIds())
    runs = later.host.runs
    assert runs is not None
    runs.forget("t")
    assert list(await asked(later)) == ["c"]
    done = await later.answer("t", 3)
    assert sorted(map(tuple, done.state.said)) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("wrong", ["two", 1 << 20_000], ids=["of another type", "that can't be stored"])
async def test_one_answer_that_is_refused_keeps_all_questions_open(compile_graph: Compile, wrong: Any) -> None:
    app = compile_graph(three_questions())
    await app.run({}, "t")
    questions, before = await asked(app), len(await app.thread("t").history())
    with pytest.raises(AnswerRefused) as refused:
        await app.answer("t", {questions["a"]: 1, questions["b"]: wrong, questions["c"]: 3})
    assert refused.value.code == "answer_invalid"
    assert (await asked(app), len(await app.thread("t").history())) == (questions, before)
