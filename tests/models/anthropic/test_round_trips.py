"""What goes back to Anthropic: two and more requests of a tool loop, against a fake that refuses what the service refuses."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from graphflow import MemoryCheckpointer, load_graph, tool
from graphflow.content import ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, ChatOptions, complete
from tests.models.anthropic.service import (
    Service,
    call,
    closed,
    opened,
    piece,
    redacted,
    serving,
    start,
    stop,
    text,
    thinking,
    turn,
)
from tests.models.turns import spec

ASK: list[Message] = [HumanMessage(content="What is the weather in Paris and Rome?")]
ANSWER = turn("end_turn", text(0, "Sunny ", "in both."))


async def loop(model: ChatModel, messages: list[Message], rounds: int, **options: Any) -> list[Message]:
    """A tool loop of so many requests; every call gets a result."""
    for _ in range(rounds):
        done = (await complete(model, messages, spec("weather"), ChatOptions(**options))).message
        messages = [*messages, done]
        messages += [ToolMessage(tool_call_id=c.id, name=c.name, content=f"21°C {c.id}") for c in done.tool_calls]
    return messages


async def test_signed_thinking_goes_back_whole_and_before_its_call() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks"""
    first = turn(
        "tool_use",
        thinking(0, "sig-A", "Let me", " look."),
        text(1, "One moment."),
        call(2, "toolu_1", "weather", '{"city": ', '"Paris"}'),
    )
    service = Service(first, ANSWER)
    async with serving(service) as model:
        said = await loop(model, [*ASK], 2, compute="HIGH")
    assert isinstance(said[1], AIMessage) and said[1].reasoning == "Let me look."
    assert service.requests[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Let me look.", "signature": "sig-A"},
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
    ]
    assert service.refusals == []


async def test_redacted_thinking_goes_back_as_it_came() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking#thinking-redaction"""
    first = turn(
        "tool_use", thinking(0, "sig-A", "hm"), redacted(1, "EmwKAhgBEgy3va3"), call(2, "toolu_1", "weather", "{}")
    )
    service = Service(first, ANSWER)
    async with serving(service) as model:
        await loop(model, [*ASK], 2, compute="LOW")
    assert [b["type"] for b in service.requests[1]["messages"][1]["content"]] == [
        "thinking",
        "redacted_thinking",
        "tool_use",
    ]
    assert service.refusals == []


async def test_thinking_between_calls_keeps_its_place_over_three_requests() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking#interleaved-thinking"""
    first = turn("tool_use", thinking(0, "sig-A", "Paris first."), call(1, "toolu_1", "weather", '{"city":"Paris"}'))
    second = turn(
        "tool_use",
        thinking(0, "sig-B", "Now Rome."),
        text(1, "Rome next."),
        call(2, "toolu_2", "weather", '{"city":"Rome"}'),
    )
    service = Service(first, second, ANSWER)
    async with serving(service) as model:
        said = await loop(model, [*ASK], 3, compute="MEDIUM")
    turns = [m["content"] for m in service.requests[2]["messages"] if m["role"] == "assistant"]
    assert [[b["type"] for b in t] for t in turns] == [["thinking", "tool_use"], ["thinking", "text", "tool_use"]]
    assert (service.refusals, said[-1].text) == ([], "Sunny in both.")


async def test_thinking_whose_text_is_left_out_goes_back_by_its_signature() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking: `display: omitted` streams the signature only."""
    first = turn("tool_use", thinking(0, "sig-only"), call(1, "toolu_1", "weather", "{}"))
    service = Service(first, ANSWER, model="claude-sonnet-5-5")
    async with serving(service) as model:
        await loop(model, [*ASK], 2)
    block = service.requests[1]["messages"][1]["content"][0]
    assert block == {"type": "thinking", "thinking": "", "signature": "sig-only"} and service.refusals == []


async def test_the_results_of_parallel_calls_are_one_message_in_the_order_of_the_calls() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/parallel-tool-use"""
    first = turn(
        "tool_use", call(0, "toolu_1", "weather", '{"city":"Paris"}'), call(1, "toolu_2", "weather", '{"city":"Rome"}')
    )
    service = Service(first, ANSWER)
    async with serving(service) as model:
        done = (await complete(model, ASK, spec("weather"))).message
        results = [ToolMessage(tool_call_id=i, content=i) for i in ("toolu_2", "toolu_1")]
        await complete(model, [*ASK, done, results[0], HumanMessage(content="Hurry!"), results[1]], spec("weather"))
    last = service.requests[1]["messages"][-1]
    assert [b.get("tool_use_id", b["type"]) for b in last["content"]] == ["toolu_1", "toolu_2", "text"]
    assert service.refusals == []


