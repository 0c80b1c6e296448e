"""`CompiledGraph`: a document ready to run on threads; what `load_graph` and `Graph.compile` give.

Attached calls (`run`, `stream`, `answer`, …) drive the run in the caller's task: leaving cancels it. `launch`
starts a detached life for servers (E18).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphflow.checkpoints.journal import Loaded, ThreadJournal
from graphflow.checkpoints.port import Checkpointer, Lineage, ThreadFacts, ThreadRow
from graphflow.errors import AnswerRefused, GraphflowError, StateError, ThreadBusy, ThreadNotFound, ThreadWaiting
from graphflow.events import Event, RunResume, RunStart
from graphflow.graph.context import _DONE, _Soon
from graphflow.graph.executor import Executor
from graphflow.graph.machine import AnyTick, Cancel, Input, Machine, Recovered, Resumed
from graphflow.graph.plan import Plan, limits_of
from graphflow.graph.ports import Clock, Ids, Kinds
from graphflow.graph.state import freeze
from graphflow.runtime.answers import Answer, check_answers
from graphflow.runtime.documents import Documents
from graphflow.runtime.identity import SystemClock, Uuid7Ids
from graphflow.runtime.live import LiveRun, Runs
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.run_log import RunLog
from graphflow.runtime.sync import blocking, blocking_stream

if TYPE_CHECKING:
    from graphflow.graph.compiler import CheckedDocument
    from graphflow.runtime.thread import Thread

STREAM_ROOM = 256
"""Events that an attached stream may be ahead of its consumer before the run waits for it."""


class CompiledGraph:
    """A graph that runs.

    Args:
        checked: the document, or a function that makes it when it is first needed.
        kinds: what its nodes may use.
        checkpointer: where threads live; without one a run leaves nothing behind.
        services: what nodes reach through `ctx`: models, tools, the long-term store.
        agent_key: the agent that threads begun here belong to.
    """

    def __init__(
        self,
        checked: CheckedDocument | Callable[[], CheckedDocument],
        *,
        kinds: Kinds,
        checkpointer: Checkpointer | None = None,
        services: Mapping[str, Any] | None = None,
        agent_key: str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.documents = Documents(checked, kinds, checkpointer)
        self.checkpointer = checkpointer
        self.services: Mapping[str, Any] = {} if services is None else services
        self.agent_key = agent_key
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or Uuid7Ids()

    @property
    def plan(self) -> Plan:
        """The compiled plan of the newest version.

        Raises:
            DefinitionError: the document has faults.
        """
        return self.documents.newest()

    @property
    def version(self) -> str:
        """The document's content hash (E23)."""
        return self.plan.digest

    # --- running

    async def run(self, input: Any = None, thread_id: str | None = None, **options: Any) -> RunResult:
        """Runs one input to its end or to its first question.

        Options: `durability` (`async` or `sync`), `budget` (figures over the document's), `interrupt_before`,
        `interrupt_after`, `params`, `on_waiting` (`reject`, `cancel`, `answer`).

        Raises:
            ThreadBusy: another run drives the thread.
            ThreadWaiting: the thread waits for an answer.
            GraphflowError: `invalid_input`.
        """
        life, tick, before = await self._begin(input, thread_id, **options)
        return await self._finish(life, tick, before)

    async def stream(self, input: Any = None, thread_id: str | None = None, **options: Any) -> AsyncIterator[Event]:
        """The same run as its events, at the consumer's pace; leaving the loop cancels the run."""
        outbox = Outbox()
        life, tick, before = await self._begin(input, thread_id, outbox=outbox, **options)
        async for event in self._streamed(outbox, life, tick, before):
            yield event

    async def answer(self, thread_id: str, answers: Any, *, by: str | None = None) -> RunResult:
        """Commits answers, by interrupt id or bare while exactly one question is open, and goes on.

        Raises:
            AnswerRefused: unknown, stale, ambiguous or ill-typed; nothing has changed.
        """
        life, tick, before = await self._answering(thread_id, answers, by)
        return await self._finish(life, tick, before)

    async def stream_answer(self, thread_id: str, answers: Any, *, by: str | None = None) -> AsyncIterator[Event]:
        """The events of `answer`."""
        outbox = Outbox()
        life, tick, before = await self._answering(thread_id, answers, by, outbox=outbox)
        async for event in self._streamed(outbox, life, tick, before):
            yield event

    async def resume(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        effects: str | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> RunResult:
        """Goes on from the head, or from a checkpoint after a rewind to it."""
        life, tick, before = await self._resuming(thread_id, checkpoint_id, effects, budget)
        return await self._finish(life, tick, before)

    async def stream_resume(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        effects: str | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Event]:
        """The events of `resume`."""
        outbox = Outbox()
        life, tick, before = await self._resuming(thread_id, checkpoint_id, effects, budget, outbox=outbox)
        async for event in self._streamed(outbox, life, tick, before):
            yield event

    async def batch(
        self, inputs: Sequence[Any], *, max_concurrency: int = 8, return_exceptions: bool = False, **options: Any
    ) -> list[Any]:
        """Runs every input on a thread of its own; results in the order of the inputs.

        The first exception is raised after the rest is cancelled, or stands in its place with `return_exceptions`.
        """
        gate = asyncio.Semaphore(max_concurrency)

        async def one(given: Any) -> Any:
            async with gate:
                try:
                    return await self.run(given, **options)
                except Exception as error:
                    if return_exceptions:
                        return error
                    raise

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(given)) for given in inputs]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def thread(self, thread_id: str) -> Thread:
        """History, states and time travel of one thread."""
        from graphflow.runtime.thread import Thread

        return Thread(self, thread_id)

    run_sync = blocking(run)
    answer_sync = blocking(answer)
    resume_sync = blocking(resume)
    batch_sync = blocking(batch)
    stream_sync = blocking_stream(stream)

    # --- detached lives, for servers

    async def launch(
        self,
        input: Any,
        thread_id: str | None = None,
        *,
        preamble: Iterable[Event] = (),
        hold_ms: int | None = None,
        **options: Any,
    ) -> LiveRun:
        """Starts a run that no caller drives; `LiveRun.log` has its events.

        Args:
            preamble: events before `run.start` (`request.query`, `chat.start`), sent before anything runs.
        """
        life, tick, before = await self._begin(
            input, thread_id, log=True, hold_ms=hold_ms, preamble=tuple(preamble), **options
        )
        runs = self._runs()
        assert runs is not None
        runs.start(life, tick, before)
        return life

    async def launch_answer(
        self,
        thread_id: str,
        answers: Any,
        *,
        by: str | None = None,
        preamble: Iterable[Event] = (),
        hold_ms: int | None = None,
    ) -> LiveRun:
        """Answers a thread that no process drives, and goes on detached."""
        life, tick, before = await self._answering(
            thread_id, answers, by, log=True, hold_ms=hold_ms, preamble=tuple(preamble)
        )
        runs = self._runs()
        assert runs is not None
        runs.start(life, tick, before)
        return life

    async def launch_resume(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        effects: str | None = None,
        budget: Mapping[str, Any] | None = None,
        hold_ms: int | None = None,
    ) -> LiveRun:
        """Goes on detached."""
        life, tick, before = await self._resuming(thread_id, checkpoint_id, effects, budget, log=True, hold_ms=hold_ms)
        runs = self._runs()
        assert runs is not None
        runs.start(life, tick, before)
        return life

    def live(self, thread_id: str) -> LiveRun | None:
        """The run of this process that drives the thread, if any."""
        runs = self._runs()
        return None if runs is None else runs.by_thread.get(thread_id)

    # --- beginning a life

    def _runs(self) -> Runs | None:
        return None if self.checkpointer is None else Runs.over(self.checkpointer, self.clock)

    async def _begin(
        self,
        given: Any,
        thread_id: str | None,
        *,
        durability: str = "async",
        budget: Mapping[str, Any] | None = None,
        interrupt_before: Sequence[str] = (),
        interrupt_after: Sequence[str] = (),
        params: Any = None,
        on_waiting: str = "reject",
        on_busy: str = "reject",
        run_id: str | None = None,
        title: str | None = None,
        preamble: tuple[Event, ...] = (),
        hold_ms: int | None = None,
        outbox: Outbox | None = None,
        log: bool = False,
    ) -> Life:
        if durability not in ("async", "sync"):
            raise GraphflowError(f"durability is {durability!r}; it is 'async' or 'sync'", code="invalid_input")
        given = {} if given is None else {"query": given} if isinstance(given, str) else given
        plan = self.plan
        check_input(plan, given)
        thread_id = thread_id or self.ids.new_id()
        tick = Input(
            id=self.ids.new_id(),
            at=self.clock.now_ms(),
            run_id=run_id or self.ids.new_id(),
            input=freeze(given),
            limits={**plan.limits, **budget_figures(budget)},
            before=tuple(interrupt_before),
            after=tuple(interrupt_after),
            params=freeze(params),
            durability=durability,
        )
        runs = self._runs()
        if runs is None:
            executor = self._executor(plan, Machine(), thread_id, None, 1, outbox, None, hold_ms)
            return LiveRun(executor, None), tick, self._preamble(executor, preamble, tick.run_id)
        if (busy := runs.by_thread.get(thread_id)) is not None:
            await self._make_way(busy, on_busy)
        row = await runs.take(thread_id)
        try:
            await self.documents.keep(plan)
            loaded = await runs.load(row)
            machine = Machine() if loaded is None else loaded.machine
            if machine.status == "waiting":
                row, loaded = await self._while_waiting(on_waiting, row, loaded)
                machine = loaded.machine
            check_state(plan, machine)
            facts = ThreadFacts(
                status="running",
                run_id=tick.run_id,
                document=plan.digest,
                agent_key=self.agent_key or row.facts.agent_key,
                title=row.facts.title or title,
                updated_at=0,
            )
            begins = None if row.lineage is not None else Lineage(number=self._new_lineage(), thread_id=thread_id)
            journal = ThreadJournal(runs.store, row, facts, loaded=loaded, begins=begins)
            life = self._life(plan, machine, thread_id, row, journal, outbox, log, hold_ms, seq=0)
        except BaseException:
            await runs.store.release(thread_id, row.fence)
            raise
        return life, tick, self._preamble(life.executor, preamble, tick.run_id)

    async def _make_way(self, busy: LiveRun, on_busy: str) -> None:
        if on_busy == "reject":
            raise ThreadBusy(
                f"thread {busy.thread_id!r} is driven by run {busy.run_id}; wait for it, cancel it, or pass onBusy",
                retryAfterMs=1000,
                runId=busy.run_id,
            )
        if on_busy != "interrupt":
            raise GraphflowError(
                f"onBusy is {on_busy!r}; this version knows 'reject' and 'interrupt'", code="invalid_input"
            )
        busy.executor.cancel()
        await busy.over.wait()

    async def _while_waiting(self, on_waiting: str, row: ThreadRow, loaded: Loaded | None) -> tuple[ThreadRow, Loaded]:
        """New input never silently drops a question (spec 2.4)."""
        assert loaded is not None and self.checkpointer is not None
        if on_waiting != "cancel":
            open_ = [{"interruptId": i.id, "kind": i.kind, "node": i.node} for i in loaded.machine.interrupts.values()]
            raise ThreadWaiting(
                f"thread {row.thread_id!r} waits for {len(open_)} answer(s); answer first, or pass onWaiting: cancel",
                interrupts=open_,
            )
        plan = await self.documents.pinned(row.facts.document)
        journal = ThreadJournal(self.checkpointer, row, row.facts, loaded=loaded)
        executor = self._executor(
            plan, loaded.machine, row.thread_id, journal, row.fence, None, None, 0, seq=loaded.seq
        )
        executor.sent = list(loaded.pending)
        await executor.drive(Cancel(id=self.ids.new_id(), at=self.clock.now_ms()))
        fresh = journal.as_loaded(executor.machine, executor.seq, executor.sent)
        return fresh.row, fresh

    async def _going_on(
        self, thread_id: str, outbox: Outbox | None, log: bool, hold_ms: int | None, check: Callable[[Machine], None]
    ) -> tuple[LiveRun, Loaded, ThreadRow]:
        """Takes a thread that exists, under the version that it is pinned to."""
        runs = self._runs()
        if runs is None:
            raise GraphflowError(
                "without a checkpointer no thread can go on; pass one to load_graph", code="nothing_to_resume"
            )
        row = await runs.take(thread_id, create=False)
        try:
            loaded = await runs.load(row)
            if loaded is None:
                raise ThreadNotFound(f"thread {thread_id!r} has no checkpoint yet; run it first")
            check(loaded.machine)
            plan = await self.documents.pinned(row.facts.document)
            journal = ThreadJournal(runs.store, row, row.facts, loaded=loaded)
            life = self._life(plan, loaded.machine, thread_id, row, journal, outbox, log, hold_ms, seq=loaded.seq)
            life.executor.sent = list(loaded.pending)
        except BaseException:
            await runs.store.release(thread_id, row.fence)
            raise
        return life, loaded, row

    async def _answering(
        self,
        thread_id: str,
        answers: Any,
        by: str | None,
        *,
        outbox: Outbox | None = None,
        log: bool = False,
        hold_ms: int | None = None,
        preamble: tuple[Event, ...] = (),
    ) -> Life:
        checked: list[Answer] = []
        try:
            live, loaded, _ = await self._going_on(
                thread_id, outbox, log, hold_ms, lambda machine: checked.extend(check_answers(machine, answers))
            )
        except AnswerRefused as refusal:
            raise await self._stale(thread_id, refusal) from None
        executor = live.executor

        def before() -> None:
            for event in preamble:
                executor.emit(event)
            executor.resuming = RunResume(
                run_id=loaded.machine.run_id, chat_id=thread_id, checkpoint_id=executor.checkpoint_id or ""
            )
            for answer in checked:
                executor.answer(answer.interrupt_id, answer.value, answer.decision, by)

        return live, None, before

    async def _stale(self, thread_id: str, refusal: AnswerRefused) -> AnswerRefused:
        """An id whose checkpoint the thread has was open once: `stale`, not `unmatched` (E8)."""
        asked = refusal.detail.get("interruptId", "")
        if refusal.code == "answer_unmatched" and self.checkpointer is not None and "." in asked:
            if await self.checkpointer.load(thread_id, asked.rpartition(".")[0]) is not None:
                text = f"interrupt {asked!r} was answered, closed or issued anew; nothing has changed"
                return AnswerRefused(text, code="answer_stale", interruptId=asked)
        return refusal

    async def _resuming(
        self,
        thread_id: str,
        checkpoint_id: str | None,
        effects: str | None,
        budget: Mapping[str, Any] | None,
        *,
        outbox: Outbox | None = None,
        log: bool = False,
        hold_ms: int | None = None,
    ) -> Life:
        if checkpoint_id is not None:
            await self.thread(thread_id).rewind(checkpoint_id, effects=effects)
        live, loaded, _ = await self._going_on(thread_id, outbox, log, hold_ms, check_unfinished)
        executor, machine = live.executor, loaded.machine
        now, figures = self.clock.now_ms(), budget_figures(budget)
        if machine.status == "running" and not figures:
            tick: AnyTick | None = Recovered(id=self.ids.new_id(), at=now)
            run_id = machine.run_id
        else:
            same = machine.status in ("running", "waiting")
            run_id = machine.run_id if same else self.ids.new_id()
            tick = Resumed(id=self.ids.new_id(), at=now, run_id=run_id, limits=figures)

        def before() -> None:
            if run_id != machine.run_id:
                executor.seq, executor.sent = 0, []
                if live.log is not None:
                    live.log.mark = 0
                executor.emit(RunStart(run_id=run_id, chat_id=thread_id))
            executor.emit(RunResume(run_id=run_id, chat_id=thread_id, checkpoint_id=executor.checkpoint_id or ""))

        return live, tick, before

    def _preamble(self, executor: Executor, preamble: tuple[Event, ...], run_id: str) -> Callable[[], None]:
        def before() -> None:
            for event in preamble:
                executor.emit(event)
            executor.emit(RunStart(run_id=run_id, chat_id=executor.thread_id))

        return before

    def _life(
        self,
        plan: Plan,
        machine: Machine,
        thread_id: str,
        row: ThreadRow,
        journal: ThreadJournal,
        outbox: Outbox | None,
        log: bool,
        hold_ms: int | None,
        *,
        seq: int,
    ) -> LiveRun:
        run_log = RunLog(row.fence, seq) if log else None
        executor = self._executor(plan, machine, thread_id, journal, row.fence, outbox, run_log, hold_ms, seq=seq)
        return LiveRun(executor, journal, run_log)

    def _executor(
        self,
        plan: Plan,
        machine: Machine,
        thread_id: str,
        journal: ThreadJournal | None,
        fence: int,
        outbox: Outbox | None,
        log: RunLog | None,
        hold_ms: int | None,
        *,
        seq: int = 0,
    ) -> Executor:
        sink = outbox.put if outbox is not None else log.send if log is not None else None
        return Executor(
            plan,
            machine,
            thread_id=thread_id,
            clock=self.clock,
            ids=self.ids,
            journal=journal,
            sink=sink,
            room=outbox.room if outbox is not None else None,
            services=self.services,
            hold_ms=hold_ms if hold_ms is not None else (300_000 if log is not None else 0),
            life=fence,
            lineage=journal.lineage if journal is not None else 0,
            seq=seq,
            checkpoint_id=journal.checkpoint_id if journal is not None else None,
        )

    def _new_lineage(self) -> int:
        return int(self.ids.random() * (1 << 48)) + 1

    # --- finishing a life

    async def _finish(self, live: LiveRun, tick: AnyTick | None, before: Callable[[], None]) -> RunResult:
        await self._drive(live, tick, before)
        executor = live.executor
        return result_from(executor.plan, executor.machine, executor.thread_id, executor.checkpoint_id)

    async def _drive(self, live: LiveRun, tick: AnyTick | None, before: Callable[[], None]) -> None:
        runs = self._runs()
        if runs is None:
            before()
            await live.executor.drive(tick)
        else:
            await runs.drive(live, tick, before)

    async def _streamed(
        self, outbox: Outbox, live: LiveRun, tick: AnyTick | None, before: Callable[[], None]
    ) -> AsyncIterator[Event]:
        task = asyncio.ensure_future(self._drive(live, tick, before))  # noqa: TID251 - awaited below
        task.add_done_callback(lambda _: outbox.close())
        try:
            async for event in outbox:
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


