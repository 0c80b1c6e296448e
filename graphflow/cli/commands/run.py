"""`graphflow run`: one turn."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import command, root
from graphflow.cli.options import Agent, Approve, AsJson, AsLines, Budget, ContinueThread, Timeout
from graphflow.cli.startup import agent_named, opened
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import budget_of, message_text, pairs
from graphflow.cli.terminal.console import stop


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
        events = begin(graph, fields, thread_id, presets, budget=limits, title=text[:80] if text else None)
        return await drive_turn(graph, thread_id, events, policy, as_json=as_json, as_lines=as_lines, presets=presets)