async def test_a_failed_call_is_marked_and_one_without_result_is_answered() -> None:
    """https://github.com/anthropics/claude-code/issues/26314: a thread that broke off must not be refused for ever."""
    first = turn("tool_use", call(0, "toolu_1", "weather", "{}"), call(1, "toolu_2", "weather", "{}"))
    service = Service(first, ANSWER)
    async with serving(service) as model:
        done = (await complete(model, ASK, spec("weather"))).message
        await complete(
            model, [*ASK, done, ToolMessage(tool_call_id="toolu_1", content="no", error=True)], spec("weather")
        )
    results = service.requests[1]["messages"][-1]["content"]
    assert [(b["tool_use_id"], b["is_error"]) for b in results] == [("toolu_1", True), ("toolu_2", True)]
    assert service.refusals == []


async def test_a_call_without_arguments_goes_back_as_an_empty_object() -> None:
    """https://github.com/anomalyco/opencode/issues/1247: input_json_delta with "" only."""
    service = Service(turn("tool_use", call(0, "toolu_1", "weather", "")), ANSWER)
    async with serving(service) as model:
        await loop(model, [*ASK], 2)
    assert service.requests[1]["messages"][1]["content"][0]["input"] == {} and service.refusals == []


async def test_arguments_that_were_cut_go_back_as_an_empty_object() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming"""
    service = Service(turn("tool_use", call(0, "toolu_1", "weather", '{"city": "Pa')), ANSWER)
    async with serving(service) as model:
        await loop(model, [*ASK], 2)
    assert service.requests[1]["messages"][1]["content"][0]["input"] == {} and service.refusals == []


SEARCH = call(0, "srvtoolu_1", "web_search", '{"query": "weather"}', kind="server_tool_use")
FOUND = [
    {"type": "web_search_result", "url": "https://w.org", "title": "W", "encrypted_content": "EqgfC", "page_age": None}
]


async def test_a_paused_turn_goes_on_by_itself_and_is_one_turn() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons#pause_turn"""
    result = [opened(0, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=FOUND), closed(0)]
    service = Service(turn("pause_turn", text(1, "Searching. "), SEARCH), turn("end_turn", result, text(1, "Sunny.")))
    async with serving(service) as model:
        done = await complete(model, ASK)
        await complete(model, [*ASK, done.message, HumanMessage(content="And tomorrow?")])
    assert (done.message.text, done.finish_reason) == ("Searching. Sunny.", "stop")
    assert done.usage is not None and (done.usage.prompt_tokens, done.usage.completion_tokens) == (20, 40)
    assert service.requests[1]["messages"][-1]["role"] == "assistant", "the paused blocks are sent back"
    again = service.requests[2]["messages"][1]["content"]
    assert [b["type"] for b in again] == ["text", "server_tool_use", "web_search_tool_result", "text"]
    assert again[1]["input"] == {"query": "weather"} and again[2]["content"] == FOUND
    assert service.refusals == []


