"""What is asked of Claude models: no option, tool, schema or conversation may make the service refuse the request."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.content import AudioPart, FilePart, ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.anthropic.claude_rules import RULES
from graphflow.models.anthropic.schema import structured_schema
from graphflow.models.chat_model import ChatOptions, complete
from graphflow.models.options import OneTool, ToolSpec, options_from_document
from graphflow.models.profiles import Knobs
from graphflow.models.providers import open_provider, resolve_provider
from tests.models.anthropic.service import Service, answering, serving, text, turn
from tests.models.raw_server import stream
from tests.models.turns import spec

ASK: list[Message] = [HumanMessage(content="hi")]
ANSWER = turn("end_turn", text(0, "hello"))
MODELS = ["claude-haiku-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-6", "claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5-1"]  # fmt: skip


async def asked(
    messages: list[Message] = ASK, tools: Any = (), model: str = "claude-sonnet-4-5", **options: Any
) -> dict[str, Any]:
    """The request, which the service must not refuse."""
    service = Service(ANSWER, model=model)
    async with serving(service) as opened:
        await complete(opened, messages, tools, ChatOptions(**options))
    assert service.refusals == []
    return service.requests[0]


@pytest.mark.parametrize("choice", [None, "none", "auto", "required", OneTool("weather")])
@pytest.mark.parametrize("compute", [None, "LOW", "MEDIUM", "HIGH"])
@pytest.mark.parametrize("model", MODELS)
async def test_no_choice_of_options_is_refused(model: str, compute: Any, choice: Any) -> None:
    """https://platform.claude.com/docs/en/about-claude/models/migration-guide"""
    for limit in (None, 1, 1500, 4000):
        request = await asked(
            tools=spec("weather"), model=model, compute=compute, tool_choice=choice, max_tokens=limit, temperature=1.7, top_p=0.9,
            parallel_tool_calls=False, stop=("END", "\n\n"),
        )  # fmt: skip
        assert (request["model"], request["stop_sequences"]) == (model, ["END"]), "a blank stop sequence is refused"


async def test_the_limit_of_tokens_is_that_of_the_model_unless_one_is_asked_for() -> None:
    assert (await asked(model="claude-sonnet-5-5"))["max_tokens"] == 128_000
    assert (await asked(model="claude-sonnet-4-5-20250929"))["max_tokens"] == 64_000
    assert (await asked(model="claude-unheard-of"))["max_tokens"] == 8192
    assert (await asked(max_tokens=7))["max_tokens"] == 7


async def test_thinking_is_an_effort_or_a_budget_below_the_limit() -> None:
    new, old = await asked(model="claude-opus-5-5", compute="HIGH"), await asked(compute="HIGH", max_tokens=2000)
    assert (new["output_config"], new["thinking"]["type"]) == ({"effort": "high"}, "adaptive")
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 1500}


async def test_a_system_prompt_of_several_messages_is_one() -> None:
    talk: list[Message] = [SystemMessage(content="One."), *ASK, SystemMessage(content="Two.")]
    request = await asked(talk)
    assert request["system"] == [{"type": "text", "text": "One.\n\nTwo."}]
    assert [m["role"] for m in request["messages"]] == ["user"]


