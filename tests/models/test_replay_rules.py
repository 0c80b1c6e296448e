"""What goes back by the rows of `models/replay/rules.py`, provider by provider: tool loops against fakes that refuse the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.openai.request import wire_messages
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.replay.replay import Replay, with_reasoning
from graphflow.models.replay.rules import CALL_ID_RULES, ORDER_RULES, REPLAY_RULES
from graphflow.models.replay.signed_arguments import fingerprint
from graphflow.models.responses.model import ResponsesModel
from tests.models import strict_providers as strict
from tests.models.raw_server import DONE, call, delta, raw_server, stream
from tests.models.responses import service as responses
from tests.models.test_round_trips import ANSWER, ASK, CALLED, Opened, loop, opened, sent
from tests.models.turns import hear

__all__ = ["opened"]
CALL = delta(tool_calls=[call(0, "call_1", "weather", '{"city":"Paris"}', type="function")])
FILLER = "skip_thought_signature_validator"


def allowed(*names: str, check: Callable[[dict[str, Any]], str | None] = lambda _: None) -> strict.Rule:
    """Refuses every field of a message but the protocol's and these; `check` looks at each message with calls."""

    def rule(messages: list[dict[str, Any]]) -> str | None:
        found = [check(message) for message in strict.turns_with_calls(messages)]
        return next(filter(None, found), None) or strict.foreign(messages, names)

    return rule


FOREIGN: list[Message] = [
    *ASK,
    AIMessage(content="Hm.", reasoning="another's", tool_calls=(ToolCall(id="call_of_another/1", name="weather"),)),
    ToolMessage(tool_call_id="call_of_another/1", name="weather", content="21°C"),
]


# --- thinking as a part of the content (Mistral) -------------------------------------------------


def thinking(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **more}


@pytest.mark.parametrize("signature", [None, "sig"])
async def test_mistral_gets_its_thinking_back_as_a_part_before_the_text(opened: Opened, signature: str | None) -> None:
    """https://docs.mistral.ai/studio-api/conversations/reasoning: the whole message, thinking included."""
    more: dict[str, Any] = {"signature": signature} if signature else {}
    first = [
        delta(content=[thinking("Let me ")]),
        delta(content=[thinking("look.", closed=True, **more), {"type": "text", "text": "I "}]),
        delta(content="look."),
        delta(tool_calls=[call(0, "abcdefghi", "weather", "{}")]),
        *CALLED,
    ]
    async with raw_server(strict.strict(strict.mistral, *first), strict.strict(strict.mistral, *ANSWER)) as server:
        said = await loop(opened(server, "mistral", "mistral-medium-3-5"), [*ASK], 2)
        content = sent(server)[0]["content"]
    assert content == [thinking("Let me look.", closed=True, **more), {"type": "text", "text": "I look."}]
    assert isinstance(said[1], AIMessage) and (said[1].reasoning, said[1].content) == ("Let me look.", "I look.")


async def test_mistral_gets_no_thinking_of_others_and_a_call_alone_after_its_own(opened: Opened) -> None:
    first = [delta(content=[thinking("hm", closed=True)]), delta(tool_calls=[call(0, "abcdefghi", "f", "{}")]), *CALLED]
    async with raw_server(strict.strict(strict.mistral, *first), strict.strict(strict.mistral, *ANSWER)) as server:
        await loop(opened(server, "mistral", "mistral-medium-3-5"), FOREIGN, 2)
        assert [m["content"] for m in sent(server)] == ["Hm.", [thinking("hm", closed=True)]]


