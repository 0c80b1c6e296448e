"""One turn of the Responses API: events in, deltas out, and how the turn ended.

The rules: `response.completed` or `response.incomplete` ends a turn, and a stream without either is cut; each item may
come in pieces, whole, or both, and is given out once; unknown events are skipped.
Events: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphflow.content import CitationPart
from graphflow.messages import Message
from graphflow.models.deltas import (
    Delta,
    Finish,
    FinishReason,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.reading import TurnProgress, token_count
from graphflow.models.remote.sse_decoder import SseEvent
from graphflow.models.remote.surrogate_pairs import HalvesJoiner
from graphflow.models.replay.call_ids import UniqueCallIds
from graphflow.models.replay.replay import Replay
from graphflow.models.responses.calls import ResponseCalls
from graphflow.models.responses.events import ResponseEvent, decode_event, lenient_event, part_texts
from graphflow.models.responses.output import HOSTED, OutputItems

_INCOMPLETE: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_messages": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}
_Place = tuple[int | None, int | None]
"""Indexes of the output item and of the part in it."""


class ResponseReader(TurnProgress):
    """Reads one turn. `feed` each event, then `close` once; both raise `ModelError`."""

    answer = "a response"

    def __init__(
        self,
        provider: str,
        messages: Sequence[Message],
        replay: Replay,
        *,
        finish_optional: bool,
        mask: Masker,
        new_token: Callable[[], str],
        warn: Callable[..., None],
    ) -> None:
        super().__init__(provider, mask=mask, warn=warn, finish_optional=finish_optional)
        self._replay = replay
        self._calls = ResponseCalls(UniqueCallIds(messages, new_token))
        self._items = OutputItems()
        self._halves = HalvesJoiner()
        self._texts: dict[_Place, int] = {}
        """Where the text of each part begins in the message's text."""
        self._thoughts: dict[int | None, str] = {}
        """Which of an item's two reasoning texts is shown: the one that came first."""
        self._cited: dict[_Place, int] = {}
        self._items_open = self._items_done = 0
        self._raw_reason: str | None = None
        self._reason: FinishReason | None = None
        self._refused = False
        self._usage: Any = None

    @property
    def call_count(self) -> int:
        return len(self._calls)

    @property
    def finished(self) -> bool:
        return self._raw_reason is not None

    # --- reading ---------------------------------------------------------------------------------

    def feed(self, event: SseEvent, out: list[Delta]) -> None:
        if event.error is not None:
            raise self.in_band(event.error)
        try:
            said = decode_event(event.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # An error of any shape; one of the protocol's shape was decoded.
            if event.name == "error":
                raise self.in_band(event.data) from None
            odd = self.leniently(event.data, self._lenient)
            if odd is None:
                return
            said = odd
        handler = _HANDLERS.get(said.type or event.name or "")
        if handler is not None:
            handler(self, said, out)
        elif said.error:
            raise self.in_band({"error": said.error})

    def feed_body(self, body: bytes, out: list[Delta]) -> None:
        """Reads a whole response that came as one JSON body although a stream was asked for."""
        raw = self.read_body(body)
        try:
            said = lenient_event({"response": raw, "error": raw.get("error")})
        except RecursionError:
            raise self.no_answer("a body that is not JSON", body) from None
        if said.error:
            raise self.in_band({"error": said.error})
        if not isinstance(raw.get("output"), list):
            raise self.no_answer("JSON without output", body)
        self._completed(said, out)

    def close(self, out: list[Delta], *, beginning: bytes = b"") -> None:
        """Ends the turn: adds what was held back, and `Finish`.

        Raises:
            ModelError: `stream_truncated` when the end of the response did not come.
        """
        if self._raw_reason is None and not self._whole_without_end():
            raise self.truncated(beginning)
        self._calls.close(out)
        items = self._items.state()
        if items is not None:
            out.append(StateDelta(self._replay.stamped({"output": items})))
        out.append(Finish(self._finish_reason(), self._raw_reason, _usage(self._usage)))

    def _whole_without_end(self) -> bool:
        # `finish_optional` services omit the end; [DONE], or items that all are finished, show that nothing was cut off.
        finished = self._items_done > 0 and self._items_open <= 0
        return self._finish_optional and self.began and (self.done or finished)

    def _finish_reason(self) -> FinishReason:
        if self._reason is not None:
            return self._reason
        if self._refused:
            return "content_filter"
        return "tool_calls" if len(self._calls) else "stop"

    def _lenient(self, raw: dict[str, Any]) -> ResponseEvent:
        said = lenient_event(raw)
        if said.delta is not None:
            channel = f"{said.type} {said.output_index} {said.content_index} {said.summary_index}"
            said.delta = self._halves.join(channel, said.delta)
        return said

    # --- text and reasoning ----------------------------------------------------------------------

    def _text_delta(self, event: ResponseEvent, out: list[Delta]) -> None:
        if event.delta:
            self._put_text((event.output_index, event.content_index), event.delta, out)

    def _text_done(self, event: ResponseEvent, out: list[Delta]) -> None:
        if event.text and not self._came(event.output_index, event.content_index):
            self._put_text((event.output_index, event.content_index), event.text, out)

    def _came(self, index: int | None, part: int | None = None) -> bool:
        """Whether text of this item (and part) has been given out; a missing index may be any."""
        return any(
            (index is None or known in (index, None)) and (part is None or inner in (part, None))
            for known, inner in self._texts
        )

    def _refusal_delta(self, event: ResponseEvent, out: list[Delta]) -> None:
        # A refusal takes the place of the answer: shown as text, else the reader would see nothing.
        self._refused = True
        self._text_delta(event, out)

    def _refusal_done(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._refused = True
        event.text = event.refusal
        self._text_done(event, out)

    def _put_text(self, place: _Place, text: str, out: list[Delta]) -> None:
        if place not in self._texts:
            self._texts[place] = self._characters
        self._characters += len(text)
        self._items.message(place[0])["characters"] += len(text)
        out.append(TextDelta(text))

    def _thought(self, kind: str, event: ResponseEvent, text: str | None, out: list[Delta]) -> None:
        # Some servers send the reasoning and a summary of it; both would say the same twice.
        if text and self._thoughts.setdefault(event.output_index, kind) == kind:
            self._reasoning_characters += len(text)
            out.append(ThinkingDelta(text))

    def _summary_delta(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._thought("summary", event, event.delta, out)

    def _reasoning_delta(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._thought("content", event, event.delta, out)

    def _summary_done(self, event: ResponseEvent, out: list[Delta]) -> None:
        if event.output_index not in self._thoughts:
            self._thought("summary", event, event.text, out)

    def _reasoning_done(self, event: ResponseEvent, out: list[Delta]) -> None:
        if event.output_index not in self._thoughts:
            self._thought("content", event, event.text, out)

    def _summary_part(self, event: ResponseEvent, out: list[Delta]) -> None:
        # Each part is a section with its own heading; nothing on the wire separates two.
        if event.summary_index and event.output_index in self._thoughts:
            self._thought("summary", event, "\n\n", out)

    def _annotation(self, event: ResponseEvent, out: list[Delta]) -> None:
        if event.annotation is not None:
            self._cite((event.output_index, event.content_index), event.annotation, out)

    def _cite(self, place: _Place, note: dict[str, Any], out: list[Delta]) -> None:
        self._cited[place] = self._cited.get(place, 0) + 1
        begin = self._texts.get(place, self._characters)
        start, end = (
            begin + token_count(note, name) if name in note else None for name in ("start_index", "end_index")
        )
        url, title, source = (
            value if isinstance(value, str) else None
            for value in (note.get("url"), note.get("title"), note.get("filename") or note.get("file_id"))
        )
        out.append(PartDelta(CitationPart(url=url, title=title, source=source, start=start, end=end)))

    # --- items -----------------------------------------------------------------------------------

    def _item_added(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._items_open += 1
        item = event.item or {}
        if item.get("type") == "function_call":
            self._items.call(event.output_index, self._calls.added(item, event.output_index, out))
        elif item.get("type") == "message":
            self._items.message(event.output_index, item)

    def _item_done(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._items_open -= 1
        self._items_done += 1
        item, index = event.item or {}, event.output_index
        kind = item.get("type")
        if kind == "function_call":
            self._items.call(index, self._calls.done(item, index, out))
        elif kind == "message":
            self._items.message(index, item)
            self._whole_message(item, index, out)
        elif kind == "reasoning":
            for name in ("summary", "content"):
                if index not in self._thoughts:
                    text = "\n\n".join(part_texts(item.get(name), f"{_PARTS[name]}_text"))
                    self._thought(name, event, text, out)
            self._items.whole(index, item)
        elif isinstance(kind, str) and kind in HOSTED:
            self._items.whole(index, item)

    def _whole_message(self, item: dict[str, Any], index: int | None, out: list[Delta]) -> None:
        """Gives out what of a finished message has not come in pieces."""
        parts = item.get("content")
        came = self._came(index)
        for number, part in enumerate(parts if isinstance(parts, list) else []):
            if not isinstance(part, dict):
                continue
            place = (index, number)
            if part.get("type") == "refusal":
                self._refused = True
            text = part.get("refusal" if part.get("type") == "refusal" else "text")
            if not came and isinstance(text, str) and text:
                self._put_text(place, text, out)
            notes = part.get("annotations")
            for note in (notes if isinstance(notes, list) else [])[self._cited.get(place, 0) :]:
                if isinstance(note, dict):
                    self._cite(place, note, out)

    def _arguments_delta(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._calls.delta(event, out)

    def _arguments_done(self, event: ResponseEvent, out: list[Delta]) -> None:
        self._calls.whole(event, out)

    # --- the end ---------------------------------------------------------------------------------

    def _completed(self, event: ResponseEvent, out: list[Delta]) -> None:
        response = event.response or {}
        status = response.get("status")
        if response.get("error") or status in ("failed", "cancelled"):
            self._failed(event, out)
        self._take_missed(response, out)
        self._usage = response.get("usage") or self._usage
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        if event.type == "response.incomplete" or status == "incomplete" or isinstance(reason, str):
            self._raw_reason = reason if isinstance(reason, str) and reason else "incomplete"
            # What is cut for an unknown reason must run no call either.
            self._reason = _INCOMPLETE.get(self._raw_reason, "length")
        else:
            self._raw_reason = "completed"
        self.done = True

    def _take_missed(self, response: dict[str, Any], out: list[Delta]) -> None:
        """Gives out items that only the finished response has: some gateways stream nothing of them."""
        given = response.get("output")
        output = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
        calls = [item for item in output if item.get("type") == "function_call"]
        for index, item in enumerate(output):
            kind = item.get("type")
            missed = {
                "message": not self._texts,
                "function_call": len(calls) > len(self._calls),
                "reasoning": not self._items.has_reasoning,
            }
            if missed.get(str(kind)):
                self._item_done(ResponseEvent(item=item, output_index=index), out)

    def _failed(self, event: ResponseEvent, out: list[Delta]) -> None:
        response = event.response or {}
        error = event.error or response.get("error") or {}
        if not isinstance(error, dict):
            raise self.in_band({"error": error})
        # Documented flat, sent nested in `error`, and at some gateways in both with one of them incomplete.
        said = {"code": event.code, "message": event.message} | {name: part for name, part in error.items() if part}
        if not said["message"]:
            said["message"] = said["code"] or f"the response is {response.get('status') or 'failed'}"
        raise self.in_band({"error": said})


_PARTS = {"summary": "summary", "content": "reasoning"}
_HANDLERS: dict[str, Callable[[ResponseReader, ResponseEvent, list[Delta]], None]] = {
    "response.output_text.delta": ResponseReader._text_delta,
    "response.output_text.done": ResponseReader._text_done,
    "response.refusal.delta": ResponseReader._refusal_delta,
    "response.refusal.done": ResponseReader._refusal_done,
    "response.reasoning_summary_text.delta": ResponseReader._summary_delta,
    "response.reasoning_summary_text.done": ResponseReader._summary_done,
    "response.reasoning_summary_part.added": ResponseReader._summary_part,
    "response.reasoning_text.delta": ResponseReader._reasoning_delta,
    "response.reasoning_text.done": ResponseReader._reasoning_done,
    # What these events were called before, and still are on servers of that time.
    "response.reasoning.delta": ResponseReader._reasoning_delta,
    "response.reasoning_summary.delta": ResponseReader._summary_delta,
    "response.output_text.annotation.added": ResponseReader._annotation,
    "response.output_item.added": ResponseReader._item_added,
    "response.output_item.done": ResponseReader._item_done,
    "response.function_call_arguments.delta": ResponseReader._arguments_delta,
    "response.function_call_arguments.done": ResponseReader._arguments_done,
    "response.completed": ResponseReader._completed,
    "response.done": ResponseReader._completed,
    "response.incomplete": ResponseReader._completed,
    "response.failed": ResponseReader._failed,
    "response.cancelled": ResponseReader._failed,
    "response.error": ResponseReader._failed,
    "error": ResponseReader._failed,
}


def _usage(raw: Any) -> Usage | None:
    if not isinstance(raw, dict) or not raw:
        return None
    details = raw.get("input_tokens_details")
    return Usage(
        prompt_tokens=token_count(raw, "input_tokens"),
        completion_tokens=token_count(raw, "output_tokens"),
        reasoning_tokens=token_count(raw.get("output_tokens_details"), "reasoning_tokens"),
        cached_tokens=token_count(details, "cached_tokens"),
        cache_write_tokens=token_count(details, "cache_write_tokens"),
    )
