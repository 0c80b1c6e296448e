"""The timers of one epoch: the run's deadline, time limits of open nodes, and back-offs (E11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from graphflow.graph.core.commands import Backoff
from graphflow.graph.core.ticks import BackoffOver, Deadline
from graphflow.graph.engine.node_runs import NodeRuns
from graphflow.graph.engine.run import Run


class Timers:
    """The timers of one epoch. An exception in one of them ends the run."""

    def __init__(self, run: Run, runs: NodeRuns) -> None:
        self._run, self._runs = run, runs
        self._deadline: asyncio.TimerHandle | None = None
        self._open: dict[int, asyncio.TimerHandle] = {}
        """Of open nodes with a time limit, by frame."""
        self.sleepers: set[asyncio.Task[None]] = set()
        """Of nodes that wait before their next attempt."""

    def keep_deadline(self) -> None:
        """Runs the timer of `timeoutMs` while the run is active; waiting for people is not active time."""
        machine = self._run.machine
        if machine.status == "waiting":
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None and "timeoutMs" in machine.limits:
            left = max(machine.limits["timeoutMs"] - machine.active_ms, 0)
            self._deadline = self.later(left / 1000, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        run = self._run
        machine = run.machine
        if machine.status != "running" or machine.wrapping:
            return
        now = run.clock.now_ms()
        # The timer uses the event loop's clock, the limit counts active time on the injected one: start the timer
        # again for the rest.
        if machine.active_ms + max(0, now - machine.last_at) < machine.limits["timeoutMs"]:
            self.keep_deadline()
            return
        # The tick that follows ends node runs, and blocks end before `node.error`.
        self._runs.close_blocks()
        run.feed(Deadline(id=run.ids.new_id(), at=now, partials=self._runs.partials("timeout")))

    def limit_open(self, number: int, spent_ms: int = 0) -> None:
        """Lets a `graph`, `map` or `parallel` node fail when its `timeoutMs` of active time is used up.

        Args:
            spent_ms: of that time, so far.
        """
        run = self._run
        frame = run.machine.frames[number]
        limit = run.plan.graphs[frame.graph].nodes[frame.node].timeout_s
        if limit is None or frame.opened is None:
            return
        begun, node_run_id = run.machine.active_ms - spent_ms, frame.opened.node_run_id
        left = max(0.0, limit - spent_ms / 1000)
        if (earlier := self._open.get(number)) is not None:
            earlier.cancel()  # of an earlier entry: in a cycle they would pile up
        self._open[number] = self.later(left, lambda: self._on_open_limit(number, node_run_id, begun))

    def _on_open_limit(self, number: int, node_run_id: str, begun: int) -> None:
        run = self._run
        machine = run.machine
        frame = machine.frames.get(number)
        # The timer may outlive its node: in a cycle the frame may have opened the same node again.
        if frame is None or frame.opened is None or frame.opened.node_run_id != node_run_id:
            return
        node = run.plan.graphs[frame.graph].nodes[frame.node]
        assert node.timeout_s is not None
        running = max(0, run.clock.now_ms() - machine.last_at) if machine.status == "running" else 0
        spent = machine.active_ms + running - begun
        if spent < node.timeout_s * 1000:
            self.limit_open(number, spent)
        else:
            run.feed(self._runs.failed_open(number, node))

    def back_off(self, command: Backoff) -> None:
        """Lets a node's next attempt begin when it is time."""
        sleeper = asyncio.ensure_future(self._sleep(command))  # noqa: TID251 - ended by drive
        self.sleepers.add(sleeper)
        sleeper.add_done_callback(self._woken)

    async def _sleep(self, command: Backoff) -> None:
        run = self._run
        await run.clock.sleep(max(0, command.until - run.clock.now_ms()) / 1000)
        frame = run.machine.frames.get(command.frame)
        # The run may have been cancelled, or the branch closed, during the sleep.
        if frame is not None and frame.status == "backoff" and not run.closed:
            run.feed(BackoffOver(id=run.ids.new_id(), at=run.clock.now_ms(), frame=command.frame))

    def _woken(self, sleeper: asyncio.Task[None]) -> None:
        self.sleepers.discard(sleeper)
        if not sleeper.cancelled() and (error := sleeper.exception()) is not None:
            self._run.fail(error)
        self._run.wake()

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls back after this time, unless the epoch has ended by then."""
        return asyncio.get_running_loop().call_later(seconds, self._ring, callback)

    def _ring(self, callback: Callable[[], None]) -> None:
        if self._run.closed:
            return
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - no caller would see it
            self._run.fail(error)

    def disarm(self) -> None:
        """No timer rings after this."""
        for timer in self._open.values():
            timer.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
