"""Other models that are asked where one fails before its first delta: when, in which order, with what, and what is told."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, ProviderState, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.deltas import Delta, FallbackDelta, Finish, TextDelta
from graphflow.models.options import CallLimits, ChatOptions, options_from_document
from graphflow.models.pool import ModelPool
from graphflow.models.provider import ProviderNotReady
from graphflow.models.providers import known_providers, open_model, resolve_provider
from graphflow.models.scripted.model import ScriptedModel
from graphflow.modes.checks import agent_issues
from tests.campaign import size
from tests.models.anthropic.service import sse, start
from tests.models.raw_server import DONE, STOP, Answer, Connection, RawServer, body, delta, event, raw_server, stream
from tests.models.turns import ASK, hear

FINE = stream(event({"model": "served-1", "choices": [{"index": 0, "delta": {"content": "well"}}]}), STOP, DONE)
CLAUDE = stream(
    start(input_tokens=3),
    sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "well"}}),
    sse({"type": "content_block_stop", "index": 0}),
    sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
    sse({"type": "message_stop"}),
)
BUSY = body(503, b'{"error": {"message": "overloaded"}}')


def refused(status: int, **error: Any) -> Answer:
    return body(status, json.dumps({"error": {"message": "no", **error}}).encode())


@asynccontextmanager
async def three(first: Answer, second: Answer = FINE, third: Answer = FINE) -> AsyncIterator[list[RawServer]]:
    async with raw_server(first) as a, raw_server(second) as b, raw_server(third) as c:
        yield [a, b, c]


def opened(servers: list[RawServer], *, names: Any = ("two", "three"), retries: int = 0, **second: Any) -> ChatModel:
    """The first of three providers, whose table names the others."""
    keys = ("one", "two", "three")
    tables: dict[str, dict[str, Any]] = {
        key: {"base_url": server.url, "model": f"model-{key}", "api_key_env": f"{key.upper()}_KEY"}
        for key, server in zip(keys, servers, strict=True)
    }
    tables["one"]["fallback"] = names if isinstance(names, bool) else list(names)
    tables["two"] |= second
    env = {f"{key.upper()}_KEY": f"secret-of-{key}" for key in keys} | {"LLM_MAX_RETRIES": str(retries)}
    return open_model("one", None, env, tables)


def counts(servers: list[RawServer]) -> list[int]:
    return [len(server.requests) for server in servers]


async def unheard(connection: Connection) -> None:
    await connection.cut()


async def silent(connection: Connection) -> None:
    await connection.hang()


# --- when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failing",
    [
        unheard, BUSY, refused(429), refused(401), refused(403), refused(402), refused(404), refused(500),
        refused(400, code="context_length_exceeded"), refused(413), stream(DONE), stream(event({"error": {"message": "x"}})),
        body(200, b"<html>proxy</html>", "text/html"), silent,
    ],
)  # fmt: skip
async def test_a_failure_before_the_first_delta_passes_the_turn_on(failing: Answer) -> None:
    async with three(failing) as servers:
        model = opened(servers)
        done = await complete(
            model, ASK, (), ChatOptions(limits=CallLimits(first_token_s=2) if failing is silent else None)
        )
        await model.aclose()
        assert (done.message.content, counts(servers)) == ("well", [1, 1, 0])
    (told,) = done.fallbacks
    assert (told.provider, told.model, told.failed) == ("two", "model-two", "one/model-one")
    assert told.message and done.served_model == "served-1"


async def test_a_scripted_model_that_fails_passes_the_turn_on(tmp_path: Path) -> None:
    script = tmp_path / "fails.json"
    script.write_text('{"otherwise": {"error": {"status": 503}}}', encoding="utf-8")
    async with raw_server(FINE) as server:
        two = {"base_url": server.url, "model": "m", "needs_key": False}
        tables: dict[str, dict[str, Any]] = {"scripted": {"script": str(script), "fallback": ["two/m"]}, "two": two}
        model = open_model("scripted", None, {}, tables)
        done = await complete(model, ASK)
        await model.aclose()
    assert (done.message.content, [told.failed for told in done.fallbacks]) == ("well", ["scripted/scripted"])


def test_a_scripted_model_has_no_other_client_to_fall_back_to() -> None:
    with pytest.raises(ProviderNotReady, match="name models instead"):
        open_model("scripted", None, {}, {"scripted": {"fallback": True}})


@pytest.mark.parametrize("kind", ["content_filter", "content_policy_violation", "moderation_blocked"])
async def test_what_a_provider_refuses_to_talk_about_is_not_asked_elsewhere(kind: str) -> None:
    async with three(refused(400, code=kind)) as servers:
        model = opened(servers)
        assert (await hear(model)).failure.detail["kind"] == kind
        await model.aclose()
        assert counts(servers) == [1, 0, 0]


async def test_a_turn_that_has_begun_is_never_asked_again() -> None:
    async def half(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(delta(content="half"))
        await connection.cut()

    async with three(half) as servers:
        model = opened(servers)
        heard = await hear(model)
        await model.aclose()
        assert (heard.texts, heard.failure.code, counts(servers)) == (["half"], "connection", [1, 0, 0])


async def test_retries_come_first_and_the_others_are_asked_in_their_order() -> None:
    soon = body(503, b'{"error": {"message": "overloaded"}}', retry_after="0")
    async with three(soon, soon) as servers:
        model = opened(servers, retries=1)
        done = await complete(model, ASK)
        await model.aclose()
        assert counts(servers) == [2, 2, 1]
    assert [told.provider for told in done.fallbacks] == ["two", "three"]
    assert [told.failed for told in done.fallbacks] == ["one/model-one", "two/model-two"]


async def test_when_all_fail_the_first_failure_is_told_with_the_others() -> None:
    async with three(refused(401), BUSY, refused(404)) as servers:
        model = opened(servers)
        failure = (await hear(model)).failure
        await model.aclose()
    assert failure.detail["status"] == 401 and failure.retryable, "a later try may find another one ready"
    assert "fallback two/model-two failed too" in failure.message and "overloaded" in failure.message
    assert [one["model"] for one in failure.detail["fallbacks"]] == ["two/model-two", "three/model-three"]
    assert "secret-of" not in failure.message + repr(failure.detail)


async def test_two_providers_may_stand_in_for_each_other() -> None:
    async with three(BUSY, BUSY) as servers:
        model = opened(servers, names=["two"], fallback=["one"])
        assert (await hear(model)).failure.detail["fallbacks"][0]["model"] == "two/model-two"
        await model.aclose()
        assert counts(servers) == [1, 1, 0], "the list of the model that was asked for counts, and no other"


async def test_a_call_names_models_itself_or_none() -> None:
    async with three(BUSY, BUSY) as servers:
        model = opened(servers)
        done = await complete(model, ASK, (), ChatOptions(fallback=("three/another",)))
        assert (done.fallbacks[0].model, servers[2].requests[0].json["model"]) == ("another", "another")
        assert (await hear(model, fallback=())).failure.detail["status"] == 503
        await model.aclose()
        assert counts(servers) == [2, 0, 1]


async def test_a_fallback_that_can_not_be_opened_is_passed_over_and_named() -> None:
    async with three(BUSY, BUSY, BUSY) as servers:
        model = opened(servers, api_key_env="UNSET")
        failure = (await hear(model)).failure
        await model.aclose()
        assert counts(servers) == [1, 0, 1]
    assert "fallback two failed too: provider 'two' can't be used: no API key is set" in failure.message


async def test_the_reader_decides_before_the_other_is_asked() -> None:
    """Whoever counts calls may end the stream when it hears of the fallback."""
    async with three(BUSY) as servers:
        model = opened(servers)
        async with aclosing(model.stream(ASK)) as deltas:
            assert isinstance(await anext(deltas), FallbackDelta)
            assert counts(servers) == [1, 0, 0]
        await model.aclose()
        assert counts(servers) == [1, 0, 0]


async def test_a_cancel_while_a_fallback_answers_asks_no_more() -> None:
    asked = asyncio.Event()

    async def waiting(connection: Connection) -> None:
        asked.set()
        await connection.hang()

    async with three(BUSY, waiting) as servers:
        model = opened(servers)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(complete(model, ASK))
            await asked.wait()
            task.cancel()
        assert task.cancelled()
        await model.aclose()
        assert counts(servers) == [1, 1, 0]


async def test_the_time_of_a_call_is_that_of_all_attempts() -> None:
    async with three(silent, silent) as servers:
        model = opened(servers)
        failure = (await hear(model, timeout_s=0.3)).failure
        await model.aclose()
        assert (failure.code, failure.detail["limit"], counts(servers)) == ("timeout", "total", [1, 0, 0])


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({"TWO_KEY": "secret-of-two"}, "Bearer secret-of-two"),
        ({}, None),
        ({"LLM_PROVIDER": "two"}, "Bearer secret-of-one"),
    ],
)
async def test_the_general_key_does_not_go_to_another_provider_unless_it_is_said_to_be_its(
    more: dict[str, str], sent: str | None
) -> None:
    async with raw_server(BUSY) as one, raw_server(FINE) as two:
        tables: dict[str, dict[str, Any]] = {
            "one": {"base_url": one.url, "model": "m", "api_key_env": "ONE_KEY", "fallback": ["two"]},
            "two": {"base_url": two.url, "model": "m", "api_key_env": "TWO_KEY"},
        }
        model = open_model("one", None, {"LLM_MAX_RETRIES": "0", "LLM_API_KEY": "secret-of-one", **more}, tables)
        heard = await hear(model)
        await model.aclose()
        assert one.requests[0].headers["authorization"] == "Bearer secret-of-one"
        assert [request.headers["authorization"] for request in two.requests] == ([sent] if sent else [])
    assert sent or "no API key is set" in heard.failure.message


# --- with what -----------------------------------------------------------------------------------

TALK = (
    HumanMessage(content="look"),
    AIMessage(
        content="",
        reasoning="hm",
        tool_calls=(ToolCall(id="call one", name="look", arguments="{}"),),
        provider_state=ProviderState(provider="one", model="model-one", data={"reasoning_details": ["opaque-state"]}),
    ),
    ToolMessage(tool_call_id="call one", content="seen"),
)


async def test_the_other_protocol_gets_the_conversation_without_the_state_of_the_first() -> None:
    async with three(BUSY, CLAUDE) as servers:
        model = opened(servers, protocol="anthropic")
        assert (await complete(model, TALK)).message.content == "well"
        await model.aclose()
        (sent,) = servers[1].requests
    kinds = [[block["type"] for block in turn["content"]] for turn in sent.json["messages"]]
    assert kinds == [["text"], ["tool_use"], ["tool_result"]]
    use, result = sent.json["messages"][1]["content"][0], sent.json["messages"][2]["content"][0]
    assert use["id"] == result["tool_use_id"] and " " not in use["id"]
    assert b"opaque-state" not in sent.body and b"secret-of-one" not in sent.body
    assert "secret-of-one" not in repr(sent.headers) and sent.headers["x-api-key"] == "secret-of-two"


async def test_options_for_one_provider_do_not_go_to_another() -> None:
    async with three(BUSY) as servers:
        model = opened(servers)
        options = ChatOptions(extra={"safe_prompt": True}, headers={"x-team": "a"}, temperature=0.5)
        done = await complete(model, ASK, (), options)
        await model.aclose()
        first, second = servers[0].requests[0], servers[1].requests[0]
    assert first.json["safe_prompt"] and first.headers["x-team"] == "a"
    assert "safe_prompt" not in second.json and "x-team" not in second.headers and second.json["temperature"] == 0.5
    assert set(done.fallbacks[0].ignored) == {"extra", "headers"}


async def test_a_limit_of_tokens_is_at_most_that_of_the_fallback() -> None:
    async with three(BUSY) as servers:
        env = {"LLM_MAX_RETRIES": "0", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": servers[1].url}
        tables = {"one": {"base_url": servers[0].url, "model": "m", "fallback": ["openai/gpt-4o"]}}
        model = open_model("one", None, env, tables)
        done = await complete(model, ASK, (), ChatOptions(max_tokens=60_000))
        await model.aclose()
        sent = [servers[0].requests[0].json["max_tokens"], servers[1].requests[0].json["max_completion_tokens"]]
    assert (sent, done.fallbacks[0].ignored) == ([60_000, 16_384], ("maxOutputTokens",))


PICTURE = HumanMessage(content=(TextPart(text="what is it?"), ImagePart(data=b"x", media_type="image/png", name="cat")))


async def test_a_fallback_that_takes_no_images_is_not_asked_about_one() -> None:
    async with three(BUSY, FINE) as servers:
        env = {"LLM_MAX_RETRIES": "0", "ZHIPU_API_KEY": "k", "ZHIPU_BASE_URL": servers[1].url}
        tables = {"one": {"base_url": servers[0].url, "model": "m", "fallback": ["zhipu/glm-5.2"]}}
        model = open_model("one", None, env, tables)
        failure = (await hear(model, [PICTURE])).failure
        assert "takes no image parts" in failure.message and counts(servers) == [1, 0, 0]
        done = await complete(model, [PICTURE, AIMessage(content="A cat."), HumanMessage(content="why?")])
        await model.aclose()
        assert done.message.content == "well"
        assert "[image: cat]" in servers[1].requests[0].json["messages"][0]["content"], "an older one is named as text"


# --- refused when it is loaded -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["deepsek/m"], "no provider is named 'deepsek'; did you mean 'deepseek'?"),
        (["one"], "'one' is the model itself"),
        (["deepseek", "deepseek"], "has 'deepseek' twice"),
        (["deepseek:m", "deepseek/m"], "has 'deepseek/m' twice"),
        (["auto"], "names no model"),
        (["/m"], "names no model"),
        ([7], "Expected `str`"),
    ],
)
def test_a_wrong_name_in_a_table_is_refused(names: list[Any], said: str) -> None:
    with pytest.raises(ProviderNotReady) as caught:
        resolve_provider("one", {}, {"one": {"base_url": "http://h/v1", "fallback": names}})
    assert "[providers.one]" in caught.value.message and said in caught.value.message


@pytest.mark.parametrize("names", ["deepseek", 7, [7], ["a b"], ["auto"], ["x", "x"]])
def test_wrong_names_in_options_are_refused(names: Any) -> None:
    with pytest.raises(ValueError, match="fallback"):
        options_from_document({"fallback": names})


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"options": {"fallback": ["opnai/m"]}}, "no provider is named 'opnai'"),
        ({"providerKey": "openai", "model": "m", "options": {"fallback": ["x/m", "openai/m"]}}, "is the model itself"),
        ({"providerKey": "openai", "options": {"fallback": ["openai"]}}, "is the model itself"),
    ],
)
def test_a_wrong_name_in_an_agents_file_is_refused_at_its_place(agent: dict[str, Any], said: str) -> None:
    known = [*known_providers(), "x"]
    (issue,) = agent_issues(agent, providers=known)
    assert issue.pointer.startswith("/options/fallback/") and said in issue.message and issue.hint


def test_a_model_of_the_same_provider_may_stand_in() -> None:
    agent = {"providerKey": "openai", "model": "gpt-6-sol", "options": {"fallback": ["openai/gpt-6-luna", "openai"]}}
    assert not list(agent_issues(agent, providers=known_providers()))


async def test_every_text_of_a_turn_comes_from_one_model() -> None:
    async with three(BUSY) as servers:
        model = opened(servers)
        heard = await hear(model)
        await model.aclose()
    assert [type(d) for d in heard.deltas[:2]] == [FallbackDelta, TextDelta] and heard.texts == ["well"]


# --- any course of things ------------------------------------------------------------------------


class Played(ScriptedModel):
    """Says its texts, fails before or behind them, or is refused when it is opened."""

    def __init__(self, name: str, texts: list[str], error: ModelError | None) -> None:
        super().__init__(model=name, provider="p")
        self.texts, self.error, self.asked = texts, error, 0

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        for text in self.texts:
            yield TextDelta(f"{self.model} {text}")
        if self.error is not None:
            raise self.error
        yield Finish("stop", "stop")


@pytest.mark.campaign
async def test_whatever_fails_a_turn_is_that_of_one_model_and_each_is_asked_once() -> None:
    for seed in range(size(500, long=20_000)):
        dice = random.Random(seed)
        kinds = [dice.choice(("fine", "fails", "cut", "filtered", "unready")) for _ in range(4)]
        kinds[0] = kinds[0] if kinds[0] != "unready" else "fails"
        models = {}
        for position, kind in enumerate(kinds):
            error = (
                None
                if kind == "fine"
                else ModelError(kind, code="provider_error", kind="content_filter" * (kind == "filtered"))
            )
            texts = ["a", "b"][: dice.randint(1, 2)] if kind in ("fine", "cut") else []
            models[f"m{position}"] = Played(f"m{position}", texts, error)

        def open_played(provider: str | None, name: str | None, models: Any = models, kinds: Any = kinds) -> ChatModel:
            if kinds[int((name or "m0")[1:])] == "unready":
                raise ProviderNotReady("no key", retryable=False)
            opened: ChatModel = models[name or "m0"]
            return opened

        names = dice.sample(["p/m0", "p/m1", "p/m2", "p/m3"], dice.randint(0, 4))
        heard = await hear(ModelPool(open_played)("p", "m0"), fallback=tuple(names))
        order = ["m0", *(name[2:] for name in names if name != "p/m0")]
        ends = next(
            (i for i, m in enumerate(order) if kinds[int(m[1:])] in ("fine", "cut", "filtered")), len(order) - 1
        )
        reached = [m for m in order[: ends + 1] if kinds[int(m[1:])] != "unready"]
        assert [m for m in models if models[m].asked] == sorted(reached), (seed, kinds, order)
        assert all(model.asked <= 1 for model in models.values()), seed
        assert {text.split()[0] for text in heard.texts} <= {order[ends]}, seed
        assert (heard.error is None) == (kinds[int(order[ends][1:])] == "fine"), (seed, kinds, order)
        told = [d.model for d in heard.deltas if isinstance(d, FallbackDelta)]
        assert told == reached[1:], (seed, kinds, order)
