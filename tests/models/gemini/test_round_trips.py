"""Tool loops of two and more requests, against a fake that refuses what the service refuses (see `service.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, ToolSpec, complete
from graphflow.models.providers import open_provider, resolve_provider
from tests.models.gemini.service import FILLER, STOP, call, chunk, service, text, thought
from tests.models.raw_server import RawServer, raw_server
from tests.models.turns import OpenClient

ASK: list[Message] = [SystemMessage(content="Be short."), HumanMessage(content="Weather in Paris and Rome?")]
ANSWER = [chunk(text("Sun")), chunk(text("ny."), finish="STOP")]
WEATHER = ToolSpec(name="weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PARIS, ROME = {"city": "Paris"}, {"city": "Rome"}


async def loop(model: ChatModel, messages: list[Message], rounds: int, **options: Any) -> list[Message]:
    """A tool loop of so many requests; every call gets a result."""
    for _ in range(rounds):
        done = (await complete(model, messages, [WEATHER, ToolSpec(name="ping")], **options)).message
        messages = [*messages, done]
        messages += [
            ToolMessage(tool_call_id=c.id, name=c.name, content=f"21°C {c.arguments}") for c in done.tool_calls
        ]
    return messages


def sent(server: RawServer, number: int = -1) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = server.requests[number].json["contents"]
    return said


async def test_the_signature_of_each_step_goes_back(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures#sequential-example."""
    first, second = [chunk(call("weather", PARIS, "sig-A")), STOP], [chunk(call("weather", ROME, "sig-B")), STOP]
    async with raw_server(*service(first, second, ANSWER, issued=["sig-A", "sig-B"])) as server:
        said = await loop(opened(server.url), ASK, 3)
        signed = [part.get("thoughtSignature") for c in sent(server) for part in c["parts"] if "functionCall" in part]
        assert server.requests[0].json["systemInstruction"] == {"parts": [{"text": "Be short."}]}
    assert (signed, said[-1]) == (["sig-A", "sig-B"], AIMessage(content="Sunny."))


