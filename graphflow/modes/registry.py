"""Every mode that this version compiles, and the way from an agent file to its explicit document (spec 1, E23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.errors import DefinitionError, Fault
from graphflow.graph.document import AGENT_FIELDS
from graphflow.modes.definition import AgentDefinition
from graphflow.modes.plain import compile_plain
from graphflow.modes.policies import Policies, resolve_policies
from graphflow.modes.react import compile_react

Compiler = Callable[[AgentDefinition, Policies], dict[str, Any]]
"""Definition and policies → document as plain JSON data; pure."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One built mode."""

    compile: Compiler
    block: str
    """The definition's attribute that holds the mode's block."""
    offers_tools: bool
    """Whether its graph has a `tools` node."""


MODES: Mapping[str, Mode] = {
    "PLAIN": Mode(compile=compile_plain, block="plain", offers_tools=False),
    "REACT": Mode(compile=compile_react, block="react", offers_tools=True),
}


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """An agent's explicit document and what there is to say about it."""

    data: dict[str, Any]
    """Saved as a file this is the same agent, with the same version hash (eject, E23)."""
    policies: Policies
    warnings: tuple[Fault, ...]


def compile_agent(definition: AgentDefinition, file_data: Mapping[str, Any]) -> Compiled:
    """The explicit document of an agent: its own fields, then the graph of its mode.

    Args:
        definition: a checked definition of a built mode, with its block.
        file_data: the file's data as written; its agent fields are carried over unchanged.

    Raises:
        DefinitionError: the policies ask for what this version does not build.
    """
    mode = MODES[definition.mode]
    policies = resolve_policies(definition, getattr(definition, mode.block))
    if faults := list(_unbuilt(definition, policies, mode)):
        raise DefinitionError(faults)
    own = {name: value for name, value in file_data.items() if name in AGENT_FIELDS and name != "budget"}
    return Compiled(data={**own, **mode.compile(definition, policies)}, policies=policies, warnings=policies.warnings)


def _unbuilt(definition: AgentDefinition, policies: Policies, mode: Mode) -> Iterator[Fault]:
    if policies.verify != "NONE":
        yield _not_here("/verify", f"verify {policies.verify!r}", "use 'NONE'")
    if policies.output != "PLAIN":
        yield _not_here("/output", f"output {policies.output!r}", "use 'PLAIN'")
    if policies.tool_policy != "DISALLOW" and definition.tools and not mode.offers_tools:
        subject = f"mode {definition.mode} with toolPolicy {policies.tool_policy!r} compiles to {definition.mode}_TOOLING, which"
        yield _not_here("/toolPolicy", subject, "use mode REACT")


def _not_here(pointer: str, subject: str, hint: str) -> Fault:
    return Fault(pointer=pointer, message=f"{subject} is not in this version", hint=hint, kind="property")