@pytest.mark.parametrize(
    ("key", "model"), [("mistral", "mistral-large-latest"), ("vllm", "mistralai/Devstral-Small-2")]
)
async def test_between_results_and_a_user_stands_an_assistant_where_that_is_demanded(
    opened: Opened, key: str, model: str
) -> None:
    """A user who interrupts, and a picture in a result: "Unexpected role 'user' after role 'tool'"."""
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    history: list[Message] = [
        *ASK,
        AIMessage(tool_calls=(ToolCall(id="abcdefghi", name="f"),)),
        ToolMessage(tool_call_id="abcdefghi", content=(TextPart(text="seen"), picture)),
        AIMessage(tool_calls=(ToolCall(id="bcdefghij", name="f"),)),
        ToolMessage(tool_call_id="bcdefghij", content="1"),
        HumanMessage(content="Stop."),
    ]
    async with raw_server(strict.strict(strict.mistral, *ANSWER)) as server:
        await loop(opened(server, key, model), history, 1)
        roles = [message["role"] for message in server.requests[0].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant", "user"]


async def test_others_hear_an_interruption_right_behind_the_results(opened: Opened) -> None:
    async with raw_server(strict.strict(strict.openai, *ANSWER)) as server:
        await loop(opened(server, "openai", "gpt-5.5"), [*FOREIGN, HumanMessage(content="Stop.")], 1)
        roles = [message["role"] for message in server.requests[0].json["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


# --- OpenRouter ----------------------------------------------------------------------------------


def has_signature(message: dict[str, Any]) -> str | None:
    """https://github.com/RooCodeInc/Roo-Code/pull/10640: one entry, with the id of the first call."""
    ids = [d.get("id") for d in message.get("reasoning_details", ()) if d["type"] == "reasoning.encrypted"]
    if ids != [message["tool_calls"][0]["id"]]:
        return "Gemini models require OpenRouter reasoning details to be preserved in each request."
    return None


async def test_gemini_behind_openrouter_gets_one_filler_for_a_turn_of_another(opened: Opened) -> None:
    rule = allowed("reasoning_details", check=has_signature)
    own = {"type": "reasoning.encrypted", "data": "sig", "id": "call_1", "format": "google-gemini-v1", "index": 0}
    first = [delta(reasoning_details=[own]), CALL, *CALLED]
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "openrouter", "google/gemini-3.8-flash"), FOREIGN, 2)
        details = [message["reasoning_details"] for message in sent(server)]
    assert details == [[own | {"data": FILLER, "id": "call_of_another/1"}], [own]]


async def test_kimi_behind_openrouter_gets_the_field_that_it_asks_for(opened: Opened) -> None:
    """https://github.com/avante-corp/avante.nvim/pull/2940"""

    def has_reasoning(message: dict[str, Any]) -> str | None:
        given = message.get("reasoning_details") or message.get("reasoning_content")
        return None if given else "reasoning_content is missing in assistant tool call message"

    rule = allowed("reasoning_details", "reasoning_content", check=has_reasoning)
    own = {"type": "reasoning.text", "text": "hm", "index": 0, "format": "unknown"}
    first = [delta(reasoning="hm", reasoning_details=[own]), CALL, *CALLED]
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "openrouter", "moonshotai/kimi-k2.5"), FOREIGN, 2)
        assert sent(server)[-1]["reasoning_details"] == [own]


@pytest.mark.parametrize("form", ["openai-responses-v1", "xai-responses-v1"])
async def test_encrypted_items_behind_openrouter_go_back_with_id_and_format(opened: Opened, form: str) -> None:
    """https://openrouter.ai/docs/use-cases/reasoning-tokens: a summary in pieces and the encrypted item share an index."""
    summary = {"type": "reasoning.summary", "format": form, "index": 0}
    encrypted = {"type": "reasoning.encrypted", "data": "gAAAA", "id": "rs_1", "format": form, "index": 0}
    pieces = [summary | {"summary": "Let me"}, summary | {"summary": " look."}, encrypted]
    whole = [summary | {"summary": "Let me look."}, encrypted]
    first = [*(delta(reasoning_details=[piece]) for piece in pieces), CALL, *CALLED]
    answers = [strict.strict(strict.openrouter(), *first), strict.strict(strict.openrouter(whole), *ANSWER)]
    async with raw_server(*answers) as server:
        await loop(opened(server, "openrouter", "openai/gpt-5.5"), [*ASK], 2)
        assert sent(server)[0]["reasoning_details"] == whole


async def test_openai_behind_openrouter_gets_ids_that_openai_accepts(opened: Opened) -> None:
    long = "call_" + "x" * 60
    history: list[Message] = [*ASK, AIMessage(tool_calls=(ToolCall(id=long, name="f"),)), ToolMessage(tool_call_id=long, content="1")]  # fmt: skip
    async with raw_server(strict.strict(strict.openai, *ANSWER)) as server:
        await loop(opened(server, "openrouter", "openai/gpt-5.5"), history, 1)
        assert len(sent(server)[0]["tool_calls"][0]["id"]) == 40


# --- fields for reasoning ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "model", "field", "heard"),
    [
        ("groq", "openai/gpt-oss-120b", "reasoning", "reasoning"),
        ("zhipu", "glm-5.2", "reasoning_content", "reasoning_content"),
        ("siliconflow", "moonshotai/Kimi-K2.5", "reasoning_content", "reasoning_content"),
        ("siliconflow", "deepseek-ai/DeepSeek-V4-Pro", "reasoning_content", "reasoning_content"),
        ("together", "moonshotai/Kimi-K2.5", "reasoning_content", "reasoning"),
        ("xiaomi", "mimo-v2-flash", "reasoning_content", "reasoning_content"),
    ],
)
async def test_reasoning_of_a_turn_with_tools_goes_back_in_the_field_of_the_provider(
    opened: Opened, key: str, model: str, field: str, heard: str
) -> None:
    rule = allowed(field)
    first = [delta(**{heard: "hm, "}), delta(**{heard: "Paris"}), CALL, *CALLED]
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, key, model), [*ASK], 2)
        assert sent(server)[0][field] == "hm, Paris"


