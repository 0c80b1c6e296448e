"""`graphflow threads blame|why|cost|replay`: what a thread's records say, and replaying them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command
from graphflow.cli.options import Approve, As, AsJson, AsLines, Budget, Effects, NewId, Place, ThreadId
from graphflow.cli.startup import forked, opened, opened_thread, place_named
from graphflow.cli.terminal.argument_values import budget_of, effect_choices
from graphflow.cli.terminal.console import (
    cost_text,
    note,
    one_line_json,
    say,
    say_json,
    say_table,
    shortened,
    tokens_of,
)
from graphflow.cli.terminal.failure_text import error_text
from graphflow.cli.terminal.steps import short_id

if TYPE_CHECKING:
    from graphflow.runtime.history.blame import Blame
    from graphflow.runtime.history.why import Decision


def register(threads: typer.Typer) -> None:
    for function in (blame, cost, why, replay):
        command(threads, function.__name__)(function)


async def blame(
    thread: Place,
    key: Annotated[str, typer.Argument(metavar="KEY", help="state.draft, state.messages[3], …")],
    path: Annotated[str, typer.Option(metavar="PATH", help="The frame, if several are open there.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show who wrote a value: checkpoint, node, visit, frame and model call."""
    async with opened() as app:
        found, at = await place_named(app, thread)
        report = await found.blame(key, at, path=path)
    if as_json:
        say_json(report)
        return
    # To recognize the value by; `threads state` prints it whole.
    say(f"{report.key} = {shortened(one_line_json(report.value), 200)}")
    say(f"written by {_writer(report)}")
    for depth, inner in _joined(report):
        say(
            f"{'  ' * depth}of {shortened(one_line_json(inner.value), 80)} by {_writer(inner)}, checkpoint {short_id(inner.checkpoint_id)}"
        )
    say(f"checkpoint {report.checkpoint_id} ({report.source}), run {report.run_id}")
    if report.model is not None:
        tokens = tokens_of(report.usage)
        say(f"model {report.model}" + (f", {tokens} tokens" if tokens else ""))


def _writer(report: Blame) -> str:
    where = f"{report.path}/{report.node}" if report.path else report.node
    who = f"node {where}, visit {report.visit}" if report.node is not None else f"the {report.source}"
    return who + (f", by {report.by}" if report.by else "")


def _joined(report: Blame, depth: int = 1) -> Iterator[tuple[int, Blame]]:
    """The writes in branches behind a value, with their depth."""
    for inner in report.branches:
        yield depth, inner
        yield from _joined(inner, depth + 1)


async def why(thread: Place, as_json: AsJson = False) -> None:
    """Show which condition, with which values, chose the route to a checkpoint."""
    async with opened() as app:
        found, at = await place_named(app, thread)
        report = await found.why(at)
    if as_json:
        say_json(report)
        return
    who = f" by {report.by}" if report.by else ""
    say(
        f"checkpoint {short_id(report.checkpoint_id)} ({report.source}{who})"
        + (f"  next: {', '.join(report.next)}" if report.next else "")
    )
    for decision in report.decisions:
        _say_decision(decision)
    for line in report.trace or ():
        say(f"  {line}")
    for effect, choice in (report.effects or {}).items():
        say(f"  effect {short_id(effect)}: {choice}")


_HOW = {
    "only": "its only route",
    "choice": "the node chose it",
    "error": "its error route",
    "stopped": "no error route takes this error: the run failed here",
    "budget": "budget exceeded",
    "expired": "nobody answered in time",
    "failed": "the error went to the parent node",
    "collect": "its error is collected",
    "skip": "its error is skipped",
    "condition": "",
}


def _say_decision(decision: Decision) -> None:
    where = f"{decision.path}/{decision.node}" if decision.path else decision.node
    how = _HOW.get(decision.how, decision.how)
    led = "" if decision.how == "stopped" else f" → {decision.to}"
    say(f"{where}#{decision.visit}{led}" + (f"  ({how})" if how else ""))
    if decision.error is not None:
        say(f"  {shortened(error_text(decision.error), 200)}")
    marks = {True: "✓", False: "✗", None: "·"}
    for condition in decision.conditions:
        values = ", ".join(f"{name} = {one_line_json(value)}" for name, value in condition.values.items())
        text = condition.when if condition.when is not None else "otherwise"
        say(f"  {marks[condition.held]} {condition.to}  if {text}" + (f"   [{values}]" if values else ""))


async def cost(thread: ThreadId, as_json: AsJson = False) -> None:
    """Show tokens and calls of a thread by run, node and model."""
    async with opened_thread(thread) as (_, found):
        report = await found.cost()
    if as_json:
        say_json(report)
        return
    rows: list[tuple[Any, ...]] = [_usage_row("total", "", report.total)]
    for kind, table in (("run", report.runs), ("node", report.nodes), ("model", report.models)):
        rows += [_usage_row(kind, name, usage) for name, usage in table.items()]
    say_table(("of", "", "prompt", "completion", "model calls", "tool calls", "USD"), rows, right=(2, 3, 4, 5, 6))


def _usage_row(kind: str, name: str, usage: dict[str, Any]) -> tuple[Any, ...]:
    columns = ("promptTokens", "completionTokens", "modelCalls", "toolCalls")
    cost = cost_text(usage["costUsd"]) if "costUsd" in usage else ""
    return (kind, name, *(usage.get(column) or "" for column in columns), cost)


async def replay(
    thread: ThreadId,
    until: Annotated[
        str | None, typer.Option(metavar="NODE[#VISIT]", help="First node to run again; default: the first.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Use this model instead.")] = None,
    new_id: NewId = None,
    effects: Effects = None,
    approve: Approve = "ask",
    budget: Budget = None,
    by: As = LOCAL,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Replay a thread's newest run up to a node, then run it live from there on a new thread."""
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.turn_driver import continue_thread

    policy, limits = policy_of(approve, by), budget_of(budget)
    async with opened_thread(thread) as (app, found):
        point = await found.replay_point(until)
        # On a thread of its own: what happened is evidence, and stays as it is.
        new = await forked(found, point.id, new_id, effect_choices(effects), by)
        note(f"thread {new.id}: recorded up to {short_id(point.id)} (step {point.step}), runs {', '.join(point.next)}")
        return await continue_thread(
            app, new.id, policy, limits=limits, as_json=as_json, as_lines=as_lines, model=model
        )
