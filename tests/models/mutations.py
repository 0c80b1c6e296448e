"""Broken streams of any protocol: mutations of whole ones, read without a socket, and what must hold of what is heard."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from graphflow.errors import ModelError
from graphflow.models.accumulator import TurnAccumulator
from graphflow.models.deltas import Delta, Finish, ToolCallDelta
from graphflow.models.remote.exchange import Reader
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.sse_decoder import SseDecoder
from graphflow.models.replay.replay import Replay
from tests.models.turns import Heard

JUNK: tuple[Any, ...] = (
    None,
    "",
    0,
    -1,
    1e999,
    [],
    {},
    "null",
    "\ud83d",
    True,
    {"type": "text"},
    [[]],
    "x" * 300,
    2**70,
)
CODES = frozenset({"provider_error", "rate_limit", "connection", "stream_truncated", "timeout"})


def mutated(blocks: Sequence[bytes], seed: int) -> list[bytes]:
    """The blocks with one to three changes: bytes, fields, order, repeats, losses."""
    draw = random.Random(seed)
    out = list(blocks)
    for _ in range(draw.randint(1, 3)):
        if not out:
            break
        place = draw.randrange(len(out))
        change = draw.choice((_cut, _flip, _field, _field, _field, "drop", "repeat", "swap", "end"))
        if callable(change):
            out[place] = change(out[place], draw)
        elif change == "drop":
            del out[place]
        elif change == "repeat":
            out.insert(draw.randrange(len(out) + 1), out[place])
        elif change == "swap":
            other = draw.randrange(len(out))
            out[place], out[other] = out[other], out[place]
        else:
            del out[place + 1 :]
    return out


def _cut(block: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(block) + 1)
    return block[:at] + block[min(len(block), at + draw.randint(1, 9)) :]


def _flip(block: bytes, draw: random.Random) -> bytes:
    data = bytearray(block)
    if data:
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def _field(block: bytes, draw: random.Random) -> bytes:
    head, mark, data = block.partition(b"data: ")
    try:
        payload = json.loads(data)
    except ValueError:
        return _flip(block, draw)
    spots: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            spots.append((value, key))
            walk(value[key])

    walk(payload)
    if spots:
        holder, key = draw.choice(spots)
        if draw.random() < 0.3 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = draw.choice(JUNK)
    return head + mark + json.dumps(payload).encode() + b"\n\n"


def reader_of(kind: Callable[..., Reader]) -> Reader:
    """A reader of one protocol without a socket."""
    tokens = (f"token{n:03}" for n in range(1000))
    return kind(
        "p",
        [],
        Replay("p", "m"),
        finish_optional=False,
        mask=Masker(),
        new_token=lambda: next(tokens),
        warn=lambda *_, **__: None,
    )


def heard_of(blocks: Sequence[bytes], reader: Reader) -> Heard:
    """What a client hears of these blocks; any error but a `ModelError` is a defect and comes through."""
    heard, decoder = Heard([], TurnAccumulator()), SseDecoder()
    out: list[Delta] = []
    try:
        for block in blocks:
            for event in decoder.feed(block):
                reader.feed(event, out)
                if reader.done:
                    break
            if reader.done:
                break
        for event in decoder.close():
            reader.feed_pending(event, out)
        reader.close(out)
    except ModelError as error:
        heard.error = error
    heard.deltas = out
    for delta in out:
        heard.turn.feed(delta)
    return heard


def check(heard: Heard) -> None:
    """What holds of every turn, however broken its stream was."""
    if heard.error is not None:
        assert heard.error.code in CODES
        assert not any(isinstance(d, Finish) for d in heard.deltas)
    else:
        assert isinstance(heard.deltas[-1], Finish)
        assert sum(isinstance(d, Finish) for d in heard.deltas) == 1
    begun: set[int] = set()
    for delta in heard.deltas:
        if isinstance(delta, ToolCallDelta):
            assert (delta.id is not None and delta.name is not None) or delta.index in begun
            begun.add(delta.index)
    assert sorted(begun) == list(range(len(begun)))
    message = heard.turn.message()
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)
    # Everything that is heard can be stored and sent on.
    json.dumps([message.text, message.reasoning, [c.arguments for c in message.tool_calls]]).encode()
    (message.text + message.reasoning + "".join(c.arguments + c.name + c.id for c in message.tool_calls)).encode()


def assert_broken_streams_end_well(turns: Sequence[Sequence[bytes]], make: Callable[[], Reader], seeds: range) -> None:
    """Reads mutations of these turns; a failure names its seed."""
    for seed in seeds:
        blocks = mutated(turns[seed % len(turns)], seed)
        try:
            check(heard_of(blocks, make()))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {b''.join(blocks)!r}") from error
