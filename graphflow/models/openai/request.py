"""The body of a chat-completions request, with what the provider's profile makes of it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from graphflow.content import is_data_url, media_of, part_to_wire
from graphflow.messages import AIMessage, HumanMessage, Message, ToolMessage, to_wire, wire_content
from graphflow.models.accumulator import arguments_error
from graphflow.models.families import family_of, fit_effort
from graphflow.models.logs.log import notice
from graphflow.models.openai.think_tags import tagged
from graphflow.models.options import ChatOptions, OneTool, ResponseFormat, ToolSpec
from graphflow.models.profiles import Knobs, Profile, knows_compute
from graphflow.models.remote.loose_json import encode_body
from graphflow.models.remote.request_options import answer_form, cache_mark, compute_fields, note_unmarked, schema_rule
from graphflow.models.replay.replay import Replay
from graphflow.models.sendable import note_unsent, with_name

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that the protocol takes; a request with another one is refused."""


def request_body(
    profile: Profile, replay: Replay, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
) -> bytes:
    """The request as JSON bytes; always a streaming one."""
    body: dict[str, Any] = {"stream": True}
    # Some servers refuse a request with this field, so it is asked for only where the profile says so.
    if profile.usage == "stream_options":
        body["stream_options"] = {"include_usage": True}
    body |= request_fields(profile, replay, messages, tools, options)
    return encode_body(body)


def request_fields(
    profile: Profile,
    replay: Replay,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    options: ChatOptions,
    *,
    marks_itself: bool = False,
) -> dict[str, Any]:
    """The request's fields but those about streaming.

    Args:
        marks_itself: the caller writes what `options.prompt_cache` asks for.
    """
    knobs, model = profile.knobs, replay.model
    body: dict[str, Any] = {"model": model, "messages": wire_messages(replay, messages)}
    body |= _sampling(knobs, options)
    if tools:
        body |= _offer(knobs, tools, options)
    if (form := answer_form(options)) is not None:
        _ask_structure(knobs, form, body)
    if knobs.cache_marks is not None and re.search(knobs.cache_marks, model, re.IGNORECASE):
        if (mark := cache_mark(options, tools)) is not None:
            _mark_cache(body["messages"], mark)
    elif not marks_itself:
        note_unmarked(options, replay)
    # The order is the precedence: the profile's fixed fields, then compute, then what the caller wrote as `extra`.
    body |= knobs.always
    effort = compute_fields(knobs, model, tools, options)
    told = functools.partial(notice, provider=replay.provider, model=model)
    if options.reasoning_effort is not None and not effort and not knows_compute(knobs, model):
        told("model.option_ignored", option="reasoning_effort", why="the provider has no field for it (knobs.effort)")
    if knobs.families and knobs.effort is not None:
        fit_effort(effort, knobs.effort, model, told)
    body |= effort
    for option in _leave_out(body, knobs, model, bool(tools)):
        told("model.option_ignored", option=option)
    return body | options.extra


def _mark_cache(messages: list[dict[str, Any]], mark: dict[str, str]) -> None:
    """Marks what Claude keeps: up to the end of the system prompt, tools included, and up to the end of the conversation.

    https://openrouter.ai/docs/guides/best-practices/prompt-caching
    """
    leading = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    for message in ([messages[leading - 1]] if leading else []) + messages[max(leading, len(messages) - 1) :]:
        content = message["content"]
        if isinstance(content, str) and content.strip():
            content = [{"type": "text", "text": content}]
        # What an assistant left empty, with calls alone, has no place for a mark.
        if isinstance(content, list) and content:
            message["content"] = [*content[:-1], {**content[-1], "cache_control": mark}]


def _leave_out(body: dict[str, Any], knobs: Knobs, model: str, has_tools: bool) -> Iterator[str]:
    """Drops what a model that reasons would refuse the request for, and names it."""
    if knobs.effort is None:
        return
    pattern = knobs.tools_without_thinking
    if has_tools and pattern is not None and re.search(pattern, model, re.IGNORECASE):
        if body.get(knobs.effort, "none") != "none":
            yield knobs.effort
        body[knobs.effort] = "none"
    if body.get(knobs.effort) == "none" or not knows_compute(knobs, model):
        return
    family = family_of(model) if knobs.families else None
    refused: tuple[str, ...] = () if knobs.sampling_while_thinking else ("temperature", "top_p")
    refused += ("stop",) if family is not None and family.reasons else ()
    yield from (name for name in refused if body.pop(name, None) is not None)


