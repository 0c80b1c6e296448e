"""What the journal tells of one run, and what its events tell of blocks, results and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from graphflow.events import (
    ActionResult,
    ActionSnapshot,
    ContentSnapshot,
    Event,
    NodeEnd,
    NodeError,
    NodeStart,
    ReasoningSnapshot,
    RequestQuery,
    ToolResultEvent,
    ToolSnapshot,
)
from graphflow.messages import Message

Ended = Literal["completed", "failed", "cancelled", "waiting"]
"""How a run's last epoch ended."""

Text = ContentSnapshot | ReasoningSnapshot
Call = ToolSnapshot | ActionSnapshot


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """A run's part in one record of the journal."""

    at: int
    """Epoch ms."""
    messages: tuple[Message, ...] = ()
    """Appended to the thread's messages by it."""
    events: tuple[Event, ...] = ()
    """Sent since the record before it; blocks as their snapshots."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A run as read from the journal."""

    chat_id: str
    run_id: str
    status: Ended
    parts: tuple[RunPart, ...]
    """Oldest first."""
    agent_key: str | None = None
    input: Mapping[str, Any] | None = None
    """The run's input; None for a run that was started by a rewind, a fork or a resume."""

    @property
    def query(self) -> RequestQuery | None:
        """The query that started the run; None for a run without a request."""
        events = (event for part in self.parts for event in part.events)
        return next((event for event in events if isinstance(event, RequestQuery)), None)


class Streamed:
    """The run's events by kind: blocks, results, times, and which blocks are void."""

    def __init__(self, run: RunFacts) -> None:
        self.texts: list[tuple[int, Text]] = []
        """(number of the part, block)."""
        self.calls: dict[str, Call] = {}
        self.results: dict[str, ToolResultEvent | ActionResult] = {}
        self.usage: dict[str, dict[str, int]] = {}
        """By node run."""
        self.timing: dict[int, int] = {}
        """Number of an event → milliseconds that it took."""
        self._since: dict[str | None, int] = {}
        self._place: dict[str, tuple[str, str | None]] = {}
        self._newest: dict[tuple[str, str | None], str] = {}
        self._ended: set[str] = set()
        self.erred: set[str | None] = set()
        """Node runs that have failed, whether they were retried or not."""
        for number, part in enumerate(run.parts):
            for event in part.events:
                self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        match event:
            case NodeStart():
                place = (event.node, event.path)
                self._place[event.node_run_id] = place
                self._newest[place] = event.node_run_id
                self._since[event.node_run_id] = event.timestamp
            case NodeEnd():
                self._ended.add(event.node_run_id)
                self.usage[event.node_run_id] = event.usage or {}
            case NodeError():
                self._ended.add(event.node_run_id)
                self.erred.add(event.node_run_id)
            case ContentSnapshot() | ReasoningSnapshot():
                self._time(event, event.node_run_id)
                self.texts.append((number, event))
            case ToolSnapshot() | ActionSnapshot():
                self._time(event, event.node_run_id)
                self.calls[call_id_of(event)] = event
            case ToolResultEvent() | ActionResult():
                call_id = call_id_of(event)
                if (call := self.calls.get(call_id)) is not None:
                    self.timing[event.seq] = event.timestamp - call.timestamp
                self.results[call_id] = event

    def _time(self, event: Event, node_run_id: str | None) -> None:
        """Records a block's duration: the time since its node began, or since the previous block there."""
        self.timing[event.seq] = event.timestamp - self._since.get(node_run_id, event.timestamp)
        self._since[node_run_id] = event.timestamp

    def is_void(self, node_run_id: str | None) -> bool:
        """Whether the node run died with its process, so that a later node run streamed its blocks again."""
        if node_run_id is None or node_run_id in self._ended:
            return False
        place = self._place.get(node_run_id)
        return place is not None and self._newest[place] != node_run_id


def call_id_of(event: Call | ToolResultEvent | ActionResult) -> str:
    return event.action_id if isinstance(event, ActionSnapshot | ActionResult) else event.tool_id


def block_id(block: Text) -> str:
    return block.content_id if isinstance(block, ContentSnapshot) else block.reasoning_id
