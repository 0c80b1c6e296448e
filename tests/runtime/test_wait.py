"""`wait` nodes: a signal or a time lets them go on, in whatever order things come (spec 2.4, E12, E17)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.bounds import Bounds
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import AnswerRefused, DefinitionError, GraphflowError, LimitExceeded, ThreadWaiting
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.testing import FakeClock
from tests.launching import launch

STATE = {
    "type": "object",
    "properties": {"got": {"type": "array", "default": [], "x-reducer": "append"}},
}
MINUTE = 60_000


def document(*nodes: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Nodes in a row; what each wait ended with is appended to `got`."""
    names = [*(name for name, _ in nodes), "end"]
    return {
        "graphflow": "1",
        "state": STATE,
        "start": names[0],
        "nodes": {
            name: {"set": {"got": "[out]"}, "next": following, **body}
            for (name, body), following in zip(nodes, names[1:], strict=True)
        },
    }


def wait(**given: Any) -> dict[str, Any]:
    return {"use": "wait", "with": given}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def compiled(store: Checkpointer, clock: FakeClock, *nodes: tuple[str, dict[str, Any]]) -> CompiledGraph:
    return load_graph(document(*nodes), checkpointer=store, clock=clock)


async def settled(app: CompiledGraph) -> None:
    live: LiveRun | None = app.host.live("t")
    if live is not None:
        await live.over.wait()


async def got(app: CompiledGraph) -> list[Any]:
    await settled(app)
    return [dict(out) for out in (await app.thread("t").state()).values.got]


async def test_a_signal_ends_a_wait_with_its_payload(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("paid", wait(signal="paid")))
    result = await app.run({}, "t")
    assert result.status == "waiting" and [(i.kind, i.node) for i in result.interrupts] == [("signal", "paid")]
    assert await app.thread("t").signal("paid", {"sum": 7})
    assert await got(app) == [{"by": "signal", "signal": "paid", "payload": {"sum": 7}, "at": clock.now_ms()}]
    assert [c.source for c in await app.thread("t").history()] == ["signal", "ask", "input"]


async def test_a_signal_that_comes_first_is_kept_for_its_wait(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("one", wait(signal="one")), ("two", wait(signal="two")))
    await app.run({}, "t")
    thread = app.thread("t")
    assert not await thread.signal("two", "early") and not await thread.signal("never", 0)
    assert (await thread.state()).status == "waiting"
    assert await thread.signal("one", "now")
    assert [out["payload"] for out in await got(app)] == ["now", "early"]
    assert (await thread.state()).status == "idle"


async def test_a_run_keeps_so_many_signals_and_refuses_more_but_for_one_that_is_awaited(
    store: Checkpointer, clock: FakeClock
) -> None:
    waits = (("one", wait(signal="one")), ("two", wait(signal="two")), ("three", wait(signal="three")))
    app = load_graph(document(*waits), checkpointer=store, clock=clock, bounds=Bounds(signals=2))
    await app.run({}, "t")
    thread = app.thread("t")
    for name in ("two", "never"):
        await thread.signal(name)
    with pytest.raises(LimitExceeded, match=r"keeps 2 already; the setting bounds\.signals allows 2"):
        await thread.signal("three")
    assert await thread.signal("one"), "what is waited for needs no room"


async def test_signals_of_one_name_are_taken_in_the_order_in_which_they_came(
    store: Checkpointer, clock: FakeClock
) -> None:
    app = compiled(store, clock, ("first", wait(signal="first")), ("a", wait(signal="s")), ("b", wait(signal="s")))
    await app.run({}, "t")
    for n in range(3):
        await app.thread("t").signal("s", n)
    await app.thread("t").signal("first")
    assert [out["payload"] for out in await got(app)] == [None, 0, 1]


async def test_new_input_forgets_signals_and_without_a_run_there_is_nothing_to_signal(
    store: Checkpointer, clock: FakeClock
) -> None:
    app = compiled(store, clock, ("one", wait(signal="one")), ("two", wait(signal="two")))
    await app.run({}, "t")
    await app.thread("t").signal("two", "old")
    with pytest.raises(ThreadWaiting):
        await app.run({}, "t")
    await app.run({}, "t", on_waiting="cancel")
    await app.thread("t").signal("one")
    assert len(await got(app)) == 1, "the second wait waits"
    await app.thread("t").signal("two", "new")
    assert (await got(app))[-1]["payload"] == "new"
    with pytest.raises(GraphflowError) as refused:
        await app.thread("t").signal("one")
    assert refused.value.code == "nothing_to_resume"


