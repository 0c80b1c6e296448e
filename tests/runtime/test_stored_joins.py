"""What an earlier version stored, which took what this one refuses: joins of branches, and exports."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import GraphflowError, HumanMessage, ImagePart, MemoryCheckpointer, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StoreError
from graphflow.graph.core import channels

DOCUMENT: dict[str, Any] = {
    "graphflow": "1", "start": "fan", "state": {"properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}},
    "nodes": {
        "fan": {"parallel": {"write": "write", "ask": "ask"}, "next": "end"},
        "write": {"use": "node:write", "next": "end"},
        "ask": {"ask": {"message": "Well?"}, "next": "end"},
    },
}  # fmt: skip


async def test_an_import_refuses_a_message_that_an_edit_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    message = HumanMessage(content=(ImagePart(url="ftp://example.org/a.png"),))

    async def write(state: Any, ctx: Any) -> dict[str, Any]:
        return {"messages": [message]}

    document = {**DOCUMENT, "start": "write", "nodes": {"write": DOCUMENT["nodes"]["write"]}}
    store, other = MemoryCheckpointer(), MemoryCheckpointer()
    app = load_graph(document, nodes={"write": write}, checkpointer=store, settings=False)
    await app.run({"query": "go"}, "edited")
    with pytest.raises(GraphflowError, match="messages"):
        await app.thread("edited").edit({"messages": [message]})
    with monkeypatch.context() as earlier:
        earlier.setattr(channels, "address_misfit", lambda message: None)
        assert (await app.run({"query": "go"}, "t")).status == "completed"
    with pytest.raises(StoreError, match=r"entry 1 of 'messages' is a message that no thread takes: ") as refused:
        await other.import_thread(store.export_thread("t"))
    assert "image part: " in refused.value.message and "export the thread again" in refused.value.message
    assert await other.threads() == []


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
        earlier.setattr(channels, "address_misfit", lambda message: None)
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
