"""Providers as data: address, key variables, and deviations from the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Protocol = Literal["openai", "library", "scripted"]


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of the request that only this provider has."""

    LOW: dict[str, Any] = msgspec.field(default_factory=dict)
    """Added for `compute: LOW`; likewise MEDIUM and HIGH."""
    MEDIUM: dict[str, Any] = msgspec.field(default_factory=dict)
    HIGH: dict[str, Any] = msgspec.field(default_factory=dict)
    models: str | None = None
    """Pattern (searched, case ignored) of the models that know the compute fields; `None`: all."""
    when_forced: Literal["LOW", "MEDIUM", "HIGH"] | None = None
    """The compute to use instead when a tool call is forced: some refuse that while thinking."""
    always: dict[str, Any] = msgspec.field(default_factory=dict)
    with_tools: dict[str, Any] = msgspec.field(default_factory=dict)
    """Added when tools are offered."""
    max_tokens: str = "max_tokens"
    """What the field for `ChatOptions.max_tokens` is called."""
    structured: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    """See `Capabilities.structured`."""
    parallel_tool_calls: bool = True
    """Whether the field `parallel_tool_calls` is understood."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider, before keys and addresses of the environment are filled in."""

    base_url: str = ""
    """Up to and without `/chat/completions`."""
    model: str = ""
    """Default model."""
    api_key_env: tuple[str, ...] = ()
    """Names of the variables that may hold the key, first wins; `<KEY>_API_KEY` is looked at before."""
    needs_key: bool = True
    hosts: tuple[str, ...] = ()
    """Endings of host names by which a base URL is recognised."""
    aliases: tuple[str, ...] = ()
    protocol: Protocol = "openai"
    finish_optional: bool = False
    """A stream that ends with `[DONE]` or usage but without a finish reason is whole."""
    think_tags: bool | Literal["open"] = False
    """Reasoning comes as `<think>…</think>` inside the content; `open`: without the opening tag."""
    replay_reasoning: Literal["never", "tool_turns"] = "never"
    """`tool_turns`: turns with tool calls must carry `reasoning_content` in the history."""
    usage: Literal["stream_options", "unasked"] = "stream_options"
    """Whether usage must be asked for by `stream_options`, which some servers refuse."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with each request; `${NAME}` stands for a variable of the environment."""
    knobs: Knobs = msgspec.field(default_factory=Knobs)
    fallback: bool = False
    """A turn that fails on the way that `protocol` names, before its first delta, is tried on the other way too."""
    script: str | None = None
    """`scripted` only: path of a script file; `None` is the embedded script."""


_THINKING_SWITCH = Knobs(
    LOW={"thinking": {"type": "disabled"}},
    HIGH={"thinking": {"type": "enabled"}},
    when_forced="LOW",
    structured="json_object",
)

_QWEN_SWITCH = Knobs(
    LOW={"enable_thinking": False}, HIGH={"enable_thinking": True}, when_forced="LOW", structured="json_object"
)

PROFILES: Mapping[str, Profile] = {
    "bailian": Profile(
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        model="qwen3-max",
        api_key_env=("DASHSCOPE_API_KEY", "QWEN_API_KEY"),
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        aliases=("qwen",),
        knobs=msgspec.structs.replace(
            _QWEN_SWITCH, models=r"^qwen(3(?!.*(instruct|thinking|coder))|-(plus|flash|turbo))"
        ),
    ),
    "siliconflow": Profile(
        base_url="https://api.siliconflow.cn/v1",
        model="deepseek-ai/DeepSeek-V3.2",
        hosts=("siliconflow.cn", "siliconflow.com"),
        knobs=msgspec.structs.replace(
            _QWEN_SWITCH,
            models=r"deepseek-v3\.[1-9]|qwen3(?!.*(instruct|thinking|coder))|glm-4\.[5-9]",
            parallel_tool_calls=False,
        ),
    ),
    "deepseek": Profile(
        base_url="https://api.deepseek.com/v1",
        model="deepseek-chat",
        hosts=("api.deepseek.com",),
        replay_reasoning="tool_turns",
        knobs=msgspec.structs.replace(_THINKING_SWITCH, models="^deepseek", parallel_tool_calls=False),
    ),
    "openai": Profile(
        base_url="https://api.openai.com/v1",
        model="gpt-4.1-mini",
        hosts=("api.openai.com", "openai.azure.com"),
        knobs=Knobs(
            LOW={"reasoning_effort": "low"},
            MEDIUM={"reasoning_effort": "medium"},
            HIGH={"reasoning_effort": "high"},
            models=r"^(o\d|gpt-[5-9](?!.*chat))",
            max_tokens="max_completion_tokens",
        ),
    ),
    "zhipu": Profile(
        base_url="https://open.bigmodel.cn/api/paas/v4",
        model="glm-4.6",
        api_key_env=("ZHIPUAI_API_KEY", "GLM_API_KEY"),
        hosts=("open.bigmodel.cn", "api.z.ai"),
        aliases=("glm",),
        knobs=msgspec.structs.replace(
            _THINKING_SWITCH,
            models=r"^glm-(4\.[5-9]|[5-9])",
            with_tools={"tool_stream": True},
            parallel_tool_calls=False,
        ),
    ),
    "moonshot": Profile(
        base_url="https://api.moonshot.cn/v1",
        model="kimi-k2-0905-preview",
        api_key_env=("KIMI_API_KEY",),
        hosts=("moonshot.cn", "moonshot.ai"),
        aliases=("kimi",),
        knobs=Knobs(structured="json_object", parallel_tool_calls=False),
    ),
    "modelscope": Profile(
        base_url="https://api-inference.modelscope.cn/v1",
        model="Qwen/Qwen3-235B-A22B-Instruct-2507",
        api_key_env=("MODELSCOPE_SDK_TOKEN",),
        hosts=("modelscope.cn",),
        knobs=msgspec.structs.replace(
            _QWEN_SWITCH, models="qwen3(?!.*(instruct|thinking|coder))", parallel_tool_calls=False
        ),
    ),
    "ollama": Profile(
        base_url="http://localhost:11434/v1", model="qwen3", needs_key=False, knobs=Knobs(parallel_tool_calls=False)
    ),
    "vllm": Profile(
        base_url="http://localhost:8000/v1",
        model="Qwen/Qwen3-8B",
        needs_key=False,
        knobs=Knobs(
            LOW={"chat_template_kwargs": {"enable_thinking": False}},
            HIGH={"chat_template_kwargs": {"enable_thinking": True}},
            models="qwen3(?!.*(instruct|thinking|coder))",
        ),
    ),
    "local": Profile(
        base_url="http://localhost:8000/v1",
        model="local-model",
        needs_key=False,
        knobs=Knobs(structured="prompt", parallel_tool_calls=False),
    ),
    "scripted": Profile(model="scripted", needs_key=False, protocol="scripted"),
}
"""Known out of the box. Only differences without which a request would fail are listed."""

CUSTOM = Profile(needs_key=False)
"""A server that is known by its base URL only."""


def knows_compute(knobs: Knobs, model: str) -> bool:
    """Whether `compute` changes the request for this model."""
    # A provider without knobs never changes the request, whatever its pattern says.
    if not (knobs.LOW or knobs.MEDIUM or knobs.HIGH):
        return False
    return knobs.models is None or re.search(knobs.models, model, re.IGNORECASE) is not None
