"""What a model is asked for one turn, and which model: the node says it, else the request, else the document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.content import (
    MEDIA_TYPES,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    MediaPart,
    Part,
    TextPart,
    content_of,
    media_of,
    media_type_of,
)
from graphflow.errors import ModelError, NodeFailed
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import ListView
from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.engine.context import part_bytes
from graphflow.graph.engine.node_run import NodeRun
from graphflow.memory.prompt_snapshot import system_prompt
from graphflow.memory.window import last_runs
from graphflow.messages import MESSAGE_TYPES, AIMessage, HumanMessage, Message, SystemMessage, ToolMessage, from_wire
from graphflow.models.options import ChatOptions, OneTool, options_from_document
from graphflow.models.sendable import apart, refusal_of
from graphflow.nodes.reasoning_summary import SCHEMA

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel
    from graphflow.tools.port import Tool

PARTIAL = frozenset({"cancelled", "error", "timeout"})
"""`_status` of partial messages: shown in history, not sent to the model (E15)."""


def model_of(ctx: NodeRun, document: GraphDefinition, given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(provider key, name). A node that names a model or a provider keeps it."""
    allowed = document.per_request
    if allowed is not None and not {"model", "providerKey"} & given.keys():
        wanted = ctx.chosen.get("model")
        if wanted is not None and wanted in allowed.models:
            return document.provider_key, wanted
    return given.get("providerKey", document.provider_key), given.get("model", document.model)


def defaults_of(
    ctx: NodeRun, document: GraphDefinition, own: Mapping[str, Any] | None, defaults: ChatOptions | None = None
) -> ChatOptions:
    """The document's options, over them those of the request, over them those of the node or call.

    Args:
        own: those of the node or call.
        defaults: the document's, if they were read before.

    Raises:
        NodeFailed: `validation`: the node's own, which an expression may have given, are none.
    """
    mine = {} if document.per_request is None else chosen_options(ctx, document)
    if defaults is not None and not mine and not own:
        return defaults
    try:
        return options_from_document(document.options, mine, own)
    except ValueError as error:
        raise NodeFailed(f"node {ctx.node!r}: options: {error}", code="validation") from None


def chosen_options(ctx: NodeRun, document: GraphDefinition) -> dict[str, Any]:
    """The options of the request that the document allows; a subgraph of another document has an allow-list of its own."""
    allowed = document.per_request
    if allowed is None or not (wanted := ctx.chosen.get("options")):
        return {}
    return {name: value for name, value in wanted.items() if name in allowed.options}


def options_of(given: Mapping[str, Any], defaults: ChatOptions, has_tools: bool, summary: bool) -> ChatOptions:
    """The document's options, overridden by those of the node.

    Args:
        given: the node's `with`.
        has_tools: whether tools are offered.
        summary: whether `output` is `REASONING_SUMMARY`.
    """
    changes: dict[str, Any] = {}
    if summary and not has_tools:
        changes["schema"] = SCHEMA  # with tools on offer the system prompt alone asks: many providers refuse both
    if (compute := given.get("compute")) is not None:
        changes["compute"] = compute
    if (schema := given.get("schema")) is not None:
        changes["schema"] = schema
    # Without tools on offer providers refuse the fields about tools.
    choice = given.get("toolChoice")
    if choice and has_tools:
        changes["tool_choice"] = choice if choice in ("none", "auto", "required") else OneTool(choice)
    if has_tools and (parallel := given.get("parallelToolCalls")) is not None:
        changes["parallel_tool_calls"] = parallel
    return msgspec.structs.replace(defaults, **changes) if changes else defaults


class ReadConversation:
    """A conversation as models get it. Where it has only grown since the last call, only what is new in it is looked at."""

    __slots__ = ("_source", "messages", "plain")

    def __init__(self) -> None:
        self._source: ListView | None = None
        self.messages: list[Message] = []
        """Without partial ones."""
        self.plain = True
        """Whether all of it is text: no media, no references."""

    def read(self, source: Sequence[Any], known: Sequence[Any]) -> None:
        """Reads on.

        Args:
            known: where a message in the OpenAI form finds the calls that it refers to.
        """
        new: Sequence[Any] | None = None
        if type(source) is ListView and self._source is not None:
            new = source.since(self._source)
        if new is None:
            self.messages, self.plain, new = [], True, source
        self._source = source if type(source) is ListView else None
        for message in new:
            kind = type(message)
            if kind not in MESSAGE_TYPES:
                message = from_wire(message, known)
                kind = type(message)
            if kind is AIMessage and message.status is not None and message.status in PARTIAL:
                continue
            if type(message.content) is not str or (kind is HumanMessage and message.references):
                self.plain = False
            self.messages.append(message)


