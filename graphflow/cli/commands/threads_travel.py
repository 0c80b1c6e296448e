"""`graphflow threads rewind|fork|resume|cancel`: going back, branching off, going on, ending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command
from graphflow.cli.commands.run import Approve, AsJson, AsLines, Budget, Timeout, figures_of
from graphflow.cli.commands.threads import ThreadId
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import count, note, say, say_json
from graphflow.errors import GraphflowError

if TYPE_CHECKING:
    from graphflow.cli.terminal.answer_policy import Policy
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.thread import Thread
    from graphflow.service.application import Application

Target = Annotated[
    str, typer.Argument(metavar="THREAD@CHECKPOINT", help="The checkpoint's id may be given by its end.")
]
Effects = Annotated[
    str | None,
    typer.Option(
        metavar="reuse|rerun|undo|ID=…",
        help="What becomes of write effects behind the checkpoint; for each: ID=undo,*=rerun.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")]
PlainJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def register(threads: typer.Typer) -> None:
    for name, function in (("rewind", rewind), ("fork", fork), ("resume", resume), ("cancel", cancel)):
        command(threads, name)(function)


def choices_of(given: str | None) -> str | dict[str, str] | None:
    """`--effects`: one word for all, or `ID=WORD,…,*=WORD`."""
    if given is None or "=" not in given:
        return given
    pairs = [part.partition("=") for part in given.split(",")]
    return {name.strip(): word.strip() for name, _, word in pairs}


async def rewind(
    target: Target,
    effects: Effects = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="End a run that drives the thread first.")] = False,
    dry_run: DryRun = False,
    as_json: PlainJson = False,
) -> None:
    """Make a checkpoint the head again; what came later stays in the tree. Prints the new head's id."""
    from graphflow.cli.startup import opened, target_named

    async with opened() as app:
        thread, at = await target_named(app, target)
        if dry_run:
            rows = await thread.history()
            later = [row.id for row in rows].index(at.id) if at.id in {row.id for row in rows} else 0
            note(
                f"would go back to {at.id} (step {at.step}, {at.node or at.source}); {later} later checkpoints stay in the tree"
            )
            return
        head = await thread.rewind(at.id, effects=choices_of(effects), cancel=cancel)
    if as_json:
        say_json({"threadId": thread.id, "checkpointId": head})
    else:
        say(head)
        note(f"next: `graphflow threads resume {thread.id}`, or `graphflow run AGENT MSG --thread {thread.id}`")


async def fork(
    target: Annotated[str, typer.Argument(metavar="THREAD[@CHECKPOINT]", help="Without a checkpoint: the head.")],
    message: Annotated[str | None, typer.Argument(metavar="MSG", help="With --run: new input; - reads stdin.")] = None,
    edit: Annotated[str | None, typer.Option(metavar="FILE|JSON", help="State to set in the fork first.")] = None,
    as_node: Annotated[str | None, typer.Option(metavar="NODE", help="Write that state as if this node had.")] = None,
    path: Annotated[str | None, typer.Option(metavar="PATH", help="Of the frame whose state it is.")] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Go on there: with MSG as new input, else from the checkpoint.")
    ] = False,
    new_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The new thread's id.")] = None,
    effects: Effects = None,
    approve: Approve = "ask",
    budget: Budget = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """A new thread that shares the past up to a checkpoint; the first one is untouched. Prints its id."""
    from graphflow.cli.argument_values import json_object, message_text
    from graphflow.cli.command import stop
    from graphflow.cli.startup import forked, opened, target_named, thread_named
    from graphflow.cli.terminal.answer_policy import policy_of

    if message is not None and not run:
        stop(exits.USAGE, "a message needs --run", hint=f'graphflow threads fork {target} --run "{message}"')
    policy, figures = policy_of(approve), figures_of(budget)
    values = json_object(edit, "--edit") if edit is not None else None
    async with opened() as app:
        if "@" in target:
            thread, at = await target_named(app, target)
        else:
            thread = await thread_named(app, target)
            at = (await thread.history(limit=1))[0]
        if dry_run:
            note(f"would begin a thread that shares {thread.id} up to {at.id} (step {at.step}, {at.node or at.source})")
            return exits.OK
        new = await forked(thread, at.id, new_id, choices_of(effects))
        if values is not None:
            await _edit(new, values, as_node, path)
        if not run:
            if as_json or as_lines:
                say_json({"threadId": new.id, "from": {"threadId": thread.id, "checkpointId": at.id}})
            else:
                say(new.id)
                note(f"next: `graphflow threads resume {new.id}`, or `graphflow run AGENT MSG --thread {new.id}`")
            return exits.OK
        note(f"thread {new.id}")
        text = message_text(message)
        return await go_on(app, new.id, text=text, policy=policy, figures=figures, as_json=as_json, as_lines=as_lines)


