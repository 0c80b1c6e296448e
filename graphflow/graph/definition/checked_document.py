"""What the compiler gives and the plan is built from; in a module of its own, so that a stored document is read
without loading a single check (E20).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.document import GraphDefinition


@dataclass(frozen=True, kw_only=True)
class CheckedDocument:
    """A document that may run; immutable."""

    document: GraphDefinition
    data: dict[str, Any]
    """Normalised plain JSON, defaults left out: what is stored under the hash and printed."""
    digest: str
    """The version hash (E23): `sha256:` and hex digits."""
    warnings: tuple[Issue, ...] = ()
    subgraphs: dict[str, CheckedDocument] = field(default_factory=dict)
    """By the `KEY` or `KEY@VERSION` that a node names; a graph in place by its node's name."""
    agents: dict[str, CheckedDocument] = field(default_factory=dict)
    """Of a whole document: every agent that can be reached from it through `agent:` nodes, itself included if it is, by
    key. They name each other by key, as they may form cycles; the `digest` of each is that of its own document."""
