"""What the tests' clients do with a stream: keep it, obey `stream.reset`, fold blocks into their snapshots."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from pydantic.alias_generators import to_camel

from graphflow.events import decode_event
from graphflow.runtime.run_request import RunRequest
from graphflow.server.bodies import QueryBody
from graphflow.service.application import Application
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.query import query
from graphflow.testing.stream_grammar import StreamRules

BLOCKS = {"content": "contentId", "reasoning": "reasoningId", "tool": "toolId", "action": "actionId"}
LIVE_ONLY = {"node.progress", "tool.progress"}
Events = list[dict[str, Any]]


class Client:
    """A client that keeps all that it is sent and drops what it is told to drop."""

    def __init__(self, events: Events = ()) -> None:  # type: ignore[assignment]
        self.events: Events = list(events)
        self.resets: list[int] = []
        self.last_id: str | None = None

    def take(self, sse_id: str | None, event: dict[str, Any]) -> None:
        if event["type"] == "stream.reset":
            assert sse_id is None, "a reset is no part of the log"
            self.resets.append(event["keepSeq"])
            self.events = [e for e in self.events if e["seq"] <= event["keepSeq"]]
            return
        assert sse_id is not None
        assert sse_id.partition("-")[2] == str(event["seq"])
        assert not self.events or event["seq"] > self.events[-1]["seq"], "numbers only increase"
        self.events.append(event)
        self.last_id = sse_id


def check_grammar(events: Events) -> None:
    """Holds what a client has of a run, from its first event on, against the grammar of streams."""
    rules = StreamRules(whole=False)
    if events and events[0]["seq"] == 1:
        for event in events:
            rules.take(decode_event(event))


def fold(events: Events) -> Events:
    """The log that these events stand for: each block as its snapshot, live-only events left out."""
    out: Events = []
    starts: dict[str, dict[str, Any]] = {}
    texts: dict[str, list[str]] = {}
    for event in events:
        kind, _, part = event["type"].partition(".")
        key = str(event.get(BLOCKS.get(kind, "")))
        if part == "start" and kind in BLOCKS:
            assert key not in starts, "an id is never opened again"
            starts[key], texts[key] = event, []
        elif part in ("delta", "args") and kind in BLOCKS:
            texts[key].append(event["delta"])
        elif part == "end" and kind in BLOCKS:
            out.append(_snapshot(kind, starts.pop(key), "".join(texts.pop(key)), event))
        elif event["type"] not in LIVE_ONLY:
            out.append(event)
    assert not starts, f"blocks are left open: {starts}"
    return out


def _snapshot(kind: str, start: dict[str, Any], text: str, end: dict[str, Any]) -> dict[str, Any]:
    fields = {k: v for k, v in start.items() if k not in ("type", "runId", "seq", "timestamp")}
    name = "text" if kind in ("content", "reasoning") else "arguments"
    return {"type": f"{kind}.snapshot", **fields, name: text, "seq": end["seq"], "timestamp": end["timestamp"]}


def query_of(message: str, **fields: Any) -> RunRequest:
    """What the server makes of a query's body."""
    return QueryBody(message=message, **{to_camel(name): value for name, value in fields.items()}).to_request()


async def begin(app: Application, request: RunRequest, *, hold_ms: int | None = None) -> StartedRun:
    """Begins the query, which nothing makes wait in a queue."""
    begun = await query(app, replace(request, hold_ms=hold_ms))
    assert isinstance(begun, StartedRun)
    return begun
