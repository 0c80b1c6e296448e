"""What a model is asked for one turn, and which model: the node says it, else the request, else the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.memory.prompt_snapshot import system_prompt
from graphflow.memory.window import last_runs
from graphflow.messages import MESSAGE_TYPES, AIMessage, HumanMessage, Message, SystemMessage, ToolMessage, from_wire
from graphflow.models.options import ChatOptions, OneTool, options_from_document
from graphflow.nodes.reasoning_summary import SCHEMA

if TYPE_CHECKING:
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


def defaults_of(ctx: NodeRun, document: GraphDefinition, defaults: ChatOptions) -> ChatOptions:
    """The document's options with those of the request.

    Args:
        defaults: the document's, as they are read once for all calls.
    """
    mine = chosen_options(ctx, document)
    return options_from_document({**(document.options or {}), **mine}) if mine else defaults


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


def messages_of(
    given: Mapping[str, Any], ctx: NodeRun, tools: Sequence[Tool], closed: Sequence[ToolMessage]
) -> list[Message]:
    """The request's messages: the system prompt, the conversation, results of calls that were open, and a prompt as the
    last user turn.
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
    out: list[Message] = []
    if system := system_prompt(given.get("systemPrompt") or "", tools, given.get("output")):
        out.append(SystemMessage(content=system))
    for message in source:
        # Exact types, the most frequent first: the loop runs over the whole history for each call.
        if (kind := type(message)) is not ToolMessage:
            if kind not in MESSAGE_TYPES:
                message = from_wire(message, conversation)
                kind = type(message)
            if kind is AIMessage:
                if message.status is not None and message.status in PARTIAL:
                    continue
            elif kind is HumanMessage and message.references:
                message = _with_references(message)
        out.append(message)
    if whole:
        out += closed
    if prompt:
        out.append(HumanMessage(content=prompt))
    return out


def _with_references(message: HumanMessage) -> HumanMessage:
    """References are listed in the user turn (spec 3.1)."""
    lines = []
    for reference in message.references:
        if isinstance(reference, Mapping):
            facts = [str(reference[k]) for k in ("id", "name", "type", "mimeType", "url") if reference.get(k)]
            lines.append("- " + ", ".join(facts))
        else:
            lines.append(f"- {reference}")
    return HumanMessage(
        content=f"{message.content}\n\nReferences:\n" + "\n".join(lines), id=message.id, name=message.name
    )
