"""What goes back to a provider: two and more requests of a tool loop, against fakes that refuse what the service refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from tests.models import strict_providers as strict
from tests.models.raw_server import DONE, RawServer, Request, call, delta, raw_server
from tests.models.turns import spec

ASK = [HumanMessage(content="What is the weather in Paris and Rome?")]
CALLED = [delta("tool_calls"), DONE]
ANSWER = [delta(content="Sunny."), delta("stop"), DONE]
Opened = Callable[[RawServer, str, str], ChatModel]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Opens `(server, provider key, model)`; closes what was opened."""
    made: list[OpenAICompatibleModel] = []

    def open_one(server: RawServer, key: str, model: str) -> ChatModel:
        provider = Provider(key=key, profile=PROFILES.get(key, Profile()), base_url=server.url)
        made.append(OpenAICompatibleModel(provider, model, limits=Limits(max_retries=0)))
        return made[-1]

    yield open_one
    for model in made:
        await model.aclose()


async def loop(model: ChatModel, messages: list[Message], rounds: int) -> list[Message]:
    """A tool loop of so many requests; every call gets a result."""
    for _ in range(rounds):
        done = (await complete(model, messages, spec("weather"))).message
        messages = [*messages, done]
        messages += [ToolMessage(tool_call_id=c.id, name=c.name, content=f"21°C {c.id}") for c in done.tool_calls]
    return messages


def sent(server: RawServer, number: int = -1) -> list[dict[str, Any]]:
    request: Request = server.requests[number]
    return [m for m in request.json["messages"] if m["role"] == "assistant"]


def gemini_call(index: int, name: str, signature: str | None) -> dict[str, Any]:
    more = {} if signature is None else {"extra_content": {"google": {"thought_signature": signature}}}
    return call(index, f"function-call-{name}", "weather", f'{{"city":"{name}"}}', type="function", **more)


async def test_gemini_gets_the_signature_of_each_step_back(opened: Opened) -> None:
    first = [delta(tool_calls=[gemini_call(0, "Paris", "sig-A")]), *CALLED]
    second = [delta(tool_calls=[gemini_call(0, "Rome", "sig-B")]), *CALLED]
    rule = strict.gemini("sig-A", "sig-B")
    async with raw_server(*(strict.strict(rule, *turn) for turn in (first, second, ANSWER))) as server:
        await loop(opened(server, "gemini", "gemini-3-flash-preview"), [*ASK], 3)
        signed = [m["tool_calls"][0]["extra_content"]["google"]["thought_signature"] for m in sent(server)]
    assert signed == ["sig-A", "sig-B"]


async def test_of_parallel_calls_of_gemini_only_the_first_is_signed_and_none_is_made_up(opened: Opened) -> None:
    first = [delta(tool_calls=[gemini_call(0, "Paris", "sig-A"), gemini_call(1, "Rome", None)]), *CALLED]
    rule = strict.gemini("sig-A")
    async with raw_server(strict.strict(rule, *first), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "gemini", "gemini-3-pro-preview"), [*ASK], 2)
        assert ["extra_content" in entry for entry in sent(server)[0]["tool_calls"]] == [True, False]


async def test_a_signature_that_comes_after_its_call_belongs_to_it(opened: Opened) -> None:
    signature = {"extra_content": {"google": {"thought_signature": "sig-A"}}}
    first = [delta(tool_calls=[call(0, "c1", "weather", "{}")]), delta(tool_calls=[call(0, ..., ..., "", **signature)])]
    rule = strict.gemini("sig-A")
    async with raw_server(strict.strict(rule, *first, *CALLED), strict.strict(rule, *ANSWER)) as server:
        await loop(opened(server, "gemini", "gemini-3-pro-preview"), [*ASK], 2)
        assert sent(server)[0]["tool_calls"][0]["extra_content"] == signature["extra_content"]


CLAUDE_PIECES = [
    {"type": "reasoning.text", "text": "Let", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "text": " me look.", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "signature": "EtsBCk", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "0paque", "format": "anthropic-claude-v1", "index": 1},
    {"type": "reasoning.text", "text": "Then", "format": "anthropic-claude-v1", "index": 2, "signature": None},
    {"type": "reasoning.text", "text": " Rome.", "format": "anthropic-claude-v1", "index": 2, "signature": "Q9f"},
]
CLAUDE_WHOLE = [
    {"type": "reasoning.text", "text": "Let me look.", "format": "anthropic-claude-v1", "index": 0, "signature": "EtsBCk"},
    {"type": "reasoning.encrypted", "data": "0paque", "format": "anthropic-claude-v1", "index": 1},
    {"type": "reasoning.text", "text": "Then Rome.", "format": "anthropic-claude-v1", "index": 2, "signature": "Q9f"},
]  # fmt: skip


