"""Accounts whose thinking is bound to the prompt before it: a changed prompt costs the thinking, never the thread."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolMessage
from graphflow.models.chat_model import ChatModel, ToolSpec, complete
from tests.models.anthropic.service import Json, Refused, Service, blocks_of, call, serving, text, thinking, turn
from tests.models.raw_server import Connection
from tests.models.turns import spec

MODEL = "claude-fable-5-1"
BETA = "thinking-binding-controls-2026-08-01"
TURNS = [
    turn("tool_use", thinking(0, "sig-A", "Look."), call(1, "toolu_1", "weather", "{}")),
    turn("tool_use", thinking(0, "sig-B", "Again."), call(1, "toolu_2", "weather", "{}")),
    turn("end_turn", thinking(0, "sig-C", "So."), text(1, "Sunny.")),
    turn("end_turn", text(0, "Bye.")),
]


def prefix(request: Json, until: int | None = None) -> str:
    """What stands before a message, as the service compares it: marks of the cache do not count."""
    said = [request.get("system"), request.get("tools"), request["messages"][:until]]
    plain = json.dumps(said, default=str)
    marked = json.loads(plain, object_hook=lambda o: {k: v for k, v in o.items() if k != "cache_control"})
    return json.dumps(marked)


class BoundService(Service):
    """https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks"""

    def __init__(self, *, knows_beta: bool = True) -> None:
        super().__init__(*TURNS, model=MODEL)
        self.knows_beta = knows_beta
        self.prefixes: dict[str, str] = {}
        """Signature → the request that it was made by."""
        self.kept: list[list[str]] = []
        """Signatures that the model read, for each answered request."""
        self.betas: list[str | None] = []

    async def answer(self, connection: Connection) -> None:
        self.betas.append(connection.request.headers.get("anthropic-beta"))
        await super().answer(connection)

    def check(self, request: Json) -> None:
        binding = (request.get("thinking") or {}).get("block_binding")
        if binding is not None:
            if not self.knows_beta:
                raise Refused("thinking.block_binding: Extra inputs are not permitted")
            if self.betas[-1] != BETA or request["thinking"]["type"] != "adaptive":
                raise Refused(f"thinking.block_binding requires the anthropic-beta header to include {BETA}")
        kept: list[str] = []
        for number, message in enumerate(request["messages"]):
            for block in [b for b in message["content"] if b["type"] == "thinking"]:
                # A change invalidates what was made before it; what is made after it stays valid.
                valid = self.prefixes.get(block["signature"]) == prefix(request, number)
                if not valid and binding is None:
                    raise Refused(
                        f"messages.{number}.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
                        'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                    )
                kept += [block["signature"]] if valid else []
        self.kept.append(kept)
        for block in blocks_of(TURNS[self.sent]):
            if block["type"] == "thinking":
                self.prefixes[block["signature"]] = prefix(request)


async def one(
    model: ChatModel, messages: list[Message], tools: list[ToolSpec] | None = None, **options: Any
) -> list[Message]:
    done = (await complete(model, messages, spec("weather") if tools is None else tools, **options)).message
    results = [ToolMessage(tool_call_id=c.id, name=c.name, content="21°C") for c in done.tool_calls]
    return [*messages, done, *results]


BEGUN: list[Message] = [SystemMessage(content="It is Monday."), HumanMessage(content="Weather?")]


async def test_an_unchanged_prompt_keeps_its_thinking_and_asks_for_nothing() -> None:
    service = BoundService()
    async with serving(service) as model:
        said = await one(model, await one(model, await one(model, BEGUN)))
    assert (service.refusals, service.betas) == ([], [None] * 3)
    assert service.kept == [[], ["sig-A"], ["sig-A", "sig-B"]]
    assert isinstance(said[-1], AIMessage) and said[-1].text == "Sunny."


@pytest.mark.parametrize("change", ["system", "tools", "history"])
async def test_after_a_change_the_service_is_asked_to_drop_what_no_longer_fits(change: str) -> None:
    """Once refused, each request of this model asks for it: the thread still has what was refused."""
    service = BoundService()
    async with serving(service) as model:
        said = await one(model, BEGUN)
        tools = spec("weather", "ping") if change == "tools" else None
        if change == "system":
            said[0] = SystemMessage(content="It is Tuesday.")
        elif change == "history":
            said[1] = HumanMessage(content="Weather in Rome?")
        said = await one(model, await one(model, said, tools), tools)
    assert len(service.refusals) == 1
    assert [bool(beta) for beta in service.betas] == [False, False, True, True]
    assert service.kept == [[], [], ["sig-B"]], "what was made after the change counts"
    assert isinstance(said[-1], AIMessage) and said[-1].text == "Sunny."


async def test_where_the_setting_is_unknown_all_thinking_stays_behind() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/preserved-thinking: gateways may pass on no beta header."""
    service = BoundService(knows_beta=False)
    async with serving(service) as model:
        said = await one(model, BEGUN)
        said[0] = SystemMessage(content="It is Tuesday.")
        said = await one(model, said)
    assert [bool(beta) for beta in service.betas] == [False, False, True, False]
    blocks = [b["type"] for m in service.requests[-1]["messages"] for b in m["content"]]
    assert blocks == ["text", "tool_use", "tool_result"]
    assert isinstance(said[-2], AIMessage) and said[-2].tool_calls
