"""`CompiledGraph`: a document ready to run on threads; what `load_graph` and `Graph.compile` return.

Its calls (`run`, `stream`, `answer`, …) drive the run in the caller's task: leaving cancels it. Servers start detached runs
on its host (`launch`, E18).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from graphflow.arguments import checked
from graphflow.bounds import DEFAULTS, Bounds
from graphflow.capabilities import By
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import DefinitionError, GraphflowError
from graphflow.events import Event
from graphflow.graph.core.plan import Plan
from graphflow.graph.definition.kinds import Kinds
from graphflow.graph.engine.ports import Clock, Ids
from graphflow.runtime.attached import finish, streamed
from graphflow.runtime.clock_and_ids import SystemClock, Uuid7Ids
from graphflow.runtime.documents import Documents
from graphflow.runtime.history.effects import Choices
from graphflow.runtime.launch import prepare_resume, prepare_run
from graphflow.runtime.result import RunResult
from graphflow.runtime.run_request import BatchOptions, RunOptions, request_of
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.live_answer import answer_or_join
from graphflow.runtime.runs.live_runs import PreparedRun
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.sync import blocking, blocking_stream

if TYPE_CHECKING:
    from graphflow.graph.definition.checked_document import CheckedDocument
    from graphflow.runtime.graph_recovery import RecoveryResult
    from graphflow.runtime.runs.run_list import RunInfo
    from graphflow.runtime.runs.thread_list import ThreadInfo
    from graphflow.runtime.thread import Thread


class CompiledGraph:
    """A graph that runs.

    Args:
        document: the document, or a function that makes it when it is first needed.
        kinds: what its nodes may use.
        checkpointer: where threads live; without one a run leaves nothing behind.
        services: what nodes reach through `ctx`: models, tools, the long-term store.
        agent_key: the agent that threads begun here belong to.
        bounds: on what its runs hold and send; None for the defaults.
    """

    def __init__(
        self,
        document: CheckedDocument | Callable[[], CheckedDocument],
        *,
        kinds: Kinds,
        checkpointer: Checkpointer | None = None,
        services: Mapping[str, Any] | None = None,
        agent_key: str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.host = RunHost(
            Documents(document, kinds, checkpointer, bounds or DEFAULTS),
            checkpointer,
            clock=clock or SystemClock(),
            ids=ids or Uuid7Ids(),
            services={} if services is None else services,
            agent_key=agent_key,
        )
        """What its runs need, for servers: `graphflow.runtime.launch` starts detached runs on it."""

    @classmethod
    def over(cls, host: RunHost) -> Self:
        """The graph of a host."""
        graph = cls.__new__(cls)
        graph.host = host
        return graph

    def __repr__(self) -> str:
        store = self.host.store
        threads = "no threads are kept" if store is None else f"threads in {type(store).__name__}"
        try:
            plan = self.plan
        except DefinitionError as error:
            return f"<CompiledGraph {self.host.agent_key or ''}: {len(error.errors)} errors in its document; {threads}>"
        names = list(plan.nodes)
        shown = ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
        key = f" {self.host.agent_key}" if self.host.agent_key else ""
        return f"<CompiledGraph{key}: nodes {shown}; version {plan.digest[:15]}; {threads}>"

    @property
    def plan(self) -> Plan:
        """The compiled plan of the newest version.

        Raises:
            DefinitionError: the document has errors.
        """
        return self.host.documents.newest()

    @property
    def version(self) -> str:
        """The document's content hash (E23)."""
        return self.plan.digest

    # --- attached: the caller drives

    @checked
    async def run(self, input: Any = None, thread_id: str | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Runs one input (a mapping, or a text as `{"query": text}`) to its end or to its first question.

        Options: `durability` (`async` or `sync`), `budget` (limits over the document's), `interrupt_before`,
        `interrupt_after`, `params`, `on_waiting` (`reject`, `cancel`, `answer`), `on_busy` (`reject`, `enqueue`, `interrupt`,
        `rollback`), `effects` (choices for a rollback over `write` effects).

        Cancelling the caller cancels the run: it is over before the code of its nodes gets the `CancelledError`.

        Raises:
            ThreadBusy: another run drives the thread, or another process has taken the thread from this run.
            ThreadWaiting: the thread waits for an answer.
            GraphflowError: `invalid_input`.
            TypeError: an option that there is not.
        """
        return await finish(prepare_run(self.host, request_of(input, thread_id, options)))

    @checked
    def stream(
        self, input: Any = None, thread_id: str | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """The same run as its events, at the consumer's pace; closing the stream cancels the run."""
        request = request_of(input, thread_id, options)
        return streamed(lambda audience: prepare_run(self.host, request, audience))

    @checked
    async def answer(self, thread_id: str, answers: Any, *, by: By = None) -> RunResult:
        """Commits answers, by interrupt id or without an id while exactly one question is open, and continues.

        While another task, thread or process drives the run, since other branches work, that run is given the answers, and
        this call returns with it. Its status is `stopped` if that process ends before the run does.

        Args:
            by: who answers: a `Person`, or the name of one who may decide everything; None is the local person.

        Raises:
            AnswerRefused: unknown, stale, ambiguous, ill-typed, or of a person who may not decide; nothing has changed.
        """
        return await finish(answer_or_join(self.host, thread_id, answers, by))

    @checked
    def stream_answer(self, thread_id: str, answers: Any, *, by: By = None) -> AsyncGenerator[Event, None]:
        """The events of `answer`; closing the stream cancels the run, unless somebody else drives it.

        Of a run that another process drives come the events that its records tell: finished blocks as snapshots.
        """
        return streamed(lambda audience: answer_or_join(self.host, thread_id, answers, by, audience))

    @checked
    async def resume(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        effects: Choices = None,
        budget: Mapping[str, Any] | None = None,
        by: By = None,
    ) -> RunResult:
        """Continues from the head, or from a checkpoint after a rewind to it.

        Args:
            by: who asks for it: recorded with a rewind, and one of those who asked for the run from then on.

        Raises:
            GraphflowError: `nothing_to_resume` when the thread has no unfinished run.
        """
        return await finish(prepare_resume(self.host, thread_id, checkpoint_id, effects, budget, by=by))

    @checked
    def stream_resume(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        effects: Choices = None,
        budget: Mapping[str, Any] | None = None,
        by: By = None,
    ) -> AsyncGenerator[Event, None]:
        """The events of `resume`."""
        return streamed(
            lambda audience: prepare_resume(self.host, thread_id, checkpoint_id, effects, budget, audience, by=by)
        )

    @checked
    async def regenerate(
        self,
        thread_id: str,
        message_id: str,
        *,
        effects: Choices = None,
        cancel: bool = False,
        by: By = None,
    ) -> RunResult:
        """Answers a user's message anew, as another run; the former answer stays in the tree of checkpoints.

        Args:
            message_id: of the message (its run's id), or of any block of its answer (`content_id`); see `Thread.messages`.
            effects: how to treat the `write` effects of what came after the message, as with `Thread.rewind`.
            cancel: end a run that drives the thread first.
            by: who asks for it.

        Raises:
            EffectsNeedChoice: `write` effects came after it and have no choice; nothing has changed.
            GraphflowError: `message_not_found`.
        """
        from graphflow.runtime.travel.turns import prepare_regenerated

        return await finish(prepare_regenerated(self.host, thread_id, message_id, effects, cancel, by))

    @checked
    def stream_regenerate(
        self, thread_id: str, message_id: str, *, effects: Choices = None, cancel: bool = False, by: By = None
    ) -> AsyncGenerator[Event, None]:
        """The events of `regenerate`."""
        from graphflow.runtime.travel.turns import prepare_regenerated

        return streamed(
            lambda audience: prepare_regenerated(self.host, thread_id, message_id, effects, cancel, by, audience)
        )

    @checked
    async def edit_message(
        self, thread_id: str, message_id: str, message: str, *, cancel: bool = False, **options: Unpack[RunOptions]
    ) -> RunResult:
        """Puts other words in the place of a user's message and answers them, as another run from the moment before it.

        The rest of the input stays as it was. What came after the former message stays in the tree of checkpoints.

        Args:
            message_id: of the user's message; see `Thread.messages`.
            options: as for `run`; `effects` is `rerun` or `undo` for the `write` effects that came after it.

        Raises:
            EffectsNeedChoice: `write` effects came after it and have no choice; nothing has changed.
            GraphflowError: `message_not_found`; `invalid_input` for the id of an answer.
        """
        return await finish(self._edited(thread_id, message_id, message, cancel, options))

    @checked
    def stream_edit_message(
        self, thread_id: str, message_id: str, message: str, *, cancel: bool = False, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """The events of `edit_message`."""
        return streamed(lambda audience: self._edited(thread_id, message_id, message, cancel, options, audience))

    async def _edited(
        self,
        thread_id: str,
        message_id: str,
        message: str,
        cancel: bool,
        options: RunOptions,
        audience: Audience = NOBODY,
    ) -> PreparedRun:
        from graphflow.runtime.travel.turns import edited_turn, prepare_edited

        request = request_of(None, thread_id, options)
        edited = await edited_turn(self.host, thread_id, message_id, cancel)
        request = msgspec.structs.replace(request, input={**edited.input, "query": message})
        return await prepare_edited(self.host, request, edited, cancel, options.get("by"), audience)

    @checked
    async def replay(
        self,
        thread_id: str,
        until: str | None = None,
        *,
        new_thread_id: str | None = None,
        effects: Choices = None,
        budget: Mapping[str, Any] | None = None,
        by: By = None,
    ) -> RunResult:
        """Plays the thread's newest run back up to a node, and runs it again from there on, on a thread of its own.

        What comes before is not run: the new thread shares its records. The thread itself stays as it is.

        Args:
            until: the first node to run again, `NODE` or `NODE#VISIT`; default the run's first.
            new_thread_id: of the new thread, which is `RunResult.thread_id`.
            effects: `reuse` or `rerun`, how to treat `write` effects that come again.
            by: who asks for it.

        Raises:
            EffectsNeedChoice: `write` effects come again, and have no choice.
            GraphflowError: `invalid_input` when the run never came to that node.
        """
        from graphflow.runtime.travel.rewind_fork_edit import Travel

        point = await self.thread(thread_id).replay_point(until)
        new_id = await Travel(self.host, thread_id).fork(point.id, new_thread_id, effects, by, what="replay")
        forked = self.thread(new_id)
        try:
            return await finish(prepare_resume(self.host, forked.id, None, None, budget, by=by))
        except GraphflowError as waits:  # a breakpoint stands before the node
            if waits.code != "thread_waiting":
                raise
            return await forked.result()

    @checked
    async def batch(
        self,
        inputs: Sequence[Any],
        *,
        max_concurrency: int = 8,
        return_exceptions: bool = False,
        **options: Unpack[BatchOptions],
    ) -> list[Any]:
        """Runs every input as a run and on a thread of its own, each with a new id; results in the order of the inputs.

        The first exception is raised after the rest is cancelled, or is returned in its place with `return_exceptions`.

        Raises:
            GraphflowError: `invalid_input` when nothing may run at all.
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
            # Callers see the item's own error, not the group in which structured concurrency wraps it.
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    @checked
    async def threads(
        self,
        *,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> list[ThreadInfo]:
        """Threads of this graph's name or agent, or of a graph without a name all of the store, newest first.

        Args:
            status: only those that are `idle`, `running`, `waiting`, `failed` or `stopped` now.
            cursor: id of the thread after which they begin.
            metadata: only those whose metadata have each of these keys with this value: a text, or the JSON text of a
                number or a boolean.

        Raises:
            ThreadNotFound: the thread of `cursor` is gone.
            GraphflowError: `invalid_input` for another status.
        """
        from graphflow.runtime.runs.thread_list import thread_info, threads_with

        runs = await self.host.open_runs()
        agent, wanted = self.host.agent_key, metadata or {}
        found, _ = await threads_with(runs, status=status, agent_key=agent, cursor=cursor, limit=limit, metadata=wanted)
        return [thread_info(runs, row) for row in found]

    @checked
    async def runs(
        self,
        *,
        status: str | None = None,
        thread_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> list[RunInfo]:
        """Runs on threads of this graph's name or agent, or of a graph without a name all of the store, newest first.

        Args:
            status: only those that are `queued`, `running`, `waiting`, `completed`, `failed`, `cancelled`, `stopped` or `pruned`
                now; for a rare one, of the newest thousand after the cursor.
            cursor: id of the run after which they begin.

        Raises:
            GraphflowError: `invalid_input` for another status.
        """
        from graphflow.runtime.runs.run_list import runs_with

        runs = await self.host.open_runs()
        key = self.host.agent_key
        found, _ = await runs_with(runs, status=status, thread_id=thread_id, agent_key=key, cursor=cursor, limit=limit)
        return found

    # --- what a process that died has left

    @checked
    async def recover(self, *, other_versions: bool = False, max_concurrency: int = 8) -> RecoveryResult:
        """Does what is due on this graph's threads that nobody drives, to its end; what a server does by itself.

        Runs whose process died go on from their last checkpoint. Questions and timers whose time is over expire. Signals
        are delivered. Queued inputs begin in their order, also those whose caller died while it waited. A thread that
        another process drives, or that waits for an answer, is left alone; so is one whose owner may still live (on
        another host: until its lease runs out). Cancelling it leaves its runs at their last checkpoint.

        The graph's threads are those of its name, `Graph(name=…)`, or of its agent's key; without a name, those that were
        begun under this version of its document.

        Args:
            other_versions: of a graph without a name, also threads of graphs without a name that were begun under another
                document. They go on under that one, with the functions that are registered here.
            max_concurrency: threads at once.
        """
        from graphflow.runtime.graph_recovery import GraphRecovery

        return await GraphRecovery(self.host, other_versions=other_versions, max_concurrency=max_concurrency).once()

    @checked
    @asynccontextmanager
    async def recovering(
        self, interval_s: float = 1.0, *, other_versions: bool = False, max_concurrency: int = 8
    ) -> AsyncIterator[None]:
        """Recovers in the background while the block runs: `async with app.recovering(): …`; see `recover`.

        Leaving the block leaves the runs that it has begun at their last checkpoint.

        Args:
            interval_s: time between two looks at the store.
        """
        from graphflow.runtime.graph_recovery import GraphRecovery

        recovery = GraphRecovery(self.host, other_versions=other_versions, max_concurrency=max_concurrency)
        await recovery.runs.ready()
        task = asyncio.ensure_future(recovery.again_and_again(interval_s))  # noqa: TID251 - ended below
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @checked
    def thread(self, thread_id: str) -> Thread:
        """History, states and time travel of one thread."""
        # Imported here: a plain run loads neither history nor time travel.
        from graphflow.runtime.thread import Thread

        return Thread(self.host, thread_id)

    run_sync = blocking(run)
    answer_sync = blocking(answer)
    resume_sync = blocking(resume)
    regenerate_sync = blocking(regenerate)
    edit_message_sync = blocking(edit_message)
    stream_regenerate_sync = blocking_stream(stream_regenerate)
    stream_edit_message_sync = blocking_stream(stream_edit_message)
    batch_sync = blocking(batch)
    replay_sync = blocking(replay)
    recover_sync = blocking(recover)
    threads_sync = blocking(threads)
    runs_sync = blocking(runs)
    stream_sync = blocking_stream(stream)
    stream_answer_sync = blocking_stream(stream_answer)
    stream_resume_sync = blocking_stream(stream_resume)
