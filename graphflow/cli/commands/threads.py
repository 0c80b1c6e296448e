"""`graphflow threads`: time travel without a server. Reading is here; what changes a thread is in `travel.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command, group, stop
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, one_line_json, say, say_json, say_table, shortened

if TYPE_CHECKING:
    from graphflow.checkpoints.rows import ThreadRow
    from graphflow.runtime.thread import CheckpointInfo, Thread
    from graphflow.service.application import Application

threads = group("threads", "Threads: their past, their state, and travelling in it.")

AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
ThreadId = Annotated[
    str, typer.Argument(metavar="THREAD", help="A thread's id; an end or beginning that fits one is enough.")
]
STATUSES = ("idle", "running", "waiting", "failed", "stopped")
PAGE = 200
BAR = 24
"""Cells of the longest time bar."""


def register(app: typer.Typer) -> None:
    from graphflow.cli.commands import threads_inspect as forensics
    from graphflow.cli.commands import threads_migrate as migrate
    from graphflow.cli.commands import threads_storage as keeping
    from graphflow.cli.commands import threads_travel as travel

    travel.register(threads)
    forensics.register(threads, app)
    keeping.register(threads)
    migrate.register(threads)
    app.add_typer(threads)


@command(threads, "list")
async def list_threads(
    status: Annotated[str | None, typer.Option(metavar="|".join(STATUSES), help="In this status.")] = None,
    agent: Annotated[str | None, typer.Option(help="Of this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="After this thread.")] = None,
    as_json: AsJson = False,
) -> None:
    """Threads, the most recently used first."""
    from graphflow.cli.commands.inbox import moment
    from graphflow.cli.startup import opened

    if status is not None and status not in STATUSES:
        stop(exits.USAGE, f"--status takes {', '.join(STATUSES)}, not {status!r}")
    async with opened() as app:
        await app.runs.ready()
        rows = [row async for row in _threads(app, status, agent, cursor, limit)]
        facts: list[dict[str, Any]] = [
            {
                "threadId": row.thread_id,
                "status": app.status_of(row),
                "agentKey": row.facts.agent_key,
                "title": row.facts.title,
                "createdAt": row.created_at,
                "updatedAt": row.facts.updated_at,
            }
            for row in rows
        ]
    if as_json:
        say_json(facts)
    elif facts:
        cells = [
            (f["threadId"], f["status"], f["agentKey"] or "-", moment(f["updatedAt"]), shortened(f["title"] or "", 50))
            for f in facts
        ]
        say_table(("thread", "status", "agent", "last used", "title"), cells)
    else:
        note("no threads")


async def _threads(
    app: Application, status: str | None, agent: str | None, cursor: str | None, limit: int
) -> AsyncIterator[ThreadRow]:
    """At most `limit` threads. A killed process leaves `running` in the store, so what is stopped is looked for among all."""
    stored = None if status == "stopped" else status
    while limit:
        page = await app.store.threads(cursor=cursor, limit=PAGE, status=stored, agent_key=agent)
        fitting = [row for row in page if status is None or app.status_of(row) == status]
        for row in fitting[:limit]:
            yield row
        limit -= len(fitting[:limit])
        if len(page) < PAGE:
            return
        cursor = page[-1].thread_id


@command(threads, "show")
async def show_thread(
    thread: ThreadId,
    everything: Annotated[bool, typer.Option("--all", help="Every branch, also what was rewound.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest so many checkpoints.")] = None,
    as_json: AsJson = False,
) -> None:
    """The steps of a thread: node, time with a bar, tokens, checkpoint."""
    from graphflow.cli.startup import opened, thread_named

    async with opened() as app:
        found = await thread_named(app, thread)
        state = await found.state()
        rows = (await found.history(limit, all_lineages=everything))[::-1]
        costs = await _costs(found, rows)
    steps = [step_dict(row, costs.get(row.id, {}), on_branch=row.id == state.checkpoint_id) for row in rows]
    if as_json:
        say_json({"threadId": found.id, "status": state.status, "next": state.next, "checkpoints": steps})
        return
    say(f"thread {found.id}  {state.status}" + (f"  next: {', '.join(state.next)}" if state.next else ""))
    say_steps(steps, lineages=everything)
    for interrupt in state.interrupts:
        from graphflow.cli.terminal.answer_policy import answer_lines, question_line

        note(f"waits: {question_line(interrupt)}\n{answer_lines(interrupt)}")


def step_dict(row: CheckpointInfo, cost: dict[str, Any], *, on_branch: bool = False) -> dict[str, Any]:
    """One line of `show`, as data."""
    import msgspec

    out: dict[str, Any] = {**msgspec.to_builtins(row), **cost}
    if on_branch:
        out["head"] = True
    return {key: value for key, value in out.items() if value is not None}


def say_steps(steps: list[dict[str, Any]], *, lineages: bool = False) -> None:
    """The step table: one line a checkpoint, time as a bar."""
    longest = max((step.get("durationMs", 0) for step in steps), default=0) or 1
    branches = {number: index for index, number in enumerate(dict.fromkeys(step["lineage"] for step in steps))}
    rows = []
    for step in steps:
        ms = step.get("durationMs")
        bar = "" if ms is None else "█" * max(1, round(BAR * ms / longest)) if ms else "▏"
        mark = "▶" if step.get("head") else ""
        cells = [
            mark,
            step["step"],
            step["node"] or "-",
            step["source"] + (f" ✗ {step['error']}" if step.get("error") else ""),
        ]
        if lineages:
            cells.insert(1, branches[step["lineage"]])
        rows.append(
            (
                *cells,
                "" if ms is None else f"{ms} ms",
                bar,
                step.get("tokens") or "",
                short(step["id"]),
                ", ".join(step["next"]),
            )
        )
    head = ["", "step", "node", "source", "time", "", "tokens", "checkpoint", "next"]
    if lineages:
        head.insert(1, "branch")
    say_table(head, rows, right=(4 + lineages, 6 + lineages))


def short(checkpoint_id: str) -> str:
    """The end of an id that people copy; `checkpoint_named` finds it again."""
    return checkpoint_id[-8:]


async def _costs(thread: Thread, rows: list[CheckpointInfo]) -> dict[str, dict[str, Any]]:
    """Checkpoint → time and tokens of the node that ended in it, from the stored events of each run."""
    from graphflow.events import NodeEnd

    costs: dict[str, dict[str, Any]] = {}
    for run_id in dict.fromkeys(row.run_id for row in rows if row.run_id):
        # A node's end is sent before its commit is durable, so events and checkpoints are paired by their order.
        ends = [event for event, _ in await thread.events(run_id, whole=False) if isinstance(event, NodeEnd)]
        for row in finished([row for row in rows if row.run_id == run_id]):
            end = next((end for end in ends if end.node == row.node.rpartition("/")[2]), None)
            if end is not None:
                ends.remove(end)
                usage = end.usage or {}
                tokens = (usage.get("promptTokens") or 0) + (usage.get("completionTokens") or 0)
                costs[row.id] = {"durationMs": end.duration_ms, "tokens": tokens or None}
    return costs


def finished(rows: list[CheckpointInfo]) -> list[CheckpointInfo]:
    """Those checkpoints of one run, oldest first, in which a node finished: there the count of steps grows."""
    before = [None, *rows[:-1]]
    return [
        row for row, last in zip(rows, before, strict=True) if row.step > (last.step if last else 0) and not row.error
    ]


@command(threads, "state")
async def show_state(
    thread: Annotated[str, typer.Argument(metavar="THREAD[@CHECKPOINT]")],
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="This state key only.")] = None,
) -> None:
    """The state at the head or at a checkpoint, as JSON."""
    from graphflow.cli.startup import checkpoint_named, opened, thread_named
    from graphflow.errors import StateError
    from graphflow.graph.core.immutable import thaw

    thread_id, _, checkpoint = thread.partition("@")
    async with opened() as app:
        found = await thread_named(app, thread_id)
        at = (await checkpoint_named(found, checkpoint)).id if checkpoint else None
        state = await found.state(at)
    values = {name: thaw(value) for name, value in state.values.items()}
    if key is not None and key not in values:
        raise StateError(f"the state has no key {key!r}; it has {', '.join(values) or 'none'}", code="invalid_input")
    say_json(values if key is None else values[key])


@command(threads, "diff")
async def show_diff(
    thread: ThreadId,
    first: Annotated[str, typer.Argument(metavar="A", help="A checkpoint, or head.")],
    second: Annotated[str, typer.Argument(metavar="B", help="A checkpoint, or head; OTHER@B of another thread.")],
    as_json: AsJson = False,
) -> None:
    """What changed from checkpoint A to B, by state key; also across branches."""
    from graphflow.cli.startup import checkpoint_named, opened, thread_named

    async with opened() as app:
        found = await thread_named(app, thread)
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