async def test_openrouter_gets_whole_blocks_back_and_no_fragments(opened: Opened) -> None:
    pieces = [delta(content="", reasoning=item.get("text"), reasoning_details=[item]) for item in CLAUDE_PIECES]
    first = [*pieces, delta(tool_calls=[call(0, "toolu_1", "weather", "{}")]), *CALLED]
    answers = [strict.strict(strict.openrouter(), *first), strict.strict(strict.openrouter(CLAUDE_WHOLE), *ANSWER)]
    async with raw_server(*answers) as server:
        said = await loop(opened(server, "openrouter", "anthropic/claude-sonnet-4.5"), [*ASK], 2)
        assert sent(server)[0]["reasoning_details"] == CLAUDE_WHOLE
    assert isinstance(said[1], AIMessage) and said[1].reasoning == "Let me look.Then Rome."


async def test_items_of_two_calls_with_one_index_stay_two(opened: Opened) -> None:
    """OpenRouter numbers Gemini's encrypted items by call: each has the id of its call, and all have index 0."""
    items = [{"type": "reasoning.encrypted", "data": d, "id": f"tool_{d}", "index": 0} for d in "ab"]
    calls = [delta(tool_calls=[call(n, f"tool_{d}", "weather", "{}")]) for n, d in enumerate("ab")]
    first = [delta(reasoning_details=[items[0]]), delta(reasoning_details=[items[1]]), *calls, *CALLED]
    answers = [strict.strict(strict.openrouter(), *first), strict.strict(strict.openrouter(items), *ANSWER)]
    async with raw_server(*answers) as server:
        await loop(opened(server, "openrouter", "google/gemini-3-pro-preview"), [*ASK], 2)
        assert sent(server)[0]["reasoning_details"] == items


async def test_deepseek_gets_its_reasoning_back_in_every_turn_with_tools(opened: Opened) -> None:
    def turn(thought: str, *rest: bytes) -> list[bytes]:
        return [*(delta(reasoning_content=piece) for piece in thought.split("|")), *rest]

    first = turn("hm,| Paris", delta(tool_calls=[call(0, "call_00", "weather", "{}")]), *CALLED)
    second = turn("done", *ANSWER)
    third = turn("again", delta(tool_calls=[call(0, "call_01", "weather", "{}")]), *CALLED)
    rules = [strict.deepseek(), strict.deepseek("hm, Paris"), strict.deepseek("hm, Paris", "done")]
    rules.append(strict.deepseek("hm, Paris", "done", "again"))
    turns = [first, second, third, ANSWER]
    async with raw_server(*(strict.strict(r, *t) for r, t in zip(rules, turns, strict=True))) as server:
        model = opened(server, "deepseek", "deepseek-v4-pro")
        messages = await loop(model, [*ASK], 2)
        await loop(model, [*messages, HumanMessage(content="And tomorrow?")], 2)
        assert [m["reasoning_content"] for m in sent(server)] == ["hm, Paris", "done", "again"]


async def test_a_turn_of_deepseek_without_tools_takes_no_reasoning_along(opened: Opened) -> None:
    async with raw_server(strict.strict(strict.deepseek(), delta(reasoning_content="hm"), *ANSWER)) as server:
        model = opened(server, "deepseek", "deepseek-v4-pro")
        await loop(model, [*await loop(model, [*ASK], 1), HumanMessage(content="And tomorrow?")], 1)
        assert [m["content"] for m in sent(server)] == ["Sunny."] and "reasoning_content" not in sent(server)[0]


async def test_kimi_gets_its_reasoning_back(opened: Opened) -> None:
    first = [delta(reasoning_content="hm"), delta(tool_calls=[call(0, "weather:0", "weather", "{}")]), *CALLED]
    answers = [strict.strict(strict.kimi(), *first), strict.strict(strict.kimi("hm"), *ANSWER)]
    async with raw_server(*answers) as server:
        await loop(opened(server, "moonshot", "kimi-k2.5"), [*ASK], 2)
        assert [m["reasoning_content"] for m in sent(server)] == ["hm"]


# --- a thread that changes its provider ----------------------------------------------------------

FOREIGN: list[Message] = [
    HumanMessage(content="first"),
    AIMessage(
        reasoning="thought of Gemini",
        tool_calls=(
            ToolCall(
                id="function-call-1234567890-and-longer-than-forty-characters",
                name="weather",
                provider_state=ProviderState(
                    provider="gemini",
                    model="gemini-3-pro",
                    data={"extra_content": {"google": {"thought_signature": "not-for-others"}}},
                ),
            ),
            ToolCall(id="functions.weather:0", name="weather"),
        ),
        provider_state=ProviderState(
            provider="elsewhere", model="m", data={"reasoning_details": [{"text": "secret"}], "reasoning_content": True}
        ),
    ),
    ToolMessage(tool_call_id="function-call-1234567890-and-longer-than-forty-characters", content="1"),
    ToolMessage(tool_call_id="functions.weather:0", content="2"),
    AIMessage(content="one", reasoning="thought", reasoning_details=({"type": "reasoning.text", "text": "unstamped"},)),
    HumanMessage(content="second"),
]


