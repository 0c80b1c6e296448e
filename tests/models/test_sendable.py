"""What a conversation has and a protocol has no field for is said as text, refused or reported; nothing is dropped silently."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from graphflow.content import AudioPart, FilePart, ImagePart, MediaPart, TextPart, content_of
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage
from graphflow.models.chat_model import ChatModel
from graphflow.models.options import ToolSpec
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.providers import open_provider
from graphflow.models.remote.finish_reasons import finish_reason
from graphflow.models.remote.retry import Limits
from graphflow.models.sendable import apart
from tests.models.raw_server import RawServer, body, event, raw_server, stream
from tests.models.turns import OpenClient, hear

PROTOCOLS = ("openai", "responses", "anthropic", "gemini", "library")
REFUSED = body(400, b'{"error": {"message": "no"}}')


def opened(protocol: Any, server: RawServer) -> ChatModel:
    provider = Provider(key="mine", profile=Profile(protocol=protocol), base_url=server.url, api_key="k-123456")
    return open_provider(provider, "m", {}, limits=Limits(max_retries=0))


async def requested(protocol: str, *messages: Message) -> list[str]:
    """The bodies of the requests for a turn."""
    async with raw_server(REFUSED) as server:
        model = opened(protocol, server)
        assert (await hear(model, messages)).failure.code == "provider_error"
        await model.aclose()
        return [json.dumps(json.loads(request.body), ensure_ascii=False) for request in server.requests]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("content", ["Who am I?", (TextPart(text="Who am I?"), ImagePart(url="https://e.org/a.png"))])
async def test_the_name_of_a_user_reaches_the_model(protocol: str, content: Any) -> None:
    """Three protocols have no field for it, and the fourth refuses a name with a space."""
    (sent,) = await requested(protocol, SystemMessage(content="s"), HumanMessage(content=content, name="Zoë Meier"))
    assert "Zoë Meier:" in sent and "Who am I?" in sent
    assert '"name": "Zoë Meier"' not in sent


async def test_a_name_that_the_protocol_has_a_field_for_stays_in_it() -> None:
    (sent,) = await requested("openai", HumanMessage(content="hi", name="ann_1"))
    assert json.loads(sent)["messages"] == [{"role": "user", "name": "ann_1", "content": "hi"}]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("part", "why"),
    [
        (ImagePart(url="file:///etc/passwd"), "only https:, http: and data: URLs are sent"),
        (FilePart(url="gs://bucket/a.pdf"), "only https:, http: and data: URLs are sent"),
        (AudioPart(upload="u1"), "give it data or a url"),
        (ImagePart(blob="0" * 64), "give it data or a url"),
        (ImagePart(), "neither data nor a url"),
        (ImagePart(url="https://e.org/a.png", data=b"x"), "a url and data"),
        (ImagePart(url="data:image/png,%89PNG"), "must be data:TYPE;base64,BYTES"),
        (FilePart(url="data:application/pdf;base64,#"), "not base64"),
    ],
)
async def test_a_part_that_must_not_be_sent_is_refused_before_the_request(
    protocol: str, part: MediaPart, why: str
) -> None:
    """Only runs checked it: a model that was used by itself sent any URL on."""
    async with raw_server(REFUSED) as server:
        model = opened(protocol, server)
        failure = (await hear(model, [HumanMessage(content="hi"), HumanMessage(content=(part,))])).failure
        await model.aclose()
        assert not server.requests
    assert (failure.code, failure.retryable) == ("provider_error", False)
    assert "message 1" in failure.message and why in failure.message


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(content=(TextPart(text="Look."), ImagePart(url="data:image/png;base64,aGkhIQ=="))),
        HumanMessage(content=(FilePart(url="DATA:application/pdf;base64,aGkhIQ==", name="a.pdf"),)),
    ],
)
async def test_bytes_in_a_url_are_sent_as_bytes(protocol: str, message: HumanMessage) -> None:
    """Two protocols sent a `data:` URL as one that the provider should fetch."""
    (given,) = await requested(protocol, message)
    part = message.content[-1]
    assert isinstance(part, MediaPart)
    same = msgspec.structs.replace(part, url=None, data=b"hi!!", media_type=str(part.url)[5:].partition(";")[0])
    (expected,) = await requested(protocol, HumanMessage(content=(*message.content[:-1], same)))
    assert given == expected
    assert "aGkhIQ==" in given and '"fileData"' not in given and '"url", "url"' not in given


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_http_address_is_sent_to_those_that_fetch_it(protocol: str) -> None:
    """Anthropic: "Only HTTPS URLs are supported"."""
    async with raw_server(REFUSED) as server:
        model = opened(protocol, server)
        failure = (await hear(model, [HumanMessage(content=(ImagePart(url="http://e.org/a.png"),))])).failure
        await model.aclose()
    assert ("fetches https: URLs only" in failure.message) == (protocol == "anthropic")
    assert len(server.requests) == (protocol != "anthropic")


@pytest.mark.parametrize(
    ("protocol", "part", "sent", "unsent"),
    [
        ("openai", FilePart(data=b"%PDF-1.7"), '"filename": "file.pdf"', "octet-stream"),
        ("openai", ImagePart(data=b"\xff\xd8\xff\xe0"), "data:image/jpeg;base64,", "image/png"),
        ("anthropic", ImagePart(data=b"RIFF....WEBPVP8 "), '"media_type": "image/webp"', "image/png"),
        ("gemini", ImagePart(url="https://e.org/a.jpg?size=2"), '"mimeType": "image/jpeg"', "image/png"),
        ("gemini", ImagePart(url="https://e.org/picture"), "https://e.org/picture", "mimeType"),
        ("gemini", AudioPart(data=b"OggS...."), '"mimeType": "audio/ogg"', "audio/wav"),
        ("gemini", FilePart(data=b"a,b", name="t.csv"), '"mimeType": "text/csv"', "application/pdf"),
    ],
)
async def test_a_part_without_a_type_or_a_name_gets_its_own(
    protocol: str, part: MediaPart, sent: str, unsent: str
) -> None:
    """Any picture was called a PNG, and bytes of a file without a name were refused by chat completions."""
    (body,) = await requested(protocol, HumanMessage(content=(TextPart(text="hi"), part)))
    assert sent in body and unsent not in body


async def test_a_sound_of_a_form_that_openai_does_not_take_is_refused_before_the_request() -> None:
    async with raw_server(REFUSED) as server:
        provider = Provider(key="openai", profile=PROFILES["openai"], base_url=server.url, api_key="k-123456")
        model = open_provider(provider, "gpt-6-luna", {}, limits=Limits(max_retries=0))
        for part in (AudioPart(data=b"OggS"), AudioPart(data=b"x", media_type="audio/ogg")):
            failure = (await hear(model, [HumanMessage(content=(part,))])).failure
            assert "'audio/ogg', and the provider takes wav and mp3" in failure.message
        await hear(model, [HumanMessage(content=(AudioPart(data=b"ID3"),))])
        await model.aclose()
    (request,) = server.requests
    assert request.json["messages"][0]["content"][0]["input_audio"]["format"] == "mp3"


@pytest.mark.parametrize("protocol", ["openai", "responses", "anthropic"])
async def test_a_picture_in_what_an_assistant_said_is_reported_where_it_is_left_out(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = AIMessage(content=(TextPart(text="Here."), ImagePart(data=b"x", media_type="image/png")))
    await requested(protocol, HumanMessage(content="draw"), said, HumanMessage(content="more"))
    assert "model.part_left_out" in capsys.readouterr().err


# --- how a turn ended ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        "function_call_filter: MALFORMED_FUNCTION_CALL",
        "function_call_filter: UNEXPECTED_TOOL_CALL",
        "malformed_function_call",
    ],
)
async def test_a_turn_that_gemini_spoiled_is_an_error_under_the_openai_protocol_too(
    open_client: OpenClient, reason: str
) -> None:
    spoiled = event({"choices": [{"delta": {"content": ""}, "finish_reason": reason}]})
    fine = event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    async with raw_server(stream(spoiled), stream(fine)) as server:
        failure = (await hear(open_client(server.url))).failure
        assert (failure.code, failure.retryable) == ("provider_error", True)
        assert reason in failure.message
        assert (await hear(open_client(server.url, limits=Limits(max_retries=1)))).texts == ["x"]


@pytest.mark.parametrize("raw", ["content_filter: PROHIBITED_CONTENT", "RECITATION", "content_filter: OTHER"])
def test_a_reason_with_a_cause_behind_it_counts_as_the_reason(raw: str) -> None:
    assert finish_reason(raw, has_calls=False) == "content_filter"


# --- what the newest OpenAI models refuse in chat completions ------------------------------------

TOOLS = (ToolSpec(name="look"),)
Case = tuple[str, Sequence[ToolSpec], dict[str, Any], dict[str, Any]]
CASES: list[Case] = [
    ("gpt-6-luna", TOOLS, {"temperature": 0.2}, {"reasoning_effort": "none", "temperature": 0.2}),
    ("gpt-6-luna", TOOLS, {"compute": "HIGH"}, {"reasoning_effort": "none"}),
    ("gpt-6-luna", (), {"compute": "HIGH", "temperature": 0.2}, {"reasoning_effort": "high"}),
    ("gpt-6-luna", (), {"top_p": 0.5}, {}),
    ("gpt-6-luna", (), {"reasoning_effort": "none", "top_p": 0.5}, {"reasoning_effort": "none", "top_p": 0.5}),
    ("gpt-5.6-terra", TOOLS, {}, {"reasoning_effort": "none"}),
    ("gpt-6.1-sol", TOOLS, {}, {}),
    ("gpt-4.1", TOOLS, {"temperature": 0.2}, {"temperature": 0.2}),
]


@pytest.mark.parametrize(("model", "tools", "options", "fields"), CASES)
async def test_an_openai_model_is_not_sent_what_it_refuses(
    model: str, tools: Sequence[ToolSpec], options: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Tools only with the effort `none`, sampling only without thinking: https://github.com/ItzCrazyKns/Vane/issues/1173."""
    async with raw_server(REFUSED) as server:
        provider = Provider(key="openai", profile=PROFILES["openai"], base_url=server.url, api_key="k-123456")
        client = open_provider(provider, model, {}, limits=Limits(max_retries=0))
        await hear(client, tools=tools, **options)
        await client.aclose()
        sent = server.requests[0].json
    assert {n: sent[n] for n in ("reasoning_effort", "temperature", "top_p") if n in sent} == fields


def test_what_stands_for_a_picture_stands_on_a_line_of_its_own() -> None:
    """The texts of a message are joined as they are: it was `look[image: cat]here`."""
    given = (TextPart(text="look"), ImagePart(url="https://e.org/a.png"), TextPart(text="here"))
    named = (given[0], TextPart(text="[image: cat]"), given[2])
    assert content_of(apart(named, given)) == "look\n[image: cat]\nhere"
    assert apart(named[1:2], given[1:2]) == [TextPart(text="[image: cat]")]
    assert content_of(apart(given, given)) == given
