"""The message model, OpenAI-shaped: frozen structs that pass by reference and encode in C.

`to_wire` and `from_wire` are the two ways in and out of the OpenAI JSON form; everything between
uses the structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, cast

import msgspec
from msgspec.structs import astuple

from graphflow.content import (
    PART_TYPES,
    Content,
    content_from_wire,
    media_of,
    part_misfit,
    part_to_wire,
    text_of,
    url_misfit,
)
from graphflow.excerpts import excerpt_of
from graphflow.value_size import HiddenFields


class ProviderState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a provider wants back with a message or a call: reasoning items, signatures.

    Nobody but the provider's own code looks inside. It goes back to the provider (and, where its rule says so, the model)
    that it came from and to nobody else; logs, events and the chat record never have it.
    """

    provider: str
    """Key of the provider that wrote it."""
    model: str
    """The model that was asked for."""
    data: Any
    """The provider's own fields, merged over the stream and otherwise unchanged: given as a dict, kept as `HiddenFields`."""

    def __post_init__(self) -> None:
        if isinstance(self.data, Mapping):
            msgspec.structs.force_setattr(self, "data", HiddenFields(self.data))


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One call that a model asked for."""

    id: str
    name: str
    arguments: str = "{}"
    """The JSON text exactly as the model wrote it; it need not parse."""
    provider_state: ProviderState | None = None
    """What the provider wants back with this call."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="role"):
    id: str | None = None
    """Identity for the `messages` reducer: a later message with the same id replaces this one."""

    @property
    def role(self) -> str:
        """`system`, `user`, `assistant` or `tool`."""
        tag = self.__struct_config__.tag
        assert isinstance(tag, str)
        return tag

    @property
    def text(self) -> str:
        """The text of the content; of parts, their texts joined."""
        return text_of(self.content)  # type: ignore[attr-defined]


class SystemMessage(_Message, frozen=True, tag="system"):
    """Instructions to the model."""

    content: str


class HumanMessage(_Message, frozen=True, tag="user"):
    """What a user says."""

    content: Content
    name: str | None = None
    references: tuple[Any, ...] = ()
    """Files and pages that came with the input, listed to the model after the text."""


class AIMessage(_Message, frozen=True, tag="assistant"):
    """What a model answers: text, reasoning, and the tool calls that it asks for."""

    content: Content = ""
    reasoning: str = ""
    """The model's reasoning for people; what a provider wants back of it is in `provider_state`."""
    tool_calls: tuple[ToolCall, ...] = ()
    status: str | None = None
    """`_status` of partial text: `cancelled`, `error`, `timeout`; `None` is a whole message (E15)."""
    reasoning_details: tuple[Any, ...] = ()
    """Reasoning items that earlier versions stored without the provider they came from; sent to nobody."""
    provider_state: ProviderState | None = None
    """What the provider wants back with this turn."""


class ToolMessage(_Message, frozen=True, tag="tool"):
    """The result of one tool call, as the model reads it."""

    tool_call_id: str
    content: Content
    name: str | None = None
    error: bool = False
    whole: str | None = None
    """The result in full where `content` was cut for the model; kept in the state, never sent to it."""


Message = SystemMessage | HumanMessage | AIMessage | ToolMessage
MESSAGE_TYPES = (SystemMessage, HumanMessage, AIMessage, ToolMessage)

_TEXT, _MAYBE_TEXT, _ITEMS, _STATE = (str,), (str, NoneType), (tuple, list), (ProviderState, NoneType)
_CONTENT = (str, tuple, list)
_FIELDS: dict[type, tuple[tuple[str, tuple[type, ...]], ...]] = {
    SystemMessage: (("id", _MAYBE_TEXT), ("content", _TEXT)),
    HumanMessage: (("id", _MAYBE_TEXT), ("content", _CONTENT), ("name", _MAYBE_TEXT), ("references", _ITEMS)),
    AIMessage: (
        ("id", _MAYBE_TEXT),
        ("content", _CONTENT),
        ("reasoning", _TEXT),
        ("tool_calls", _ITEMS),
        ("status", _MAYBE_TEXT),
        ("reasoning_details", _ITEMS),
        ("provider_state", _STATE),
    ),
    ToolMessage: (
        ("id", _MAYBE_TEXT),
        ("tool_call_id", _TEXT),
        ("content", _CONTENT),
        ("name", _MAYBE_TEXT),
        ("error", (bool,)),
        ("whole", _MAYBE_TEXT),
    ),
    ToolCall: (("id", _TEXT), ("name", _TEXT), ("arguments", _TEXT), ("provider_state", _STATE)),
}
_SAID = {
    _TEXT: "text",
    _CONTENT: "text",
    _MAYBE_TEXT: "text or null",
    _ITEMS: "a list",
    _STATE: "a ProviderState or null",
    (bool,): "true or false",
}


