"""What PLAIN_TOOLING and THINKING_TOOLING have in common: at most one round of tools (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.parts import BEST_ANSWER, MESSAGES_STATE, calling_node, last_node, offers_tools
from graphflow.modes.policies import Policies
from graphflow.modes.verify import append_verify


def tooling(name: str, system_prompt: str, definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `NAME → tools → answer`; a first turn without calls is the answer.

    All calls of the turn are run. `answer` is also where the budget leads, and only then is it told that the
    conversation ends here.
    """
    offers = offers_tools(definition, policies)
    document = {
        "graphflow": "1",
        "state": MESSAGES_STATE,
        "budget": {**policies.budget, "onExceeded": "answer"},
        "start": name,
        "nodes": {
            name: calling_node(name, system_prompt, policies, offers=offers),
            "tools": {
                "use": "tools",
                **({} if offers else {"with": {"max": 0}}),
                "set": {"messages": "out.messages"},
                "next": "answer",
            },
            "answer": {
                **last_node(
                    system_prompt,
                    policies,
                    messages="${state.messages}",
                    prompt=f"${{error == null ? '' : '{BEST_ANSWER}'}}",
                ),
                "next": "end",
            },
        },
    }
    return append_verify(document, policies, system_prompt)
