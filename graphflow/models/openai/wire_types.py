"""The OpenAI chat-completions protocol from the server's side: requests read, turns written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.messages import Message, from_wire
from graphflow.models.accumulator import Completion
from graphflow.models.deltas import (
    Delta,
    FallbackDelta,
    Finish,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from graphflow.models.options import ChatOptions, OneTool, ToolSpec


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One chat-completions request, read."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    options: ChatOptions
    stream: bool
    include_usage: bool


class _FunctionForm(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _CallForm(msgspec.Struct):
    id: str | None = None
    function: _FunctionForm | None = None


class _MessageForm(msgspec.Struct):
    role: str
    content: str | list[str | dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[_CallForm] | None = None
    own_tool_calls: list[_CallForm] | None = msgspec.field(name="toolCalls", default=None)
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None


class _ToolForm(msgspec.Struct):
    function: _FunctionForm


class _RequestForm(msgspec.Struct):
    """What the parts of a request must look like to be read; everything else in it is left alone."""

    messages: list[_MessageForm]
    tools: list[_ToolForm] | None = None
    stop: str | list[str] | None = None


def read_request(body: bytes) -> ChatRequest:
    """The request in a body.

    Raises:
        ValueError: it is no JSON object, or a part of it breaks the protocol; the text says which.
    """
    try:
        data = msgspec.json.decode(body)
        form = msgspec.convert(data, _RequestForm)
    except msgspec.ValidationError as error:
        raise ValueError(f"the body is not a chat request: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the body is not JSON: {error}") from error
    if not form.messages:
        raise ValueError("'messages' must be a list of at least one message")
    asked = data.get("stream_options")
    return ChatRequest(
        model=str(data.get("model") or ""),
        messages=tuple(map(from_wire, data["messages"])),
        tools=tuple(_tool(t) for t in data.get("tools") or ()),
        options=_options(data),
        stream=bool(data.get("stream")),
        include_usage=isinstance(asked, dict) and bool(asked.get("include_usage")),
    )


def chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    """One event of the stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return sse({**head, "object": "chat.completion.chunk", "choices": [choice]})


def usage_chunk(head: Mapping[str, Any], usage: Usage | None) -> bytes:
    """The event after the last choice, for those who asked for usage."""
    return sse({**head, "object": "chat.completion.chunk", "choices": [], "usage": wire_usage(usage)})


def sse(data: Any) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def wire_delta(delta: Delta) -> dict[str, Any]:
    """A delta as the `delta` of a chunk."""
    match delta:
        case TextDelta(text):
            return {"content": text}
        case ThinkingDelta(text):
            return {"reasoning_content": text}
        case ToolCallDelta(index=index, id=None, arguments=arguments):
            return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}
        case ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments):
            function = {"name": name, "arguments": arguments}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        # What is opaque belongs to the provider behind, and parts that are not text have no field in a chunk.
        case Finish() | StateDelta() | PartDelta() | FallbackDelta():
            return {}


def completion_body(head: Mapping[str, Any], completion: Completion) -> bytes:
    """The answer to a request that asked for no stream."""
    said = completion.message
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in said.tool_calls
        ]
    else:
        message["content"] = said.text
    reason = completion.raw_reason or completion.finish_reason
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    usage = wire_usage(completion.usage)
    return msgspec.json.encode({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


def wire_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _tool(data: Any) -> ToolSpec:
    function = data.get("function") if isinstance(data, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError("each of 'tools' must be {type: function, function: {name, …}}")
    parameters = function.get("parameters")
    return ToolSpec(
        name=function["name"],
        description=str(function.get("description") or ""),
        parameters=parameters if isinstance(parameters, dict) else {"type": "object", "properties": {}},
    )


def _options(data: Mapping[str, Any]) -> ChatOptions:
    stop = data.get("stop") or ()
    limit = data.get("max_completion_tokens")
    return ChatOptions(
        temperature=data.get("temperature"),
        top_p=data.get("top_p"),
        max_tokens=data.get("max_tokens") if limit is None else limit,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        tool_choice=_tool_choice(data.get("tool_choice")),
        parallel_tool_calls=data.get("parallel_tool_calls"),
        schema=_schema(data.get("response_format")),
    )


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, dict):
        function = choice.get("function")
        return OneTool(str(function.get("name") if isinstance(function, dict) else choice.get("name")))
    return choice


def _schema(form: Any) -> dict[str, Any] | None:
    named = form.get("json_schema") if isinstance(form, dict) else None
    schema = named.get("schema") if isinstance(named, dict) else None
    return schema if isinstance(schema, dict) else None
