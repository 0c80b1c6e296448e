"""`graphflow threads migrate`: moves unfinished threads to the newest version of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command
from graphflow.cli.options import As, AsJson, DryRun
from graphflow.cli.startup import agent_named, opened, thread_named, threads_in_store
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, say_json, stop

if TYPE_CHECKING:
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.travel.migrate import MigrationReport
    from graphflow.service.application import Application


def register(threads: typer.Typer) -> None:
    command(threads, "migrate")(migrate)


async def migrate(
    thread: Annotated[
        str | None,
        typer.Argument(
            metavar="THREAD", help="Thread id; a unique prefix or suffix of 4 characters or more is enough."
        ),
    ] = None,
    to: Annotated[str, typer.Option(metavar="KEY", help="Agent key or .json file to migrate to.")] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Every unfinished thread of the agent that runs an older version.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --all: the threads of this other agent.")
    ] = None,
    mapped: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="A renamed node; repeatable.")
    ] = None,
    by: As = LOCAL,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Move threads to the newest version of an agent. They continue where they are; open questions are asked again.

    Without migration a thread keeps the version its run started with. Finished threads need no migration: their next
    run uses the newest version.
    """
    names = _names(mapped or ())
    if not to:
        stop(exits.USAGE, "--to KEY is missing: the agent to migrate to", hint="graphflow agents list")
    if (thread is None) != every:
        stop(exits.USAGE, "name one THREAD, or give --all", hint=f"graphflow threads migrate --all --to {to} --dry-run")
    async with opened() as app:
        graph = app.compiled(agent_named(app, to))
        await app.runs.ready()
        if thread is not None:
            found = [(await thread_named(app, thread)).id]
        else:
            found = await _unfinished(app, graph, agent or graph.host.agent_key)
        reports = [await _migrate(graph, one, names, by, dry_run=dry_run) for one in found]
    if as_json:
        say_json(reports if every else reports[0])
    else:
        for report in reports:
            _say(report)
        _sum_up(reports, dry_run=dry_run)
    return exits.USAGE if any(report.problems for report in reports) else exits.OK


def _names(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    names: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not (old and equals and new):
            stop(exits.USAGE, f"--map {each!r} does not name two nodes", hint="--map OLD=NEW, as in --map draft=write")
        if names.setdefault(old, new) != new:
            stop(exits.USAGE, f"--map gives {old!r} two new names: {names[old]!r} and {new!r}")
    return names


async def _unfinished(app: Application, graph: CompiledGraph, agent_key: str | None) -> list[str]:
    """Threads of an agent that can continue under an older version."""
    return [
        row.thread_id
        async for row in threads_in_store(app, agent_key=agent_key)
        if row.head is not None
        and row.facts.document != graph.version
        # An idle thread takes the newest version with its next input; a running one belongs to its process.
        and app.runs.status_of(row) not in ("idle", "running")
    ]


async def _migrate(
    graph: CompiledGraph, thread_id: str, names: Mapping[str, str], by: str, *, dry_run: bool
) -> MigrationReport:
    """Migrates one thread, or says why not: a refused thread does not stop the others."""
    # Planned first: the real one raises for a problem, which would hide what it says of the other threads.
    report = await graph.thread(thread_id).migrate(names, dry_run=True)
    if dry_run or report.problems or report.unchanged:
        return report
    return await graph.thread(thread_id).migrate(names, by=by)


def _say(report: MigrationReport) -> None:
    say(f"thread {report.thread_id}  {report.status}  {_short(report.from_version)} → {_short(report.to_version)}")
    if report.unchanged:
        say("  already runs this version")
    for node in report.nodes:
        place = f"{node['path']}: " if node["path"] else ""
        moved = node["from"] if node["from"] == node["to"] else f"{node['from']} → {node['to']}"
        say(f"  node       {place}{moved}")
    for question in report.questions:
        say(f"  question   {question['kind']} of {question['node']} is asked again")
    lines = (
        ("new key", report.added),
        ("dropped", [f"{key}: its value stays in the state, read-only" for key in report.dropped]),
        ("rewritten", report.rewritten),
        ("breakpoint", [f"{name} is no longer a node" for name in report.forgotten]),
        ("problem", [f"{p.where}: {p.message}" + (f" ({p.hint})" if p.hint else "") for p in report.problems]),
    )
    for word, values in lines:
        for value in values:
            say(f"  {word:<10} {value}")


def _sum_up(reports: list[Any], *, dry_run: bool) -> None:
    refused = sum(bool(report.problems) for report in reports)
    going = sum(not report.problems and not report.unchanged for report in reports)
    if not reports:
        note("no unfinished thread runs an older version")
        return
    word = "would be migrated" if dry_run else "migrated"
    text = f"{going} of {len(reports)} threads {word}" + (f", {refused} refused" if refused else "")
    note(text + ("; nothing has changed" if dry_run or (refused and not going) else ""))
    if going and not dry_run:
        # Those without a checkpoint were refused or already there.
        one = next(report for report in reports if report.checkpoint_id is not None)
        step = "graphflow inbox list" if one.status == "waiting" else f"graphflow threads resume {one.thread_id}"
        note(f"next: `{step}`")


def _short(version: str) -> str:
    return version[: len("sha256:") + 8]
