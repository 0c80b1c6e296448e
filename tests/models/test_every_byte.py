"""A stream full of quirks, cut in two at every byte and sent byte by byte, gives the same deltas (spec 7)."""

from __future__ import annotations

import pytest

from graphflow.models.deltas import Delta, Finish, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from graphflow.models.remote.sse_decoder import SseDecoder
from tests.models.raw_server import DONE, call, delta, event, stream
from tests.models.raw_server import raw_server as serve
from tests.models.turns import OpenClient, hear

USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
QUIRKS = b"".join(
    (
        b"\xef\xbb\xbf: keep-alive\r\n\r\n",
        delta(role="assistant", content=None),
        event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        delta(reasoning_content="嗯…").replace(b"\n", b"\r\n"),
        b"event: ping\ndata:\n\n",
        delta(content="<think>tags</think>北京 🌧").replace(b"data: ", b"data:"),
        b'data: {"choices": [{"index": 0,\ndata: "delta": {"content": " two lines"}}]}\n\n',
        delta(tool_calls=[call(0, id="a", name="look_up", arguments='{"q":'), call(1, "b", "go", {"x": "é"})]),
        delta(tool_calls=[call(0, "", None, ' "\\u5317"}')]),
        delta("tool_calls"),
        event({"choices": [], "usage": USAGE}).replace(b"\n", b"\r"),
        DONE,
    )
)


def joined(deltas: list[Delta]) -> tuple[str, str, dict[str, str], Delta]:
    text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    reasoning = "".join(d.text for d in deltas if isinstance(d, ThinkingDelta))
    ids = {d.index: d.id for d in deltas if isinstance(d, ToolCallDelta) and d.id is not None}
    arguments = dict.fromkeys(ids.values(), "")
    for part in deltas:
        if isinstance(part, ToolCallDelta):
            arguments[ids[part.index]] += part.arguments
    return text, reasoning, arguments, deltas[-1]


WHOLE = (
    "北京 🌧 two lines",
    "嗯…tags",
    {"a": '{"q": "\\u5317"}', "b": '{"x":"é"}'},
    Finish("tool_calls", "tool_calls", Usage(prompt_tokens=12, completion_tokens=5, cached_tokens=4)),
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(QUIRKS)])
async def test_blocks_of_any_size_give_the_same_turn_over_a_socket(open_client: OpenClient, size: int) -> None:
    blocks = [QUIRKS[at : at + size] for at in range(0, len(QUIRKS), size)]
    async with serve(stream(*blocks)) as server:
        assert joined((await hear(open_client(server.url, think_tags=True))).deltas) == WHOLE


def test_a_cut_at_every_byte_gives_the_same_events() -> None:
    whole = SseDecoder()
    expected = [*whole.feed(QUIRKS), *whole.close()]
    for cut in range(1, len(QUIRKS)):
        decoder = SseDecoder()
        assert [*decoder.feed(QUIRKS[:cut]), *decoder.feed(QUIRKS[cut:]), *decoder.close()] == expected, cut
