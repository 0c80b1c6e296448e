"""Every mode that this version compiles, and the way from an agent file to its explicit document (spec 1, E23)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.document import AGENT_FIELDS
from graphflow.modes.agent_calls import with_agent_calls
from graphflow.modes.definition import AgentDefinition
from graphflow.modes.plan_execute import compile_plan_execute
from graphflow.modes.policies import Policies, resolve_policies
from graphflow.modes.react import compile_react
from graphflow.modes.react_team import compile_react_team, written_at
from graphflow.modes.simple import compile_plain, compile_plain_tooling, compile_thinking, compile_thinking_tooling

Compiler = Callable[[AgentDefinition, Policies], dict[str, Any]]
"""Definition and policies → document as plain JSON data; pure."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One built mode."""

    compile: Compiler
    block: str
    """The definition's attribute that holds the mode's block."""
    written_at: Callable[[str], str | None] = lambda _: None
    """Pointer into the compiled graph → the corresponding pointer into the agent file, or None."""


MODES: Mapping[str, Mode] = {
    "PLAIN": Mode(compile=compile_plain, block="plain"),
    "THINKING": Mode(compile=compile_thinking, block="thinking"),
    "PLAIN_TOOLING": Mode(compile=compile_plain_tooling, block="plain_tooling"),
    "THINKING_TOOLING": Mode(compile=compile_thinking_tooling, block="thinking_tooling"),
    "REACT": Mode(compile=compile_react, block="react"),
    "PLAN_EXECUTE": Mode(compile=compile_plan_execute, block="plan_execute"),
    "REACT_TEAM": Mode(compile=compile_react_team, block="react_team", written_at=written_at),
}


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """An agent's explicit document, its policies and warnings."""

    data: dict[str, Any]
    """Saved as a file, this is the same agent with the same version hash (eject, E23)."""
    policies: Policies
    warnings: tuple[Issue, ...]


def compile_agent(definition: AgentDefinition, file_data: Mapping[str, Any]) -> Compiled:
    """The explicit document of an agent: its own fields, then the graph of its mode.

    Args:
        definition: a checked definition of a built mode, with its block.
        file_data: the file's data as written; its agent fields are carried over unchanged.
    """
    mode = MODES[definition.mode]
    policies = resolve_policies(definition, getattr(definition, mode.block))
    # The mode resolves the budget itself; the written one would override its presets.
    own = {name: value for name, value in file_data.items() if name in AGENT_FIELDS and name != "budget"}
    if definition.keywords:
        own.setdefault("tools", [])  # an agent has the tools of its keywords, and no others
    data = dict(with_agent_calls({**own, **mode.compile(definition, policies)}))
    return Compiled(data=data, policies=policies, warnings=policies.warnings)
