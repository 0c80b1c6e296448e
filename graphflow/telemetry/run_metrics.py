"""Metrics of runs, streams and requests: a listener on runs, and the page `/metrics` (spec 3.2).

Values for runs come from their events, so they hold for every edge and every mode. Counters are those of this process
since it began; waiting threads and queued inputs are those of the whole store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from graphflow.events import ContentDelta, Event, NodeEnd, ReasoningDelta, RunCancel, RunComplete, RunError, RunWaiting
from graphflow.runtime.loop_watch import LoopWatch
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.context import ServiceContext
from graphflow.telemetry.metrics import Counter, Gauge, Histogram, Metric, render

Handler = Callable[[Any], None]
PAGE = 500
_TOKENS = ("promptTokens", "completionTokens", "reasoningTokens", "cachedTokens")
_ENDINGS: dict[type[Event], str] = {
    RunComplete: "completed",
    RunError: "failed",
    RunCancel: "cancelled",
    RunWaiting: "waiting",
}


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.runs = Counter("graphflow_runs_total", "Runs that ended, or pause for an answer.", ("status",))
        self.active = Gauge("graphflow_runs_active", "Runs that this process drives now.")
        self.waiting = Gauge("graphflow_threads_waiting", "Threads of the store that wait for an answer.")
        self.queued = Gauge("graphflow_queue_inputs", "Inputs of the store that wait for their turn.")
        self.model_calls = Counter("graphflow_model_calls_total", "Model calls of finished nodes.")
        self.tool_calls = Counter("graphflow_tool_calls_total", "Tool calls of finished nodes.")
        self.tokens = Counter("graphflow_tokens_total", "Tokens of finished nodes, as providers count them.", ("kind",))
        self.first_delta = Histogram(
            "graphflow_first_delta_seconds", "From a run's start, or its going on, to its first text."
        )
        self.nodes = Histogram("graphflow_node_seconds", "Time that finished nodes took.")
        self.streams = Gauge("graphflow_sse_clients", "Event streams that are open.")
        self.requests = Counter("graphflow_http_requests_total", "Requests answered.", ("method", "route", "status"))
        self.blocked = Gauge("graphflow_loop_blocked_seconds", "Longest time that the event loop was blocked.")
        self.loop: LoopWatch | None = None
        """What watches the server's event loop."""
        self._by_type: dict[type[Event], Handler] = {NodeEnd: self._node_ended}
        for ending, status in _ENDINGS.items():
            self._by_type[ending] = self._counted(status)

    def _counted(self, status: str) -> Handler:
        return lambda _: self.runs.add(1, status)

    def _node_ended(self, event: NodeEnd) -> None:
        self.nodes.observe(event.duration_ms / 1000)
        usage: Mapping[str, Any] = event.usage or {}
        self.model_calls.add(usage.get("modelCalls", 0))
        self.tool_calls.add(usage.get("toolCalls", 0))
        for kind in _TOKENS:
            if count := usage.get(kind):
                self.tokens.add(count, kind.removesuffix("Tokens"))

    # --- runs

    def listen(self, context: ServiceContext) -> None:
        """Watches every run on the store from now on."""
        context.registry.on_begin.append(self.watch)

    def leave(self, context: ServiceContext) -> None:
        context.registry.on_begin.remove(self.watch)

    def watch(self, live: LiveRun) -> None:
        """Sees the events of a run on their way; a delta after the first costs one look-up."""
        watchers = live.executor.events.watchers
        watchers.update(self._by_type)
        began = time.perf_counter()

        def first(_: Event) -> None:
            # Only the first delta is timed; without its watchers the others cost one look-up.
            del watchers[ContentDelta], watchers[ReasoningDelta]
            self.first_delta.observe(time.perf_counter() - began)

        watchers[ContentDelta] = watchers[ReasoningDelta] = first

    # --- the page

    async def page(self, context: ServiceContext) -> str:
        """The text that Prometheus reads.

        Raises:
            StoreError: the store can't be read.
        """
        await context.runs.ready()
        if self.loop is not None:
            self.blocked.set(round(self.loop.longest_s, 6))
        self.active.set(len(context.runs.by_thread))
        self.waiting.set(await context.store.thread_count("waiting"))
        self.queued.set(await context.store.queue_size("input"))
        return render(value for value in vars(self).values() if isinstance(value, Metric))
