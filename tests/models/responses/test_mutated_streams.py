"""Streams with bytes, fields and events changed, lost, repeated and out of order end well or in one of the port's errors."""

from __future__ import annotations

from functools import partial

import pytest

from graphflow.models.replay.replay import Replay
from graphflow.models.responses.conversation import input_items
from graphflow.models.responses.stream_reader import ResponseReader
from tests.campaign import size
from tests.models.mutations import assert_broken_streams_end_well, heard_of, mutated, reader_of
from tests.models.responses.service import call, event, reasoning, text, turn

NOTE = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 0, "end_index": 3}
TURNS = [
    turn(reasoning("e1", "**A**", "**B**"), text("S", "un", " 🌧", index=1, phase="commentary")),
    turn(text("Hm."), call("weather", '{"city":"P"}', "c1", index=1), call("time", "{}", "c2", index=2)),
    turn(reasoning("e1"), call("weather", '{"a":1}', "c1", index=1), reasoning("e2", index=2), text("x", index=3)),
    turn(
        [event("response.reasoning_text.delta", output_index=0, content_index=0, delta="hm")],
        [event("response.output_text.annotation.added", output_index=1, content_index=0, annotation=NOTE)],
        [event("response.refusal.delta", output_index=1, content_index=0, delta="No.")],
    ),
]


reader = partial(reader_of, ResponseReader)


@pytest.mark.campaign
def test_a_broken_stream_ends_well_or_in_an_error_of_the_port() -> None:
    assert_broken_streams_end_well(TURNS, reader, range(size(1_500, long=100_000)))


@pytest.mark.campaign
def test_what_is_heard_of_a_broken_stream_can_be_sent_back() -> None:
    replay = Replay("p", "m")
    for seed in range(size(500, long=20_000)):
        heard = heard_of(mutated(TURNS[seed % len(TURNS)], seed), reader())
        items = input_items([heard.turn.message()], replay)
        for position, item in enumerate(items):
            if item["type"] == "reasoning":
                assert position + 1 < len(items), seed
