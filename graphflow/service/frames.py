"""What the streams of runs are made of."""

from __future__ import annotations

from graphflow.events import TERMINAL, Event, RunWaiting

StreamFrame = tuple[str | None, Event]
"""An event and its SSE id; `stream.reset` has none."""
ENDS: tuple[type[Event], ...] = (*TERMINAL, RunWaiting)
"""What a stream ends with."""
