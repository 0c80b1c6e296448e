"""`graphflow graph show`: an agent's graph as text, SVG, Mermaid or its explicit document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphflow.cli.command import command, group, stop
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import say, say_json

if TYPE_CHECKING:
    from graphflow.graph.drawing.render import PathTaken
    from graphflow.runtime.thread import CheckpointInfo, Thread

graph = group("graph", "Draw an agent's graph.")


def register(app: typer.Typer) -> None:
    app.add_typer(graph)


@command(graph, "show")
async def show_graph(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent's key, or a .json file.")],
    text: Annotated[bool, typer.Option("--text", help="One line a node (the default).")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="One self-contained SVG file.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid flowchart.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The explicit document; saved as a file it is an agent.")
    ] = False,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Mark the way that this thread's run took.")] = None,
) -> None:
    """Draw the graph of an agent."""
    from graphflow.cli.startup import agent_named, opened, thread_named
    from graphflow.graph.drawing.render import draw_mermaid, draw_svg, draw_text

    if text + svg + mermaid + as_json > 1:
        stop(exits.USAGE, "--text, --svg, --mermaid and --json are four forms of one thing; choose one")
    async with opened() as app:
        loaded = agent_named(app, agent)
        path = await path_taken(await thread_named(app, thread)) if thread else None
    if as_json:
        say_json(loaded.data)
    else:
        draw = draw_svg if svg else draw_mermaid if mermaid else draw_text
        say(draw(loaded.checked.document, path))


async def path_taken(thread: Thread) -> PathTaken:
    """The nodes that have finished since the thread's newest input, in order, and where it is."""
    from graphflow.cli.commands.threads import finished
    from graphflow.graph.drawing.render import PathTaken

    state = await thread.state()
    rows: list[CheckpointInfo] = []
    for row in await thread.history():
        rows.insert(0, row)
        if row.source == "input":
            break
    unfinished = state.status in ("running", "waiting", "stopped", "failed")
    return PathTaken(nodes=tuple(row.node for row in finished(rows)), current=tuple(state.next) if unfinished else ())
