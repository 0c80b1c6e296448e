"""The `model` node: one turn of a model, every delta an event at once (spec 1.4, 2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import Fault, NodeFailed
from graphflow.graph.context import Context
from graphflow.graph.document import GraphDefinition, NodeDefinition
from graphflow.memory.system import system_prompt
from graphflow.memory.window import last_runs
from graphflow.messages import MESSAGE_TYPES, AIMessage, HumanMessage, Message, SystemMessage, from_wire
from graphflow.models.call_context import set_call_context
from graphflow.models.deltas import ReasoningDelta, TextDelta, ToolCallDelta
from graphflow.models.options import ChatOptions, OneTool, ToolSpec, options_from_document
from graphflow.models.turn import Completion, TurnAccumulator

if TYPE_CHECKING:
    from graphflow.graph.ports import NodeFunction
    from graphflow.models.port import ChatModel
    from graphflow.tools.registry import ToolRegistry

WITH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "messages": {"type": "array"},
        "systemPrompt": {"type": "string"},
        "tools": {"type": "array", "items": {"type": "string"}},
        "toolChoice": {"type": "string"},
        "providerKey": {"type": "string"},
        "model": {"type": "string"},
        "compute": {"type": "string", "enum": ["LOW", "MEDIUM", "HIGH"]},
        "schema": {"type": "object"},
        "stream": {"type": "string", "enum": ["content", "reasoning", "hidden"]},
        "showReasoning": {"type": "boolean"},
        "mustCall": {"type": "boolean"},
    },
    "additionalProperties": False,
}
OUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "reasoning": {"type": "string"},
        "toolCalls": {"type": "array"},
        "message": {"type": "object"},
        "usage": {"type": "object"},
        "finishReason": {"type": "string"},
    },
}

PARTIAL = frozenset({"cancelled", "error", "timeout"})
"""`_status` of partial messages: shown in history, not sent to the model (E15)."""


class ModelKind:
    """`use: model`.

    Args:
        tools: the registry that tool names are checked against and offered from.
        providers: provider keys that exist, for checking; None checks nothing.
    """

    name = "model"
    effects = "none"
    with_schema: Mapping[str, Any] | None = WITH_SCHEMA
    out_schema: Mapping[str, Any] | None = None
    """Dynamic: with a `schema`, the object's own fields are in it too."""

    def __init__(self, tools: ToolRegistry, providers: Sequence[str] | None = None) -> None:
        self._tools, self._providers = tools, providers

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Fault]:
        arguments = node.with_ if isinstance(node.with_, Mapping) else {}
        tools = arguments.get("tools")
        if isinstance(tools, list | tuple):
            for index, tool in enumerate(tools):
                if isinstance(tool, str) and "${" not in tool and tool not in self._tools:
                    yield Fault(
                        pointer=f"/with/tools/{index}",
                        message=f"no tool {tool!r} is registered",
                        hint=self._tools.hint(tool),
                        kind="reference",
                    )
        provider = arguments.get("providerKey")
        if isinstance(provider, str) and "${" not in provider and self._providers and provider not in self._providers:
            yield Fault(
                pointer="/with/providerKey",
                message=f"no provider {provider!r}",
                hint=f"known: {', '.join(self._providers)}",
                kind="reference",
            )

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        defaults = options_from_document(document.options)
        registry = self._tools

        async def run(arguments: Any, ctx: Context) -> dict[str, Any]:
            turn = _Turn(arguments, ctx, document, defaults, registry)
            return await turn.run()

        return run


