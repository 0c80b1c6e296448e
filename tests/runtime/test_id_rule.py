"""One rule for the ids of threads and runs; what was stored under other ids stays in reach (docs/concepts/threads.md)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import GraphflowError
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.runs import start
from tests.runtime.conftest import Compile
from tests.runtime.graphs import asking, chain

ODD = ["a b", "a/b", "a@b", "a..b", "é", "x" * 129, "x" * 3000, "a\nb", " ", "a\0b", "\ud800"]


@pytest.mark.parametrize("given", ODD, ids=lambda given: f"{given!r:.12}")
async def test_nothing_new_gets_an_id_outside_the_rule(compile_graph: Compile, given: Any) -> None:
    app = compile_graph(chain("a")[0])
    await app.run({}, "known")
    known = app.thread("known")
    for refused, field in (
        (lambda: app.run({}, given), "thread_id"),
        (lambda: app.run({}, given, on_busy="enqueue"), "thread_id"),
        (lambda: app.run({}, "known", run_id=given), "run_id"),
        (lambda: known.fork(thread_id=given), "thread_id"),
    ):
        with pytest.raises(GraphflowError) as error:
            await refused()
        rule = "1 to 128 characters of A-Z a-z 0-9 . _ : -" if isinstance(given, str) else "takes text"
        assert error.value.code == "invalid_input" and rule in str(error.value)
        assert set(error.value.detail["fields"]) == {field}
    assert [thread.thread_id for thread in await app.threads()] == ["known"]


@pytest.mark.parametrize("thread_id", ODD[:8], ids=lambda given: f"{given!r:.12}")
async def test_a_thread_that_is_looked_up_in_vain_under_such_an_id_is_refused_by_the_rule(
    compile_graph: Compile, thread_id: str
) -> None:
    app = compile_graph(chain("a")[0])
    thread = app.thread(thread_id)
    for refused in (thread.state, thread.history, thread.cancel, lambda: app.resume(thread_id)):
        with pytest.raises(GraphflowError) as error:
            await refused()
        assert error.value.code == "invalid_input" and "is not a valid id" in str(error.value)
    with pytest.raises(GraphflowError) as missing:
        await app.thread("a.b").state()
    assert missing.value.code == "thread_not_found"


@pytest.mark.parametrize("thread_id", ["a b", "a/b", "a@b", "é"])
async def test_a_thread_that_an_earlier_version_stored_is_read_answered_continued_and_deleted(
    compile_graph: Compile, store: Checkpointer, thread_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = compile_graph(asking()[0])
    with monkeypatch.context() as earlier:
        earlier.setattr(start, "is_id", lambda _: True)
        waiting = await app.run({}, thread_id)
    assert (await app.thread(thread_id).state()).status == "waiting"
    done = await app.answer(thread_id, {waiting.interrupts[0].id: 1})
    assert done.status == "completed"
    assert (await app.run({}, thread_id)).status == "waiting"
    assert await app.thread(thread_id).cancel()
    await app.thread(thread_id).delete()
    assert await store.thread(thread_id) is None
