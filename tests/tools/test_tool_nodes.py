"""Calls that a document makes itself: the `calls` of a `tools` node, and `tool:NAME` (spec 2.1)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import CompiledGraph, MemoryCheckpointer, load_graph, tool
from graphflow.events import event_dict
from graphflow.testing.stream_grammar import StreamRules

MESSAGES = {"type": "object", "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}}}


@tool(effects="read")
def look_up(word: str) -> str:
    """What a word means."""
    return f"{word}: a thing"


def graph_of(nodes: dict[str, Any], **fields: Any) -> CompiledGraph:
    document = {
        "graphflow": "1", "state": MESSAGES, "budget": {"maxSteps": 9}, "start": next(iter(nodes)), "nodes": nodes, **fields,
    }  # fmt: skip
    return load_graph(document, tools=[look_up], checkpointer=MemoryCheckpointer())


async def events_of(graph: CompiledGraph, query: str = "Go.") -> list[dict[str, Any]]:
    """All events of a run, held against the grammar of streams."""
    rules, events = StreamRules(), []
    async for event in graph.stream(query, "t"):
        rules.take(event)
        events.append(event_dict(event))
    return events


async def test_calls_without_an_id_are_told_one_by_one_on_every_visit():
    calls = [{"name": "look_up", "arguments": {"word": word}} for word in ("a", "b")]
    loop = [{"if": "visits.look < 2", "to": "look"}, {"to": "end"}]
    events = await events_of(graph_of({"look": {"use": "tools", "with": {"calls": calls}, "next": loop}}))
    started = [event["toolId"] for event in events if event["type"] == "tool.start"]
    results = [(event["toolId"], event["result"]) for event in events if event["type"] == "tool.result"]
    assert len(set(started)) == 4
    assert results == list(zip(started, ["a: a thing", "b: a thing"] * 2, strict=True))


async def test_text_of_a_document_that_looks_like_a_template_reaches_the_tool_as_it_is():
    """Argument templates are a model's way to refer to results (spec 1.5); a document has `${…}`, and what that gives is data."""
    nodes = {"look": {"use": "tool:look_up", "with": {"word": "${input.query}"}, "next": "end"}}
    events = await events_of(graph_of(nodes), "Dear {{user.name}}")
    assert [event["result"] for event in events if event["type"] == "tool.result"] == ["Dear {{user.name}}: a thing"]


async def test_half_a_character_in_arguments_of_a_document_fails_the_call_and_not_the_engine():
    nodes = {"look": {"use": "tool:look_up", "with": {"word": "${input.query}"}, "next": "end"}}
    error = (await events_of(graph_of(nodes), "half \ud800"))[-1]["error"]
    assert (error["code"], error["detail"]) == ("tool_error", {"toolError": "INVALID_PARAM"})
    calls = {
        "use": "tools",
        "with": {"calls": [{"name": "look_up", "arguments": {"word": "${input.query}"}}]},
        "next": "end",
    }
    events = await events_of(graph_of({"look": calls}), "half \ud800")
    assert events[-1]["type"] == "run.complete"
    assert ["INVALID_PARAM" in event["result"] for event in events if event["type"] == "tool.result"] == [True]


@pytest.mark.parametrize("call", ["look_up", {"arguments": {}}, 5])
async def test_what_is_no_call_fails_the_node_and_says_what_one_is(call: Any):
    graph = graph_of({"look": {"use": "tools", "with": {"calls": [call]}, "next": "end"}})
    error = (await events_of(graph))[-1]["error"]
    assert (error["code"], error["node"]) == ("validation", "look")
    assert "a tool call is an object with id, name and arguments, not " in error["message"]


@pytest.mark.parametrize("place", ["the document", "the node"])
async def test_where_keywords_alone_say_which_tools_there_are_no_others_may_be_called(place: str):
    calls: dict[str, Any] = {"calls": [{"name": "look_up", "arguments": {"word": "a"}}]}
    keywords = {"keywords": ["weather"]}
    arguments, fields = (calls, keywords) if place == "the document" else ({**calls, **keywords}, {})
    graph = graph_of({"look": {"use": "tools", "with": arguments, "next": "end"}}, **fields)
    [result] = [event["result"] for event in await events_of(graph) if event["type"] == "tool.result"]
    assert "there is no tool 'look_up'" in result
