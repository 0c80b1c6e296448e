"""`graphflow threads rewind|fork|resume|cancel`: commands that change where a thread stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command
from graphflow.cli.options import Approve, As, AsJson, AsLines, Budget, DryRun, Effects, NewId, Place, ThreadId, Timeout
from graphflow.cli.startup import checkpoint_named, forked, opened, opened_thread, place_named, target_named
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import budget_of, effect_choices, json_object, message_text
from graphflow.cli.terminal.console import note, say, say_json, stop
from graphflow.errors import GraphflowError
from graphflow.excerpts import count

if TYPE_CHECKING:
    from graphflow.runtime.thread import Thread


def register(threads: typer.Typer) -> None:
    for function in (rewind, fork, resume, cancel):
        command(threads, function.__name__)(function)


async def rewind(
    target: Annotated[str, typer.Argument(metavar="THREAD@CHECKPOINT", help="Unique id prefixes are enough.")],
    effects: Effects = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel a run that holds the thread first.")] = False,
    by: As = LOCAL,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint the head again; later checkpoints stay in the tree. Prints the new head's id."""
    async with opened() as app:
        thread, at = await target_named(app, target)
        if dry_run:
            ids = [row.id for row in await thread.history()]
            # Newest first. A checkpoint of another branch has nothing after it on this one.
            later = ids.index(at.id) if at.id in ids else 0
            where = f"{at.id} (step {at.step}, {at.node or at.source})"
            note(f"would rewind to {where}; {count(later, 'later checkpoint')} would stay in the tree")
            return
        head = await thread.rewind(at.id, effects=effect_choices(effects), cancel=cancel, by=by)
    if as_json:
        say_json({"threadId": thread.id, "checkpointId": head})
    else:
        say(head)
        _say_next(thread.id)


async def fork(
    target: Place,
    message: Annotated[str | None, typer.Argument(metavar="MSG", help="With --run: new input; - reads stdin.")] = None,
    edit: Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="State to set in the fork first.")] = None,
    as_node: Annotated[str | None, typer.Option(metavar="NODE", help="Set that state as this node's update.")] = None,
    path: Annotated[str | None, typer.Option(metavar="PATH", help="Frame of that state.")] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the fork: with MSG as new input, else from the checkpoint.")
    ] = False,
    new_id: NewId = None,
    effects: Effects = None,
    approve: Approve = "ask",
    budget: Budget = None,
    by: As = LOCAL,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Create a thread that shares the history up to a checkpoint; the original is unchanged. Prints its id."""
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.turn_driver import continue_thread

    if message is not None and not run:
        stop(exits.USAGE, "a message needs --run", hint=f'graphflow threads fork {target} --run "{message}"')
    policy, limits = policy_of(approve, by), budget_of(budget)
    # Read before the fork is made: a typing error must not leave one behind.
    values = json_object(edit, "--edit") if edit is not None else None
    async with opened() as app:
        thread, named = await place_named(app, target)
        at = await checkpoint_named(thread, named or "head")
        if dry_run:
            where = f"{at.id} (step {at.step}, {at.node or at.source})"
            note(f"would create a thread that shares {thread.id} up to {where}")
            return exits.OK
        new = await forked(thread, at.id, new_id, effect_choices(effects), by)
        if values is not None:
            await _edit(new, values, as_node, path, by)
        if run:
            note(f"thread {new.id}")
            text = message_text(message)
            return await continue_thread(
                app, new.id, policy, limits=limits, text=text, as_json=as_json, as_lines=as_lines
            )
    if as_json or as_lines:
        say_json({"threadId": new.id, "from": {"threadId": thread.id, "checkpointId": at.id}})
    else:
        say(new.id)
        _say_next(new.id)
    return exits.OK


async def _edit(new: Thread, values: dict[str, Any], as_node: str | None, path: str | None, by: str) -> None:
    """Sets the state of a new fork; a refused edit leaves no fork behind."""
    try:
        await new.edit(values, as_node, path=path, by=by)
    except GraphflowError:
        await new.delete()
        raise


def _say_next(thread_id: str) -> None:
    note(f"next: `graphflow threads resume {thread_id}`, or `graphflow run AGENT MSG --thread {thread_id}`")


async def resume(
    thread: Place,
    effects: Effects = None,
    approve: Approve = "ask",
    budget: Budget = None,
    time_limit: Timeout = None,
    by: As = LOCAL,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Continue a run that crashed, failed, waits or was rewound or forked; after a cancel, begin a new run from there."""
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.turn_driver import continue_thread

    policy, limits = policy_of(approve, by), budget_of(budget, time_limit)
    async with opened() as app:
        found, at = await place_named(app, thread)
        if at is not None:
            # A checkpoint is gone back to first, as `rewind` does, so its effects need the same choice.
            await found.rewind(at, effects=effect_choices(effects), by=by)
        return await continue_thread(app, found.id, policy, limits=limits, as_json=as_json, as_lines=as_lines)


async def cancel(thread: ThreadId, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Cancel the unfinished run of a thread, whichever process drives it; its open questions are closed."""
    async with opened_thread(thread) as (_, found):
        state = await found.state()
        if dry_run:
            note(f"thread {found.id} is {state.status}; would close {count(len(state.interrupts), 'question')}")
            return
        done = await found.cancel()
    if as_json:
        say_json({"threadId": found.id, "cancelled": done})
    else:
        note(
            f"the run of thread {found.id} is cancelled; the thread is stopped: send new input, or resume it"
            if done
            else f"thread {found.id} is {state.status}: nothing to cancel"
        )