@pytest.mark.parametrize(
    ("key", "model", "rule"),
    [
        ("deepseek", "deepseek-v4-pro", strict.deepseek()),
        ("moonshot", "kimi-k2.5", strict.kimi()),
        ("gemini", "gemini-3-flash-preview", strict.gemini()),
        ("openrouter", "anthropic/claude-sonnet-4.5", strict.openrouter()),
        ("mistral", "mistral-large-latest", strict.mistral),
        ("openai", "gpt-4.1", strict.openai),
        ("azure", "gpt-4.1", strict.openai),
    ],
)
async def test_another_provider_gets_the_conversation_without_foreign_state(
    opened: Opened, key: str, model: str, rule: strict.Rule
) -> None:
    """With the filler that it asks for where a field is missing, and ids that it accepts, the same each time."""
    async with raw_server(strict.strict(rule, *ANSWER)) as server:
        for _ in range(2):
            await loop(opened(server, key, model), FOREIGN, 1)
        first, second = (request.body for request in server.requests)
    assert first == second
    for secret in (b"not-for-others", b"secret", b"unstamped", b"thought of Gemini", b'"thought"'):
        assert secret not in first
    assert b'"one"' in first, "the conversation itself goes on"


async def test_state_of_another_model_of_the_same_provider_stays_behind(opened: Opened) -> None:
    state = ProviderState(provider="openrouter", model="a/b", data={"reasoning_details": [{"type": "x"}]})
    history: list[Message] = [*ASK, AIMessage(content="hm", provider_state=state), HumanMessage(content="?")]
    async with raw_server(strict.strict(strict.openrouter(), *ANSWER)) as server:
        await loop(opened(server, "openrouter", "c/d"), history, 1)
        assert "reasoning_details" not in sent(server)[0]


TURNS = [
    "gemini",
    "openrouter",
    "deepseek",
    "moonshot",
    "mistral",
    "openai",
    "gemini",
    "deepseek",
    "openrouter",
    "moonshot",
]
MODELS = {
    "gemini": "gemini-3-flash-preview", "openrouter": "anthropic/claude-sonnet-4.5", "deepseek": "deepseek-v4-pro",
    "moonshot": "kimi-k2.5", "mistral": "mistral-large-latest", "openai": "gpt-4.1",
}  # fmt: skip


def called_by(key: str, turn: int) -> list[bytes]:
    """A turn with one call, as the provider sends it, with what it wants back."""
    entry = call(0, f"{key}:call/{turn}", "weather", "{}", type="function")
    if key == "gemini":
        entry["extra_content"] = {"google": {"thought_signature": f"sig-{turn}"}}
    before = {
        "openrouter": [delta(reasoning_details=[{"type": "reasoning.text", "text": p, "signature": s, "index": 0}])
                       for p, s in (("th", None), (f"ought {turn}", None), ("", f"sig-{turn}"))],
        "deepseek": [delta(reasoning_content=f"deep {turn}")],
        "moonshot": [delta(reasoning_content=f"kimi {turn}")],
    }.get(key, [])  # fmt: skip
    return [*before, delta(tool_calls=[entry]), *CALLED]


def rule_of(key: str, upto: int) -> strict.Rule:
    """What the provider refuses in the second request of this turn: it knows the state of its own turns, and all of it."""
    own = [turn for turn in range(upto + 1) if TURNS[turn] == key]
    if key == "openrouter":
        details = {"type": "reasoning.text", "text": "", "signature": "", "index": 0}
        return strict.openrouter(*([details | {"text": f"thought {t}", "signature": f"sig-{t}"}] for t in own))
    return {
        "gemini": strict.gemini(*(f"sig-{t}" for t in own)),
        "deepseek": strict.deepseek(*(f"deep {t}" for t in own)),
        "moonshot": strict.kimi(*(f"kimi {t}" for t in own)),
        "mistral": strict.mistral,
        "openai": strict.openai,
    }[key]


async def test_a_thread_may_change_its_provider_at_each_of_ten_turns(opened: Opened) -> None:
    """Each gets all that it sent in earlier turns back and nothing of the others; no request is refused."""
    messages: list[Message] = []
    for turn, key in enumerate(TURNS):
        answers = [strict.strict(lambda _: None, *called_by(key, turn)), strict.strict(rule_of(key, turn), *ANSWER)]
        async with raw_server(*answers) as server:
            messages = await loop(
                opened(server, key, MODELS[key]), [*messages, HumanMessage(content=f"turn {turn}")], 2
            )
    assert sum(isinstance(message, AIMessage) for message in messages) == 20
