"""PLAIN, THINKING, PLAIN_TOOLING and THINKING_TOOLING: one model call, or one round of tools and an answer (spec 1.1, 1.2).

PLAIN and THINKING become their tooling mode where tools are allowed.
"""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.parts import MESSAGES_STATE, calling_node, last_node, offers_tools
from graphflow.modes.policies import Policies
from graphflow.modes.verify import append_verify
from graphflow.nodes.prompts import BEST_ANSWER


def compile_plain(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `answer → end`, or that of PLAIN_TOOLING."""
    assert definition.plain is not None
    prompt = definition.plain.system_prompt
    if offers_tools(definition, policies):
        return _one_round("decide", prompt, definition, policies)
    return _one_call("answer", prompt, policies)


def compile_thinking(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `think → end`, or that of THINKING_TOOLING."""
    assert definition.thinking is not None
    prompt = definition.thinking.system_prompt
    if offers_tools(definition, policies):
        return _one_round("think", prompt, definition, policies)
    return _one_call("think", prompt, policies)


def compile_plain_tooling(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `decide → tools → answer`."""
    assert definition.plain_tooling is not None
    return _one_round("decide", definition.plain_tooling.system_prompt, definition, policies)


def compile_thinking_tooling(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `think → tools → answer`."""
    assert definition.thinking_tooling is not None
    return _one_round("think", definition.thinking_tooling.system_prompt, definition, policies)


def _one_call(name: str, system_prompt: str, policies: Policies) -> dict[str, Any]:
    """The graph of one node."""
    document = {
        "graphflow": "1",
        "state": MESSAGES_STATE,
        "budget": policies.budget,
        "start": name,
        "nodes": {name: {**last_node(system_prompt, policies), "next": "end"}},
    }
    return append_verify(document, policies, system_prompt)


def _one_round(name: str, system_prompt: str, definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `NAME → tools → answer`; a first turn without calls is the answer.

    All calls of the turn are run. The budget leads to `answer` too, and only then is the model asked for its best
    answer without more tools.
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
                **({} if offers else {"with": {"max": 0}}),  # a call that comes anyway gets an error result
                "set": {"messages": "out.messages"},
                "next": "answer",
            },
            "answer": {
                **last_node(
                    system_prompt,
                    policies,
                    messages="${state.messages}",
                    # `error` is set if a limit of the budget led here; after tools the conversation is prompt enough.
                    prompt=f"${{error == null ? '' : '{BEST_ANSWER}'}}",
                ),
                "next": "end",
            },
        },
    }
    return append_verify(document, policies, system_prompt)
