"""The OpenAI Agents SDK as its documentation shows it: an agent loop and a session of rows in SQLite; no graph, no steps."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool
from harness import Arrivals, Case, Facts, Place, Timed, growing, growth_facts
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from payloads import Chat, script, tool_result

PACKAGES = ["openai-agents", "openai"]
QUIET = RunConfig(tracing_disabled=True)


def answer(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", content=[part], role="assistant", status="completed", type="message")


class Scripted(Model):
    """A model that answers a list of items by a function of one's own."""

    def __init__(self, reply: Callable[[Any], Any]) -> None:
        self._reply = reply

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse(output=[self._reply(input)], usage=Usage(), response_id=None)

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        async for event in self._reply(None):
            yield event


@asynccontextmanager
async def agent(place: Place) -> AsyncIterator[Timed]:
    said = script(place.params["n"])

    def reply(items: Any) -> Any:
        turn = (len(items) - 1) // 2 if isinstance(items, list) else 0
        if turn == len(said.calls):
            return answer(said.answer)
        call = said.calls[turn]
        arguments = json.dumps({"query": call.query})
        return ResponseFunctionToolCall(
            id="f", call_id=call.id, name=said.tool, arguments=arguments, type="function_call"
        )

    @function_tool
    async def search(query: str) -> str:
        """Searches."""
        return tool_result(query)

    bench = Agent(name="bench", model=Scripted(reply), tools=[search])

    async def run() -> None:
        session = SQLiteSession(place.thread(), place.database()) if place.store == "sqlite" else None
        result = await Runner.run(bench, "hi?", max_turns=10**6, run_config=QUIET, session=session)
        assert len(result.new_items) == 2 * len(said.calls) + 1
        if session is not None:
            session.close()

    yield Timed(run, growing(place, said.content_bytes()))


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    """Rows are appended; there are no checkpoints to list or to fork."""
    chat = Chat(place.params)
    bench = Agent(name="bench", model=Scripted(lambda items: answer(chat.text(len(items)))))

    async def run() -> Facts:
        name, hot = place.thread(), []
        file = f"{name}.db"
        for turn in range(chat.turns):
            start = time.perf_counter()
            session = SQLiteSession(name, place.database(file))
            await Runner.run(bench, chat.text(turn), run_config=QUIET, session=session)
            session.close()
            hot.append(time.perf_counter() - start)
        session = SQLiteSession(name, place.database(file))
        start = time.perf_counter()
        assert len(await session.get_items()) == chat.messages
        load = time.perf_counter() - start
        session.close()
        return growth_facts(hot=hot, size=place.stored_bytes(file), messages=chat.messages, load=load)

    yield Timed(run)


@asynccontextmanager
async def model_stream(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]

    async def reply(_: Any) -> AsyncIterator[Any]:
        for number in range(n):
            await asyncio.sleep(0)
            yield ResponseTextDeltaEvent(
                content_index=0, delta=repr(time.perf_counter()), item_id="m", logprobs=[], output_index=0,
                sequence_number=number, type="response.output_text.delta",
            )  # fmt: skip
        done = Response(
            id="r", created_at=0, model="bench", object="response", output=[answer("done")], parallel_tool_calls=False,
            tool_choice="auto", tools=[],
        )  # fmt: skip
        yield ResponseCompletedEvent(response=done, sequence_number=n, type="response.completed")

    bench = Agent(name="bench", model=Scripted(reply))

    async def run() -> Facts:
        arrivals = Arrivals()
        result = Runner.run_streamed(bench, "hi", run_config=QUIET)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                arrivals.seen(float(event.data.delta))
        arrivals.ended()
        return arrivals.facts(n)

    yield Timed(run)


CASES: dict[str, Case] = {"agent": agent, "react": agent, "growth": growth, "model_stream": model_stream}
