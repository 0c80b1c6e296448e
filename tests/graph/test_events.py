"""Events as bytes: any of them can be sent, whatever a node has put into it."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from graphflow import AIMessage, Graph
from graphflow.events import ContentDelta, InterruptRequest, NodeProgress, decode_event, encode_event, event_dict
from graphflow.testing import collect


def holding_itself() -> dict[str, Any]:
    out: dict[str, Any] = {"n": 1}
    out["self"] = out
    return out


def sent(data: Any) -> Any:
    return json.loads(encode_event(NodeProgress(seq=1, node_run_id="1.1", data=data)))["data"]


def test_half_a_character_goes_out_as_its_escape() -> None:
    """A model's text may be cut in the middle of a pair of surrogates; the stream goes on."""
    event = ContentDelta(seq=3, timestamp=4, content_id="c", delta="a\ud83d")
    told = {"type": "content.delta", "seq": 3, "timestamp": 4, "contentId": "c", "delta": "a\ud83d"}
    assert json.loads(encode_event(event)) == told
    assert encode_event(event).isascii()


def test_what_contains_itself_is_told_once() -> None:
    assert sent(holding_itself()) == {"n": 1, "self": "…"}


def test_ways_that_lead_through_each_other_without_end_are_told_so_far() -> None:
    """A tree whose leaves know it, and neighbours who all know each other."""
    tree: dict[str, Any] = {"name": "root"}
    tree["leaves"] = [{"name": number, "parent": tree} for number in range(3)]
    assert sent(tree) == {"name": "root", "leaves": [{"name": number, "parent": "…"} for number in range(3)]}
    neighbours: list[Any] = [[] for _ in range(30)]
    for neighbour in neighbours:
        neighbour += neighbours
    assert len(json.dumps(sent(neighbours))) < 1_000_000


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_what_can_not_say_what_it_is_is_told_by_its_class() -> None:
    assert sent({"a": Mute(), "b": 1}) == {"a": "<Mute>", "b": 1}
    assert sent({"a": {Mute(): 1}, "n": 10**5000}) == {"a": "<dict>", "n": "…"}


def test_the_plain_form_of_an_event_keeps_half_a_character() -> None:
    assert event_dict(ContentDelta(content_id="c", delta="a\ud83d"))["delta"] == "a\ud83d"


def test_keys_that_are_no_text_are_told_as_text() -> None:
    odd = {(1, 2): 3, None: {"day": date(2026, 1, 2), "not a number": float("nan"), "set": {1}, "bytes": b"x"}}
    told = {"(1, 2)": 3, "None": {"day": "2026-01-02", "not a number": None, "set": [1], "bytes": "eA=="}}
    assert sent(odd) == told


def test_messages_keep_their_wire_form_beside_what_json_has_no_form_for() -> None:
    payload = {"last": AIMessage(content="hi\ud83d", id="m1")}
    event = InterruptRequest(interrupt_id="i", kind="ask", run_id="r", node="n", payload=payload, schema={})
    told = json.loads(encode_event(event))
    assert told["payload"] == {"last": {"role": "assistant", "id": "m1", "content": "hi\ud83d"}}
    assert "path" not in told


@pytest.mark.parametrize("text", [5, None, b"x"], ids=repr)
async def test_a_node_that_streams_what_is_no_text_fails_and_says_so(text: Any) -> None:
    graph = Graph()

    @graph.node
    async def speak(state: Any, ctx: Any) -> None:
        await ctx.content("so far")
        await ctx.content(text)

    events = await collect(graph.compile().stream())
    assert events[-1].type == "run.error"
    assert f"node 'speak' streams {text!r}, which is not a str" in events[-1].error["message"]  # type: ignore[attr-defined]
    assert [e.type for e in events if e.type.startswith("content.")] == [
        "content.start",
        "content.delta",
        "content.end",
    ]


def test_an_encoded_event_decodes_to_itself() -> None:
    event = NodeProgress(seq=1, timestamp=2, node_run_id="1.1", data={"a": [1, None]})
    assert decode_event(encode_event(event)) == event
