"""Streams with bytes, fields and chunks changed, lost, repeated and out of order end well or in one of the port's errors."""

from __future__ import annotations

from functools import partial

import pytest

from graphflow.models.gemini.conversation import contents
from graphflow.models.gemini.stream_reader import GeminiReader
from graphflow.models.replay.replay import Replay
from tests.campaign import size
from tests.models.gemini.service import STOP, call, chunk, text, thought
from tests.models.mutations import assert_broken_streams_end_well, heard_of, mutated, reader_of

GROUNDING = {
    "groundingChunks": [{"web": {"uri": "https://e.org", "title": "E"}}],
    "groundingSupports": [{"segment": {"text": "S"}, "groundingChunkIndices": [0]}],
    "citationSources": [{"uri": "https://e.org"}],
}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
TURNS = [
    [chunk(thought("hm")), chunk(text("S")), chunk(text("un 🌧")), chunk(text("", thoughtSignature="s"), finish="STOP")],
    [chunk(text("I look.")), chunk(call("a", {"x": [1, {"y": None}]}, "s", id="i"), call("b", {})), STOP],
    [chunk(text("S"), candidates=[{"content": {"parts": [PICTURE]}, "groundingMetadata": GROUNDING}]), STOP],
    [
        chunk({"executableCode": {"code": "1"}, "thoughtSignature": "s"}, {"codeExecutionResult": {"output": "1"}}),
        chunk(PICTURE | {"thoughtSignature": "p"}, {"text": "hm", "thought": True, "thoughtSignature": "h"}),
        STOP,
    ],
    [chunk(promptFeedback={"blockReason": "SAFETY"})],
]


reader = partial(reader_of, GeminiReader)


@pytest.mark.campaign
def test_a_broken_stream_ends_well_or_in_an_error_of_the_port() -> None:
    assert_broken_streams_end_well(TURNS, reader, range(size(1_500, long=100_000)))


@pytest.mark.campaign
def test_what_is_heard_of_a_broken_stream_can_be_sent_back() -> None:
    for seed in range(size(500, long=20_000)):
        heard = heard_of(mutated(TURNS[seed % len(TURNS)], seed), reader())
        assert all(said["parts"] for said in contents([heard.turn.message()], Replay("p", "m"), third=True)), seed
