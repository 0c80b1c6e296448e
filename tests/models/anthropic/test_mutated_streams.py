"""Streams that were damaged in any way: a turn or an error of the port, and a turn can always be stored and sent back."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from graphflow.checkpoints import codec
from graphflow.errors import ModelError, error_dict
from graphflow.messages import HumanMessage, Message, ToolMessage
from graphflow.models.accumulator import TurnAccumulator
from graphflow.models.anthropic.conversation import RequestTurns
from graphflow.models.anthropic.stream_reader import MessageReader, wire_blocks
from graphflow.models.deltas import Delta
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.loose_json import encode_body
from graphflow.models.remote.sse_decoder import SseDecoder
from graphflow.models.replay.call_ids import UniqueCallIds
from graphflow.models.replay.replay import Replay
from tests.campaign import size
from tests.models.anthropic import service
from tests.models.anthropic.service import call, closed, opened, piece, redacted, text, thinking, turn
from tests.models.mutations import mutated

CITED = {
    "type": "web_search_result_location",
    "url": "https://w.org",
    "title": "W",
    "encrypted_index": "Eo8",
    "cited_text": "s",
}
WHOLE = turn(
    "tool_use",
    thinking(0, "sig", "hm", " 嗯"),
    redacted(1, "Emw"),
    [*text(2, "It is ", "北京 🌧")[:-1], piece(2, type="citations_delta", citation=CITED), closed(2)],
    call(3, "srv", "web_search", '{"query":', '"x"}', kind="server_tool_use"),
    [opened(4, type="web_search_tool_result", tool_use_id="srv", content=[]), closed(4)],
    call(5, "toolu_1", "weather", '{"city": "Pa', 'ris"}'),
    call(6, "toolu_2", "now", ""),
)
REPLAY = Replay("anthropic", "claude-sonnet-4-5")


def read(stream: bytes, dice: random.Random) -> tuple[MessageReader, TurnAccumulator]:
    """Reads a stream in blocks of any size."""
    decoder, out = SseDecoder(), list[Delta]()
    reader = MessageReader(
        "p", UniqueCallIds((), lambda: f"{dice.randrange(10**8):08}"), REPLAY, mask=Masker(), warn=lambda *_, **__: None
    )
    at = 0
    while at < len(stream) and not reader.done:
        width = dice.choice((1, 17, 200, 5000))
        for event in decoder.feed(stream[at : at + width]):
            reader.feed(event, out)
            if reader.done:
                break
        at += width
    for event in decoder.close() if not reader.done else ():
        reader.feed_pending(event, out)
    reader.close(out)
    done = TurnAccumulator()
    for delta in out:
        done.feed(delta)
    return reader, done


@pytest.mark.campaign
def test_no_damage_ends_in_another_error_than_the_ports_and_every_turn_can_go_back() -> None:
    for seed in range(size(1500, long=100_000)):
        dice = random.Random(seed)
        stream = b"".join(mutated(WHOLE, seed))
        try:
            reader, done = read(stream, dice)
        except ModelError as error:
            msgspec.json.encode(error_dict(error))
            continue
        said = done.message()
        stored = codec.encode(said)
        assert codec.encode(codec.decode(stored)) == stored, seed
        usage = done.completion().usage
        assert usage is None or 0 <= usage.prompt_tokens + usage.completion_tokens < 1 << 56, seed
        encode_body({"content": wire_blocks(reader.blocks)})
        results = [ToolMessage(tool_call_id=c.id, content="21") for c in said.tool_calls]
        thread: list[Message] = [HumanMessage(content="hi"), said, *results]
        talk = RequestTurns(REPLAY, thread, signed=True, warn=lambda *_, **__: None)
        request = json.loads(encode_body({"messages": talk.turns, "tools": [TOOL]}))
        for one in request["messages"]:
            # What a later version of the service may send goes back as it came; here it is damage.
            one["content"] = [b for b in one["content"] if b.get("type") in OURS]
        request["messages"] = [one for one in request["messages"] if one["content"]]
        service._check_turns(request)
        service._check_calls(request)


OURS = {"text", "tool_use", "tool_result"}
TOOL = {"name": "weather", "input_schema": {"type": "object"}}
