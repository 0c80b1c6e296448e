"""Numbers that no program can keep, in every field that a provider sends: none ends a run, none reaches a message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from graphflow.checkpoints import codec
from graphflow.errors import ModelError, error_dict
from graphflow.models.accumulator import TurnAccumulator
from graphflow.models.deltas import Delta
from graphflow.models.openai.request import wire_messages
from graphflow.models.openai.stream_reader import TurnReader
from graphflow.models.profiles import Profile
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.sse_decoder import SseEvent
from graphflow.models.replay.replay import Replay

NUMBERS = ["1e999", "-1e999", "NaN", "-Infinity", "1" * 400, "1" * 5000, "18446744073709551616", "-1", "1.5", "true"]
USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}, "cost": 0}
CALL = {"extra_content": {"google": {"n": 0}}, "index": 0, "id": 0, "type": 0, "function": {"name": 0, "arguments": 0}}
DELTA = {
    "content": 0, "role": 0, "reasoning": 0, "reasoning_content": 0, "reasoning_details": [{"index": 0, "text": 0}],
    "extra_content": {"google": {"n": 0}},
    "refusal": 0, "function_call": {"name": 0, "arguments": {"n": 0}}, "tool_calls": [CALL],
}  # fmt: skip
CHUNK: dict[str, Any] = {
    "id": 0, "created": 0, "choices": [{"index": 0, "delta": DELTA, "finish_reason": 0, "usage": USAGE}], "usage": USAGE,
    "error": {"code": 0, "message": 0, "status": 0, "type": 0}, "message": 0, "x_groq": {"usage": USAGE},
}  # fmt: skip
REPLAY = Replay("p", "m")
STOP = b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'


def one_field_each(value: Any) -> Iterator[Any]:
    """Each leaf of the chunk alone, in the objects that it stands in, as the text `?`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            # A call has its name, or it would never be begun.
            more = {"name": "f"} if "arguments" in value and name != "name" else {}
            yield from ({**more, name: found} for found in one_field_each(inner))
    elif isinstance(value, list):
        yield from ([found] for found in one_field_each(value[0]))
    else:
        yield "?"


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:20])
@pytest.mark.parametrize("streamed", [True, False])
def test_no_number_in_any_field_ends_in_another_error_than_the_ports(number: str, streamed: bool) -> None:
    for form in one_field_each(CHUNK):
        data, out = json.dumps(form).replace('"?"', number).encode(), list[Delta]()
        reader = TurnReader(
            "p", Profile(), (), (), REPLAY, mask=Masker(), new_token=lambda: "abcdefgh", warn=lambda *_, **__: None
        )
        try:
            if streamed:
                reader.feed(SseEvent(data), out)
                reader.feed(SseEvent(STOP), out)
            else:
                reader.feed_body(data, out)
            reader.close(out)
        except ModelError as error:
            msgspec.json.encode(error_dict(error))
            continue
        turn = TurnAccumulator()
        for delta in out:
            turn.feed(delta)
        said = turn.message()
        assert codec.decode(codec.encode(said)) is not None
        msgspec.json.decode(msgspec.json.encode(wire_messages(REPLAY, [said])))
        usage = turn.completion().usage
        assert usage is None or 0 <= usage.prompt_tokens + usage.completion_tokens + usage.cached_tokens < 1 << 55
