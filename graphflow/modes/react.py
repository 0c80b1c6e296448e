"""REACT: `reason` ⇄ `tools`, at most one tool per round, then `answer` when the rounds are used up (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.parts import MESSAGES_STATE, calling_node, last_node, offers_tools
from graphflow.modes.policies import Policies
from graphflow.modes.verify import append_verify
from graphflow.nodes.prompts import BEST_ANSWER


def compile_react(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `reason ⇄ tools`, with `answer` as its last node; a turn without calls is the answer."""
    assert definition.react is not None
    prompt = definition.react.system_prompt
    offers = offers_tools(definition, policies)
    document = {
        "graphflow": "1",
        "state": MESSAGES_STATE,
        "budget": {**policies.budget, "onExceeded": "answer"},
        "start": "reason",
        "nodes": {
            # Asked for one call a turn; a model that ignores this is held to it by `max` of the tools node.
            "reason": calling_node("reason", prompt, policies, offers=offers, parallelToolCalls=False),
            "tools": _tools(offers),
            "answer": {**last_node(prompt, policies, messages="${state.messages}", prompt=BEST_ANSWER), "next": "end"},
        },
    }
    return append_verify(document, policies, prompt)


def _tools(offers: bool) -> dict[str, Any]:
    """One call a round; where none is allowed none runs, and a call that comes anyway gets an error result."""
    return {
        "use": "tools",
        "with": {"max": 1 if offers else 0},
        "set": {"messages": "out.messages"},
        # A condition that names `limits.rounds` also gives the finish reason `max_rounds` once it no longer holds.
        "next": [{"if": "visits.reason < limits.rounds", "to": "reason"}, {"to": "answer"}],
    }
