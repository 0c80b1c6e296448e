"""`app.answer` while other branches of the run work: in the same task group, on another thread, again and again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphflow import AnswerRefused, Context, Graph, SqliteCheckpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter


class Review:
    """Two people are asked, one in each branch, while a third branch works until the test lets it go."""

    def __init__(self, compile_graph: Callable[..., CompiledGraph]) -> None:
        self.graph, self.gate, self.working = Graph(Counter), threading.Event(), threading.Event()
        self.graph.parallel("review", {"lawyer": "lawyer", "editor": "editor", "work": "work"})

        @self.graph.node
        async def lawyer(state: Any, ctx: Context) -> dict[str, Any]:
            return {"log": ["lawyer " + await ctx.ask("lawyer?", schema={"type": "string"})]}

        @self.graph.node
        async def editor(state: Any, ctx: Context) -> dict[str, Any]:
            return {"log": ["editor " + await ctx.ask("editor?", schema={"type": "string"})]}

        @self.graph.node
        async def work(state: Any) -> dict[str, Any]:
            self.working.set()
            while not self.gate.is_set():
                await asyncio.sleep(0.001)
            return {"log": ["work"]}

        self.app = compile_graph(self.graph)

    async def asked(self, count: int = 2) -> dict[str, str]:
        """Node → id of its open question, once so many are open and the third branch works."""
        assert self.app.host.store is not None
        while True:
            rows = await self.app.host.store.open_interrupts(thread_id="t")
            if len(rows) == count and self.working.is_set():
                return {row.node.rpartition("/")[2]: row.interrupt_id for row in rows}
            await asyncio.sleep(0.001)

    async def log(self) -> list[str]:
        return sorted((await self.app.thread("t").state()).values.log)


DONE = ["editor fine", "lawyer ok", "work"]


@pytest.fixture
def review(compile_graph: Compile) -> Review:
    return Review(compile_graph)


async def within(seconds: float, work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(seconds):
        return await work


async def test_questions_are_answered_while_a_sibling_works_and_all_callers_get_the_result(review: Review) -> None:
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        first = group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        second = group.create_task(review.app.answer("t", {ids["lawyer"]: "ok"}, by="ann"))
        await review.asked(1)
        assert not first.done() and not second.done()
        third = group.create_task(review.app.answer("t", "fine"))
        await review.asked(0)
        review.gate.set()
    results = [task.result() for task in (first, second, third)]
    assert {(result.status, result.run_id) for result in results} == {("completed", results[0].run_id)}
    assert await review.log() == DONE


async def test_two_answers_at_once_to_a_thread_that_waits_both_count(review: Review) -> None:
    review.gate.set()
    waiting = await review.app.run({}, "t")
    assert waiting.status == "waiting"
    ids = await review.asked()
    async with asyncio.timeout(PATIENCE_S):
        results = await asyncio.gather(
            review.app.answer("t", {ids["lawyer"]: "ok"}), review.app.answer("t", {ids["editor"]: "fine"})
        )
    assert results[1].status == "completed" or results[0].status == "completed"
    assert await review.log() == DONE


async def test_a_refused_answer_to_a_running_thread_changes_nothing(review: Review) -> None:
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        for answers, code in (
            ({"nobody": "ok"}, "answer_ambiguous"),
            ({ids["lawyer"]: 5}, "answer_invalid"),
            ({ids["lawyer"]: "ok", ids["editor"]: 5}, "answer_invalid"),
            ({ids["lawyer"][:-1] + "77": "ok"}, "answer_stale"),
        ):
            with pytest.raises(AnswerRefused) as refused:
                await review.app.answer("t", answers)
            assert refused.value.code == code
        assert await review.asked() == ids
        answered = group.create_task(review.app.answer("t", {ids["lawyer"]: "ok"}))
        await review.asked(1)
        with pytest.raises(AnswerRefused) as again:
            await review.app.answer("t", {ids["lawyer"]: "no"})
        assert again.value.code == "answer_stale"
        review.gate.set()
        assert (await answered).status == "waiting"
        assert (await review.app.answer("t", "fine")).status == "completed"
    assert await review.log() == DONE


async def test_leaving_an_answer_does_not_cancel_the_run_that_another_caller_drives(review: Review) -> None:
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        driven = group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        left = asyncio.ensure_future(review.app.answer("t", {ids["lawyer"]: "ok"}))  # noqa: TID251 - awaited below
        await review.asked(1)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        stream = review.app.stream_answer("t", {ids["editor"]: "fine"})
        assert (await anext(stream)).type == "interrupt.resolve"
        await stream.aclose()
        review.gate.set()
        assert (await driven).status == "completed"
    assert await review.log() == DONE


async def test_the_stream_of_an_answer_has_what_the_run_sends_from_then_on(review: Review) -> None:
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        driven = group.create_task(_all(review.app.stream({}, "t")))
        ids = await review.asked()
        answered = group.create_task(_all(review.app.stream_answer("t", {ids["lawyer"]: "ok"})))
        await review.asked(1)
        also = group.create_task(_all(review.app.stream_answer("t", "fine")))
        await review.asked(0)
        review.gate.set()
    for seen in (answered.result(), also.result()):
        assert seen[0].type == "interrupt.resolve" and seen[-1].type == "run.complete"
        assert seen == driven.result()[-len(seen) :]


async def _all(stream: Any) -> list[Any]:
    return [event async for event in stream]


def test_a_thread_of_the_program_answers_what_another_one_runs(tmp_path: Any) -> None:
    store = SqliteCheckpointer(tmp_path / "t.db")
    review = Review(lambda graph: graph.compile(checkpointer=store))
    results: list[Any] = []
    runner = threading.Thread(target=lambda: results.append(review.app.run_sync({}, "t")))
    runner.start()
    ids = asyncio.run(within(20, review.asked()))
    answerer = threading.Thread(
        target=lambda: results.append(review.app.answer_sync("t", {ids["lawyer"]: "ok", ids["editor"]: "fine"}))
    )
    answerer.start()
    asyncio.run(within(20, review.asked(0)))
    review.gate.set()
    for thread in (runner, answerer):
        thread.join(20)
    assert [result.status for result in results] == ["completed", "completed"]
    assert asyncio.run(within(20, review.log())) == DONE
    asyncio.run(store.close())
