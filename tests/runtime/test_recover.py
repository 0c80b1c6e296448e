"""A library that needs no server: what killed processes leave is superseded by new input, or goes on by `recover`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from graphflow import CompiledGraph, Graph, GraphflowError, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.queue_codec import Signal, encode_queued
from graphflow.runtime.run_request import RunRequest
from graphflow.testing import FakeClock
from tests.campaign import size
from tests.runtime.conftest import Compile
from tests.runtime.graphs import chain
from tests.runtime.lone_process import alive_inside, app_over, killed_inside, lone_app, process
from tests.runtime.test_wait import document, wait


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


async def logged(app: CompiledGraph) -> list[str]:
    return [*(await app.thread("t").state()).values.log]


def world(file: Path) -> list[str]:
    """What the processes did outside, in order."""
    return (file.parent / "world").read_text(encoding="utf-8").splitlines()


def acts(*queries: str) -> list[str]:
    return [f"{query} {node}" for query in queries for node in ("note", "hold", "finish")]


# --- new input


@pytest.mark.parametrize("on_busy", ["reject", "enqueue", "interrupt", "rollback"])
async def test_a_caller_that_was_killed_in_the_queue_does_not_hold_its_thread(file: Path, on_busy: Any) -> None:
    killed_inside(file, "drive", "waiting", "also waiting")
    async with app_over(file) as app:
        options: dict[str, Any] = (
            {"on_busy": on_busy, "effects": "rerun"} if on_busy == "rollback" else {"on_busy": on_busy}
        )
        assert (await app.run("new", "t", **options)).status == "completed"
        assert (await app.run("newer", "t")).status == "completed"
        assert await app.thread("t").queue() == []
        assert (await logged(app))[-2:] == ["new", "newer"]


async def test_a_caller_behind_a_killed_one_gets_its_turn_when_the_driver_dies_too(file: Path) -> None:
    async with app_over(file) as app:
        with alive_inside(file, "drive"):
            with alive_inside(file, "killed"):
                pass
            mine = asyncio.ensure_future(app.run("mine", "t", on_busy="enqueue"))  # noqa: TID251 - awaited below
            while "mine" not in [queued.input["query"] for queued in await app.thread("t").queue()]:
                await asyncio.sleep(0.005)
        assert (await mine).status == "completed"


async def test_a_caller_in_the_queue_goes_on_with_the_run_that_a_crash_cut_off_before_its_own(file: Path) -> None:
    """Without a server, and without `recover`: the promise of the queue is its order."""
    async with app_over(file) as app:
        with alive_inside(file, "drive"):
            mine = asyncio.ensure_future(app.run("mine", "t", on_busy="enqueue"))  # noqa: TID251 - awaited below
            also = asyncio.ensure_future(app.run("also", "t", on_busy="enqueue"))  # noqa: TID251 - awaited below
            while len(await app.thread("t").queue()) < 2:
                await asyncio.sleep(0.005)
        assert [(await each).status for each in (mine, also)] == ["completed", "completed"]
        assert (await logged(app))[0] == "driven"
        assert sorted(world(file)) == sorted(acts("driven", "mine", "also")), "and nothing was done twice"


async def test_living_callers_keep_their_place_in_the_queue(file: Path) -> None:
    async with app_over(file) as app:
        with alive_inside(file, "drive", "second"):
            with pytest.raises(GraphflowError) as refused:
                await app.run("new", "t")
            assert refused.value.code == "thread_busy"
            done = await app.recover()
            assert (done.results, done.refused, done.errors) == ([], [], {})
            assert [queued.input["query"] for queued in await app.thread("t").queue()] == ["second"]
            assert (await app.thread("t").state()).driven


async def test_a_caller_does_not_wait_for_ever_behind_what_no_server_begins(
    store: Checkpointer, compile_graph: Compile, clock: FakeClock
) -> None:
    app = compile_graph(chain("a")[0], clock=clock)
    await app.run({}, "t")
    accepted = encode_queued(RunRequest(input={}, run_id="accepted", thread_id="t"))
    await store.enqueue("t", accepted, now=clock.now_ms(), run_id="accepted")
    clock.advance(60)
    for on_busy in ("reject", "enqueue"):
        with pytest.raises(GraphflowError, match=r"app\.recover") as refused:
            await app.run({}, "t", on_busy=on_busy)
        assert refused.value.code == "thread_busy"
    assert [queued.run_id for queued in await app.thread("t").queue()] == ["accepted"]
    assert [run.run_id for run in (await app.recover()).results] == ["accepted"]
    assert (await app.run({}, "t")).state.n == 3


# --- recover


async def test_recover_resumes_the_run_that_was_cut_off_and_begins_what_waited_behind_it_in_order(file: Path) -> None:
    killed_inside(file, "drive", "second", "third")
    async with app_over(file) as app:
        done = await app.recover()
        assert [(run.thread_id, run.status) for run in done.results] == [("t", "completed")] * 3
        assert await logged(app) == ["driven", "second", "third"]
        assert world(file) == acts("driven", "second", "third"), "and nothing was done twice"
        again = await app.recover()
        assert (again.results, again.refused, again.errors) == ([], [], {}), "nothing is due any more"


def test_recover_has_a_sync_twin(file: Path) -> None:
    killed_inside(file, "drive")
    app = lone_app(file)
    assert [run.status for run in app.recover_sync().results] == ["completed"]
    assert app.recover_sync().results == []


async def test_recovering_does_it_in_the_background(file: Path) -> None:
    killed_inside(file, "drive", "second")
    async with app_over(file) as app, app.recovering(interval_s=0.01):
        while (await app.thread("t").state()).values.n < 2:
            await asyncio.sleep(0.005)
        assert await logged(app) == ["driven", "second"]


async def test_a_recovery_that_is_left_leaves_its_runs_at_their_last_checkpoint(file: Path) -> None:
    killed_inside(file, "drive", "second")
    async with app_over(file) as app:
        for background in (False, True):
            with alive_inside(file):
                if background:
                    async with app.recovering(interval_s=0.01):
                        await _driven(app)
                else:
                    task = asyncio.ensure_future(app.recover())  # noqa: TID251 - awaited below
                    await _driven(app)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
            assert (await app.thread("t").state()).status == "stopped"
        await app.recover()
        assert await logged(app) == ["driven", "second"] and world(file) == acts("driven", "second")


async def _driven(app: CompiledGraph) -> None:
    while not (await app.thread("t").state()).driven:
        await asyncio.sleep(0.005)


async def test_graphs_recover_their_own_threads_only(file: Path) -> None:
    killed_inside(file, "drive")
    async with app_over(file) as app:
        for other in (Graph({}, name="other"), Graph({})):
            other.add("note", use="wait", with_={"for": "PT1S"}, next="end")
            done = await other.compile(checkpointer=app.host.store).recover()
            assert (done.results, done.errors) == ([], {})
        assert (await app.thread("t").state()).status == "stopped"
        assert [run.status for run in (await app.recover()).results] == ["completed"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def app_of(store: Checkpointer, clock: FakeClock, *nodes: tuple[str, dict[str, Any]]) -> CompiledGraph:
    return load_graph(document(*nodes), checkpointer=store, clock=clock)


async def test_recover_fires_timers_that_are_due_and_no_others(store: Checkpointer, clock: FakeClock) -> None:
    app = app_of(store, clock, ("rest", wait(**{"for": "PT5M"})))
    assert (await app.run({}, "due")).status == "waiting"
    clock.advance(3 * 60)
    assert (await app.run({}, "later")).status == "waiting"
    assert (await app.recover()).results == []
    clock.advance(3 * 60)
    assert [(run.thread_id, run.status) for run in (await app.recover()).results] == [("due", "completed")]
    assert (await app.thread("later").state()).status == "waiting"


async def test_recover_lets_questions_expire_by_their_own_routes(store: Checkpointer, clock: FakeClock) -> None:
    ask = {"ask": {"message": "?", "expires": "PT1M", "onExpire": "late"}, "set": {}}
    app = app_of(store, clock, ("who", ask), ("late", wait(signal="go")))
    assert (await app.run({}, "t")).interrupts[0].kind == "ask"
    clock.advance(61)
    (expired,) = (await app.recover()).results
    assert (expired.status, expired.interrupts[0].kind) == ("waiting", "signal")


async def test_recover_delivers_signals_that_nobody_has_read(store: Checkpointer, clock: FakeClock) -> None:
    app = app_of(store, clock, ("rest", wait(signal="paid")))
    await app.run({}, "t")
    await store.enqueue("t", encode_queued(Signal(name="paid", payload=5)), now=clock.now_ms(), kind="signal")
    (woken,) = (await app.recover()).results
    assert (woken.status, woken.state["got"][0]["payload"]) == ("completed", 5)
    assert await store.queue("t") == []


async def test_what_another_process_has_let_expire_meanwhile_is_no_failure(
    store: Checkpointer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(store, clock, ("rest", wait(**{"for": "PT5M"})))
    await app.run({}, "t")
    clock.advance(6 * 60)
    seen = await store.due(clock.now_ms())
    assert [run.status for run in (await app.recover()).results] == ["completed"]

    async def due(now: int) -> Any:
        return seen  # as the other one has read it, too

    monkeypatch.setattr(store, "due", due)
    done = await app.recover()
    assert (done.results, done.errors) == ([], {})


async def test_recover_drops_what_can_never_begin_and_goes_on_with_what_waits_behind_it(
    store: Checkpointer, compile_graph: Compile
) -> None:
    app = compile_graph(chain("a")[0])
    await app.run({}, "t")
    for durability in ("nonsense", "async"):
        body = encode_queued(RunRequest(input={}, durability=durability, run_id=durability, thread_id="t"))
        await store.enqueue("t", body, now=0, run_id=durability)
    done = await app.recover()
    assert [queued.run_id for queued in done.refused] == ["nonsense"]
    assert [run.run_id for run in done.results] == ["async"] and await store.queue("t") == []


async def test_an_input_that_another_process_begins_and_leaves_meanwhile_is_done_before_what_waits_behind_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_over(file) as app:
        await app.run("first", "t")
        store = app.host.store
        assert store is not None
        for name in ("second", "third"):
            request = RunRequest(input={"query": name}, run_id=name, thread_id="t", agent_key="lone", durability="sync")
            await store.enqueue("t", encode_queued(request), now=0, run_id=name)
        read = store.thread
        looked: list[Any] = []

        async def stale(thread_id: str) -> Any:
            row = await read(thread_id)
            if not looked:
                looked.append(row)
                killed_inside(file, "recover")
                (file.parent / "held").unlink(missing_ok=True)
            return row

        monkeypatch.setattr(store, "thread", stale)
        done = await app.recover()
        assert looked and [(run.run_id, run.status) for run in done.results] == [
            ("second", "completed"),
            ("third", "completed"),
        ]
        assert await logged(app) == ["first", "second", "third"]
        assert world(file) == acts("first", "second", "third"), "and nothing was done twice, or left out"


async def test_a_thread_that_can_not_be_recovered_is_reported_and_holds_up_no_other(file: Path) -> None:
    killed_inside(file, "drive")
    async with app_over(file) as app:
        stranger = Graph({}, name="lone")  # knows none of the functions that the thread's document names
        stranger.add("rest", use="wait", with_={"for": "PT1S"}, next="end")
        done = await stranger.compile(checkpointer=app.host.store).recover()
        assert done.results == [] and [*done.errors] == ["t"]
        assert (await app.thread("t").state()).status == "stopped"


async def test_recover_without_a_store_says_what_is_missing() -> None:
    with pytest.raises(GraphflowError, match="checkpointer"):
        await chain("a")[0].compile().recover()


async def test_recover_refuses_to_run_nothing_at_all(compile_graph: Compile) -> None:
    with pytest.raises(GraphflowError, match="max_concurrency=0; it must be at least 1"):
        await compile_graph(chain("a")[0]).recover(max_concurrency=0)


# --- kills

QUERIES = ["driven", "second", "third"]


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(size(2, long=200)))
async def test_whoever_is_killed_and_wherever_each_input_is_done_once_and_in_its_order(file: Path, seed: int) -> None:
    draw = random.Random(seed)
    killed_inside(file, "drive", "second", "third")
    for _ in range(draw.randint(1, 3)):
        with process(file, "recover") as child:
            assert child.stdout is not None
            for _ in range(draw.randint(1, 8)):
                child.stdout.readline()
    async with app_over(file) as app:
        await app.recover()
        while asked := (state := await app.thread("t").state()).interrupts:
            # A write that was cut off is asked about, and the person looks at the world.
            act = f"{QUERIES[state.values.n]} {asked[0].node}"
            happened = {"decision": "result", "result": "done"} if act in world(file) else {"decision": "retry"}
            await app.answer("t", {asked[0].id: happened})
            await app.recover()
        assert (state.status, [*state.values.log]) == ("idle", QUERIES)
        assert world(file) == acts(*QUERIES) and await app.thread("t").queue() == []
