"""A run whose `result` can't be computed has failed, for everybody who looks at it (E9)."""

from __future__ import annotations

from typing import Any

from graphflow import Graph
from graphflow.checkpoints.checkpointer import Checkpointer


def dividing() -> Graph:
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, result="6 / state.n")

    async def only(state: Any) -> None:
        return None

    graph.node(name="only", next="end")(only)
    return graph


async def test_without_a_store_the_caller_gets_the_failure() -> None:
    result = await dividing().compile().run({})
    assert (result.status, result.output) == ("failed", None)
    assert result.error is not None and result.error["code"] == "expression"


async def test_stream_thread_and_result_agree_and_an_edited_state_lets_it_go_on(store: Checkpointer) -> None:
    app = dividing().compile(checkpointer=store)
    events = [event.type async for event in app.stream({}, thread_id="t")]
    assert events[-1] == "run.error"
    thread = app.thread("t")
    assert (await thread.state()).status == "failed"
    await thread.edit({"n": 2})
    result = await app.resume("t")
    assert (result.status, result.output) == ("completed", 3)
