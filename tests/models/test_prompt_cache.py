"""What Claude keeps of a prompt is asked for on every way to it: Anthropic's own API, OpenRouter, the library."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.options import ToolSpec
from graphflow.models.providers import open_provider, resolve_provider
from graphflow.models.remote.retry import Limits
from tests.models.raw_server import body, raw_server
from tests.models.turns import hear

TOOLS = [ToolSpec(name="look")]
TALK: list[Message] = [SystemMessage(content="Be brief."), HumanMessage(content="hi")]
LOOP: list[Message] = [
    *TALK,
    AIMessage(content="", tool_calls=(ToolCall(id="call_1", name="look", arguments="{}"),)),
    ToolMessage(tool_call_id="call_1", content="seen"),
]
MARK, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


async def sent(provider: str, model: str, messages: list[Message], tools: bool, **options: Any) -> dict[str, Any]:
    """The body of the request."""
    key, _, protocol = provider.partition(" by ")
    async with raw_server(body(400, b'{"error": {"message": "no"}}')) as server:
        name = key.upper()
        env = {f"{name}_API_KEY": "k-0123456789", f"{name}_BASE_URL": server.url.removesuffix("/v1")}
        tables = {key: {"protocol": protocol}} if protocol else None
        opened = open_provider(resolve_provider(key, env, tables), model, env, limits=Limits(max_retries=0))
        await hear(opened, messages, TOOLS if tools else (), **options)
        await opened.aclose()
        found: dict[str, Any] = server.requests[0].json
        return found


def marked(data: Any, place: str = "") -> dict[str, Any]:
    """Place → mark, of every mark in a request."""
    found: dict[str, Any] = {}
    if isinstance(data, dict):
        if "cache_control" in data:
            found[place] = data["cache_control"]
        for name, value in data.items():
            found |= marked(value, f"{place}/{name}") if name != "cache_control" else {}
    elif isinstance(data, list):
        for number, value in enumerate(data):
            found |= marked(value, f"{place}/{number}")
    return found


OPENROUTER, LIBRARY = ("openrouter", "anthropic/claude-sonnet-5.5"), ("anthropic by library", "claude-sonnet-5-5")
NATIVE = ("anthropic", "claude-sonnet-5-5")
LAST, SYSTEM = "/messages/1/content/0", "/messages/0/content/0"


@pytest.mark.parametrize(
    ("way", "messages", "tools", "cache", "places"),
    [
        (OPENROUTER, TALK, True, None, {SYSTEM: MARK, LAST: MARK}),
        (OPENROUTER, LOOP, True, None, {SYSTEM: MARK, "/messages/3/content/0": MARK}),
        (OPENROUTER, TALK, False, None, {}),
        (OPENROUTER, TALK, False, "1h", {SYSTEM: HOUR, LAST: HOUR}),
        (OPENROUTER, TALK, True, "off", {}),
        (OPENROUTER, TALK[1:], True, "5m", {SYSTEM: MARK}),
        (OPENROUTER, TALK[:1], True, "5m", {SYSTEM: MARK}),
        (LIBRARY, TALK, True, None, {"": MARK}),
        (LIBRARY, LOOP, True, "1h", {"": HOUR}),
        (LIBRARY, TALK, False, None, {}),
        (LIBRARY, TALK, True, "off", {}),
        (NATIVE, TALK, True, None, {"/system/0": MARK, "/messages/0/content/0": MARK}),
        (("openrouter", "openai/gpt-oss-120b"), TALK, True, None, {}),
    ],
)
async def test_claude_is_asked_to_keep_the_prompt(
    way: tuple[str, str], messages: list[Message], tools: bool, cache: Any, places: dict[str, Any]
) -> None:
    request = await sent(*way, messages, tools, **({"prompt_cache": cache} if cache else {}))
    assert marked(request) == places
    if way[0] == "openrouter":
        said = [m["content"] for m in request["messages"] if m["content"]]
        assert [text if isinstance(text, str) else text[0]["text"] for text in said] == [
            m.text for m in messages if m.text
        ]


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-6-luna"), ("openai by responses", "gpt-6-luna"), ("gemini", "gemini-3.8-flash"),
        ("openrouter", "openai/gpt-oss-120b"),
    ],
)  # fmt: skip
async def test_an_option_that_changes_nothing_is_reported(
    provider: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    request = await sent(provider, model, TALK, True, prompt_cache="1h")
    assert marked(request) == {} and "option=promptCache" in capsys.readouterr().err
