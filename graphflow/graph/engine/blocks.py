"""Blocks: the text and calls that one node run streams, as `*.start`, deltas and `*.end` (spec 3.3).

The closing rules: a start is lazy; reasoning and content close each other; tool or action input closes both;
an id is never opened again; closing everything goes reasoning, content, tools in the order of their opening.
One delta in, one event out, at once. `testing/stream_grammar.py` states the grammar that comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphflow.errors import StreamBroken
from graphflow.events import (
    ActionArgs,
    ActionEnd,
    ActionParam,
    ActionResult,
    ActionSnapshot,
    ActionStart,
    ContentDelta,
    ContentEnd,
    ContentSnapshot,
    ContentStart,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningSnapshot,
    ReasoningStart,
    SourceSnapshot,
    ToolArgs,
    ToolEnd,
    ToolProgress,
    ToolResultEvent,
    ToolSnapshot,
    ToolStart,
)
from graphflow.graph.engine.announced_calls import AnnouncedCalls

Emit = Callable[[Event], None]
EmitEnd = Callable[[Event, Event, int], None]
"""`(end, snapshot, first)`: the end goes out, the snapshot stands for the block from number `first` on (E1)."""


class _Text:
    __slots__ = ("first", "id", "parts")

    def __init__(self, block_id: str) -> None:
        self.id = block_id
        self.first = 0
        self.parts: list[str] = []


class _Call:
    __slots__ = ("action", "first", "id", "name", "parts", "start")

    def __init__(self, call_id: str, name: str | None, action: bool, start: dict[str, Any]) -> None:
        self.id, self.name, self.action, self.start = call_id, name, action, start
        self.first = 0
        self.parts: list[str] = []


class Blocks:
    """The open blocks of one node run.

    Args:
        told: the calls that were announced to readers; shared by the run's node runs.
        task_id: the active task; every block carries it.
    """

    __slots__ = (
        "_calls",
        "_content",
        "_emit",
        "_emit_end",
        "_new_id",
        "_reasoning",
        "_told",
        "node_run_id",
        "run_id",
        "task_id",
    )

    def __init__(
        self,
        emit: Emit,
        emit_end: EmitEnd,
        new_id: Callable[[str], str],
        told: AnnouncedCalls,
        run_id: str,
        node_run_id: str,
        task_id: str | None = None,
    ) -> None:
        self._emit, self._emit_end, self._new_id, self._told = emit, emit_end, new_id, told
        self.run_id, self.node_run_id, self.task_id = run_id, node_run_id, task_id
        self._content: _Text | None = None
        self._reasoning: _Text | None = None
        self._calls: dict[str, _Call] = {}

    def content(self, delta: str) -> None:
        """Streams text to the reader; opens a content block if none is open."""
        if not delta:
            return
        block = self._content
        if block is None:
            self._end_reasoning()
            block = self._content = _Text(self._new_id("content"))
            start = ContentStart(
                content_id=block.id, run_id=self.run_id, task_id=self.task_id, node_run_id=self.node_run_id
            )
            self._emit(start)
            block.first = start.seq
        block.parts.append(delta)
        self._emit(ContentDelta(content_id=block.id, delta=delta))

    def reasoning(self, delta: str) -> None:
        """Streams the model's reasoning; opens a reasoning block if none is open."""
        if not delta:
            return
        block = self._reasoning
        if block is None:
            self._end_content()
            block = self._reasoning = _Text(self._new_id("reasoning"))
            start = ReasoningStart(
                reasoning_id=block.id, run_id=self.run_id, task_id=self.task_id, node_run_id=self.node_run_id
            )
            self._emit(start)
            block.first = start.seq
        block.parts.append(delta)
        self._emit(ReasoningDelta(reasoning_id=block.id, delta=delta))

    def call_start(self, call_id: str, name: str | None, *, action: bool = False, **facts: Any) -> None:
        """A tool or action call begins; `facts` are further fields of its start event.

        A call that the run's readers have seen already (a node that is entered again says so once more) is not
        opened again, and its input is not repeated.
        """
        if call_id in self._told.started:
            return
        self._end_reasoning()
        self._end_content()
        call = self._calls[call_id] = _Call(call_id, name, action, facts)
        # Shared by the run: a node that is entered again streams the same call, and its readers have it already.
        self._told.started[call_id] = action
        common: dict[str, Any] = {"run_id": self.run_id, "task_id": self.task_id, "node_run_id": self.node_run_id}
        start: Event
        if action:
            start = ActionStart(action_id=call_id, action_name=name, **common, **facts)
        else:
            start = ToolStart(tool_id=call_id, tool_name=name, **common, **facts)
        self._emit(start)
        call.first = start.seq

    def whole_call(self, call_id: str, name: str | None, arguments: str, *, action: bool = False, **facts: Any) -> None:
        """Streams a call with its whole input at once; no effect if it was announced already."""
        if not self._told.knows(call_id):
            self.call_start(call_id, name, action=action, **facts)
            self.call_args(call_id, arguments)
            self.call_end(call_id)

    def call_args(self, call_id: str, delta: str) -> None:
        """A piece of the call's arguments, as it came.

        Raises:
            StreamBroken: no call of this id has begun.
        """
        call = self._calls.get(call_id)
        if call is None:
            if call_id in self._told.started:
                return
            raise StreamBroken(f"arguments for the call {call_id!r}, which has not begun; call_start comes first")
        if not delta:
            return
        if self._content is not None or self._reasoning is not None:
            self._end_reasoning()
            self._end_content()
        index = len(call.parts)
        call.parts.append(delta)
        if call.action:
            self._emit(ActionArgs(action_id=call_id, delta=delta))
        else:
            self._emit(ToolArgs(tool_id=call_id, delta=delta, chunk_index=index))

    def call_end(self, call_id: str) -> None:
        """The call's arguments are whole."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        common: dict[str, Any] = {
            "task_id": self.task_id,
            "node_run_id": self.node_run_id,
            "arguments": "".join(call.parts),
        }
        if call.action:
            snapshot: Event = ActionSnapshot(action_id=call_id, action_name=call.name, **common, **call.start)
            self._emit_end(ActionEnd(action_id=call_id), snapshot, call.first)
        else:
            snapshot = ToolSnapshot(tool_id=call_id, tool_name=call.name, **common, **call.start)
            self._emit_end(ToolEnd(tool_id=call_id), snapshot, call.first)

    def tool_result(self, call_id: str, text: str) -> None:
        """The call's result; no effect when readers have it already."""
        if call_id in self._told.answered:
            return
        self._told.answered[call_id] = text
        self._close_input(call_id, action=False)
        self._emit(ToolResultEvent(tool_id=call_id, result=text))

    def action_result(self, call_id: str, param: Any, result: Any) -> None:
        """`action.end`, the parsed arguments once (if they parse), the result; no effect when readers have it."""
        if call_id in self._told.answered:
            return
        self._told.answered[call_id] = result
        self._close_input(call_id, action=True)
        if param is not None:
            self._emit(ActionParam(action_id=call_id, param=param))
        self._emit(ActionResult(action_id=call_id, result=result))

    def _close_input(self, call_id: str, *, action: bool) -> None:
        """Ends the call's input before its result; a call that was never streamed is announced first."""
        if not self._told.knows(call_id):
            self.call_start(call_id, None, action=action)
        self.call_end(call_id)

    def tool_progress(self, call_id: str, data: Any) -> None:
        self._emit(ToolProgress(tool_id=call_id, data=data))

    def source(self, facts: dict[str, Any]) -> None:
        self._emit(SourceSnapshot(run_id=self.run_id, task_id=self.task_id, **facts))

    def close(self) -> None:
        """Ends whatever is open; nothing may be open at the node's end, a pause or a terminal."""
        self._end_reasoning()
        self._end_content()
        for call_id in list(self._calls):
            self.call_end(call_id)

    def _end_content(self) -> None:
        block, self._content = self._content, None
        if block is not None:
            self._emit_end(
                ContentEnd(content_id=block.id),
                ContentSnapshot(
                    content_id=block.id, text="".join(block.parts), task_id=self.task_id, node_run_id=self.node_run_id
                ),
                block.first,
            )

    def _end_reasoning(self) -> None:
        block, self._reasoning = self._reasoning, None
        if block is not None:
            self._emit_end(
                ReasoningEnd(reasoning_id=block.id),
                ReasoningSnapshot(
                    reasoning_id=block.id, text="".join(block.parts), task_id=self.task_id, node_run_id=self.node_run_id
                ),
                block.first,
            )
