"""What each provider is sent for `compute` and `maxTokens`: one table of knobs, seen on the wire (spec 1.3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest

from graphflow.messages import HumanMessage
from graphflow.models.chat_model import complete
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.profiles import PROFILES
from graphflow.models.providers import open_model

EFFORT = {level: {"reasoning_effort": level.lower()} for level in ("LOW", "MEDIUM", "HIGH")}
ENABLE = {"LOW": {"enable_thinking": False}, "MEDIUM": {}, "HIGH": {"enable_thinking": True}}
SWITCH = {"LOW": {"thinking": {"type": "disabled"}}, "MEDIUM": {}, "HIGH": {"thinking": {"type": "enabled"}}}
TEMPLATE = {level: {"chat_template_kwargs": fields} if fields else {} for level, fields in ENABLE.items()}
NONE: dict[str, dict[str, Any]] = {"LOW": {}, "MEDIUM": {}, "HIGH": {}}
TABLE: list[tuple[str, str, dict[str, dict[str, Any]]]] = [
    ("bailian", "qwen3-max", ENABLE),
    ("bailian", "qwen-plus", ENABLE),
    ("bailian", "qwen3-coder-plus", NONE),
    ("siliconflow", "deepseek-ai/DeepSeek-V3.2", ENABLE),
    ("siliconflow", "Qwen/Qwen3-32B", ENABLE),
    ("siliconflow", "deepseek-ai/DeepSeek-R1", NONE),
    ("deepseek", "deepseek-flash", SWITCH),
    ("openai", "gpt-5-mini", EFFORT),
    ("openai", "o3", EFFORT),
    ("openai", "gpt-4.1-mini", NONE),
    ("zhipu", "glm-4.6", SWITCH),
    ("zhipu", "glm-4-flash", NONE),
    ("moonshot", "kimi-k2.6", SWITCH),
    ("moonshot", "kimi-k2.7-code", NONE),
    ("openrouter", "openai/gpt-oss-120b", EFFORT),
    ("groq", "openai/gpt-oss-120b", EFFORT),
    ("groq", "llama-3.3-70b-versatile", NONE),
    ("mistral", "mistral-small-2603", {"LOW": {"reasoning_effort": "none"}, "MEDIUM": {}, "HIGH": EFFORT["HIGH"]}),
    ("mistral", "mistral-medium-latest", NONE),
    ("minimax", "MiniMax-M3", SWITCH | {"HIGH": {"thinking": {"type": "adaptive"}}}),
    ("minimax", "MiniMax-M2.7", NONE),
    ("xai", "grok-4.3", EFFORT),
    ("together", "openai/gpt-oss-120b", EFFORT),
    ("fireworks", "accounts/fireworks/models/gpt-oss-120b", EFFORT),
    ("azure", "gpt-5.1", EFFORT),
    ("vertex", "google/gemini-3.8-flash", EFFORT),
    ("lmstudio", "local-model", NONE),
    ("llamacpp", "local-model", NONE),
    ("modelscope", "Qwen/Qwen3-235B-A22B", ENABLE),
    ("modelscope", "Qwen/Qwen3-235B-A22B-Instruct-2507", NONE),
    ("ollama", "qwen3", NONE),
    ("vllm", "Qwen/Qwen3-8B", TEMPLATE),
    ("vllm", "meta-llama/Llama-3.1-8B", NONE),
    ("local", "local-model", NONE),
]
NATIVE = sorted(key for key, profile in PROFILES.items() if profile.protocol == "openai")
PLACES = {"AZURE_RESOURCE_NAME": "team", "GOOGLE_CLOUD_PROJECT": "p"}
"""Variables in base URLs."""
STREAM = b'data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


class Wire:
    """A transport that keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.status, self.headers = 200, {"content-type": "text/event-stream"}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, connect_s: float) -> Wire:
        self.sent.append(msgspec.json.decode(body))
        return self

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        yield STREAM

    async def aclose(self) -> None: ...


async def sent_for(key: str, model: str, options: ChatOptions, tools: tuple[ToolSpec, ...] = ()) -> dict[str, Any]:
    wire = Wire()
    opened = open_model(key, model, env={f"{key.upper()}_API_KEY": "key", **PLACES}, transport=wire)
    await complete(opened, (HumanMessage(content="hi"),), tools, options)
    (body,) = wire.sent
    return {
        name: value for name, value in body.items() if name not in ("model", "messages", "stream", "stream_options")
    }


@pytest.mark.parametrize(("key", "model", "levels"), TABLE, ids=[f"{key}-{model}" for key, model, _ in TABLE])
async def test_compute_turns_the_providers_own_knobs_and_no_others(
    key: str, model: str, levels: dict[str, dict[str, Any]]
) -> None:
    always = PROFILES[key].knobs.always
    assert await sent_for(key, model, ChatOptions()) == always
    sent = {level: await sent_for(key, model, ChatOptions(compute=level)) for level in levels}  # type: ignore[arg-type]
    assert sent == {level: always | fields for level, fields in levels.items()}
    opened = open_model(key, model, env={f"{key.upper()}_API_KEY": "key", **PLACES})
    assert opened.capabilities.compute == (levels != NONE), "the capability says whether compute changes anything"


def test_the_table_has_every_provider() -> None:
    assert {key for key, _, _ in TABLE} == set(NATIVE)


@pytest.mark.parametrize("key", NATIVE)
async def test_the_limit_of_tokens_goes_by_the_providers_name_of_it(key: str) -> None:
    name = "max_completion_tokens" if key in ("openai", "azure", "groq", "minimax") else "max_tokens"
    sent = await sent_for(key, PROFILES[key].model or "m", ChatOptions(max_tokens=64))
    assert sent == {name: 64, **PROFILES[key].knobs.always}


@pytest.mark.parametrize(
    ("key", "off"),
    [("deepseek", SWITCH["LOW"]), ("zhipu", SWITCH["LOW"]), ("bailian", ENABLE["LOW"]), ("siliconflow", ENABLE["LOW"])],
)
async def test_a_forced_call_is_not_asked_for_while_thinking_where_that_is_refused(
    key: str, off: dict[str, Any]
) -> None:
    options = ChatOptions(compute="HIGH", tool_choice="required")
    sent = await sent_for(key, PROFILES[key].model, options, (ToolSpec(name="t"),))
    assert off.items() <= sent.items() and sent["tool_choice"] == "required"


async def test_a_knob_of_ones_own_is_data_in_the_profile() -> None:
    wire = Wire()
    mine = {"base_url": "http://h/v1", "needs_key": False, "knobs": {"HIGH": {"budget": 9}, "always": {"tier": "flex"}}}
    opened = open_model("mine", "m", env={}, profiles={"mine": mine}, transport=wire)
    await complete(opened, (HumanMessage(content="hi"),), (), ChatOptions(compute="HIGH"))
    assert (wire.sent[0]["budget"], wire.sent[0]["tier"]) == (9, "flex")
