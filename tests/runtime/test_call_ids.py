"""Providers that number the calls of each turn from 0: every call of a run has its own result, approval and events."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import AsyncGenerator
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from graphflow import Context, Graph, MemoryCheckpointer, append, load_graph, tool
from graphflow.events import ToolResultEvent, ToolStart
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.accumulator import TurnAccumulator
from graphflow.models.chat_model import ChatModel, WrappedModel
from graphflow.models.deltas import Delta, ToolCallDelta
from graphflow.models.options import ChatOptions
from graphflow.models.scripted.model import ScriptedModel
from graphflow.modes.definition import BLOCKS
from graphflow.nodes.turn import free_id
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds, collect

sent: list[str] = []


@tool
def send(to: str) -> str:
    """Sends something, for good."""
    sent.append(to)
    return f"sent to {to}"


@tool(effects="read")
def look(to: str) -> str:
    """Looks somebody up."""
    return f"saw {to}"


class Said(TypedDict):
    said: Annotated[list[Any], append]


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    sent.clear()


def counting(*rounds: list[tuple[str, str]], text: str = "Done.") -> ScriptedModel:
    """A model that calls tools (name, whom) for some rounds, and names the calls of each round `call_0`, `call_1`, …"""
    turns: list[dict[str, Any]] = [
        {
            "tool_calls": [
                {"name": name, "arguments": {"to": to}, "id": f"call_{n}"} for n, (name, to) in enumerate(calls)
            ]
        }
        for calls in rounds
    ]
    return ScriptedModel({"turns": [*turns, {"text": text}]})


class Renumbered(WrappedModel):
    """A model whose calls are numbered from 0 in each turn."""

    async def stream(self, messages: Any, tools: Any = (), options: Any = ChatOptions()) -> AsyncGenerator[Delta, None]:
        async for delta in self._inner.stream(messages, tools, options):
            if isinstance(delta, ToolCallDelta) and delta.id is not None:
                delta = msgspec.structs.replace(delta, id=f"call_{delta.index}")
            yield delta


def paired(messages: Any) -> dict[str, str]:
    """Call id → the text of its result; each id stands for one call."""
    calls = [call.id for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    results = {message.tool_call_id: message.text for message in messages if isinstance(message, ToolMessage)}
    assert (len(set(calls)), list(results)) == (len(calls), calls)
    return results


def agent(mode: str, model: ChatModel, **more: Any) -> CompiledGraph:
    document = {"mode": mode, BLOCKS[mode]: {"systemPrompt": "Work."}, "tools": ["send", "look"], **more}
    return load_graph(document, checkpointer=MemoryCheckpointer(), ids=FakeIds(), model=model, tools=[send, look])


# --- agents


@pytest.mark.parametrize("approval", ["DISABLED", "REQUIRE_APPROVAL"])
async def test_each_round_of_an_agent_has_its_own_result_and_approval(approval: str) -> None:
    model = counting([("send", "Ann")], [("send", "Bo")], [("send", "Cy")])
    app = agent("REACT", model, approval=approval)
    events = await collect(app.stream("Write to all", "t"))
    while (state := await app.thread("t").state()).status == "waiting":
        events += await collect(app.stream_answer("t", {"decision": "approve"}))
    assert (state.status, sent) == ("idle", ["Ann", "Bo", "Cy"])
    results = paired(state.values["messages"])
    assert list(results.values()) == [f"sent to {name}" for name in ("Ann", "Bo", "Cy")]
    # Readers see the same calls, each begun once and answered once.
    started = Counts(event.tool_id for event in events if isinstance(event, ToolStart))
    answered = {event.tool_id: event.result for event in events if isinstance(event, ToolResultEvent)}
    assert (started, answered) == (Counts(dict.fromkeys(results, 1)), results)


@pytest.mark.parametrize("mode", ["PLAIN_TOOLING", "THINKING_TOOLING", "REACT"])
async def test_a_later_input_does_not_take_the_ids_of_an_earlier_one(mode: str) -> None:
    model = ScriptedModel(
        {
            "rules": [{"match": ".", "steps": [{"tool": "look", "arguments": {"to": "Ann"}}]}],
        }
    )
    app = agent(mode, Renumbered(model))
    await app.run("first", "t")
    await app.run("second", "t")
    results = paired((await app.thread("t").state()).values["messages"])
    assert results == {"call_0": "saw Ann", "call_0_2": "saw Ann"}


# --- Python nodes


def node_of(work: Any) -> Graph:
    graph = Graph(Said)
    graph.node(work, name="work")  # type: ignore[call-overload] # the work is of several types
    return graph


def compiled(graph: Graph, model: Any, store: Any) -> CompiledGraph:
    return graph.compile(checkpointer=store, ids=FakeIds(), model=model, tools=[send, look])


async def by_calls(ctx: Context, messages: list[Message]) -> AIMessage:
    return await ctx.call_model(messages, tools=[send, look])


async def by_stream(ctx: Context, messages: list[Message]) -> AIMessage:
    heard = TurnAccumulator()
    async for delta in ctx.open_model().stream(messages, [send.spec, look.spec]):
        heard.feed(delta)
    return heard.message()


async def by_hand(ctx: Context, messages: list[Message]) -> AIMessage:
    """Calls as a client of one's own gives them."""
    names = ["Ann", "Bo"]
    spoken = sum(isinstance(message, AIMessage) for message in messages)
    calls = (ToolCall(id="call_0", name="send", arguments=f'{{"to": "{names[spoken]}"}}'),) if spoken < 2 else ()
    return AIMessage(content="" if calls else "Done.", tool_calls=calls)


