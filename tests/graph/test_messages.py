"""Messages that come from outside are whole when they are taken: what is stored can be read again."""

from __future__ import annotations

import re
from typing import Any

import pytest

from graphflow import AIMessage, HumanMessage, MemoryCheckpointer, ToolCall, ToolMessage, load_graph
from graphflow.checkpoints import codec
from graphflow.errors import CodecError, GraphflowError
from graphflow.messages import from_wire, kept_message, misfit

MESSAGES = {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}

WIRE_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"role": "robot", "content": "x"}, "role 'robot'"),
    ({"role": "user", "content": "x", "id": 5}, "the id of HumanMessage must be text or null, not 5"),
    ({"role": "user", "content": "x", "name": ["a"]}, "the name of HumanMessage"),
    ({"role": "tool", "content": "x", "tool_call_id": 4}, "the tool_call_id of ToolMessage must be text, not 4"),
    ({"role": "assistant", "reasoning_content": 4}, "the reasoning of AIMessage"),
    ({"role": "assistant", "reasoning_details": 4}, "reasoning_details of a message must be a list, not 4"),
    ({"role": "assistant", "tool_calls": 4}, "tool_calls of a message must be a list, not 4"),
    ({"role": "assistant", "tool_calls": "abc"}, "tool_calls of a message must be a list, not 'abc'"),
    ({"role": "assistant", "tool_calls": [5]}, "a tool call must be an object with its function, not 5"),
    ({"role": "assistant", "tool_calls": [{"function": "f"}]}, "a tool call must be an object with its function"),
    ({"role": "assistant", "tool_calls": [{"id": 3, "name": "f"}]}, "the id of ToolCall must be text, not 3"),
]
STRUCT_FAULTS: list[tuple[Any, str]] = [
    (AIMessage(content=None), "the content of AIMessage must be text, not null"),  # type: ignore[arg-type]
    (HumanMessage(content=["a"]), "the content of HumanMessage"),  # type: ignore[arg-type]
    (AIMessage(tool_calls=[{"id": "1"}]), "is not a ToolCall"),  # type: ignore[arg-type]
    (AIMessage(tool_calls=(ToolCall(id="1", name="f", arguments={}),)), "the arguments of ToolCall"),  # type: ignore[arg-type]
    (ToolMessage(tool_call_id="1", content="x", error="no"), "the error of ToolMessage must be true or false"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("data", "why"), WIRE_FAULTS, ids=lambda value: str(value)[:40])
def test_a_wire_message_with_a_wrong_field_is_refused_by_name(data: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_wire(data)


def test_parts_without_text_add_nothing() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": None}, "b"]
    assert from_wire({"role": "user", "content": parts}) == HumanMessage(content="ab")


@pytest.mark.parametrize("message", [*(data for data, _ in WIRE_FAULTS), *(made for made, _ in STRUCT_FAULTS)], ids=lambda m: str(m)[:40])  # fmt: skip
async def test_a_node_that_returns_a_broken_message_fails_and_its_thread_loads(message: Any) -> None:
    """Structs check nothing when they are made: a broken one must not get as far as the store."""
    store = MemoryCheckpointer()
    document = {"graphflow": "1", "start": "a", "state": MESSAGES, "nodes": {"a": {"use": "node:say", "next": "end"}}}
    said: list[Any] = [message]
    app = load_graph(document, nodes={"say": lambda state: {"messages": said}}, checkpointer=store)
    result = await app.run({"query": "hello"}, "t")
    assert result.error is not None
    assert (result.status, result.error["code"], result.error["detail"]["key"]) == ("failed", "state_error", "messages")
    said[:] = [{"role": "assistant", "content": "hi"}]
    result = await app.run({"query": "again"}, "t")
    assert [m.content for m in result.state["messages"]] == ["hello", "again", "hi"]


@pytest.mark.parametrize(("message", "why"), STRUCT_FAULTS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("surrogate", ["", "\ud800"], ids=["plain", "beside what msgpack has no word for"])
def test_a_broken_message_is_not_stored_under_any_key(message: Any, why: str, surrogate: str) -> None:
    with pytest.raises(CodecError, match=why) as caught:
        codec.encode({"seen": [message, surrogate]}, channel="log")
    assert caught.value.detail["channel"] == "log"


def test_what_a_model_and_a_tool_say_is_whole() -> None:
    call = ToolCall(id="1", name="f")
    assert misfit(AIMessage(content="x", tool_calls=(call,), reasoning_details=({"a": 1},))) is None
    assert misfit(ToolMessage(tool_call_id="1", content="x", error=True, whole="xx")) is None


KEPT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"role": "user"}, "the content of a message with the role 'user' is missing"),
    ({"role": "user", "content": 5}, "the content of a message with the role 'user' is 5; it is text or a list of parts"),
    ({"role": "user", "content": None}, "the content of a message with the role 'user' is None"),
    ({"role": "user", "content": [5]}, "the part 5 of a message's content is no object and no text"),
    ({"role": "tool", "content": "x"}, "the role 'tool' needs `tool_call_id`"),
    ({"role": "user", "content": "x", "zz": 1}, "the role 'user' has no field 'zz'; its fields are role, id, content, name"),
    ({"role": "assistant", "content": "x", "refusal": "no"}, "the role 'assistant' has no field 'refusal'"),
    ({"role": "robot", "content": "x"}, "roles are system, user, assistant, tool"),
    ({"content": "x"}, "a message has role None"),
]  # fmt: skip
KEPT: list[tuple[dict[str, Any], Any]] = [
    ({"role": "assistant", "content": "x", "refusal": None, "annotations": []}, AIMessage(content="x")),
    ({"role": "assistant"}, AIMessage()),
    (
        {"role": "user", "content": "x", "references": [{"id": "f"}]},
        HumanMessage(content="x", references=({"id": "f"},)),
    ),
    (
        {"role": "tool", "toolCallId": "c", "content": "x", "error": True, "whole": "xy"},
        ToolMessage(tool_call_id="c", content="x", error=True, whole="xy"),
    ),
    ({"role": "assistant", "content": "x", "status": "cancelled"}, AIMessage(content="x", status="cancelled")),
]


@pytest.mark.parametrize(("data", "why"), KEPT_FAULTS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("door", ["edit", "replace", "node", "set"])
async def test_no_door_of_a_state_takes_a_malformed_message(data: dict[str, Any], why: str, door: str) -> None:
    async def work(state: Any) -> Any:
        return {"messages": [data]} if door == "node" else {}

    node = {"use": "node:work", "next": "end"}
    if door == "set":
        node = {"use": "fn:nothing", "set": {"messages": "input.given"}, "next": "end"}  # type: ignore[dict-item]
    document = {"graphflow": "1", "state": MESSAGES, "start": "a", "nodes": {"a": node}}
    app = load_graph(
        document, nodes={"work": work}, functions={"nothing": lambda: None}, checkpointer=MemoryCheckpointer()
    )
    if door in ("node", "set"):
        result = await app.run({"given": [data]}, "t")
        assert result.status == "failed" and result.error is not None
        text = str(result.error["message"])
    else:
        await app.run({}, "t")
        replace = ["messages"] if door == "replace" else []
        with pytest.raises(GraphflowError) as refused:
            await app.thread("t").edit({"messages": [data]}, replace=replace)
        text = refused.value.message
    assert re.search(re.escape(why), text), text
    assert "state key 'messages'" in text


@pytest.mark.parametrize(("data", "message"), KEPT, ids=lambda value: str(value)[:40])
def test_a_message_as_the_state_shows_it_is_taken_back_whole(data: dict[str, Any], message: Any) -> None:
    assert kept_message(data) == message
