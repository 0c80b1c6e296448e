"""Sees how long the event loop is blocked, and by which node: for servers, and for programs that ask for it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType
from typing import Any, Self

from graphflow.graph.engine.executor import Executor
from graphflow.graph.engine.scheduler import Scheduler

log = logging.getLogger("graphflow.runtime")

REPORT_S = 0.1
"""From here on a block is logged."""
BEAT_S = 0.02


class LoopWatch:
    """A context manager that watches the running event loop: `with graphflow.watch_loop() as watch: …`.

    The loop has a beat, and a beat that is late says how long something held the loop. Meanwhile a thread looks at what the
    loop's thread runs. A step of a run pays nothing for it.

    Args:
        report_s: from which time on a block is logged, with the node and the place in the code.
    """

    def __init__(self, report_s: float = REPORT_S) -> None:
        self.longest_s = 0.0
        """The longest time that the loop was blocked, in seconds."""
        self._report_s = report_s
        self._due = 0.0
        self._cpu = 0.0
        self._seen: tuple[float, dict[str, Any]] = (0.0, {})
        """The beat that was late when the thread looked, and what it saw."""
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        self._loop, self._ident = asyncio.get_running_loop(), threading.get_ident()
        self._beat_later()
        self._thread = threading.Thread(target=self._look, name="graphflow-loop-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat_later(self) -> None:
        self._cpu = time.thread_time()
        self._due = time.monotonic() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        late = time.monotonic() - self._due
        self.longest_s = max(self.longest_s, late)
        if late >= self._report_s:
            self._report(late)
        self._beat_later()

    def _report(self, late: float) -> None:
        due, seen = self._seen
        facts: dict[str, Any] = seen if due == self._due else {}
        # Without much CPU time of its own the thread slept, or the machine had none for it.
        facts = {**facts, "seconds": round(late, 3), "cpu_s": round(time.thread_time() - self._cpu, 3)}
        node = f"node {facts['node']!r}" if "node" in facts else "something outside of nodes"
        place = f", at {facts['at']}" if "at" in facts else ""
        log.warning("the event loop was blocked for %.3f s by %s%s", late, node, place, extra={"facts": facts})

    def _look(self) -> None:
        while not self._stop.wait(self._report_s / 4):
            due = self._due
            if time.monotonic() - due >= self._report_s / 2 and self._seen[0] != due:
                frame = sys._current_frames().get(self._ident)
                # Whoever holds the interpreter lock keeps this thread out: what is seen then is what comes right after.
                self._seen = due, {} if frame is None else what_runs(frame)


def what_runs(frame: FrameType) -> dict[str, Any]:
    """The node, run and thread that a stack belongs to, as far as it says, and the innermost place in the code."""
    out: dict[str, Any] = {"at": f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"}
    above: FrameType | None = frame
    while above is not None:
        if above.f_code in _KNOWN:
            held = above.f_locals
            run, node = held.get("run"), held.get("node")
            if node is None and (tick := held.get("tick")) is not None:
                node = _node_of(run, getattr(tick, "frame", None))
            if node is not None:
                out["node"] = node.name
            if run is not None:
                out |= {"thread_id": run.thread_id, "run_id": run.machine.run_id}
            break
        above = above.f_back
    return out


def _node_of(run: Any, number: int | None) -> Any:
    """The node whose end is being worked on."""
    frame = None if run is None else run.machine.frames.get(number)
    return None if frame is None else run.plan.graphs[frame.graph].nodes.get(frame.node)


_KNOWN = frozenset({Scheduler._call.__code__, Executor.feed.__code__})
"""Functions whose local variables say what is under way."""


def watch_loop(report_s: float = REPORT_S) -> LoopWatch:
    """Watches the running event loop inside a `with`; see `LoopWatch`. `graphflow serve` does."""
    return LoopWatch(report_s)
