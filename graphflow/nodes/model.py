"""Calls of a model: the `model` node, one turn with every delta an event at once (spec 1.4, 2.1), and those of Python nodes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import Issue, ModelError, NodeFailed
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.definition.json_schema import check_schema
from graphflow.graph.engine.context import Asked
from graphflow.graph.engine.node_run import NodeRun
from graphflow.graph.typed_state.answers import AnswerForm, answer_form
from graphflow.messages import MESSAGE_TYPES, AIMessage, HumanMessage, Message, from_wire, misfit, to_wire
from graphflow.models.chat_model import ChatModel, WrappedModel
from graphflow.models.deltas import Delta, FallbackDelta, Finish, ToolCallDelta
from graphflow.models.fallback_names import fallback_issues
from graphflow.models.options import ChatOptions, ToolSpec, options_from_document
from graphflow.nodes.delta_emitter import DeltaEmitter
from graphflow.nodes.request_builder import defaults_of, listed, messages_of, model_of, options_of, with_bytes
from graphflow.nodes.turn import AT_ONCE, CUT_OFF, CallIds, ModelStream, TurnFactory, need_wire_names, structured
from graphflow.nodes.usage import CallMeter
from graphflow.suggestions import choose
from graphflow.tools.port import Tool, tool
from graphflow.tools.selection import offered_tools, unknown_tools
from graphflow.tools.wire_names import WireNames

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction
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
        "options": {"type": "object"},
        "output": {"type": "string", "enum": ["PLAIN", "REASONING_SUMMARY"]},
        "stream": {"type": "string", "enum": ["content", "reasoning", "hidden", "candidate"]},
        "showReasoning": {"type": "boolean"},
        "parallelToolCalls": {"type": "boolean"},
        "mustCall": {"type": "boolean"},
        "lastTurn": {"type": "boolean"},
    },
    "additionalProperties": False,
}


OUT_DESCRIBED: Mapping[str, Any] = {
    "type": "object",
    "description": "With `schema`, the fields of the object that the model wrote are there as well, and win.",
    "properties": {
        "text": {"type": "string", "description": "The answer's text; empty where it only calls tools."},
        "reasoning": {"type": "string", "description": "The model's reasoning, as far as the provider shows it."},
        "toolCalls": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "name": {"type": "string"},
                    "arguments": {"type": "string", "description": "JSON text as the model wrote it."},
                },
            },
            "description": "The calls of the answer, for a `tools` node; empty where the model is done.",
        },
        "message": {"type": "object", "description": "The answer as a message."},
        "messages": {
            "type": "array",
            "items": {"type": "object"},
            "description": "What the turn adds to the conversation: the answer, with results for calls that are not run.",
        },
        "candidate": {
            "type": ["object", "null"],
            "description": "An answer that is still to be verified: `text`, `reasoning`, `finishReason`. Else null.",
        },
        "usage": {
            "type": "object",
            "description": "Tokens and cost of the node run, under the names of a run's usage.",
        },
        "finishReason": {
            "type": "string",
            "description": "Why the model stopped: `stop`, `tool_calls`, `length`, `content_filter`, …",
        },
    },
}
"""The output for people. Expressions read it unchecked: with a `schema` a field may be of any type."""
_CHOICES = ("none", "auto", "required")


def _schema_issues(schema: Any) -> Iterable[Issue]:
    """Errors of the schema in a node's `with`; one with expressions in it is known only at run time."""
    if isinstance(schema, Mapping) and "${" not in repr(schema):
        for issue in check_schema(schema):
            yield dataclasses.replace(issue, pointer=f"/with/schema{issue.pointer}")


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
    """Dynamic: with a `schema`, the output also has the object's own fields."""
    out_described = OUT_DESCRIBED

    def __init__(self, tools: ToolRegistry, providers: Sequence[str] | None = None) -> None:
        self._tools, self._providers = tools, providers

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        arguments = node.with_ if isinstance(node.with_, Mapping) else {}
        yield from unknown_tools(self._tools, arguments)
        yield from _schema_issues(arguments.get("schema"))
        yield from self._choice_issues(arguments, document)
        own = arguments.get("options")
        if isinstance(own, Mapping) and "${" not in repr(own):
            try:
                options_from_document(own)
            except ValueError as error:
                yield Issue(pointer="/with/options", message=str(error), kind="type")
            else:
                key = arguments.get("providerKey", document.provider_key)
                model = arguments.get("model", document.model)
                yield from fallback_issues(own, key, model, self._providers, "/with/options")
        provider = arguments.get("providerKey")
        if isinstance(provider, str) and "${" not in provider and self._providers and provider not in self._providers:
            yield Issue(
                pointer="/with/providerKey",
                message=f"no provider {provider!r}",
                hint=f"known: {', '.join(self._providers)}",
                kind="reference",
            )

    def _choice_issues(self, arguments: Mapping[str, Any], document: GraphDefinition) -> Iterable[Issue]:
        choice = arguments.get("toolChoice")
        if not isinstance(choice, str) or "${" in choice or choice in _CHOICES:
            return
        # An expression says only at run time which tools there are.
        if any(isinstance(arguments.get(name), str) for name in ("tools", "keywords")):
            return
        offered = offered_tools(self._tools, document, arguments)
        if choice not in offered:
            yield Issue(
                pointer="/with/toolChoice",
                message=f"the tool {choice!r} is not offered by this node",
                hint=choose(choice, [*_CHOICES, *offered]),
                kind="reference",
            )

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        turns = TurnFactory(document, self._tools)

        async def run(arguments: Any, ctx: NodeRun) -> dict[str, Any]:
            return await turns.turn(arguments, ctx).run()

        return run


