"""A fake of the Gemini API: streams turns, and refuses what the service refuses, each rule with its page or report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.models.raw_server import Answer, Connection, body, stream

FILLER = "skip_thought_signature_validator"
_FIELDS = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"}
)
_CONFIG = frozenset({
    "temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "responseMimeType", "responseJsonSchema",
    "responseSchema", "thinkingConfig", "candidateCount", "presencePenalty", "frequencyPenalty",
})  # fmt: skip
_PARTS = frozenset({
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "thought", "thoughtSignature", "executableCode",
    "codeExecutionResult", "toolCall", "toolResponse",
})  # fmt: skip
USAGE = {
    "promptTokenCount": 12,
    "candidatesTokenCount": 2,
    "thoughtsTokenCount": 3,
    "cachedContentTokenCount": 4,
    "totalTokenCount": 17,
}


def refusal(path: str, request: dict[str, Any], issued: Sequence[str] = ()) -> str | None:
    """Why the service answers 400; `issued` are the signatures that it has given out."""
    model = re.fullmatch(r"/v1/models/([^:]+):streamGenerateContent\?alt=sse", path)
    if model is None:
        return f"not found: {path}"
    # https://ai.google.dev/api/generate-content: unknown names are errors
    for name in [*(request.keys() - _FIELDS), *(request.get("generationConfig", {}).keys() - _CONFIG)]:
        return f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    config = request.get("generationConfig", {})
    thinking = config.get("thinkingConfig", {})
    third = model[1].startswith("gemini-3")
    # https://ai.google.dev/gemini-api/docs/thinking
    if thinking and not third and "2.5" not in model[1]:
        return "Thinking is not enabled for this model."
    if "thinkingLevel" in thinking and not third:
        return "Thinking level is not supported for this model."
    if thinking.get("includeThoughts") and "lite" in model[1] and "thinkingBudget" not in thinking:
        return "Thinking_config.include_thoughts is only enabled when thinking is enabled."
    # https://github.com/googleapis/python-genai/issues/706
    if config.get("responseMimeType") == "application/json" and request.get("tools") and not third:
        return "Function calling with a response mime type: 'application/json' is unsupported"
    names = []
    for tool in request.get("tools", ()):
        for declared in tool.get("functionDeclarations", ()):
            names.append(declared["name"])
            # https://github.com/google-gemini/gemini-cli/issues/1481
            if "parametersJsonSchema" in declared and not declared["parametersJsonSchema"].get("properties"):
                return "parameters.properties: should be non-empty for OBJECT type"
    calling = request.get("toolConfig", {}).get("functionCallingConfig", {})
    if set(calling.get("allowedFunctionNames", ())) - set(names):
        return "allowed_function_names should be a subset of function_declarations"
    if calling.get("allowedFunctionNames") and calling["mode"] != "ANY":
        return "allowed_function_names can only be set when mode is ANY"
    return _contents(request["contents"], model[1], issued)


def _contents(said: list[dict[str, Any]], model: str, issued: Sequence[str]) -> str | None:
    third = model.startswith("gemini-3")
    if not said:
        return "contents is not specified"
    for number, content in enumerate(said):
        if content["role"] not in ("user", "model"):
            return "Please use a valid role: user, model."
        if not content["parts"]:
            return "contents.parts must not be empty."
        for part in content["parts"]:
            for name in part.keys() - _PARTS:
                return f'Unknown name "{name}" at contents[{number}].parts'
            # https://ai.google.dev/gemini-api/docs/thought-signatures
            if part.get("thoughtSignature") not in (None, FILLER, *issued):
                return "Thought signature is not valid."
            # https://github.com/langchain-ai/langchain-google/issues/1431
            if (
                content["role"] == "model"
                and "inlineData" in part
                and "image" in model
                and "thoughtSignature" not in part
            ):
                return f"Image part is missing a thought_signature in content position {number}."
            # https://ai.google.dev/gemini-api/docs/function-calling#multimodal
            if inside := part.get("functionResponse", {}).get("parts"):
                if not third or any(entry.keys() != {"inlineData"} for entry in inside):
                    return "Unknown name \"parts\" at 'function_response'"
        kinds = [
            name for part in content["parts"] for name in part if name in ("executableCode", "codeExecutionResult")
        ]
        # https://ai.google.dev/gemini-api/docs/code-execution
        if kinds.count("executableCode") != kinds.count("codeExecutionResult"):
            return "Please ensure that executable code parts are followed by their results."
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        # https://github.com/langgenius/dify-official-plugins/issues/2088
        if third and first is not None and "thoughtSignature" not in first:
            return "Function call is missing a thought_signature in functionCall parts."
        following = said[number + 1]["parts"] if calls and number + 1 < len(said) else []
        results = [part["functionResponse"] for part in following if "functionResponse" in part]
        # https://github.com/google-gemini/gemini-cli/issues/3814
        if [call["name"] for call in calls] != [result["name"] for result in results]:
            return "Please ensure that the number of function response parts is equal to the number of function call parts."
        if [call.get("id") for call in calls] != [result.get("id") for result in results]:
            return "function response ids do not match those of the calls"
    return None


def service(*turns: Sequence[bytes], issued: Sequence[str] = ()) -> list[Answer]:
    """One answer for each turn; a refused request is answered by 400."""

    def answer(blocks: Sequence[bytes]) -> Answer:
        async def respond(connection: Connection) -> None:
            why = refusal(connection.request.path, connection.request.json, issued)
            if why is None:
                await stream(*blocks)(connection)
            else:
                error = {"error": {"code": 400, "message": why, "status": "INVALID_ARGUMENT"}}
                await body(400, json.dumps(error).encode())(connection)

        return respond

    return [answer(blocks) for blocks in turns]


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One chunk as the service writes it, with CRLF."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    candidate |= {"finishReason": finish} if finish else {}
    data = {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "m", "responseId": "r"} | more
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\r\n\r\n"


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"text": said, **more}


def thought(said: str) -> dict[str, Any]:
    return {"text": said, "thought": True}


def call(name: str, args: Any, signature: str | None = None, **more: Any) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, "args": args, **more}} | signed


STOP = chunk(text(""), finish="STOP")