def messages_of(
    given: Mapping[str, Any], ctx: NodeRun, tools: Sequence[Tool], closed: Sequence[ToolMessage]
) -> tuple[list[Message], bool]:
    """The request's messages: the system prompt, the conversation, results of calls that were open, and a prompt as the
    last user turn; and whether all of them are text.
    """
    prompt = given.get("prompt")
    source = given.get("messages")
    conversation = ctx.state.get("messages", ())
    if source is None:
        source = () if prompt else conversation
    # By identity: messages that the node chose itself are neither cut to the window nor closed.
    whole = source is conversation
    if whole and (runs := ctx.services.get("window_runs")) is not None:
        source = last_runs(source, runs)
    read = ctx.memory.setdefault(ReadConversation, ReadConversation()) if whole else ReadConversation()
    read.read(source, conversation)
    out: list[Message] = []
    if system := system_prompt(given.get("systemPrompt") or "", tools, given.get("output")):
        out.append(SystemMessage(content=system))
    out += read.messages
    if whole:
        out += closed
    if prompt:
        out.append(HumanMessage(content=prompt))
    return out, read.plain


# --- references and media -------------------------------------------------------------------------

_KINDS: dict[str, type[MediaPart]] = {"image": ImagePart, "audio": AudioPart, "file": FilePart}
_NO_PART = "it has no url, or its type is not known; give it a url and its mimeType, such as image/png"
_SHOWN = ("id", "name", "type", "mimeType", "url")


def listed(messages: Iterable[Message]) -> list[Message]:
    """The messages with every reference listed in its user turn (spec 3.1)."""
    return [_listed(m, m.references) if type(m) is HumanMessage and m.references else m for m in messages]


def _listed(message: HumanMessage, references: Sequence[Any], parts: Sequence[Part] = ()) -> HumanMessage:
    """The message without references: these are listed behind its text, and `parts` stand behind that."""
    lines = []
    for reference in references:
        if isinstance(reference, Mapping):
            lines.append("- " + ", ".join(str(reference[k]) for k in _SHOWN if reference.get(k)))
        else:
            lines.append(f"- {reference}")
    content: Content
    more = "\n\nReferences:\n" + "\n".join(lines) if lines else ""
    if isinstance(message.content, str):
        content = (TextPart(text=message.content + more), *parts) if parts else message.content + more
    else:
        content = (*message.content, *((TextPart(text=more.strip()),) if more else ()), *parts)
    return HumanMessage(content=content, id=message.id, name=message.name)


async def with_media(messages: Sequence[Message], ctx: NodeRun, model: ChatModel) -> list[Message]:
    """The messages as a model takes them: references and uploads of a type that it takes are parts, the others text.

    What can't be shown to it is listed as text, and a `node.progress` event with a `warning` says so, once for each turn.

    Raises:
        NodeFailed: a reference with `as: part` can't be one.
    """
    last = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
    out: list[Message] = []
    for position, message in enumerate(messages):
        if type(message) is HumanMessage and message.references:
            message = await _referred(message, ctx, model, position > last)
        if not isinstance(message.content, str) and media_of(message.content):
            parts = [await _shown(part, ctx, model, position > last) for part in message.content]
            message = msgspec.structs.replace(message, content=content_of(apart(parts, message.content)))
        out.append(message)
    return out


async def _referred(message: HumanMessage, ctx: NodeRun, model: ChatModel, is_new: bool) -> HumanMessage:
    parts: list[Part] = []
    rest: list[Any] = []
    for reference in message.references:
        part = _part_of(reference)
        wanted = isinstance(reference, Mapping) and reference.get("as") == "part"
        why = _NO_PART if part is None else await _refusal(part, ctx, model, wanted)
        if why is None and part is not None:
            parts.append(part)
            continue
        if wanted:
            raise NodeFailed(
                f"node {ctx.node!r}: reference {_name(reference)!r} has `as: part`, and can't be one: {why}; leave `as` out to"
                " have it listed as text",
                code="validation",
            )
        rest.append(reference)
        if is_new and part is not None:
            _warn(ctx, model, part, f"{why}; it is listed as text")
    return _listed(message, rest, parts)