def asked_messages(ctx: NodeRun, messages: Any, call: str) -> list[Message]:
    """The messages that code gives a model, each of them checked; those of the state were when they were written.

    Raises:
        NodeFailed: `validation`: one of them is none.
    """
    if isinstance(messages, str):
        messages = [HumanMessage(content=messages)]
    wanted = 'give a text, or a list of messages such as HumanMessage("…") or {"role": "user", "content": "…"}'
    if not isinstance(messages, Iterable) or isinstance(messages, bytes | Mapping):
        raise NodeFailed(
            f"node {ctx.node!r} calls {call} with messages={excerpt_of(messages)}; {wanted}", code="validation"
        )
    given = list(messages)
    if not given:
        raise NodeFailed(f"node {ctx.node!r} calls {call} with no messages; {wanted}", code="validation")
    stored = ctx.state.get("messages", ())
    known = set(map(id, stored))
    for place, message in enumerate(given):
        if id(message) in known:
            continue
        if isinstance(message, Mapping):
            try:
                given[place] = message = from_wire(message, stored)
                wrong = _halved_in(message)
            except ValueError as error:
                wrong = str(error)
        elif isinstance(message, MESSAGE_TYPES):
            wrong = misfit(message) or _halved_in(message)
        else:
            wrong = f"{excerpt_of(message)} is no message"
        if wrong is not None:
            raise NodeFailed(
                f"node {ctx.node!r} calls {call} with messages[{place}]: {wrong}; {wanted}", code="validation"
            )
    return given


def _halved(value: Any) -> str | None:
    """What is wrong with a value that holds half of a character: no provider takes it."""
    try:
        msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError as error:
        return (
            f"{excerpt_of(error.object, 40)} has half of a character, {error.object[error.start]!a}: leave it out, or write"
            " text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
        )
    except (TypeError, OverflowError, RecursionError):  # what else is wrong with it is told where it is read
        pass
    return None


def _halved_in(message: Message) -> str | None:
    # Its bytes are not looked through.
    said = (message.reasoning, message.tool_calls) if isinstance(message, AIMessage) else None
    return _halved([message.text, said])


def open_model(ctx: NodeRun, provider_key: str | None, model: str | None) -> ChatModel:
    """See `Context.open_model`."""
    ctx.refuse_when_over()
    return CountedModel(ctx, ctx.uncounted_model(provider_key, model))


