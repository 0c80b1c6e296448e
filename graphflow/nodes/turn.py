"""One turn of a model by one node run: what it is shown, what it says as it says it, and what the node gives (spec 1.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import ModelError, NodeFailed
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.transcript import answer_open_calls
from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.memory.prompt_snapshot import noted_tools
from graphflow.messages import AIMessage, Message, ToolCall, ToolMessage
from graphflow.models.accumulator import Completion, TurnAccumulator
from graphflow.models.chat_model import without_finish
from graphflow.models.deltas import FallbackDelta, TextDelta, ThinkingDelta, ToolCallDelta
from graphflow.models.logs.call_context import set_call_context
from graphflow.models.options import ChatOptions, ToolSpec, options_from_document
from graphflow.models.replay.replay import with_reasoning
from graphflow.nodes.calls.agent_tools import with_agents
from graphflow.nodes.delta_emitter import DeltaEmitter
from graphflow.nodes.request_builder import defaults_of, messages_of, model_of, name_media, options_of, with_media
from graphflow.nodes.usage import CallMeter
from graphflow.tools.running.policy import CallPolicy
from graphflow.tools.selection import offered_tools
from graphflow.tools.wire_names import WireNames

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel
    from graphflow.tools.port import Tool
    from graphflow.tools.registry import ToolRegistry

CUT_OFF = frozenset({"length", "content_filter"})
AT_ONCE = 256
"""Deltas that are taken before others have their turn: a millisecond or two."""
"""Finish reasons of an incomplete answer; they become the run's finish reason."""


class TurnFactory:
    """Shared data of all turns of one node.

    Args:
        document: whose node it is.
        registry: where the offered tools are looked up.
    """

    def __init__(self, document: GraphDefinition, registry: ToolRegistry) -> None:
        self.document, self.registry = document, registry
        self.defaults = options_from_document(document.options)
        self._asked: tuple[Any, ...] = ()
        self._found: tuple[list[ToolSpec], list[Tool], ToolRegistry] = ([], [], registry)

    def turn(self, given: Mapping[str, Any], ctx: NodeRun) -> ModelTurn:
        """One call of a model.

        Args:
            given: the node's `with`, as `WITH_SCHEMA` of `nodes.model` has it.
        """
        return ModelTurn(given, ctx, self)

    def tools(self, given: Mapping[str, Any], ctx: NodeRun) -> tuple[list[ToolSpec], list[Tool], ToolRegistry]:
        """The tools that a turn offers, the tools whose notes follow its prompt, and where all of them are.

        Cached: a node asks for the same tools on every visit, and a registry only grows.
        """
        prompt, registry = given.get("systemPrompt") or "", self.registry
        # The size stands for the registry's content: a tool is added and never replaced in place.
        asked = (prompt, given.get("tools"), given.get("keywords"), len(registry))
        if asked != self._asked:
            names = offered_tools(registry, self.document, given)
            known = with_agents(registry, names, ctx)
            noted = noted_tools(self.document, known, prompt, names)
            self._asked, self._found = asked, (known.specs(names), noted, known)
        return self._found


_LONGEST = 32
"""Characters of an id that are kept before a number: OpenAI takes 40 of a whole id."""


class CallIds:
    """Ids of the calls of one turn that mean one call of the run each, whatever the model calls them.

    Some providers number the calls of each turn from 0. Results, approvals and what readers are shown are found by a
    call's id, so the second `call_0` of a run becomes `call_0_2` as it arrives, before anything has it.

    Args:
        ctx: the node run that calls the model.
        messages: the conversation that the turn answers.
        recorded: the turn is recorded before its calls run. A turn that isn't must get the same ids when its node is entered
            again, so they follow from the node run alone.
    """

    __slots__ = ("_ctx", "_known", "_messages", "_new", "_recorded")

    def __init__(self, ctx: NodeRun, messages: Sequence[Message], *, recorded: bool) -> None:
        self._ctx, self._messages, self._recorded = ctx, messages, recorded
        self._known: Callable[[str], bool] | None = None
        self._new: set[str] = set()
        """Ids of this turn."""

    async def own(self, delta: ToolCallDelta) -> ToolCallDelta:
        """The delta with an id of its own, where it begins a call."""
        if delta.id is None:
            return delta
        if self._known is None:
            self._known = await self._find_known()
        known, new = self._known, self._new
        given = free_id(delta.id, lambda call_id: call_id in new or known(call_id))
        new.add(given)
        return delta if given == delta.id else msgspec.structs.replace(delta, id=given)

    async def _find_known(self) -> Callable[[str], bool]:
        if self._recorded:
            return await self._ctx.calls_beside(self._messages)
        # Of the conversation and the node run alone: entered again, it finds the same.
        known = {call.id for message in self._messages if isinstance(message, AIMessage) for call in message.tool_calls}
        return (known | self._ctx.keys.calls).__contains__

    def keep(self, message: AIMessage) -> None:
        """The turn is whole: its calls have their ids."""
        self._ctx.note_calls(call.id for call in message.tool_calls)


