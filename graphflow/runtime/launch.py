"""Starting runs on a host: prepared ones for a caller that drives them, detached ones for servers (E18).

It stands above `runs` and `travel`, since a rollback, and resuming from a checkpoint, move the thread first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphflow.capabilities import By
from graphflow.errors import ThreadBusy
from graphflow.events import Event, RequestSubmit
from graphflow.runtime.history.effects import Choices
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.answer import answer, expire
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.live_runs import LiveRun, PreparedRun
from graphflow.runtime.runs.preconditions import budget_limits
from graphflow.runtime.runs.remote_answer import RemoteRun, hand_over
from graphflow.runtime.runs.resume import resume
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.start import check_request, start

if TYPE_CHECKING:
    from graphflow.runtime.travel.turns import EditedTurn

HAND_OVER_S = 30.0
"""How long a request waits for the process that drives the thread to take its answer."""


async def prepare_run(
    host: RunHost,
    request: RunRequest,
    audience: Audience = NOBODY,
    consumes: int | None = None,
    supersedes: str | None = None,
) -> PreparedRun:
    """The run of a new input; see `CompiledGraph.run`."""
    new = check_request(host, request, audience, consumes, supersedes)
    if request.on_busy != "rollback" or host.store is None:
        return await start(host, new)
    from graphflow.runtime.travel.busy_rollback import start_after_rollback  # only who goes back loads what that needs

    return await start_after_rollback(host, new)


async def prepare_resume(
    host: RunHost,
    thread_id: str,
    checkpoint_id: str | None = None,
    effects: Choices = None,
    budget: Mapping[str, Any] | None = None,
    audience: Audience = NOBODY,
    *,
    counted: bool = False,
    by: By = None,
    run_id: str | None = None,
) -> PreparedRun:
    """A run that goes on from the head, or from a checkpoint after a rewind to it."""
    limits, runs = budget_limits(budget), host.need_runs()
    if checkpoint_id is not None:
        await runs.ready()
        row = await runs.store.thread(thread_id)
        if row is None or row.head != checkpoint_id:  # naming the head resumes; it does not rewind
            from graphflow.runtime.travel.rewind_fork_edit import Travel

            await Travel(host, thread_id).rewind(checkpoint_id, effects, by=by)
    return await resume(host, thread_id, limits, audience, counted=counted, by=by, run_id=run_id)


# --- detached: runs that no caller drives


async def launch(
    host: RunHost,
    request: RunRequest,
    *,
    preamble: Iterable[Event] = (),
    consumes: int | None = None,
    supersedes: str | None = None,
) -> LiveRun:
    """Starts a run; `LiveRun.log` has its events.

    Args:
        preamble: events before `run.start`, sent before anything runs: `request.query`, and `chat.start`, which is left out
            if the thread has begun.
        consumes: position of the queued input that this is; it leaves the queue with the run's first commit.
        supersedes: id of a run that a crash cut off and that can't go on.
    """
    audience = _many(preamble, request.hold_ms)
    return (await prepare_run(host, request, audience, consumes, supersedes)).detach()


async def launch_answer(
    host: RunHost,
    thread_id: str,
    answers: Any,
    *,
    by: By = None,
    preamble: Iterable[Event] = (),
    hold_ms: int | None = None,
) -> LiveRun:
    """Answers a thread that no process drives, and resumes it."""
    return (await answer(host, thread_id, answers, by, _many(preamble, hold_ms))).detach()


async def launch_answer_anywhere(
    host: RunHost, thread_id: str, answers: Any, *, by: By, submit: RequestSubmit | None = None, hold_ms: int
) -> LiveRun | RemoteRun:
    """The same; where another process drives the thread, since other branches work, that one is given the answers.

    Args:
        submit: sent just before the answers.
    """
    audience = _many((submit,) if submit is not None else (), hold_ms)
    try:
        return (await answer(host, thread_id, answers, by, audience)).detach()
    except ThreadBusy:
        runs = host.need_runs()
        row = await runs.store.thread(thread_id)
        if row is None or row.owner in (None, runs.owner):
            raise
    given = await hand_over(host, thread_id, answers, by, event=submit, audience=audience, within_s=HAND_OVER_S)
    return given.detach() if isinstance(given, PreparedRun) else given


async def launch_expired(
    host: RunHost, thread_id: str, interrupt_ids: Sequence[str], *, hold_ms: int | None = None
) -> LiveRun:
    """Resumes where open interrupts have expired, by their `onExpire` or their error routes."""
    return (await expire(host, thread_id, interrupt_ids, _many((), hold_ms))).detach()


async def launch_resume(
    host: RunHost,
    thread_id: str,
    checkpoint_id: str | None = None,
    *,
    effects: Choices = None,
    budget: Mapping[str, Any] | None = None,
    hold_ms: int | None = None,
    counted: bool = False,
    by: By = None,
    run_id: str | None = None,
) -> LiveRun:
    """Resumes from the head or from a checkpoint; see `runs.resume.resume`."""
    options = (checkpoint_id, effects, budget, _many((), hold_ms))
    return (await prepare_resume(host, thread_id, *options, counted=counted, by=by, run_id=run_id)).detach()


async def launch_regenerated(
    host: RunHost,
    thread_id: str,
    message_id: str,
    *,
    effects: Choices = None,
    cancel: bool = False,
    by: By = None,
    hold_ms: int | None = None,
    run_id: str | None = None,
) -> LiveRun:
    """Answers a message anew; see `CompiledGraph.regenerate`."""
    from graphflow.runtime.travel.turns import prepare_regenerated

    audience = _many((), hold_ms)
    prepared = await prepare_regenerated(host, thread_id, message_id, effects, cancel, by, audience, run_id)
    return prepared.detach()


async def launch_edited(
    host: RunHost,
    request: RunRequest,
    edited: EditedTurn,
    *,
    cancel: bool = False,
    by: By = None,
    preamble: Iterable[Event] = (),
) -> LiveRun:
    """Starts a run with an input in the place of an earlier one; see `CompiledGraph.edit_message`."""
    from graphflow.runtime.travel.turns import prepare_edited

    audience = _many(preamble, request.hold_ms)
    return (await prepare_edited(host, request, edited, cancel, by, audience)).detach()


def _many(preamble: Iterable[Event], hold_ms: int | None) -> Audience:
    return Audience(log=True, preamble=tuple(preamble), hold_ms=hold_ms)