def misfit(message: Message | ToolCall) -> str | None:
    """The error in a message's fields, or None.

    Structs check their fields only when they are read from bytes: a message with a wrong field can't be loaded again.
    """
    kinds = (type(message), *map(type, astuple(message)))
    if kinds not in _FITTING:
        if (wrong := _field_misfit(message)) is not None:
            return wrong
        # What a content of parts holds is looked at each time; of the other lists only their type counts here.
        if _PLAIN.issuperset(kinds[1:]) and isinstance(getattr(message, "content", ""), str):
            _FITTING.add(kinds)
    calls: Sequence[Any] = message.tool_calls if isinstance(message, AIMessage) else ()
    for call in calls:
        wrong = misfit(call) if isinstance(call, ToolCall) else f"{excerpt_of(call)} is not a ToolCall"
        if wrong is not None:
            return f"tool_calls of AIMessage: {wrong}"
    return None


_PLAIN = frozenset({str, bool, NoneType, tuple, list})
_FITTING: set[tuple[type, ...]] = set()
"""The types of a message and its fields, where they say that all of it fits: nearly every message has one of a few."""


def _field_misfit(message: Message | ToolCall) -> str | None:
    for name, types in _FIELDS[type(message)]:
        value: Any = getattr(message, name)
        if not isinstance(value, types):
            given = "null" if value is None else repr(value)
            return f"the {name} of {type(message).__name__} must be {_SAID[types]}, not {given:.80}"
        # Nearly every content is a str, and nearly every state is none.
        wrong = None
        if types is _CONTENT and not isinstance(value, str):
            wrong = next((fault for part in cast(Any, value) if (fault := part_misfit(part))), None)
        elif types is _STATE and value is not None:
            wrong = _state_misfit(cast(ProviderState, value))
        if wrong is not None:
            return f"the {name} of {type(message).__name__}: {wrong}"
    return None


def _state_misfit(state: ProviderState) -> str | None:
    stamp: tuple[Any, Any] = (state.provider, state.model)
    if not all(isinstance(name, str) for name in stamp):
        return f"provider and model must be text, not {excerpt_of(stamp)}"
    data: Any = state.data
    if isinstance(data, HiddenFields) and all(type(name) is str for name in data.fields):
        return None
    return "data must be an object"


def to_wire(message: Message) -> dict[str, Any]:
    """The message as an OpenAI chat message, without provider state: that is added for one provider."""
    if isinstance(message, AIMessage):
        content = wire_content(message.content)
        out: dict[str, Any] = {"role": "assistant", "content": content or None}
        # Without calls the text stays a string, even an empty one: null means "only calls" to a provider.
        if message.tool_calls:
            out["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in message.tool_calls
            ]
        else:
            out["content"] = content
        return out
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": wire_content(message.content)}
    out = {"role": message.role, "content": wire_content(message.content)}
    if isinstance(message, HumanMessage) and message.name:
        out["name"] = message.name
    return out


def wire_content(content: Content) -> str | list[dict[str, Any]]:
    """Content in the OpenAI form; text stays a `str`, and so does text whose other parts have no form there."""
    if isinstance(content, str):
        return content
    parts = [wire for part in content if (wire := part_to_wire(part)) is not None]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def address_misfit(message: HumanMessage) -> str | None:
    """What is wrong with a URL in the parts of what a user says, or None."""
    return next(
        (f"{part.type} part: {why}" for part in media_of(message.content) if (why := url_misfit(part.url))), None
    )


def from_wire(data: Mapping[str, Any], known: Iterable[Any] = ()) -> Message:
    """A message from its OpenAI form (or ours); parts that are all text are joined to a `str`.

    Args:
        known: messages whose provider state it may have: its JSON form only names the state, by its digest.

    Raises:
        ValueError: for an unknown role or part, and for a field of another type; the text says which.
    """
    message = _from_wire(data, known)
    if (wrong := misfit(message)) is not None:
        raise ValueError(wrong)
    return message


_NAMED = {
    "system": ("content",),
    "developer": ("content",),
    "user": ("content", "name", "references"),
    "assistant": (
        "content", "tool_calls", "toolCalls", "reasoning", "reasoning_content", "reasoning_details", "reasoningDetails",
        "status", "providerState", "provider_state",
    ),
    "tool": ("content", "name", "tool_call_id", "toolCallId", "error", "whole"),
}  # fmt: skip
"""Role → fields beside `role` and `id` that its message may have where it is kept."""
_EMPTY_AT_OPENAI = frozenset({"refusal", "annotations", "audio", "function_call"})
"""What OpenAI sends with every answer; nothing is lost where it is empty."""


