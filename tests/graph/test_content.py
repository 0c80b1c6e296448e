"""Messages hold text, or parts: read from outside, stored, and sent."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.checkpoints import codec
from graphflow.content import AudioPart, CitationPart, FilePart, ImagePart, RefusalPart, TextPart, described
from graphflow.messages import AIMessage, HumanMessage, ProviderState, ToolCall, ToolMessage, from_wire, to_wire

PNG = b"\x89PNG"
PARTS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}, ImagePart(url="https://x/y.png", detail="low")),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}, ImagePart(data=PNG, media_type="image/png", size=4)),
    ({"type": "input_audio", "input_audio": {"data": "iVBORw==", "format": "mp3"}}, AudioPart(data=PNG, media_type="audio/mpeg")),
    (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,iVBORw=="}},
        FilePart(name="a.pdf", data=PNG, media_type="application/pdf", size=4),
    ),
    ({"type": "refusal", "refusal": "No."}, RefusalPart(refusal="No.")),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "part"), PARTS, ids=lambda value: str(value)[:30])
def test_a_part_in_the_openai_form_is_read_and_sent_as_it_was(wire: dict[str, Any], part: Any) -> None:
    message = from_wire({"role": "user", "content": [{"type": "text", "text": "See:"}, wire]})
    assert message == HumanMessage(content=(TextPart(text="See:"), part))
    assert to_wire(message)["content"] == [{"type": "text", "text": "See:"}, wire]
    assert message.text == "See:" + (part.refusal if isinstance(part, RefusalPart) else "")


def test_texts_alone_are_a_str() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert from_wire({"role": "user", "content": parts}) == HumanMessage(content="ab")


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "video", "url": "x"}, "has type 'video'; types are audio, citation, file, image, refusal, text"),
        ({"type": "image", "detail": "low"}, "needs one of url, data, blob, upload"),
        ({"type": "image", "url": 5}, "type 'image' can't be read: Expected .str"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, "must be data:TYPE;base64,BYTES"),
        ({"type": "input_audio", "input_audio": {"data": "?!"}}, "is not base64"),
    ],
)
def test_a_part_that_is_none_is_refused_and_not_dropped(part: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_wire({"role": "user", "content": [part]})


WHOLE = [
    HumanMessage(content=(TextPart(text="a"), *(part for _, part in PARTS))),
    ToolMessage(tool_call_id="c", content=(ImagePart(data=PNG),)),
    AIMessage(content=(TextPart(text="a"), CitationPart(url="https://x", title="X", start=0, end=1))),
    AIMessage(
        content="a",
        tool_calls=(ToolCall(id="c", name="f", provider_state=ProviderState(provider="p", model="m", data={"s": [1, {"x": None}]})),),
        provider_state=ProviderState(provider="p", model="m", data={"items": [{"type": "t", "big": 2**70}], "t": True}),
    ),
]  # fmt: skip


@pytest.mark.parametrize("message", WHOLE, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("beside", ["", "\ud800"], ids=["plain", "beside what msgpack has no word for"])
def test_parts_and_provider_state_are_stored_whole(message: Any, beside: str) -> None:
    assert codec.decode(codec.encode([message, beside])) == [message, beside]


def test_what_is_shown_of_a_part_has_no_bytes() -> None:
    assert described(ImagePart(data=PNG, media_type="image/png")) == {
        "type": "image",
        "mediaType": "image/png",
        "size": 4,
    }
    assert described(ImagePart(url="data:image/png;base64,iVBORw==")) == {
        "type": "image",
        "url": "data:image/png;base64",
    }


def test_provider_state_shows_nothing_of_its_data() -> None:
    state = ProviderState(provider="p", model="m", data={"s": "opaque"})
    assert "opaque" not in repr(AIMessage(content="a", provider_state=state))
