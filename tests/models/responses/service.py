"""A fake of the Responses API: streams turns, and refuses what the service refuses, each rule with its page or report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from graphflow.models.options import fits_strict
from tests.models.raw_server import Answer, Connection, body, stream

REASONING_MODELS = ("o3", "o4", "gpt-5", "gpt-6", "grok-4", "deepseek")
_PARAMETERS = frozenset({
    "background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls",
    "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_retention",
    "reasoning", "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation", "user",
})  # fmt: skip
_FIELDS = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "compaction": {"type", "id", "encrypted_content"},
}
_PARTS = {
    "input_text": {"type", "text"},
    "input_image": {"type", "image_url", "file_id", "detail"},
    "input_file": {"type", "filename", "file_data", "file_url", "file_id"},
}


def refusal(request: dict[str, Any], issued: Sequence[str] = ()) -> str | None:
    """Why the service answers 400; `issued` is the encrypted reasoning that it has given out."""
    reasons = request["model"].startswith(REASONING_MODELS) and "-chat" not in request["model"]
    for name in request.keys() - _PARAMETERS:
        return f"Unknown parameter: '{name}'."
    if request.get("store") is not False:
        return "store must be false for organizations with zero data retention."
    # https://github.com/OpenHands/software-agent-sdk/issues/1837
    for name in ("temperature", "top_p"):
        if reasons and name in request and request.get("reasoning", {}).get("effort") != "none":
            return f"Unsupported parameter: '{name}' is not supported with this model."
    if not reasons and "reasoning" in request:
        return "Unsupported parameter: 'reasoning.effort' is not supported with this model."
    # https://github.com/pydantic/pydantic-ai/issues/2865
    if not reasons and "reasoning.encrypted_content" in request.get("include", ()):
        return "Encrypted content is not supported with this model."
    # https://github.com/earendil-works/pi/issues/6265
    if request.get("max_output_tokens", 16) < 16:
        return "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
    return _tools(request) or _format(request) or _items(request, issued)


def _tools(request: dict[str, Any]) -> str | None:
    names = []
    for tool in request.get("tools", ()):
        # https://platform.openai.com/docs/guides/migrate-to-responses: flat, not nested in `function`.
        if tool.keys() - {"type", "name", "description", "parameters", "strict"} or not tool.get("name"):
            return "Missing required parameter: 'tools[0].name'."
        if tool["parameters"].get("type") == "object" and "properties" not in tool["parameters"]:
            return f"Invalid schema for function '{tool['name']}': object schema missing properties."
        if tool.get("strict", True) and not fits_strict(tool["parameters"]):
            return f"Invalid schema for function '{tool['name']}': 'additionalProperties' is required to be false."
        names.append(tool["name"])
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and (choice.keys() != {"type", "name"} or choice["name"] not in names):
        return f"Tool choice {choice!r} not found in 'tools' parameter."
    return None


def _format(request: dict[str, Any]) -> str | None:
    form = request.get("text", {}).get("format", {"type": "text"})
    if form["type"] == "json_schema":
        if form.keys() - {"type", "name", "schema", "strict", "description"} or not form.get("name"):
            return "Missing required parameter: 'text.format.name'."
        if form.get("strict") and not fits_strict(form["schema"]):
            return "Invalid schema for response_format 'answer'."
    if form["type"] == "json_object" and "json" not in (json.dumps(request["input"]) + request["instructions"]).lower():
        return "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
    return None


def _items(request: dict[str, Any], issued: Sequence[str]) -> str | None:
    items = request["input"]
    if not items:
        return "Missing required parameter: 'input'."
    open_calls: list[str] = []
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        for name in item.keys() - _FIELDS.get(kind, set()):
            return f"Unknown parameter: 'input[{number}].{name}'."
        if why := _parts(item.get("content") if kind == "message" else item.get("output"), number):
            return why
        if kind == "message" and item["role"] not in ("user", "assistant", "developer", "system"):
            return f"Invalid value: '{item['role']}'."
        if len(item.get("call_id", "")) > 64 or len(item.get("id", "")) > 64:
            return f"Invalid 'input[{number}].id': string too long. Expected a string with maximum length 64."
        if kind == "function_call":
            json.loads(item["arguments"])
            open_calls.append(item["call_id"])
        # https://github.com/continuedev/continue/issues/10092
        if kind == "function_call_output":
            if item["call_id"] not in open_calls:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            open_calls.remove(item["call_id"])
        if kind == "message" and open_calls and item["role"] == "user":
            return f"No tool output found for function call {open_calls[0]}."
        if kind == "reasoning":
            following = items[number + 1] if number + 1 < len(items) else {}
            if why := _reasoning(item, following, issued):
                return why
    return f"No tool output found for function call {open_calls[0]}." if open_calls else None


def _parts(content: Any, number: int) -> str | None:
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in _PARTS:
            return f"Invalid value: '{part.get('type')}'. Supported values are: 'input_text', 'input_image' and 'input_file'."
        for name in part.keys() - _PARTS[part["type"]]:
            return f"Unknown parameter: 'input[{number}].content[0].{name}'."
    return None


def _reasoning(item: dict[str, Any], following: dict[str, Any], issued: Sequence[str]) -> str | None:
    # https://github.com/vercel/ai/issues/7099
    own = following.get("type") in ("reasoning", "function_call") or following.get("role") == "assistant"
    if not own:
        return f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
    # https://github.com/vercel/ai/issues/7543
    if not item.get("encrypted_content") and not item.get("content"):
        return f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
    # https://github.com/Wei-Shaw/sub2api/issues/3138
    if item.get("encrypted_content") and item["encrypted_content"] not in issued:
        return (
            "The encrypted content could not be verified. Reason: Encrypted content could not be decrypted or parsed."
        )
    return None


def service(*turns: Sequence[bytes], issued: Sequence[str] = ()) -> list[Answer]:
    """One answer for each turn; a refused request is answered by 400."""

    def answer(blocks: Sequence[bytes]) -> Answer:
        async def respond(connection: Connection) -> None:
            why = refusal(connection.request.json, issued)
            if why is None:
                await stream(*blocks)(connection)
            else:
                await body(400, json.dumps({"error": {"message": why, "type": "invalid_request_error"}}).encode())(
                    connection
                )

        return respond

    return [answer(blocks) for blocks in turns]


# --- turns ---------------------------------------------------------------------------------------

USAGE = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 17,
}


def event(kind: str, **fields: Any) -> bytes:
    """One event as the service writes it."""
    data = {"type": kind, "sequence_number": 0, **fields}
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def created(**fields: Any) -> bytes:
    return event("response.created", response={"id": "resp_1", "status": "in_progress", "output": [], **fields})


def ended(kind: str = "completed", **fields: Any) -> bytes:
    response: dict[str, Any] = {
        "id": "resp_1",
        "status": kind,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": USAGE,
    }
    return event(f"response.{kind}", response=response | fields)


def text(*pieces: str, index: int = 0, phase: str | None = None) -> list[bytes]:
    """A message, streamed in full."""
    item: dict[str, Any] = {"id": f"msg_{index}", "type": "message", "role": "assistant", "status": "in_progress"}
    item |= {"phase": phase} if phase else {}
    at = {"item_id": f"msg_{index}", "output_index": index, "content_index": 0}
    whole = {"type": "output_text", "text": "".join(pieces), "annotations": [], "logprobs": []}
    return [
        event("response.output_item.added", output_index=index, item=item | {"content": []}),
        event("response.content_part.added", part=whole | {"text": ""}, **at),
        *(event("response.output_text.delta", delta=p, logprobs=[], obfuscation="x9f", **at) for p in pieces),
        event("response.output_text.done", text="".join(pieces), logprobs=[], **at),
        event("response.content_part.done", part=whole, **at),
        event("response.output_item.done", output_index=index, item=item | {"status": "completed", "content": [whole]}),
    ]


def call(
    name: str, arguments: str, call_id: str, *, index: int = 0, pieces: Callable[[str], list[str]] = list
) -> list[bytes]:
    """A function call, streamed by letters."""
    item = {"id": f"fc_{call_id}", "type": "function_call", "call_id": call_id, "name": name, "status": "in_progress"}
    at = {"item_id": f"fc_{call_id}", "output_index": index}
    return [
        event("response.output_item.added", output_index=index, item=item | {"arguments": ""}),
        *(event("response.function_call_arguments.delta", delta=p, obfuscation="q", **at) for p in pieces(arguments)),
        event("response.function_call_arguments.done", arguments=arguments, **at),
        event(
            "response.output_item.done",
            output_index=index,
            item=item | {"arguments": arguments, "status": "completed"},
        ),
    ]


def reasoning(encrypted: str, *summary: str, index: int = 0) -> list[bytes]:
    """A reasoning item with a summary of so many parts; its encrypted content is whole only when it is done."""
    item = {"id": f"rs_{encrypted}", "type": "reasoning", "summary": []}
    at = {"item_id": f"rs_{encrypted}", "output_index": index}
    parts = []
    for number, said in enumerate(summary):
        here = at | {"summary_index": number}
        parts += [
            event("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **here),
            event("response.reasoning_summary_text.delta", delta=said, obfuscation="ab", **here),
            event("response.reasoning_summary_text.done", text=said, **here),
            event("response.reasoning_summary_part.done", part={"type": "summary_text", "text": said}, **here),
        ]
    whole = [{"type": "summary_text", "text": said} for said in summary]
    return [
        event("response.output_item.added", output_index=index, item=item | {"encrypted_content": encrypted[:2]}),
        *parts,
        event(
            "response.output_item.done",
            output_index=index,
            item=item | {"summary": whole, "encrypted_content": encrypted},
        ),
    ]


def turn(*parts: Sequence[bytes], end: bytes | None = None) -> list[bytes]:
    """A whole turn, numbered."""
    blocks = [
        created(),
        event("response.in_progress", response={}),
        *(b for part in parts for b in part),
        end or ended(),
    ]
    return [
        block.replace(b'"sequence_number": 0', f'"sequence_number": {n}'.encode()) for n, block in enumerate(blocks)
    ]