def free_id(call_id: str, taken: Callable[[str], bool]) -> str:
    """The id, or if it is taken one with a number that isn't."""
    if not taken(call_id):
        return call_id
    number = 2
    while taken(other := f"{call_id[:_LONGEST]}_{number}"):
        number += 1
    return other


class ModelStream:
    """One stream of a model by one node run: counted, and shown to readers as it comes (spec 1.4).

    Args:
        find: the tool of a name, for what readers are told of its calls.
        speech: what readers get of the text.
        shows_calls: whether readers get the calls.
        final: no tools are offered, so that a call is a mistake and the text stays the answer.
        key: of the operation that records the call, if one does.
    """

    def __init__(
        self,
        ctx: NodeRun,
        model: ChatModel,
        find: Callable[[str], Tool | None],
        speech: DeltaEmitter,
        *,
        shows_calls: bool,
        final: bool = False,
        key: str | None = None,
    ) -> None:
        self.ctx, self.model, self.speech = ctx, model, speech
        self.heard = TurnAccumulator()
        self._key = key
        self._find, self._shows_calls, self._final = find, shows_calls, final
        self._ids: dict[int, str] = {}
        """Position in the turn → call id."""

    def begin(self) -> None:
        """Counts the call, see `CallMeter.begin`."""
        self.meter = CallMeter.begun(self.ctx, self.model, self._key)

    async def hear(
        self, messages: list[Message], tools: Sequence[ToolSpec], options: ChatOptions, *, plain: bool
    ) -> Completion:
        """The whole turn, after `begin`.

        Args:
            plain: all messages are text.

        Raises:
            ModelError: the call failed; `heard` holds what arrived until then.
        """
        ctx, heard, speech, model = self.ctx, self.heard, self.speech, self.model
        if not plain:
            messages = await with_media(messages, ctx, model)
        ids = CallIds(ctx, messages, recorded=True)
        names = None
        if need_wire_names(messages, tools):
            names = WireNames(tool.name for tool in tools)
            messages, tools, options = names.messages(messages), names.tools(tools), names.options(options)
        set_call_context(ctx.run_id, ctx.node if ctx.visit == 1 else f"{ctx.node}#{ctx.visit}")
        # Bound once: this loop runs for every delta. `type(...) is` is the cheapest dispatch, the commonest kind first.
        say, think, count = speech.say, speech.think, 0
        try:
            async with aclosing(model.stream(messages, tools, options)) as deltas:
                async for delta in deltas:
                    # A model in this process, or one chunk of a provider, may have thousands of deltas without a pause.
                    if (count := count + 1) % AT_ONCE == 0:
                        await asyncio.sleep(0)
                    kind = type(delta)
                    if isinstance(delta, ToolCallDelta):
                        delta = await ids.own(delta if names is None else names.heard(delta))
                    heard.feed(delta)
                    if kind is TextDelta:
                        await say(delta.text)  # type: ignore[union-attr]
                    elif kind is ThinkingDelta:
                        await think(delta.text)  # type: ignore[union-attr]
                    elif isinstance(delta, ToolCallDelta):
                        self._call(delta)
                    elif kind is FallbackDelta:
                        self.meter.fall_back(delta)  # type: ignore[arg-type]
        except ModelError as error:
            if not plain:
                name_media(error, messages)
            # Refused before the first word: there is nothing to pay, so the call is not counted as cut off.
            if heard.empty:
                self.meter.refused()
            raise
        # Before the output: the reader may still hold text that could have become syntax.
        await speech.end()
        if heard.finish is None:
            raise without_finish(model)
        done = heard.completion()
        ids.keep(done.message)
        self.meter.end(done.usage)
        # The last call's arguments may be cut in half, and half a command can be a valid one: the tools node runs none.
        if done.finish_reason == "length" and done.message.tool_calls:
            return msgspec.structs.replace(done, message=msgspec.structs.replace(done.message, status="length"))
        return done

    def _call(self, delta: ToolCallDelta) -> None:
        ctx = self.ctx
        # A late delta of an ended node run must not open a block that nobody closes.
        if not self._shows_calls or not ctx.alive:
            return
        # With a call the text is no candidate, so it is sent; in a last turn calls are refused and the text stays one.
        if not self._final:
            self.speech.calls()
        if delta.id is not None:
            tool = self._find(delta.name or "")
            action = tool is not None and tool.kind == "action"
            facts: dict[str, Any] = {"tool_type": "function"} if tool is None else tool.start_facts
            self._ids[delta.index] = delta.id
            ctx.blocks.call_start(delta.id, delta.name, action=action, **facts)
        ctx.blocks.call_args(self._ids[delta.index], delta.arguments)