Life = tuple[LiveRun, AnyTick | None, Callable[[], None]]
"""A life that is about to be driven: the run, its first tick, and what is sent before it."""


class Outbox:
    """Events on their way from an attached run to its one consumer: a deque, and one future when somebody waits."""

    __slots__ = ("_closed", "_events", "_room", "_waiter")

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, event: Event) -> None:
        self._events.append(event)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def room(self) -> _Soon:
        """Done at once while the consumer keeps up; else waits until it has (bounded back-pressure)."""
        return _DONE if len(self._events) < STREAM_ROOM or self._closed else _Soon(self._wait_for_room)

    async def _wait_for_room(self) -> None:
        while len(self._events) >= STREAM_ROOM and not self._closed:
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def close(self) -> None:
        self._closed = True
        for future in (self._waiter, self._room):
            if future is not None and not future.done():
                future.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        events = self._events
        while True:
            while events:
                yield events.popleft()
                if self._room is not None and not self._room.done() and len(events) < STREAM_ROOM // 2:
                    self._room.set_result(None)
            if self._closed:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


def check_input(plan: Plan, given: Any) -> None:
    """Raises `invalid_input` when the input does not fit the document's schema (E9)."""
    from graphflow.graph.json_schema import compile_schema

    faults = compile_schema(plan.input_schema).faults(given)
    if faults:
        first = "; ".join(f"{fault.pointer or 'input'}: {fault.message}" for fault in faults[:5])
        raise GraphflowError(
            f"the input does not fit the graph's input schema: {first}",
            code="invalid_input",
            faults=[fault.as_dict() for fault in faults],
        )


