"""What of a model's turn reaches the reader, as it comes: one delta in, at most one event of each block out (spec 1.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from graphflow.graph.engine.light_event import DONE, MaybeReady
from graphflow.graph.engine.node_run import NodeRun
from graphflow.nodes.reasoning_summary import Piece, SummaryReader

Stream = Literal["content", "reasoning", "hidden", "candidate"]
"""The target of a turn's text. `candidate`: none, as a `verify` node follows, unless the turn calls tools."""


class DeltaEmitter:
    """Sends the text and reasoning of one turn.

    A candidate is never shown, and only the first call shows that a turn is none. So
    its text is held back; the first call releases it as one delta per block, and later text passes at once.
    No other text is ever held back (E14): native reasoning is not part of a candidate and is streamed at once.

    Args:
        ctx: the context of the node run.
        stream: the target of the text.
        show_reasoning: whether readers see the reasoning.
        summary: the text is the JSON object that `SummaryReader` reads.
    """

    __slots__ = (
        "_ctx",
        "_held",
        "_kept_back",
        "_native",
        "_reader",
        "_reasoning",
        "_show_reasoning",
        "_stream",
        "_text",
    )

    def __init__(self, ctx: NodeRun, stream: Stream, *, show_reasoning: bool, summary: bool) -> None:
        self._ctx, self._stream = ctx, stream
        self._show_reasoning = show_reasoning and stream != "hidden"
        self._reader = SummaryReader() if summary else None
        self._kept_back = stream == "candidate"
        self._held: list[Piece] = []
        self._text: list[str] = []
        self._native: list[str] = []
        self._reasoning: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far, the summary of it included."""
        return "".join(self._reasoning)

    @property
    def shown_text(self) -> str:
        """The text so far without a candidate's."""
        return "" if self._kept_back else self.text

    @property
    def shown_reasoning(self) -> str:
        """The reasoning so far without a candidate's summary."""
        return "".join(self._native) if self._kept_back else self.reasoning

    def say(self, delta: str) -> MaybeReady:
        """Takes a piece of the turn's text."""
        if self._reader is not None:
            return self._pieces(self._reader.feed(delta))
        return self._say(delta)

    def think(self, delta: str) -> MaybeReady:
        """Takes a piece of the model's own reasoning."""
        self._native.append(delta)
        self._reasoning.append(delta)
        return self._ctx.reasoning(delta) if self._show_reasoning else DONE

    def calls(self) -> None:
        """Releases the held text: the turn calls a tool, so it is not a candidate."""
        if not self._kept_back:
            return
        self._kept_back, self._stream = False, "content"
        # Reasoning first, as it would have been streamed; blocks of both close each other.
        for field in ("reasoningSummary", "finalText"):
            if text := "".join(held for name, held in self._held if name == field):
                self._send_summary(text) if field == "reasoningSummary" else self._ctx.content(text)

    def end(self) -> MaybeReady:
        """Ends the turn: text that could still have become syntax is given out."""
        return DONE if self._reader is None else self._pieces(self._reader.end())

    def _pieces(self, pieces: Iterable[Piece]) -> MaybeReady:
        soon = DONE
        for field, text in pieces:
            sent = self._say(text) if field == "finalText" else self._summarize(text)
            # A field that is not shown must not hide that the reader has fallen behind with the other one.
            soon = soon if sent is DONE else sent
        return soon

    def _say(self, text: str) -> MaybeReady:
        self._text.append(text)
        if self._stream == "content":
            return self._ctx.content(text)
        if self._kept_back:
            self._held.append(("finalText", text))
        elif self._stream == "reasoning":
            return self._send_summary(text)
        return DONE

    def _summarize(self, text: str) -> MaybeReady:
        self._reasoning.append(text)
        if self._kept_back:
            self._held.append(("reasoningSummary", text))
            return DONE
        return self._send_summary(text)

    def _send_summary(self, text: str) -> MaybeReady:
        return self._ctx.reasoning(text) if self._show_reasoning else DONE
