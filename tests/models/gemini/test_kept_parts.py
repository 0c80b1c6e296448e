"""What Gemini wants back beside texts and calls: code that it ran, images, thoughts that are signed, results with images."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from graphflow.content import AudioPart, CitationPart, ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.profiles import Knobs
from tests.models.gemini.service import FILLER, STOP, call, chunk, service, text
from tests.models.gemini.test_round_trips import ANSWER, ASK, PARIS, ROME, loop, sent
from tests.models.raw_server import raw_server
from tests.models.turns import OpenClient

PICTURE = ImagePart(data=b"\x89PNG", media_type="image/png")
INLINE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
AGAIN = HumanMessage(content="And?")
RAN: list[dict[str, Any]] = [
    {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "sig-C"},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
]


async def test_code_that_was_run_goes_back_with_its_result_and_in_its_place(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/code-execution"""
    first = [chunk(text("I run it.")), *(chunk(part) for part in RAN), chunk(text("It is 1.")), STOP]
    async with raw_server(*service(first, ANSWER, issued=["sig-C"])) as server:
        model = opened(server.url)
        said = await loop(model, ASK, 1)
        await loop(model, [*said, AGAIN], 1)
        assert sent(server)[1]["parts"] == [{"text": "I run it."}, *RAN, {"text": "It is 1."}]
    assert said[-1].text == "I run it.It is 1."


async def test_what_a_tool_of_the_service_was_asked_goes_back_beside_our_calls(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/tool-combination: its parts keep their ids and signatures."""
    searched = {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH", "args": {}}, "thoughtSignature": "sig-S"}
    found = {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH", "response": {"x": [1]}}}
    first = [chunk(searched), chunk(found), chunk(call("weather", PARIS, "sig-A", id="a1")), STOP]
    always = {"tools": [{"googleSearch": {}}], "toolConfig": {"includeServerSideToolInvocations": True}}
    async with raw_server(*service(first, ANSWER, issued=["sig-S", "sig-A"])) as server:
        await loop(opened(server.url, knobs=Knobs(always=always)), ASK, 2)
        parts = sent(server)[1]["parts"]
        asked = server.requests[0].json
    assert [next(iter(part)) for part in parts] == ["toolCall", "toolResponse", "functionCall"]
    assert parts[0] == searched and parts[1] == found
    assert [next(iter(tool)) for tool in asked["tools"]] == ["googleSearch", "functionDeclarations"]
    assert asked["toolConfig"] == {"includeServerSideToolInvocations": True}


async def test_an_image_that_was_drawn_goes_back_with_its_signature(opened: OpenClient) -> None:
    """https://github.com/langchain-ai/langchain-google/issues/1431: "Image part is missing a thought_signature"."""
    drawn = INLINE | {"thoughtSignature": "sig-I"}
    first = [chunk(text("Here: ", thoughtSignature="sig-T")), chunk(drawn), chunk(text("Done."), finish="STOP")]
    async with raw_server(*service(first, ANSWER, issued=["sig-T", "sig-I"])) as server:
        model = opened(server.url, "gemini-3-pro-image")
        said = await loop(model, ASK, 1)
        await loop(model, [*said, AGAIN], 1)
        parts = sent(server)[1]["parts"]
    assert parts == [{"text": "Here: ", "thoughtSignature": "sig-T"}, drawn, {"text": "Done."}]
    assert isinstance(said[-1], AIMessage) and [type(p) for p in said[-1].content] == [TextPart, ImagePart, TextPart]


async def test_an_answer_with_sources_keeps_its_signature(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/google-search: sources come with the last chunk, beside the signature."""
    metadata = {"groundingChunks": [{"web": {"uri": "https://e.org", "title": "E"}}]}
    last = {"content": {"parts": [text("", thoughtSignature="sig-T")]}, "groundingMetadata": metadata}
    first = [chunk(text("Sunny.")), chunk(candidates=[last | {"finishReason": "STOP"}])]
    async with raw_server(*service(first, ANSWER, issued=["sig-T"])) as server:
        model = opened(server.url)
        said = await loop(model, ASK, 1)
        await loop(model, [*said, AGAIN], 1)
        assert sent(server)[1]["parts"] == [{"text": "Sunny."}, {"text": "", "thoughtSignature": "sig-T"}]
    assert isinstance(said[-1], AIMessage) and isinstance(said[-1].content[-1], CitationPart)


async def test_a_thought_that_is_signed_goes_back_whole(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: parts with signatures go back as they came."""
    signed = {"text": "So.", "thought": True, "thoughtSignature": "sig-H"}
    first = [chunk({"text": "Hm. ", "thought": True}), chunk(signed), chunk(text("Sunny."), finish="STOP")]
    async with raw_server(*service(first, ANSWER, issued=["sig-H"])) as server:
        model = opened(server.url)
        said = await loop(model, ASK, 1)
        await loop(model, [*said, AGAIN], 1)
        assert sent(server)[1]["parts"] == [signed, {"text": "Sunny."}]
    assert isinstance(said[-1], AIMessage) and said[-1].reasoning == "Hm. So."


@pytest.mark.parametrize(
    ("model", "part", "nested"),
    [
        ("gemini-3.8-flash", PICTURE, True),
        ("gemini-2.5-flash", PICTURE, False),
        ("gemini-3.8-flash", AudioPart(data=b"RIFF", media_type="audio/wav"), False),
        ("gemini-3.8-flash", ImagePart(url="https://example.org/a.png", media_type="image/png"), False),
    ],
)
async def test_an_image_of_a_result_is_part_of_it_where_the_model_takes_that(
    opened: OpenClient, model: str, part: Any, nested: bool
) -> None:
    """https://ai.google.dev/gemini-api/docs/function-calling#multimodal: from Gemini 3 on, some types; else beside it."""
    calls = (ToolCall(id="c1", name="weather"), ToolCall(id="c2", name="ping"))
    history: list[Message] = [
        *ASK,
        AIMessage(tool_calls=calls),
        ToolMessage(tool_call_id="c1", content=(TextPart(text="seen"), part)),
        ToolMessage(tool_call_id="c2", content="pong"),
    ]
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url, model), history, 1)
        parts = sent(server)[2]["parts"]
    assert len(parts) == (2 if nested else 3)
    assert ("parts" in parts[0]["functionResponse"]) == nested
    assert parts[0]["functionResponse"]["response"] == {"result": "seen"}


