"""What PLAIN and THINKING have in common: one turn that is the answer (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.parts import MESSAGES_STATE, last_node
from graphflow.modes.policies import Policies
from graphflow.modes.verify import append_verify


def one_turn(name: str, system_prompt: str, policies: Policies) -> dict[str, Any]:
    """The graph of one node of this name."""
    document = {
        "graphflow": "1",
        "state": MESSAGES_STATE,
        "budget": policies.budget,
        "start": name,
        "nodes": {name: {**last_node(system_prompt, policies), "next": "end"}},
    }
    return append_verify(document, policies, system_prompt)
