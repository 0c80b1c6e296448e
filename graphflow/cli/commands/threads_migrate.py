"""`graphflow threads migrate`: threads that wait or were left unfinished go on under the newest version of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command, stop
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, say_json

if TYPE_CHECKING:
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.travel.migrate import MigrationReport
    from graphflow.service.application import Application

PAGE = 200


def register(threads: typer.Typer) -> None:
    command(threads, "migrate")(migrate)


async def migrate(
    thread: Annotated[
        str | None, typer.Argument(metavar="THREAD", help="A thread's id; an end or beginning that fits one is enough.")
    ] = None,
    to: Annotated[
        str, typer.Option(metavar="KEY", help="The agent, or a .json file, whose newest version is meant.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Every unfinished thread of the agent under an older version.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --all: the threads of this agent instead.")
    ] = None,
    mapped: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="A node that was renamed; may be given again.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> int:
    """Move threads to the newest version of an agent: they go on where they stand, their questions are asked anew.

    A thread otherwise goes on under the version that it has begun. What has ended needs no migration: its next run begins
    under the newest version.
    """
    from graphflow.cli.startup import graph_named, opened, thread_named

    names = _names(mapped or ())
    if not to:
        stop(
            exits.USAGE,
            "--to KEY is missing: the agent to whose newest version threads go",
            hint="graphflow agents list",
        )
    if (thread is None) != every:
        stop(exits.USAGE, "name one THREAD, or --all", hint=f"graphflow threads migrate --all --to {to} --dry-run")
    async with opened() as app:
        graph = graph_named(app, to)
        await app.runs.ready()
        if thread is not None:
            found = [(await thread_named(app, thread)).id]
        else:
            found = [one async for one in _unfinished(app, graph, agent or graph.agent_key)]
        reports = [await _migrate(graph, one, names, dry_run=dry_run) for one in found]
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
            stop(exits.USAGE, f"--map {each!r} names no nodes", hint="--map OLD=NEW, as in --map draft=write")
        if names.setdefault(old, new) != new:
            stop(exits.USAGE, f"--map gives {old!r} two new names: {names[old]!r} and {new!r}")
    return names


async def _unfinished(app: Application, graph: CompiledGraph, agent_key: str | None) -> AsyncIterator[str]:
    """Threads of an agent that something of an older version goes on in."""
    cursor = None
    while True:
        page = await app.store.threads(cursor=cursor, limit=PAGE, agent_key=agent_key)
        for row in page:
            if (
                row.head is not None
                and row.facts.document != graph.version
                and app.status_of(row) not in ("idle", "running")
            ):
                yield row.thread_id
        if len(page) < PAGE:
            return
        cursor = page[-1].thread_id


async def _migrate(graph: CompiledGraph, thread_id: str, names: Mapping[str, str], *, dry_run: bool) -> MigrationReport:
    """One thread migrated, or why not: a refused one keeps no other from going."""
    report = await graph.thread(thread_id).migrate(names, dry_run=True)
    if dry_run or report.problems or report.unchanged:
        return report
    return await graph.thread(thread_id).migrate(names)


def _say(report: MigrationReport) -> None:
    say(f"thread {report.thread_id}  {report.status}  {_short(report.from_version)} → {_short(report.to_version)}")
    if report.unchanged:
        say("  runs this version already")
    for node in report.nodes:
        place = f"{node['path']}: " if node["path"] else ""
        moved = node["from"] if node["from"] == node["to"] else f"{node['from']} → {node['to']}"
        say(f"  node       {place}{moved}")
    for question in report.questions:
        say(f"  question   {question['kind']} of {question['node']} is asked anew")
    lines = (
        ("new key", report.added),
        ("dropped", [f"{key}: its value stays in the state, where no node may write it" for key in report.dropped]),
        ("rewritten", report.rewritten),
        ("breakpoint", [f"{name} is no node any more" for name in report.forgotten]),
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
        one = next(report for report in reports if report.checkpoint_id is not None)
        step = "graphflow inbox list" if one.status == "waiting" else f"graphflow threads resume {one.thread_id}"
        note(f"next: `{step}`")


def _short(version: str) -> str:
    return version[: len("sha256:") + 8]
