"""`graphflow graph show`: an agent's graph as text, SVG, Mermaid or its explicit document."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import command, group
from graphflow.cli.options import Agent
from graphflow.cli.startup import agent_named, opened, thread_named
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import say, say_json, stop
from graphflow.cli.terminal.steps import path_taken

graph = group("graph", "Draw an agent's graph.")


@command(graph, "show")
async def show_graph(
    agent: Agent,
    text: Annotated[bool, typer.Option("--text", help="One line per node (the default).")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="One self-contained SVG file.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid flowchart.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The compiled graph; valid as an agent file.")] = False,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Mark the path of this thread's run.")] = None,
) -> None:
    """Draw the graph of an agent."""
    from graphflow.graph.drawing.render import draw_mermaid, draw_svg, draw_text

    if text + svg + mermaid + as_json > 1:
        stop(exits.USAGE, "choose one of --text, --svg, --mermaid and --json")
    async with opened() as app:
        loaded = agent_named(app, agent)
        # Read before the application closes the store.
        path = await path_taken(await thread_named(app, thread)) if thread else None
    if as_json:
        # The compiled document with the agent's fields: saved as a file it is the same agent, with the same version.
        say_json(loaded.data)
    else:
        draw = draw_svg if svg else draw_mermaid if mermaid else draw_text
        say(draw(loaded.checked.document, path))
