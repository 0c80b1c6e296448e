"""`graphflow runs`, and the same from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, GraphflowError
from graphflow.runtime.runs.run_list import runs_with
from tests.cli.processes import Command
from tests.runtime.lone_process import app_over

ASKING: dict[str, Any] = {
    "graphflow": "1",
    "name": "asking",
    "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}},
    "start": "ask",
    "nodes": {"ask": {"ask": {"message": "Well?", "schema": {"type": "string"}}, "next": "end"}},
}


def test_runs_are_listed_and_shown_without_a_server(cli: Command) -> None:
    assert "no runs" in cli("runs").err
    cli("run", "demo_plain", "hi", "--thread", "t")
    (line,) = cli("runs", "list", "--json").json
    assert (line["status"], line["threadId"], line["agentKey"]) == ("completed", "t", "demo_plain")
    assert line["runId"] in cli("runs").out
    shown = cli("runs", "show", line["runId"], "--json").json
    assert shown["answer"] and shown["interrupts"] == []
    assert shown["answer"] in cli("runs", "show", line["runId"]).out
    assert cli("runs", "list", "--status", "failed", "--json").json == []
    assert cli("runs", "list", "--status", "faild").code != 0
    assert cli("runs", "show", "none").code != 0


async def test_python_lists_the_runs_of_its_graph(tmp_path: Path) -> None:
    async with app_over(tmp_path / "t.db") as app:
        ids = [(await app.run("x", thread_id="t")).run_id for _ in range(3)]
        found = await app.runs()
        assert [run.run_id for run in found] == ids[::-1]
        assert {(run.status, run.thread_id) for run in found} == {("completed", "t")}
        assert [run.run_id for run in await app.runs(limit=1, cursor=ids[2])] == [ids[1]]
        assert await app.runs(status="failed") == []
        with pytest.raises(GraphflowError, match="no run has the status"):
            await app.runs(status="done")


async def test_a_rare_status_is_looked_for_so_far_and_then_by_cursor(tmp_path: Path) -> None:
    async with app_over(tmp_path / "t.db") as app:
        ids = [(await app.run("x")).run_id for _ in range(5)]
        runs = await app.host.open_runs()
        found, cursor = await runs_with(runs, status="failed", look_at=2)
        assert found == [] and cursor == ids[3]
        found, cursor = await runs_with(runs, status="completed", cursor=cursor, limit=3)
        assert [run.run_id for run in found] == ids[2::-1]
        assert (await runs_with(runs, cursor=ids[0])) == ([], None)


async def test_where_a_thread_was_put_is_no_run_until_it_goes_on_from_there(tmp_path: Path) -> None:
    async with app_over(tmp_path / "t.db") as app:
        thread = app.thread("t")
        ids = [(await app.run("x", thread_id="t")).run_id]
        for _ in range(2):
            await thread.rewind((await thread.history())[-1].id, effects="rerun")
            assert [run.run_id for run in await app.runs()] == ids[::-1]
            ids.append((await app.resume("t")).run_id)
        assert [run.run_id for run in await app.runs()] == ids[::-1]
        await thread.edit({"n": 5})
        await thread.fork(thread_id="other")
        assert [run.run_id for run in await app.runs()] == ids[::-1]
        assert [run.run_id for run in await app.runs(limit=1)] == [ids[2]]
        assert await app.runs(status="cancelled") == []


async def test_a_question_that_is_asked_anew_after_a_rewind_and_an_edited_wait_are_listed(
    store: Any,
) -> None:
    app = Graph.from_json(ASKING).compile(checkpointer=store)
    asked = await app.run({}, thread_id="t")
    await app.thread("t").edit({"n": 2})
    assert [(run.run_id, run.status) for run in await app.runs()] == [(asked.run_id, "waiting")]
    await app.thread("t").rewind((await app.thread("t").history())[0].id)
    assert [run.status for run in await app.runs(status="waiting")] == ["waiting"]
