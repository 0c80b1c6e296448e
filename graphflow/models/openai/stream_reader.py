"""One turn of an OpenAI-compatible provider: events in, deltas out, and how the turn ended.

The rules: a finish reason, not `[DONE]`, means success; the last usage wins; only candidate 0
counts; unreadable data is skipped, except while a call's arguments arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphflow.messages import Message
from graphflow.models.deltas import Delta, Finish, FinishReason, TextDelta, ThinkingDelta, Usage
from graphflow.models.openai.chunk_halves import ChunkHalvesJoiner
from graphflow.models.openai.chunks import (
    CallPart,
    Chunk,
    ChunkChoice,
    DeltaPart,
    decode_chunk,
    lenient_chunk,
    whole_turn_chunk,
)
from graphflow.models.openai.state import StateCollector
from graphflow.models.openai.think_tags import ThinkSplitter
from graphflow.models.openai.tool_call_assembly import CallTable
from graphflow.models.options import ToolSpec
from graphflow.models.profiles import Profile
from graphflow.models.remote.failures import Masker, failure
from graphflow.models.remote.finish_reasons import finish_reason, is_broken, is_known
from graphflow.models.remote.reading import TurnProgress, token_count
from graphflow.models.remote.sse_decoder import SseEvent
from graphflow.models.replay.call_ids import UniqueCallIds
from graphflow.models.replay.replay import Replay


class TurnReader(TurnProgress):
    """Reads one turn. `feed` each event, then `close` once; both raise `ModelError`."""

    answer = "a chat completion"

    def __init__(
        self,
        provider: str,
        profile: Profile,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        replay: Replay,
        *,
        mask: Masker,
        new_token: Callable[[], str],
        warn: Callable[..., None],
    ) -> None:
        super().__init__(provider, mask=mask, warn=warn, finish_optional=profile.finish_optional)
        self._think = ThinkSplitter(inside=profile.think_tags == "open") if profile.think_tags else None
        self._mend = ChunkHalvesJoiner()
        self._state = StateCollector(replay)
        self._calls = CallTable(
            offered=[tool.name for tool in tools],
            ids=UniqueCallIds(messages, new_token),
            state=self._state,
        )
        self._raw_reason: str | None = None
        self._refused = False
        self._usage: dict[str, Any] | None = None

    @property
    def call_count(self) -> int:
        return len(self._calls)

    @property
    def finished(self) -> bool:
        """Whether a finish reason has come; later deltas still count."""
        return self._raw_reason is not None

    # --- reading ---------------------------------------------------------------------------------

    def feed(self, event: SseEvent, out: list[Delta]) -> None:
        """Adds the deltas of one event to `out`; what was added before an error stays valid."""
        # The payload of an error event has any shape or none, so the event's name alone decides.
        if event.error is not None or event.name == "error":
            raise self.in_band(event.error or event.data)
        try:
            chunk = decode_chunk(event.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            odd = self.leniently(event.data, lambda raw: self._mend.chunk(lenient_chunk(raw)))
            if odd is None:
                return
            chunk = odd
        self._take(chunk, out)

    def feed_body(self, body: bytes, out: list[Delta]) -> None:
        """Reads a whole turn that came as one JSON body although a stream was asked for."""
        raw = self.read_body(body)
        try:
            chunk = self._mend.chunk(whole_turn_chunk(raw))
        except RecursionError:
            raise self.no_answer("a body that is not JSON", body) from None
        self._finish_optional = True  # the body is closed, so nothing was cut off
        self._take(chunk, out)
        if not isinstance(raw.get("choices"), list) or not raw["choices"]:
            raise self.no_answer("JSON without choices", body)
        self.done = True

    def _take(self, chunk: Chunk, out: list[Delta]) -> None:
        if chunk.error:
            raise self.in_band({"error": chunk.error})
        # Usage is cumulative: of several usages the last one replaces the others.
        if chunk.usage is not None:
            self._usage = chunk.usage
        elif chunk.x_groq is not None:
            self._usage = _usage_inside(chunk.x_groq) or self._usage
        # The last chunk has no choices but a usage; some gateways send an error as a bare `message` without choices.
        if not chunk.choices:
            if chunk.message:
                raise self.in_band({"message": chunk.message})
            return
        for choice in chunk.choices:
            # One choice is asked for; a second one's deltas would mix into the same text.
            if not choice.index:
                self._take_choice(choice, out)

    def _take_choice(self, choice: ChunkChoice, out: list[Delta]) -> None:
        if choice.delta is not None:
            self._take_delta(choice.delta, out)
        if choice.usage is not None:
            self._usage = choice.usage
        if choice.finish_reason:
            # Not the end yet: the usage and, at some providers, further deltas follow the reason.
            self._raw_reason = choice.finish_reason
            if is_broken(choice.finish_reason):
                raise failure(
                    f"provider {self._provider!r} broke off ({choice.finish_reason!r}) {self.progress}",
                    "provider_error",
                    self._provider,
                    status=200,
                    excerpt=choice.finish_reason,
                )

    def _take_delta(self, delta: DeltaPart, out: list[Delta]) -> None:
        content, reasoning, calls = delta.content, delta.reasoning_content, delta.tool_calls
        # Nearly every chunk carries one plain text or call fragment; this path skips the checks for everything else.
        if (
            delta.reasoning is None
            and delta.reasoning_details is None
            and delta.extra_content is None
            and delta.refusal is None
            and self._think is None
        ):
            if calls is None:
                if delta.function_call is None and (content is None or content.__class__ is str):
                    if reasoning:
                        self._reasoning_characters += len(reasoning)
                        out.append(ThinkingDelta(reasoning))
                    if content:
                        self._characters += len(content)
                        out.append(TextDelta(content))
                    return
            elif not content and not reasoning:
                self._calls.take(calls, out)
                return
        self._take_odd_delta(delta, out)

    def _take_odd_delta(self, delta: DeltaPart, out: list[Delta]) -> None:
        # Some providers fill `reasoning_content` and `reasoning` with the same text; only one of them is taken.
        reasoning = delta.reasoning_content or (delta.reasoning if isinstance(delta.reasoning, str) else "")
        text = ""
        if isinstance(delta.content, str):
            text = delta.content
        elif isinstance(delta.content, list):
            text, thought = _parts(delta.content)
            reasoning = reasoning or thought
            for part in delta.content:
                if isinstance(part, dict) and isinstance(signature := part.get("signature"), str):
                    self._state.take_extra({"mistral": {"signature": signature}}, 0, 0, 0)
        if delta.reasoning_details:
            # The details often repeat the reasoning, so they are shown only where no plain text came with them.
            reasoning = reasoning or "".join(map(_detail_text, delta.reasoning_details))
            self._state.details(delta.reasoning_details)
        if delta.refusal:
            # A refusal takes the place of the answer: shown as text, else the reader would see nothing.
            self._refused = True
            text += delta.refusal
        if reasoning:
            self._reasoning_characters += len(reasoning)
            out.append(ThinkingDelta(reasoning))
        if text:
            self._take_text(text, out)
        if self._think is not None and (delta.tool_calls or delta.function_call):
            self._put_pieces(self._think.close(), out)  # no tag goes on behind a call
        if delta.tool_calls:
            self._calls.take(delta.tool_calls, out)
        elif delta.function_call is not None:
            self._calls.take([CallPart(function=delta.function_call)], out)
        if delta.extra_content is not None:
            self._state.take_extra(delta.extra_content, self._reasoning_characters, self._characters, len(self._calls))

    def _take_text(self, text: str, out: list[Delta]) -> None:
        if self._think is None:
            self._characters += len(text)
            out.append(TextDelta(text))
        else:
            self._put_pieces(self._think.feed(text), out)

    def _put_pieces(self, pieces: list[tuple[bool, str]], out: list[Delta]) -> None:
        for is_reasoning, piece in pieces:
            if is_reasoning:
                self._reasoning_characters += len(piece)
                out.append(ThinkingDelta(piece))
            else:
                self._characters += len(piece)
                out.append(TextDelta(piece))

    # --- the end ---------------------------------------------------------------------------------

    def close(self, out: list[Delta], *, beginning: bytes = b"") -> None:
        """Ends the turn: adds what was held back, and `Finish`.

        `beginning` is that of the body, shown in the error if nothing came of it.

        Raises:
            ModelError: `stream_truncated` when no finish reason came.
        """
        if self._raw_reason is None and not self._whole_without_reason():
            raise self.truncated(beginning)
        if self._think is not None:
            # Text that the splitter held back precedes the calls, as it did on the wire.
            self._put_pieces(self._think.close(), out)
            self._state.tagged = self._think.pieces
        self._calls.flush(out)
        self._state.close(
            out, reasoned=self._reasoning_characters, said=self._characters, arguments=self._calls.arguments()
        )
        out.append(Finish(self._reason(), self._raw_reason, read_usage(self._usage)))

    def _whole_without_reason(self) -> bool:
        # `finish_optional` providers omit the reason; [DONE] or a usage shows that the stream was not cut off.
        return self._finish_optional and self.began and (self.done or self._usage is not None)

    def _reason(self) -> FinishReason:
        raw = self._raw_reason
        if raw is not None and not is_known(raw):
            self._warn("model.finish_reason_unknown", provider=self._provider, finish_reason=raw)
        return finish_reason(raw, has_calls=len(self._calls) > 0, refused=self._refused)


def read_usage(raw: dict[str, Any] | None) -> Usage | None:
    """The provider's usage object in our words; `None` when there was none."""
    if not raw:
        return None
    prompt_details, output_details = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    # DeepSeek and Moonshot report cached tokens at the top, under names of their own.
    cached = token_count(prompt_details, "cached_tokens") or token_count(raw, "prompt_cache_hit_tokens")
    return Usage(
        prompt_tokens=token_count(raw, "prompt_tokens"),
        completion_tokens=token_count(raw, "completion_tokens"),
        reasoning_tokens=token_count(output_details, "reasoning_tokens") or token_count(raw, "reasoning_tokens"),
        cached_tokens=cached or token_count(raw, "cached_tokens"),
        cache_write_tokens=token_count(prompt_details, "cache_write_tokens"),
        cost_usd=_cost_usd(raw),
    )


