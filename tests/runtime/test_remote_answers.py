"""An answer from a process that does not drive the run, while other branches of it work: the driver takes it over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from graphflow import AnswerRefused
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.queue_codec import HandedAnswer, encode_queued
from graphflow.runtime.runs import live_runs
from tests.conftest import OpenStore
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.test_live_answers import DONE, Review

Open = Callable[[], CompiledGraph]


@pytest.fixture
async def another(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Review, Open]]:
    """The review in one store object, which drives it, and others over the same store, as other processes have them."""
    monkeypatch.setattr(live_runs, "WATCH_S", 0.02)
    review = Review(lambda graph: graph.compile(checkpointer=open_store()))
    async with asyncio.timeout(PATIENCE_S):
        yield review, lambda: review.graph.compile(checkpointer=open_store())


async def test_an_answer_reaches_the_run_of_another_process_and_its_caller_gets_the_result(
    another: tuple[Review, Open],
) -> None:
    review, other = another
    async with asyncio.TaskGroup() as group:
        first = group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        app = other()
        second = group.create_task(app.answer("t", {ids["lawyer"]: "ok"}, by="ann"))
        await review.asked(1)
        assert not first.done() and not second.done()
        third = group.create_task(app.answer("t", "fine"))
        await review.asked(0)
        review.gate.set()
    results = [task.result() for task in (first, second, third)]
    assert {(result.status, result.run_id) for result in results} == {("completed", results[0].run_id)}
    assert await review.log() == DONE


async def test_a_stream_of_such_an_answer_has_the_events_after_it(another: tuple[Review, Open]) -> None:
    review, other = another
    async with asyncio.TaskGroup() as group:
        group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        types: list[str] = []
        async for event in other().stream_answer("t", {ids["lawyer"]: "ok", ids["editor"]: "fine"}):
            types.append(event.type)
            if event.type == "interrupt.resolve":
                review.gate.set()
    assert types.count("interrupt.resolve") == 2
    assert types[-1] == "run.complete"
    assert await review.log() == DONE


@pytest.mark.parametrize("seed", range(3))
async def test_of_answers_that_race_from_several_processes_exactly_one_is_accepted(
    another: tuple[Review, Open], seed: int
) -> None:
    review, other = another
    apps = [review.app, other(), other(), other()]
    apps = apps[seed:] + apps[:seed]
    async with asyncio.TaskGroup() as group:
        group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        racing = [
            asyncio.ensure_future(app.answer("t", {ids["lawyer"]: f"{n}"}))  # noqa: TID251 - awaited below
            for n, app in enumerate(apps)
        ]
        await review.asked(1)
        group.create_task(apps[0].answer("t", {ids["editor"]: "fine"}))
        await review.asked(0)
        review.gate.set()
    ends = await asyncio.gather(*racing, return_exceptions=True)
    refused = [end for end in ends if isinstance(end, AnswerRefused)]
    (winner,) = [n for n, end in enumerate(ends) if not isinstance(end, BaseException)]
    assert [end.code for end in refused] == ["answer_stale"] * 3
    assert await review.log() == ["editor fine", f"lawyer {winner}", "work"]
    assert await _left(review) == []


async def test_an_answer_that_does_not_fit_is_refused_before_it_is_handed_over(another: tuple[Review, Open]) -> None:
    review, other = another
    async with asyncio.TaskGroup() as group:
        run = group.create_task(review.app.run({}, "t"))
        ids = await review.asked()
        app = other()
        for answers, code in (
            ({ids["lawyer"]: 1}, "answer_invalid"),
            ({"019a0000-0000-7000-8000-000000000000.1": "ok"}, "interrupt_not_found"),
            ("ok", "answer_ambiguous"),
        ):
            with pytest.raises(AnswerRefused) as refused:
                await app.answer("t", answers)
            assert refused.value.code == code
        assert await _left(review) == []
        run.cancel()


async def test_an_answer_that_nobody_waits_for_any_more_takes_effect_when_its_driver_ends_without_it(
    another: tuple[Review, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the end of both processes: the one that drives the run, and the one that handed the answer over."""
    review, other = another
    monkeypatch.setattr(live_runs, "WATCH_S", 600.0)  # it does not look into its queue before it ends
    await launch(review.app, {}, "t")
    ids = await review.asked()
    runs = review.app.host.need_runs()
    good = HandedAnswer(answers={ids["lawyer"]: "ok"})
    void = HandedAnswer(answers={ids["lawyer"]: "too late"})
    for body in (good, void):
        await runs.store.enqueue("t", encode_queued(body), now=runs.time.now_ms(), kind="answer")
    await runs.close(grace_s=0)
    review.gate.set()
    app = other()
    recovered = await app.recover()
    assert [result.status for result in recovered.results] == ["waiting"]
    assert (await app.answer("t", {ids["editor"]: "fine"})).status == "completed"
    assert await review.log() == DONE
    assert [entry.kind for entry in await runs.store.queue("t")] == ["refusal"]


async def _left(review: Review) -> list[str]:
    store = review.app.host.store
    assert store is not None
    return [entry.kind for entry in await store.queue("t")]
