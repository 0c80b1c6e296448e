"""`graphflow rules`: standing rules about tool calls."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command, group, list_by_default
from graphflow.cli.options import As, AsJson
from graphflow.cli.startup import opened
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import local_time, note, say, say_json, say_table, stop

rules = group("rules", "Standing rules about tool calls: allow, ask or deny.")


@command(rules, "list")
async def list_rules(as_json: AsJson = False) -> None:
    """List rules in the order in which they are tried: thread rules, then agent rules, then global rules."""
    from graphflow.service.catalog.rules import rule_dict

    async with opened() as app:
        await app.runs.ready()
        # The store lists them by age; a call is checked against those of its thread first.
        found = sorted(await app.rules.standing(), key=lambda rule: (rule.thread_id is None, rule.agent_key is None))
    if as_json:
        say_json([rule_dict(rule) for rule in found])
        return
    if not found:
        note("no rules")
        return
    cells = []
    for rule in found:
        holds = f"thread {rule.thread_id}" if rule.thread_id else f"agent {rule.agent_key}" if rule.agent_key else "all"
        until = "-" if rule.expires_at is None else local_time(rule.expires_at)
        cells.append((rule.id, rule.decision, rule.tool, rule.args or "-", holds, until, rule.created_by))
    say_table(("id", "decision", "tool", "args", "for", "until", "by"), cells)


list_by_default(rules, list_rules)


@command(rules, "add")
async def add_rule(
    decision: Annotated[str, typer.Argument(help="allow, ask or deny.")],
    tool: Annotated[str, typer.Argument(help="A tool's name, or '*' for any.")],
    args: Annotated[
        str | None, typer.Option(metavar="CEL", help="""Condition, such as 'args.command == "ls"'.""")
    ] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Only this thread.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="KEY", help="Only this agent.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="PT1H|DATE", help="Duration, or end date.")] = None,
    reason: Annotated[str | None, typer.Option(help="Sent to the model with deny.")] = None,
    by: As = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Add a rule. A matching deny decides, else the first rule that matches; a tool's own checks still apply."""
    from graphflow.service.catalog.rules import rule_dict

    async with opened() as app:
        await app.runs.ready()
        rule = await app.rules.add(
            tool=tool,
            decision=decision,
            args=args,
            thread_id=thread,
            agent_key=agent,
            expires=expires,
            reason=reason,
            by=by,
        )
    if as_json:
        say_json(rule_dict(rule))
    else:
        say(rule.id)


@command(rules, "remove")
async def remove_rule(rule_id: Annotated[str, typer.Argument(metavar="ID", help="From `rules list`.")]) -> None:
    """Remove a rule."""
    async with opened() as app:
        await app.runs.ready()
        removed = await app.rules.remove(rule_id)
    if not removed:
        stop(exits.USAGE, f"no rule has the id {rule_id!r}", hint="`graphflow rules list`")
    note(f"removed {rule_id}")
