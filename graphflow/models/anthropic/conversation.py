"""A conversation in the form of the Messages protocol, so that no request is refused for its order.

Turns alternate and begin and end with the user; what the protocol has no form for is said as text. That each call is answered in
the turn after it is the work of `replay.pairing`, whose messages these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from graphflow.content import Content, ImagePart, MediaPart, Part, RefusalPart, TextPart, base64_of, media_of
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.accumulator import arguments_error
from graphflow.models.anthropic.blocks import Wire, written
from graphflow.models.replay.call_ids import accepted
from graphflow.models.replay.replay import Replay
from graphflow.models.replay.rules import CallIdRule
from graphflow.models.sendable import note_unsent, with_name

CALL_IDS = CallIdRule(
    # "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"; no length is documented, 64 is that of Bedrock.
    longest=64,
    checked="2026-06-15",
    source="https://github.com/HKUDS/nanobot/pull/4356",
)
_BEGIN = "(The conversation begins here.)"
_GO_ON = "Continue."
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


class RequestTurns:
    """The system prompt and the turns of one request."""

    def __init__(self, replay: Replay, messages: Sequence[Message], *, signed: bool, warn: Callable[..., None]) -> None:
        self._replay, self._signed, self._warn = replay, signed, warn
        self.system = "\n\n".join(m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip())
        self.turns: list[Wire] = []
        self.called = list(dict.fromkeys(c.name for m in messages if isinstance(m, AIMessage) for c in m.tool_calls))
        """Names of the tools that were called."""
        for message in messages:
            if isinstance(message, AIMessage):
                self._assistant(message)
            elif isinstance(message, HumanMessage):
                self._add("user", self._blocks(with_name(message)))
            elif isinstance(message, ToolMessage):
                self._add("user", [self._result(message)])
        if not self.turns or self.turns[0]["role"] != "user":
            self.turns.insert(0, {"role": "user", "content": [_text_block(_BEGIN)]})
        if self.turns[-1]["role"] != "user":
            # "This model does not support assistant message prefill. The conversation must end with a user message."
            self.turns.append({"role": "user", "content": [_text_block(_GO_ON)]})

    @property
    def loops_without_thinking(self) -> bool:
        """Whether it goes on in a tool loop whose last turn does not begin with thinking: it can't be switched on then."""
        for turn in reversed(self.turns):
            if turn["role"] == "assistant":
                blocks = turn["content"]
                thinks = blocks[0]["type"] in ("thinking", "redacted_thinking")
                return any(b["type"] == "tool_use" for b in blocks) and not thinks
        return False

    def _assistant(self, message: AIMessage) -> None:
        note_unsent(message, self._replay.provider, self._warn)
        calls = [self._call(call) for call in message.tool_calls]
        state = self._replay.own(message.provider_state)
        self._add("assistant", written(message, calls, state, signed=self._signed))

    def _call(self, call: ToolCall) -> Wire:
        # What was wrong with a call's arguments stands in its error result.
        broken = arguments_error(call.arguments) is not None
        given = msgspec.Raw(b"{}" if broken else call.arguments.encode())
        return {"type": "tool_use", "id": accepted(call.id, CALL_IDS), "name": call.name, "input": given}

    def _result(self, result: ToolMessage) -> Wire:
        content = result.content if isinstance(result.content, str) else self._blocks(result.content)
        block: Wire = {"type": "tool_result", "tool_use_id": accepted(result.tool_call_id, CALL_IDS)}
        return block | {"content": content} | ({"is_error": True} if result.error else {})

    def _add(self, role: str, blocks: list[Wire]) -> None:
        if not blocks:
            return
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})

    # --- parts -----------------------------------------------------------------------------------

    def _blocks(self, content: Content) -> list[Wire]:
        if isinstance(content, str):
            return [_text_block(content)] if content.strip() else []
        return [block for part in content for block in self._part(part)]

    def _part(self, part: Part) -> Iterable[Wire]:
        if isinstance(part, TextPart | RefusalPart):
            text = part.text if isinstance(part, TextPart) else part.refusal
            return [_text_block(text)] if text.strip() else []
        media = media_of((part,))
        return [self._media(media[0])] if media else []

    def _media(self, part: MediaPart) -> Wire:
        source = _source(part)
        if source is None:
            self._warn("model.part_as_text", provider=self._replay.provider, part=part.type, media_type=part.media_type)
            return _text_block(f"[{part.type} {part.name or part.media_type or ''} can't be shown to this model]")
        if isinstance(part, ImagePart):
            return {"type": "image", "source": source}
        return {"type": "document", "source": source} | ({"title": part.name} if part.name else {})


def _source(part: MediaPart) -> Wire | None:
    """Where the bytes of an image or document are; None for what the protocol has no form for."""
    kind = part.media_type or ("image/png" if isinstance(part, ImagePart) else "")
    if part.type == "audio":
        return None
    if part.url is not None:
        return {"type": "url", "url": part.url} if isinstance(part, ImagePart) or not kind.startswith("text/") else None
    if part.data is None or (isinstance(part, ImagePart) and kind not in _IMAGES):
        return None
    if isinstance(part, ImagePart) or kind == "application/pdf":
        return {"type": "base64", "media_type": kind, "data": base64_of(part.data)}
    if kind.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
    return None


def _text_block(text: str) -> Wire:
    return {"type": "text", "text": text}
