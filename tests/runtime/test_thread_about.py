"""Titles and metadata that people give threads (spec 3.2): written at any time, kept by every store, found again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Graph
from graphflow.errors import GraphflowError, ThreadNotFound
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.thread_list import threads_with
from graphflow.runtime.thread_about import NOTHING, changed_about
from graphflow.service.runs.query import automatic_title


def talk(store: Any) -> CompiledGraph:
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, name="talk")

    @graph.node(next="end")
    async def say(state: Any) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    return graph.compile(checkpointer=store)


async def test_a_title_and_metadata_survive_runs_and_are_found(store: Any) -> None:
    app = talk(store)
    for name in ("a", "b"):
        await app.run("hi", thread_id=name, title="hi")
    line = await app.thread("a").update(title=" Trip ", metadata={"project": "spring", "n": 3, "deep": {"x": [1]}})
    assert (line.title, line.metadata) == ("Trip", {"project": "spring", "n": 3, "deep": {"x": [1]}})
    await app.run("again", thread_id="a", title="again")
    for wanted in ({"project": "spring"}, {"n": "3", "project": "spring"}, {"deep": '{"x":[1]}'}):
        assert [(found.thread_id, found.title) for found in await app.threads(metadata=wanted)] == [("a", "Trip")]
    assert await app.threads(metadata={"project": "spring", "n": "4"}) == []
    line = await app.thread("a").update(title=None, metadata={"n": None})
    assert (line.title, sorted(line.metadata)) == ("hi", ["deep", "project"])
    assert (await app.thread("a").update(metadata=None)).metadata == {}
    forked = await app.thread("b").fork(thread_id="c")
    assert [found.metadata for found in await app.threads()].count({}) == 3
    await forked.update(metadata={"x": True})
    assert [found.thread_id for found in await app.threads(metadata={"x": "true"})] == ["c"]
    with pytest.raises(ThreadNotFound):
        await app.thread("nobody").update(title="x")


async def test_of_updates_at_once_to_different_keys_none_is_lost(store: Any) -> None:
    app = talk(store)
    await app.run("hi", thread_id="t")
    await asyncio.gather(*(app.thread("t").update(metadata={f"k{n}": n}) for n in range(20)))
    assert (await app.threads())[0].metadata == {f"k{n}": n for n in range(20)}


@pytest.mark.parametrize(
    "changes",
    [
        {"title": ""}, {"title": "  "}, {"title": "a\nb"}, {"title": "x" * 201}, {"title": 5}, {"title": "nul \0"},
        {"metadata": []}, {"metadata": "x"}, {"metadata": {"": 1}}, {"metadata": {"k" * 65: 1}}, {"metadata": {1: 1}},
        {"metadata": {"k": "x" * 9000}}, {"metadata": {str(n): n for n in range(65)}}, {"metadata": {"k": "\ud800"}},
        {"metadata": {"k": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {}}}}}}}}}}},
    ],
)  # fmt: skip
def test_what_is_too_much_or_no_title_is_refused_by_its_field(changes: dict[str, Any]) -> None:
    with pytest.raises(GraphflowError) as refused:
        changed_about(NOTHING, changes)
    assert refused.value.code == "invalid_input" and list(refused.value.detail["fields"]) == list(changes)


async def test_a_rare_metadatum_is_looked_for_so_far_and_then_by_cursor(store: Any) -> None:
    app = talk(store)
    for n in range(7):
        await app.run("hi", thread_id=f"t{n}")
        await app.thread(f"t{n}").update(metadata={"rare": n in (0, 3)})
    runs = await app.host.open_runs()
    whole = [line.thread_id for line in await app.threads(metadata={"rare": "true"})]
    found: list[str] = []
    cursor, pages = None, 0
    while True:
        rows, cursor = await threads_with(runs, metadata={"rare": "true"}, limit=5, look_at=2, cursor=cursor)
        found += [row.thread_id for row in rows]
        pages += 1
        if cursor is None:
            break
    assert sorted(whole) == ["t0", "t3"] and found == whole
    assert pages == 4


@pytest.mark.parametrize("title", ["", " ", "a\nb", "x" * 201, "\ud800"])
async def test_a_title_given_with_a_run_follows_the_same_rule(store: Any, title: str) -> None:
    with pytest.raises(GraphflowError, match="title: must be 1 to 200 printable characters") as refused:
        await talk(store).run("hi", thread_id="t", title=title)
    assert refused.value.code == "invalid_input"
    assert await store.thread("t") is None


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("  What\n is  the time?", "What is th"),
        ("hi", "hi"),
        ("a\x1b[31mred", "a[31mred"),
        ("\ud800x\0", "?x"),
        ("", ""),
    ],
)
def test_the_automatic_title_is_the_beginning_of_the_message(message: str, title: str) -> None:
    assert automatic_title(message) == title
