"""Joining a run that another process over the same store drives, and runs that are over (spec 3.4)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import Request

from graphflow.checkpoints.rows import Keep
from graphflow.graph.core.immutable import State
from graphflow.runtime.result import RunResult
from graphflow.server.app import create_app, stop
from graphflow.server.routes._queued import one_body_elsewhere, stream_elsewhere
from graphflow.server.sse import REJOIN
from tests.patience import PATIENCE_S
from tests.server.conftest import frames, serving, take
from tests.service.clients import Client, check_grammar, fold
from tests.service.conftest import Gate, make_application

QUERY = {"message": "Tell me a story", "chatId": "t", "agentKey": "story"}


@pytest.fixture
async def two(folder: Path, gate: Gate) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Two servers with stores of their own over one file; the first one's models wait at the gate."""
    async with AsyncExitStack() as stack:
        a, _ = await stack.enter_async_context(serving(make_application(folder, gate=gate)))
        b, _ = await stack.enter_async_context(serving(make_application(folder)))
        yield a, b


Frames = AsyncIterator[tuple[str | None, dict[str, Any]]]


async def read(stream: Frames, seen: Client, until: str | None = None, count: int = 0) -> None:
    """Takes frames until one is of this type, or so many have come, or the stream ends; a reset is no frame of its own."""
    async for sse_id, event in stream:
        seen.take(sse_id, event)
        count -= sse_id is not None
        if event["type"] == until or (count == 0 and sse_id is not None):
            return


def events_of(run_id: str, seen: Client | None = None) -> dict[str, Any]:
    headers = {"Last-Event-ID": seen.last_id} if seen is not None and seen.last_id else {}
    return {"method": "GET", "url": f"/api/runs/{run_id}/events", "headers": headers}


async def begun(client: httpx.AsyncClient, until: str, body: dict[str, Any]) -> Client:
    """A run that goes on although its client has left, after an event of this type and the first checkpoint: before that
    no other process knows of it.
    """
    seen = Client()
    async with client.stream("POST", "/api/query", json=body) as response:
        stream = frames(response)
        while not {"checkpoint.create", until} <= {event["type"] for event in seen.events}:
            await read(stream, seen, count=1)
    return seen


def run_of(seen: Client) -> str:
    return str(next(event["runId"] for event in seen.events if event["type"] == "run.start"))


async def test_a_run_of_another_process_is_followed_to_its_end(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], gate: Gate
) -> None:
    a, b = two
    gate.open(3)
    run_id = run_of(await begun(a, "checkpoint.create", QUERY))
    seen = Client()
    async with b.stream(**events_of(run_id)) as response:
        stream = frames(response)
        await read(stream, seen, "run.start")
        gate.open()
        await read(stream, seen)
    assert seen.events[-1]["type"] == "run.complete"
    assert not seen.resets
    assert seen.events == (await take(a, "GET", f"/api/runs/{run_id}/events")).events


async def test_a_client_that_comes_with_half_a_block_gets_the_whole_of_it(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], gate: Gate
) -> None:
    a, b = two
    gate.open(8)
    seen = await begun(a, "content.delta", QUERY)
    async with b.stream(**events_of(run_of(seen), seen)) as response:
        gate.open()
        await read(frames(response), seen)
    assert seen.resets and seen.events[-1]["type"] == "run.complete"
    assert fold(seen.events) == (await take(b, "GET", f"/api/runs/{run_of(seen)}/events")).events


@pytest.mark.parametrize("seed", range(4))
async def test_who_goes_from_process_to_process_loses_and_doubles_nothing(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], gate: Gate, seed: int
) -> None:
    chance = random.Random(seed)
    gate.open(2)
    seen = await begun(two[0], "checkpoint.create", QUERY)
    run_id = run_of(seen)
    while seen.events[-1]["type"] != "run.complete":
        async with chance.choice(two).stream(**events_of(run_id, seen)) as response:
            gate.open()
            await read(frames(response), seen, count=chance.choice((1, 2, 5, 12)))
            gate.close()
    check_grammar(seen.events)
    assert fold(seen.events) == (await take(two[1], "GET", f"/api/runs/{run_id}/events")).events