async def _edit(new: Thread, values: dict[str, Any], as_node: str | None, path: str | None) -> None:
    """Sets the state of a thread that was forked just now; a refused edit leaves no fork behind."""
    try:
        await new.edit(values, as_node, path=path)
    except GraphflowError:
        await new.delete()
        raise


async def resume(
    thread: Annotated[str, typer.Argument(metavar="THREAD[@CHECKPOINT]")],
    effects: Effects = None,
    approve: Approve = "ask",
    budget: Budget = None,
    time_limit: Timeout = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Go on with an unfinished run: after a crash, a cancel, a failure, a rewind or a fork."""
    from graphflow.cli.startup import checkpoint_named, opened, thread_named
    from graphflow.cli.terminal.answer_policy import policy_of

    policy, figures = policy_of(approve), figures_of(budget, time_limit)
    thread_id, _, checkpoint = thread.partition("@")
    async with opened() as app:
        found = await thread_named(app, thread_id)
        if checkpoint:
            await found.rewind((await checkpoint_named(found, checkpoint)).id, effects=choices_of(effects))
        return await go_on(app, found.id, text=None, policy=policy, figures=figures, as_json=as_json, as_lines=as_lines)


async def cancel(thread: ThreadId, dry_run: DryRun = False, as_json: PlainJson = False) -> None:
    """End the unfinished run of a thread that nobody drives; its questions are closed."""
    from graphflow.cli.startup import opened, thread_named

    async with opened() as app:
        found = await thread_named(app, thread)
        state = await found.state()
        if dry_run:
            note(f"thread {found.id} is {state.status}; would close {count(len(state.interrupts), 'question')}")
            return
        done = await found.cancel()
    if as_json:
        say_json({"threadId": found.id, "cancelled": done})
    else:
        note(f"thread {found.id} is cancelled" if done else f"thread {found.id} is {state.status}: nothing to cancel")


async def _asks(graph: CompiledGraph, thread_id: str) -> bool:
    """Whether the thread waits, and nothing of what it waits for is due."""
    state, now = await graph.thread(thread_id).state(), graph.clock.now_ms()
    due = any(i.expires_at is not None and i.expires_at <= now for i in state.interrupts)
    return state.status == "waiting" and not due


async def go_on(
    app: Application,
    thread_id: str,
    *,
    text: str | None,
    policy: Policy,
    figures: dict[str, Any],
    as_json: bool,
    as_lines: bool,
    model: str | None = None,
) -> int:
    """Drives a thread: with new input, with its open questions, or from where it stands; `model` asks another one."""
    from graphflow.cli.terminal.plain_view import view_of
    from graphflow.cli.terminal.turn_driver import TurnDriver, code_of

    graph = await app.graph_of_thread(thread_id)
    if model is not None:
        graph = graph.serving(model=lambda provider, _: app.models(provider, model))
    view = view_of(as_json=as_json, as_lines=as_lines, title=f"{graph.agent_key} · thread {thread_id}")
    turn = TurnDriver(graph=graph, thread_id=thread_id, policy=policy, view=view)
    if text is not None:
        events = graph.stream({"query": text}, thread_id, budget=figures)
    elif await _asks(graph, thread_id):
        events = None
    else:
        events = graph.stream_resume(thread_id, budget=figures)
    return code_of(await turn.drive(events), policy)