def kept_message(data: Mapping[str, Any], known: Iterable[Any] = ()) -> Message:
    """A message that somebody writes to a state; as `from_wire`, but nothing of it is guessed or dropped.

    Raises:
        ValueError: also for content that is no text and no list of parts, a result without its call, and a field that a message of
            the role does not have; the text says which.
    """
    role, content = data.get("role"), data.get("content")
    fields = _NAMED.get(role) if isinstance(role, str) else None
    if fields is None:
        return from_wire(data, known)  # which refuses it
    for name, value in data.items():
        if name not in fields and name not in ("role", "id") and (value or name not in _EMPTY_AT_OPENAI):
            raise ValueError(
                f"a message with the role {role!r} has no field {excerpt_of(name)}; its fields are role, id, {', '.join(fields)}"
            )
    is_list = isinstance(content, Sequence) and not isinstance(content, bytes | bytearray)
    if not is_list and not (content is None and role == "assistant"):
        given = "is missing" if "content" not in data else f"is {excerpt_of(content)}"
        raise ValueError(f"the content of a message with the role {role!r} {given}; it is text or a list of parts")
    if is_list and not isinstance(content, str):
        for part in cast(Any, content):
            if not isinstance(part, (Mapping, str, *PART_TYPES)):
                raise ValueError(f"the part {excerpt_of(part)} of a message's content is no object and no text")
    if role == "tool" and not (data.get("tool_call_id") or data.get("toolCallId")):
        raise ValueError("a message with the role 'tool' needs `tool_call_id`: the id of the call that it answers")
    return from_wire(data, known)


def _from_wire(data: Mapping[str, Any], known: Iterable[Any]) -> Message:
    role, content = data.get("role"), content_from_wire(data.get("content"))
    identity = data.get("id")
    # OpenAI's newer models call the system role `developer`.
    if role in ("system", "developer"):
        return SystemMessage(content=text_of(content), id=identity)
    if role == "user":
        return HumanMessage(
            content=content,
            id=identity,
            name=data.get("name"),
            references=tuple(_items(data.get("references") or (), "references")),
        )
    if role == "assistant":
        calls = data.get("tool_calls") or data.get("toolCalls") or ()
        return AIMessage(
            content=content,
            id=identity,
            reasoning=data.get("reasoning_content") or data.get("reasoning") or "",
            tool_calls=tuple(_call(call, known) for call in _items(calls, "tool_calls")),
            status=data.get("status"),
            reasoning_details=tuple(
                _items(data.get("reasoning_details") or data.get("reasoningDetails") or (), "reasoning_details")
            ),
            provider_state=_state(data, known),
        )
    if role == "tool":
        call_id = data.get("tool_call_id") or data.get("toolCallId") or ""
        return ToolMessage(
            content=content,
            id=identity,
            tool_call_id=call_id,
            name=data.get("name"),
            error=data.get("error") or False,
            whole=data.get("whole"),
        )
    raise ValueError(f"a message has role {role!r}; roles are system, user, assistant, tool")


def _items(value: Any, name: str) -> Sequence[Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    raise ValueError(f"the {name} of a message must be a list, not {excerpt_of(value)}")


def _call(data: Any, known: Iterable[Any]) -> ToolCall:
    function = (data.get("function") or data) if isinstance(data, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError(f"a tool call must be an object with its function, not {excerpt_of(data)}")
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        # Some providers send an object; the field is text everywhere else.
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(
        id=data.get("id") or "",
        name=function.get("name") or "",
        arguments=arguments,
        provider_state=_state(data, known),
    )


def _state(data: Mapping[str, Any], known: Iterable[Any]) -> ProviderState | None:
    """The provider state in our own form: a message that was read, changed and written back keeps it."""
    given = data.get("providerState") or data.get("provider_state")
    if given is None or isinstance(given, ProviderState):
        return given
    try:
        state = msgspec.convert(given, ProviderState)
    except msgspec.ValidationError as error:
        raise ValueError(f"the providerState of a message can't be read: {error}") from None
    if not isinstance(state.data, str):
        return state
    # What JSON shows of a state: it stands for the one that it was made of.
    same = (one for one in _states(known) if (one.provider, one.model) == (state.provider, state.model))
    return next((one for one in same if str(one.data) == state.data), None)


def _states(messages: Iterable[Any]) -> Iterator[ProviderState]:
    for message in messages:
        if isinstance(message, AIMessage):
            states = [message.provider_state, *(call.provider_state for call in message.tool_calls)]
            yield from (state for state in states if state is not None)
