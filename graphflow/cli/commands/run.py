"""`graphflow run`: one turn."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import command, root
from graphflow.cli.options import Agent, Approve, AsJson, AsLines, Budget, ContinueThread, Effects, Timeout
from graphflow.cli.startup import agent_named, opened
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import budget_of, effect_choices, message_text, pairs
from graphflow.cli.terminal.console import stop

ON_BUSY = ("reject", "enqueue", "interrupt", "rollback")


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
    effects: Effects = None,
    approve: Approve = "ask",
    time_limit: Timeout = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Run one turn of an agent. On a pipe, stdout is the final text only."""
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.turn_driver import begin, drive_turn

    # An unset variable of a script: each run would begin a thread of its own, unnoticed.
    if thread == "":
        stop(exits.USAGE, "--thread is empty; it takes a thread id")
    if on_busy not in ON_BUSY:
        stop(exits.USAGE, f"--on-busy takes {', '.join(ON_BUSY)}, not {on_busy!r}")
    if effects is not None and on_busy != "rollback":
        stop(exits.USAGE, "--effects says what a rollback does", hint="--on-busy rollback --effects …")
    fields = pairs(given or (), "--input")
    if (text := message_text(message)) is not None:
        fields["query"] = text
    # Read before the store is opened: wrong usage should cost nothing and touch nothing.
    presets, limits, policy = pairs(state or (), "--state"), budget_of(budget, time_limit), policy_of(approve)
    async with opened() as app:
        loaded = agent_named(app, agent)
        # A graph has its own input schema; every mode begins with a message of the user.
        if loaded.mode != "GRAPH" and not fields.get("query"):
            hint = f'graphflow run {agent} "MSG"; - reads the message from stdin'
            stop(exits.USAGE, f"agent {agent!r} needs a message", hint=hint)
        graph, thread_id = app.compiled(loaded), thread or app.ids.new_id()
        options = {"budget": limits, "title": text[:80] if text else None, "on_busy": on_busy}
        if on_busy in ("interrupt", "rollback"):
            options["on_waiting"] = "cancel"  # its questions are of the run that ends
        if (choices := effect_choices(effects)) is not None:
            options["effects"] = choices
        events = begin(graph, fields, thread_id, presets, **options)
        return await drive_turn(graph, thread_id, events, policy, as_json=as_json, as_lines=as_lines, presets=presets)
