"""Tool loops of two and more requests, against a fake that refuses what the service refuses (see `service.py`)."""

from __future__ import annotations

from typing import Any

from graphflow.content import FilePart, ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, complete
from tests.models.raw_server import RawServer, raw_server
from tests.models.responses.service import call, created, ended, event, reasoning, service, text, turn
from tests.models.turns import OpenClient, spec

ASK: list[Message] = [SystemMessage(content="Be short."), HumanMessage(content="Weather in Paris and Rome?")]
ANSWER = turn(text("Sun", "ny."))


async def loop(model: ChatModel, messages: list[Message], rounds: int, **options: Any) -> list[Message]:
    """A tool loop of so many requests; every call gets a result."""
    for _ in range(rounds):
        done = (await complete(model, messages, spec("weather"), **options)).message
        messages = [*messages, done]
        messages += [ToolMessage(tool_call_id=c.id, name=c.name, content=f"21°C {c.id}") for c in done.tool_calls]
    return messages


def sent(server: RawServer, number: int = -1) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.requests[number].json["input"]
    return items


def kinds(server: RawServer, number: int = -1) -> list[str]:
    return [item.get("role") or item["type"] for item in sent(server, number)]


async def test_encrypted_reasoning_goes_back_whole_before_its_call(opened: OpenClient) -> None:
    """https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items; the content of the item that is
    announced may be incomplete, so that of the finished item counts: https://github.com/openai/openai-python/pull/3615."""
    first = turn(reasoning("gAAAA-1", "**Look**"), call("weather", '{"city":"Paris"}', "call_1", index=1))
    async with raw_server(*service(first, ANSWER, issued=["gAAAA-1"])) as server:
        said = await loop(opened(server.url), ASK, 2)
        assert kinds(server) == ["user", "reasoning", "function_call", "function_call_output"]
        assert sent(server)[1] == {
            "type": "reasoning",
            "id": "rs_gAAAA-1",
            "summary": [{"type": "summary_text", "text": "**Look**"}],
            "encrypted_content": "gAAAA-1",
        }
        assert server.requests[-1].json["instructions"] == "Be short."
    assert isinstance(said[2], AIMessage) and said[2].reasoning == "**Look**"
    assert said[-1] == AIMessage(content="Sunny.")


async def test_each_of_several_requests_has_the_reasoning_of_all_before(opened: OpenClient) -> None:
    """https://developers.openai.com/cookbook/examples/responses_api/reasoning_items: within a turn all of it goes back."""
    first = turn(reasoning("e1"), call("weather", '{"city":"Paris"}', "call_1", index=1))
    second = turn(reasoning("e2"), call("weather", '{"city":"Rome"}', "call_2", index=1))
    async with raw_server(*service(first, second, ANSWER, issued=["e1", "e2"])) as server:
        await loop(opened(server.url), ASK, 3)
        assert [item["encrypted_content"] for item in sent(server) if item["type"] == "reasoning"] == ["e1", "e2"]