async def test_citations_go_back_with_the_text_that_they_support() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool: `encrypted_index` must be passed back."""
    cited = {
        "type": "web_search_result_location",
        "url": "https://w.org",
        "title": "W",
        "encrypted_index": "Eo8",
        "cited_text": "sun",
    }
    said = [*text(0, "It is ")[:-1], closed(0), opened(1, type="text", text="", citations=[])]
    said += [piece(1, type="citations_delta", citation=cited), piece(1, type="text_delta", text="sunny."), closed(1)]
    service = Service(turn("end_turn", said), ANSWER)
    async with serving(service) as model:
        done = (await complete(model, ASK)).message
        await complete(model, [*ASK, done, HumanMessage(content="Sure?")])
    assert done.text == "It is sunny." and any(
        part.type == "citation" for part in done.content if not isinstance(part, str)
    )
    assert service.requests[1]["messages"][1]["content"] == [
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "sunny.", "citations": [cited]},
    ]


async def test_a_thread_of_other_providers_arrives_without_their_state() -> None:
    """Foreign ids are mapped to the alphabet, the same in call and result; thinking waits for the next user turn."""
    state = ProviderState(
        provider="gemini", model="g", data={"content": [{"type": "thinking", "signature": "not-for-others"}]}
    )
    calls = (ToolCall(id="functions.weather:0", name="weather"),)
    thread: list[Message] = [
        AIMessage(content="Hello."),
        *ASK,
        AIMessage(
            reasoning="foreign thought",
            tool_calls=calls,
            provider_state=state,
            reasoning_details=({"text": "unstamped"},),
        ),
        ToolMessage(tool_call_id="functions.weather:0", content="21°C"),
    ]
    service = Service(ANSWER)
    async with serving(service) as model:
        await complete(model, thread, spec("weather"), ChatOptions(compute="HIGH"))
    sent = json.dumps(service.requests[0])
    assert not any(secret in sent for secret in ("not-for-others", "foreign thought", "unstamped"))
    assert "thinking" not in service.requests[0] and service.refusals == []


async def test_state_of_another_claude_stays_behind_and_the_conversation_goes_on() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking: signatures are of one model."""
    first = Service(turn("tool_use", thinking(0, "sig-A", "hm"), call(1, "toolu_1", "weather", "{}")))
    async with serving(first) as model:
        said = await loop(model, [*ASK], 1, compute="HIGH")
    service = Service(ANSWER, model="claude-opus-5-5")
    async with serving(service) as model:
        await loop(model, said, 1, compute="HIGH")
    assert [b["type"] for b in service.requests[0]["messages"][1]["content"]] == ["tool_use"]
    assert service.requests[0]["thinking"]["type"] == "adaptive" and service.refusals == []


async def test_thinking_without_its_signature_stays_behind() -> None:
    """A turn that max_tokens cut in its thinking: unsigned blocks are refused ("Invalid `signature`")."""
    cut = [
        start(),
        opened(0, type="thinking", thinking="", signature=""),
        piece(0, type="thinking_delta", thinking="hm"),
        *stop("max_tokens"),
    ]
    service = Service(cut, ANSWER)
    async with serving(service) as model:
        done = (await complete(model, ASK)).message
        await complete(model, [*ASK, done, HumanMessage(content="Go on.")])
    assert service.refusals == [] and [m["role"] for m in service.requests[1]["messages"]] == ["user"]


async def test_edited_text_replaces_what_was_said_and_keeps_the_thinking() -> None:
    first = turn("end_turn", thinking(0, "sig-A", "hm"), text(1, "one"), text(2, "two"))
    service = Service(first, ANSWER)
    async with serving(service) as model:
        done = (await complete(model, ASK)).message
        edited = msgspec.structs.replace(done, content="masked out")
        await complete(model, [*ASK, edited, HumanMessage(content="And?")])
    assert service.requests[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig-A"},
        {"type": "text", "text": "masked out"},
    ]


async def test_an_image_in_a_result_is_a_block_of_the_result() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls"""
    service = Service(turn("tool_use", call(0, "toolu_1", "weather", "{}")), ANSWER)
    async with serving(service) as model:
        done = (await complete(model, ASK, spec("weather"))).message
        shown = (TextPart(text="See:"), ImagePart(data=b"\x89PNG", media_type="image/png"))
        await complete(model, [*ASK, done, ToolMessage(tool_call_id="toolu_1", content=shown)], spec("weather"))
    block = service.requests[1]["messages"][-1]["content"][0]["content"][1]
    assert block == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
    assert service.refusals == []


async def test_an_agent_with_tools_runs_over_it() -> None:
    """The whole way: an agent, its tool, a stored thread, and the second question of it."""

    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"21°C in {city}"

    first = turn("tool_use", thinking(0, "sig-A", "Look."), call(1, "toolu_1", "weather", '{"city": "Paris"}'))
    service = Service(first, turn("end_turn", text(0, "21°C.")), ANSWER)
    agent = {"mode": "REACT", "react": {"systemPrompt": "Be brief."}, "tools": ["weather"], "compute": "HIGH"}
    async with serving(service) as model:
        app = load_graph(agent, tools=[weather], model=model, checkpointer=MemoryCheckpointer())
        await app.run("Weather in Paris?", thread_id="t")
        result = await app.run("And in Rome?", thread_id="t")
    assert service.refusals == [] and "Sunny in both." in str(result.output)
    assert "21°C in Paris" in json.dumps(service.requests[1], ensure_ascii=False)
    assert service.requests[0]["system"][0]["cache_control"] == {"type": "ephemeral"}
    kept = service.requests[2]["messages"][1]["content"]
    assert kept[0] == {"type": "thinking", "thinking": "Look.", "signature": "sig-A"}
