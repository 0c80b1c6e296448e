"""`ctx.call_model` and `ctx.open_model`: a Python node's calls of models are recorded, counted, limited and shown like a
`model` node's (E5, E11, spec 1.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Literal, TypedDict

import pytest

from graphflow import AIMessage, Context, Graph, HumanMessage, MemoryCheckpointer, append, tool
from graphflow.errors import ModelError
from graphflow.events import ContentDelta, ContentSnapshot, ReasoningDelta, ToolStart
from graphflow.models.chat_model import complete
from graphflow.models.deltas import Delta, Finish, TextDelta, Usage
from graphflow.models.scripted.model import ScriptedModel
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import collect
from tests.runtime.conftest import Compile

Work = Callable[[Any, Context], Any]
PER_CALL = {"modelCalls": 1, "promptTokens": 10, "completionTokens": 5}
SCORE = {"type": "object", "required": ["score"], "properties": {"score": {"type": "integer"}}}


class Said(TypedDict):
    said: Annotated[list[Any], append]


class Speaker(ScriptedModel):
    """Plays one thing after another: a text, an error, or an event that it waits for after its first word."""

    def __init__(self, *turns: Any, **options: Any) -> None:
        super().__init__(**options)
        self.turns = list(turns)
        self.asked: list[str] = []

    async def stream(self, messages: Any, tools: Any = (), options: Any = None) -> AsyncGenerator[Delta, None]:
        self.asked.append(messages[-1].content)
        turn = self.turns.pop(0) if self.turns else "fine"
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, asyncio.Event):
            yield TextDelta("half")
            await turn.wait()
            turn = " done"
        for word in turn.split():
            yield TextDelta(word)
        yield Finish("stop", "stop", Usage(prompt_tokens=10, completion_tokens=5))


def graph_of(work: Work, **options: Any) -> Graph:
    graph = Graph(Said)
    graph.node(work, name="work", **options)  # type: ignore[call-overload] # the tests' functions are of many types
    return graph


async def test_a_call_gives_the_message_and_counts_as_one_call(compile_graph: Compile) -> None:
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        answer = await ctx.call_model("Hello?")
        assert type(answer) is AIMessage
        return {"said": [answer.content]}

    model = Speaker("fine")
    result = await compile_graph(graph_of(work), model=model).run({}, thread_id="t")
    assert (result.state["said"], model.asked) == (["fine"], ["Hello?"])
    assert {figure: result.usage[figure] for figure in PER_CALL} == PER_CALL


async def test_messages_are_objects_or_their_openai_form() -> None:
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        given = [{"role": "system", "content": "Be short."}, HumanMessage(content="and now?")]
        return {"said": [(await ctx.call_model(given)).text]}

    model = Speaker()
    await graph_of(work).compile(model=model).run({})
    assert model.asked == ["and now?"]


async def test_a_call_is_recorded_so_a_node_that_is_entered_again_calls_no_model(compile_graph: Compile) -> None:
    """The node asks, is left, and is entered again after the answer: no second call, no second text, no second count."""

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        draft = (await ctx.call_model("Draft", stream=True)).text
        if await ctx.ask(f"Send {draft!r}?", schema={"type": "boolean"}):
            score = await ctx.call_model("Score", schema=SCORE, stream=False)
            return {"said": [draft, score]}
        return {}

    model = Speaker("the draft", '{"score": 7}')
    app = compile_graph(graph_of(work), model=model)
    first = await collect(app.stream({}, "t"))
    waiting = await app.thread("t").result()
    again = await collect(app.stream_answer("t", {waiting.interrupts[0].id: True}))
    result = await app.thread("t").result()
    assert [e.delta for e in first if isinstance(e, ContentDelta)] == ["the", "draft"]
    assert not [e for e in again if isinstance(e, ContentDelta | ContentSnapshot)]
    assert (result.state["said"], model.asked) == (["thedraft", {"score": 7}], ["Draft", "Score"])
    assert (waiting.usage["modelCalls"], result.usage["modelCalls"]) == (1, 2)
    assert result.usage["promptTokens"] == 20
    assert "cutOffCalls" not in result.usage


@pytest.mark.parametrize("stream", [True, False])
async def test_stream_decides_only_whether_readers_get_the_deltas(compile_graph: Compile, stream: bool) -> None:
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {"said": [(await ctx.call_model("Go", stream=stream)).text]}

    script = [{"reasoning": "hm", "text": "one two", "usage": {"prompt_tokens": 3}}]
    app = compile_graph(graph_of(work), model=ScriptedModel(script))
    events = await collect(app.stream({}, "t"))
    result = await app.thread("t").result()
    assert (result.state["said"], result.usage["promptTokens"]) == (["one two"], 3)
    assert [e.delta for e in events if isinstance(e, ContentDelta)] == (["one", " two"] if stream else [])
    assert [e.delta for e in events if isinstance(e, ReasoningDelta)] == (["hm"] if stream else [])


async def test_the_texts_of_two_calls_are_two_blocks() -> None:
    async def work(state: Any, ctx: Context) -> None:
        await ctx.call_model("one")
        await ctx.call_model("two")

    events = await collect(graph_of(work).compile(model=Speaker("a", "b")).stream({}))
    assert [e.delta for e in events if isinstance(e, ContentDelta)] == ["a", "b"]
    assert len({e.content_id for e in events if isinstance(e, ContentDelta)}) == 2


async def test_in_a_branch_a_call_is_silent_unless_it_says_otherwise() -> None:
    async def speak(state: Any, ctx: Context) -> None:
        await ctx.call_model("hidden")
        await ctx.call_model("shown", stream=True)

    graph = Graph(Said)
    graph.map("fan", "[1]", "speak").node(name="speak")(speak)
    events = await collect(graph.start("fan").compile(model=Speaker("a", "b")).stream({}))
    assert [e.delta for e in events if isinstance(e, ContentDelta)] == ["b"]


async def test_an_answer_that_does_not_fit_the_schema_is_a_validation_failure_that_was_paid_for() -> None:
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {"said": [await ctx.call_model("Score", schema=SCORE)]}

    result = await graph_of(work).compile(model=Speaker('{"score": "high"}')).run({})
    assert result.error is not None
    assert (result.error["code"], result.usage["completionTokens"]) == ("validation", 5)


async def test_a_retry_calls_again_unless_another_operation_followed() -> None:
    """E5: the model may be why the attempt failed; what was done with its answer must not be done with another one."""
    done: list[str] = []

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        kept = (await ctx.call_model("kept")).text
        await ctx.step("send", lambda: done.append(kept))
        last = (await ctx.call_model("again")).text
        if ctx.attempt == 1:
            raise ValueError("try once more")
        return {"said": [kept, last]}

    model = Speaker("a", "b", "c")
    retried = graph_of(work, retry={"max": 2, "on": ["node_error"], "backoffMs": 0})
    result = await retried.compile(model=model, checkpointer=MemoryCheckpointer()).run({}, "t")
    assert (result.state["said"], done, model.asked) == (["a", "c"], ["a"], ["kept", "again", "again"])
    assert result.usage["modelCalls"] == 3


async def test_a_node_that_comes_back_with_another_question_is_not_given_the_old_answer(compile_graph: Compile) -> None:
    asked = iter(["one", "two"])

    async def work(state: Any, ctx: Context) -> None:
        await ctx.call_model(next(asked))
        await ctx.ask("Go on?")

    app = compile_graph(graph_of(work), model=Speaker())
    waiting = await app.run({}, "t")
    result = await app.answer("t", {waiting.interrupts[0].id: "yes"})
    assert result.error is not None
    assert result.error["code"] == "node_not_deterministic"


# --- counting and limits


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("budget", "calls"), [({"maxModelCalls": 2}, 2), ({"maxTokens": 20}, 2)], ids=["calls", "tokens"]
)
async def test_limits_hold_for_every_call(opened: bool, budget: dict[str, Any], calls: int) -> None:
    async def work(state: Any, ctx: Context) -> None:
        for number in range(5):
            if opened:
                await complete(ctx.open_model(), [HumanMessage(content=str(number))])
            else:
                await ctx.call_model(str(number))

    model = Speaker()
    result = await graph_of(work).compile(model=model).run({}, budget=budget)
    assert result.error is not None
    assert (result.error["code"], len(model.asked)) == ("budget_exceeded", calls)
    assert (result.usage["modelCalls"], result.usage["promptTokens"]) == (calls, 10 * calls)


@pytest.mark.parametrize("opened", [False, True])
async def test_calls_side_by_side_in_one_node_are_each_counted_once(compile_graph: Compile, opened: bool) -> None:
    """A record of one call, and one of another operation, come while the others are under way."""
    gates = [asyncio.Event() for _ in range(3)]

    async def work(state: Any, ctx: Context) -> None:
        async def call(name: str) -> None:
            if opened:
                await complete(ctx.open_model(), [HumanMessage(content=name)])
            else:
                await ctx.call_model(name, stream=False)

        async def let_go() -> None:
            for gate in reversed(gates):
                await ctx.step(None, gate.set)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(call(name))
            group.create_task(let_go())
        await ctx.ask("Go on?")

    app = compile_graph(graph_of(work), model=Speaker(*gates))
    waiting = await app.run({}, "t")
    counted = {figure: 3 * value for figure, value in PER_CALL.items()}
    assert {figure: waiting.usage[figure] for figure in counted} == counted
    assert not waiting.usage.keys() & {"cutOffCalls", "uncountedCalls"}
    assert await ledger(app, "t") == {"scripted/scripted": counted}


async def ledger(app: CompiledGraph, thread_id: str) -> dict[str, Any]:
    """Model → its figures, of the thread's cost."""
    cost = await app.thread(thread_id).cost()
    return {model: {figure: used[figure] for figure in PER_CALL} for model, used in cost.models.items()}