def check_state(plan: Plan, machine: Machine) -> None:
    """Raises `state_incompatible` when a stored key does not fit this version of the graph (E23)."""
    if not machine.frames:
        return
    state = machine.root.state
    for key, channel in plan.schema.channels.items():
        if key in state and key not in plan.run_keys:
            try:
                channel.check(state[key], "stored value")
            except StateError as error:
                raise StateError(
                    f"{error.message}; migrate the thread or begin a new one", code="state_incompatible", key=key
                ) from None


def check_unfinished(machine: Machine) -> None:
    """Raises `nothing_to_resume` for a thread that rests or waits for people."""
    if machine.status == "idle":
        raise GraphflowError("the thread has no unfinished run; send new input instead", code="nothing_to_resume")
    if machine.status == "waiting":
        names = ", ".join(machine.interrupts)
        raise GraphflowError(f"the thread waits for an answer to {names}; answer it instead", code="thread_waiting")


def budget_figures(budget: Mapping[str, Any] | None) -> dict[str, Any]:
    """A request's budget (`maxSteps`, …) by the names of `limits`; unknown figures are refused."""
    if not budget:
        return {}
    import msgspec

    from graphflow.graph.document import Budget

    try:
        return limits_of(msgspec.convert(dict(budget), Budget))
    except msgspec.ValidationError as error:
        raise GraphflowError(f"the budget is wrong: {error}", code="invalid_input") from None


__all__ = ["AnswerRefused", "CompiledGraph", "Outbox"]
