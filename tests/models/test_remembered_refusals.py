"""What was refused stays refused: the thread knows, so later turns send one request."""

from __future__ import annotations

import pytest

from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatOptions, complete
from tests.models.raw_server import Connection, body, raw_server, stream
from tests.models.test_refused_state import CASES, SECRET, error_body, opened, refusing
from tests.models.turns import spec


@pytest.mark.parametrize("protocol", CASES)
async def test_later_turns_of_a_thread_send_one_request(protocol: str) -> None:
    """By another client too, as after a restart: nothing but the messages is known to it."""
    key, model, messages, turn, why = CASES[protocol]
    async with raw_server(refusing(why, turn, when=lambda sent: SECRET.encode() in sent)) as server:
        for count in (2, 3, 4):
            client = opened(protocol, key, model, server.url)
            done = await complete(client, messages, spec("weather"))
            await client.aclose()
            messages = [*messages, done.message, HumanMessage(content="And tomorrow?")]
            assert (done.message.text, len(server.requests)) == ("Sunny.", count)


@pytest.mark.parametrize("protocol", CASES)
async def test_a_fork_from_before_the_refusal_tries_the_state_again(protocol: str) -> None:
    key, model, messages, turn, why = CASES[protocol]
    async with raw_server(refusing(why, turn, when=lambda sent: SECRET.encode() in sent)) as server:
        client = opened(protocol, key, model, server.url)
        await complete(client, messages, spec("weather"))
        await complete(client, [*messages, HumanMessage(content="In Rome?")], spec("weather"))
        await client.aclose()
        assert [SECRET.encode() in request.body for request in server.requests] == [True, False, True, False]


@pytest.mark.parametrize("protocol", CASES)
async def test_another_provider_learns_nothing_of_the_refusal(protocol: str) -> None:
    key, model, messages, turn, why = CASES[protocol]
    async with raw_server(refusing(why, turn, when=lambda sent: SECRET.encode() in sent)) as server:
        client = opened(protocol, key, model, server.url)
        done = await complete(client, messages, spec("weather"))
        await client.aclose()
        others = [other for other in CASES if other != protocol]
        for other in others:
            key, name, *_ = CASES[other]
            stranger = opened(other, key, name, server.url)
            # What comes is not of its protocol.
            with pytest.raises(ModelError):
                await complete(stranger, [*messages, done.message, HumanMessage(content="?")])
            await stranger.aclose()
        assert all(b"left_out" not in request.body for request in server.requests)


async def test_a_loop_without_thinking_ends_with_what_the_user_says_next() -> None:
    """Until then each request of the loop is sent without being asked to think; after it the model thinks again."""
    key, model, messages, _, _ = CASES["openai"]
    called = AIMessage(tool_calls=(ToolCall(id="call_1", name="weather"),))
    why = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    turn = CASES["openai"][3]
    said: list[Message] = [messages[0], called, messages[2]]
    asked: list[bool] = []

    async def answer(connection: Connection) -> None:
        last = connection.request.json["messages"][-1]["role"]
        asked.append("reasoning_effort" in connection.request.json)
        if asked[-1] and last == "tool":
            await body(400, error_body(why, gateway=True))(connection)
        else:
            await stream(*turn)(connection)

    async with raw_server(answer) as server:
        client = opened("openai", key, model, server.url)
        deep = ChatOptions(compute="HIGH")
        for _ in range(2):
            done = (await complete(client, said, spec("weather"), deep)).message
            again = AIMessage(tool_calls=(ToolCall(id="call_2", name="weather"),), provider_state=done.provider_state)
            said += [again, ToolMessage(tool_call_id="call_2", name="weather", content="22")]
        await complete(client, [*said, HumanMessage(content="Thanks.")], spec("weather"), deep)
        await client.aclose()
    assert asked == [True, False, False, True]


async def test_a_loop_whose_thinking_was_refused_and_is_then_missed_goes_on() -> None:
    """Both of one turn: the signature is of another account, and without it the loop has no thinking."""
    key, model, messages, turn, why = CASES["openai"]
    missed = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."

    async def answer(connection: Connection) -> None:
        if SECRET.encode() in connection.request.body:
            await body(400, error_body(why, gateway=True))(connection)
        elif "reasoning_effort" in connection.request.json:
            await body(400, error_body(missed, gateway=True))(connection)
        else:
            await stream(*turn)(connection)

    async with raw_server(answer) as server:
        client = opened("openai", key, model, server.url)
        done = await complete(client, messages, spec("weather"), ChatOptions(compute="HIGH"))
        await client.aclose()
        assert (done.message.text, len(server.requests)) == ("Sunny.", 3)
