"""`graphflow schema`: JSON Schemas of agent files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.cli.command import command, root
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import say_json, stop


@command(root, "schema")
def schema(
    part: Annotated[str | None, typer.Argument(metavar="agent|graph|nodes", help="One schema; default: all.")] = None,
) -> None:
    """Print the JSON Schemas of agent files, of graphs, and of the input and output of each node kind."""
    from graphflow.graph.definition.document import document_schema
    from graphflow.modes.definition import agent_schema

    made = {"agent": agent_schema, "graph": document_schema, "nodes": node_schemas}
    if part is None:
        say_json({name: make() for name, make in made.items()})
    elif part in made:
        say_json(made[part]())
    else:
        stop(exits.USAGE, f"unknown schema {part!r}; schemas are {', '.join(made)}")


def node_schemas() -> dict[str, Any]:
    """`with` and `out` of every built-in node kind; null accepts anything."""
    from graphflow.nodes.kinds import NodeKinds
    from graphflow.tools.builtin import builtin_tools
    from graphflow.tools.registry import ToolRegistry

    # The built-in tools are enough: a project's own tools change no node kind.
    kinds = NodeKinds(ToolRegistry(builtins=builtin_tools()))
    found = ((name, kinds.find(name)) for name in kinds.names())
    return {
        name: {"with": kind.with_schema, "out": kind.out_schema or getattr(kind, "out_described", None)}
        for name, kind in found
        if kind is not None
    }
