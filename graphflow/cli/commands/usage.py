"""`graphflow usage`: tokens, calls and cost by agent, model and day."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.cli.command import command, root
from graphflow.cli.options import AsJson
from graphflow.cli.startup import opened
from graphflow.cli.terminal.console import cost_text, say, say_json, say_table

Day = Annotated[str | None, typer.Option(metavar="DAY", help="A UTC day such as 2026-11-22, inclusive.")]
_COLUMNS = ("promptTokens", "completionTokens", "modelCalls", "toolCalls")


@command(root, "usage")
async def usage(
    since: Day = None,
    until: Day = None,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="Only this agent.")] = None,
    by: Annotated[str, typer.Option(metavar="AXES", help="Group by: day, agentKey, model.")] = "day,agentKey,model",
    as_json: AsJson = False,
) -> None:
    """Show tokens and cost of all threads by agent, model and day."""
    from graphflow.service.usage import usage as stored_usage

    axes = tuple(axis.strip() for axis in by.split(",") if axis.strip())
    async with opened() as app:
        report = await stored_usage(app, since=since, until=until, agent_key=agent, by=axes)
    if as_json:
        say_json(report)
        return
    if not report["lines"]:
        say("no usage recorded")
        return
    head = (*axes, "prompt", "completion", "model calls", "tool calls", "seconds", "USD")
    rows = [(*(line[axis] or "-" for axis in axes), *_cells(line)) for line in report["lines"]]
    # Without an axis the only line is the total already.
    if axes:
        rows.append(("total", *[""] * (len(axes) - 1), *_cells(report["total"])))
    say_table(head, rows, right=tuple(range(len(axes), len(head))))


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(str(line[column] or "") for column in _COLUMNS),
        f"{line['activeMs'] / 1000:.1f}",
        cost_text(line["costUsd"], line["knownCostUsd"]),
    )