FAN = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {}},
    "start": "fan",
    "nodes": {
        "fan": {"parallel": {"a": "long", "b": "short"}, "next": "end"},
        "long": {"use": "node:long", "next": "end"},
        "short": {"use": "node:short", "next": "end"},
    },
}


async def test_who_was_told_of_one_branch_while_another_spoke_misses_nothing_of_it(folder: Path) -> None:
    """What the records tell leaves the open block of the other branch out: its own process must not go on in its midst."""
    (folder / "graphs" / "fan.json").write_text(json.dumps(FAN), encoding="utf-8")
    may_end, speaks = asyncio.Event(), asyncio.Event()

    async def long(state: Any, ctx: Any) -> None:
        await ctx.content("one ")
        speaks.set()
        await may_end.wait()
        await ctx.content("two")

    async def short(state: Any, ctx: Any) -> None:
        await speaks.wait()
        await ctx.content("short")

    apps = [make_application(folder) for _ in range(2)]
    for app in apps:
        app.kinds.node("long", long)
        app.kinds.node("short", short)
    async with asyncio.timeout(PATIENCE_S), serving(apps[0]) as (a, _), serving(apps[1]) as (b, _):
        run_id = run_of(await begun(a, "content.end", {"message": "x", "agentKey": "fan"}))
        seen = Client()
        async with b.stream(**events_of(run_id)) as response:
            await read(frames(response), seen, "content.snapshot")
        async with a.stream(**events_of(run_id, seen)) as response:
            may_end.set()
            await read(frames(response), seen)
        whole = (await take(a, "GET", f"/api/runs/{run_id}/events")).events
    assert [event["text"] for event in whole if event["type"] == "content.snapshot"] == ["short", "one two"]
    assert fold(seen.events) == whole


async def test_who_comes_with_half_a_block_that_began_within_another_branchs_block_gets_the_whole_of_it(
    folder: Path,
) -> None:
    """The records know the block around it; that must not hide the one which is still open."""
    (folder / "graphs" / "fan.json").write_text(json.dumps(FAN), encoding="utf-8")
    is_open, speaks, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def short(state: Any, ctx: Any) -> None:
        await ctx.content("around ")
        is_open.set()
        await speaks.wait()
        await ctx.content("it")

    async def long(state: Any, ctx: Any) -> None:
        await is_open.wait()
        await ctx.content("one ")
        speaks.set()
        await may_end.wait()
        await ctx.content("two")

    apps = [make_application(folder) for _ in range(2)]
    for app in apps:
        app.kinds.node("long", long)
        app.kinds.node("short", short)
    async with asyncio.timeout(PATIENCE_S), serving(apps[0]) as (a, _), serving(apps[1]) as (b, _):
        seen = await begun(a, "content.end", {"message": "x", "agentKey": "fan"})
        run_id = run_of(seen)
        if seen.events[-1]["type"] != "checkpoint.create":
            async with a.stream(**events_of(run_id, seen)) as response:
                await read(frames(response), seen, "checkpoint.create")
        async with b.stream(**events_of(run_id, seen)) as response:
            may_end.set()
            await read(frames(response), seen)
        whole = (await take(a, "GET", f"/api/runs/{run_id}/events")).events
    assert seen.resets and fold(seen.events) == whole


