"""A library that needs no server: what killed processes leave is superseded by new input, or goes on by `recover`."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.runtime.compiled_graph import CompiledGraph
from tests.runtime.lone_process import app_over, killed_inside, lone_app


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


async def logged(app: CompiledGraph) -> list[str]:
    return [*(await app.thread("t").state()).values.log]


@pytest.mark.parametrize("on_busy", ["reject", "enqueue", "interrupt", "rollback"])
async def test_a_caller_that_was_killed_in_the_queue_does_not_hold_its_thread(file: Path, on_busy: str) -> None:
    killed_inside(file, "drive", "waiting", "also waiting")
    async with app_over(file) as app:
        assert (await app.run("new", "t", on_busy=on_busy)).status == "completed"
        assert (await app.run("newer", "t")).status == "completed"
        assert await app.thread("t").queue() == []
        assert (await logged(app))[-2:] == ["new", "newer"]


async def test_recover_resumes_the_run_that_was_cut_off_and_begins_what_waited_behind_it_in_order(file: Path) -> None:
    killed_inside(file, "drive", "second", "third")
    async with app_over(file) as app:
        done = await app.recover()
        assert [(run.thread_id, run.status) for run in done.results] == [("t", "completed")] * 3
        assert await logged(app) == ["driven", "second", "third"]
        assert (await app.thread("t").state()).values.n == 3
        again = await app.recover()
        assert (again.results, again.refused, again.errors) == ([], [], {}), "nothing is due any more"


def test_recover_has_a_sync_twin(file: Path) -> None:
    killed_inside(file, "drive")
    app = lone_app(file)
    assert [run.status for run in app.recover_sync().results] == ["completed"]
    assert app.recover_sync().results == []
