"""What the readers of all protocols share: how much has arrived, the errors of a turn, and unreadable data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from graphflow.errors import ModelError
from graphflow.models.deltas import Delta
from graphflow.models.remote.failures import Masker, failure, in_band_failure
from graphflow.models.remote.loose_json import read_json
from graphflow.models.remote.sse_decoder import SseEvent

DONE = b"[DONE]"
Said = TypeVar("Said")
_MOST_TOKENS = 1 << 53
"""Larger counts are ignored: providers have sent `1e999`, and the store could not keep it."""


class TurnProgress:
    """Base of the readers of one turn, see `exchange.Reader`; `answer` names what the protocol calls a whole answer."""

    answer = "an answer"

    def __init__(self, provider: str, *, mask: Masker, warn: Callable[..., None], finish_optional: bool) -> None:
        self._provider = provider
        self._mask = mask
        self._warn = warn
        self._finish_optional = finish_optional
        self._characters = 0
        self._reasoning_characters = 0
        self.done = False
        """Nothing follows."""

    @property
    def call_count(self) -> int:
        """Tool calls so far."""
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """Whether the provider has said how the turn ends; later deltas still count."""
        raise NotImplementedError

    @property
    def progress(self) -> str:
        """What has arrived, for error texts: `after 12 characters of text and 1 tool call`."""
        parts = []
        if self._characters:
            parts.append(f"{self._characters} characters of text")
        if self._reasoning_characters:
            parts.append(f"{self._reasoning_characters} characters of reasoning")
        if self.call_count:
            parts.append(f"{self.call_count} tool call{'s' if self.call_count > 1 else ''}")
        return "after " + " and ".join(parts) if parts else "before anything came"

    @property
    def began(self) -> bool:
        """Whether anything that readers see has arrived."""
        return bool(self._characters or self._reasoning_characters or self.call_count)

    def feed(self, event: SseEvent, out: list[Delta]) -> None:
        """Adds the deltas of one event to `out`; what was added before an error stays valid."""
        raise NotImplementedError

    def feed_pending(self, event: SseEvent, out: list[Delta]) -> None:
        """Adds an event that the stream ended in the middle of: dropped unless it is whole JSON."""
        # Some servers leave out the blank line after their last event; half an event would be a false error.
        if event.error is None and event.name != "error" and event.data.strip() != DONE:
            try:
                read_json(event.data)
            except (ValueError, RecursionError):
                return
        self.feed(event, out)

    def leniently(self, data: bytes, read: Callable[[dict[str, Any]], Said]) -> Said | None:
        """What `read` makes of data that the typed decoder refused; None for what is no JSON object."""
        if data.strip() == DONE:
            self.done = True
            return None
        try:
            raw = read_json(data)
            # Gemini sends its errors as a list with one entry, also under OpenAI's protocol.
            raw = raw[0] if isinstance(raw, list) and raw else raw
            if isinstance(raw, dict):
                return read(raw)
        except (ValueError, RecursionError):
            pass
        self.skip_unreadable(data)
        return None

    def skip_unreadable(self, data: bytes) -> None:
        """Skips data that is not of the protocol, with a notice.

        Raises:
            ModelError: while the arguments of a call arrive.
        """
        # Skipping a piece of text loses a word; skipping one of a call's arguments could run another command.
        if self.call_count and not self.finished:
            excerpt = self._mask(data)
            raise failure(
                f"provider {self._provider!r} sent something unreadable among the arguments of a tool call: {excerpt}",
                "provider_error",
                self._provider,
                excerpt=excerpt,
                status=200,
            )
        self._warn("model.chunk_skipped", provider=self._provider, excerpt=self._mask(data))

    def in_band(self, payload: Any) -> ModelError:
        """The error that came in a stream which began as a success."""
        if isinstance(payload, bytes):
            try:
                payload = read_json(payload)
            except (ValueError, RecursionError):
                payload = payload.decode("utf-8", "replace")
        # Some gateways nest the provider's error in `message`.
        if isinstance(payload, dict) and isinstance(payload.get("message"), dict):
            payload = payload["message"]
        return in_band_failure(self._provider, payload, self._mask, progress=self.progress)

    def no_answer(self, what: str, body: bytes) -> ModelError:
        """The error for a success without an answer in it."""
        excerpt = self._mask(body)
        return failure(
            f"provider {self._provider!r} answered 200 with {what}: {excerpt}; check the base URL",
            "provider_error",
            self._provider,
            status=200,
            excerpt=excerpt,
        )

    def read_body(self, body: bytes) -> dict[str, Any]:
        """The JSON object of a body that was not streamed.

        Raises:
            ModelError: it is none.
        """
        try:
            raw = read_json(body)
        except (ValueError, RecursionError):
            raise self.no_answer("a body that is not JSON", body) from None
        # Some servers wrap the body in a list, as Gemini's compatible endpoint does with errors.
        if isinstance(raw, list) and raw:
            raw = raw[0]
        if not isinstance(raw, dict):
            raise self.no_answer(f"JSON that is not {self.answer}", body)
        return raw

    def truncated(self, beginning: bytes) -> ModelError:
        """The error for a stream that ended without its end; `beginning` is that of the body."""
        # The beginning of the body explains an empty stream (a proxy's page, say); after deltas it explains nothing.
        excerpt = "" if self.began else self._mask(beginning, cut=True)
        text = f"the stream of provider {self._provider!r} ended without a finish reason {self.progress}"
        return failure(
            f"{text}: {excerpt}" if excerpt else text,
            "stream_truncated",
            self._provider,
            status=200,
            excerpt=excerpt or None,
        )


def token_count(data: Any, name: str) -> int:
    """A count in a provider's usage object; 0 for what is none."""
    value = data.get(name) if isinstance(data, dict) else None
    # A negative or absurd count would corrupt budgets and the ledger, which only ever add.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST_TOKENS:
        return 0
    return int(value)
