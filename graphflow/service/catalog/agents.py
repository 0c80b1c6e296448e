"""Agents as clients see them (spec 3.1, 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphflow.agents.loader import LoadedAgent
from graphflow.agents.reload import InvalidAgent
from graphflow.service.catalog.policies import policies
from graphflow.service.catalog.tools import issue_dict, shown_file
from graphflow.service.context import ServiceContext


def agents(context: ServiceContext, *, tag: str | None = None, q: str | None = None) -> list[dict[str, Any]]:
    """Every agent, by key; a refused file with its first error, also when an earlier version stays active."""
    refused = {invalid.key: invalid for invalid in context.agents.invalid()}
    lines = {agent.key: _line(agent) for agent in context.agents.list()}
    # A refused file may have an active version or not: either way there is one line for its key.
    for key, invalid in refused.items():
        lines.setdefault(key, _missing(key))["invalid"] = issue_of(invalid, context.settings.folder)
    found = [line for _, line in sorted(lines.items())]
    return [line for line in found if _matches(line, tag) and _matches(line, q)]


def agent(context: ServiceContext, key: str) -> dict[str, Any]:
    """One agent in full, with its compiled graph.

    Raises:
        AgentNotFound: names the agents that exist.
    """
    # Imported here: only this function draws.
    from graphflow.graph.drawing.layout import layout
    from graphflow.graph.drawing.render import draw_mermaid

    found = context.agents.get(key)
    document = found.checked.document
    plan = layout(document)
    refused = next((invalid for invalid in context.agents.invalid() if invalid.key == key), None)
    return {
        **_line(found),
        "providerKey": found.provider_key,
        "keywords": list(found.keywords),
        "instructions": found.instructions,
        "warnings": [issue.as_dict() for issue in found.warnings],
        "graph": {
            "start": document.start,
            "nodes": [{"name": box.name, "kind": box.kind, "form": box.form} for box in plan.nodes],
            "edges": [_edge(edge) for edge in plan.edges],
            "mermaid": draw_mermaid(document),
        },
        "policies": policies(context, document),
        "document": found.data,
        **({"invalid": issue_of(refused, context.settings.folder)} if refused is not None else {}),
    }


def _line(found: LoadedAgent) -> dict[str, Any]:
    return {
        "key": found.key,
        "name": found.name,
        "icon": found.icon,
        "description": found.description,
        "mode": found.mode,
        "model": found.model,
        "tools": list(found.tools),
        "version": found.version,
    }


def _missing(key: str) -> dict[str, Any]:
    blank: dict[str, Any] = {"icon": None, "description": "", "mode": None, "model": None, "tools": [], "version": None}
    return {"key": key, "name": key, **blank}


def issue_of(invalid: InvalidAgent, folder: Path) -> dict[str, Any]:
    """The first error of a refused file: `{file, line, column, pointer, message}`."""
    issue = invalid.errors[0]
    # An error that was not found in the text itself names no file, but clients show one.
    file = issue.file or invalid.file
    return {**issue_dict(issue, folder), "file": None if file is None else shown_file(file, folder)}


def _edge(edge: Any) -> dict[str, Any]:
    out = {"source": edge.source, "target": edge.target, "kind": edge.kind, "condition": edge.condition or None}
    return {key: value for key, value in out.items() if value is not None}


def _matches(line: Mapping[str, Any], wanted: str | None) -> bool:
    if not wanted:
        return True
    text = " ".join([line["key"], line["name"], line["description"] or "", *line["tools"]])
    return wanted.lower() in text.lower()