class _Turn:
    """One call of a model by one node run."""

    def __init__(
        self,
        given: Mapping[str, Any],
        ctx: Context,
        document: GraphDefinition,
        defaults: ChatOptions,
        registry: ToolRegistry,
    ) -> None:
        self.given, self.ctx = given, ctx
        provider = given.get("providerKey", document.provider_key)
        self.model: ChatModel = ctx.model(provider, given.get("model", document.model))
        offered = given.get("tools", document.tools or ())
        self.registry = registry
        self.tools: list[ToolSpec] = registry.specs(list(offered)) if offered else []  # type: ignore[assignment]
        self.options = _options(given, defaults, bool(self.tools))
        self.messages = _messages(given, ctx, self.tools and [registry.get(name) for name in offered])
        self.calls: dict[int, str] = {}
        """Position in the turn → call id."""
        # What branches and subgraphs say is for the graph around them, unless it says otherwise (E10).
        self.stream = given.get("stream", "hidden" if ctx.path else "content")
        self.show_reasoning = given.get("showReasoning", True) and self.stream != "hidden"

    async def run(self) -> dict[str, Any]:
        ctx, turn = self.ctx, TurnAccumulator()
        ctx.charge("modelCalls")
        set_call_context(ctx.run_id, ctx.node)
        ctx.partial = lambda status: None if turn.empty else turn.message(status=status)
        async with aclosing(self.model.stream(self.messages, self.tools, self.options)) as deltas:
            async for delta in deltas:
                turn.feed(delta)
                kind = type(delta)
                if kind is TextDelta:
                    if self.stream == "content":
                        await ctx.content(delta.text)  # type: ignore[union-attr]
                    elif self.stream == "reasoning":
                        await ctx.reasoning(delta.text)  # type: ignore[union-attr]
                elif kind is ReasoningDelta:
                    if self.show_reasoning:
                        await ctx.reasoning(delta.text)  # type: ignore[union-attr]
                elif isinstance(delta, ToolCallDelta) and self.stream != "hidden":
                    self._stream_call(delta)
        return self._out(turn.completion())

    def _stream_call(self, delta: ToolCallDelta) -> None:
        ctx = self.ctx
        if not ctx.alive:
            return
        if delta.id is not None:
            tool = self.registry.get(delta.name or "")
            action = tool is not None and tool.kind == "action"
            facts: dict[str, Any] = {"tool_type": "function"} if tool is None else tool.start_facts
            self.calls[delta.index] = delta.id
            ctx.blocks.call_start(delta.id, delta.name, action=action, **facts)
        ctx.blocks.call_args(self.calls[delta.index], delta.arguments)

    def _out(self, done: Completion) -> dict[str, Any]:
        ctx, message = self.ctx, done.message
        ctx.keep_facts(model=[self.model.provider, self.model.model])
        usage = done.usage
        if usage is not None:
            ctx.add_usage(
                promptTokens=usage.prompt_tokens,
                completionTokens=usage.completion_tokens,
                reasoningTokens=usage.reasoning_tokens,
                cachedTokens=usage.cached_tokens,
            )
        if done.finish_reason in ("length", "content_filter") and not message.tool_calls:
            ctx.finish_reason = done.finish_reason
        if done.finish_reason == "length" and message.tool_calls:
            message = msgspec.structs.replace(message, status="length")
        if self.given.get("mustCall") and not message.tool_calls:
            raise NodeFailed(
                f"node {ctx.node!r}: toolPolicy is REQUIRE and the model called no tool, also when asked again",
                code="tool_required",
            )
        ctx.partial = None
        out: dict[str, Any] = {
            "text": message.content,
            "reasoning": message.reasoning,
            "toolCalls": message.tool_calls,
            "message": message,
            "usage": dict(ctx.usage or {}),
            "finishReason": done.finish_reason,
        }
        if (schema := self.given.get("schema")) is not None:
            out = {**out, **_structured(ctx, message, schema)}
        return out


def _structured(ctx: Context, message: AIMessage, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object that the text holds, checked against the schema."""
    from graphflow.graph.json_schema import compile_schema

    text = message.content.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise NodeFailed(
            f"node {ctx.node!r} asked for JSON and got {text[:80]!r}: {error}", code="validation"
        ) from None
    faults = compile_schema(schema).faults(value)
    if faults or not isinstance(value, dict):
        first = "; ".join(f"{f.pointer or 'answer'}: {f.message}" for f in faults[:3]) or "it is no object"
        raise NodeFailed(f"node {ctx.node!r}: the model's answer does not fit the schema: {first}", code="validation")
    return value


def _options(given: Mapping[str, Any], defaults: ChatOptions, has_tools: bool) -> ChatOptions:
    changes: dict[str, Any] = {}
    if (compute := given.get("compute")) is not None:
        changes["compute"] = compute
    if (schema := given.get("schema")) is not None:
        changes["schema"] = schema
    choice = given.get("toolChoice")
    if choice and has_tools:
        changes["tool_choice"] = choice if choice in ("none", "auto", "required") else OneTool(choice)
    return msgspec.structs.replace(defaults, **changes) if changes else defaults


def _messages(given: Mapping[str, Any], ctx: Context, tools: Any) -> list[Message]:
    """What the model is shown: the system prompt, the messages, and a prompt as the last user turn."""
    prompt = given.get("prompt")
    source = given.get("messages")
    conversation = ctx.state.get("messages", ())
    if source is None:
        source = () if prompt else conversation
    if source is conversation and (runs := ctx.services.get("window_runs")) is not None:
        source = last_runs(source, runs)
    out: list[Message] = []
    if system := system_prompt(given.get("systemPrompt") or "", tools or ()):
        out.append(SystemMessage(content=system))
    for message in source:
        if type(message) not in MESSAGE_TYPES:
            message = from_wire(message)
        kind = type(message)
        if kind is AIMessage and message.status in PARTIAL:
            continue
        if kind is HumanMessage and message.references:
            message = _with_references(message)
        out.append(message)
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