@pytest.mark.parametrize("asks", [by_calls, by_stream, by_hand])
async def test_the_rounds_of_a_python_node_are_recorded_apart_also_when_it_is_entered_again(asks: Any) -> None:
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        messages: list[Message] = [HumanMessage(content="Write to all")]
        while True:
            turn = await asks(ctx, messages)
            messages.append(turn)
            if not turn.tool_calls:
                break
            results = await ctx.tool.run_all(turn.tool_calls, ctx)
            messages += [ctx.tool.message(call, found) for call, found in zip(turn.tool_calls, results, strict=True)]
        await ctx.ask("Go on?")
        return {"said": [message.content for message in messages if isinstance(message, ToolMessage)]}

    graph, store = node_of(work), MemoryCheckpointer()
    model = counting([("send", "Ann")], [("send", "Bo")])
    await compiled(graph, model, store).run({}, "t")
    later = compiled(graph, model, store)
    assert later.host.runs is not None
    later.host.runs.forget("t")
    done = await later.answer("t", "yes")
    assert (done.error, sent, list(done.state.said)) == (None, ["Ann", "Bo"], ["sent to Ann", "sent to Bo"])


async def test_one_turn_with_two_calls_of_one_id_runs_both_and_asks_about_both() -> None:
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        calls = [ToolCall(id="call_0", name="send", arguments=f'{{"to": "{name}"}}') for name in ("Ann", "Bo")]
        return {"said": [found.data for found in await ctx.tool.run_all(calls, ctx)]}

    graph = Graph(Said, approval="REQUIRE_APPROVAL")
    graph.node(work, name="work")  # type: ignore[call-overload] # the work is of several types
    app = compiled(graph, None, MemoryCheckpointer())
    waiting = await app.run({}, "t")
    asked = []
    while waiting.status == "waiting":
        asked.append(waiting.interrupts[0].tool_id)
        waiting = await app.answer("t", {"decision": "approve"})
    assert (waiting.error, sent, asked) == (None, ["Ann", "Bo"], ["call_0", "call_0_2"])


@pytest.mark.parametrize(
    ("taken", "given"),
    [((), "call_0"), (("call_0",), "call_0_2"), (("call_0", "call_0_2"), "call_0_3"), (("call_1",), "call_0")],
)
def test_an_id_that_is_taken_gets_the_next_number(taken: tuple[str, ...], given: str) -> None:
    assert free_id("call_0", taken.__contains__) == given


def test_a_long_id_stays_within_what_providers_take() -> None:
    assert len(free_id("x" * 40, {"x" * 40}.__contains__)) <= 40