def wire_messages(replay: Replay, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages in OpenAI form, each with the state that its provider wants back, and ids that it accepts."""
    out: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for message, fields in zip(messages, replay.fields(messages), strict=True):
        data = to_wire(message)
        if isinstance(message, ToolMessage):
            data["tool_call_id"] = replay.call_id(message.tool_call_id)
            if type(data["content"]) is list:
                data["content"] = message.text
                shown += [part for one in media_of(message.content) if (part := part_to_wire(one)) is not None]
        else:
            _show(shown, out)
            if isinstance(message, HumanMessage) and message.name and _NAME.fullmatch(message.name) is None:
                data = {"role": "user", "content": wire_content(with_name(message))}
        if fields is not None:
            said, calls = fields
            # The protocol knows no media in what an assistant said.
            if type(data["content"]) is list:
                data["content"] = message.text
                if isinstance(message, AIMessage):
                    note_unsent(message, replay.provider, notice)
            _think(data, said)
            data |= said
            for call, more in zip(data.get("tool_calls") or (), calls, strict=True):
                _mend_call(call, replay)
                call |= more
        out.append(data)
    _show(shown, out)
    for data in out:
        if type(data["content"]) is list:
            data["content"] = [_named_file(part) for part in data["content"]]
    return out if replay.bridge is None else list(_bridged(out, replay.bridge))


def _bridged(messages: Sequence[dict[str, Any]], bridge: str) -> Iterator[dict[str, Any]]:
    """The messages with one of an assistant between results and what a user says."""
    before = None
    for data in messages:
        if before == "tool" and data["role"] == "user":
            yield {"role": "assistant", "content": bridge}
        yield data
        before = data["role"]


def _think(data: dict[str, Any], said: dict[str, Any]) -> None:
    """Puts the thinking that a provider wants back in the content there: as a part (Mistral), or between tags."""
    thinking, blocks = said.pop("thinking", None), said.pop("content", None)
    pieces, reasoning = said.pop("tagged", None), said.pop("tagged_reasoning", None)
    if pieces and isinstance(reasoning, str):
        data["content"] = tagged(data["content"] or "", reasoning, pieces)
    # Blocks of Claude are for its own protocol.
    if not thinking or blocks is not None:
        return
    chunk: dict[str, Any] = {"type": "thinking", "thinking": [{"type": "text", "text": thinking}], "closed": True}
    chunk |= said.pop("extra_content", {}).get("mistral", {})
    data["content"] = [chunk, *([{"type": "text", "text": data["content"]}] if data["content"] else [])]


def _named_file(part: dict[str, Any]) -> dict[str, Any]:
    """Bytes of a file without a name are refused."""
    if part["type"] != "file" or "filename" in part["file"] or not is_data_url(part["file"]["file_data"]):
        return part
    kind = part["file"]["file_data"][5:].partition(";")[0].rpartition("/")[2]
    return {"type": "file", "file": {"filename": f"file.{kind if kind.isalnum() else 'txt'}"} | part["file"]}


def _show(parts: list[dict[str, Any]], out: list[dict[str, Any]]) -> None:
    """Images and files of tool results, in a user message behind the last of them: the protocol knows texts in results only."""
    if parts:
        out.append({"role": "user", "content": [{"type": "text", "text": "From the tool results above:"}, *parts]})
        parts.clear()


def _mend_call(call: dict[str, Any], replay: Replay) -> None:
    call["id"] = replay.call_id(call["id"])
    # Servers that parse the history refuse the whole request for one broken call of the past. What
    # was wrong with it stands in the call's error result.
    if arguments_error(call["function"]["arguments"]) is not None:
        call["function"]["arguments"] = "{}"


def _sampling(knobs: Knobs, options: ChatOptions) -> dict[str, Any]:
    fields = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        knobs.max_tokens: options.max_tokens,
        "stop": list(options.stop) or None,
        knobs.seed: options.seed,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _offer(knobs: Knobs, tools: Sequence[ToolSpec], options: ChatOptions) -> dict[str, Any]:
    body: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    choice = options.tool_choice
    if isinstance(choice, OneTool):
        body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif choice is not None:
        body["tool_choice"] = choice
    # Providers that don't know the field refuse the request.
    if options.parallel_tool_calls is not None and knobs.parallel_tool_calls:
        body["parallel_tool_calls"] = options.parallel_tool_calls
    return body | knobs.with_tools


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _ask_structure(knobs: Knobs, form: ResponseFormat, body: dict[str, Any]) -> None:
    if knobs.structured == "json_schema" and form.schema is not None:
        named = {"name": form.name, "schema": form.schema, **({"strict": True} if form.strict else {})}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
        return
    if knobs.structured != "prompt":
        body["response_format"] = {"type": "json_object"}
    # `json_object` promises any JSON, `prompt` nothing, so both need the schema in words; providers refuse the former
    # where the prompt does not speak of JSON.
    rule = {"role": "system", "content": schema_rule(form.schema)}
    messages: list[dict[str, Any]] = body["messages"]
    # After the system prompt, where every chat template accepts it.
    leading = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    if leading:
        first = messages[leading - 1]
        messages[leading - 1] = {**first, "content": f"{first['content']}\n\n{rule['content']}"}
    else:
        messages.insert(0, rule)