class CountedModel(WrappedModel):
    """A model whose calls count as calls of one node run."""

    def __init__(self, ctx: NodeRun, inner: ChatModel) -> None:
        super().__init__(inner)
        self._ctx = ctx

    async def aclose(self) -> None:
        """Nothing: the model belongs to the application."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        ctx, key = self._ctx, self._ctx.keys.ordinal("stream")
        messages = asked_messages(ctx, messages, "model.stream")
        if not isinstance(options, ChatOptions):
            raise NodeFailed(
                f"node {ctx.node!r} calls model.stream with options={excerpt_of(options)}; give ChatOptions(temperature=…)",
                code="validation",
            )
        if any(type(message.content) is not str for message in messages):
            messages = await with_bytes(messages, ctx)
        meter, empty, count = CallMeter.begun(ctx, self._inner, key), True, 0
        ids = CallIds(ctx, messages, recorded=False)
        names = None
        if need_wire_names(messages, tools):
            names = WireNames(tool.name for tool in tools)
            messages, tools, options = names.messages(messages), names.tools(tools), names.options(options)
        try:
            async with aclosing(self._inner.stream(messages, tools, options)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, FallbackDelta):
                        meter.fall_back(delta)
                    else:
                        empty = False
                    if (count := count + 1) % AT_ONCE == 0:  # see `ModelStream.hear`
                        await asyncio.sleep(0)
                    if isinstance(delta, ToolCallDelta):
                        delta = await ids.own(delta if names is None else names.heard(delta))
                        if delta.id is not None:
                            ctx.note_calls([delta.id])
                    # Before it is passed on: whoever has the end may close the stream without asking for more.
                    if isinstance(delta, Finish):
                        meter.end(delta.usage)
                    yield delta
        except ModelError:
            if empty:
                meter.refused()
            raise
        finally:
            ctx.forget_charge(key)


def _form_of_answer(ctx: NodeRun, schema: Mapping[str, Any] | type[Any] | None) -> AnswerForm:
    form = answer_form(schema, ctx.node, "call_model")
    if form.schema is not None and form.schema.get("type", "object") != "object":
        raise NodeFailed(
            f"node {ctx.node!r} calls ctx.call_model with a schema of type {form.schema['type']!r}; the answer is an object:"
            ' write {"type": "object", "properties": {…}}',
            code="validation",
        )
    return form


def _refuse_halves(ctx: NodeRun, **given: Any) -> None:
    for name, value in given.items():
        if (wrong := _halved(value)) is not None:
            raise NodeFailed(f"node {ctx.node!r} calls ctx.call_model with {name}={wrong}", code="validation")


async def call_model(
    ctx: NodeRun,
    messages: Asked,
    *,
    tools: Sequence[Any],
    schema: Mapping[str, Any] | type[Any] | None,
    stream: bool | None,
    key: str | None,
    provider_key: str | None,
    model: str | None,
    options: Mapping[str, Any] | None,
) -> Any:
    """See `Context.call_model`."""
    ctx.refuse_when_over()
    form = _form_of_answer(ctx, schema)
    document = ctx.document
    if provider_key is None:
        provider_key, model = model_of(ctx, document, {} if model is None else {"model": model})
    asked = asked_messages(ctx, messages, "ctx.call_model")
    request, plain = messages_of({"messages": asked}, ctx, (), ())
    offered = {tool.name: tool for tool in map(partial(_tool, ctx), tools)}
    ctx.offered = (ctx.offered or frozenset()) | offered.keys()
    _refuse_halves(ctx, provider_key=provider_key, model=model, options=options, schema=form.schema)
    given = defaults_of(ctx, document, options)
    chosen = options_of({"schema": form.schema}, given, bool(offered), False)
    shown = ctx.speaks if stream is None else stream
    key = key or ctx.keys.ordinal("model")

    async def act() -> Any:
        opened = ctx.uncounted_model(provider_key, model)
        speech = DeltaEmitter(ctx, "content" if shown else "hidden", show_reasoning=True, summary=False)
        spoken = ModelStream(ctx, opened, offered.get, speech, shows_calls=shown, key=key)
        spoken.begin()
        done = await spoken.hear(request, [tool.spec for tool in offered.values()], chosen, plain=plain)
        if shown:
            ctx.close_blocks()  # the next call's text is a block of its own
        if form.schema is not None and not done.message.tool_calls:
            return structured(ctx, done.message, form.schema)
        cut = done.finish_reason if done.finish_reason in CUT_OFF else None
        return msgspec.structs.replace(done.message, status=cut) if cut else done.message

    arguments = {
        "messages": [to_wire(message) for message in listed(request)],
        "model": [provider_key, model],
        "tools": sorted(offered),
        "schema": form.schema,
        "options": options,
    }
    try:
        answer = await ctx.step(key, act, effects="none", arguments=arguments, kind="model")
    finally:
        ctx.forget_charge(key)  # a call that failed has no record
    return _noted(ctx, answer) if isinstance(answer, AIMessage) else form.made(thaw(answer))


def _noted(ctx: NodeRun, answer: AIMessage) -> AIMessage:
    """The answer, perhaps of a record: later turns of the node give their calls other ids."""
    ctx.note_calls(call.id for call in answer.tool_calls)
    return answer


def _tool(ctx: NodeRun, offered: Any) -> Tool:
    """A tool by its name, or as it is.

    Raises:
        NodeFailed: no tool of this name is registered.
    """
    if not isinstance(offered, str):
        return offered if isinstance(offered, Tool) else tool(offered)
    registry: ToolRegistry = ctx.tool.registry
    found = registry.get(offered)
    if found is None:
        raise NodeFailed(f"node {ctx.node!r} offers a model the tool {offered!r}; {registry.hint(offered)}")
    return found


MODEL_SERVICES: dict[str, Any] = {"call_model": call_model, "open_model": open_model}
"""What `Context` needs of the services besides the application's models."""
