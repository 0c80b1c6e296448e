"""A join of branches that an earlier version stored, which took what this one refuses."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import HumanMessage, ImagePart, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.graph.core import channels

DOCUMENT: dict[str, Any] = {
    "graphflow": "1", "start": "fan", "state": {"properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}},
    "nodes": {
        "fan": {"parallel": {"write": "write", "ask": "ask"}, "next": "end"},
        "write": {"use": "node:write", "next": "end"},
        "ask": {"ask": {"message": "Well?"}, "next": "end"},
    },
}  # fmt: skip


@pytest.mark.parametrize("routed", [False, True])
async def test_a_stored_branch_with_a_url_that_is_refused_today_fails_its_join_and_says_so(
    store: Checkpointer, routed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(state: Any, ctx: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage(content=(ImagePart(url="ftp://example.org/a.png"),))]}

    fan = DOCUMENT["nodes"]["fan"] | ({"error": [{"on": ["any"], "to": "end"}]} if routed else {})
    document = {**DOCUMENT, "nodes": {**DOCUMENT["nodes"], "fan": fan}}

    def app() -> Any:
        return load_graph(document, nodes={"write": write}, checkpointer=store, settings=False)

    with monkeypatch.context() as earlier:
        earlier.setattr(channels, "url_misfit", lambda url: None)
        waiting = await app().run({"query": "go"}, "t")
    assert waiting.status == "waiting"
    result = await app().answer("t", {waiting.interrupts[0].id: "fine"})
    thread = app().thread("t")
    assert [message.text for message in (await thread.state()).values["messages"]] == ["go"]
    if routed:
        assert result.status == "completed"
        return
    assert result.status == "failed" and result.error is not None
    assert "state key 'messages': image part: " in result.error["message"] and "ftp://" in result.error["message"]
    assert result.error["node"] == "fan"
