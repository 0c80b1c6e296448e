"""A fake of Anthropic's Messages service: it streams scripted turns and refuses what the real service refuses.

Every rule names the page or the report that it is taken from.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from graphflow.models.anthropic.model import AnthropicModel
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from tests.models.raw_server import Answer, Connection, RawServer, body, raw_server, stream

Json = dict[str, Any]
KEY = "sk-ant-api03-a-secret-that-nobody-may-see"

_FIELDS = {
    "model", "max_tokens", "messages", "system", "stream", "tools", "tool_choice", "temperature", "top_p", "top_k", "thinking",
    "stop_sequences", "metadata", "output_config", "service_tier", "cache_control", "container", "inference_geo",
}  # fmt: skip
_BLOCKS = {
    "text": {"text", "citations", "cache_control"},
    "image": {"source", "cache_control"},
    "document": {"source", "title", "context", "citations", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "cache_control", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control"},
    "server_tool_use": {"id", "name", "input", "cache_control", "caller"},
    "web_search_tool_result": {"tool_use_id", "content", "cache_control", "caller"},
}
_ASSISTANT = {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "web_search_tool_result"}
_USER = {"text", "image", "document", "tool_result"}
_NEWEST = re.compile(r"(opus|sonnet|haiku)-(4-[7-9]\b|[5-9])|fable|mythos")


class Refused(Exception):
    """Status 400 with this text."""


# --- what it sends -------------------------------------------------------------------------------


def sse(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def start(**usage: Any) -> bytes:
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude",
        "stop_reason": None,
    }
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    return sse({"type": "message_start", "message": {**message, "stop_sequence": None, "usage": counts}})


def opened(index: int, **block: Any) -> bytes:
    return sse({"type": "content_block_start", "index": index, "content_block": block})


def piece(index: int, **delta: Any) -> bytes:
    return sse({"type": "content_block_delta", "index": index, "delta": delta})


def closed(index: int) -> bytes:
    return sse({"type": "content_block_stop", "index": index})


def text(index: int, *pieces: str) -> list[bytes]:
    return [
        opened(index, type="text", text=""),
        *(piece(index, type="text_delta", text=p) for p in pieces),
        closed(index),
    ]


def thinking(index: int, signature: str, *pieces: str) -> list[bytes]:
    deltas = [piece(index, type="thinking_delta", thinking=p) for p in pieces]
    signed = piece(index, type="signature_delta", signature=signature)
    return [opened(index, type="thinking", thinking="", signature=""), *deltas, signed, closed(index)]


def redacted(index: int, data: str) -> list[bytes]:
    return [opened(index, type="redacted_thinking", data=data), closed(index)]


def call(index: int, call_id: str, name: str, *pieces: str, kind: str = "tool_use") -> list[bytes]:
    deltas = [piece(index, type="input_json_delta", partial_json=p) for p in pieces]
    return [opened(index, type=kind, id=call_id, name=name, input={}), *deltas, closed(index)]


def stop(reason: str | None, output_tokens: int = 20, **more: Any) -> list[bytes]:
    usage = {"output_tokens": output_tokens, **more.pop("usage", {})}
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return [sse({"type": "message_delta", "delta": delta, "usage": usage}), sse({"type": "message_stop"})]


def turn(reason: str, *blocks: Iterable[bytes]) -> list[bytes]:
    return [start(), sse({"type": "ping"}), *(event for block in blocks for event in block), *stop(reason)]


def blocks_of(events: Iterable[bytes]) -> list[Json]:
    """The whole content of a turn, as the service keeps it to compare with what comes back."""
    content: dict[int, Json] = {}
    for event in events:
        data = json.loads(event.partition(b"data: ")[2])
        if data["type"] == "content_block_start":
            content[data["index"]] = dict(data["content_block"])
        elif data["type"] == "content_block_delta":
            block, delta = content[data["index"]], data["delta"]
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    block[name] = block.get(name, "") + delta[name]
    return list(content.values())


# --- what it refuses -----------------------------------------------------------------------------


class Service:
    """`turns` are sent in their order, one for each request that is not refused; the last one again and again."""

    def __init__(self, *turns: Iterable[bytes], model: str = "claude-sonnet-4-5") -> None:
        self.turns = [list(events) for events in turns]
        self.model = model
        self.requests: list[Json] = []
        self.refusals: list[str] = []
        self.thoughts: list[Json] = [
            block for events in self.turns for block in blocks_of(events) if "thinking" in block["type"]
        ]
        self.sent = 0

    async def answer(self, connection: Connection) -> None:
        request, headers = connection.request.json, connection.request.headers
        self.requests.append(request)
        try:
            _check_headers(headers)
            self.check(request)
        except Refused as refused:
            self.refusals.append(str(refused))
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": str(refused)}}
            await body(400, json.dumps({**error, "request_id": "req_1"}).encode(), request_id="req_1")(connection)
            return
        events = self.turns[min(self.sent, len(self.turns) - 1)]
        self.sent += 1
        await stream(*events, request_id="req_1")(connection)

    def check(self, request: Json) -> None:
        """Raises `Refused` for what the service answers with 400."""
        _check_fields(request)
        _check_turns(request)
        _check_calls(request)
        self._check_thinking(request)
        _check_model(request)
        _check_cache(request)

    def _check_thinking(self, request: Json) -> None:
        """https://platform.claude.com/docs/en/build-with-claude/extended-thinking and the reports below."""
        thinking, choice = request.get("thinking") or {}, request.get("tool_choice") or {}
        on = thinking.get("type") == "enabled"
        for turn_ in request["messages"]:
            for block in turn_["content"]:
                # https://github.com/anthropics/claude-code/issues/63284
                if "thinking" in block["type"] and block not in self.thoughts:
                    known = {b.get("signature") for b in self.thoughts}
                    if block["type"] == "thinking" and block.get("signature") not in known:
                        raise Refused("messages.1.content.0: Invalid `signature` in `thinking` block")
                    raise Refused("`thinking` blocks in the latest assistant message cannot be modified")
        if on:
            if choice.get("type") in ("any", "tool"):
                raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
            if "temperature" in request and request["temperature"] != 1:
                raise Refused("`temperature` may only be set to 1 when thinking is enabled.")
            if not 1024 <= thinking["budget_tokens"] < request["max_tokens"]:
                raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`, which is at least 1024")
            last = next((m for m in reversed(request["messages"]) if m["role"] == "assistant"), None)
            results = any(b["type"] == "tool_result" for b in request["messages"][-1]["content"])
            # https://github.com/anomalyco/opencode/issues/5074
            if last and results and "thinking" not in last["content"][0]["type"]:
                raise Refused("Expected `thinking` or `redacted_thinking`, but found `tool_use`")
        if self.thoughts and self.sent and request["messages"][-1]["content"][0]["type"] == "tool_result":
            self._check_present(request)

    def _check_present(self, request: Json) -> None:
        """The thinking of the present tool loop is there, whole and before its call."""
        before = [b for events in self.turns[: self.sent] for b in blocks_of(events) if "thinking" in b["type"]]
        given = [b for m in request["messages"] for b in m["content"] if "thinking" in b["type"]]
        if given[-len(before) :] != before:
            raise Refused("`thinking` blocks in the latest assistant message cannot be modified; some are missing")


def _check_headers(headers: dict[str, str]) -> None:
    # https://platform.claude.com/docs/en/api/versioning
    if headers.get("anthropic-version") != "2023-06-01":
        raise Refused("anthropic-version: header is required")
    if headers.get("x-api-key") != KEY:
        raise Refused("x-api-key header is required")


def _check_fields(request: Json) -> None:
    """https://platform.claude.com/docs/en/api/messages/create."""
    for name in request.keys() - _FIELDS:
        raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(request.get("max_tokens"), int) or request["max_tokens"] < 1:
        raise Refused("max_tokens: Field required")
    # https://github.com/anthropics/anthropic-sdk-python/issues/299
    for word in request.get("stop_sequences", ()):
        if not word.strip():
            raise Refused("stop_sequences: each stop sequence must contain non-whitespace")
    for tool in request.get("tools", ()):
        schema = tool.get("input_schema")
        if schema is None and "type" in tool:
            continue  # a tool that the service runs
        # https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
            raise Refused("tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")
        if schema.get("type") != "object":
            raise Refused("tools.0.custom.input_schema.type: Field required")
        # https://github.com/anthropics/claude-code/issues/4753
        if schema.keys() & {"anyOf", "oneOf", "allOf"}:
            raise Refused(
                "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
            )
    choice = request.get("tool_choice")
    if choice is not None:
        if not request.get("tools"):
            raise Refused("tool_choice may only be specified while providing tools")
        if choice["type"] == "none" and len(choice) > 1:
            raise Refused("tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
        if choice["type"] not in ("none", "auto", "any", "tool"):
            raise Refused("tool_choice: Input tag does not match any of the expected tags")
    asked = (request.get("output_config") or {}).get("format")
    if asked is not None:
        _check_schema(asked["schema"])


def _check_schema(schema: Any) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/structured-outputs."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise Refused(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
        for name in ("minimum", "maximum", "minLength", "maxLength", "multipleOf", "maxItems"):
            if name in schema:
                raise Refused(f"output_config.format.schema: property '{name}' is not supported")
        for value in schema.values():
            _check_schema(value)
    elif isinstance(schema, list):
        for value in schema:
            _check_schema(value)


def _check_turns(request: Json) -> None:
    messages = request.get("messages")
    if not messages:
        raise Refused("messages: at least one message is required")
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant"):
            # https://github.com/anthropics/anthropic-sdk-python/issues/350
            raise Refused(
                f'messages: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter'
            )
        if number == 0 and role != "user":
            raise Refused('messages: first message must use the "user" role')
        if not message["content"]:
            raise Refused(f"messages.{number}: all messages must have non-empty content")
        for block in message["content"]:
            kind = block.get("type")
            if kind not in (_USER if role == "user" else _ASSISTANT):
                raise Refused(f"messages.{number}.content.0: {kind} blocks can't be in a message of {role}")
            for name in block.keys() - _BLOCKS[kind] - {"type"}:
                raise Refused(f"messages.{number}.content.0.{kind}.{name}: Extra inputs are not permitted")
            # https://github.com/anomalyco/opencode/issues/5028
            if kind == "text" and not block["text"].strip():
                raise Refused("messages: text content blocks must contain non-whitespace text")
    for block in request.get("system") or ():
        if not block["text"].strip():
            raise Refused("system: text content blocks must be non-empty")


def _check_calls(request: Json) -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls."""
    messages, seen = request["messages"], set()
    for number, message in enumerate(messages):
        asked = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        own = [b["id"] for b in message["content"] if b["type"] == "server_tool_use"]
        for call_id in asked:
            if not re.fullmatch(r"[a-zA-Z0-9_-]+", call_id):
                raise Refused("messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            if call_id in seen:
                raise Refused("messages: `tool_use` ids must be unique")
            seen.add(call_id)
        following = messages[number + 1]["content"] if number + 1 < len(messages) else []
        answered = [b["tool_use_id"] for b in following if b["type"] == "tool_result"]
        if missing := [i for i in asked if i not in answered]:
            raise Refused(f"`tool_use` ids were found without `tool_result` blocks immediately after: {missing}")
        if own and set(own) - {b.get("tool_use_id") for b in message["content"]} and number + 1 < len(messages):
            raise Refused("server_tool_use block was found without a corresponding tool_result block")
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        before = messages[number - 1]["content"] if number else []
        called = [b["id"] for b in before if b["type"] == "tool_use"]
        if len(set(results)) < len(results):
            raise Refused("each tool_use must have a single result")
        if orphans := [i for i in results if i not in called]:
            raise Refused(f"unexpected `tool_use_id` found in `tool_result` blocks: {orphans}")
        if results and [b["type"] for b in message["content"]][: len(results)] != ["tool_result"] * len(results):
            raise Refused("`tool_result` blocks must come first in the content")
        # https://github.com/BerriAI/litellm/issues/5388
        if (asked or results) and not request.get("tools"):
            raise Refused("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _check_model(request: Json) -> None:
    """https://platform.claude.com/docs/en/about-claude/models/migration-guide."""
    model, kind = request["model"], (request.get("thinking") or {}).get("type")
    if _NEWEST.search(model):
        for name in ("temperature", "top_p", "top_k"):
            if name in request:
                raise Refused(f"`{name}` is deprecated for this model.")
        if kind == "enabled":
            raise Refused('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"')
        if request["messages"][-1]["role"] == "assistant" and not _pausing(request):
            raise Refused(
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )
    else:
        if request.get("temperature", 0) > 1:
            raise Refused("temperature: range: 0..1")
        if "temperature" in request and "top_p" in request:
            raise Refused("`temperature` and `top_p` cannot both be specified for this model.")
        if kind == "adaptive" and "4-6" not in model:
            raise Refused("adaptive thinking is not supported on this model")
    if re.search("fable|mythos", model) and kind == "disabled":
        raise Refused("thinking.type.disabled is not supported for this model")
    effort = (request.get("output_config") or {}).get("effort")
    if effort in ("xhigh", "max") and not _NEWEST.search(model) and (effort, "4-6" in model) != ("max", True):
        raise Refused(f"output_config.effort: {effort} is not supported for this model")
    if effort is not None and not _NEWEST.search(model) and "4-6" not in model:
        raise Refused("This model does not support the effort parameter.")
    if re.search("fable|mythos", model) and (request.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise Refused("tool_choice: forced tool use is not supported for this model")


def _pausing(request: Json) -> bool:
    """Whether the last turn is one that the service paused: it ends with a tool that the service runs."""
    return any(b["type"] == "server_tool_use" for b in request["messages"][-1]["content"])


def _check_cache(request: Json) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/prompt-caching: four marks, none on thinking."""
    blocks = [b for m in request["messages"] for b in m["content"]]
    marked = [b for b in (*blocks, *(request.get("system") or ()), *request.get("tools", ())) if "cache_control" in b]
    if len(marked) > 4:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}.")


# --- running it ----------------------------------------------------------------------------------


def opened_model(url: str, model: str, *, key: str = "anthropic", retries: int = 0, **fields: Any) -> AnthropicModel:
    profile = Profile(protocol="anthropic", **fields) if fields or key not in PROFILES else PROFILES[key]
    tokens = (f"token{n:03}" for n in range(1000))
    return AnthropicModel(
        Provider(key=key, profile=profile, base_url=url.removesuffix("/v1"), api_key=KEY),
        model,
        limits=Limits(first_data_s=5, idle_s=5, total_s=20, max_retries=retries),
        sleep=_at_once,
        draw=lambda: 0.0,
        new_token=lambda: next(tokens),
    )


PAUSES: list[float] = []


async def _at_once(seconds: float) -> None:
    PAUSES.append(seconds)


@asynccontextmanager
async def serving(service: Service, **options: Any) -> AsyncIterator[AnthropicModel]:
    """The model behind a service."""
    async with raw_server(service.answer) as server:
        model = opened_model(server.url, service.model, **options)
        try:
            yield model
        finally:
            await model.aclose()


@asynccontextmanager
async def answering(
    *answers: Answer, model: str = "claude-sonnet-4-5", **options: Any
) -> AsyncIterator[tuple[AnthropicModel, RawServer]]:
    """The model behind raw answers."""
    async with raw_server(*answers) as server:
        found = opened_model(server.url, model, **options)
        try:
            yield found, server
        finally:
            await found.aclose()