def _part_of(reference: Any) -> MediaPart | None:
    """The part that a reference would be; None for what is no medium."""
    if not isinstance(reference, Mapping):
        return None
    mime = reference.get("mimeType")
    if mime is None and reference.get("type") not in _KINDS and reference.get("as") == "part":
        url, name = reference.get("url"), reference.get("name")
        mime = media_type_of(url if isinstance(url, str) else None, name if isinstance(name, str) else None)
    major = mime.partition("/")[0] if isinstance(mime, str) else None
    kind = _KINDS.get(str(reference.get("type"))) or _KINDS.get(major or "") or (FilePart if mime else None)
    if kind is None:
        return None
    upload = reference.get("id") if reference.get("sha256") and reference.get("sizeBytes") is not None else None
    url = reference.get("url")
    if upload is None and not isinstance(url, str):
        return None
    name, size = reference.get("name"), reference.get("sizeBytes")
    return kind(upload=None if upload is None else str(upload), url=url, media_type=mime, name=name, size=size)


async def _refusal(part: MediaPart, ctx: NodeRun, model: ChatModel, wanted: bool) -> str | None:
    """Why the model can't have a part; None if it can. A model of which nothing is known gets it only where that is wanted."""
    takes = model.capabilities.input
    if takes is None and not wanted:
        return f"it is not known whether {model.model!r} takes {part.type} parts (`as: part` sends it all the same)"
    if part.upload is None and part.blob is None:
        return refusal_of(part, model.provider, model.model, takes)
    # Its URL is that of this server; the model gets the bytes.
    bare = msgspec.structs.replace(part, url=None)
    if (why := refusal_of(bare, model.provider, model.model, takes)) is not None:
        return why
    return None if await _bytes_of(part, ctx) is not None else "its bytes are not on this server"


async def _shown(part: Part, ctx: NodeRun, model: ChatModel, is_new: bool) -> Part:
    """A part of a message as the model takes it, with its bytes; else a text that names it."""
    if not isinstance(part, MEDIA_TYPES):
        return part
    why = await _refusal(part, ctx, model, True)
    if why is None:
        if part.upload is None and part.blob is None:
            return part
        return msgspec.structs.replace(
            part, data=await _bytes_of(part, ctx), upload=None, blob=None, stored=None, url=None
        )
    if is_new:
        _warn(ctx, model, part, f"{why}; it is named as text")
    return TextPart(
        text=f"[{part.type}: {part.name or part.url or part.upload or part.blob or part.media_type or 'unnamed'}]"
    )


_UNREAD = frozenset({400, 413, 415, 422})
"""Statuses by which providers refuse a request for what is in it."""


def name_media(error: ModelError, messages: Sequence[Message]) -> None:
    """Adds to a provider's refusal which media the request had: one that it can't read fails each later turn, too."""
    names = [part.name or part.type for message in messages for part in media_of(message.content)]
    if names and error.detail.get("status") in _UNREAD:
        named = excerpt_of(", ".join(names))
        error.message += (
            f"; the request has images, sounds or files ({named}): if one of them is refused, edit the message that it came with"
            " (with `references: []` it stays out), or later messages of this thread fail, too"
        )
        error.args = (error.message,)


async def with_bytes(messages: Sequence[Message], ctx: NodeRun) -> Sequence[Message]:
    """The messages with the bytes that the thread has stored beside them."""
    if not any(part.blob is not None for message in messages for part in media_of(message.content)):
        return messages
    out: list[Message] = []
    for message in messages:
        if not isinstance(message, SystemMessage) and not isinstance(message.content, str):
            parts = [await _with_bytes(part, ctx) for part in message.content]
            message = msgspec.structs.replace(message, content=tuple(parts))
        out.append(message)
    return out


async def _with_bytes(part: Part, ctx: NodeRun) -> Part:
    if not isinstance(part, MEDIA_TYPES) or part.blob is None or (data := await part_bytes(ctx, part)) is None:
        return part
    return msgspec.structs.replace(part, data=data, blob=None, stored=None)


async def _bytes_of(part: MediaPart, ctx: NodeRun) -> bytes | None:
    if part.blob is not None and (found := await part_bytes(ctx, part)) is not None:
        return found
    read = ctx.services.get("upload_bytes")
    return None if read is None or part.upload is None else await read(ctx.thread_id, part.upload)


def _warn(ctx: NodeRun, model: ChatModel, part: MediaPart, why: str) -> None:
    facts = {"code": "part_not_shown", "type": part.type, "name": part.name or part.url or part.upload, "message": why}
    ctx.emit({"warning": {**facts, "provider": model.provider, "model": model.model}})


def _name(reference: Any) -> str:
    facts = reference if isinstance(reference, Mapping) else {}
    return str(facts.get("name") or facts.get("id") or facts.get("url") or reference)[:80]
