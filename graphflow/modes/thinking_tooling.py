"""THINKING_TOOLING: `think`, one round of tools, `answer`; the reasoning first (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.policies import Policies
from graphflow.modes.tooling import tooling


def compile_thinking_tooling(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `think → tools → answer`."""
    assert definition.thinking_tooling is not None
    return tooling("think", definition.thinking_tooling.system_prompt, definition, policies)