async def test_parallel_calls_after_one_reasoning_stay_in_their_order(opened: OpenClient) -> None:
    """https://github.com/vercel/ai/issues/7099."""
    first = turn(
        reasoning("e1"),
        call("weather", '{"city":"Paris"}', "call_1", index=1),
        call("weather", '{"city":"Rome"}', "call_2", index=2),
    )
    async with raw_server(*service(first, ANSWER, issued=["e1"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server)[1:] == ["reasoning", *["function_call"] * 2, *["function_call_output"] * 2]


async def test_reasoning_between_parallel_calls_stays_there(opened: OpenClient) -> None:
    """https://github.com/rikkahub/rikkahub/issues/1690: the reasoning of each call is asked for."""
    first = turn(
        reasoning("e1"),
        call("weather", '{"city":"Paris"}', "call_1", index=1),
        reasoning("e2", index=2),
        call("weather", '{"city":"Rome"}', "call_2", index=3),
    )
    async with raw_server(*service(first, ANSWER, issued=["e1", "e2"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server)[1:5] == ["reasoning", "function_call", "reasoning", "function_call"]


async def test_a_comment_before_a_call_keeps_its_place_and_its_phase(opened: OpenClient) -> None:
    """https://github.com/continuedev/continue/issues/11994 (order), the SDK's `EasyInputMessageParam.phase` (phase)."""
    first = turn(
        reasoning("e1"),
        text("I look", " it up.", index=1, phase="commentary"),
        call("weather", "{}", "call_1", index=2),
    )
    async with raw_server(*service(first, ANSWER, issued=["e1"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server)[1:] == ["reasoning", "assistant", "function_call", "function_call_output"]
        assert sent(server)[2]["phase"] == "commentary"


async def test_a_comment_after_a_call_stands_before_the_results_and_after_the_call(opened: OpenClient) -> None:
    """https://github.com/leookun/cursor-byok/issues/307: some models call first and then explain."""
    first = turn(reasoning("e1"), call("weather", "{}", "call_1", index=1), text("I look it up.", index=2))
    async with raw_server(*service(first, ANSWER, issued=["e1"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server)[1:] == ["reasoning", "function_call", "assistant", "function_call_output"]


async def test_a_model_without_reasoning_gets_calls_and_results_alone(opened: OpenClient) -> None:
    """https://github.com/pydantic/pydantic-ai/issues/2865: it refuses to be asked for encrypted reasoning."""
    first = turn(call("weather", '{"city":"Paris"}', "call_1"))
    async with raw_server(*service(first, ANSWER)) as server:
        said = await loop(opened(server.url, "gpt-4.1-mini"), ASK, 2)
        assert sent(server)[1:] == [
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Paris"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "21°C call_1"},
        ]
    assert isinstance(said[2], AIMessage) and said[2].provider_state is None


async def test_reasoning_goes_to_no_other_model_and_no_other_provider(opened: OpenClient) -> None:
    """https://github.com/Wei-Shaw/sub2api/issues/3138: a service that did not write it can't read it."""
    first = turn(reasoning("e1"), call("weather", "{}", "call_1", index=1))
    async with raw_server(*service(first, ANSWER, issued=["e1"])) as server:
        said = await loop(opened(server.url), ASK, 1)
    for model, key in (("gpt-5.6", "openai"), ("gpt-5.5", "azure")):
        async with raw_server(*service(ANSWER)) as server:
            await loop(opened(server.url, model, key=key), said, 1)
            assert kinds(server) == ["user", "function_call", "function_call_output"]


async def test_a_turn_of_another_provider_becomes_plain_items(opened: OpenClient) -> None:
    """https://platform.openai.com/docs/api-reference/responses/create: ids of calls have at most 64 characters."""
    foreign = ProviderState(
        provider="anthropic", model="claude", data={"content": [{"type": "thinking", "signature": "s"}]}
    )
    long_id = "toolu_" + "x" * 90
    history: list[Message] = [
        *ASK,
        AIMessage(
            content="Hm.",
            reasoning="secret",
            tool_calls=(ToolCall(id=long_id, name="weather"),),
            provider_state=foreign,
        ),
        ToolMessage(tool_call_id=long_id, content="21"),
    ]
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url), history, 1)
        assert kinds(server) == ["user", "assistant", "function_call", "function_call_output"]
        assert b"secret" not in server.requests[0].body


async def test_reasoning_that_led_to_nothing_stays_behind(opened: OpenClient) -> None:
    """https://github.com/vercel/ai/issues/7099: reasoning without its following item is refused."""
    cut = turn(reasoning("e1"), end=ended("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    async with raw_server(*service(cut, ANSWER)) as server:
        model = opened(server.url)
        said = await loop(model, ASK, 1)
        await loop(model, [*said, HumanMessage(content="Go on.")], 1)
        assert kinds(server) == ["user", "user"]


async def test_reasoning_stays_behind_where_its_message_was_edited(opened: OpenClient) -> None:
    """https://github.com/vercel/ai/issues/7099: what it led to is no longer there."""
    first = turn(reasoning("e1"), text("Rainy.", index=1))
    async with raw_server(*service(first, ANSWER)) as server:
        model = opened(server.url)
        said = (await loop(model, ASK, 1))[-1]
        assert isinstance(said, AIMessage)
        edited = AIMessage(content="Snowy, it said.", provider_state=said.provider_state)
        await loop(model, [*ASK, edited, HumanMessage(content="Sure?")], 1)
        assert kinds(server) == ["user", "assistant", "user"]


async def test_reasoning_without_its_content_is_not_referred_to(opened: OpenClient) -> None:
    """https://github.com/vercel/ai/issues/7543: nothing was stored that an id could name."""
    bare: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}
    first = turn(
        [event("response.output_item.done", output_index=0, item=bare)], call("weather", "{}", "call_1", index=1)
    )
    async with raw_server(*service(first, ANSWER)) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server) == ["user", "function_call", "function_call_output"]


async def test_open_reasoning_goes_back_as_its_content(opened: OpenClient) -> None:
    """https://github.com/rikkahub/rikkahub/issues/1690: DeepSeek behind this protocol wants `reasoning_text` back."""
    content = [{"type": "reasoning_text", "text": "Paris first."}]
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "content": content}
    first = turn(
        [event("response.output_item.done", output_index=0, item=item)], call("weather", "{}", "call_1", index=1)
    )
    async with raw_server(*service(first, ANSWER)) as server:
        await loop(opened(server.url, "deepseek-v4-flash", key="deepseek"), ASK, 2)
        assert sent(server)[1]["content"] == content


async def test_a_call_whose_arguments_do_not_parse_goes_back_as_an_empty_one(opened: OpenClient) -> None:
    """https://platform.openai.com/docs/guides/function-calling: arguments are JSON text; the result says what was wrong."""
    first = turn(call("weather", '{"city":', "call_1"))
    async with raw_server(*service(first, ANSWER)) as server:
        await loop(opened(server.url), ASK, 2)
        assert sent(server)[1]["arguments"] == "{}"


async def test_an_id_that_was_used_before_is_told_apart_here_and_sent_as_it_was(opened: OpenClient) -> None:
    """https://github.com/vllm-project/vllm/pull/36445: servers number the calls of each turn anew."""
    first, second = turn(call("weather", "{}", "call_0")), turn(call("weather", '{"x":1}', "call_0"))
    async with raw_server(*service(first, second, ANSWER)) as server:
        said = await loop(opened(server.url, key="vllm"), ASK, 3)
        assert [item["call_id"] for item in sent(server)[1:]] == ["call_0"] * 4
    assert len({c.id for m in said if isinstance(m, AIMessage) for c in m.tool_calls}) == 2


async def test_pictures_and_files_go_as_parts_in_questions_and_results(opened: OpenClient) -> None:
    """https://platform.openai.com/docs/guides/images-vision, https://platform.openai.com/docs/guides/pdf-files."""
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    history: list[Message] = [
        HumanMessage(content=(TextPart(text="What?"), picture, FilePart(data=b"%PDF", media_type="application/pdf"))),
        AIMessage(tool_calls=(ToolCall(id="call_1", name="weather"),)),
        ToolMessage(tool_call_id="call_1", content=(TextPart(text="seen"), ImagePart(url="https://example.org/a.png"))),
    ]
    async with raw_server(*service(ANSWER)) as server:
        await loop(opened(server.url), history, 1)
        items = sent(server)
    assert items[0]["content"] == [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw=="},
        {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,JVBERg=="},
    ]
    assert items[2]["output"][1]["image_url"] == "https://example.org/a.png"


async def test_a_response_without_its_output_at_the_end_is_replayed_from_its_events(opened: OpenClient) -> None:
    """https://github.com/BerriAI/litellm/pull/32724: the last event's `output` is empty at some gateways."""
    first = turn(reasoning("e1"), call("weather", "{}", "call_1", index=1), end=ended(output=[]))
    async with raw_server(*service(first, ANSWER, issued=["e1"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server) == ["user", "reasoning", "function_call", "function_call_output"]


async def test_a_response_that_only_its_end_tells_of_is_replayed_from_there(opened: OpenClient) -> None:
    """https://github.com/ENTERPILOT/GoModel/pull/831: some gateways stream no items."""
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e1"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    ]
    async with raw_server(*service([created(), ended(output=output)], ANSWER, issued=["e1"])) as server:
        await loop(opened(server.url), ASK, 2)
        assert kinds(server) == ["user", "reasoning", "function_call", "function_call_output"]
