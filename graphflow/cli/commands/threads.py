"""`graphflow threads`: time travel without a server. This file has the group and the commands that read or name."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import command, group, list_by_default, root
from graphflow.cli.commands import threads_inspect, threads_migrate, threads_storage, threads_travel
from graphflow.cli.options import AsJson, Place, ThreadId
from graphflow.cli.startup import checkpoint_named, opened, opened_thread, place_named, thread_named
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import pairs, text_pairs
from graphflow.cli.terminal.console import local_time, note, one_line_json, say, say_json, say_table, shortened, stop
from graphflow.cli.terminal.failure_text import say_failure, shown_error
from graphflow.cli.terminal.steps import say_steps, step_costs, step_dict
from graphflow.runtime.thread_about import AboutThread
from graphflow.runtime.thread_status import STATUSES

threads = group("threads", "Threads: list, inspect, rewind, fork, export, migrate.")


@command(threads, "list")
async def list_threads(
    status: Annotated[str | None, typer.Option(metavar="|".join(STATUSES), help="Only this status.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of threads.")] = 50,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="Start after this thread.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only threads whose metadata have this; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List threads, most recently used first."""
    if status is not None and status not in STATUSES:
        stop(exits.USAGE, f"--status takes {', '.join(STATUSES)}, not {status!r}")
    from graphflow.runtime.runs.thread_list import thread_info, threads_with
    from graphflow.service.threads import struct_dict

    wanted = text_pairs(metadata or (), "--metadata")
    async with opened() as app:
        rows, _ = await threads_with(
            app.runs, status=status, agent_key=agent, cursor=cursor, limit=limit, metadata=wanted
        )
        found = [thread_info(app.runs, row) for row in rows]
    if as_json:
        say_json([struct_dict(line) for line in found])
    elif found:
        cells = [
            (
                line.thread_id,
                line.status,
                line.agent_key or "-",
                local_time(line.updated_at),
                line.title or "",
            )
            for line in found
        ]
        say_table(("thread", "status", "agent", "last used", "title"), cells)
    else:
        note("no threads")


list_by_default(threads, list_threads)


@command(threads, "update")
async def update_thread(
    thread: ThreadId,
    title: Annotated[
        str | None, typer.Option(help="1 to 200 printable characters; an empty one gives the automatic title back.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE|@FILE", help="Set a key of the metadata, or remove it with null; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the title and the metadata of a thread."""
    from graphflow.service.threads import struct_dict

    changes: AboutThread = {}
    if title is not None:
        changes["title"] = title or None
    if metadata:
        changes["metadata"] = pairs(metadata, "--metadata")
    if not changes:
        stop(
            exits.USAGE, "nothing to change", hint=f'graphflow threads update {thread} --title "…" --metadata KEY=VALUE'
        )
    async with opened_thread(thread) as (_, found):
        line = await found.update(**changes)
    if as_json:
        say_json(struct_dict(line))
    else:
        shown = f"  {one_line_json(line.metadata)}" if line.metadata else ""
        say(f"{line.thread_id}  {line.title or ''}{shown}")


@command(threads, "show")
async def show_thread(
    thread: ThreadId,
    everything: Annotated[bool, typer.Option("--all", help="All branches, including rewound ones.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest checkpoints.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the steps of a thread: node, duration, tokens, checkpoint."""
    async with opened_thread(thread) as (_, found):
        state = await found.state()
        # Oldest first, like the run that it shows.
        rows = (await found.history(limit, all_lineages=everything))[::-1]
        costs = await step_costs(found, rows)
        failed = state.status == "failed"
        error = (await found.result()).error if failed else None
        trace = (await found.why()).trace if failed else None
    steps = [step_dict(row, costs.get(row.id, {}), is_head=row.id == state.checkpoint_id) for row in rows]
    if as_json:
        head = {"threadId": found.id, "status": state.status, "driven": state.driven, "next": state.next}
        say_json(
            {
                **head,
                "checkpoints": steps,
                **({"error": shown_error(error)} if error else {}),
                **({"trace": trace} if trace else {}),
            }
        )
        return
    held = ", held by a live process" if state.driven and state.status != "running" else ""
    say(f"thread {found.id}  {state.status}{held}" + (f"  next: {', '.join(state.next)}" if state.next else ""))
    say_steps(steps, lineages=everything)
    for line in trace or ():
        note(line)
    if failed:
        say_failure(error, found.id, say)
    for interrupt in state.interrupts:
        from graphflow.cli.terminal.question_text import note_answers, question_line

        note(f"waits: {question_line(interrupt)}")
        note_answers(interrupt)


@command(threads, "state")
async def show_state(
    thread: Place, key: Annotated[str | None, typer.Argument(metavar="KEY", help="Only this state key.")] = None
) -> None:
    """Print the state at the head or at a checkpoint as JSON."""
    from graphflow.errors import StateError
    from graphflow.graph.core.immutable import thaw

    async with opened() as app:
        found, at = await place_named(app, thread)
        state = await found.state(at)
    values = {name: thaw(value) for name, value in state.values.items()}
    if key is not None and key not in values:
        raise StateError(
            f"the state has no key {key!r}; its keys are {', '.join(values) or 'none'}", code="invalid_input"
        )
    say_json(values if key is None else values[key])


@command(threads, "diff")
async def show_diff(
    thread: ThreadId,
    first: Annotated[str, typer.Argument(metavar="A", help="A checkpoint, or head.")],
    second: Annotated[str, typer.Argument(metavar="B", help="A checkpoint, or head; THREAD@B for another thread.")],
    as_json: AsJson = False,
) -> None:
    """Show what changed between two checkpoints, by state key; also across branches."""
    async with opened_thread(thread) as (app, found):
        # No id has an `@`.
        other_id, _, name = second.rpartition("@")
        other = await thread_named(app, other_id) if other_id else found
        old, new = await checkpoint_named(found, first), await checkpoint_named(other, name)
        changes = await found.diff(old.id, new.id, other=other)
    if as_json:
        say_json(changes)
        return
    if not changes:
        note("no difference")
    marks = {"add": "+", "remove": "-", "replace": "~"}
    for key, operations in changes.items():
        for operation in operations:
            value = f"  {shortened(one_line_json(operation['value']), 200)}" if "value" in operation else ""
            say(f"{marks.get(operation['op'], '?')} {key}{operation['path']}{value}")


# One module registers them all, so the order of the help does not depend on imports.
for part in (threads_travel, threads_inspect, threads_storage, threads_migrate):
    part.register(threads)
# Both also stand at the top level, where a reader of `graphflow --help` looks for them.
for short_form in (threads_inspect.why, threads_inspect.replay):
    command(root, short_form.__name__)(short_form)
