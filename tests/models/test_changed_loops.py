"""Tool loops that people and code change: each provider takes what became of them, in one request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.anthropic.blocks import written
from graphflow.models.chat_model import ChatOptions, complete
from graphflow.models.replay.replay import with_reasoning
from tests.models import strict_providers as strict
from tests.models.raw_server import DONE, delta, raw_server
from tests.models.test_provider_changes import ASK, SIDES, opened
from tests.models.turns import spec

Change = Callable[[AIMessage, list[ToolMessage]], list[Message]]
PICTURE = ImagePart(data=b"\x89PNG\r\n\x1a\n", media_type="image/png")
ANSWER = (delta(content="Sunny."), delta("stop"), DONE)
NEXT = HumanMessage(content="And tomorrow?")


def with_call(said: AIMessage, call_id: str = "extra:1/x") -> AIMessage:
    return msgspec.structs.replace(said, tool_calls=(*said.tool_calls, ToolCall(id=call_id, name="weather")))


def of(call_id: str, content: str = "21°C") -> ToolMessage:
    return ToolMessage(tool_call_id=call_id, name="weather", content=content)


def foreign(*ids: str, text: str = "", reasoning: str = "") -> AIMessage:
    return AIMessage(
        content=text, reasoning=reasoning, tool_calls=tuple(ToolCall(id=i, name="weather", arguments="{}") for i in ids)
    )


def edited_arguments(said: AIMessage) -> AIMessage:
    calls = tuple(msgspec.structs.replace(call, arguments='{"city": "Oslo"}') for call in said.tool_calls)
    return msgspec.structs.replace(said, tool_calls=calls)


CHANGES: dict[str, Change] = {
    "as it is": lambda said, results: [said, *results],
    "failed results": lambda said, results: [said, *(msgspec.structs.replace(r, content="no such city", error=True) for r in results)],
    "empty results": lambda said, results: [said, *(msgspec.structs.replace(r, content="") for r in results)],
    "results of blanks": lambda said, results: [said, *(msgspec.structs.replace(r, content=" \n") for r in results)],
    "a result that is a number": lambda said, results: [said, *(msgspec.structs.replace(r, content="5") for r in results)],
    "pictures as results": lambda said, results: [said, *(msgspec.structs.replace(r, content=(PICTURE,)) for r in results)],
    "a failed result with a picture": lambda said, results: [
        said, *(msgspec.structs.replace(r, content=(TextPart(text="see"), PICTURE), error=True) for r in results)
    ],
    "a result less": lambda said, results: [said, *results[1:]],
    "a result less, and a question": lambda said, results: [said, *results[1:], NEXT],
    "no results, and a question": lambda said, results: [said, NEXT],
    "results in another order": lambda said, results: [with_call(said), of("extra:1/x"), *results[::-1]],
    "a result behind the next question": lambda said, results: [said, NEXT, *results],
    "a result twice": lambda said, results: [said, *results, *results],
    "a question in the midst": lambda said, results: [with_call(said), *results, NEXT, of("extra:1/x")],
    "instructions in the midst": lambda said, results: [said, *results, SystemMessage(content="Be short."), NEXT],
    "a call more": lambda said, results: [with_call(said), *results, of("extra:1/x")],
    "a call less": lambda said, results: [msgspec.structs.replace(said, tool_calls=()), NEXT],
    "other arguments": lambda said, results: [edited_arguments(said), *results],
    "arguments that do not parse": lambda said, results: [
        msgspec.structs.replace(said, tool_calls=tuple(msgspec.structs.replace(c, arguments='{"city": "Pa') for c in said.tool_calls)), *results
    ],
    "other words": lambda said, results: [msgspec.structs.replace(said, content="I said this."), *results],
    "no words": lambda said, results: [msgspec.structs.replace(said, content=""), *results],
    "blank words": lambda said, results: [msgspec.structs.replace(said, content=" \n"), *results],
    "other reasoning": lambda said, results: [with_reasoning(said, "edited"), *results],
    "a cancelled turn": lambda said, results: [said, *results, AIMessage(content="It is", status="cancelled"), NEXT],
    "a cancelled turn without a word": lambda said, results: [said, *results, AIMessage(status="cancelled"), NEXT],
    "a cancelled turn that only thought": lambda said, results: [said, *results, AIMessage(reasoning="Hm", status="cancelled"), NEXT],
    "a turn that failed, tried again": lambda said, results: [said, *results, AIMessage(content="It", status="error")],
    "the loop goes on elsewhere": lambda said, results: [said, *results, foreign("x~1", "x~2", text="More."), of("x~1"), of("x~2")],
    "the loop began elsewhere": lambda said, results: [foreign("toolu_1", reasoning="hm"), of("toolu_1"), said, *results],
    "elsewhere, with this provider's ids": lambda said, results: [
        said, *results, NEXT, foreign(*(call.id for call in said.tool_calls)), *(of(call.id) for call in said.tool_calls)
    ],
    "calls alone, twice in a row": lambda said, results: [said, *results, foreign("a"), of("a"), foreign("b"), of("b")],
    "the same turn twice": lambda said, results: [said, *results, NEXT, said, *results],
    "two questions": lambda said, results: [said, *results, NEXT, HumanMessage(content="Well?")],
    "an empty question": lambda said, results: [said, *results, AIMessage(content="Sunny."), HumanMessage(content="")],
    "a picture asked about": lambda said, results: [said, *results, HumanMessage(content=(PICTURE,))],
    "an answer of blanks": lambda said, results: [said, *results, AIMessage(content=" "), NEXT],
}  # fmt: skip


STRICTER = {
    # These fakes ask for all reasoning that they gave; a turn that has no calls any more needs none.
    "a call less": {"openrouter", "kimi", "deepseek"},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SIDES)
async def test_a_changed_loop_is_taken(name: str, change: str) -> None:
    side = SIDES[name]()
    if name in STRICTER.get(change, ()):
        # Without its second answer's rule.
        side = dataclasses.replace(side, answers=[*side.answers[:1], strict.strict(lambda _: None, *ANSWER)])
    async with raw_server(*side.answers) as server:
        model = opened(side, server.url)
        said = (await complete(model, ASK, spec("weather"), ChatOptions(compute="HIGH"))).message
        results = [of(call.id) for call in said.tool_calls]
        messages = [*ASK, *CHANGES[change](said, results)]
        done = await complete(model, messages, spec("weather"), ChatOptions(compute="HIGH"))
        await model.aclose()
        assert (done.message.text, len(server.requests)) == ("Sunny.", 2)


def test_thinking_that_somebody_rewrote_stays_behind_whole() -> None:
    """ "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"; left out they may be."""
    blocks = [{"type": "thinking", "characters": 2, "signature": "s"}, {"type": "redacted_thinking", "data": "d"}]
    state = {"content": [*blocks, {"type": "text", "characters": 2}], "thinking": True}
    kept = written(AIMessage(content="So", reasoning="hm"), [], state, signed=True)
    edited = written(AIMessage(content="So", reasoning="edited"), [], state, signed=True)
    assert [block["type"] for block in kept] == ["thinking", "redacted_thinking", "text"]
    assert [block["type"] for block in edited] == ["text"]
