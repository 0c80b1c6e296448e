"""Joining a run anew: whatever a client had and whenever it comes back, it ends with the stored log (E1)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import GraphflowError, ThreadNotFound
from graphflow.events import event_dict
from graphflow.runtime.runs import taking
from graphflow.runtime.runs.event_ring import Behind, RunLog
from graphflow.service.application import Application
from graphflow.service.run_log import StreamFrame
from graphflow.service.runs.event_stream import follow, keep_before, run_events
from graphflow.service.runs.input_queue import StartedRun
from tests.launching import resume
from tests.service.clients import Client, Events, begin, fold, query_of
from tests.service.conftest import Gate, Opened, at_event, copy_store

ASK = query_of(message="Tell me a story", chat_id="t", agent_key="story")


async def read(frames: AsyncIterator[StreamFrame], client: Client | None = None, until: int | None = None) -> Client:
    """Takes frames until they end, or one of the number `until` has come."""
    client = client or Client()
    async for sse_id, event in frames:
        client.take(sse_id, event_dict(event))
        if until is not None and event.seq >= until:
            break
    return client


async def followed(begun: StartedRun, client: Client | None = None) -> Client:
    client = client or Client()
    assert begun.run.log is not None
    async for batch in follow(begun.run.log, begun.after):
        for sse_id, event in batch:
            client.take(sse_id, event_dict(event))
    return client


async def stored(app: Application, run_id: str, thread_id: str = "t") -> Events:
    graph = await app.graph_of_thread(thread_id)
    return [event_dict(event) for event, _ in await graph.thread(thread_id).events(run_id)]


async def test_a_whole_stream_has_no_gap_and_folds_into_the_stored_log(open_application: Opened) -> None:
    app = await open_application()
    begun = await begin(app, ASK)
    client = await followed(begun)
    assert [e["seq"] for e in client.events] == list(range(1, len(client.events) + 1))
    assert [e["type"] for e in client.events[:3]] == ["request.query", "chat.start", "run.start"]
    assert client.events[-1]["type"] == "run.complete"
    assert fold(client.events) == await stored(app, begun.run_id)


async def test_an_older_run_of_the_thread_keeps_its_whole_log(open_application: Opened) -> None:
    app = await open_application()
    first = await begin(app, ASK)
    whole = fold((await followed(first)).events)
    second = await begin(app, ASK)
    await followed(second)
    assert await stored(app, first.run_id) == whole
    assert (await read(run_events(app, first.run_id))).events == whole
    assert not [e for e in await stored(app, second.run_id) if e["type"] == "chat.start"]


async def test_a_client_of_the_same_life_gets_what_it_missed_as_it_was_sent(open_application: Opened) -> None:
    gate = Gate()
    app = await open_application(gate=gate)
    begun = await begin(app, ASK)
    log = begun.run.log
    assert log is not None
    gate.close()
    gate.open(4)
    client = Client()
    async for batch in follow(log, 0):
        for sse_id, event in batch:
            client.take(sse_id, event_dict(event))
        if client.events[-1]["type"] == "reasoning.delta":
            break
    joined = run_events(app, begun.run_id, client.last_id)
    gate.open()
    await read(joined, client)
    assert client.resets == []
    assert [e["seq"] for e in client.events] == list(range(1, len(client.events) + 1))
    assert fold(client.events) == await stored(app, begun.run_id)


async def test_a_client_behind_the_ring_gets_snapshots_and_the_open_block(
    open_application: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "RunLog", functools.partial(RunLog, ring=4))
    gate = Gate()
    gate.open(12)
    app = await open_application(gate=gate)
    begun = await begin(app, ASK)
    log = begun.run.log
    assert log is not None
    client = Client()

    async def read_slowly() -> None:
        async for batch in follow(log, 0):
            for sse_id, event in batch:
                client.take(sse_id, event_dict(event))
            while log.last_seq < 14:
                await gate_turn()

    with pytest.raises(Behind):
        await read_slowly()
    joined = run_events(app, begun.run_id, client.last_id)
    late = Client(client.events)
    sse_id, event = await anext(joined)
    late.take(sse_id, event_dict(event))
    assert late.resets, "who is behind the ring is told what to keep"
    gate.open()
    with pytest.raises(Behind):
        await read(joined, late)  # the small ring runs away again
    await begun.run.over.wait()
    await read(run_events(app, begun.run_id, late.last_id), late)
    assert fold(late.events) == await stored(app, begun.run_id)


async def gate_turn() -> None:
    await asyncio.sleep(0)


async def test_joining_in_mid_block_gives_its_start_and_its_text_so_far_in_one_delta(
    open_application: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "RunLog", functools.partial(RunLog, ring=12))
    gate = Gate()
    gate.open(12)
    app = await open_application(gate=gate)
    begun = await begin(app, ASK)
    log = begun.run.log
    assert log is not None
    while gate.left or log.ring[-1].type != "content.delta":
        await gate_turn()
    joined = run_events(app, begun.run_id)
    client = Client()
    while not client.events or client.events[-1]["seq"] < log.last_seq:
        sse_id, event = await anext(joined)
        client.take(sse_id, event_dict(event))
    start = next(e for e in client.events if e["type"] == "content.start")
    (delta,) = [e for e in client.events if e["type"] == "content.delta"]
    assert len(delta["delta"]) > 5, "the text so far comes as one delta"
    assert "reasoning.snapshot" in [e["type"] for e in client.events]
    cut = Client(
        [e for e in client.events if e["seq"] <= start["seq"]]
    )  # the connection was lost right after the start
    again = run_events(app, begun.run_id, f"{log.epoch}-{start['seq']}")
    first = await anext(again)
    cut.take(first[0], event_dict(first[1]))
    assert cut.resets
    gate.open()
    await read(joined, client)
    await read(again, cut)
    assert fold(client.events) == fold(cut.events) == await stored(app, begun.run_id)


async def crash_at(app: Application, number: int, to: Path) -> Client:
    """Runs the story; the store as it was when event `number` was sent, and what a client had by then."""
    begun = await begin(app, ASK)
    client = Client()
    at_event(begun.run, number, functools.partial(copy_store, app, to))
    whole = await followed(begun)
    client.events = whole.events[:number]
    return client


@pytest.mark.parametrize("durability", ["async", "sync"])
@pytest.mark.parametrize("number", [3, 5, 8, 14, 20, 25, 28, 29, 30, 31, 33, 35, 38, 42, 46])
async def test_after_a_crash_every_client_ends_with_the_stored_log(
    open_application: Opened, tmp_path: Path, number: int, durability: str
) -> None:
    """The promise of E1, for every number that a client may have had when the process died."""
    dead = await open_application(durability=durability)
    (tmp_path / "copy").mkdir()
    had = await crash_at(dead, number, tmp_path / "copy")
    gate = Gate()
    app = await open_application(tmp_path / "copy", gate=gate)
    run_id = had.events[2]["runId"]
    try:
        begun = await resume(app, "t")
    except ThreadNotFound:
        assert durability == "async" or number < 5, "the input was durable by then"
        return
    except GraphflowError as error:
        begun = None  # the last commit was durable when the process died
        refusal = error.code
    live = [Client(had.events[:keep]) for keep in range(len(had.events) + 1)]
    if begun is None:
        assert refusal == "nothing_to_resume"
    else:
        fresh = await followed(begun)
        assert fresh.events[0]["type"] in ("checkpoint.create", "run.resume")
    log = await stored(app, run_id)
    assert log[-1]["type"] == "run.complete"
    for keep, client in enumerate(live):
        await read(run_events(app, run_id, f"1-{keep}"), client)
        assert fold(client.events) == log, f"a client that had {keep} of {number} events"
    starts = [(e["node"], e["attempt"]) for e in log if e["type"] == "node.start"]
    ends = [e["node"] for e in log if e["type"] == "node.end"]
    assert ends == ["one", "work", "two"]
    assert {node for node, _ in starts} == set(ends)


@pytest.mark.parametrize("number", [8, 21, 29, 31, 36])
async def test_a_client_of_an_older_life_joins_a_running_life(
    open_application: Opened, tmp_path: Path, number: int
) -> None:
    (tmp_path / "copy").mkdir()
    dead = await open_application(durability="sync")
    had = await crash_at(dead, number, tmp_path / "copy")
    gate = Gate()
    app = await open_application(tmp_path / "copy", gate=gate)
    run_id = had.events[2]["runId"]
    gate.open(3)
    begun = await resume(app, "t")
    log = begun.run.log
    assert log is not None
    while gate.left:
        await gate_turn()
    clients = [Client(had.events[:keep]) for keep in (0, 2, number // 2, number - 1, number)]
    joined = [run_events(app, run_id, f"1-{len(client.events)}") for client in clients]
    firsts = [await anext(frames) for frames in joined]  # all of them join while the life runs
    for (sse_id, event), client in zip(firsts, clients, strict=True):
        client.take(sse_id, event_dict(event))
    gate.open()
    for frames, client in zip(joined, clients, strict=True):
        await read(frames, client)
    whole = await stored(app, run_id)
    for client in clients:
        assert fold(client.events) == whole


async def test_a_client_that_slept_through_two_crashes_ends_with_the_stored_log(
    open_application: Opened, tmp_path: Path
) -> None:
    """What a dead life sent beyond its last record is dropped, also when the log has long gone past that number."""
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
    had = await crash_at(await open_application(durability="sync"), 22, tmp_path / "second")
    run_id = had.events[2]["runId"]
    second = await open_application(tmp_path / "second", durability="sync")
    begun = await resume(second, "t")
    at_event(begun.run, 36, functools.partial(copy_store, second, tmp_path / "third"))
    middle = await followed(begun)
    third = await open_application(tmp_path / "third")
    await followed(await resume(third, "t"))
    log = await stored(third, run_id)
    for keep in range(len(had.events) + 1):
        client = Client(had.events[:keep])
        await read(run_events(third, run_id, f"1-{keep}"), client)
        assert fold(client.events) == log
    life = begun.run.executor.run.epoch
    mark = middle.events[0]["seq"] - 1
    base = [e for e in had.events if e["seq"] <= mark]
    older = fold_or_none(base)
    for keep in range(1, len(middle.events)):
        seen = [e for e in middle.events if e["seq"] <= 36][:keep]
        if older is None or not seen:
            continue
        client = Client([*base, *seen])
        await read(run_events(third, run_id, f"{life}-{seen[-1]['seq']}"), client)
        assert fold(client.events) == log


def fold_or_none(events: Events) -> Events | None:
    try:
        return fold(events)
    except AssertionError:
        return None


async def test_a_waiting_run_is_joined_without_a_reset_after_its_answer(open_application: Opened) -> None:
    app = await open_application()
    begun = await begin(app, query_of(message="hi", chat_id="w", agent_key="ask"), hold_ms=0)
    client = await followed(begun)
    assert client.events[-1]["type"] == "run.waiting"
    interrupt = client.events[-1]["interrupts"][0]["interruptId"]
    await followed(await resume(app, "w", answers={interrupt: "Ada"}))
    await read(run_events(app, begun.run_id, client.last_id), client)
    assert fold(client.events) == await stored(app, begun.run_id, "w")
    assert [e["type"] for e in client.events if e["seq"] > 6][-1] == "run.complete"


async def test_unknown_runs_and_ids_that_are_none_are_refused(open_application: Opened) -> None:
    app = await open_application()
    with pytest.raises(ThreadNotFound):
        await anext(run_events(app, "no such run"))
    begun = await begin(app, ASK)
    await followed(begun)
    for text in ("x", "1", "1-", "-1-1", "1-1-1", "9" * 40 + "-1"):
        with pytest.raises(GraphflowError) as refused:
            await anext(run_events(app, begun.run_id, text))
        assert refused.value.code == "invalid_input"
    log = await stored(app, begun.run_id)
    for text in ("99-5", "1-999999"):  # of a life that never was, or past the end: the client starts over
        client = Client()
        await read(run_events(app, begun.run_id, text), client)
        assert client.resets
    assert log


def test_a_number_inside_a_block_is_kept_only_up_to_the_blocks_start() -> None:
    spans = [(5, 9), (8, 12)]
    assert [keep_before(n, spans) for n in (4, 5, 8, 9, 11, 12)] == [4, 4, 4, 4, 4, 12]
    assert keep_before(3, [(1, 10)]) == 0


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)).map(lambda s: (s[0], sum(s)))))
def test_what_is_kept_is_the_last_number_outside_of_every_block(limit: int, spans: list[tuple[int, int]]) -> None:
    outside = [n for n in range(limit + 1) if not any(first <= n < last for first, last in spans)]
    assert keep_before(limit, spans) == max(outside)


def test_blocks_of_many_branches_that_overlap_one_after_another_are_looked_at_once() -> None:
    spans = [(number, number + 2) for number in range(1, 100_000)]
    assert keep_before(100_000, spans) == 0
