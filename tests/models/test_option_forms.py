"""Options in documents, nodes and calls: what each becomes on the wire, which wins, and what is refused before any call."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from graphflow import Context, DefinitionError, Graph, load_graph
from graphflow.messages import HumanMessage
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.options import ChatOptions, ToolSpec, options_from_document, response_format
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.providers import open_provider
from graphflow.models.remote.retry import Limits, limits_of_call
from graphflow.testing import ScriptedModel
from tests.models.raw_server import DONE, STOP, Connection, delta, event, raw_server, stream
from tests.models.turns import OpenClient, hear

GOOD = stream(delta(content="{}"), STOP, DONE)
STRICT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
LAX = {"type": "object", "properties": {"a": {"type": "string"}}}


async def sent(open_client: OpenClient, tools: tuple[ToolSpec, ...] = (), /, **fields: Any) -> dict[str, Any]:
    knobs = fields.pop("knobs", {})
    async with raw_server(GOOD) as server:
        from graphflow.models.profiles import Knobs

        model: ChatModel = open_client(server.url, knobs=Knobs(**knobs))
        await complete(model, (HumanMessage(content="hi"),), tools, options_from_document(fields))
        body: dict[str, Any] = server.requests[0].json
    return {
        name: value for name, value in body.items() if name not in ("model", "messages", "stream", "stream_options")
    }


async def test_every_option_of_a_document_has_its_field(open_client: OpenClient) -> None:
    tool = (ToolSpec(name="look_up"),)
    body = await sent(
        open_client,
        tool,
        temperature=0.5,
        topP=0.9,
        maxOutputTokens=10,
        stop="END",
        seed=7,
        reasoningEffort="high",
        toolChoice="look_up",
        parallelToolCalls=False,
        responseFormat=STRICT,
        extra={"top_k": 4},
        knobs={"effort": "reasoning_effort"},
    )
    body.pop("tools")
    assert body == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 10,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "high",
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": STRICT, "strict": True},
        },
        "top_k": 4,
    }


async def test_fields_about_tools_are_left_out_where_none_are_offered(open_client: OpenClient) -> None:
    assert await sent(open_client, toolChoice="required", parallelToolCalls=True) == {}


async def test_a_provider_with_names_of_its_own_gets_them(open_client: OpenClient) -> None:
    knobs = {"seed": "random_seed", "max_tokens": "max_completion_tokens", "LOW": {"thinking": "off"}}
    body = await sent(open_client, seed=1, maxTokens=2, reasoningEffort="minimal", knobs=knobs)
    assert body == {"random_seed": 1, "max_completion_tokens": 2, "thinking": "off"}


async def test_an_effort_wins_over_compute(open_client: OpenClient) -> None:
    async with raw_server(GOOD) as server:
        from graphflow.models.profiles import Knobs

        knobs = Knobs(effort="reasoning_effort", LOW={"reasoning_effort": "low"})
        options = ChatOptions(compute="LOW", reasoning_effort="max")
        await complete(open_client(server.url, knobs=knobs), (HumanMessage(content="hi"),), (), options)
        assert server.requests[0].json["reasoning_effort"] == "max"


async def test_a_schema_wins_over_a_response_format(open_client: OpenClient) -> None:
    async with raw_server(GOOD) as server:
        options = ChatOptions(schema=LAX, response_format=response_format(STRICT))
        await complete(open_client(server.url), (HumanMessage(content="hi"),), (), options)
        asked = server.requests[0].json["response_format"]["json_schema"]
    assert asked == {"name": "answer", "schema": LAX}


async def test_headers_are_sent_and_never_replace_ours(open_client: OpenClient) -> None:
    async with raw_server(GOOD) as server:
        model = open_client(server.url, api_key="k")
        await complete(
            model, (HumanMessage(content="hi"),), (), ChatOptions(headers={"X-Team": "blue", "User-Agent": "me"})
        )
        headers = server.requests[0].headers
    assert headers["x-team"] == "blue"
    assert (headers["authorization"], headers["user-agent"]) == ("Bearer k", "graphflow")


@pytest.mark.parametrize(
    ("form", "strict", "name"),
    [
        (STRICT, True, "answer"),
        (LAX, False, "answer"),
        ({"schema": STRICT, "strict": False}, False, "answer"),
        ({"schema": STRICT, "strict": True, "name": "report"}, True, "report"),
        ({"type": "json_schema", "json_schema": {"name": "report", "schema": LAX}}, False, "report"),
    ],
)
def test_a_response_format_is_strict_where_it_can_be(form: Any, strict: bool, name: str) -> None:
    made = response_format(form)
    assert (made.strict, made.name) == (strict, name)
    assert made.schema in (STRICT, LAX)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"responseFormat": {"schema": LAX, "strict": True}}, "additionalProperties"),
        ({"responseFormat": {"type": "array"}}, "object"),
        ({"responseFormat": "json"}, "responseFormat"),
        ({"responseFormat": {"schema": LAX, "name": "a b"}}, "name"),
        ({"reasoningEffort": "huge"}, "reasoningEffort: reasoning_effort is 'huge'"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 1 << 60}, "seed"),
        ({"parallelToolCalls": "yes"}, "parallelToolCalls"),
        ({"maxOutputTokens": 0}, "maxOutputTokens: max_tokens is 0"),
        ({"limits": {"idleMs": 0}}, "idleMs"),
        ({"limits": {"idle": 5}}, "idle"),
        ({"limits": 5}, "limits"),
        ({"headers": {"Authorization": "Bearer x"}}, "Authorization"),
        ({"headers": {"api-key": "x"}}, "api-key"),
        ({"headers": {"x-bad": "two\nlines"}}, "x-bad"),
        ({"headers": {"x-bad": 1}}, "x-bad"),
        ({"headers": "x"}, "headers"),
        ({"extra": {"model": "other"}}, "model"),
        ({"extra": {"messages": []}}, "messages"),
        ({"extra": {"api_key": "k"}}, "api_key"),
        ({"extra": {"temperature": 1}}, "temperature"),
        ({"extra": {"max_completion_tokens": 1}}, "maxOutputTokens"),
        ({"extra": {"a": object()}}, "not JSON"),
        ({"extra": "x"}, "extra"),
        ({"stop": 5}, "stop"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_no_call_could_be_made_with_is_refused_by_its_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        options_from_document(options)


def test_later_levels_win_also_by_another_name() -> None:
    made = options_from_document({"maxTokens": 1, "seed": 1}, {"maxOutputTokens": 2}, {"maxTokens": 3}, None)
    assert (made.max_tokens, made.seed) == (3, 1)


# --- documents


def agent(**options: Any) -> dict[str, Any]:
    return {"key": "a", "mode": "PLAIN", "plain": {"systemPrompt": "x"}, "options": options}


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"authorization": "x"}},
        {"extra": {"api_key": "x"}},
        {"responseFormat": {"schema": LAX, "strict": True}},
        {"reasoningEffort": "huge"},
        {"maxTokens": 5, "maxOutputTokens": 6},
        {"limits": {"totalMs": 0}},
    ],
)
def test_an_agent_file_with_such_options_is_refused_when_it_is_loaded(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="options"):
        load_graph(agent(**options))


async def test_the_options_of_a_node_win_over_those_of_its_document() -> None:
    model = ScriptedModel([{"text": "fine"}])
    graph = {
        "graphflow": "1",
        "start": "ask",
        "options": {"temperature": 0.1, "topP": 0.5},
        "nodes": {"ask": {"use": "model", "with": {"options": {"temperature": 0.9}}, "next": "end"}},
    }
    await load_graph(graph, model=model).run({"query": "hi"})
    asked = model.requests[0].options
    assert (asked.temperature, asked.top_p) == (0.9, 0.5)


def test_wrong_options_of_a_node_are_errors_of_the_document() -> None:
    node = {"use": "model", "with": {"options": {"extra": {"model": "m"}}}, "next": "end"}
    with pytest.raises(DefinitionError, match="/nodes/ask/with/options"):
        load_graph({"graphflow": "1", "start": "ask", "nodes": {"ask": node}})


class State(TypedDict, total=False):
    said: str


async def test_the_options_of_a_call_win_over_all_others_and_wrong_ones_name_the_call() -> None:
    model = ScriptedModel([{"text": "fine"}])
    graph: Graph[Any] = Graph(State, options={"temperature": 0.1, "seed": 3})

    @graph.node
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.call_model("hi", options={"temperature": 0.7})
        await ctx.call_model("hi", options={"headers": {"cookie": "x"}})
        return {}

    result = await graph.compile(model=model).run({})
    asked = model.requests[0].options
    assert (asked.temperature, asked.seed) == (0.7, 3)
    assert result.error is not None and result.error["code"] == "validation" and "cookie" in result.error["message"]


# --- limits


def test_limits_of_a_call_win_over_those_of_the_provider() -> None:
    of_provider = limits_of_call(Limits(), options_from_document({"limits": {"idleMs": 5000, "connectMs": 100}}).limits)
    assert (of_provider.idle_s, of_provider.connect_s, of_provider.total_s) == (5, 0.1, 600)
    options = options_from_document({"limits": {"idleMs": 1000, "firstTokenMs": 2000}, "timeoutMs": 3000})
    of_call = limits_of_call(of_provider, options.limits, options.timeout_s)
    assert (of_call.first_data_s, of_call.idle_s, of_call.connect_s, of_call.total_s) == (2, 1, 0.1, 3)


async def test_a_limit_of_the_call_ends_a_silent_stream(open_client: OpenClient) -> None:
    async def stalls(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(delta(content="Hello"))
        await connection.hang()

    long = Limits(first_data_s=60, idle_s=60, total_s=120, max_retries=0)
    async with raw_server(stalls) as server:
        options = options_from_document({"limits": {"idleMs": 50}})
        heard = await hear(open_client(server.url, limits=long), limits=options.limits)
    assert heard.failure.detail["limit"] == "idle"


async def test_a_silent_thinker_is_not_asked_again(open_client: OpenClient, pauses: list[float]) -> None:
    """The head of the answer is there, so the provider works; asked anew it would begin anew, and both would be paid for."""

    async def thinks(connection: Connection) -> None:
        await connection.head()
        await connection.hang()

    limits = Limits(first_data_s=1, idle_s=60, total_s=120, max_retries=2)
    async with raw_server(thinks) as server:
        heard = await hear(open_client(server.url, limits=limits))
        assert len(server.requests) == 1
    assert (heard.failure.code, heard.failure.detail["limit"], pauses) == ("timeout", "first_data", [])


GREETINGS = {
    "openai": event({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                     "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}),
    "responses": event({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
    "anthropic": event({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}) + event({"type": "ping"}),
    "gemini": event({"responseId": "r", "usageMetadata": {"promptTokenCount": 1}}),
}  # fmt: skip
GREETINGS["library"] = GREETINGS["openai"]
"""What comes before the first word."""


@pytest.mark.parametrize("protocol", GREETINGS)
async def test_one_that_thinks_behind_its_greeting_is_not_asked_again(protocol: Any) -> None:
    """The greeting is an event with data: the silence behind it was taken for another one, and the thinker asked anew."""

    async def thinks(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(GREETINGS[protocol])
        await connection.hang()

    limits = Limits(first_data_s=60, idle_s=0.05, total_s=120, max_retries=2, backoff_s=0)
    async with raw_server(thinks) as server:
        provider = Provider(key="mine", profile=Profile(protocol=protocol), base_url=server.url, api_key="k-123456")
        model = open_provider(provider, "m", {}, limits=limits)
        failure = (await hear(model)).failure
        await model.aclose()
        assert len(server.requests) == 1
    assert (failure.code, failure.retryable) == ("timeout", False)


async def test_silence_before_the_head_is_asked_again(open_client: OpenClient, pauses: list[float]) -> None:
    limits = Limits(first_data_s=0.05, idle_s=60, total_s=120, max_retries=1)
    async with raw_server(Connection.hang) as server:
        await hear(open_client(server.url, limits=limits))
    assert len(pauses) == 1