@pytest.mark.parametrize("opened", [False, True])
async def test_a_call_that_the_node_gives_up_counts_as_cut_off(opened: bool) -> None:
    limit = asyncio.timeout(None)

    class Silence(asyncio.Event):
        async def wait(self) -> Literal[True]:
            limit.reschedule(0)  # the node's patience is over where the model falls silent
            return await super().wait()

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        try:
            async with limit:
                if opened:
                    await complete(ctx.open_model(), [HumanMessage(content="late")])
                else:
                    await ctx.call_model("late")
        except TimeoutError:
            pass
        return {"said": [(await ctx.call_model("in time")).text]}

    result = await graph_of(work).compile(model=Speaker(Silence(), "ok")).run({})
    assert result.state["said"] == ["ok"]
    assert (result.usage["modelCalls"], result.usage["cutOffCalls"], result.usage["promptTokens"]) == (2, 1, 10)


@pytest.mark.parametrize("opened", [False, True])
async def test_a_call_that_is_refused_before_its_first_word_is_not_cut_off(opened: bool) -> None:
    async def work(state: Any, ctx: Context) -> None:
        call = complete(ctx.open_model(), [HumanMessage(content="x")]) if opened else ctx.call_model("x")
        with pytest.raises(ModelError):
            await call

    result = await graph_of(work).compile(model=Speaker(ModelError("busy", code="rate_limit"))).run({})
    assert (result.status, result.usage["modelCalls"]) == ("completed", 1)
    assert "cutOffCalls" not in result.usage


