"""PLAIN_TOOLING: `decide`, one round of tools, `answer` (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.policies import Policies
from graphflow.modes.tooling import tooling


def compile_plain_tooling(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `decide → tools → answer`."""
    assert definition.plain_tooling is not None
    return tooling("decide", definition.plain_tooling.system_prompt, definition, policies)
