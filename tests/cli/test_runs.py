"""`graphflow runs`, and the same from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow import GraphflowError
from tests.cli.processes import Command
from tests.runtime.lone_process import app_over


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
