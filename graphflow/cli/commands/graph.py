"""`graphflow graph`: the graphs of agents, as text, SVG, Mermaid, DOT or their explicit document."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import command, group, list_by_default
from graphflow.cli.options import Agent, AsJson
from graphflow.cli.startup import agent_named, opened, thread_named
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, put, say_json, say_table, stop
from graphflow.cli.terminal.steps import path_taken, say_drawing

graph = group("graph", "Draw an agent's graph.")


@command(graph, "list")
async def list_graphs(as_json: AsJson = False) -> None:
    """List the graphs of all agents: nodes, start and version."""
    async with opened() as app:
        loaded = app.agents.list()
    found = [(agent, agent.checked.document) for agent in loaded]
    if as_json:
        say_json(
            [
                {"key": agent.key, "mode": agent.mode, "nodes": list(document.nodes), "start": document.start, "version": agent.version}
                for agent, document in found
            ]
        )  # fmt: skip
    elif found:
        rows = [(agent.key, agent.mode, document.start, " ".join(document.nodes)) for agent, document in found]
        say_table(("agent", "mode", "start", "nodes"), rows)
        note("`graphflow graph show AGENT` draws one")
    else:
        note(f"no agents found in {app.settings.agents.dir}; `graphflow new NAME` creates one")


list_by_default(graph, list_graphs)


@command(graph, "show")
async def show_graph(
    agent: Agent,
    text: Annotated[bool, typer.Option("--text", help="One line per node (the default).")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="One self-contained SVG file.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid flowchart.")] = False,
    dot: Annotated[bool, typer.Option("--dot", help="A graph in the DOT language of Graphviz.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The compiled graph; valid as an agent file.")] = False,
    across: Annotated[bool, typer.Option("--lr", help="Draw from left to right; conditions stand in full.")] = False,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Mark the path of this thread's run.")] = None,
) -> None:
    """Draw the graph of an agent."""
    from graphflow.graph.drawing.render import draw_dot, draw_mermaid, draw_svg

    if text + svg + mermaid + dot + as_json > 1:
        stop(exits.USAGE, "choose one of --text, --svg, --mermaid, --dot and --json")
    if across and not (svg or mermaid or dot):
        stop(exits.USAGE, "--lr is for --svg, --mermaid and --dot")
    async with opened() as app:
        loaded = agent_named(app, agent)
        # Read before the application closes the store.
        path = await path_taken(await thread_named(app, thread)) if thread else None
    document = loaded.checked.document
    if as_json:
        # The compiled document with the agent's fields: saved as a file it is the same agent, with the same version.
        say_json(loaded.data)
    elif svg or mermaid or dot:
        put((draw_svg if svg else draw_mermaid if mermaid else draw_dot)(document, path, across=across))
    else:
        say_drawing(document, path)
