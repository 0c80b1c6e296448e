"""One turn of a provider of the Messages protocol: events in, deltas out, and how the turn ended.

A stop reason means success; usage is cumulative, so the last count of each kind stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphflow.content import CitationPart
from graphflow.models.anthropic.blocks import Block, state_of
from graphflow.models.anthropic.stream_events import BlockDelta, StreamEvent, decode_event, lenient_event
from graphflow.models.deltas import (
    Delta,
    Finish,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.finish_reasons import finish_reason, is_known
from graphflow.models.remote.reading import TurnProgress, token_count
from graphflow.models.remote.sse_decoder import SseEvent
from graphflow.models.remote.surrogate_pairs import HalvesJoiner
from graphflow.models.replay.call_ids import UniqueCallIds
from graphflow.models.replay.replay import Replay

_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class MessageReader(TurnProgress):
    """Reads one turn. `feed` each event, then `close` once; both raise `ModelError`."""

    answer = "a message"

    def __init__(
        self,
        provider: str,
        ids: UniqueCallIds,
        replay: Replay,
        *,
        mask: Masker,
        warn: Callable[..., None],
        finish_optional: bool = False,
        paused: MessageReader | None = None,
    ) -> None:
        """`paused` read the part of this turn after which the provider paused."""
        super().__init__(provider, mask=mask, warn=warn, finish_optional=finish_optional)
        self._ids, self._replay = ids, replay
        self.blocks: list[Block] = [] if paused is None else [*paused.blocks]
        """All of the turn, in the order in which they began."""
        self.container: str | None = None
        """Where the provider runs code, to be named when the turn goes on."""
        self._by_index: dict[int | None, Block] = {}
        self._calls: list[Block] = []
        self._halves = HalvesJoiner()
        self._stop: str | None = None
        self._usage: dict[str, int] = {}
        self._before = None if paused is None else paused.usage()
        if paused is not None:
            self._characters, self._reasoning_characters = paused._characters, paused._reasoning_characters

    @property
    def finished(self) -> bool:
        return self._stop is not None

    @property
    def call_count(self) -> int:
        return len(self._calls)

    # --- reading ---------------------------------------------------------------------------------

    def feed(self, event: SseEvent, out: list[Delta]) -> None:
        if event.error is not None or event.name == "error":
            raise self.in_band(event.error or event.data)
        try:
            said = decode_event(event.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            odd = self.leniently(event.data, lambda raw: lenient_event(raw, self._halves))
            if odd is None:
                return
            said = odd
        # Nearly every event: a piece of a block.
        if said.type == "content_block_delta":
            if said.delta is not None:
                self._take_delta(said.index, said.delta, out)
        else:
            self._take(said, out)

    def feed_body(self, body: bytes, out: list[Delta]) -> None:
        raw = self.read_body(body)
        content = raw.get("content")
        if raw.get("type") == "error" or raw.get("error"):
            raise self.in_band(raw)
        if not isinstance(content, list):
            raise self.no_answer("JSON without content", body)
        self._finish_optional = True  # the body is closed, so nothing was cut off
        self._count(raw.get("usage"))
        for index, block in enumerate(content):
            if isinstance(block, dict):
                self._take(
                    lenient_event(
                        {"type": "content_block_start", "index": index, "content_block": block}, self._halves
                    ),
                    out,
                )
        self._take(lenient_event({"type": "message_delta", "delta": raw}, self._halves), out)
        self.done = True

    def _take(self, said: StreamEvent, out: list[Delta]) -> None:
        match said.type:
            case "content_block_start":
                self._start(said.index, said.content_block or {}, out)
            case "content_block_stop":
                if (block := self._by_index.get(said.index)) is not None:
                    self._complete(block, out)
            case "message_delta":
                self._count(said.usage)
                if said.delta is not None and isinstance(said.delta.container, dict):
                    self.container = _said(said.delta.container, "id")
                if said.delta is not None and said.delta.stop_reason:
                    self._stop = said.delta.stop_reason
                    self._refusal(said.delta, out)
            case "message_start":
                self._count((said.message or {}).get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise self.in_band({"error": said.error})
            case _ if said.error:
                raise self.in_band({"error": said.error})
            # `ping`, and what later versions of the protocol add.

    def _start(self, index: int | None, raw: dict[str, Any], out: list[Delta]) -> None:
        kind = raw.get("type")
        block = Block(kind if isinstance(kind, str) else "", raw)
        self.blocks.append(block)
        self._by_index[index] = self._by_index[None] = block
        # The service begins blocks empty; servers like it put the beginning, or all of it, into the first event.
        given = BlockDelta(
            text=_said(raw, "text") if kind == "text" else None,
            thinking=_said(raw, "thinking") if kind == "thinking" else None,
            signature=_said(raw, "signature") if kind == "thinking" else None,
        )
        if kind == "tool_use":
            block.call = len(self._calls)
            self._calls.append(block)
            out.append(ToolCallDelta(block.call, self._ids.unique(_said(raw, "id")), _said(raw, "name") or "", ""))
        elif given.text or given.thinking or given.signature:
            self._take_delta(index, given, out)
        for citation in raw.get("citations") or () if kind == "text" else ():
            self._cite(block, citation, out)

    def _take_delta(self, index: int | None, delta: BlockDelta, out: list[Delta]) -> None:
        block = self._by_index.get(index)
        if (text := delta.text) is not None:
            if block is None or block.kind != "text":
                block = self._implied(index, "text")
            if text:
                block.parts.append(text)
                self._characters += len(text)
                out.append(TextDelta(text))
        elif (text := delta.partial_json) is not None:
            if block is None:
                self.skip_unreadable(b"input of a block that has not begun")
            elif text:
                block.fragments.append(text)
                if block.call is not None:
                    out.append(ToolCallDelta(block.call, None, None, text))
        elif delta.thinking is not None or delta.signature is not None:
            if block is None or block.kind != "thinking":
                block = self._implied(index, "thinking")
            # A signature comes whole, after the text that it signs.
            block.signature = delta.signature or block.signature
            if text := delta.thinking:
                block.parts.append(text)
                self._reasoning_characters += len(text)
                out.append(ThinkingDelta(text))
        elif delta.citation is not None and block is not None:
            self._cite(block, delta.citation, out)

    def _implied(self, index: int | None, kind: str) -> Block:
        """A block whose beginning was left out."""
        block = Block(kind, {"type": kind})
        self.blocks.append(block)
        self._by_index[index] = self._by_index[None] = block
        return block

    def _complete(self, block: Block, out: list[Delta]) -> None:
        """Gives a call without streamed input the input that it began with."""
        if block.call is not None and not block.fragments:
            given = block.raw.get("input")
            block.fragments.append(msgspec.json.encode(given if isinstance(given, dict) else {}).decode())
            out.append(ToolCallDelta(block.call, None, None, block.fragments[0]))

    def _cite(self, block: Block, citation: Any, out: list[Delta]) -> None:
        if not isinstance(citation, dict):
            return
        block.citations.append(citation)
        source = _said(citation, "source") or _said(citation, "document_title")
        # Where the cited text stands counts in the source; where it supports our text, nobody says.
        out.append(
            PartDelta(
                CitationPart(
                    url=_said(citation, "url"),
                    title=_said(citation, "title") or _said(citation, "document_title"),
                    text=_said(citation, "cited_text"),
                    source=source,
                )
            )
        )

    def _refusal(self, delta: BlockDelta, out: list[Delta]) -> None:
        # Shown as text where nothing else is, else the reader would see nothing.
        why = _said(delta.stop_details, "explanation") if isinstance(delta.stop_details, dict) else None
        if delta.stop_reason == "refusal" and why and not self._characters:
            self._characters += len(why)
            out.append(TextDelta(why))

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        counts = {name: token_count(usage, name) for name in _COUNTS}
        counts["thinking_tokens"] = token_count(usage.get("output_tokens_details"), "thinking_tokens")
        # Cumulative, and null or 0 in events that have nothing new to say of it.
        self._usage |= {name: count for name, count in counts.items() if count or name not in self._usage}

    # --- the end ---------------------------------------------------------------------------------

    def close(self, out: list[Delta], *, beginning: bytes = b"") -> None:
        if self._stop is None and not (self._finish_optional and self.began and self.done):
            raise self.truncated(beginning)
        for block in self._calls:
            self._complete(block, out)
        if (data := state_of(self.blocks)) is not None:
            out.append(StateDelta(self._replay.stamped(data)))
        raw = self._stop
        if raw is not None and not is_known(raw):
            self._warn("model.finish_reason_unknown", provider=self._provider, finish_reason=raw)
        # A pause with calls of ours waits for their results, as any turn with calls does.
        meant = "tool_use" if raw == "pause_turn" and self._calls else raw
        out.append(Finish(finish_reason(meant, has_calls=bool(self._calls)), raw, self.usage()))

    def usage(self) -> Usage | None:
        """All tokens of the turn; those before a pause were billed by themselves."""
        counts, before = self._usage, self._before
        if not counts:
            return before
        read, wrote = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
        used = Usage(
            # The protocol counts cached tokens beside the others.
            prompt_tokens=counts["input_tokens"] + read + wrote,
            completion_tokens=counts["output_tokens"],
            reasoning_tokens=counts["thinking_tokens"],
            cached_tokens=read,
            cache_write_tokens=wrote,
        )
        if before is None:
            return used
        return msgspec.structs.replace(used, **{name: getattr(used, name) + getattr(before, name) for name in _SUMMED})


_SUMMED = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens")


def wire_blocks(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """The blocks whole, for the request that goes on after a pause."""
    return [block.whole() for block in blocks if block.kind != "text" or block.text.strip()]


def _said(data: dict[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None
