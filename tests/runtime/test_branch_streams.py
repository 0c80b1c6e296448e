"""Branches that stream at once: every text whole, under its own node run, live and from the log (V1 to V4, B12)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from graphflow import Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from tests.runtime.branches import STATE, document

WORDS = 20


def talking(store: Checkpointer) -> Any:
    """Three items that talk word by word, in turns; each says who it is."""

    async def talk(state: Any, ctx: Context) -> dict[str, Any]:
        for number in range(WORDS):
            await ctx.content(f"{state.mine}.{number} ")
            await asyncio.sleep(0)
        return {"results": [state.mine]}

    async def give(n: int) -> int:
        return n

    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "take", "next": "end"},
        "take": {"use": "fn:give", "with": {"n": "${item}"}, "set": {"mine": "out"}, "next": "talk"},
        "talk": {"use": "node:talk", "next": "end"},
    }
    keys = {**STATE, "mine": {"type": "integer", "default": 0, "x-scope": "branch"}}
    graph = document(nodes, state={"type": "object", "properties": keys})
    return load_graph(graph, checkpointer=store, functions={"give": give}, nodes={"talk": talk})


def said(item: int) -> str:
    return "".join(f"{item}.{number} " for number in range(WORDS))


async def test_branches_that_stream_at_once_lose_nothing_and_mix_nothing(store: Checkpointer) -> None:
    app = talking(store)
    events = [event async for event in app.stream({}, "t")]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    runs = {event.node_run_id: event.path for event in events if event.type == "node.start" and event.node == "talk"}
    assert sorted(runs.values()) == ["fan#1[0]", "fan#1[1]", "fan#1[2]"]
    blocks = {event.content_id: event.node_run_id for event in events if event.type == "content.start"}
    texts: dict[str, str] = defaultdict(str)
    order = []
    for event in events:
        if event.type == "content.delta":
            texts[runs[blocks[event.content_id]]] += event.delta
            order.append(event.content_id)
    assert dict(texts) == {f"fan#1[{item}]": said(item) for item in range(3)}
    assert len({*order[: WORDS + 1]}) > 1  # they did talk at once


async def test_the_log_of_branches_that_streamed_has_every_text_whole(store: Checkpointer) -> None:
    app = talking(store)
    live = [event async for event in app.stream({}, "t")]
    logged = [event for event, _ in await app.thread("t").events()]
    assert sorted(event.text for event in logged if event.type == "content.snapshot") == [said(i) for i in range(3)]
    seqs = [event.seq for event in logged]
    assert seqs == sorted(set(seqs))
    ends = {event.seq: event.node for event in live if event.type == "node.end"}
    assert {event.seq: event.node for event in logged if event.type == "node.end"} == ends


async def test_every_node_begins_and_ends_once_in_each_branch_and_the_fan_last(store: Checkpointer) -> None:
    events = [event async for event in talking(store).stream({}, "t")]
    begun = {event.node_run_id: (event.path, event.node) for event in events if event.type == "node.start"}
    ended = [begun[event.node_run_id] for event in events if event.type == "node.end"]
    assert sorted(ended, key=str) == sorted(begun.values(), key=str)
    assert len(ended) == len(set(ended)) == 7
    assert ended[-1] == (None, "fan")