async def test_arguments_that_a_person_edited_go_without_the_signature_of_the_others(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures#faqs: what the model did not write gets the filler."""
    first = [chunk(call("weather", PARIS, "sig-A", id="a1"), call("weather", ROME, id="a2")), STOP]
    async with raw_server(*service(first, ANSWER, ANSWER, issued=["sig-A"])) as server:
        model = opened(server.url)
        said = await loop(model, ASK, 1)
        message = said[2]
        assert isinstance(message, AIMessage)
        for written, signature in (('{"city": "Oslo"}', FILLER), ('{"city":"Paris"}', "sig-A")):
            edited = msgspec.structs.replace(message.tool_calls[0], arguments=written)
            calls = (edited, *message.tool_calls[1:])
            said[2] = msgspec.structs.replace(message, tool_calls=calls)
            await loop(model, said, 1)
            parts = sent(server)[1]["parts"]
            assert [part.get("thoughtSignature") for part in parts] == [signature, None]
            assert parts[0]["functionCall"] == {"id": "a1", "name": "weather", "args": json.loads(written)}


async def test_a_call_that_came_unsigned_goes_back_with_the_filler(opened: OpenClient) -> None:
    """https://github.com/earendil-works/pi/pull/1825: the first of a turn's calls needs one."""
    first = [chunk(call("weather", PARIS, id="a1"), call("weather", ROME, id="a2")), STOP]
    async with raw_server(*service(first, ANSWER)) as server:
        await loop(opened(server.url), ASK, 2)
        parts = sent(server)[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [FILLER, None]
    assert [part["functionCall"]["id"] for part in parts] == ["a1", "a2"]


async def test_a_result_whose_call_was_cut_off_is_said_as_text(opened: OpenClient) -> None:
    """https://github.com/google-gemini/gemini-cli/issues/3814: as many results as calls, or the request is refused."""
    history: list[Message] = [ToolMessage(tool_call_id="gone", name="weather", content="21°C"), *ASK[1:]]
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url), history, 1)
        assert sent(server)[0]["parts"] == [{"text": "Result of an earlier call:\n21°C"}]