async def test_a_question_that_another_process_holds_is_shown_and_its_answer_followed(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    a, b = two
    first = await begun(a, "interrupt.request", {"message": "hi", "chatId": "q", "agentKey": "ask"})
    asked, seen = first.events[-1], Client()
    async with b.stream(**events_of(asked["runId"])) as response:
        stream = frames(response)
        await read(stream, seen, "interrupt.request")
        assert seen.events == first.events
        submit = {"chatId": "q", "runId": asked["runId"], "toolId": asked["interruptId"], "payload": "Ada"}
        assert (await a.post("/api/submit", json=submit)).json()["data"]["accepted"]
        await read(stream, seen)
    kinds = [event["type"] for event in seen.events]
    assert kinds[-1] == "run.complete" and kinds.count("interrupt.request") == kinds.count("request.submit") == 1
    assert seen.events == (await take(a, "GET", f"/api/runs/{asked['runId']}/events")).events


async def test_who_follows_a_run_is_told_to_rejoin_once_nobody_drives_it(folder: Path, gate: Gate) -> None:
    (folder / ".env").write_text(
        "GRAPHFLOW_SERVER_SHUTDOWN_GRACE_S=0\nGRAPHFLOW_SERVER_TAKE_OVER=false\n", encoding="utf-8"
    )
    async with asyncio.timeout(PATIENCE_S), serving(make_application(folder)) as (b, _):
        gate.open(3)
        async with serving(make_application(folder, gate=gate)) as (a, server):
            run_id = run_of(await begun(a, "checkpoint.create", QUERY))
            async with b.stream(**events_of(run_id)) as response:
                stream = response.aiter_bytes()
                data = await anext(stream)
                await stop(server.application)
                async for chunk in stream:
                    data += chunk
        assert data.endswith(REJOIN)
        assert (await take(b, "POST", "/api/threads/t/resume")).events[-1]["type"] == "run.complete"
        assert (await take(b, "GET", f"/api/runs/{run_id}/events")).events[-1]["type"] == "run.complete"


async def test_who_has_all_of_a_run_that_has_ended_is_told_so(client: httpx.AsyncClient) -> None:
    seen = await take(client, "POST", "/api/query", json=QUERY)
    again = await client.request(**events_of(run_of(seen), seen))
    assert (again.status_code, again.content) == (204, b""), "an `EventSource` stays away after it"
    other = await client.request(**events_of(run_of(seen)))
    assert other.content.endswith(b"}\n\n"), "its last event says it"


async def test_who_has_all_of_a_run_that_waits_is_told_so(client: httpx.AsyncClient) -> None:
    body = {"message": "hi", "chatId": "w", "agentKey": "ask", "stream": False}
    paused = (await client.post("/api/query", json=body)).json()["data"]
    seen = await take(client, **events_of(paused["runId"]))
    assert seen.events[-1]["type"] == "run.waiting"
    assert (await client.request(**events_of(paused["runId"], seen))).status_code == 204


async def test_the_log_of_a_run_that_was_pruned_is_refused_before_any_stream_begins(folder: Path) -> None:
    async with serving(make_application(folder)) as (client, server):
        first = await take(client, "POST", "/api/query", json=QUERY)
        for _ in range(5):
            await take(client, "POST", "/api/query", json=QUERY)
        await server.application.store.prune("t", Keep(newest=1))
        refused = await client.request(**events_of(run_of(first), first))
        assert refused.status_code == 404 and "was pruned" in refused.json()["msg"]


async def test_the_response_of_a_run_that_another_server_drives_names_it_in_the_header(folder: Path):
    """As every response does that begins or continues a run (docs/how-to/concurrency.md)."""

    async def ended() -> RunResult:
        return RunResult(status="completed", state=State(), run_id="r")

    async def stays() -> dict[str, Any]:
        return await asyncio.Future[dict[str, Any]]()

    remote: Any = SimpleNamespace(thread_id="t", run_id="r", seq=3, result=ended)
    app = create_app(make_application(folder), watch=False)
    async with app.router.lifespan_context(app):
        request = Request({"type": "http", "app": app, "headers": []}, receive=stays)
        streamed = stream_elsewhere(request, remote, None)
        body = await one_body_elsewhere(request, remote)
    assert [response.headers["Graphflow-Run-Id"] for response in (streamed, body)] == ["r", "r"]
