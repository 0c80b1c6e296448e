"""`graphflow run`: one turn."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command, root
from graphflow.cli.options import Agent, Approve, As, AsJson, AsLines, Budget, ContinueThread, Effects, Timeout
from graphflow.cli.startup import agent_named, opened
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import budget_of, effect_choices, message_text, pairs
from graphflow.cli.terminal.console import stop

ON_BUSY = ("reject", "enqueue", "interrupt", "rollback")
ON_WAITING = ("reject", "cancel", "answer")


@command(root, "run")
async def run(
    agent: Agent,
    message: Annotated[str | None, typer.Argument(metavar="MSG", help="The input; - reads stdin.")] = None,
    thread: ContinueThread = None,
    given: Annotated[
        list[str] | None, typer.Option("--input", metavar="K=V|@FILE", help="More input fields; repeatable.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="K=V|@FILE", help="State to set first; repeatable.")
    ] = None,
    budget: Budget = None,
    on_busy: Annotated[
        str,
        typer.Option(
            "--on-busy",
            metavar="|".join(ON_BUSY),
            help="If the thread's last run has not ended: refuse, queue, stop or undo it.",
        ),
    ] = "reject",
    on_waiting: Annotated[
        str | None,
        typer.Option(
            "--on-waiting",
            metavar="|".join(ON_WAITING),
            help="If the thread waits for an answer: refuse, cancel its questions, or answer with the message.",
        ),
    ] = None,
    effects: Effects = None,
    approve: Approve = "ask",
    time_limit: Timeout = None,
    by: As = LOCAL,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Run one turn of an agent. On a pipe, stdout is the final text only."""
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.turn_driver import begin, drive_turn

    # An unset variable of a script: each run would begin a thread of its own, unnoticed.
    if thread == "":
        stop(exits.USAGE, "--thread is empty; it takes a thread id")
    from graphflow.service.runs.query import automatic_title

    others = _about_others(on_busy, on_waiting, effects)
    fields = pairs(given or (), "--input")
    if (text := message_text(message)) is not None:
        fields["query"] = text
    # Read before the store is opened: wrong usage should cost nothing and touch nothing.
    presets, limits, policy = pairs(state or (), "--state"), budget_of(budget, time_limit), policy_of(approve, by)
    async with opened() as app:
        loaded = agent_named(app, agent)
        # A graph has its own input schema; every mode begins with a message of the user.
        if loaded.mode != "GRAPH" and not fields.get("query"):
            hint = f'graphflow run {agent} "MSG"; - reads the message from stdin'
            stop(exits.USAGE, f"agent {agent!r} needs a message", hint=hint)
        graph, thread_id = app.compiled(loaded), thread or app.ids.new_id()
        options = {"budget": limits, "title": automatic_title(text or "") or None, "by": by, **others}
        events = begin(graph, fields, thread_id, presets, **options)
        return await drive_turn(graph, thread_id, events, policy, as_json=as_json, as_lines=as_lines, presets=presets)


def _about_others(on_busy: str, on_waiting: str | None, effects: str | None) -> dict[str, Any]:
    """What becomes of the run that the thread has already, as options of the new one."""
    if on_busy not in ON_BUSY:
        stop(exits.USAGE, f"--on-busy takes {', '.join(ON_BUSY)}, not {on_busy!r}")
    if on_waiting is not None and on_waiting not in ON_WAITING:
        stop(exits.USAGE, f"--on-waiting takes {', '.join(ON_WAITING)}, not {on_waiting!r}")
    if effects is not None and on_busy != "rollback":
        stop(exits.USAGE, "--effects says what a rollback does", hint="--on-busy rollback --effects …")
    # An interrupted run's questions end with it.
    waiting = on_waiting or ("cancel" if on_busy in ("interrupt", "rollback") else "reject")
    choices = effect_choices(effects)
    return {"on_busy": on_busy, "on_waiting": waiting, **({} if choices is None else {"effects": choices})}
