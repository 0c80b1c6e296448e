"""Fakes that refuse what the real service refuses, each with the page or report that its rule is taken from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tests.models.raw_server import Answer, Connection, body, stream

Rule = Callable[[list[dict[str, Any]]], str | None]
"""The messages of a request → why they are refused."""

_PLAIN = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal"})
_PLAIN_CALL = frozenset({"id", "type", "function"})


def strict(rule: Rule, *blocks: bytes) -> Answer:
    """Streams `blocks` where the rule allows the request, and answers 400 with the reason where it does not."""

    async def answer(connection: Connection) -> None:
        why = rule(connection.request.json["messages"])
        if why is None:
            await stream(*blocks)(connection)
        else:
            await body(400, json.dumps({"error": {"message": why, "type": "invalid_request_error"}}).encode())(
                connection
            )

    return answer


def turns_with_calls(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [m for m in messages if m["role"] == "assistant" and m.get("tool_calls")]


def foreign(messages: Sequence[dict[str, Any]], said: Sequence[str] = (), call: Sequence[str] = ()) -> str | None:
    """A field that this provider does not know.

    Mistral 422: https://github.com/BerriAI/litellm/issues/30835; Groq 400 "property … is unsupported":
    https://github.com/tashfeenahmed/freellmapi/issues/1070. That the others refuse it is an assumption, on the safe side.
    """
    for message in messages:
        for name in message.keys() - _PLAIN - set(said):
            return f"property {name!r} is unsupported"
        for entry in message.get("tool_calls") or ():
            for name in entry.keys() - _PLAIN_CALL - set(call):
                return f"property {name!r} of a call is unsupported"
    return _unpaired(messages)


def _unpaired(messages: Sequence[dict[str, Any]]) -> str | None:
    """https://github.com/BerriAI/litellm/issues/10083: each call is followed by its result."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"no call {message['tool_call_id']!r} before its result"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"calls without results: {open_calls}"
        open_calls += [entry["id"] for entry in message.get("tool_calls") or ()]
    return None


def gemini(*signatures: str, owner: str = "google") -> Rule:
    """Gemini 3: https://ai.google.dev/gemini-api/docs/thought-signatures (the first call of each step, verbatim).

    Stricter than the service, which validates only the calls since the last user message.
    """

    def rule(messages: list[dict[str, Any]]) -> str | None:
        known = {*signatures, "skip_thought_signature_validator", None}
        for number, message in enumerate(turns_with_calls(messages), 1):
            found = [
                entry.get("extra_content", {}).get(owner, {}).get("thought_signature")
                for entry in message["tool_calls"]
            ]
            if found[0] is None:
                return f"Function call in the {number}. content block is missing a thought_signature"
            if set(found) - known:
                return "Corrupted thought signature"
        return foreign(messages, ["extra_content"], ["extra_content"])

    return rule


def openrouter(*turns: list[dict[str, Any]]) -> Rule:
    """https://github.com/agno-agi/agno/issues/8794: blocks whole, fragments are refused."""

    def rule(messages: list[dict[str, Any]]) -> str | None:
        for message in messages:
            details = message.get("reasoning_details")
            if details is not None and details not in turns:
                return "messages.1.content.0: Invalid `signature` in `thinking` block"
        said = [m for m in turns_with_calls(messages) if m.get("reasoning_details")]
        if turns and not said:
            return "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
        return foreign(messages, ["reasoning_details"])

    return rule


def deepseek(*texts: str) -> Rule:
    """https://api-docs.deepseek.com/guides/thinking_mode: in turns with tools, those of earlier user messages too."""

    def rule(messages: list[dict[str, Any]]) -> str | None:
        for message in turns_with_calls(messages):
            if not isinstance(message.get("reasoning_content"), str):
                return "The `reasoning_content` in the thinking mode must be passed back to the API."
        given = [m["reasoning_content"] for m in messages if m.get("reasoning_content")]
        if strange := [text for text in given if text not in texts]:
            return f"not our reasoning: {strange}"
        if missing := [text for text in texts if text not in given]:
            return f"reasoning that was not passed back: {missing}"
        return foreign(messages, ["reasoning_content"])

    return rule


def kimi(*texts: str) -> Rule:
    """https://github.com/earendil-works/pi/pull/4178: an empty text counts as missing."""

    def rule(messages: list[dict[str, Any]]) -> str | None:
        for index, message in enumerate(messages):
            if message.get("tool_calls") and not message.get("reasoning_content"):
                return f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
        given = {m["reasoning_content"] for m in messages if m.get("reasoning_content", "").strip()}
        return f"not our reasoning: {given}" if given != set(texts) else foreign(messages, ["reasoning_content"])

    return rule


def mistral(messages: list[dict[str, Any]]) -> str | None:
    """https://github.com/anomalyco/opencode/issues/1680, https://github.com/datapizza-labs/datapizza-ai/issues/98."""
    for before, message in pairwise(messages):
        if (before["role"], message["role"]) == ("tool", "user"):
            return "Unexpected role 'user' after role 'tool'"
    for call_id in _ids(messages):
        if not re.fullmatch("[a-zA-Z0-9]{9}", call_id):
            return f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
    return foreign(messages)


def openai(messages: list[dict[str, Any]]) -> str | None:
    """https://github.com/agno-agi/agno/issues/5382."""
    for call_id in _ids(messages):
        if len(call_id) > 40:
            return f"string too long. Expected a string with maximum length 40, but got {len(call_id)}"
    return foreign(messages)


def _ids(messages: list[dict[str, Any]]) -> list[str]:
    calls = [entry["id"] for m in messages for entry in m.get("tool_calls") or ()]
    return calls + [m["tool_call_id"] for m in messages if m["role"] == "tool"]


def claude(*blocks: tuple[str, str]) -> Rule:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks: (text, signature).

    Ids: https://github.com/HKUDS/nanobot/pull/4356; their length is that of Bedrock.
    """

    def rule(messages: list[dict[str, Any]]) -> str | None:
        for message in messages:
            parts = message["content"] if isinstance(message["content"], list) else []
            kinds = [part["type"] for part in parts]
            thoughts = [(p["thinking"], p["signature"]) for p in parts if p["type"] == "thinking"]
            if message["role"] == "assistant" and "tool_use" in kinds and kinds[0] != "thinking" and blocks:
                return "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
            if set(thoughts) - set(blocks):
                return "messages.1.content.0: Invalid `signature` in `thinking` block"
            ids = [p.get("id") or p.get("tool_use_id") for p in parts if p["type"] in ("tool_use", "tool_result")]
            if wrong := [i for i in ids if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", str(i))]:
                return f"tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$': {wrong}"
        return None

    return rule
