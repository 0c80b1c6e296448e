"""`graphflow usage`: tokens, calls and cost by agent, model and day."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.cli.command import command
from graphflow.cli.commands.threads_travel import PlainJson
from graphflow.cli.terminal.console import say, say_json, say_table

Day = Annotated[str | None, typer.Option(metavar="DAY", help="A day (UTC) as 2026-11-22, included.")]
_FIGURES = ("promptTokens", "completionTokens", "modelCalls", "toolCalls")


def register(app: typer.Typer) -> None:
    command(app, "usage")(usage)


async def usage(
    since: Day = None,
    until: Day = None,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="Of this agent only.")] = None,
    by: Annotated[
        str, typer.Option(metavar="AXES", help="Which of day, agentKey, model tell lines apart.")
    ] = "day,agentKey,model",
    as_json: PlainJson = False,
) -> None:
    """Tokens and cost by agent, model and day, over all threads of the store."""
    from graphflow.cli.startup import opened
    from graphflow.service.usage import usage as told_usage

    axes = tuple(axis.strip() for axis in by.split(",") if axis.strip())
    async with opened() as app:
        told = await told_usage(app, since=since, until=until, agent_key=agent, by=axes)
    if as_json:
        say_json(told)
        return
    if not told["lines"]:
        say("nothing was used")
        return
    head = (*axes, "prompt", "completion", "model calls", "tool calls", "seconds", "USD")
    rows = [(*(line[axis] or "-" for axis in axes), *_cells(line)) for line in told["lines"]]
    if axes:
        rows.append(("total", *[""] * (len(axes) - 1), *_cells(told["total"])))
    say_table(head, rows, right=tuple(range(len(axes), len(head))))


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    figures = tuple(str(line[figure] or "") for figure in _FIGURES)
    return (*figures, f"{line['activeMs'] / 1000:.1f}", cost_text(line["costUsd"], line["knownCostUsd"]))


def cost_text(cost_usd: float | None, known_usd: float = 0.0) -> str:
    """`0.0123`, or `unknown` with what is known of it: an unknown cost is no 0."""
    if cost_usd is not None:
        return f"{cost_usd:.6f}".rstrip("0").rstrip(".")
    return f"unknown (≥ {cost_text(known_usd)})" if known_usd else "unknown"
