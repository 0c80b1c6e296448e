"""A conversation as the input items of a Responses request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.content import Content, part_to_wire
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolMessage
from graphflow.models.accumulator import arguments_error
from graphflow.models.logs.log import notice
from graphflow.models.replay.replay import Replay
from graphflow.models.sendable import note_unsent, with_name


def split_instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The text of the system messages that the conversation begins with, and the other messages."""
    leading = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), 0)
    return "\n\n".join(m.text for m in messages[:leading]), messages[leading:]


def input_items(messages: Sequence[Message], replay: Replay) -> list[dict[str, Any]]:
    """The messages as items; a turn of this very model has its reasoning before what it led to."""
    items: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case SystemMessage():
                items.append({"type": "message", "role": "developer", "content": message.content})
            case HumanMessage():
                items.append({"type": "message", "role": "user", "content": _content(with_name(message))})
            case ToolMessage():
                call_id = replay.call_id(message.tool_call_id)
                output = _content(message.content)
                items.append({"type": "function_call_output", "call_id": call_id, "output": output})
            case AIMessage():
                note_unsent(message, replay.provider, notice)
                items += _own_items(message, replay) or _plain_items(message, replay)
    return items


def _plain_items(message: AIMessage, replay: Replay) -> list[dict[str, Any]]:
    said = [_said(message.text)] if message.text else []
    return said + [_call(message, position, replay) for position in range(len(message.tool_calls))]


def _own_items(message: AIMessage, replay: Replay) -> list[dict[str, Any]] | None:
    """The items of a turn that this model wrote; None where there are none, or the message is no longer what it wrote."""
    own = replay.own(message.provider_state)
    kept = own.get("output") if own is not None else None
    if not isinstance(kept, list):
        return None
    items: list[dict[str, Any]] = []
    begin, calls = 0, []
    for item in kept:
        match item:
            case {"type": "message", "characters": int(size)}:
                if text := message.text[begin : begin + size]:
                    items.append(_said(text, item.get("phase")))
                begin += size
            case {"type": "function_call", "position": int(position)}:
                calls.append(position)
                if 0 <= position < len(message.tool_calls):
                    items.append(_call(message, position, replay))
            case {"type": "reasoning"}:
                items.append({"summary": [], **item})
            case Mapping():
                items.append(dict(item))
    # Reasoning is refused without what it led to, so it stays behind where the message was edited since.
    if begin != len(message.text) or sorted(calls) != list(range(len(message.tool_calls))):
        return None
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _said(text: str, phase: Any = None) -> dict[str, Any]:
    # Without the item's id: what was not stored can't be looked up by it.
    return {"type": "message", "role": "assistant", "content": text} | ({"phase": phase} if phase else {})


def _call(message: AIMessage, position: int, replay: Replay) -> dict[str, Any]:
    call = message.tool_calls[position]
    # What was wrong with arguments stands in the call's error result.
    arguments = call.arguments if arguments_error(call.arguments) is None else "{}"
    return {"type": "function_call", "call_id": replay.call_id(call.id), "name": call.name, "arguments": arguments}


def _content(content: Content) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [_part(wire) for part in content if (wire := part_to_wire(part)) is not None]


def _part(wire: dict[str, Any]) -> dict[str, Any]:
    """A part of the form of chat completions in that of Responses."""
    match wire["type"]:
        case "image_url":
            image = wire["image_url"]
            return {"type": "input_image", "detail": image.get("detail", "auto"), "image_url": image["url"]}
        case "file":
            file = wire["file"]
            address = file["file_data"]
            if not address.startswith("data:"):
                return {"type": "input_file", "file_url": address}
            return {"type": "input_file", "filename": file.get("filename", "file"), "file_data": address}
        case "input_audio":
            return wire
        case kind:
            return {"type": "input_text", "text": wire[kind]}
