"""One chunk of a Gemini stream as typed data.

Two ways in: `decode_chunk` reads well-formed chunks in C; anything that does not fit the types goes through
`lenient_chunk`, which keeps what can be used. https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.json_data import whole_characters


class GeminiCall(msgspec.Struct, gc=False):
    name: str | None = None
    id: str | None = None
    args: Any = None
    """An object; the arguments come whole."""


class GeminiPart(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: GeminiCall | None = None
    inline_data: dict[str, Any] | None = None
    executable_code: dict[str, Any] | None = None
    code_execution_result: dict[str, Any] | None = None
    tool_call: dict[str, Any] | None = None
    """Of a tool that the service runs, as is the response."""
    tool_response: dict[str, Any] | None = None

    def served(self) -> dict[str, Any] | None:
        """What a tool of the service was asked or gave, as the service takes it back; None for any other part."""
        fields = {
            "executableCode": self.executable_code,
            "codeExecutionResult": self.code_execution_result,
            "toolCall": self.tool_call,
            "toolResponse": self.tool_response,
        }
        return {name: value for name, value in fields.items() if value is not None} or None


class GeminiContent(msgspec.Struct, gc=False):
    parts: list[GeminiPart] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: GeminiContent | None = None
    finish_reason: str | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None


class GeminiChunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: dict[str, Any] | None = None
    prompt_feedback: dict[str, Any] | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(GeminiChunk).decode
"""Raises `msgspec.DecodeError` (no JSON), `msgspec.ValidationError` (other types), `UnicodeDecodeError`."""


def lenient_chunk(raw: dict[str, Any]) -> GeminiChunk:
    """The chunk in `raw`, without the fields whose type can't be used; only texts may have half characters."""
    candidates = raw.get("candidates")
    return GeminiChunk(
        candidates=[_candidate(c) for c in candidates if isinstance(c, dict)] if isinstance(candidates, list) else None,
        usage_metadata=_of(raw, "usageMetadata", dict),
        prompt_feedback=_of(raw, "promptFeedback", dict),
        error=whole_characters(raw.get("error")),
    )


def _candidate(raw: dict[str, Any]) -> Candidate:
    content = raw.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    # A single part without its list is still a part.
    parts = [parts] if isinstance(parts, dict) else parts
    return Candidate(
        content=GeminiContent([_part(p) for p in parts if isinstance(p, dict)]) if isinstance(parts, list) else None,
        finish_reason=_of(raw, "finishReason", str),
        index=_of(raw, "index", int),
        grounding_metadata=_of(raw, "groundingMetadata", dict),
        citation_metadata=_of(raw, "citationMetadata", dict),
    )


def _part(raw: dict[str, Any]) -> GeminiPart:
    call = _of(raw, "functionCall", dict)
    text = raw.get("text")
    return GeminiPart(
        text=text if isinstance(text, str) else None,
        thought=raw.get("thought") is True,
        thought_signature=_of(raw, "thoughtSignature", str) or _of(raw, "thought_signature", str),
        function_call=None
        if call is None
        else GeminiCall(_of(call, "name", str), _of(call, "id", str), call.get("args")),
        inline_data=_of(raw, "inlineData", dict),
        executable_code=_of(raw, "executableCode", dict),
        code_execution_result=_of(raw, "codeExecutionResult", dict),
        tool_call=_of(raw, "toolCall", dict),
        tool_response=_of(raw, "toolResponse", dict),
    )


def _of(raw: dict[str, Any], name: str, kind: type) -> Any:
    value = raw.get(name)
    return whole_characters(value) if isinstance(value, kind) else None
