"""The message model, OpenAI-shaped: frozen structs that pass by reference and encode in C.

`to_wire` and `from_wire` are the two ways in and out of the OpenAI JSON form; everything between
uses the structs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec

from graphflow.excerpts import excerpt_of


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One call that a model asked for."""

    id: str
    name: str
    arguments: str = "{}"
    """The JSON text exactly as the model wrote it; it need not parse."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="role"):
    id: str | None = None
    """Identity for the `messages` reducer: a later message with the same id replaces this one."""

    @property
    def role(self) -> str:
        """`system`, `user`, `assistant` or `tool`."""
        tag = self.__struct_config__.tag
        assert isinstance(tag, str)
        return tag


class SystemMessage(_Message, frozen=True, tag="system"):
    """Instructions to the model."""

    content: str


class HumanMessage(_Message, frozen=True, tag="user"):
    """What a user says."""

    content: str
    name: str | None = None
    references: tuple[Any, ...] = ()
    """Files and pages that came with the input, listed to the model after the text."""


class AIMessage(_Message, frozen=True, tag="assistant"):
    """What a model answers: text, reasoning, and the tool calls that it asks for."""

    content: str = ""
    reasoning: str = ""
    """The model's reasoning; kept in the state, not sent back (spec 5.1)."""
    tool_calls: tuple[ToolCall, ...] = ()
    status: str | None = None
    """`_status` of partial text: `cancelled`, `error`, `timeout`; `None` is a whole message (E15)."""
    reasoning_details: tuple[Any, ...] = ()
    """Opaque reasoning items of some providers, sent back unchanged."""


class ToolMessage(_Message, frozen=True, tag="tool"):
    """The result of one tool call, as the model reads it."""

    tool_call_id: str
    content: str
    name: str | None = None
    error: bool = False
    whole: str | None = None
    """The result in full where `content` was cut for the model; kept in the state, never sent to it."""


Message = SystemMessage | HumanMessage | AIMessage | ToolMessage
MESSAGE_TYPES = (SystemMessage, HumanMessage, AIMessage, ToolMessage)

_TEXT, _MAYBE_TEXT, _ITEMS = (str,), (str, NoneType), (tuple, list)
_FIELDS: dict[type, tuple[tuple[str, tuple[type, ...]], ...]] = {
    SystemMessage: (("id", _MAYBE_TEXT), ("content", _TEXT)),
    HumanMessage: (("id", _MAYBE_TEXT), ("content", _TEXT), ("name", _MAYBE_TEXT), ("references", _ITEMS)),
    AIMessage: (
        ("id", _MAYBE_TEXT),
        ("content", _TEXT),
        ("reasoning", _TEXT),
        ("tool_calls", _ITEMS),
        ("status", _MAYBE_TEXT),
        ("reasoning_details", _ITEMS),
    ),
    ToolMessage: (
        ("id", _MAYBE_TEXT),
        ("tool_call_id", _TEXT),
        ("content", _TEXT),
        ("name", _MAYBE_TEXT),
        ("error", (bool,)),
        ("whole", _MAYBE_TEXT),
    ),
    ToolCall: (("id", _TEXT), ("name", _TEXT), ("arguments", _TEXT)),
}
_SAID = {_TEXT: "text", _MAYBE_TEXT: "text or null", _ITEMS: "a list", (bool,): "true or false"}


def misfit(message: Message | ToolCall) -> str | None:
    """The error in a message's fields, or None.

    Structs check their fields only when they are read from bytes: a message with a wrong field can't be loaded again.
    """
    for name, types in _FIELDS[type(message)]:
        value = getattr(message, name)
        if not isinstance(value, types):
            given = "null" if value is None else repr(value)
            return f"the {name} of {type(message).__name__} must be {_SAID[types]}, not {given:.80}"
    calls: Sequence[Any] = message.tool_calls if isinstance(message, AIMessage) else ()
    for call in calls:
        wrong = misfit(call) if isinstance(call, ToolCall) else f"{excerpt_of(call)} is not a ToolCall"
        if wrong is not None:
            return f"tool_calls of AIMessage: {wrong}"
    return None


def to_wire(message: Message, *, replay_reasoning: bool = False) -> dict[str, Any]:
    """The message as an OpenAI chat message.

    `replay_reasoning` sends `reasoning_content` back, which only some providers demand.
    """
    if isinstance(message, AIMessage):
        out: dict[str, Any] = {"role": "assistant", "content": message.content or None}
        # Without calls the text stays a string, even an empty one: null means "only calls" to a provider.
        if message.tool_calls:
            out["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in message.tool_calls
            ]
        else:
            out["content"] = message.content
        if replay_reasoning:
            out["reasoning_content"] = message.reasoning
        if message.reasoning_details:
            out["reasoning_details"] = list(message.reasoning_details)
        return out
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    out = {"role": message.role, "content": message.content}
    if isinstance(message, HumanMessage) and message.name:
        out["name"] = message.name
    return out


def from_wire(data: Mapping[str, Any]) -> Message:
    """A message from its OpenAI form (or ours); parts are joined to text.

    Raises:
        ValueError: for an unknown role, and for a field of another type; the text says which.
    """
    message = _from_wire(data)
    if (wrong := misfit(message)) is not None:
        raise ValueError(wrong)
    return message


def _from_wire(data: Mapping[str, Any]) -> Message:
    role, content = data.get("role"), _text(data.get("content"))
    identity = data.get("id")
    # OpenAI's newer models call the system role `developer`.
    if role in ("system", "developer"):
        return SystemMessage(content=content, id=identity)
    if role == "user":
        return HumanMessage(content=content, id=identity, name=data.get("name"))
    if role == "assistant":
        calls = data.get("tool_calls") or data.get("toolCalls") or ()
        return AIMessage(
            content=content,
            id=identity,
            reasoning=data.get("reasoning_content") or data.get("reasoning") or "",
            tool_calls=tuple(_call(call) for call in _items(calls, "tool_calls")),
            reasoning_details=tuple(_items(data.get("reasoning_details") or (), "reasoning_details")),
        )
    if role == "tool":
        call_id = data.get("tool_call_id") or data.get("toolCallId") or ""
        return ToolMessage(content=content, id=identity, tool_call_id=call_id, name=data.get("name"))
    raise ValueError(f"a message has role {role!r}; roles are system, user, assistant, tool")


def _items(value: Any, name: str) -> Sequence[Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    raise ValueError(f"the {name} of a message must be a list, not {excerpt_of(value)}")


def _call(data: Any) -> ToolCall:
    function = (data.get("function") or data) if isinstance(data, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError(f"a tool call must be an object with its function, not {excerpt_of(data)}")
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        # Some providers send an object; the field is text everywhere else.
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(id=data.get("id") or "", name=function.get("name") or "", arguments=arguments)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    # Parts of other kinds (images, files) have no text; what they say is lost here, as the state keeps text.
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") if isinstance(part, Mapping) else str(part) for part in content)
    return str(content)
