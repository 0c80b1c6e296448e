"""How a life of a run begins: with new input, with answers, or by going on (E1, E2, E9, E12).

Each function takes the thread, checks, and gives a `Life` that only has to be driven. Whatever is refused is
refused before anything has changed, and the thread is given back.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.rows import Lineage, ThreadFacts, ThreadRow
from graphflow.errors import AnswerRefused, GraphflowError, ThreadNotFound, ThreadWaiting
from graphflow.events import Event, RunResume, RunStart
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import AnyTick, Cancel, Input, Recovered, Resumed
from graphflow.graph.engine.executor import Executor
from graphflow.runtime.history.effects import Choices, recalling
from graphflow.runtime.history.stored_events import stored_log
from graphflow.runtime.queue import Signal
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.answers import Answer, check_answers, questions_of
from graphflow.runtime.runs.concurrency import Audience, Begin, Life, after_rollback, check_turn, in_turn, take
from graphflow.runtime.runs.event_ring import RunLog
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns
from graphflow.runtime.runs.preconditions import (
    budget_figures,
    check_breakpoints,
    check_input,
    check_outcomes,
    check_signal,
    check_state,
    check_unfinished,
    is_awaited,
    overdue_in,
)

if TYPE_CHECKING:
    from graphflow.runtime.compiled_graph import CompiledGraph


NOBODY = Audience()
UNFINISHED = ("running", "waiting")
"""Statuses of a run that can be cancelled; `running` without a driver is one whose process died."""


class Lives:
    """Begins lives of one graph's runs."""

    def __init__(self, app: CompiledGraph) -> None:
        self._app = app

    def runs(self) -> LiveRuns | None:
        app = self._app
        return None if app.registry is None else app.registry.here(app.clock)

    def tick(self, cls: Any, **fields: Any) -> Any:
        """A tick with an id and the time."""
        return cls(id=self._app.ids.new_id(), at=self._app.clock.now_ms(), **fields)

    def new_lineage(self) -> int:
        return int(self._app.ids.random() * (1 << 48)) + 1

    # --- new input

    async def begin(self, request: RunRequest, audience: Audience = NOBODY, consumes: int | None = None) -> Life:
        """A life for a new input; see `CompiledGraph.run`.

        Args:
            consumes: position of the queued input that this is; it leaves the queue with the run's first commit.
        """
        app = self._app
        _one_of("durability", request.durability, ("async", "sync"))
        _one_of("onWaiting", request.on_waiting, ("reject", "cancel", "answer"))
        _one_of("onBusy", request.on_busy, ("reject", "enqueue", "interrupt", "rollback"))
        given = request.input
        given = {} if given is None else {"query": given} if isinstance(given, str) else given
        plan = app.plan
        check_input(plan, given)
        check_breakpoints(plan, request.interrupt_before, request.interrupt_after)
        limits = budget_figures(request.budget)
        app.documents.check_priced(plan, limits)
        thread_id = request.thread_id or app.ids.new_id()
        tick = self.tick(
            Input,
            run_id=request.run_id or app.ids.new_id(),
            input=freeze(given),
            limits={**plan.limits, **limits},
            before=tuple(request.interrupt_before),
            after=tuple(request.interrupt_after),
            params=freeze(request.params),
            durability=request.durability,
            document=plan.digest,
        )
        runs = self.runs()
        if runs is None:
            executor = self.executor(plan, Machine(), thread_id, audience=audience)
            return Life(LiveRun(executor, None, run_id=tick.run_id), tick, self._start(executor, audience, tick))
        begin = Begin(
            runs, thread_id, tick, audience, request.on_waiting, request.on_busy, request.title, consumes
        )  # fmt: skip
        if request.on_busy == "enqueue" and consumes is None:
            queued = msgspec.structs.replace(
                request, run_id=tick.run_id, input=given, agent_key=app.agent_key, holder=runs.store.owner
            )
            return await in_turn(self._begun, begin, queued)
        if request.on_busy == "rollback":
            return await after_rollback(app, self._begun, begin, request.effects)
        return await self._begun(begin)

    async def _begun(self, begin: Begin) -> Life:
        """The life of a new input, once the thread is this process's."""
        app, runs, thread_id, tick = self._app, begin.runs, begin.thread_id, begin.tick
        plan, audience, on_waiting = app.plan, begin.audience, begin.on_waiting
        async with self._taken(runs, thread_id, create=True, begin=begin) as row:
            await check_turn(begin, row)
            await app.documents.keep(plan)
            loaded = await runs.load(row)
            if loaded is not None and (loaded.machine.status == "waiting" or questions_of(loaded.machine)):
                if overdue := overdue_in(loaded.machine, app.clock.now_ms()):
                    return await self._after_expiry(row, overdue, lambda: self._begun(begin))
                if on_waiting == "answer" and begin.consumes is None:
                    return await self._answer_with(row, loaded, tick.input, audience)
                row, loaded = await self._close_questions(runs, on_waiting, row, loaded)
            elif loaded is not None and on_waiting != "cancel" and begin.consumes is None:
                check_outcomes(thread_id, loaded.machine)
            tick.id = app.ids.new_id()  # ids grow along a thread, and this input may have waited
            machine = Machine() if loaded is None else loaded.machine
            check_state(plan, machine)
            facts = ThreadFacts(
                status="running",
                run_id=tick.run_id,
                document=plan.digest,
                agent_key=app.agent_key or row.facts.agent_key,
                title=row.facts.title or begin.title,
            )
            begins = None if row.lineage is not None else Lineage(number=self.new_lineage(), thread_id=thread_id)
            journal = ThreadJournal(runs.store, row, facts, loaded=loaded, begins=begins)
            journal.consumes = begin.consumes
            run = self._life(plan, machine, row, journal, audience, run_id=tick.run_id, seq=0)
            return Life(run, tick, self._start(run.executor, audience, tick))

    async def _after_expiry(self, row: ThreadRow, overdue: list[str], then: Callable[[], Awaitable[Life]]) -> Life:
        """What was due before a call came happens first, to its end (E12)."""
        runs = self._need_runs()
        await runs.store.release(row.thread_id, row.fence)
        expired = await self.expiring(row.thread_id, overdue)
        await runs.drive(expired.run, expired.tick, expired.before)
        return await then()

    async def _answer_with(self, row: ThreadRow, loaded: Loaded, given: Any, audience: Audience) -> Life:
        """`onWaiting: answer`: the text is the answer, when exactly one open `ask` takes it (spec 2.4)."""
        text = given.get("query") if isinstance(given, Mapping) else None
        kinds = [interrupt.kind for interrupt in questions_of(loaded.machine)]
        if kinds != ["ask"]:
            raise AnswerRefused(
                f"onWaiting: answer needs exactly one open `ask`; open are {', '.join(kinds)}", code="answer_ambiguous"
            )
        checked = check_answers(loaded.machine, text)
        return await self._answered(row, loaded, checked, None, audience)

    async def _close_questions(
        self, runs: LiveRuns, on_waiting: str, row: ThreadRow, loaded: Loaded
    ) -> tuple[ThreadRow, Loaded]:
        """New input never silently drops a question: it is refused, or the questions are closed on record."""
        app = self._app
        open_ = [{"interruptId": i.id, "kind": i.kind, "node": i.node} for i in loaded.machine.interrupts.values()]
        if on_waiting != "cancel":
            raise ThreadWaiting(
                f"thread {row.thread_id!r} waits for {len(open_)} answer(s); answer first, or pass onWaiting: cancel",
                interrupts=open_,
            )
        plan = await app.documents.pinned(row.facts.document)
        journal = ThreadJournal(runs.store, row, row.facts, loaded=loaded, keep=True)
        executor = self.executor(plan, loaded.machine, row.thread_id, journal, seq=loaded.seq)
        executor.restore_log(list(loaded.pending))
        await executor.drive(self.tick(Cancel))
        await runs.tell(LiveRun(executor, journal))
        fresh = journal.as_loaded(executor.machine, executor.seq, executor.sent)
        return fresh.row, fresh

    # --- answers and going on

    async def answering(self, thread_id: str, answers: Any, by: str | None = None, audience: Audience = NOBODY) -> Life:
        """A life that begins with answers; all are checked before any is taken.

        What has expired is closed first, and an answer to it is stale (E12).
        """
        runs = self._need_runs()
        async with self._taken(runs, thread_id, frees=True) as row:
            loaded = await self._loaded(runs, row)
            overdue = overdue_in(loaded.machine, self._app.clock.now_ms())
            if not overdue:
                try:
                    checked = check_answers(loaded.machine, answers)
                except AnswerRefused as refusal:
                    raise await self._stale(thread_id, refusal) from None
                return await self._answered(row, loaded, checked, by, audience)
            return await self._after_expiry(row, overdue, lambda: self.answering(thread_id, answers, by, audience))

    async def _answered(
        self, row: ThreadRow, loaded: Loaded, checked: Sequence[Answer], by: str | None, audience: Audience
    ) -> Life:
        run = await self._going_on(row, loaded, audience)
        executor = run.executor
        if any(answer.decision == "terminate" for answer in checked):
            await executor.events.calls.learn()  # those that earlier lives have told of get a result too

        def before() -> None:
            self._take_up(executor, loaded, audience.preamble)
            executor.together = True
            for answer in checked:
                if answer.interrupt_id in executor.machine.interrupts:  # else another of these has closed it
                    executor.answer(answer.interrupt_id, answer.value, answer.decision, by)
            executor.together = False

        return Life(run, None, before)

    async def expiring(self, thread_id: str, interrupt_ids: Sequence[str], audience: Audience = NOBODY) -> Life:
        """A life that begins with the expiry of open interrupts (E12).

        Raises:
            AnswerRefused: `answer_stale` when none of them is open any more.
        """
        runs = self._need_runs()
        async with self._taken(runs, thread_id) as row:
            loaded = await self._loaded(runs, row)
            due = [key for key in interrupt_ids if key in loaded.machine.interrupts]
            if not due:
                raise AnswerRefused(f"nothing of thread {thread_id!r} expires any more", code="answer_stale")
            run = await self._going_on(row, loaded, audience)
        executor = run.executor

        def before() -> None:
            self._take_up(executor, loaded)
            executor.together = True
            for key in due:
                executor.expire(key)
            executor.together = False

        return Life(run, None, before)

    async def signalling(
        self, thread_id: str, signal: Signal, audience: Audience = NOBODY, *, position: int | None = None
    ) -> Life | None:
        """A life that goes on where a `wait` node takes the signal; None when the signal was kept for one to come.

        Args:
            position: its entry in the thread's queue, which goes with the commit.

        Raises:
            GraphflowError: `nothing_to_resume` when the thread has no unfinished run.
        """
        runs = self._need_runs()
        async with self._taken(runs, thread_id) as row:
            loaded = await self._loaded(runs, row)
            machine = loaded.machine
            check_signal(machine, signal.name)
            if not is_awaited(machine, signal.name):
                await self._keep_signal(runs, row, loaded, signal, position)
                return None
            run = await self._going_on(row, loaded, audience)
        executor, journal = run.executor, run.journal
        assert journal is not None

        def before() -> None:
            self._take_up(executor, loaded)
            runs.signal(run, journal, signal, position)

        return Life(run, None, before)

    async def _keep_signal(
        self, runs: LiveRuns, row: ThreadRow, loaded: Loaded, signal: Signal, position: int | None
    ) -> None:
        """Records the signal on a thread that nobody drives, for a `wait` node to come."""
        plan = await self._app.documents.pinned(row.facts.document)
        journal = ThreadJournal(runs.store, row, row.facts, loaded=loaded)
        executor = self.executor(plan, loaded.machine, row.thread_id, journal, seq=loaded.seq)
        executor.restore_log(list(loaded.pending))
        journal.consumes = position
        executor.signal(signal.name, signal.payload)
        await executor.flush()
        await journal.release()
        runs.keep_hot(journal.as_loaded(executor.machine, executor.seq, executor.sent))

    async def resuming(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        effects: Choices = None,
        budget: Mapping[str, Any] | None = None,
        audience: Audience = NOBODY,
    ) -> Life:
        """A life that goes on from the head, or from a checkpoint after a rewind to it.

        A crashed run keeps its id; one that ended in an error or was cancelled goes on as another run (E1).
        """
        figures = budget_figures(budget)
        runs = self._need_runs()
        if checkpoint_id is not None and not await self._stands_at(runs, thread_id, checkpoint_id):
            await self._app.thread(thread_id).rewind(checkpoint_id, effects=effects)
        async with self._taken(runs, thread_id) as row:
            loaded = await self._loaded(runs, row)
            machine = loaded.machine
            if machine.status == "waiting" and (overdue := overdue_in(machine, self._app.clock.now_ms())):
                await runs.store.release(thread_id, row.fence)
                return await self.expiring(thread_id, overdue, audience)
            check_unfinished(machine)
            crashed = machine.status == "running"
            run_id = machine.run_id if crashed else self._app.ids.new_id()
            run = await self._going_on(row, loaded, audience, run_id)
        fresh = self.tick(Resumed, run_id=run_id, limits=figures)
        tick: AnyTick = self.tick(Recovered) if crashed and not figures else fresh
        return Life(run, tick, _resume(run, loaded))

    async def cancelling(self, thread_id: str) -> bool:
        """Cancels a run that nobody drives: one that waits, or whose process has died. Whether there was one."""
        runs = self._need_runs()
        async with self._taken(runs, thread_id) as row:
            loaded = await self._loaded(runs, row)
            if loaded.machine.status not in UNFINISHED:
                await runs.store.release(thread_id, row.fence)
                return False
            plan = await self._app.documents.pinned(row.facts.document)
            journal = ThreadJournal(runs.store, row, row.facts, loaded=loaded)
            executor = self.executor(plan, loaded.machine, thread_id, journal, seq=loaded.seq)
            executor.restore_log(list(loaded.pending))
            executor.cancel()
            await executor.flush()
            await journal.release()
        runs.keep_hot(journal.as_loaded(executor.machine, executor.seq, executor.sent))
        await runs.tell(LiveRun(executor, journal))
        return True

    async def _stands_at(self, runs: LiveRuns, thread_id: str, checkpoint_id: str) -> bool:
        """Whether the checkpoint is the head: to name it is to go on, not to do anything again."""
        await runs.ready()
        row = await runs.store.thread(thread_id)
        return row is not None and row.head == checkpoint_id

    async def _going_on(self, row: ThreadRow, loaded: Loaded, audience: Audience, run_id: str | None = None) -> LiveRun:
        """The run of a taken thread, under the version that it is pinned to.

        Its log goes on, unless it does so as another run, `run_id`: that log begins with this life. Which of both is settled
        here, since whoever starts the life looks at the log's mark before the life has sent anything.
        """
        app = self._app
        assert app.checkpointer is not None
        plan = await app.documents.pinned(row.facts.document)
        journal = ThreadJournal(app.checkpointer, row, row.facts, loaded=loaded)
        if run_id is not None and run_id != loaded.machine.run_id:
            return self._life(plan, loaded.machine, row, journal, audience, run_id=run_id, seq=0)
        run = self._life(plan, loaded.machine, row, journal, audience, run_id=loaded.machine.run_id, seq=loaded.mark)
        run.executor.restore_log([entry for entry in loaded.pending if entry[0].seq <= loaded.mark])
        return run

    def _take_up(self, executor: Executor, loaded: Loaded, preamble: Iterable[Event] = ()) -> None:
        """Says that the run is resumed, just before what wakes it is fed.

        On a thread that was cut off, rewound, forked or edited, nodes may be unfinished beside the questions: with
        the answer the whole run goes on.
        """
        machine = loaded.machine
        executor.adopt()
        _say_again(executor, loaded)
        for event in preamble:
            executor.emit(event)
        executor.resuming = RunResume(
            run_id=machine.run_id, chat_id=executor.thread_id, checkpoint_id=executor.checkpoint_id or ""
        )
        if machine.status == "waiting":
            return
        executor.together = True
        crashed = machine.status == "running"
        executor.feed(self.tick(Recovered) if crashed else self.tick(Resumed, run_id=machine.run_id, limits={}))
        executor.together = False

    async def _stale(self, thread_id: str, refusal: AnswerRefused) -> AnswerRefused:
        """An id whose checkpoint the thread has was open once: `stale`, not `unmatched` (E8)."""
        asked, store = refusal.detail.get("interruptId", ""), self._app.checkpointer
        if refusal.code != "interrupt_not_found" or store is None or "." not in asked:
            return refusal
        if await store.load(thread_id, asked.rpartition(".")[0]) is None:
            return refusal
        text = f"interrupt {asked!r} was answered, closed or issued anew; nothing has changed"
        return AnswerRefused(text, code="answer_stale", interruptId=asked)

    # --- parts

    def _need_runs(self) -> LiveRuns:
        runs = self.runs()
        if runs is None:
            raise GraphflowError(
                "without a checkpointer no thread can go on; pass one to load_graph", code="nothing_to_resume"
            )
        return runs

    @asynccontextmanager
    async def _taken(
        self, runs: LiveRuns, thread_id: str, *, create: bool = False, begin: Begin | None = None, frees: bool = False
    ) -> AsyncIterator[ThreadRow]:
        """The thread, taken; given back if the block fails. See `busy.take`."""
        row = await take(runs, thread_id, create=create, begin=begin, frees=frees)
        try:
            yield row
        except BaseException:
            await runs.store.release(thread_id, row.fence)
            raise

    async def _loaded(self, runs: LiveRuns, row: ThreadRow) -> Loaded:
        loaded = await runs.load(row)
        if loaded is None:
            raise ThreadNotFound(f"thread {row.thread_id!r} has no checkpoint yet; run it first")
        return loaded

    def _life(
        self,
        plan: Plan,
        machine: Machine,
        row: ThreadRow,
        journal: ThreadJournal,
        audience: Audience,
        *,
        run_id: str,
        seq: int,
    ) -> LiveRun:
        log = RunLog(row.fence, seq) if audience.log else None
        executor = self.executor(plan, machine, row.thread_id, journal, audience=audience, log=log, seq=seq)
        run = LiveRun(executor, journal, log, run_id=run_id)
        runs = self._need_runs()
        run.lease = executor.lease = runs.lease_of(row, executor, audience.outbox or log)
        return run

    def _start(self, executor: Executor, audience: Audience, tick: Input) -> Callable[[], None]:
        def before() -> None:
            for event in audience.preamble:
                executor.emit(event)
            executor.emit(RunStart(run_id=tick.run_id, chat_id=executor.thread_id))
            tick.at = self._app.clock.now_ms()  # the commit is not older than what was said before it

        return before

    def executor(
        self,
        plan: Plan,
        machine: Machine,
        thread_id: str,
        journal: ThreadJournal | None = None,
        *,
        audience: Audience = NOBODY,
        log: RunLog | None = None,
        seq: int = 0,
    ) -> Executor:
        """The loop for one life; without a journal nothing is stored."""
        app, outbox = self._app, audience.outbox
        sink = outbox.put if outbox is not None else log.send if log is not None else None
        services: Mapping[str, Any] = app.services
        if machine.reuse and app.checkpointer is not None:
            services = ChainMap({"recall": recalling(app.checkpointer)}, services)  # type: ignore[arg-type] # only read
        executor = Executor(
            plan,
            machine,
            thread_id=thread_id,
            clock=app.clock,
            ids=app.ids,
            journal=journal,
            sink=sink,
            room=outbox.room if outbox is not None else None,
            services=services,
            hold_ms=audience.hold(),
            life=journal.row.fence if journal is not None else 1,
            lineage=journal.lineage if journal is not None else 0,
            seq=seq,
            checkpoint_id=journal.checkpoint_id if journal is not None else None,
        )
        if journal is not None and seq:
            executor.events.calls.recall = partial(_stored_events, journal, machine.run_id)
        return executor


async def _stored_events(journal: ThreadJournal, run_id: str) -> list[Event]:
    """What the lives of the run have sent, as far as it is stored."""
    log = await stored_log(journal.store, journal.row.thread_id, journal.chain, run_id, over=False)
    return [event for event, _ in log.events]


def _resume(run: LiveRun, loaded: Loaded) -> Callable[[], None]:
    def before() -> None:
        executor, thread_id, run_id = run.executor, run.thread_id, run.run_id
        if run_id == loaded.machine.run_id:
            _say_again(executor, loaded)
        else:
            executor.emit(RunStart(run_id=run_id, chat_id=thread_id))
        executor.emit(RunResume(run_id=run_id, chat_id=thread_id, checkpoint_id=executor.checkpoint_id or ""))

    return before


def _say_again(executor: Executor, loaded: Loaded) -> None:
    """After a crash: what followed the last commit may have reached nobody, so this life sends it (E1)."""
    executor.events.send_again((event, event.timestamp) for event, _ in loaded.pending if event.seq > loaded.mark)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise GraphflowError(f"{name} is {value!r}; it is one of {', '.join(allowed)}", code="invalid_input")