async def test_calls_of_two_models_in_one_node_are_charged_to_their_own() -> None:
    from graphflow.models.pool import ModelPool

    async def work(state: Any, ctx: Context) -> None:
        await complete(ctx.open_model(None, "small"), [HumanMessage(content="x")])
        await ctx.call_model("x", model="large")
        await complete(ctx.open_model(None, "small"), [HumanMessage(content="x")])

    app = graph_of(work).compile(checkpointer=MemoryCheckpointer())
    app = app.over(app.host.with_services(model=ModelPool(lambda _, name: Speaker(model=name or "none"))))
    await app.run({}, "t")
    assert await ledger(app, "t") == {
        "scripted/large": PER_CALL,
        "scripted/small": {figure: 2 * value for figure, value in PER_CALL.items()},
    }


# --- tools, threads, cancellation


async def test_calls_of_offered_tools_come_back_with_the_answer_and_are_run_by_the_node() -> None:
    @tool(effects="read")
    def double(n: int) -> int:
        """Twice a number.

        Args:
            n: the number.
        """
        return 2 * n

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        conversation: list[Any] = [HumanMessage(content="Twice 21?")]
        while True:
            answer = await ctx.call_model(conversation, tools=["double"])
            if not answer.tool_calls:
                return {"said": [answer.content]}
            results = await ctx.tool.run_all(answer.tool_calls, ctx)
            pairs = zip(answer.tool_calls, results, strict=True)
            conversation += [answer, *(ctx.tool.message(call, result) for call, result in pairs)]

    script = [{"tool_calls": [{"name": "double", "arguments": {"n": 21}}]}, {"text": "42."}]
    app = graph_of(work).compile(model=ScriptedModel(script), tools=[double])
    events = await collect(app.stream({}))
    assert [e.tool_name for e in events if isinstance(e, ToolStart)] == ["double"]
    assert (await app.run({})).state["said"] == ["42."]


