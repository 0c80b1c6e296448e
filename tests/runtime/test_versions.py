"""A thread goes on under the version of its document that it has begun, whatever that is called today (spec 2.4, E23)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StateError
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds

IDS = FakeIds()
REGISTERED = "a b c d x y z ask send".split()


def versioned(
    store: Checkpointer,
    nodes: dict[str, Any],
    *,
    state: dict[str, Any] | None = None,
    ran: list[str] | None = None,
    **keys: Any,
) -> CompiledGraph:
    """A graph whose `node:NAME` functions note that they ran and add 1 to `n`."""
    properties = {"n": {"type": "integer", "default": 0}, **(state or {})}
    document = {
        "graphflow": "1",
        "start": next(iter(nodes)),
        "nodes": nodes,
        "state": {"type": "object", "properties": properties},
        **keys,
    }

    def function(name: str) -> Any:
        async def run(state: Any) -> dict[str, Any]:
            if ran is not None:
                ran.append(name)
            return {"n": state["n"] + 1}

        return run

    return load_graph(document, checkpointer=store, ids=IDS, nodes={name: function(name) for name in REGISTERED})


def chain(*names: str) -> dict[str, Any]:
    return {
        name: {"use": f"node:{name}", "next": after} for name, after in zip(names, (*names[1:], "end"), strict=True)
    }


async def test_a_rewind_to_a_run_of_an_older_version_goes_on_under_that_version(store):
    ran: list[str] = []
    first, second = versioned(store, chain("a", "b"), ran=ran), versioned(store, chain("x", "y"), ran=ran)
    await first.run({}, "t")
    await second.run({}, "t")
    thread = second.thread("t")
    after_a = next(c for c in await thread.history() if c.node == "a")
    await thread.rewind(after_a.id)
    assert (await second.resume("t")).status == "completed"
    assert ran == ["a", "b", "x", "y", "b"]
    row = await store.thread("t")
    assert row is not None
    assert row.facts.document == first.version
    await second.run({}, "t")
    assert ran[-2:] == ["x", "y"]


async def test_a_fork_of_a_run_of_an_older_version_goes_on_under_that_version(store):
    ran: list[str] = []
    first, second = versioned(store, chain("a", "b"), ran=ran), versioned(store, chain("x", "y"), ran=ran)
    await first.run({}, "t")
    await second.run({}, "t")
    after_a = next(c for c in await second.thread("t").history() if c.node == "a")
    other = await second.thread("t").fork(after_a.id)
    assert (await second.resume(other.id)).state["n"] == 2
    assert ran[-1] == "b"
    assert (await second.thread("t").state()).next == []


async def test_an_edit_at_a_checkpoint_of_an_older_version_is_checked_by_that_version(store):
    first = versioned(store, chain("a", "b"), state={"old": {"type": ["string", "null"], "default": None}})
    second = versioned(store, chain("x", "y"))
    await first.run({}, "t")
    await second.run({}, "t")
    after_a = next(c for c in await second.thread("t").history() if c.node == "a")
    await second.thread("t").edit({"old": "kept"}, checkpoint_id=after_a.id)
    assert (await second.resume("t")).state["old"] == "kept"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ({"type": "string", "default": "x"}, {"type": "integer", "default": 0}, "takes integer"),
        (
            {"type": "array", "default": [1]},
            {"type": "array", "default": [], "x-reducer": "append"},
            "stored as one value",
        ),
        (
            {"type": "array", "default": [1], "x-reducer": "append"},
            {"type": "array", "default": []},
            "as a list that grows",
        ),
        (
            {"type": "array", "default": [1], "x-reducer": "append"},
            {"type": "array", "x-reducer": "messages"},
            "takes messages",
        ),
        (
            {"type": "array", "default": [1], "x-scope": "run"},
            {"type": "array", "default": [], "x-reducer": "append", "x-scope": "run"},
            "stored as one value",
        ),
    ],
)
async def test_a_new_run_under_a_new_version_refuses_a_key_that_no_longer_fits_and_names_it(store, old, new, words):
    first, second = versioned(store, chain("a"), state={"k": old}), versioned(store, chain("a"), state={"k": new})
    await first.run({}, "t")
    before = await second.thread("t").history()
    with pytest.raises(StateError, match=words) as refused:
        await second.run({}, "t")
    assert (refused.value.code, refused.value.detail["key"]) == ("state_incompatible", "k")
    assert await second.thread("t").history() == before
    assert (await first.run({}, "t")).status == "completed"


async def test_a_subgraph_is_part_of_the_version_and_kept_with_it(store):
    def parent(child: dict[str, Any]) -> CompiledGraph:
        return versioned(store, {"sub": {"graph": child, "next": "end"}}, ran=ran)

    def child(*names: str) -> dict[str, Any]:
        state = {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}
        return {"graphflow": "1", "start": names[0], "nodes": chain(*names), "state": state}

    ran: list[str] = []
    first, second = parent(child("a", "b")), parent(child("a", "c"))
    assert first.version != second.version
    await first.run({}, "t", interrupt_before=[])
    await first.thread("t").rewind(next(c.id for c in await first.thread("t").history() if c.node == "a"))
    ran.clear()
    await second.resume("t")
    assert ran == ["b"]


async def test_why_asks_the_version_that_the_checkpoint_was_made_with(store):
    first, second = versioned(store, chain("a", "b")), versioned(store, chain("x", "y"))
    await first.run({}, "t")
    await second.run({}, "t")
    after_a = next(c for c in await second.thread("t").history() if c.node == "a")
    (decision,) = (await second.thread("t").why(after_a.id)).decisions
    assert (decision.node, decision.to, decision.how) == ("a", "b", "only")
