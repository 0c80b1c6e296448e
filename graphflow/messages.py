"""The message model, OpenAI-shaped: frozen structs that pass by reference and encode in C.

`to_wire` and `from_wire` are the two ways in and out of the OpenAI JSON form; everything between
uses the structs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


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
        tag = self.__struct_config__.tag
        assert isinstance(tag, str)
        return tag


class SystemMessage(_Message, frozen=True, tag="system"):
    content: str


class HumanMessage(_Message, frozen=True, tag="user"):
    content: str
    name: str | None = None
    references: tuple[Any, ...] = ()
    """Files and pages that came with the input, listed to the model after the text."""


class AIMessage(_Message, frozen=True, tag="assistant"):
    content: str = ""
    reasoning: str = ""
    """What the model thought aloud; kept in the state, not sent back (spec 5.1)."""
    tool_calls: tuple[ToolCall, ...] = ()
    status: str | None = None
    """`_status` of partial text: `cancelled`, `error`, `timeout`; `None` is a whole message (E15)."""
    reasoning_details: tuple[Any, ...] = ()
    """Opaque reasoning items of some providers, sent back unchanged."""


class ToolMessage(_Message, frozen=True, tag="tool"):
    tool_call_id: str
    content: str
    name: str | None = None
    error: bool = False
    whole: str | None = None
    """The result in full where `content` was cut for the model; kept in the state, never sent to it."""


Message = SystemMessage | HumanMessage | AIMessage | ToolMessage
MESSAGE_TYPES = (SystemMessage, HumanMessage, AIMessage, ToolMessage)


def to_wire(message: Message, *, replay_reasoning: bool = False) -> dict[str, Any]:
    """The message as an OpenAI chat message.

    `replay_reasoning` sends `reasoning_content` back, which only some providers demand.
    """
    if isinstance(message, AIMessage):
        out: dict[str, Any] = {"role": "assistant", "content": message.content or None}
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
        ValueError: for an unknown role.
    """
    role, content = data.get("role"), _text(data.get("content"))
    identity = data.get("id")
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
            tool_calls=tuple(_call(c) for c in calls),
            reasoning_details=tuple(data.get("reasoning_details") or ()),
        )
    if role == "tool":
        call_id = data.get("tool_call_id") or data.get("toolCallId") or ""
        return ToolMessage(content=content, id=identity, tool_call_id=call_id, name=data.get("name"))
    raise ValueError(f"a message has role {role!r}; roles are system, user, assistant, tool")


def _call(data: Mapping[str, Any]) -> ToolCall:
    function = data.get("function") or data
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(id=data.get("id") or "", name=function.get("name") or "", arguments=arguments)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(part.get("text", "") if isinstance(part, Mapping) else str(part) for part in content)
    return str(content)
