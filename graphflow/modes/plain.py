"""PLAIN: one model call, no tools; where tools are allowed it is PLAIN_TOOLING (spec 1.1, 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.one_turn import one_turn
from graphflow.modes.parts import offers_tools
from graphflow.modes.policies import Policies
from graphflow.modes.tooling import tooling


def compile_plain(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `answer → end`."""
    assert definition.plain is not None
    prompt = definition.plain.system_prompt
    if offers_tools(definition, policies):
        return tooling("decide", prompt, definition, policies)
    return one_turn("answer", prompt, policies)
