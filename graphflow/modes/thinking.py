"""THINKING: one model call, the reasoning first; where tools are allowed it is THINKING_TOOLING (spec 1.1, 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.one_turn import one_turn
from graphflow.modes.parts import offers_tools
from graphflow.modes.policies import Policies
from graphflow.modes.tooling import tooling


def compile_thinking(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `think → end`."""
    assert definition.thinking is not None
    prompt = definition.thinking.system_prompt
    if offers_tools(definition, policies):
        return tooling("think", prompt, definition, policies)
    return one_turn("think", prompt, policies)
