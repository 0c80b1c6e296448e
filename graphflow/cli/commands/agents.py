"""`graphflow agents`: loaded agents, and rejected files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command, group, list_by_default
from graphflow.cli.options import Agent, AsJson
from graphflow.cli.startup import agent_named, opened
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, say_json, say_table
from graphflow.cli.terminal.steps import say_drawing
from graphflow.errors import summed_up

if TYPE_CHECKING:
    from graphflow.agents.loader import LoadedAgent
    from graphflow.agents.reload import InvalidAgent

agents = group("agents", "Loaded agents, and rejected files.")


@command(agents, "list")
async def list_agents(as_json: AsJson = False) -> int:
    """List agents, and the errors of rejected files. Exit code 2 if a file was rejected."""
    async with opened() as app:
        loaded, refused = app.agents.list(), app.agents.invalid()
    if as_json:
        say_json([*(agent_dict(agent) for agent in loaded), *(_refused_dict(agent) for agent in refused)])
    else:
        rows = [
            (a.key, a.mode, a.model or a.provider_key or "auto", " ".join(a.tools) or "-", a.description)
            for a in loaded
        ]
        if rows:
            say_table(("key", "mode", "model", "tools", "description"), rows)
        else:
            note(f"no agents found in {app.settings.agents.dir}; `graphflow new NAME` creates one")
        for agent in refused:
            for issue in summed_up(agent.errors):
                note(f"{issue.severity}: {issue.render()}")
    # A script that reads the list must not take half of the agents for all of them.
    return exits.USAGE if refused else exits.OK


list_by_default(agents, list_agents)


@command(agents, "show")
async def show_agent(
    agent: Agent, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the compiled graph.")] = False
) -> None:
    """Show one agent in full, with its graph."""
    async with opened() as app:
        loaded = agent_named(app, agent)
    if as_json:
        say_json({**agent_dict(loaded), "graph": loaded.data})
        return
    for name, value in agent_dict(loaded).items():
        # The key is what was typed, the instructions follow as a block, and an icon is for pages.
        if name not in ("key", "instructions", "icon"):
            say(f"{name:<12} {' '.join(value) if isinstance(value, list | tuple) else value}", indent=" " * 13)
    for issue in summed_up(loaded.warnings):
        say(f"{'warning':<12} {issue.render()}", indent=" " * 13)
    if loaded.instructions:
        say(f"\n{loaded.instructions.strip()}")
    say()
    say_drawing(loaded.checked.document)


def agent_dict(agent: LoadedAgent) -> dict[str, Any]:
    """An agent's facts in the names of the wire."""
    out: dict[str, Any] = {
        "key": agent.key,
        "name": agent.name,
        "icon": agent.icon,
        "description": agent.description,
        "mode": agent.mode,
        "providerKey": agent.provider_key,
        "model": agent.model,
        "tools": agent.tools,
        "keywords": agent.keywords,
        "instructions": agent.instructions,
        "version": agent.version,
        "file": agent.file,
    }
    # Left out as in the file: what an agent does not set, it leaves to the defaults.
    return {name: value for name, value in out.items() if value not in (None, ())}


def _refused_dict(agent: InvalidAgent) -> dict[str, Any]:
    return {"key": agent.key, "invalid": [issue.as_dict() for issue in agent.errors]}
