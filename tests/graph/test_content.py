"""Messages hold text, or parts: read from outside, stored, and sent."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from graphflow import MemoryCheckpointer, load_graph
from graphflow.checkpoints import codec
from graphflow.content import AudioPart, CitationPart, FilePart, ImagePart, RefusalPart, TextPart, described
from graphflow.graph.expressions.cel_library import to_cel, to_plain
from graphflow.json_data import encode_json, plain
from graphflow.messages import AIMessage, HumanMessage, ProviderState, ToolCall, ToolMessage, from_wire, to_wire
from graphflow.models.options import ChatOptions
from graphflow.models.scripted.model import ScriptedModel
from graphflow.value_size import size_of

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


@pytest.mark.parametrize(
    "part",
    [FilePart(data=PNG, name="a.pdf"), FilePart(blob="0" * 64, stored=5), ImagePart(upload="u"), AudioPart(url="https://x/y")],
    ids=lambda part: part.type,
)  # fmt: skip
def test_a_part_in_our_own_form_is_read_as_it_was(part: Any) -> None:
    """A file was dropped without a word: its type is that of a blank part in the OpenAI form."""
    shown = json.loads(encode_json(part))
    assert from_wire({"role": "user", "content": [shown]}) == HumanMessage(content=(part,))


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


# --- provider state, on every way out ------------------------------------------------------------

SECRET = "EtsBCkgICBABGAIqQ"
STATE = ProviderState(provider="p", model="m", data={"signature": SECRET})
CALL = ToolCall(id="c", name="f", provider_state=STATE)
MESSAGES = {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}
SAID = AIMessage(id="a", content="one", tool_calls=(CALL,), provider_state=STATE)


def test_provider_state_is_shown_as_its_size_wherever_a_message_becomes_text_or_json() -> None:
    shown = [repr(SAID), encode_json([SAID]).decode(), json.dumps(to_wire(SAID)), json.dumps(to_plain(SAID))]
    shown += [str(to_cel([SAID])), str(msgspec.to_builtins(SAID, enc_hook=plain))]
    assert not any(SECRET in text for text in shown)
    assert encode_json(SAID).count(b" bytes, sha256:") == 2


def test_the_size_of_a_message_counts_its_provider_state() -> None:
    large = ProviderState(provider="p", model="m", data={"signature": "x" * 10_000})
    assert 10_000 < size_of(AIMessage(provider_state=large), 100_000) < 10_200


async def test_a_message_that_is_read_as_json_changed_and_written_back_keeps_its_provider_state() -> None:
    """What JSON shows stands for the state; one that nobody knows is none."""
    document = {"graphflow": "1", "start": "a", "state": MESSAGES, "nodes": {"a": {"use": "node:say", "next": "end"}}}
    app = load_graph(document, nodes={"say": lambda state: {"messages": [SAID]}}, checkpointer=MemoryCheckpointer())
    await app.run({"query": "hello"}, "t")
    thread = app.thread("t")
    shown = msgspec.json.decode(encode_json((await thread.state()).values["messages"][-1]))
    await thread.edit({"messages": [shown | {"content": "two"}]})
    edited = (await thread.state()).values["messages"][-1]
    assert edited == msgspec.structs.replace(SAID, content="two")
    shown["providerState"]["data"] = "12 bytes, sha256:00"
    await thread.edit({"messages": [shown]})
    assert (await thread.state()).values["messages"][-1].provider_state is None


async def test_messages_that_an_expression_chose_keep_their_provider_state() -> None:
    """CEL gets maps of messages; the model node gets the messages back."""
    document = {
        "graphflow": "1", "start": "a", "state": MESSAGES,
        "nodes": {"a": {"use": "node:say", "next": "b"},
                  "b": {"use": "model", "with": {"messages": "${state.messages.filter(m, m.role != 'user')}"}, "next": "end"}},
    }  # fmt: skip
    seen: list[Any] = []

    class Model(ScriptedModel):
        async def stream(self, messages: Any, tools: Any = (), options: Any = ChatOptions()) -> Any:
            seen.extend(messages)
            async for delta in super().stream(messages, tools, options):
                yield delta

    model = Model({"turns": [{"text": "done"}]})
    result = ToolMessage(tool_call_id="c", content="r")
    app = load_graph(document, nodes={"say": lambda state: {"messages": [SAID, result]}}, model=model)
    assert (await app.run({"query": "hello"})).status == "completed"
    assert seen == [SAID, result]
