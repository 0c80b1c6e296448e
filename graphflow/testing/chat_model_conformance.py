"""The contract of `ChatModel`, as tests that any implementation can run.

Subclass `ChatModelConformance` in a test module (pytest-asyncio in auto mode) and give it a fixture
`open_model`: an async callable that opens a model which plays a given script.

    class TestMyModel(ChatModelConformance):
        @pytest.fixture
        async def open_model(self): ...

The model under test must answer like `ScriptedModel(script)`; for a remote one, put the script behind
`serve_scripted`. `Script` and its turns are in `graphflow.models.scripted.script`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from graphflow.models.chat_model import (
    ChatModel,
    ChatOptions,
    Delta,
    Finish,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
    TurnAccumulator,
    Usage,
    arguments_error,
    complete,
)
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptedError, ScriptTurn

OpenModel = Callable[[Script], Awaitable[ChatModel]]

ASK = (SystemMessage(content="Be brief."), HumanMessage(content="北京 & Tokyo?"))
TOOLS = (ToolSpec(name="look_up", description="Looks up.", parameters={"type": "object", "properties": {"q": {}}}),)
USAGE = Usage(prompt_tokens=11, completion_tokens=7, reasoning_tokens=3, cached_tokens=2)
CALLS = (
    ScriptedCall(name="look_up", arguments={"q": "北京"}, id="call_a"),
    ScriptedCall(name="look_up", arguments={"q": "Tokyo"}, id="call_b"),
)
WHOLE = ScriptTurn(reasoning="先想一想。", text="I look both up 🌧", tool_calls=CALLS, usage=USAGE)
_LIMIT_S = 20
"""Ends a test whose model hangs; far above what any of them takes."""


class ChatModelConformance:
    """Promises of the port, one test each. A subclass says where its protocol differs from chat completions."""

    raw_calls = "tool_calls"
    """The provider's word for the end of a turn with calls."""
    whole_calls = False
    """Whether a call's arguments come as one object, not as text in pieces; then they can't be broken."""
    least_max_tokens = 1
    """The smallest limit of tokens that the protocol takes."""
    takes_stop = True
    """Whether it takes stop words."""

    @pytest.fixture
    async def open_model(self) -> OpenModel:
        """Opens a model that plays a script; must be overridden."""
        raise NotImplementedError("override the fixture open_model")

    async def test_a_stream_is_deltas_and_then_exactly_one_finish(self, open_model: OpenModel) -> None:
        deltas = await _deltas(await open_model(Script(turns=(WHOLE,))))
        assert [isinstance(delta, Finish) for delta in deltas].index(True) == len(deltas) - 1

    async def test_what_the_provider_says_arrives_unchanged_and_in_order(self, open_model: OpenModel) -> None:
        heard = await _deltas(await open_model(Script(turns=(WHOLE,))))
        deltas = [delta for delta in heard if not isinstance(delta, StateDelta)]
        # How many deltas a text comes in is the provider's choice; the order of the kinds is not.
        kinds = [type(d) for i, d in enumerate(deltas) if i == 0 or type(d) is not type(deltas[i - 1])]
        assert kinds == [ThinkingDelta, TextDelta, ToolCallDelta, Finish]
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == WHOLE.text
        assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == WHOLE.reasoning

    async def test_each_delta_of_the_provider_is_one_delta(self, open_model: OpenModel) -> None:
        deltas = await _deltas(await open_model(Script(turns=(ScriptTurn(text="abcdef", piece=1),))))
        assert deltas[:-1] == [TextDelta(letter) for letter in "abcdef"]

    async def test_a_call_begins_with_id_and_name_and_goes_on_without(self, open_model: OpenModel) -> None:
        deltas = await _deltas(await open_model(Script(turns=(WHOLE,))))
        for index, call in enumerate(CALLS):
            first, *rest = [d for d in deltas if isinstance(d, ToolCallDelta) and d.index == index]
            assert (first.id, first.name) == (call.id, call.name)
            assert all((d.id, d.name) == (None, None) for d in rest)
            assert json.loads("".join(d.arguments for d in (first, *rest))) == call.arguments

    async def test_finish_tells_reason_the_providers_word_and_usage(self, open_model: OpenModel) -> None:
        deltas = await _deltas(await open_model(Script(turns=(WHOLE,))))
        last = deltas[-1]
        assert isinstance(last, Finish)
        assert (last.reason, last.raw_reason, last.usage) == ("tool_calls", self.raw_calls, USAGE)

    @pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
    async def test_every_finish_reason_arrives(self, open_model: OpenModel, reason: str) -> None:
        deltas = await _deltas(await open_model(Script(turns=(ScriptTurn(text="x", finish=reason),))))
        assert isinstance(deltas[-1], Finish)
        assert deltas[-1].reason == reason

    async def test_complete_is_the_stream_put_together(self, open_model: OpenModel) -> None:
        model = await open_model(Script(turns=(WHOLE,)))
        done = await complete(model, ASK, TOOLS)
        # What the provider wants back is its own affair.
        assert msgspec.structs.replace(done.message, provider_state=None) == AIMessage(
            content=str(WHOLE.text),
            reasoning=str(WHOLE.reasoning),
            tool_calls=tuple(ToolCall(id=c.id or "", name=c.name, arguments=_json(c.arguments)) for c in CALLS),
        )
        assert (done.finish_reason, done.usage) == ("tool_calls", USAGE)

    async def test_the_whole_conversation_reaches_the_model(self, open_model: OpenModel) -> None:
        # The second turn repeats the results that its request holds, so it shows what reached the model.
        first, second = ScriptTurn(tool_calls=CALLS[:1]), ScriptTurn(text="{results}")
        model = await open_model(Script(turns=(first, second)))
        said = (await complete(model, ASK, TOOLS)).message
        result = ToolMessage(tool_call_id=said.tool_calls[0].id, content="sunny, 21°C")
        assert (await complete(model, [*ASK, said, result], TOOLS)).message.content == "sunny, 21°C"

    async def test_options_reach_the_model(self, open_model: OpenModel) -> None:
        text = "one two three four" * 4
        model = await open_model(Script(turns=(ScriptTurn(text=text, piece=2),)))
        # The script counts a delta as a token.
        limit = max(3, self.least_max_tokens)
        cut = await complete(model, ASK, options=ChatOptions(max_tokens=limit))
        assert (cut.message.content, cut.finish_reason) == (text[: 2 * limit], "length")
        if self.takes_stop:
            stopped = await complete(model, ASK, options=ChatOptions(stop=(" three",)))
            assert (stopped.message.content, stopped.finish_reason) == ("one two", "stop")

    async def test_broken_arguments_arrive_as_they_are_and_may_not_run(self, open_model: OpenModel) -> None:
        broken = ScriptedCall(name="look_up", arguments='{"q": "Tok', id="call_a")
        model = await open_model(Script(turns=(ScriptTurn(tool_calls=(broken,)),)))
        done = await complete(model, ASK, TOOLS)
        assert self.whole_calls or done.message.tool_calls[0].arguments == '{"q": "Tok'
        assert arguments_error(done.message.tool_calls[0].arguments) is not None

    @pytest.mark.parametrize(
        ("status", "code", "retryable"),
        [
            (400, "provider_error", False),
            (401, "provider_error", False),
            (429, "rate_limit", True),
            (503, "provider_error", True),
        ],
    )
    async def test_an_error_instead_of_a_turn_has_code_status_provider_and_excerpt(
        self, open_model: OpenModel, status: int, code: str, retryable: bool
    ) -> None:
        model = await open_model(Script(turns=(ScriptTurn(error=ScriptedError(status=status, message="not now")),)))
        with pytest.raises(ModelError) as caught:
            await _deltas(model)
        error = caught.value
        assert (error.code, error.retryable, error.detail["status"]) == (code, retryable, status)
        assert (error.detail["provider"], error.detail["excerpt"]) == (model.provider, "not now")

    async def test_an_error_in_mid_stream_leaves_what_came_before_it(self, open_model: OpenModel) -> None:
        turn = ScriptTurn(text="half", piece=2, error=ScriptedError(status=500, message="gone"))
        heard, error = await _until_error(await open_model(Script(turns=(turn,))))
        assert heard == [TextDelta("ha"), TextDelta("lf")]
        assert (error.code, error.detail["excerpt"]) == ("provider_error", "gone")

    async def test_a_cut_connection_is_an_error_and_the_partial_message_has_no_calls(
        self, open_model: OpenModel
    ) -> None:
        model = await open_model(Script(turns=(ScriptTurn(text="ab", tool_calls=CALLS, piece=1, cut=4),)))
        heard, error = await _until_error(model)
        assert (len(heard), error.code) == (2 if self.whole_calls else 4, "connection")
        # A call whose arguments may have been cut must never run, even if they happen to be valid JSON.
        turn = TurnAccumulator()
        for delta in heard:
            turn.feed(delta)
        partial = turn.message(status="error")
        assert (partial.content, partial.tool_calls) == ("ab", ())

    async def test_a_provider_that_falls_silent_is_left_when_the_time_is_up(self, open_model: OpenModel) -> None:
        model = await open_model(Script(turns=(ScriptTurn(text="a", hang=True),) * 3))
        # On a busy machine a short limit may end before the first delta; the promise is about the silence after it.
        for limit_s in (0.2, 2.0, _LIMIT_S):
            heard, error = await _until_error(model, timeout_s=limit_s)
            assert error.code == "timeout"
            if heard:
                break
        assert heard == [TextDelta("a")]

    async def test_a_consumer_may_leave_early(self, open_model: OpenModel) -> None:
        model = await open_model(Script(turns=(ScriptTurn(text="abc", piece=1, hang=True),)))
        # `hang`: the stream never ends by itself, so leaving has to close it.
        async with asyncio.timeout(_LIMIT_S), aclosing(model.stream(ASK)) as deltas:
            assert await anext(deltas) == TextDelta("a")

    async def test_a_cancelled_call_ends_at_once_and_the_model_still_works(self, open_model: OpenModel) -> None:
        model = await open_model(Script(turns=(ScriptTurn(text="a", hang=True), ScriptTurn(text="fine"))))
        heard = asyncio.Event()

        async def listen() -> None:
            async with aclosing(model.stream(ASK)) as deltas:
                async for _ in deltas:
                    heard.set()

        async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as group:
            task = group.create_task(listen())
            # In mid-stream, not before it: there is a connection to let go of.
            await heard.wait()
            task.cancel()
        assert task.cancelled()
        again = await complete(model, [*ASK, AIMessage(content="a"), HumanMessage(content="again")])
        assert again.message.content == "fine"

    async def test_several_streams_of_one_model_do_not_mix(self, open_model: OpenModel) -> None:
        model = await open_model(Script(turns=(ScriptTurn(text="you said {topic}"),)))
        asked = [f"number {n}" for n in range(8)]
        done = await asyncio.gather(*(complete(model, [HumanMessage(content=text)]) for text in asked))
        assert [d.message.content for d in done] == [f"you said {text}" for text in asked]

    async def test_more_text_is_more_tokens(self, open_model: OpenModel) -> None:
        model = await open_model(Script())
        short, long = [HumanMessage(content="hello")], [HumanMessage(content="hello, 世界! " * 20)]
        assert 0 < model.count_tokens(short) < model.count_tokens(long) < model.count_tokens([*short, *long])

    async def test_it_names_its_provider_and_model_and_is_a_chat_model(self, open_model: OpenModel) -> None:
        model = await open_model(Script())
        assert model.provider
        assert model.model
        assert isinstance(model, ChatModel)

    async def test_closing_twice_is_harmless(self, open_model: OpenModel) -> None:
        model = await open_model(Script())
        await model.aclose()
        await model.aclose()


async def _deltas(model: ChatModel, **options: Any) -> list[Delta]:
    async with aclosing(model.stream(ASK, TOOLS, ChatOptions(**options))) as deltas:
        return [delta async for delta in deltas]


async def _until_error(model: ChatModel, **options: Any) -> tuple[list[Delta], ModelError]:
    heard: list[Delta] = []
    try:
        async with aclosing(model.stream(ASK, TOOLS, ChatOptions(**options))) as deltas:
            async for delta in deltas:
                heard.append(delta)
    except ModelError as error:
        return heard, error
    raise AssertionError(f"no ModelError; the stream gave {heard}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
