"""PLAIN: one model call, no tools (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.parts import MESSAGES_STATE, model_node
from graphflow.modes.policies import Policies


def compile_plain(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `answer → end`."""
    assert definition.plain is not None
    return {
        "graphflow": "1",
        "state": MESSAGES_STATE,
        "budget": policies.budget,
        "start": "answer",
        "nodes": {"answer": {**model_node(definition.plain.system_prompt, policies, tools=[]), "next": "end"}},
    }