@pytest.mark.parametrize(
    ("key", "model"),
    [
        ("groq", "qwen/qwen3-32b"),
        ("bailian", "qwen3.8-max"),
        ("xai", "grok-4.3"),
        ("together", "openai/gpt-oss-120b"),
        ("fireworks", "accounts/fireworks/models/gpt-oss-120b"),
        ("openai", "gpt-5.5"),
        ("azure", "gpt-5.5"),
        ("ollama", "qwen3"),
    ],
)
async def test_whom_no_row_names_gets_no_reasoning_back(opened: Opened, key: str, model: str) -> None:
    """Groq: "property 'reasoning_content' is unsupported", https://github.com/janhq/jan/issues/8136."""
    first = [delta(reasoning_content="hm", reasoning="hm"), CALL, *CALLED]
    async with raw_server(strict.strict(allowed(), *first), strict.strict(allowed(), *ANSWER)) as server:
        await loop(opened(server, key, model), [*ASK], 2)
        assert b'"hm"' not in server.requests[1].body


async def test_minimax_is_asked_for_its_reasoning_apart_and_gets_it_back_whole(opened: Opened) -> None:
    """https://platform.minimax.io/docs/api-reference/text-openai-api: `reasoning_split`."""
    item = {"type": "reasoning.text", "id": "reasoning-text-1", "format": "MiniMax-response-v1", "index": 0}
    split = [delta(reasoning_details=[item | {"text": piece}], reasoning_content=piece) for piece in ("h", "m")]
    rule = allowed("reasoning_details")
    async with raw_server(strict.strict(rule, *split, CALL, *CALLED), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "minimax", "MiniMax-M3"), [*ASK], 2)
        assert sent(server)[0]["reasoning_details"] == [item | {"text": "hm"}]
        assert all(request.json["reasoning_split"] is True for request in server.requests)


@pytest.mark.parametrize(
    ("tags", "pieces", "whole"),
    [
        (True, ["<think>\nhm", "\n</thi", "nk>\n\nI look."], "<think>\nhm\n</think>\n\nI look."),
        (True, ["I <think>a</think>look<think>b</think>."], "I <think>a</think>look<think>b</think>."),
        (True, ["I look."], "I look."),
        ("open", ["hm</think>I look."], "<think>hm</think>I look."),
        (True, ["<think>hm</think>"], "<think>hm</think>"),
    ],
)
async def test_reasoning_between_tags_goes_back_between_tags_in_turns_with_tools(
    tags: Any, pieces: list[str], whole: str
) -> None:
    """https://platform.minimax.io/docs/guides/text-m2-function-call: the content "must be preserved completely"."""
    plain = [*(delta(content=piece) for piece in pieces), CALL, *CALLED]
    async with raw_server(strict.strict(allowed(), *plain), strict.strict(allowed(), *ANSWER)) as server:
        provider = Provider(key="custom", profile=Profile(think_tags=tags), base_url=server.url)
        model = OpenAICompatibleModel(provider, "m", limits=Limits(max_retries=0))
        said = await loop(model, [*ASK], 2)
        await loop(model, [*said, HumanMessage(content="Thanks.")], 1)
        await model.aclose()
        answers = [m["content"] for m in server.requests[2].json["messages"] if m["role"] == "assistant"]
        assert sent(server)[0]["content"] == whole
    assert answers[0] == whole


async def test_vertex_gets_its_signatures_back_and_the_filler(opened: Opened) -> None:
    """https://github.com/earendil-works/pi/issues/6733: under a name of its own."""
    signed = call(0, "c1", "weather", "{}", extra_content={"vertex": {"thought_signature": "sig-A"}})
    rule = strict.gemini("sig-A", owner="vertex")
    first = [delta(tool_calls=[signed]), *CALLED]
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "vertex", "google/gemini-3.8-flash"), FOREIGN, 2)
        signatures = [m["tool_calls"][0]["extra_content"]["vertex"]["thought_signature"] for m in sent(server)]
    assert signatures == [FILLER, "sig-A"]


async def test_what_came_as_a_list_in_pieces_goes_back_as_one_list(opened: Opened) -> None:
    """https://github.com/mozilla-ai/any-llm: code that Gemini ran comes as the items of each chunk."""
    pieces = [{"google": {"code_execution": [{"type": kind}]}} for kind in ("executable_code", "code_execution_result")]
    first = [*(delta(extra_content=piece) for piece in pieces), CALL, *CALLED]
    rule = allowed("extra_content")
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "gemini", "gemini-2.5-pro"), [*ASK], 2)
        google = sent(server)[0]["extra_content"]["google"]
    assert google == {"code_execution": [{"type": "executable_code"}, {"type": "code_execution_result"}]}