async def test_the_prompt_of_an_agent_with_tools_is_cached_in_two_places_and_others_are_not() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/prompt-caching"""
    talk: list[Message] = [SystemMessage(content="Be brief."), *ASK]
    request = await asked(talk, spec("weather"))
    marks = [request["system"][-1], request["messages"][-1]["content"][-1]]
    assert all(block["cache_control"] == {"type": "ephemeral"} for block in marks)
    assert "cache_control" not in str(await asked(talk))


@pytest.mark.parametrize("tools", [(), spec("weather")])
async def test_the_setting_for_prompt_caching_wins_over_the_default(tools: Any) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/prompt-caching#1-hour-cache-duration"""
    assert "cache_control" not in str(await asked(tools=tools, prompt_cache="off"))
    last = (await asked(tools=tools, prompt_cache="1h"))["messages"][-1]["content"][-1]
    assert last["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert options_from_document({"promptCache": "1h"}).prompt_cache == "1h"
    with pytest.raises(ValueError, match="promptCache.*'5h'"):
        options_from_document({"promptCache": "5h"})


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
@pytest.mark.parametrize("model", MODELS)
async def test_no_effort_is_refused(model: str, effort: Any) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/effort"""
    for choice in (None, "required"):
        request = await asked(
            tools=spec("weather"), model=model, reasoning_effort=effort, tool_choice=choice, temperature=0.5
        )
        thinking = request.get("thinking", {}).get("type")
        assert thinking != "disabled" or (effort == "none" and "fable" not in model)
        assert effort != "none" or thinking in (None, "disabled") or "fable" in model


async def test_headers_of_a_call_are_sent() -> None:
    """https://platform.claude.com/docs/en/api/beta-headers"""
    async with answering(stream(*ANSWER)) as (model, server):
        await complete(model, ASK, (), ChatOptions(headers={"anthropic-beta": "x-2026"}))
        assert server.requests[0].headers["anthropic-beta"] == "x-2026"


async def test_tools_that_were_called_are_named_where_none_are_offered() -> None:
    """https://github.com/BerriAI/litellm/issues/5388"""
    called = AIMessage(tool_calls=(ToolCall(id="t", name="weather"),))
    request = await asked([*ASK, called, ToolMessage(tool_call_id="t", content="21")])
    assert request["tool_choice"] == {"type": "none"} and request["tools"][0]["name"] == "weather"


HOSTILE: list[list[Message]] = [
    [],
    [SystemMessage(content="  ")],
    [HumanMessage(content="")],
    [AIMessage(content="first")],
    [*ASK, AIMessage(content="half", status="cancelled")],
    [*ASK, HumanMessage(content="again"), AIMessage(content=" "), AIMessage(content="a"), AIMessage(content="b"), *ASK],
    [ToolMessage(tool_call_id="gone", content="late"), *ASK],
    [*ASK, AIMessage(tool_calls=(ToolCall(id="a/b", name="f", arguments="{"),)), *ASK],
    [*ASK, AIMessage(tool_calls=(ToolCall(id="t", name="f"),)), ToolMessage(tool_call_id="t", content=""), ToolMessage(tool_call_id="t", content="twice")],
    [*ASK, AIMessage(tool_calls=(ToolCall(id="t", name="f"),)), *ASK, AIMessage(content="x"), ToolMessage(tool_call_id="t", content="late")],
    [HumanMessage(content="half \ud83d a character")],
]  # fmt: skip


@pytest.mark.parametrize("talk", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-sonnet-5-5"])
async def test_no_order_of_a_stored_thread_is_refused(talk: list[Message], model: str) -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls"""
    for compute in (None, "HIGH"):
        request = await asked(talk, spec("f"), model=model, compute=compute)
        assert request["messages"][0]["role"] == "user"


async def test_parts_become_blocks_and_what_has_no_form_is_said() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/vision, https://platform.claude.com/docs/en/build-with-claude/pdf-support"""
    parts = (
        TextPart(text="Look:"),
        ImagePart(url="https://w.org/a.png"),
        FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
        FilePart(data=b"text", media_type="text/markdown"),
        AudioPart(data=b"RIFF", media_type="audio/wav", name="a.wav"),
    )
    blocks = (await asked([HumanMessage(content=parts)]))["messages"][0]["content"]
    assert blocks[1] == {"type": "image", "source": {"type": "url", "url": "https://w.org/a.png"}}
    assert blocks[2]["title"] == "a.pdf" and blocks[2]["source"]["media_type"] == "application/pdf"
    assert blocks[3]["source"] == {"type": "text", "media_type": "text/plain", "data": "text"}
    assert blocks[4] == {"type": "text", "text": "[audio a.wav can't be shown to this model]"}


async def test_a_tool_whose_parameters_are_a_choice_is_offered_all_the_same() -> None:
    """https://github.com/anthropics/claude-code/issues/4753"""
    tool = ToolSpec(name="f", parameters={"anyOf": [{"required": ["a"]}], "properties": {"a": {}}})
    schema = (await asked(tools=[tool]))["tools"][0]["input_schema"]
    assert schema["type"] == "object" and '{"anyOf":[{"required":["a"]}]}' in schema["description"]


ADDRESS = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "minLength": 1},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["street"],
    "$defs": {"tag": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}}},
}


async def test_a_closed_schema_is_asked_for_and_its_limits_are_said() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/structured-outputs"""
    request = await asked(schema=ADDRESS)
    schema = request["output_config"]["format"]["schema"]
    assert schema["properties"]["street"] == {"type": "string", "description": "(minLength 1)"}
    assert "system" not in request


async def test_an_open_schema_and_a_model_without_structured_output_get_the_schema_in_words() -> None:
    open_ = {"type": "object", "properties": {"a": {"type": "object"}}}
    assert structured_schema(open_) is None
    for request in (await asked(schema=open_), await asked(schema=ADDRESS, model="claude-unheard-of")):
        assert "It must fit this JSON Schema" in request["system"][0]["text"] and "output_config" not in request


async def test_effort_and_schema_stand_beside_each_other() -> None:
    config = (await asked(schema=ADDRESS, compute="LOW", model="claude-sonnet-5-5"))["output_config"]
    assert config.keys() == {"format", "effort"}


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/v1/messages", "/gateway", "/gateway/v1"])
async def test_the_base_url_is_taken_with_and_without_its_version(base: str) -> None:
    async with answering(stream(*ANSWER)) as (model, server):
        root = server.url.removesuffix("/v1")
        assert model.url(root + base) == f"{root}{'/gateway' if 'gateway' in base else ''}/v1/messages"


def opened(profile: dict[str, Any]) -> Any:
    return open_provider(resolve_provider("mine", {"K": "key"}, {"mine": profile}), "m", {})


async def test_headers_name_the_version_the_key_and_the_beta_features() -> None:
    """https://platform.claude.com/docs/en/api/beta-headers"""
    profile = {
        "base_url": "http://127.0.0.1:1",
        "protocol": "anthropic",
        "api_key_env": "K",
        "headers": {"anthropic-beta": "a,b"},
    }
    model: Any = opened(profile)
    headers = model._endpoint.headers
    assert (headers["x-api-key"], headers["anthropic-version"], "authorization" in headers) == (
        "key",
        "2023-06-01",
        False,
    )
    other: Any = opened({**profile, "auth": "bearer"})
    assert (other._endpoint.headers["authorization"], "x-api-key" in other._endpoint.headers) == ("Bearer key", False)


async def test_tools_that_the_service_runs_stand_beside_ours() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool"""
    search = {"type": "web_search_20250305", "name": "web_search"}
    async with answering(stream(*ANSWER), knobs=Knobs(always={"tools": [search]})) as (model, server):
        await complete(model, ASK, spec("weather"))
        assert [t["name"] for t in server.requests[0].json["tools"]] == ["web_search", "weather"]


def test_every_rule_has_its_day_and_its_page() -> None:
    assert all(rule.checked and rule.source.startswith("https://") for rule in RULES)
