"""Lines that a crash has left out of a chat record come by themselves (spec 5.1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Keep
from graphflow.service.application import Application
from graphflow.service.chats.chats import chat
from graphflow.service.requests import SubmitRequest
from graphflow.service.runs.submit import submit
from tests.memory.conftest import SEND, lines, role_and_text
from tests.service.clients import begin, query_of

Opened = Callable[..., Awaitable[Application]]


async def ask(app: Application, message: str, agent: str = "plain") -> str:
    request = query_of(message=message, agent_key=agent, chat_id="c")
    run = (await begin(app, request, hold_ms=0)).run
    await run.over.wait()
    return run.run_id


@asynccontextmanager
async def killed_before_the_line(app: Application) -> AsyncIterator[None]:
    """Runs that end inside commit, and write no line: as a process leaves them that dies in between."""
    listeners = app.registry.on_end
    listeners.remove(app.chat_record.ended)
    yield
    listeners.append(app.chat_record.ended)


def said(app: Application) -> list[str]:
    """What the person says in each line."""
    return [role_and_text(line["messages"][0])[1] for line in lines(app, "c")]


@pytest.mark.parametrize("again", [False, True], ids=["the same process", "a new process"])
async def test_opening_a_chat_writes_the_lines_that_a_crash_left_out(open_application: Opened, again: bool) -> None:
    app = await open_application()
    await ask(app, "one")
    async with killed_before_the_line(app):
        await ask(app, "two")
        await ask(app, "three")
    assert said(app) == ["one"]
    app = await open_application() if again else app
    await chat(app, "c")
    assert said(app) == ["one", "two", "three"]


async def test_the_next_run_writes_them_before_its_own(open_application: Opened) -> None:
    app = await open_application()
    async with killed_before_the_line(app):
        await ask(app, "one")
        await ask(app, "two")
    await ask(app, "three")
    assert said(app) == ["one", "two", "three"]
    assert ["system" in line for line in lines(app, "c")] == [True, False, False]


async def test_a_line_that_waits_although_its_run_has_ended_is_replaced(open_application: Opened) -> None:
    app = await open_application(SEND, {"text": "Sent."})
    run_id = await ask(app, "send it", "react")
    (waiting,) = await app.store.open_interrupts(thread_id="c")
    async with killed_before_the_line(app):
        payload = {"decision": "approve"}
        given = SubmitRequest(chat_id="c", run_id=run_id, asked=waiting.interrupt_id, payload=payload)
        assert (await submit(app, given)).accepted
        if (live := app.runs.by_thread.get("c")) is not None:
            await live.over.wait()
    assert [line.get("_status") for line in lines(app, "c")] == ["waiting"]
    await chat(app, "c")
    (line,) = lines(app, "c")
    assert "_status" not in line
    assert role_and_text(line["messages"][-1]) == ("assistant", "Sent.")


async def test_a_mended_line_is_the_one_that_would_have_been_written(open_application: Opened) -> None:
    app = await open_application()
    async with killed_before_the_line(app):
        await ask(app, "one")
    assert await app.chat_record.heal("c") == 1
    mended = lines(app, "c")
    await app.chat_record.rebuild("c")
    assert lines(app, "c") == mended


async def test_a_whole_record_is_not_looked_at_again(open_application: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    app = await open_application()
    await ask(app, "one")
    reads: list[str] = []
    read = app.chat_record.files.settled

    def counted(chat_id: str) -> set[str]:
        reads.append(chat_id)
        return read(chat_id)

    monkeypatch.setattr(app.chat_record.files, "settled", counted)
    await ask(app, "two")
    await chat(app, "c")
    assert reads == []
    app.chat_record._whole.clear()  # as in a new process
    await chat(app, "c")
    await chat(app, "c")
    assert reads == ["c"]


async def test_two_processes_that_mend_at_once_write_each_line_once(open_application: Opened) -> None:
    app = await open_application()
    async with killed_before_the_line(app):
        await ask(app, "one")
        await ask(app, "two")
    others = [await open_application() for _ in range(3)]
    await asyncio.gather(*(other.chat_record.heal("c") for other in others))
    assert said(app) == ["one", "two"]


async def test_a_chat_without_anything_to_tell_has_nothing_to_mend(open_application: Opened) -> None:
    app = await open_application()
    assert await app.chat_record.heal("nobody") == 0


async def test_rebuilding_keeps_the_lines_of_runs_that_were_pruned(open_application: Opened) -> None:
    app = await open_application()
    for message in ("one", "two", "three"):
        await ask(app, message)
    before = lines(app, "c")
    store: Checkpointer = app.store
    await store.prune("c", Keep(newest=1))
    await app.chat_record.rebuild("c")
    assert lines(app, "c") == before


async def test_a_damaged_line_comes_again_when_its_run_is_the_newest(open_application: Opened) -> None:
    app = await open_application()
    await ask(app, "one")
    await ask(app, "two")
    path = app.settings.memory.chat_dir / "c.json"
    path.write_bytes(path.read_bytes()[:-20])
    app = await open_application()
    await chat(app, "c")
    found = await app.chat_record.read("c")
    assert [run["query"]["message"] for run in found.runs] == ["one", "two"]
    assert [damage.line for damage in found.damaged] == [2]
    whole: list[dict[str, Any]] = [json.loads(line) for line in path.read_bytes().splitlines()[2:]]
    assert [line["runId"] for line in whole] == [found.runs[1]["runId"]]