async def test_a_tool_that_nobody_registered_is_named_with_its_neighbours() -> None:
    async def work(state: Any, ctx: Context) -> None:
        await ctx.call_model("x", tools=["bahs"])

    result = await graph_of(work).compile(model=Speaker()).run({})
    assert result.error is not None
    assert "Did you mean 'bash'" in result.error["message"]


async def test_a_function_in_a_thread_calls_models_too(compile_graph: Compile) -> None:
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        return {"said": [ctx.call_model("x", schema=SCORE)["score"]]}

    result = await compile_graph(graph_of(work), model=Speaker('{"score": 1}')).run({}, "t")
    assert (result.state["said"], result.usage["modelCalls"]) == ([1], 1)


async def test_an_error_that_quotes_a_key_is_masked_wherever_it_goes(compile_graph: Compile) -> None:
    async def work(state: Any, ctx: Context) -> None:
        await ctx.call_model("x")

    quoted = ModelError("the header was Authorization: Bearer abcdefghijkl", excerpt="Bearer abcdefghijkl")
    app = compile_graph(graph_of(work), model=Speaker(quoted))
    events = await collect(app.stream({}, "t"))
    result = await app.thread("t").result()
    assert "abcdefghijkl" not in repr(events) + repr(result)
    assert result.error is not None
    assert result.error["code"] == "provider_error"


@pytest.mark.parametrize("offered", [["look", "wipe"], ["look"], []])
@pytest.mark.parametrize("approval", [None, "REQUIRE_APPROVAL", {"wipe": "REQUIRE_APPROVAL"}])
async def test_calls_that_a_node_runs_itself_are_held_to_what_it_offered_and_to_the_approval(
    offered: list[str], approval: Any
) -> None:
    did: list[str] = []

    @tool(effects="write")
    def wipe() -> str:
        """Wipes."""
        did.append("wiped")
        return "done"

    @tool(effects="read")
    def look() -> str:
        """Looks."""
        return "nothing"

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        answer = await ctx.call_model("wipe it", tools=offered)
        (result,) = await ctx.tool.run_all(answer.tool_calls, ctx)
        return {"said": [result.status, result.error and result.error.code]}

    graph = Graph(Said, tools=["look", "wipe"], **({} if approval is None else {"approval": approval}))
    graph.node(work, name="work")  # type: ignore[call-overload] # as in `graph_of`
    script = {"turns": [{"tool_calls": [{"name": "wipe", "arguments": {}}]}]}
    app = graph.compile(checkpointer=MemoryCheckpointer(), tools=[wipe, look], model=ScriptedModel(script))
    result = await app.run({}, "t")
    if "wipe" not in offered:
        assert (list(result.state.said), did) == (["error", "NOT_FOUND"], [])
    elif approval is None:
        assert (list(result.state.said), did) == (["success", None], ["wiped"])
    else:
        assert ([one.kind for one in result.interrupts], did) == (["approval"], [])
