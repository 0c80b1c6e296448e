"""PLAN_EXECUTE: `plan`, then for each task `execute` ⇄ `tools`, then `summarize` (spec 1.2)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.parts import CALLED, MESSAGES_STATE, literal, offers_tools, output_of
from graphflow.modes.policies import Policies
from graphflow.modes.verify import append_verify

MAX_ROUNDS_PER_TASK = 6
FAILS_TASK = (
    "timeout", "rate_limit", "provider_error", "connection", "tool_error", "validation", "node_error", "expression",
)  # fmt: skip
"""Failures of `execute` that fail its task, so that `summarize` answers with the results so far. Others end the run: a
spent budget has its own route, and `tool_required` is the agent's own rule (spec 1.3)."""

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        **MESSAGES_STATE["properties"],
        "plan": {
            "type": "object", "default": {}, "x-reducer": "merge", "x-scope": "run", "x-tasks": ["execute", "tools"],
        },
        "drafts": {"type": "array", "default": [], "x-reducer": "append", "x-scope": "run", "x-expose": "state"},
        "starts": {"type": "array", "default": [], "x-reducer": "append", "x-scope": "run", "x-expose": "state"},
    },
}  # fmt: skip
"""The conversation; the plan, which readers see; the planning model's drafts; the position in the conversation at which
each task begins."""

_PLAN = {"drafts": "${state.drafts}", "plan": "${state.plan}", "starts": "${state.starts}"}


def compile_plan_execute(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph `plan → execute ⇄ tools → summarize`; a text that is no plan leads to `plan` once more."""
    block = definition.plan_execute
    assert block is not None
    offers = offers_tools(definition, policies)
    summary_prompt = block.summary_system_prompt or block.execute_system_prompt
    document = {
        "graphflow": "1",
        "state": STATE,
        "budget": {**policies.budget, "onExceeded": "summarize"},
        "start": "plan",
        "nodes": {
            "plan": {
                "use": "plan",
                "with": {
                    **_turn(block.plan_system_prompt, policies, offers),
                    "drafts": "${state.drafts}",
                    "maxTasks": "${limits.rounds}",
                },
                "set": {"messages": "out.messages", "plan": "out.plan", "drafts": "out.drafts"},
                # Once: a model that fails twice to write JSON goes on with the request as the only task.
                "next": [{"if": "out.again && visits.plan < 2", "to": "plan"}, {"to": "execute"}],
            },
            "execute": _execute(block.execute_system_prompt, block.max_rounds_per_task, policies, offers),
            "tools": {
                "use": "tools",
                # In order, because a later call may refer to the result of an earlier one by `{{tool.field}}`.
                # `max: 0`: a call that comes although no tools are offered gets an error result.
                "with": {"parallel": False, **({} if offers else {"max": 0})},
                "set": {"messages": "out.messages"},
                "next": "execute",
            },
            "summarize": _summarize(summary_prompt, policies),
        },
    }
    return append_verify(document, policies, summary_prompt)


def _turn(system_prompt: str, policies: Policies, offers: bool) -> dict[str, Any]:
    return {
        "systemPrompt": literal(system_prompt),
        **({} if offers else {"tools": []}),
        "compute": policies.compute,
        "showReasoning": policies.show_reasoning,
    }


def _execute(system_prompt: str, max_rounds: int | None, policies: Policies, offers: bool) -> dict[str, Any]:
    # For the run, not for each task: a step that only thinks is no breach once a tool has run.
    must_call = {"mustCall": "${visits.tools == 0}"} if policies.tool_policy == "REQUIRE" and offers else {}
    return {
        "use": "task",
        "with": {
            **_turn(system_prompt, policies, offers),
            **_PLAN,
            "maxTasks": "${limits.rounds}",
            "maxRounds": max_rounds or MAX_ROUNDS_PER_TASK,
            **must_call,
        },
        "set": {"messages": "out.messages", "plan": "out.plan", "starts": "out.starts"},
        "next": [{"if": CALLED, "to": "tools"}, {"if": "out.more", "to": "execute"}, {"to": "summarize"}],
        "error": [{"on": list(FAILS_TASK), "to": "summarize"}],
    }


def _summarize(system_prompt: str, policies: Policies) -> dict[str, Any]:
    # Set here and not by `append_verify`, which knows `model` nodes only.
    candidate = policies.verify != "NONE"
    return {
        "use": "summary",
        "with": {
            **_turn(system_prompt, policies, offers=False),
            **_PLAN,
            "failure": "${error}",
            **output_of(policies),
            **({"stream": "candidate"} if candidate else {}),
        },
        "set": {
            "messages": "out.messages",
            "plan": "out.plan",
            **({"candidate": "out.candidate"} if candidate else {}),
        },
        "next": "end",
    }