async def test_a_signature_in_the_last_chunk_without_text_goes_back_with_its_message(opened: Opened) -> None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: it may come on an empty last part."""
    signature = {"google": {"thought_signature": "sig-T"}}
    first = [delta(content="Sunny."), delta("stop", content="", extra_content=signature), DONE]
    rule = strict.gemini()
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        model = opened(server, "gemini", "gemini-3.8-flash")
        await loop(model, [*await loop(model, [*ASK], 1), HumanMessage(content="And?")], 1)
        assert sent(server) == [{"role": "assistant", "content": "Sunny.", "extra_content": signature}]


@pytest.mark.parametrize(("key", "model"), [("xai", "grok-4.3"), ("azure", "gpt-5.5")])
async def test_encrypted_reasoning_of_the_responses_api_goes_back_whoever_serves_it(key: str, model: str) -> None:
    """https://docs.x.ai/docs/guides/reasoning: encrypted reasoning with each turn; Azure likewise."""
    first = responses.turn(responses.reasoning("enc"), responses.call("weather", "{}", "call_1", index=1))
    answers = responses.service(first, responses.turn(responses.text("Sunny.")), issued=["enc"])
    async with raw_server(*answers) as server:
        profile = msgspec.structs.replace(PROFILES.get(key, Profile()), protocol="responses")
        client = ResponsesModel(Provider(key=key, profile=profile, base_url=server.url), model)
        await loop(client, [*ASK], 2)
        await client.aclose()
        assert [item["type"] for item in server.requests[1].json["input"]][1:3] == ["reasoning", "function_call"]
        assert server.requests[0].json["include"] == ["reasoning.encrypted_content"]


# --- messages that changed since -----------------------------------------------------------------


async def test_a_signature_does_not_go_with_arguments_that_it_was_not_made_for(opened: Opened) -> None:
    signed = call(0, "c1", "weather", '{"city": "Paris"}', extra_content={"google": {"thought_signature": "sig-A"}})
    rule = strict.gemini("sig-A")
    first = [delta(tool_calls=[signed]), *CALLED]
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        model = opened(server, "gemini", "gemini-3.8-flash")
        said = await loop(model, [*ASK], 1)
        message = said[1]
        assert isinstance(message, AIMessage)
        for written, signature in (('{"city": "Oslo"}', FILLER), ('{"city": "Paris"}', "sig-A")):
            edited = msgspec.structs.replace(message.tool_calls[0], arguments=written)
            said[1] = msgspec.structs.replace(message, tool_calls=(edited,))
            await loop(model, said, 1)
            google = sent(server)[0]["tool_calls"][0]["extra_content"]["google"]
            assert google == {"thought_signature": signature}


def test_no_arguments_are_the_same_in_every_spelling() -> None:
    """Some providers write `null` or nothing, which the message has as an object."""
    assert fingerprint("") == fingerprint("null") == fingerprint("{}") != fingerprint('{"a":1}')


def test_reasoning_that_is_shown_shorter_goes_back_as_it_was() -> None:
    """A summary for readers replaces the text, not what the provider gets."""
    for key, model, field in (("mistral", "m", "thinking"), ("groq", "gpt-oss", "reasoning"), ("deepseek", "v4", "reasoning_content")):  # fmt: skip
        replay = Replay(key, model)
        state = replay.stamped({field: True})
        message = with_reasoning(AIMessage(reasoning="long", tool_calls=(ToolCall(id="c", name="f"),), provider_state=state), "short")  # fmt: skip
        sent = wire_messages(replay, [HumanMessage(content="?"), message])[1]
        assert "long" in str(sent) and "short" not in str(sent)


async def test_of_a_turn_that_broke_off_no_half_signature_is_kept(opened: Opened) -> None:
    pieces = [
        {"type": "reasoning.text", "index": 0, "text": "Let"},
        {"type": "reasoning.text", "index": 0, "signature": "Ets"},
    ]
    signed = call(0, "c1", "weather", "{}", extra_content={"google": {"thought_signature": "sig"}})
    blocks = [*(delta(reasoning_details=[p]) for p in pieces), delta(content="I lo"), delta(tool_calls=[signed])]
    async with raw_server(stream(*blocks)) as server:
        heard = await hear(opened(server, "openrouter", "google/gemini-3.8-flash"))
    assert heard.failure.code == "stream_truncated"
    assert heard.turn.message(status="error") == AIMessage(content="I lo", reasoning="Let", status="error")


@pytest.mark.parametrize("rows", [REPLAY_RULES, CALL_ID_RULES, ORDER_RULES])
def test_every_row_has_its_source_and_day(rows: Sequence[Any]) -> None:
    for row in rows:
        assert row.source.startswith("https://") and len(row.checked) == len("2026-01-01"), row
