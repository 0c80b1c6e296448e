"""`graphflow schema`: the JSON Schemas of what people write."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.cli.command import command, stop
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import say_json

PARTS = ("agent", "graph", "nodes")


def register(app: typer.Typer) -> None:
    command(app, "schema")(schema)


def schema(
    part: Annotated[str | None, typer.Argument(metavar="agent|graph|nodes", help="One of them; default: all.")] = None,
) -> None:
    """Print the JSON Schemas of agent files, of graphs, and of what each node kind takes and gives."""
    made = {"agent": agent_schema, "graph": graph_schema, "nodes": node_schemas}
    if part is None:
        say_json({name: make() for name, make in made.items()})
    elif part in made:
        say_json(made[part]())
    else:
        stop(exits.USAGE, f"there is no schema {part!r}; there are {', '.join(PARTS)}")


def graph_schema() -> dict[str, Any]:
    """Of a file that spells its graph out."""
    from graphflow.graph.definition.document import document_schema

    return document_schema()


def agent_schema() -> dict[str, Any]:
    """Of any agent file: one that names a mode, or one that spells its graph out."""
    import msgspec

    from graphflow.graph.definition.document import GraphDefinition
    from graphflow.modes.definition import AgentDefinition

    (agent, graph), parts = msgspec.json.schema_components(
        [AgentDefinition, GraphDefinition], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "graphflow agent",
        "if": {"required": ["mode"]},
        "then": agent,
        "else": graph,
        "$defs": parts,
    }


def node_schemas() -> dict[str, Any]:
    """`with` and `out` of every node kind in the box; None is anything."""
    from graphflow.nodes.kinds import NodeKinds
    from graphflow.tools.builtin import builtin_tools
    from graphflow.tools.registry import ToolRegistry

    kinds = NodeKinds(ToolRegistry(builtins=builtin_tools()))
    found = ((name, kinds.find(name)) for name in kinds.names())
    return {name: {"with": kind.with_schema, "out": kind.out_schema} for name, kind in found if kind is not None}
