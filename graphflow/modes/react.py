"""REACT: `reason` ⇄ `tools`, at most one tool per round, then `answer` when the rounds are used up (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.parts import BEST_ANSWER, MESSAGES_STATE, model_node
from graphflow.modes.policies import Policies

_CALLED = "size(out.toolCalls) > 0"
_NO_TOOL_YET = "visits.tools == 0"
_MUST_CALL = "visits.tools == 0 && visits.reason > 1"
_NUDGE = "Call one of the tools before you answer."


def compile_react(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `reason ⇄ tools`, with `answer` as its last node; a turn without calls is the answer."""
    assert definition.react is not None
    prompt = definition.react.system_prompt
    allowed = policies.tool_policy != "DISALLOW" and bool(definition.tools)
    return {
        "graphflow": "1",
        "state": MESSAGES_STATE,
        "budget": {**policies.budget, "then": "answer"},
        "start": "reason",
        "nodes": {
            "reason": _reason(prompt, policies, allowed),
            "tools": _tools(allowed),
            "answer": {
                **model_node(prompt, policies, messages="${state.messages}", prompt=BEST_ANSWER, tools=[]),
                "next": "end",
            },
        },
    }


def _reason(prompt: str, policies: Policies, allowed: bool) -> dict[str, Any]:
    to_tools = {"if": _CALLED, "to": "tools"}
    if not allowed:
        return {**model_node(prompt, policies, tools=[]), "next": [to_tools, {"to": "end"}]}
    if policies.tool_policy == "ALLOW":
        return {**model_node(prompt, policies), "next": [to_tools, {"to": "end"}]}
    return {
        **model_node(
            prompt,
            policies,
            messages="${state.messages}",
            prompt=f"${{{_MUST_CALL} ? '{_NUDGE}' : ''}}",
            toolChoice=f"${{{_NO_TOOL_YET} ? 'required' : 'auto'}}",
            mustCall=f"${{{_MUST_CALL}}}",
        ),
        # Only the corrective turn has `mustCall`: without a call it fails the run as `tool_required` (spec 1.3).
        "next": [to_tools, {"if": _NO_TOOL_YET, "to": "reason"}, {"to": "end"}],
    }


def _tools(allowed: bool) -> dict[str, Any]:
    """One call a round; where none is allowed none runs, and a call that comes anyway gets an error result."""
    return {
        "use": "tools",
        "with": {"max": 1 if allowed else 0},
        "set": {"messages": "out.messages"},
        "next": [{"if": "visits.reason < limits.rounds", "to": "reason"}, {"to": "answer"}],
    }
