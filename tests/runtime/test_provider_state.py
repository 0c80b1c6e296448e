"""Provider state survives what a thread survives, and is shown to nobody on the way.

The provider is a fake of Gemini 3, which answers 400 to a request without the signature of each of its calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graphflow import MemoryCheckpointer, SqliteCheckpointer, ToolCall, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.events import encode_event
from graphflow.json_data import encode_json
from graphflow.messages import AIMessage, ProviderState
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.replay.signed_arguments import SIGNED, fingerprint
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import collect
from tests.models import strict_providers as strict
from tests.models.raw_server import DONE, RawServer, call, delta, raw_server

OPENED: list[OpenAICompatibleModel] = []
SIGNATURE = "CtQBAVSoXO4nAbcdSignature"


@tool
def weather(city: str) -> str:
    """Looks at the sky."""
    return f"21°C in {city}"


@pytest.fixture
async def gemini() -> AsyncIterator[RawServer]:
    """Calls `weather` once, then answers whatever it is asked."""
    extra = {"google": {"thought_signature": SIGNATURE}}
    asked = call(0, "c1", "weather", '{"city":"Paris"}', type="function", extra_content=extra)
    rule = strict.gemini(SIGNATURE)
    first = strict.strict(rule, delta(tool_calls=[asked]), delta("tool_calls"), DONE)
    then = strict.strict(rule, delta(content="Sunny."), delta("stop"), DONE)
    async with raw_server(first, then) as server:
        yield server
        while OPENED:
            await OPENED.pop().aclose()


def agent(server: RawServer, store: Checkpointer, approval: str = "DISABLED") -> CompiledGraph:
    provider = Provider(key="gemini", profile=Profile(), base_url=server.url)
    model = OpenAICompatibleModel(provider, "gemini-3-pro-preview")
    OPENED.append(model)
    document = {"mode": "REACT", "react": {"systemPrompt": "Work."}, "tools": ["weather"], "approval": approval}
    return load_graph(document, checkpointer=store, model=model, tools=[weather])


async def signed(app: CompiledGraph, thread_id: str) -> bool:
    """Whether the call in the thread's messages has its signature."""
    said = (await app.thread(thread_id).state()).values["messages"]
    (made,) = [message.tool_calls[0] for message in said if isinstance(message, AIMessage) and message.tool_calls]
    state = ProviderState(
        provider="gemini",
        model="gemini-3-pro-preview",
        data={"extra_content": {"google": {"thought_signature": SIGNATURE}}, SIGNED: fingerprint('{"city":"Paris"}')},
    )
    return bool(made == ToolCall(id="c1", name="weather", arguments='{"city":"Paris"}', provider_state=state))


async def test_a_run_that_another_process_goes_on_with_sends_the_signature_back(
    gemini: RawServer, tmp_path: Path
) -> None:
    before = SqliteCheckpointer(tmp_path / "t.db")
    await before.setup()
    app = agent(gemini, before, "REQUIRE_APPROVAL")
    assert (await app.run("What is the weather?", "t")).status == "waiting"
    await before.close()
    after = SqliteCheckpointer(tmp_path / "t.db")
    await after.setup()
    app = agent(gemini, after, "REQUIRE_APPROVAL")
    assert (await app.answer("t", {"decision": "approve"})).output == "Sunny."
    assert await signed(app, "t")
    await after.close()


async def test_forks_rewinds_edits_and_copies_of_a_thread_have_the_signature(gemini: RawServer) -> None:
    store = MemoryCheckpointer()
    app = agent(gemini, store)
    await app.run("What is the weather?", "t")
    thread = app.thread("t")
    checkpoint = next(info.id for info in await thread.history() if info.node == "tools")
    fork = await thread.fork(checkpoint)
    await thread.edit({"messages": [AIMessage(content="Edited.")]})
    other = MemoryCheckpointer()
    await other.import_thread(store.export_thread("t"), thread_id="copy")
    elsewhere = agent(gemini, other)
    for where, thread_id in ((app, fork.id), (app, "t"), (elsewhere, "copy")):
        assert await signed(where, thread_id)
        assert (await where.run("And now?", thread_id)).output == "Sunny."
    await thread.rewind(checkpoint)
    assert (await app.resume("t")).output == "Sunny."
    assert await signed(app, "t")


async def test_readers_of_the_run_and_of_the_state_see_no_signature(gemini: RawServer) -> None:
    app = agent(gemini, MemoryCheckpointer())
    events: list[Any] = await collect(app.stream("What is the weather?", "t"))
    assert events and await signed(app, "t")
    state = await app.thread("t").state()
    shown = [encode_event(event) for event in events] + [encode_json(state.values), repr(state).encode()]
    assert not any(SIGNATURE.encode() in text for text in shown)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"decision": "edit", "arguments": {"city": "Oslo"}}, "21°C in Oslo"),
        ({"decision": "reject", "reason": "not now"}, "not now"),
    ],
)
async def test_a_call_that_a_person_edited_or_rejected_stays_as_it_was_signed(
    gemini: RawServer, answer: dict[str, Any], told: str
) -> None:
    """The message keeps what the model wrote, so that its signature fits; the result says what was done."""
    app = agent(gemini, MemoryCheckpointer(), "REQUIRE_APPROVAL")
    assert (await app.run("What is the weather?", "t")).status == "waiting"
    assert (await app.answer("t", answer)).output == "Sunny."
    called, result = gemini.requests[-1].json["messages"][-2:]
    assert called["tool_calls"][0]["function"]["arguments"] == '{"city":"Paris"}'
    assert called["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": SIGNATURE}}
    assert told in result["content"]