async def test_of_parallel_calls_only_the_first_is_signed_and_the_results_stand_together(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures#parallel-example."""
    first = [chunk(call("weather", PARIS, "sig-A"), call("weather", ROME)), STOP]
    async with raw_server(*service(first, ANSWER, issued=["sig-A"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert [len(content["parts"]) for content in sent(server)] == [1, 2, 2]
        assert ["thoughtSignature" in part for part in sent(server)[1]["parts"]] == [True, False]


async def test_parallel_calls_may_come_in_several_chunks(opened: OpenClient) -> None:
    """https://github.com/quarkiverse/quarkus-langchain4j/pull/1271."""
    first = [chunk(call("weather", PARIS, "sig-A")), chunk(call("weather", ROME)), STOP]
    async with raw_server(*service(first, ANSWER, issued=["sig-A"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert len(sent(server)) == 3


async def test_ids_of_calls_go_back_with_calls_and_results(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/function-calling: from Gemini 3 on each call has an id."""
    first = [chunk(call("weather", PARIS, "sig-A", id="a1"), call("weather", ROME, id="a2")), STOP]
    async with raw_server(*service(first, ANSWER, issued=["sig-A"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert [part["functionResponse"]["id"] for part in sent(server)[2]["parts"]] == ["a1", "a2"]


async def test_a_signature_of_a_text_goes_back_on_that_text(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures#non-functioncall-parts: it may come on an empty last part."""
    first = [chunk(text("Hello")), chunk(text(" there.")), chunk(text("", thoughtSignature="sig-T"), finish="STOP")]
    async with raw_server(*service(first, ANSWER, issued=["sig-T"])) as server:
        model = opened(server.url)
        await loop(model, [*await loop(model, ASK, 1), HumanMessage(content="And?")], 1)
        assert sent(server)[1]["parts"] == [{"text": "Hello there."}, {"text": "", "thoughtSignature": "sig-T"}]


async def test_text_before_a_signed_call_keeps_its_place(opened: OpenClient) -> None:
    """https://github.com/MayDay-wpf/snow-cli/issues/104."""
    first = [chunk(thought("Hm.")), chunk(text("I look.")), chunk(call("weather", PARIS, "sig-A"), finish="STOP")]
    async with raw_server(*service(first, ANSWER, issued=["sig-A"])) as server:
        said = await loop(opened(server.url), ASK, 2)
        assert [sorted(part) for part in sent(server)[1]["parts"]] == [["text"], ["functionCall", "thoughtSignature"]]
    assert isinstance(said[2], AIMessage) and said[2].reasoning == "Hm."


async def test_calls_of_another_model_get_the_documented_filler(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures#faqs."""
    foreign = ProviderState(provider="openai", model="gpt-5.5", data={"output": [{"type": "reasoning"}]})
    calls = (ToolCall(id="c1", name="weather", arguments='{"city":"Paris"}'), ToolCall(id="c2", name="ping"))
    history: list[Message] = [
        *ASK,
        AIMessage(content="Hm.", reasoning="secret", tool_calls=calls, provider_state=foreign),
        ToolMessage(tool_call_id="c1", content="21"),
        ToolMessage(tool_call_id="c2", content="failed", error=True),
    ]
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url), history, 1)
        parts = sent(server)[1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == [None, FILLER, None]
        assert sent(server)[2]["parts"][1]["functionResponse"]["response"] == {"error": "failed"}
        assert b"secret" not in server.requests[0].body


async def test_signatures_go_to_no_other_model(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: another model gets the filler."""
    first = [chunk(call("weather", PARIS, "sig-A")), STOP]
    async with raw_server(*service(first, issued=["sig-A"])) as server:
        said = await loop(opened(server.url), ASK, 1)
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url, "gemini-3.8-pro"), said, 1)
        assert sent(server)[1]["parts"][0]["thoughtSignature"] == FILLER
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url, "gemini-2.0-flash"), said, 1)
        assert "thoughtSignature" not in sent(server)[1]["parts"][0]


async def test_an_edited_turn_is_sent_without_its_signatures(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: a signature signs what the model wrote."""
    first = [chunk(text("Rainy.", thoughtSignature="sig-T"), finish="STOP")]
    async with raw_server(*service(first, ANSWER)) as server:
        model = opened(server.url)
        said = (await loop(model, ASK, 1))[-1]
        assert isinstance(said, AIMessage)
        edited = AIMessage(content="Snowy, it said.", provider_state=said.provider_state)
        await loop(model, [*ASK, edited, HumanMessage(content="Sure?")], 1)
        assert sent(server)[1]["parts"] == [{"text": "Snowy, it said."}]


async def test_a_function_without_arguments_has_no_schema_and_gets_no_arguments(opened: OpenClient) -> None:
    """https://github.com/google-gemini/gemini-cli/issues/1481: "should be non-empty for OBJECT type"."""
    first = [chunk({"functionCall": {"name": "ping"}, "thoughtSignature": "s"}), STOP]
    async with raw_server(*service(first, ANSWER, issued=["s"])) as server:
        said = await loop(opened(server.url), ASK, 2)
        assert sent(server)[1]["parts"][0]["functionCall"] == {"name": "ping", "args": {}}
    assert isinstance(said[2], AIMessage) and said[2].tool_calls[0].arguments == "{}"


async def test_a_model_without_thinking_runs_the_loop_too(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/thinking: Gemini 2.0 refuses `thinkingConfig`."""
    async with raw_server(*service([chunk(call("weather", PARIS)), STOP], ANSWER)) as server:
        said = await loop(opened(server.url, "gemini-2.0-flash"), ASK, 2)
        assert "generationConfig" not in server.requests[0].json
    assert isinstance(said[2], AIMessage) and said[2].provider_state is None


async def test_pictures_go_as_parts_in_questions_and_in_results(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/image-understanding."""
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    history: list[Message] = [
        HumanMessage(content=(TextPart(text="What?"), picture)),
        AIMessage(tool_calls=(ToolCall(id="c1", name="weather"),)),
        ToolMessage(tool_call_id="c1", content=(TextPart(text="seen"), picture)),
    ]
    inline = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url), history, 1)
        assert sent(server)[0]["parts"] == [{"text": "What?"}, inline]
        assert sent(server)[2]["parts"][0]["functionResponse"]["parts"] == [inline]


@pytest.mark.parametrize(
    ("url", "kind"),
    [("", "GeminiModel"), ("https://generativelanguage.googleapis.com/v1beta/openai/", "OpenAICompatibleModel")],
)
async def test_the_address_says_which_protocol_google_is_spoken_to_in(url: str, kind: str) -> None:
    env = {"GEMINI_API_KEY": "k"} | ({"GEMINI_BASE_URL": url} if url else {})
    model = open_provider(resolve_provider("gemini", env), None, env)
    assert type(model).__name__ == kind
    await model.aclose()
