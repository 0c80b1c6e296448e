"""What a model is asked for one turn: its options and its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.graph.engine.node_run import NodeRun
from graphflow.memory.prompt_snapshot import system_prompt
from graphflow.memory.window import last_runs
from graphflow.messages import MESSAGE_TYPES, AIMessage, HumanMessage, Message, SystemMessage, ToolMessage, from_wire
from graphflow.models.options import ChatOptions, OneTool
from graphflow.nodes.reasoning_summary import SCHEMA

if TYPE_CHECKING:
    from graphflow.tools.port import Tool

PARTIAL = frozenset({"cancelled", "error", "timeout"})
"""`_status` of partial messages: shown in history, not sent to the model (E15)."""


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
        if type(message) not in MESSAGE_TYPES:
            message = from_wire(message)
        # Exact types: the loop runs over the whole history for each call.
        kind = type(message)
        if kind is AIMessage and message.status in PARTIAL:
            continue
        if kind is HumanMessage and message.references:
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
