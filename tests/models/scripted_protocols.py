"""The scripted model behind the protocols of Anthropic, Gemini and OpenAI Responses: requests read, turns written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.deltas import Delta, Finish, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from graphflow.models.options import ChatOptions
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import ScriptedError
from tests.models.anthropic import service as anthropic
from tests.models.gemini import service as gemini
from tests.models.raw_server import Answer, Connection, body, event
from tests.models.responses import service as responses

Json = dict[str, Any]


class ProtocolWriter:
    """Writes one turn in a protocol."""

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        raise NotImplementedError

    def end(self, finish: Finish) -> bytes:
        raise NotImplementedError

    def error(self, error: ScriptedError) -> bytes:
        raise NotImplementedError


def scripted(
    model: ScriptedModel, read: Callable[[Json], tuple[list[Message], ChatOptions]], writer: type[ProtocolWriter]
) -> Answer:
    """Answers each request by the next turn of the script."""

    async def answer(connection: Connection) -> None:
        messages, options = read(connection.request.json)
        play = await model.performed(messages, (), options)
        if play.error is not None and not play.deltas:
            said = {"error": {"message": play.error.message, "type": "scripted_error"}}
            await body(play.error.status, json.dumps(said).encode())(connection)
            return
        write = writer()
        await connection.head()
        await connection.chunk(write.begin())
        for delta in play.deltas:
            await connection.chunk(write.delta(delta))
        if play.hang:
            await connection.hang()
        if play.cut:
            await connection.cut()
        elif play.error is not None:
            await connection.chunk(write.error(play.error))
            await connection.end()
        else:
            await connection.chunk(write.end(play.finish))
            await connection.end()

    return answer


def _options(**given: Any) -> ChatOptions:
    return ChatOptions(**{name: value for name, value in given.items() if value})


# --- Anthropic -----------------------------------------------------------------------------------


def read_anthropic(request: Json) -> tuple[list[Message], ChatOptions]:
    messages: list[Message] = [SystemMessage(content=block["text"]) for block in request.get("system", ())]
    for turn in request["messages"]:
        blocks = turn["content"]
        said = "".join(block["text"] for block in blocks if block["type"] == "text")
        calls = tuple(
            ToolCall(id=b["id"], name=b["name"], arguments=json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"
        )  # fmt: skip
        if turn["role"] == "assistant":
            messages.append(AIMessage(content=said, tool_calls=calls))
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        messages += [ToolMessage(tool_call_id=b["tool_use_id"], content=b["content"]) for b in results]
        messages += [HumanMessage(content=said)] if said else []
    return messages, _options(max_tokens=request["max_tokens"], stop=tuple(request.get("stop_sequences", ())))


class AnthropicWriter(ProtocolWriter):
    def __init__(self) -> None:
        self._open: tuple[str, int] | None = None
        self._index = -1

    def begin(self) -> bytes:
        return anthropic.start(input_tokens=0, output_tokens=0)

    def delta(self, delta: Delta) -> bytes:
        if isinstance(delta, ToolCallDelta):
            began = self._begin("tool_use", delta.index, id=delta.id, name=delta.name, input={})
            return began + anthropic.piece(self._index, type="input_json_delta", partial_json=delta.arguments)
        if isinstance(delta, ThinkingDelta):
            began = self._begin("thinking", 0, thinking="", signature="")
            return began + anthropic.piece(self._index, type="thinking_delta", thinking=delta.text)
        assert isinstance(delta, TextDelta)
        return self._begin("text", 0, text="") + anthropic.piece(self._index, type="text_delta", text=delta.text)

    def _begin(self, kind: str, number: int, **fields: Any) -> bytes:
        if self._open == (kind, number):
            return b""
        ended = anthropic.closed(self._index) if self._open else b""
        self._open, self._index = (kind, number), self._index + 1
        return ended + anthropic.opened(self._index, type=kind, **fields)

    def end(self, finish: Finish) -> bytes:
        words = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}
        used = finish.usage or Usage()
        usage = {
            "input_tokens": used.prompt_tokens - used.cached_tokens,
            "cache_read_input_tokens": used.cached_tokens,
            "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
        }
        ended = anthropic.closed(self._index) if self._open else b""
        return ended + b"".join(anthropic.stop(words[finish.reason], used.completion_tokens, usage=usage))

    def error(self, error: ScriptedError) -> bytes:
        return anthropic.sse({"type": "error", "error": {"type": "api_error", "message": error.message}})


# --- Gemini --------------------------------------------------------------------------------------


def read_gemini(request: Json) -> tuple[list[Message], ChatOptions]:
    system = request.get("systemInstruction", {}).get("parts", ())
    messages: list[Message] = [SystemMessage(content=part["text"]) for part in system]
    for content in request["contents"]:
        said = "".join(part.get("text", "") for part in content["parts"])
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if content["role"] == "model":
            made = tuple(ToolCall(id=c.get("id", ""), name=c["name"], arguments=json.dumps(c["args"])) for c in calls)
            messages.append(AIMessage(content=said, tool_calls=made))
        elif results:
            messages += [ToolMessage(tool_call_id=r.get("id", ""), content=r["response"]["result"]) for r in results]
        else:
            messages.append(HumanMessage(content=said))
    config = request.get("generationConfig", {})
    return messages, _options(max_tokens=config.get("maxOutputTokens"), stop=tuple(config.get("stopSequences", ())))


class GeminiWriter(ProtocolWriter):
    """Calls come whole: the pieces of one are held until the next thing begins."""

    def __init__(self) -> None:
        self._call: tuple[int, str, str] | None = None
        self._arguments = ""

    def delta(self, delta: Delta) -> bytes:
        if isinstance(delta, ToolCallDelta):
            ended = b""
            if self._call is None or self._call[0] != delta.index:
                ended = self._whole()
                self._call, self._arguments = (delta.index, delta.id or "", delta.name or ""), ""
            self._arguments += delta.arguments
            return ended
        assert isinstance(delta, TextDelta | ThinkingDelta)
        return self._chunk({"text": delta.text} | ({"thought": True} if isinstance(delta, ThinkingDelta) else {}))

    def _whole(self) -> bytes:
        if self._call is None:
            return b""
        (_, call_id, name), self._call = self._call, None
        try:
            args = json.loads(self._arguments)
        except ValueError:
            args = self._arguments
        return self._chunk(gemini.call(name, args, id=call_id))

    def _chunk(self, *parts: Json, **more: Any) -> bytes:
        return event({"candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0} | more]})

    def end(self, finish: Finish) -> bytes:
        words = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY", "tool_calls": "STOP"}
        used = finish.usage or Usage()
        usage = {
            "promptTokenCount": used.prompt_tokens,
            "candidatesTokenCount": used.completion_tokens - used.reasoning_tokens,
            "thoughtsTokenCount": used.reasoning_tokens,
            "cachedContentTokenCount": used.cached_tokens,
        }
        return self._whole() + event({"candidates": [{"finishReason": words[finish.reason]}], "usageMetadata": usage})

    def error(self, error: ScriptedError) -> bytes:
        return event({"error": {"code": error.status, "message": error.message, "status": "INTERNAL"}})


# --- Responses -----------------------------------------------------------------------------------


def read_responses(request: Json) -> tuple[list[Message], ChatOptions]:
    messages: list[Message] = []
    if request.get("instructions"):
        messages.append(SystemMessage(content=request["instructions"]))
    for item in request["input"]:
        match item:
            case {"type": "function_call"}:
                called = ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])
                messages.append(AIMessage(tool_calls=(called,)))
            case {"type": "function_call_output"}:
                messages.append(ToolMessage(tool_call_id=item["call_id"], content=item["output"]))
            case {"role": "user"}:
                messages.append(HumanMessage(content=item["content"]))
            case {"role": "assistant"}:
                messages.append(AIMessage(content=item["content"]))
    return messages, _options(max_tokens=request.get("max_output_tokens"))


class ResponsesWriter(ProtocolWriter):
    def __init__(self) -> None:
        self._calls: dict[int, Json] = {}

    def begin(self) -> bytes:
        return responses.created()

    def delta(self, delta: Delta) -> bytes:
        if isinstance(delta, ThinkingDelta):
            at = {"item_id": "rs", "output_index": 0, "summary_index": 0}
            return responses.event("response.reasoning_summary_text.delta", delta=delta.text, **at)
        if isinstance(delta, TextDelta):
            at = {"item_id": "msg", "output_index": 1, "content_index": 0}
            return responses.event("response.output_text.delta", delta=delta.text, **at)
        assert isinstance(delta, ToolCallDelta)
        index, began = delta.index + 2, b""
        if delta.index not in self._calls:
            item = {"id": f"fc_{delta.id}", "type": "function_call", "call_id": delta.id, "name": delta.name}
            self._calls[delta.index] = item
            began = responses.event("response.output_item.added", output_index=index, item=item | {"arguments": ""})
        at = {"item_id": self._calls[delta.index]["id"], "output_index": index}
        return began + responses.event("response.function_call_arguments.delta", delta=delta.arguments, **at)

    def end(self, finish: Finish) -> bytes:
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish.reason)
        used = finish.usage or Usage()
        usage = {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": used.cached_tokens},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        }
        return responses.ended(
            "incomplete" if why else "completed", usage=usage, incomplete_details={"reason": why} if why else None
        )

    def error(self, error: ScriptedError) -> bytes:
        return responses.event("error", code="server_error", message=error.message)