async def test_a_kept_signal_survives_a_restart_and_a_rewind(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("one", wait(signal="one")), ("two", wait(signal="two")))
    await app.run({}, "t")
    await app.thread("t").signal("two", {"n": 1})
    again = compiled(store, clock, ("one", wait(signal="one")), ("two", wait(signal="two")))
    again.host.runs.forget("t")  # type: ignore[union-attr] # as another process would have it
    await again.thread("t").signal("one")
    assert [out["payload"] for out in await got(again)] == [None, {"n": 1}]
    asked = next(c.id for c in await again.thread("t").history() if c.source == "ask")
    await again.thread("t").rewind(asked)
    state = await again.thread("t").state()
    assert state.status == "waiting" and state.interrupts[0].kind == "signal"
    await again.thread("t").signal("one", "other")
    await settled(again)
    assert [out["payload"] for out in (await got(again))[:1]] == ["other"]


async def test_a_time_that_has_come_ends_a_wait_when_the_thread_is_touched(
    store: Checkpointer, clock: FakeClock
) -> None:
    app = compiled(store, clock, ("rest", wait(**{"for": "PT5M"})))
    result = await app.run({}, "t")
    assert result.interrupts[0].kind == "timer" and result.interrupts[0].expires_at == clock.now_ms() + 5 * MINUTE
    with pytest.raises(GraphflowError) as refused:
        await app.resume("t")
    assert refused.value.code == "thread_waiting"
    clock.advance(5 * 60)
    result = await app.resume("t")
    assert result.status == "completed" and await got(app) == [{"by": "timer", "at": clock.now_ms()}]
    assert [c.source for c in await app.thread("t").history()] == ["timer", "ask", "input"]


async def test_new_input_comes_after_what_was_due_before_it(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("rest", wait(**{"for": "PT1S"})))
    await app.run({}, "t")
    clock.advance(2)
    assert (await app.run({}, "t")).status == "waiting"
    assert len(await got(app)) == 1


async def test_of_a_signal_and_a_time_the_first_wins(store: Checkpointer, clock: FakeClock) -> None:
    nodes = ("paid", wait(signal="paid", **{"for": "P2D"}))
    app = compiled(store, clock, nodes)
    await app.run({}, "t")
    await app.thread("t").signal("paid", 1)
    await settled(app)
    await app.run({}, "t")
    clock.advance(3 * 24 * 3600)
    await app.resume("t")
    assert [out["by"] for out in await got(app)] == ["signal", "timer"]


async def test_a_moment_may_come_from_the_state(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("rest", wait(until="${input.at}")))
    past = await app.run({"query": "x", "at": clock.now_ms() - 1}, "past")
    assert past.status == "completed"
    later = await app.run({"query": "x", "at": "2030-01-01T00:00:00Z"}, "t")
    assert later.interrupts[0].expires_at == 1_893_456_000_000
    wrong = await app.run({"query": "x", "at": "soon"}, "wrong")
    assert wrong.error is not None and wrong.error["code"] == "validation" and "ISO 8601" in wrong.error["message"]


async def test_a_wait_is_no_question(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("paid", wait(signal="paid")))
    waiting = await app.run({}, "t")
    with pytest.raises(AnswerRefused) as bare:
        await app.answer("t", "yes")
    assert bare.value.code == "interrupt_not_found"
    with pytest.raises(AnswerRefused) as by_id:
        await app.answer("t", {waiting.interrupts[0].id: "yes"})
    assert by_id.value.code == "answer_invalid" and "signal" in by_id.value.message
    with pytest.raises(AnswerRefused):
        await app.run("yes", "t", on_waiting="answer")


async def test_a_held_wait_goes_on_in_its_own_process(store: Checkpointer, clock: FakeClock) -> None:
    app = compiled(store, clock, ("one", wait(signal="one")), ("two", wait(signal="two")))
    live = await launch(app, {}, "t")
    while live.executor.machine.status != "waiting":
        await asyncio.sleep(0)
    assert await app.thread("t").signal("one", 1)
    assert not await app.thread("t").signal("three", 3)
    await app.thread("t").signal("two", 2)  # whether its wait is reached yet does not matter
    await live.over.wait()
    log = live.log
    assert log is not None
    kinds = [event.type for event in log.ring]
    assert kinds.count("run.resume") == 0 and kinds[-1] == "run.complete", "the stream was never left"
    assert [out["payload"] for out in await got(app)] == [1, 2]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "/with"),
        ({"for": "5 minutes"}, "/with/for"),
        ({"until": "tomorrow"}, "/with/until"),
        ({"for": "PT1S", "until": "2030-01-01"}, "/with"),
        ({"signal": 7}, "/with/signal"),
        ({"name": "x"}, "/with"),
    ],
)
def test_a_wait_that_waits_for_nothing_is_refused(given: dict[str, Any], place: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        _ = load_graph(document(("rest", wait(**given)))).plan
    assert any(issue.pointer.startswith(f"/nodes/rest{place}") for issue in refused.value.errors)