def need_wire_names(messages: Iterable[Message], tools: Iterable[ToolSpec]) -> bool:
    """Whether a tool, or a call of an earlier turn, has a name that no provider takes: `SERVER.TOOL`, `agent:KEY`."""
    # In place, not by `is_wire_name`: every turn passes here, and hardly one needs it.
    for tool in tools:
        if "." in tool.name or ":" in tool.name:
            return True
    for message in messages:
        if type(message) is AIMessage:
            for call in message.tool_calls:
                if "." in call.name or ":" in call.name:
                    return True
    return False


class ModelTurn:
    """One turn of a node: the call of the model, and what the node gives."""

    def __init__(self, given: Mapping[str, Any], ctx: NodeRun, common: TurnFactory) -> None:
        self.given, self.ctx = given, ctx
        document = common.document
        self.tools, self.noted, self.registry = common.tools(given, ctx)
        # The model is opened before it is charged: a missing key is an error of the settings and costs no call.
        model: ChatModel = ctx.uncounted_model(*model_of(ctx, document, given))
        self.summary = given.get("output") == "REASONING_SUMMARY"
        self.last = bool(given.get("lastTurn"))
        defaults = defaults_of(ctx, document, given.get("options"), common.defaults)
        self.options = options_of(given, defaults, bool(self.tools), self.summary)
        self.closed: list[ToolMessage] = []
        """Results of calls that had none when this last turn began."""
        # What branches and subgraphs say is for the graph around them, unless it says otherwise (E10).
        self.stream = given.get("stream", "content" if ctx.speaks else "hidden")
        self.candidate = self.stream == "candidate"
        """Whether a `verify` node follows, which gets the answer instead of the reader."""
        # Nothing of a silent branch is shown, and a call must not release the text there either.
        if self.candidate and not ctx.speaks:
            self.stream = "hidden"
        shown = given.get("showReasoning", True)
        self.speech = DeltaEmitter(ctx, self.stream, show_reasoning=shown, summary=self.summary)
        self.spoken = ModelStream(
            ctx, model, self.registry.get, self.speech, shows_calls=self.stream != "hidden", final=self.last
        )

    async def run(self) -> dict[str, Any]:
        """The node's output.

        Raises:
            BudgetExceeded: no model call is left.
            ModelError: the call failed; `partial` holds what arrived until then.
            NodeFailed: `tool_required`, or an answer that does not fit the `schema`.
        """
        ctx = self.ctx
        self.spoken.begin()
        # Before the request is built: providers refuse a conversation with an unanswered call.
        if self.last:
            await self._close_open_calls()
        messages, plain = messages_of(self.given, ctx, self.noted, self.closed)
        # From here on a cancel or a time-out keeps what was said so far (E15).
        ctx.partial = self.partial
        return await self._out(await self.spoken.hear(messages, self.tools, self.options, plain=plain))

    def partial(self, status: str) -> AIMessage | None:
        """The part of the message that was shown; `None` when nothing was (E15)."""
        message = self.spoken.heard.message(status=status)
        if self.candidate and self.stream == "hidden":
            return None
        # The raw text is JSON or a hidden candidate; only what readers saw may enter the history.
        if self.summary or self.candidate:
            text, reasoning = self.speech.shown_text, self.speech.shown_reasoning
            message = with_reasoning(msgspec.structs.replace(message, content=text), reasoning)
        said = message.content or message.reasoning or message.tool_calls
        return message if said else None

    # --- calls

    async def _refused(self, calls: tuple[ToolCall, ...]) -> list[ToolMessage]:
        """Error results for calls of a last turn, which offers no tools and has no turn after it."""
        if not calls:
            return []
        runner = self.ctx.tool
        # No runner: its events would show readers a call of a hidden turn.
        if self.stream == "hidden":
            text = "this call was not run: no tools are offered in this turn"
            return [ToolMessage(tool_call_id=call.id, name=call.name, content=text, error=True) for call in calls]
        results = await runner.run_all(calls, self.ctx, policy=CallPolicy(disallow=True))
        return [runner.message(call, result) for call, result in zip(calls, results, strict=True)]

    async def _close_open_calls(self) -> None:
        """Answers calls whose `tools` node was ended by a limit: with the result that readers got, else with an error."""
        for reply in answer_open_calls(
            self.ctx.state.get("messages", ()), "this call was not run: the budget is used up"
        ):
            # The tool may have run and its event been sent before the limit; model and readers must see the same result.
            told = await self.ctx.announced_result(reply.tool_call_id)
            if told is not None:
                reply = msgspec.structs.replace(reply, content=str(told), error=False)
            else:
                tool = self.registry.get(reply.name or "")
                action = tool is not None and tool.kind == "action"
                await self.ctx.tool_result(reply.tool_call_id, reply.text, action)
            self.closed.append(reply)

    # --- the end

    async def _out(self, done: Completion) -> dict[str, Any]:
        ctx, message = self.ctx, self._message(done)
        # The usage is counted by now: a turn that fails this rule was paid for all the same.
        if self.given.get("mustCall") and not message.tool_calls:
            raise NodeFailed(
                f"node {ctx.node!r}: toolPolicy is REQUIRE and the model called no tool, also when asked again",
                code="tool_required",
            )
        candidate = None
        if self.candidate and (self.last or not message.tool_calls):
            candidate = {"text": message.text, "reasoning": message.reasoning, "finishReason": done.finish_reason}
        # A turn with calls goes on, so only a cut answer ends the run as cut.
        elif done.finish_reason in CUT_OFF and (self.last or not message.tool_calls):
            ctx.finish_reason = done.finish_reason
        messages = await self._conversation(message, candidate is not None)
        # From here on the whole message is in the output; a partial one would repeat it.
        ctx.partial = None
        out: dict[str, Any] = {
            "text": message.text,
            "reasoning": message.reasoning,
            "toolCalls": message.tool_calls,
            "message": message,
            "messages": messages,
            "candidate": candidate,
            "usage": dict(ctx.usage or {}),
            "finishReason": done.finish_reason,
        }
        if (schema := self.given.get("schema")) is not None:
            out = {**out, **structured(ctx, message, schema)}
        return out

    def _message(self, done: Completion) -> AIMessage:
        if not self.summary:
            return done.message
        # What the provider wants back is what it sent, not the summary of it.
        return with_reasoning(msgspec.structs.replace(done.message, content=self.speech.text), self.speech.reasoning)

    async def _conversation(self, message: AIMessage, candidate: bool) -> list[Message]:
        """The messages for the conversation: the turn, unless it is a candidate, and a result for every call."""
        refused = await self._refused(message.tool_calls) if self.last else []
        if not candidate:
            return [*self.closed, message, *refused]
        if not refused:
            return [*self.closed]
        # Refused calls need their message; the candidate's text stays out until it is verified.
        return [*self.closed, msgspec.structs.replace(message, content="", reasoning=""), *refused]


def structured(ctx: NodeRun, message: AIMessage, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object in the text.

    Raises:
        NodeFailed: `validation`: the text is no object of the schema.
    """
    from graphflow.graph.definition.json_schema import compile_schema

    # Models put JSON into a fence even when asked for plain JSON.
    text = message.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise NodeFailed(
            f"node {ctx.node!r} asked for JSON and got {excerpt_of(text)}: {error}", code="validation"
        ) from None
    checker = compile_schema(schema)
    issues = checker.errors(value)
    if issues or not isinstance(value, dict):
        first = "; ".join(f"{f.pointer or 'answer'}: {f.message}" for f in issues[:3]) or "it is not an object"
        raise NodeFailed(f"node {ctx.node!r}: the model's answer does not fit the schema: {first}", code="validation")
    taken: dict[str, Any] = checker.taken(value)
    return taken