def _cost_usd(raw: dict[str, Any]) -> float | None:
    """What the provider says that the call cost: OpenRouter in USD, xAI in 10⁻¹⁰ USD."""
    ticks = token_count(raw, "cost_in_usd_ticks")
    if ticks:
        return ticks / 10**10
    cost = raw.get("cost")
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < _MOST_USD:
        return None
    return float(cost)


_MOST_USD = 1_000_000
"""A larger cost of one call is no cost: it would end every budget."""


def _usage_inside(data: Any) -> dict[str, Any] | None:
    usage = data.get("usage") if isinstance(data, dict) else None
    return usage if isinstance(usage, dict) else None


def _parts(parts: list[Any]) -> tuple[str, str]:
    """Text and thinking of a content that is a list of parts."""
    text, thinking = [], []
    for part in parts:
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, dict):
            # Mistral nests a list of parts in `thinking`; others put a text there, or mark a text part by its type.
            inner = part.get("thinking")
            if isinstance(inner, list):
                thinking.append(_parts(inner)[0])
            elif isinstance(inner, str):
                thinking.append(inner)
            elif isinstance(part.get("text"), str):
                (thinking if part.get("type") == "thinking" else text).append(part["text"])
    return "".join(text), "".join(thinking)


def _detail_text(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    text = item.get("text") or item.get("summary")
    return text if isinstance(text, str) else ""
