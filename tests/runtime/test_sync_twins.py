"""Every async method that people call has a twin for code without an event loop, made by one helper (spec 2.2)."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from graphflow import CompiledGraph, Graph, MemoryCheckpointer, SqliteCheckpointer, Thread

DETACHED = {"launch", "launch_answer", "launch_expired", "launch_resume", "signal", "deliver"}
"""They let a run go on that lives in the caller's event loop; without one there is nothing for it to live in."""


def public_async(kind: type) -> set[str]:
    return {
        name
        for name, member in ((name, unchecked(member)) for name, member in vars(kind).items())
        if not name.startswith("_")
        and not name.endswith("_sync")
        and (inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member) or "AsyncGenerator" in returns(member))
    }  # fmt: skip


def unchecked(member: object) -> object:
    """A method without the check of its arguments."""
    return getattr(member, "__wrapped__", member) if hasattr(member, "__arguments__") else member


def returns(member: object) -> str:
    return str(getattr(member, "__annotations__", {}).get("return", "")) if not hasattr(member, "__wrapped__") else ""


@pytest.mark.parametrize("kind", [CompiledGraph, Thread])
def test_every_async_method_has_a_twin_that_only_waits_for_it(kind):
    wanted = public_async(kind) - DETACHED
    assert {"run", "stream"} <= wanted or {"history", "rewind"} <= wanted
    for name in wanted:
        twin = vars(kind).get(f"{name}_sync")
        assert twin is not None, f"{kind.__name__}.{name} has no twin: write {name}_sync = blocking({name})"
        assert twin.__wrapped__ is vars(kind)[name]
        assert inspect.signature(twin) == inspect.signature(vars(kind)[name])


@pytest.mark.parametrize("kind", [CompiledGraph, Thread])
def test_no_twin_is_without_its_method(kind):
    twins = {name.removesuffix("_sync") for name in vars(kind) if name.endswith("_sync")}
    assert twins == public_async(kind) - DETACHED


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_thread_is_lived_through_without_an_event_loop(store, tmp_path: Path):
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})
    graph.ask("question", "How many?", schema={"type": "integer"}, set={"n": "answer"})
    app = graph.compile(
        checkpointer=MemoryCheckpointer() if store == "memory" else SqliteCheckpointer(tmp_path / "t.db")
    )
    kinds = [event.type for event in app.stream_sync({}, thread_id="t")]
    assert kinds[-1] == "run.waiting"
    thread = app.thread("t")
    assert thread.state_sync().status == "waiting"
    asked = thread.history_sync()[0].id
    assert [event.type for event in app.stream_answer_sync("t", 3)][-1] == "run.complete"
    assert thread.state_sync().values["n"] == 3
    other = thread.fork_sync(asked)
    assert app.answer_sync(other.id, 4).state["n"] == 4
    assert thread.diff_sync(asked, thread.history_sync()[0].id)["n"] != []
    thread.delete_sync()
    other.delete_sync()


async def test_a_twin_refuses_to_block_a_running_event_loop():
    app = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}).ask("q", "?").compile()
    with pytest.raises(RuntimeError, match="await the method without `_sync`"):
        app.run_sync({})
