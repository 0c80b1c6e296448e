"""The native client as a whole: true streaming, connections, leaving, what a request says."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from graphflow.errors import ModelError
from graphflow.messages import HumanMessage, SystemMessage, ToolMessage
from graphflow.models.chat_model import (
    ChatOptions,
    Finish,
    OneTool,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
    complete,
)
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import PROFILES, Knobs, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.remote.transport import HttpxTransport
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptedError, ScriptTurn
from graphflow.models.scripted.server import DeltaGate, serve_scripted
from tests.models.raw_server import DONE, STOP, Connection, call, delta, raw_server, stream
from tests.models.turns import ASK, OpenClient, hear, spec
from tests.patience import PATIENCE_S

GOOD = stream(delta(content="Hello"), STOP, DONE)


async def test_each_delta_is_given_out_before_the_provider_sends_the_next(open_client: OpenClient) -> None:
    """The hard rule of true streaming: the server holds delta n+1 until delta n was heard."""
    turn = ScriptTurn(reasoning="ab", text="cd", tool_calls=(ScriptedCall(name="f", arguments={"x": 12}),), piece=1)
    gate = DeltaGate()
    async with asyncio.timeout(PATIENCE_S), serve_scripted(ScriptedModel(Script(turns=(turn,))), gate=gate) as server:
        heard = []
        async with aclosing(open_client(server.url).stream(ASK, spec("f"))) as deltas:
            gate.release()
            async for delta_ in deltas:
                heard.append(delta_)
                if not isinstance(delta_, Finish):
                    assert server.sent == len(heard)
                    gate.release()
    call_id = next(d.id for d in heard if isinstance(d, ToolCallDelta))
    assert heard[:-1] == [
        ThinkingDelta("a"),
        ThinkingDelta("b"),
        TextDelta("c"),
        TextDelta("d"),
        ToolCallDelta(0, call_id, "f", ""),
        *(ToolCallDelta(0, None, None, letter) for letter in '{"x":12}'),
    ]


async def test_deltas_that_arrive_in_one_packet_stay_apart(open_client: OpenClient) -> None:
    async with raw_server(stream(delta(content="a") + delta(content="b") + delta(content="c") + STOP)) as server:
        assert (await hear(open_client(server.url))).texts == ["a", "b", "c"]


async def test_a_connection_is_used_again_for_the_next_turn(open_client: OpenClient) -> None:
    async with raw_server(GOOD) as server:
        client = open_client(server.url)
        for _ in range(3):
            assert (await hear(client)).texts == ["Hello"]
        assert (len(server.requests), server.connections) == (3, 1)


async def test_a_connection_that_the_server_closed_meanwhile_costs_a_retry_only(open_client: OpenClient) -> None:
    async def once(connection: Connection) -> None:
        await GOOD(connection)
        connection.writer.close()

    async with raw_server(once, GOOD) as server:
        client = open_client(server.url, limits=Limits(max_retries=1))
        assert (await hear(client)).texts == ["Hello"]
        assert (await hear(client)).texts == ["Hello"]


async def test_leaving_early_closes_the_connection_to_the_provider(open_client: OpenClient) -> None:
    left = asyncio.Event()

    async def talks_on(connection: Connection) -> None:
        await connection.head()
        try:
            while not connection.released.is_set():
                await connection.chunk(delta(content="blah"))
                await asyncio.sleep(0.005)
        except ConnectionError:
            left.set()
            raise

    async with asyncio.timeout(PATIENCE_S), raw_server(talks_on) as server:
        async with aclosing(open_client(server.url).stream(ASK)) as deltas:
            assert await anext(deltas) == TextDelta("blah")
        await left.wait()


async def test_cancelling_while_the_provider_is_silent_is_a_cancellation_and_no_model_error(
    open_client: OpenClient,
) -> None:
    async with asyncio.timeout(PATIENCE_S), raw_server(Connection.hang) as server:
        client = open_client(server.url)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(complete(client, ASK))
            while not server.requests:
                await asyncio.sleep(0)
            task.cancel()
    assert task.cancelled()


async def test_a_slow_consumer_uses_up_no_idle_time(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(first_data_s=60, idle_s=60, total_s=6_000)
    loop = asyncio.get_running_loop()
    clock, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: clock() + passed)
    async with raw_server(stream(delta(content="a"), delta(content="b"), STOP)) as server:
        heard = []
        async with aclosing(open_client(server.url, limits=limits).stream(ASK)) as deltas:
            async for delta_ in deltas:
                heard.append(delta_)
                passed += 100
                await asyncio.sleep(0.01)  # every timer of the last hundred seconds fires
    assert heard[:-1] == [TextDelta("a"), TextDelta("b")]


def test_one_transport_serves_several_event_loops_one_after_another() -> None:
    """Nobody closes it: the pools end with their loops, without a warning about open sockets."""
    transport = HttpxTransport()

    async def once() -> str:
        async with serve_scripted(ScriptedModel(Script(turns=(ScriptTurn(text="hi"),)))) as server:
            provider = Provider(key="x", profile=Profile(), base_url=server.url)
            model = OpenAICompatibleModel(provider, "m", transport=transport)
            return (await complete(model, ASK)).message.text

    assert [asyncio.run(once()) for _ in range(2)] == ["hi", "hi"]


async def test_faults_of_the_server_are_survived(open_client: OpenClient, pauses: list[float]) -> None:
    async with serve_scripted(ScriptedModel(Script(turns=(ScriptTurn(text="fine"),)))) as server:
        server.fail_next(ScriptedError(status=429, headers={"Retry-After": "2"}))
        server.fail_next(ScriptedError(status=503))
        client = open_client(server.url, limits=Limits(max_retries=2))
        assert (await hear(client)).turn.text == "fine"
        assert len(server.requests) == 3
    assert pauses == [2.0, 0.5]


# --- the request ---------------------------------------------------------------------------------


async def sent(
    open_client: OpenClient, messages: Any = ASK, tools: Any = (), options: Any = None, **profile: Any
) -> Any:
    """The body of the request that this makes."""
    async with raw_server(GOOD) as server:
        await complete(open_client(server.url, **profile), messages, tools, options)
        assert server.requests[0].path == "/v1/chat/completions"
        return server.requests[0].json


async def test_half_a_character_in_a_message_is_sent_as_one_that_nobody_knows(open_client: OpenClient) -> None:
    """It may come from a function's result; a request that can't be made would end the thread for ever."""
    body = await sent(open_client, [HumanMessage(content="a\ud83d b")])
    assert body["messages"] == [{"role": "user", "content": "a\ufffd b"}]


async def test_a_plain_request_asks_for_a_stream_with_usage_and_says_no_more(open_client: OpenClient) -> None:
    messages = [SystemMessage(content="Be brief."), HumanMessage(content="hi", id="m1")]
    assert await sent(open_client, messages) == {
        "model": "fake-model",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_every_option_has_its_field(open_client: OpenClient) -> None:
    options = ChatOptions(
        temperature=0.2,
        top_p=0.9,
        max_tokens=5,
        stop=("a", "b"),
        tool_choice=OneTool("f"),
        parallel_tool_calls=False,
        seed=7,
        extra={"top_k": 3},
    )
    body = await sent(
        open_client, tools=[ToolSpec(name="f", description="F.", parameters={"type": "object"})], options=options
    )
    assert {k: v for k, v in body.items() if k not in ("model", "messages", "stream", "stream_options")} == {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 5,
        "stop": ["a", "b"],
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}}}
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "seed": 7,
        "top_k": 3,
    }


async def test_fields_about_tools_are_left_out_where_none_is_offered(open_client: OpenClient) -> None:
    body = await sent(open_client, options=ChatOptions(tool_choice="none", parallel_tool_calls=False))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


async def test_a_profile_changes_what_its_provider_needs_changed(open_client: OpenClient) -> None:
    knobs = Knobs(
        max_tokens="max_completion_tokens",
        parallel_tool_calls=False,
        always={"safe": True},
        with_tools={"tool_stream": True},
        HIGH={"effort": "high"},
        LOW={"effort": "low"},
        when_forced="LOW",
    )
    options = ChatOptions(max_tokens=5, compute="HIGH", parallel_tool_calls=True)
    body = await sent(open_client, tools=spec("f"), options=options, knobs=knobs, usage="unasked")
    assert body["max_completion_tokens"] == 5
    assert (body["safe"], body["tool_stream"], body["effort"]) == (True, True, "high")
    assert not {"max_tokens", "stream_options", "parallel_tool_calls"} & body.keys()
    forced = ChatOptions(compute="HIGH", tool_choice="required")
    assert (await sent(open_client, tools=spec("f"), options=forced, knobs=knobs))["effort"] == "low"


@pytest.mark.parametrize(("pattern", "known"), [("^fake", True), ("^other", False), (None, True)])
async def test_compute_is_sent_to_models_that_know_it_only(
    open_client: OpenClient, pattern: str | None, known: bool
) -> None:
    knobs = Knobs(HIGH={"effort": "high"}, models=pattern)
    body = await sent(open_client, options=ChatOptions(compute="HIGH"), knobs=knobs)
    assert ("effort" in body) == known


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


async def test_a_schema_is_asked_for_in_the_way_that_the_provider_knows(open_client: OpenClient) -> None:
    options = ChatOptions(schema=SCHEMA)
    body = await sent(open_client, options=options)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    body = await sent(open_client, options=options, knobs=Knobs(structured="json_object"))
    assert body["response_format"] == {"type": "json_object"}
    assert '"properties"' in body["messages"][0]["content"]
    messages = [SystemMessage(content="Be brief."), *ASK]
    body = await sent(open_client, messages, options=options, knobs=Knobs(structured="prompt"))
    assert "response_format" not in body
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].startswith("Be brief.\n\nAnswer with one JSON object")


async def test_headers_of_the_profile_and_the_key_are_sent_and_a_query_of_the_address_is_kept() -> None:
    async with raw_server(GOOD) as server:
        provider = Provider(
            key="x",
            profile=Profile(),
            base_url=f"{server.url}?api-version=7",
            api_key="secret-1",
            headers={"X-Team": "t"},
        )
        model = OpenAICompatibleModel(provider, "m")
        await complete(model, ASK)
        await model.aclose()
        request = server.requests[0]
    assert request.path == "/v1/chat/completions?api-version=7"
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer secret-1", "t")


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with raw_server(GOOD) as server:
        assert (await hear(open_client(server.url))).texts == ["Hello"]


async def test_an_address_that_can_not_be_one_is_a_connection_error() -> None:
    model = OpenAICompatibleModel(
        Provider(key="x", profile=Profile(), base_url="http://127.0.0.1:0/v1"), "m", limits=Limits(max_retries=0)
    )
    with pytest.raises(ModelError) as caught:
        await complete(model, ASK)
    await model.aclose()
    assert caught.value.code == "connection"


@pytest.mark.parametrize("key", [k for k, p in PROFILES.items() if p.protocol == "openai"])
async def test_every_known_provider_makes_a_request_that_a_server_understands(key: str) -> None:
    async with serve_scripted(ScriptedModel(Script(turns=(ScriptTurn(text="fine"),)))) as server:
        model = OpenAICompatibleModel(
            Provider(key=key, profile=PROFILES[key], base_url=server.url), PROFILES[key].model
        )
        options = ChatOptions(temperature=0.5, compute="HIGH", max_tokens=50, schema=SCHEMA)
        done = await complete(model, ASK, spec("f"), options)
        await model.aclose()
    assert "fine" in done.message.content


async def test_a_call_and_its_result_go_back_paired(open_client: OpenClient) -> None:
    async with raw_server(stream(delta("tool_calls", tool_calls=[call(0, "a", "f", "{}")])), GOOD) as server:
        client = open_client(server.url)
        said = (await complete(client, ASK)).message
        await complete(client, [*ASK, said, ToolMessage(tool_call_id=said.tool_calls[0].id, content="ok", name="f")])
        back = server.requests[1].json["messages"][1:]
    assert back == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]
