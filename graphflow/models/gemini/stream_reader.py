"""One turn of Gemini: chunks in, deltas out, and how the turn ended.

The rules: a finish reason ends a turn, and a stream without one is cut; the last usage wins; only candidate 0 counts; a
signature belongs to the part that carries it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphflow.content import AudioPart, CitationPart, FilePart, ImagePart
from graphflow.messages import Message
from graphflow.models.deltas import (
    Delta,
    Finish,
    FinishReason,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from graphflow.models.gemini.chunks import GeminiCall, GeminiChunk, GeminiPart, decode_chunk, lenient_chunk
from graphflow.models.remote.failures import Masker, failure
from graphflow.models.remote.finish_reasons import finish_reason, is_broken, is_known
from graphflow.models.remote.loose_json import read_json
from graphflow.models.remote.reading import TurnProgress, token_count
from graphflow.models.remote.sse_decoder import SseEvent
from graphflow.models.remote.surrogate_pairs import HalvesJoiner
from graphflow.models.replay.call_ids import UniqueCallIds
from graphflow.models.replay.replay import Replay
from graphflow.models.replay.signed_arguments import SIGNED, fingerprint


class GeminiReader(TurnProgress):
    """Reads one turn. `feed` each event, then `close` once; both raise `ModelError`."""

    answer = "an answer of Gemini"

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
        self._ids = UniqueCallIds(messages, new_token)
        self._halves = HalvesJoiner()
        self._calls = 0
        self._parts: list[dict[str, Any]] = []
        """What goes back: how many characters of the text, which call, which image, or a part whole; and its signature."""
        self._wanted = False
        """Whether any part has what goes back: a signature or an id."""
        self._media = 0
        self._sources: dict[str, Any] = {}
        self._raw_reason: str | None = None
        self._blocked = False
        self._usage: dict[str, Any] | None = None

    @property
    def call_count(self) -> int:
        return self._calls

    @property
    def finished(self) -> bool:
        return self._raw_reason is not None and (self.began or self._raw_reason != "STOP")

    # --- reading ---------------------------------------------------------------------------------

    def feed(self, event: SseEvent, out: list[Delta]) -> None:
        if event.error is not None or event.name == "error":
            raise self.in_band(event.error or event.data)
        try:
            chunk = decode_chunk(event.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            odd = self.leniently(event.data, lenient_chunk)
            if odd is None:
                return
            chunk = odd
        self._take(chunk, out)

    def feed_body(self, body: bytes, out: list[Delta]) -> None:
        """Reads an answer that came as one JSON body: an object, or without `alt=sse` a list of chunks."""
        try:
            raw = read_json(body)
            chunks = raw if isinstance(raw, list) and raw else [self.read_body(body)]
            taken = [lenient_chunk(chunk) for chunk in chunks if isinstance(chunk, dict)]
        except (ValueError, RecursionError):
            raise self.no_answer("a body that is not JSON", body) from None
        for chunk in taken:
            self._take(chunk, out)
        if not self.finished and not self.began:
            raise self.no_answer("JSON without candidates", body)
        self._finish_optional = self.done = True  # the body is closed, so nothing was cut off

    def close(self, out: list[Delta], *, beginning: bytes = b"") -> None:
        """Ends the turn: adds what was held back, and `Finish`.

        Raises:
            ModelError: `stream_truncated` when no finish reason came.
        """
        if self._raw_reason is None and not (self._finish_optional and self.began):
            raise self.truncated(beginning)
        self._cite(out)
        if self._wanted:
            out.append(StateDelta(self._replay.stamped({"parts": self._parts})))
        out.append(Finish(self._reason(), self._raw_reason, _usage(self._usage)))

    def _reason(self) -> FinishReason:
        raw = self._raw_reason
        if self._blocked:
            return "content_filter"
        if raw is not None and not is_known(raw):
            self._warn("model.finish_reason_unknown", provider=self._provider, finish_reason=raw)
        return finish_reason(raw, has_calls=bool(self._calls))

    def _take(self, chunk: GeminiChunk, out: list[Delta]) -> None:
        if chunk.error:
            raise self.in_band({"error": chunk.error})
        if chunk.usage_metadata is not None:
            self._usage = chunk.usage_metadata
        for candidate in chunk.candidates or ():
            if candidate.index:
                continue
            if candidate.content is not None and candidate.content.parts:
                before = len(out)
                for part in candidate.content.parts:
                    self._take_part(part, out)
                # Some gateways write STOP on chunks that precede the text: what follows it shows that it was no end.
                if len(out) > before and self._raw_reason == "STOP":
                    self._raw_reason = None
            for metadata in (candidate.grounding_metadata, candidate.citation_metadata):
                if metadata:
                    self._sources |= metadata
            if candidate.finish_reason:
                self._finish(candidate.finish_reason)
        feedback = chunk.prompt_feedback
        if feedback is not None and isinstance(reason := feedback.get("blockReason"), str):
            self._blocked, self._raw_reason = True, reason

    def _finish(self, reason: str) -> None:
        self._raw_reason = reason
        # Under the OpenAI protocol other servers may mean something else by this word.
        if is_broken(reason) or reason == "OTHER":
            text = f"provider {self._provider!r} broke off ({reason!r}) {self.progress}"
            raise failure(text, "provider_error", self._provider, status=200, excerpt=reason)

    # --- parts -----------------------------------------------------------------------------------

    def _take_part(self, part: GeminiPart, out: list[Delta]) -> None:
        text = part.text
        if text and not text.isascii():
            text = self._halves.join("thought" if part.thought else "text", text)
        if part.thought:
            if text:
                self._reasoning_characters += len(text)
                out.append(ThinkingDelta(text))
            if part.thought_signature:
                self._keep({"text": text or "", "thought": True}, part.thought_signature)
            return
        if part.function_call is not None:
            self._take_call(part.function_call, part.thought_signature, out)
            return
        if text:
            self._characters += len(text)
            out.append(TextDelta(text))
        if text or (part.thought_signature and part.inline_data is None and part.served() is None):
            self._add_text(len(text or ""), part.thought_signature)
        if part.inline_data is not None:
            self._take_data(part.inline_data, part.thought_signature, out)
        if (served := part.served()) is not None:
            self._keep(served, part.thought_signature)

    def _keep(self, part: dict[str, Any], signature: str | None) -> None:
        """Keeps a part that the message has no place for, whole."""
        self._wanted = True
        self._parts.append({"part": part} | self._signature(signature))

    def _add_text(self, size: int, signature: str | None) -> None:
        last = self._parts[-1] if self._parts else None
        # A part with a signature is not merged with one without: https://ai.google.dev/gemini-api/docs/thought-signatures
        if last is not None and "characters" in last and "signature" not in last and signature is None:
            last["characters"] += size
        else:
            self._parts.append({"characters": size} | self._signature(signature))

    def _signature(self, signature: str | None) -> dict[str, Any]:
        if not signature:
            return {}
        self._wanted = True
        return {"signature": signature}

    def _take_call(self, call: GeminiCall, signature: str | None, out: list[Delta]) -> None:
        if not call.name:
            return
        position, self._calls = self._calls, self._calls + 1
        arguments = "{}" if call.args is None else msgspec.json.encode(call.args).decode()
        wire_id = {"id": call.id} if call.id else {}
        self._wanted = self._wanted or bool(wire_id)
        signed = {SIGNED: fingerprint(arguments)} if signature else {}
        self._parts.append({"call": position} | wire_id | self._signature(signature) | signed)
        out.append(ToolCallDelta(position, self._ids.unique(call.id or None), call.name, arguments))

    def _take_data(self, data: dict[str, Any], signature: str | None, out: list[Delta]) -> None:
        media, encoded = data.get("mimeType"), data.get("data")
        if not isinstance(media, str) or not isinstance(encoded, str):
            return
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            self._warn("model.part_skipped", provider=self._provider, media_type=media)
            return
        kind = ImagePart if media.startswith("image/") else AudioPart if media.startswith("audio/") else FilePart
        self._parts.append({"media": self._media} | self._signature(signature))
        self._media += 1
        out.append(PartDelta(kind(data=content, media_type=media, size=len(content))))

    def _cite(self, out: list[Delta]) -> None:
        """Adds the sources: they come with the last chunks, and for the whole answer."""
        sources = [entry.get("web") for entry in _dicts(self._sources.get("groundingChunks"))]
        supported: dict[int, str] = {}
        for support in _dicts(self._sources.get("groundingSupports")):
            segment, indexes = support.get("segment"), support.get("groundingChunkIndices")
            said = segment.get("text") if isinstance(segment, dict) else None
            for index in indexes if isinstance(indexes, list) else ():
                if isinstance(index, int) and isinstance(said, str):
                    supported.setdefault(index, said)
        for index, source in enumerate(sources):
            if isinstance(source, dict):
                out.append(PartDelta(_citation(source, supported.get(index))))
        for name in ("citations", "citationSources"):
            for source in _dicts(self._sources.get(name)):
                out.append(PartDelta(_citation(source, None)))


def _citation(source: dict[str, Any], said: str | None) -> CitationPart:
    url, title = (value if isinstance(value := source.get(name), str) else None for name in ("uri", "title"))
    return CitationPart(url=url, title=title, text=said)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _usage(raw: dict[str, Any] | None) -> Usage | None:
    if not raw:
        return None
    thoughts = token_count(raw, "thoughtsTokenCount")
    return Usage(
        prompt_tokens=token_count(raw, "promptTokenCount") + token_count(raw, "toolUsePromptTokenCount"),
        completion_tokens=token_count(raw, "candidatesTokenCount") + thoughts,
        reasoning_tokens=thoughts,
        cached_tokens=token_count(raw, "cachedContentTokenCount"),
    )
