"""`graphflow runs`: what became of each run, without a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.cli.command import command, group, list_by_default
from graphflow.cli.options import AsJson
from graphflow.cli.startup import opened
from graphflow.cli.terminal.console import local_time, note, say, say_json, say_table
from graphflow.cli.terminal.failure_text import say_failure, shown_error

runs = group("runs", "Runs: list, inspect.")


@command(runs, "list")
async def list_runs(
    status: Annotated[str | None, typer.Option(help="Only this status, such as waiting or failed.")] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Only this thread.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 50,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="Start after this run.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from graphflow.runtime.runs.run_list import runs_with
    from graphflow.service.runs.run_resource import run_line

    async with opened() as app:
        found, following = await runs_with(
            app.runs, status=status, thread_id=thread, agent_key=agent, cursor=cursor, limit=limit
        )
    if as_json:
        say_json([_shown(run_line(info)) for info in found])
        return
    if found:
        cells = [
            (info.run_id, info.status, info.agent_key or "-", local_time(info.created_at or 0), info.thread_id)
            for info in found
        ]
        say_table(("run", "status", "agent", "asked for", "thread"), cells)
    else:
        note("no runs")
    if following is not None:
        note(f"more: --cursor {following}")


list_by_default(runs, list_runs)


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "error": shown_error(run["error"])} if run.get("error") else run


@command(runs, "show")
async def show_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, from `runs list`.")], as_json: AsJson = False
) -> None:
    """Show a run: status, times, usage, open questions, and its answer or error."""
    from graphflow.cli.terminal.console import one_line_json
    from graphflow.service.runs.run_resource import run_resource

    async with opened() as app:
        found = await run_resource(app, run)
    if as_json:
        say_json(_shown(found))
        return
    say(f"run {found['runId']}  {found['status']}  thread {found['threadId']}")
    for name in ("createdAt", "updatedAt", "endedAt"):
        if found[name] is not None:
            say(f"{name}: {local_time(found[name])}")
    if found["usage"]:
        say(f"usage: {one_line_json(found['usage'])}")
    if "error" in found:
        say_failure(found["error"], found["threadId"], say)
    if "answer" in found:
        say(found["answer"] if isinstance(found["answer"], str) else one_line_json(found["answer"]))
    for question in found["interrupts"]:
        note(f"waits: {question['kind']} {question['interruptId']} at {question['node']}")
