"""The SSE decoder: every way of cutting and writing a stream gives the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.models.remote import sse_decoder as sse
from graphflow.models.remote.sse_decoder import EventTooLong, SseDecoder, SseEvent

STREAM = (
    ": keep-alive\n\n"
    'data: {"a":"北京 🌧"}\n\n'
    "event: ping\n\n"
    "data:no space\n"
    "data: second line\n\n"
    "data:\n\n"
    "id: 7\nretry: 10\nevent: error\ndata: {}\n\n"
    'error: {"code":500}\n\n'
    "data: [DONE]\n\n"
    "data: pending"
).encode()

EVENTS = [
    SseEvent('{"a":"北京 🌧"}'.encode()),
    SseEvent(b"no space\nsecond line"),
    SseEvent(b"{}", "error"),
    SseEvent(b"", None, b'{"code":500}'),
    SseEvent(b"[DONE]"),
    SseEvent(b"pending"),
]


def decode(*blocks: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    events = [event for block in blocks for event in decoder.feed(block)]
    return events + decoder.close()


@given(st.data(), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_any_cut_of_the_bytes_gives_the_same_events(data: st.DataObject, newline: str, bom: bool) -> None:
    stream = STREAM.replace(b"\n", newline.encode())
    if bom:
        stream = b"\xef\xbb\xbf" + stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    blocks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decode(*blocks) == EVENTS


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_bytes_that_come_one_by_one_give_the_same_events(newline: bytes) -> None:
    stream = STREAM.replace(b"\n", newline)
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == EVENTS


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)))
def test_what_is_written_as_data_lines_is_read_back(lines: list[str]) -> None:
    stream = "".join(f"data: {line}\n\n" for line in lines).encode()
    assert [event.data.decode() for event in decode(stream)] == lines


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_whatever_raise_an_error(blocks: list[bytes]) -> None:
    assert all(isinstance(event, SseEvent) for event in decode(*blocks))


def test_an_event_is_given_out_with_its_blank_line_and_not_one_byte_later() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [SseEvent(b"a")]
    assert decoder.feed(b"data: b\r") == []
    assert decoder.feed(b"\r") == [SseEvent(b"b")], "a bare CR ends the line at once"


def test_a_line_of_sixteen_megabytes_is_read() -> None:
    line = b"x" * (16 * 1024 * 1024)
    blocks = [b"data: ", *(line[i : i + 65536] for i in range(0, len(line), 65536)), b"\n\n"]
    assert decode(*blocks) == [SseEvent(line)]


def test_an_event_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    decoder = SseDecoder()
    assert decoder.feed(b"x" * 800) == []
    with pytest.raises(EventTooLong):
        decoder.feed(b"x" * 400)
