"""The body of a Gemini request. https://ai.google.dev/api/generate-content"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphflow.errors import ModelError
from graphflow.messages import Message, SystemMessage
from graphflow.models.gemini.conversation import contents
from graphflow.models.options import ChatOptions, Effort, OneTool, ToolSpec
from graphflow.models.profiles import Knobs, Profile
from graphflow.models.remote.loose_json import encode_body
from graphflow.models.remote.request_options import answer_form, note_unmarked, schema_rule
from graphflow.models.replay.replay import Replay

_OWN = frozenset({"contents", "systemInstruction", "system_instruction", "toolConfig"})
_THIRD = re.compile(r"gemini-([3-9]|\w+-latest)", re.IGNORECASE)
"""Thinks always, by a level; takes a schema together with tools."""
_SECOND = re.compile(r"gemini-2\.5", re.IGNORECASE)
"""Thinks by a budget; `flash-lite` only when asked."""
_COMPUTE: Mapping[str, Effort] = {"LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_LEVELS = {"none": "minimal", "minimal": "minimal", "low": "low", "medium": "medium"}
"""Of the third; every greater effort is `high`."""
_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}
"""Tokens, of the second; every greater effort has 24,576."""


def thinks(model: str) -> bool:
    """Whether `compute` changes anything for this model."""
    return _THIRD.search(model) is not None or _SECOND.search(model) is not None


def request_body(
    profile: Profile,
    replay: Replay,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    options: ChatOptions,
    warn: Callable[..., None],
) -> bytes:
    """The request as JSON bytes; whether it is streamed says its address.

    Raises:
        ModelError: `options.extra` has a field that is the client's own, or a part has no form here.
    """
    if taken := _OWN & options.extra.keys():
        text = f"extra has {sorted(taken)!r}; these fields of a Gemini request are set by the client, leave them out"
        raise ModelError(text, code="provider_error", retryable=False, provider=replay.provider)
    knobs, model = profile.knobs, replay.model
    leading = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))
    system = [m.text for m in messages[:leading]]
    config = _config(knobs, model, options)
    if (asked := answer_form(options)) is not None:
        # Earlier models refuse a form beside tools: "Function calling with a response mime type is unsupported".
        if knobs.structured == "json_schema" and (not tools or _THIRD.search(model)):
            schema = {} if asked.schema is None else {"responseJsonSchema": asked.schema}
            config |= {"responseMimeType": "application/json"} | schema
        else:
            system.append(schema_rule(asked.schema))
    said = contents(messages[leading:], replay, third=_THIRD.search(model) is not None)
    body: dict[str, Any] = {"contents": said or [{"role": "user", "parts": [{"text": "\n\n".join(system)}]}]}
    if system and said:
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    if tools:
        body |= _offer(tools, options)
        if options.parallel_tool_calls is not None:
            warn("model.option_ignored", provider=replay.provider, model=model, option="parallel_tool_calls")
    note_unmarked(options, replay)
    if config:
        body["generationConfig"] = config
    # The order is the precedence: the profile's fixed fields, then what the caller wrote as `extra`.
    for fields in (knobs.always, options.extra):
        _merge(body, fields)
    return encode_body(body)


def _config(knobs: Knobs, model: str, options: ChatOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "temperature": options.temperature,
        "topP": options.top_p,
        "maxOutputTokens": options.max_tokens,
        "stopSequences": list(options.stop) or None,
        "seed": options.seed,
        "thinkingConfig": _thinking(model, options) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _thinking(model: str, options: ChatOptions) -> dict[str, Any]:
    effort = options.reasoning_effort or (_COMPUTE[options.compute] if options.compute else None)
    if _THIRD.search(model):
        level = None if effort is None else _LEVELS.get(effort, "high")
        # Pro has no level below `low`.
        level = "low" if level == "minimal" and "pro" in model else level
        return {"includeThoughts": True} | ({} if level is None else {"thinkingLevel": level})
    if not _SECOND.search(model):
        return {}
    if effort is not None:
        # Pro can't be kept from thinking; its least budget is 128 tokens.
        budget = max(_BUDGETS.get(effort, 24576), 128 if "pro" in model else 0)
        return {"includeThoughts": budget > 0, "thinkingBudget": budget}
    # "include_thoughts is only enabled when thinking is enabled"
    return {} if "lite" in model else {"includeThoughts": True}


def _offer(tools: Sequence[ToolSpec], options: ChatOptions) -> dict[str, Any]:
    body: dict[str, Any] = {"tools": [{"functionDeclarations": [_tool(tool) for tool in tools]}]}
    choice = options.tool_choice
    if choice is not None:
        one = isinstance(choice, OneTool)
        mode: dict[str, Any] = {"mode": "ANY" if one or choice == "required" else str(choice).upper()}
        if isinstance(choice, OneTool):
            mode["allowedFunctionNames"] = [choice.name]
        body["toolConfig"] = {"functionCallingConfig": mode}
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    declared = {"name": tool.name, "description": tool.description or tool.name}
    # "should be non-empty for OBJECT type": a function without arguments has no schema.
    return declared | ({"parametersJsonSchema": tool.parameters} if tool.parameters.get("properties") else {})


def _merge(body: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        known = body.get(name)
        if isinstance(known, dict) and isinstance(value, Mapping):
            _merge(known, value)
        # Tools that the service runs stand beside ours.
        elif name == "tools" and isinstance(known, list) and isinstance(value, list):
            body[name] = [*value, *known]
        else:
            body[name] = value
