"""`graphflow threads blame|why|cost` and `graphflow replay`: what a thread's records tell, and playing them back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command
from graphflow.cli.commands.run import Approve, AsJson, AsLines, Budget, figures_of
from graphflow.cli.commands.threads import ThreadId, short
from graphflow.cli.commands.threads_travel import Effects, PlainJson, choices_of
from graphflow.cli.commands.usage import cost_text
from graphflow.cli.terminal.console import note, one_line_json, say, say_json, say_table, shortened
from graphflow.json_data import plain

if TYPE_CHECKING:
    from graphflow.runtime.history.blame import Blame
    from graphflow.runtime.history.why import Decision
    from graphflow.runtime.thread import Thread
    from graphflow.service.application import Application

Place = Annotated[
    str, typer.Argument(metavar="THREAD[@CHECKPOINT]", help="Without a checkpoint: the head. Ids may be given in part.")
]


def register(threads: typer.Typer, app: typer.Typer) -> None:
    command(threads, "blame")(blame)
    command(threads, "cost")(cost)
    for group in (threads, app):
        command(group, "why")(why)
        command(group, "replay")(replay)


async def _place(app: Application, given: str) -> tuple[Thread, str | None]:
    from graphflow.cli.startup import checkpoint_named, thread_named

    thread_id, _, checkpoint = given.partition("@")
    thread = await thread_named(app, thread_id)
    return thread, (await checkpoint_named(thread, checkpoint)).id if checkpoint else None


async def blame(
    thread: Place,
    key: Annotated[str, typer.Argument(metavar="KEY", help="state.draft, state.messages[3], …")],
    path: Annotated[str, typer.Option(metavar="PATH", help="The frame, of those that are open there.")] = "",
    as_json: PlainJson = False,
) -> None:
    """Who wrote a value: checkpoint, node, visit, frame and model call."""
    import msgspec

    from graphflow.cli.startup import opened

    async with opened() as app:
        found, at = await _place(app, thread)
        told = await found.blame(key, at, path=path)
    if as_json:
        say_json(msgspec.to_builtins(told, enc_hook=plain))
        return
    say(f"{told.key} = {shortened(one_line_json(told.value), 200)}")
    say(f"written by {_writer(told)}")
    for depth, inner in _joined(told):
        say(
            f"{'  ' * depth}of {shortened(one_line_json(inner.value), 80)} by {_writer(inner)}, checkpoint {short(inner.checkpoint_id)}"
        )
    say(f"checkpoint {told.checkpoint_id} ({told.source}), run {told.run_id}")
    if told.model is not None:
        usage = told.usage or {}
        tokens = (usage.get("promptTokens") or 0) + (usage.get("completionTokens") or 0)
        say(f"model {told.model}" + (f", {tokens} tokens" if tokens else ""))


def _writer(told: Blame) -> str:
    where = f"{told.path}/{told.node}" if told.path else told.node
    who = f"node {where}, visit {told.visit}" if told.node is not None else f"the {told.source}"
    return who + (f", by {told.by}" if told.by else "")


def _joined(told: Blame, depth: int = 1) -> Iterator[tuple[int, Blame]]:
    """The writes in branches behind a value, with how deep they lie."""
    for inner in told.branches:
        yield depth, inner
        yield from _joined(inner, depth + 1)


async def why(thread: Place, as_json: PlainJson = False) -> None:
    """Which condition, with which values, took the edge behind a checkpoint."""
    import msgspec

    from graphflow.cli.startup import opened

    async with opened() as app:
        found, at = await _place(app, thread)
        told = await found.why(at)
    if as_json:
        say_json(msgspec.to_builtins(told, enc_hook=plain))
        return
    who = f" by {told.by}" if told.by else ""
    say(
        f"checkpoint {short(told.checkpoint_id)} ({told.source}{who})"
        + (f"  next: {', '.join(told.next)}" if told.next else "")
    )
    for decision in told.decisions:
        _say_decision(decision)
    for effect, choice in (told.effects or {}).items():
        say(f"  effect {short(effect)}: {choice}")


_HOW = {
    "only": "its only way",
    "choice": "the node chose it",
    "error": "its error route",
    "budget": "the budget was used up",
    "expired": "nobody answered in time",
    "failed": "the failure went to the node above",
    "collect": "its failure is collected",
    "skip": "its failure is left out",
    "condition": "",
}


def _say_decision(decision: Decision) -> None:
    where = f"{decision.path}/{decision.node}" if decision.path else decision.node
    how = _HOW.get(decision.how, decision.how)
    say(f"{where}#{decision.visit} → {decision.to}" + (f"  ({how})" if how else ""))
    if decision.error is not None:
        say(f"  {decision.error['code']}: {shortened(str(decision.error['message']), 200)}")
    marks = {True: "✓", False: "✗", None: "·"}
    for condition in decision.conditions:
        values = ", ".join(f"{name} = {one_line_json(value)}" for name, value in condition.values.items())
        text = condition.when if condition.when is not None else "otherwise"
        say(f"  {marks[condition.held]} {condition.to}  if {text}" + (f"   [{values}]" if values else ""))


async def cost(thread: ThreadId, as_json: PlainJson = False) -> None:
    """Tokens and calls of a thread, by run, node and model."""
    import msgspec

    from graphflow.cli.startup import opened, thread_named

    async with opened() as app:
        told = await (await thread_named(app, thread)).cost()
    if as_json:
        say_json(msgspec.to_builtins(told))
        return
    rows: list[tuple[Any, ...]] = [_figures("total", "", told.total)]
    for kind, table in (("run", told.runs), ("node", told.nodes), ("model", told.models)):
        rows += [_figures(kind, name, usage) for name, usage in table.items()]
    say_table(("of", "", "prompt", "completion", "model calls", "tool calls", "USD"), rows, right=(2, 3, 4, 5, 6))


def _figures(kind: str, name: str, usage: dict[str, Any]) -> tuple[Any, ...]:
    figures = ("promptTokens", "completionTokens", "modelCalls", "toolCalls")
    cost = cost_text(usage["costUsd"]) if "costUsd" in usage else ""
    return (kind, name, *(usage.get(figure, 0) or "" for figure in figures), cost)


async def replay(
    thread: ThreadId,
    until: Annotated[
        str | None, typer.Option(metavar="NODE[#VISIT]", help="The first node to run again; default: the first.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Ask this model instead.")] = None,
    new_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The new thread's id.")] = None,
    effects: Effects = None,
    approve: Approve = "ask",
    budget: Budget = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Play a thread's newest run back up to a node and run it again from there, on a thread of its own."""
    from graphflow.cli.commands.threads_travel import go_on
    from graphflow.cli.startup import forked, opened, thread_named
    from graphflow.cli.terminal.answer_policy import policy_of

    policy, figures = policy_of(approve), figures_of(budget)
    async with opened() as app:
        found = await thread_named(app, thread)
        point = await found.replay_point(until)
        new = await forked(found, point.id, new_id, choices_of(effects))
        note(f"thread {new.id}: recorded up to {short(point.id)} (step {point.step}), runs {', '.join(point.next)}")
        return await go_on(
            app, new.id, text=None, policy=policy, figures=figures, as_json=as_json, as_lines=as_lines, model=model
        )
