"""The content blocks of one turn: put together while they stream, kept as provider state, and written again.

State repeats no text of the message: `{"type": "text", "characters": 5}` stands for the next five characters of its text,
`thinking` likewise for its reasoning, and `{"type": "tool_use"}` for its next call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.json_data import whole_characters
from graphflow.messages import AIMessage
from graphflow.models.replay.replay import AS_REASONING

Wire = dict[str, Any]


class Block:
    """One block as far as it has come."""

    __slots__ = ("call", "citations", "fragments", "kind", "parts", "raw", "signature")

    def __init__(self, kind: str, raw: Wire) -> None:
        self.kind = kind
        self.raw = raw
        self.parts: list[str] = []
        """The text, or the thinking."""
        self.fragments: list[str] = []
        """The input's JSON text."""
        self.signature = ""
        self.citations: list[Any] = []
        self.call: int | None = None
        """Position of the call, of a tool of ours."""

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def input(self) -> Any:
        """The input of a tool that the provider runs: what was streamed, or what the block began with."""
        try:
            return msgspec.json.decode("".join(self.fragments)) if self.fragments else self.raw.get("input") or {}
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self.raw.get("input") or {}

    def whole(self) -> Wire:
        """The block as it goes back."""
        if self.kind == "text":
            return {"type": "text", "text": self.text} | ({"citations": self.citations} if self.citations else {})
        if self.kind == "thinking":
            return {"type": "thinking", "thinking": self.text, "signature": self.signature}
        return {**self.raw, "input": self.input()} if "input" in self.raw or self.fragments else self.raw

    def state(self) -> Wire:
        """The block without what the message has."""
        if self.kind == "tool_use":
            return {"type": "tool_use"}
        if self.kind not in ("text", "thinking"):
            return self.whole()
        kept: Wire = {"type": self.kind, "characters": len(self.text)}
        if self.kind == "thinking":
            return kept | {"signature": self.signature}
        return kept | ({"citations": self.citations} if self.citations else {})


def state_of(blocks: Sequence[Block]) -> dict[str, Any] | None:
    """The state of a turn; None where the message says it all."""
    if all(b.kind in ("text", "tool_use") and not b.citations for b in blocks):
        return None
    data: dict[str, Any] = {"content": [whole_characters(block.state()) for block in blocks]}
    if any(b.kind == "thinking" and b.parts for b in blocks):
        data["thinking"] = AS_REASONING
    return data


def written(message: AIMessage, calls: Sequence[Wire], state: Mapping[str, Any] | None, *, signed: bool) -> list[Wire]:
    """The blocks of a message: those of its state, if it has any, else its text and calls.

    Args:
        calls: its `tool_use` blocks.
        signed: thinking without a signature stays behind.
    """
    content = state.get("content") if state else None
    if state is None or not isinstance(content, list):
        return [*_text(message.text), *calls]
    thought = state.get("thinking")
    texts = _Pieces(message.text, content, "text")
    thoughts = _Pieces(message.reasoning if thought is AS_REASONING else str(thought or ""), content, "thinking")
    answered = [b.get("tool_use_id") for b in content if isinstance(b, dict)]
    out: list[Wire] = []
    rest = list(calls)
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            piece = _text(texts.take(block))
            out += [{**found, "citations": block["citations"]} for found in piece] if block.get("citations") else piece
        elif kind == "thinking":
            if thoughts.fit and (block.get("signature") or not signed):
                out.append({"type": "thinking", "thinking": thoughts.take(block), "signature": block["signature"]})
        # Redacted thinking stands with the rest of it: a turn has all of its thinking back, or none.
        elif kind == "redacted_thinking" and not thoughts.fit:
            continue
        elif kind == "tool_use":
            out += [rest.pop(0)] if rest else []
        # What the provider's own tool was asked, without its result, is refused.
        elif isinstance(kind, str) and (kind not in _ASKING or block.get("id") in answered):
            out.append(block)
    return [*out, *_text(texts.rest()), *rest]


_ASKING = frozenset({"server_tool_use", "mcp_tool_use"})


class _Pieces:
    """A text cut into the pieces that it came in; whole, where it was edited since."""

    def __init__(self, text: str, content: Sequence[Any], kind: str) -> None:
        of_kind = [b for b in content if isinstance(b, dict) and b.get("type") == kind]
        sizes = [size for b in of_kind if isinstance(size := b.get("characters"), int)]
        self.fit = len(sizes) == len(of_kind) and sum(sizes) == len(text)
        self._text, self._at = text, 0

    def take(self, block: Wire) -> str:
        if not self.fit:
            return self.rest()
        begin = self._at
        self._at += block["characters"]
        return self._text[begin : self._at]

    def rest(self) -> str:
        begin, self._at = self._at, len(self._text)
        return self._text[begin:]


def _text(text: str) -> list[Wire]:
    # "text content blocks must contain non-whitespace text", though the service itself sends such blocks.
    return [{"type": "text", "text": text}] if text.strip() else []
