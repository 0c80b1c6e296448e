"""A conversation as the contents of a Gemini request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from graphflow.content import CitationPart, Content, Part, RefusalPart, TextPart, base64_of, media_of
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolMessage
from graphflow.models.accumulator import arguments_error
from graphflow.models.replay.replay import Replay
from graphflow.models.replay.signed_arguments import SIGNED, unchanged
from graphflow.models.sendable import with_name

FILLER = "skip_thought_signature_validator"
"""In place of the signature of a call that another model made: https://ai.google.dev/gemini-api/docs/thought-signatures"""
_MEDIA = {"image": "image/png", "audio": "audio/wav", "file": "application/pdf"}


_NESTED = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Types that a result of Gemini 3 may have in it: https://ai.google.dev/gemini-api/docs/function-calling#multimodal"""


def contents(messages: Sequence[Message], replay: Replay, *, third: bool) -> list[dict[str, Any]]:
    """The messages; results of one turn's calls stand together.

    Args:
        third: of Gemini 3 and later, which asks for signatures of calls and takes images in results.
    """
    out: list[dict[str, Any]] = []
    names: dict[str, dict[str, Any]] = {}
    """Call id → name of the function, and the id as Gemini knows it."""
    before: Message | None = None
    for message in messages:
        match message:
            case SystemMessage() | HumanMessage():
                parts = _parts(with_name(message) if isinstance(message, HumanMessage) else message.content)
                role = "user"
            case ToolMessage():
                parts = _result(message, names[message.tool_call_id], nested=third)
                role = "user"
            case AIMessage():
                parts = _own_parts(message, replay, fill=third) or _plain_parts(message, fill=third)
                role = "model"
                for part, call in zip((p for p in parts if "functionCall" in p), message.tool_calls, strict=True):
                    names[call.id] = {k: v for k, v in part["functionCall"].items() if k != "args"}
        if not parts:
            continue
        # As many results as calls in one content: "the number of function response parts is equal to …"
        if isinstance(message, ToolMessage) and isinstance(before, ToolMessage):
            out[-1]["parts"] += parts
        else:
            out.append({"role": role, "parts": parts})
        before = message
    return out


def _plain_parts(message: AIMessage, *, fill: bool) -> list[dict[str, Any]]:
    parts = _parts(message.content)
    for position in range(len(message.tool_calls)):
        filler = {"thoughtSignature": FILLER} if fill and not position else {}
        parts.append({"functionCall": _call(message, position)} | filler)
    return parts


def _own_parts(message: AIMessage, replay: Replay, *, fill: bool) -> list[dict[str, Any]] | None:
    """The parts of a turn that this model wrote; None where there are none, or the message is no longer what it wrote."""
    own = replay.own(message.provider_state)
    kept = own.get("parts") if own is not None else None
    if not isinstance(kept, list):
        return None
    text, media = message.text, media_of(message.content)
    parts: list[dict[str, Any]] = []
    begin, calls, shown = 0, [], []
    for part in kept:
        signature = {"thoughtSignature": part["signature"]} if isinstance(part, dict) and part.get("signature") else {}
        match part:
            case {"characters": int(size)}:
                parts.append({"text": text[begin : begin + size]} | signature)
                begin += size
            case {"media": int(position)}:
                shown.append(position)
                wire = _part(media[position]) if 0 <= position < len(media) else None
                parts += [] if wire is None else [wire | signature]
            case {"part": dict(whole)}:
                parts.append(whole | signature)
            case {"call": int(position)}:
                calls.append(position)
                if 0 <= position < len(message.tool_calls):
                    wire_id = {"id": part["id"]} if part.get("id") else {}
                    # A signature signs the arguments too; those that somebody has edited since are not its own.
                    if not unchanged(message.tool_calls[position].arguments, part.get(SIGNED)):
                        signature = {}
                    # Some models send calls without one, and refuse them so: https://github.com/earendil-works/pi/pull/1825
                    if fill and not position and not signature:
                        signature = {"thoughtSignature": FILLER}
                    parts.append({"functionCall": wire_id | _call(message, position)} | signature)
    whole_calls, whole_media = list(range(len(message.tool_calls))), list(range(len(media)))
    return parts if begin == len(text) and calls == whole_calls and shown == whole_media else None


def _call(message: AIMessage, position: int) -> dict[str, Any]:
    call = message.tool_calls[position]
    # What was wrong with arguments stands in the call's error result.
    args = msgspec.json.decode(call.arguments) if arguments_error(call.arguments) is None else {}
    return {"name": call.name, "args": args}


def _result(message: ToolMessage, named: dict[str, Any], *, nested: bool) -> list[dict[str, Any]]:
    response: dict[str, Any] = {"response": {"error" if message.error else "result": message.text}}
    media = [wire for part in media_of(message.content) if (wire := _part(part)) is not None]
    inside = [wire for wire in media if nested and wire.get("inlineData", {}).get("mimeType") in _NESTED]
    if inside:
        response["parts"] = inside
    return [{"functionResponse": named | response}, *(wire for wire in media if wire not in inside)]


def _parts(content: Content) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [wire for part in content if (wire := _part(part)) is not None]


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"text": part.text}
        case RefusalPart():
            return {"text": part.refusal}
        case CitationPart():
            return None
    if part.data is not None:
        return {"inlineData": {"mimeType": part.media_type or _MEDIA[part.type], "data": base64_of(part.data)}}
    # The service finds out a type that is not given; a wrong one is refused.
    typed = {"mimeType": part.media_type} if part.media_type else {}
    return {"fileData": {"fileUri": part.url or f"upload:{part.upload or part.blob}"} | typed}
