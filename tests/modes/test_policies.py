"""Presets and overrides of an agent's policies (spec 1.1, E11)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.modes.definition import BLOCKS, decode_definition
from graphflow.modes.policies import PRESETS, Policies, resolve_policies
from graphflow.modes.registry import MODES


def policies_of(mode: str = "REACT", **fields: Any) -> Policies:
    block = MODES[mode].block
    data = {"mode": mode, BLOCKS[mode]: {"systemPrompt": "Help."}, **fields}
    definition = decode_definition(data)
    return resolve_policies(definition, getattr(definition, block))


def test_every_mode_has_a_preset_and_a_block():
    assert PRESETS.keys() == BLOCKS.keys()


@pytest.mark.parametrize(
    ("mode", "output", "tool_policy", "verify", "compute", "model_calls", "tool_calls", "seconds", "rounds"),
    [
        ("PLAIN", "PLAIN", "DISALLOW", "NONE", "LOW", 15, 20, 120, None),
        ("THINKING", "REASONING_SUMMARY", "DISALLOW", "NONE", "MEDIUM", 15, 20, 120, None),
        ("PLAIN_TOOLING", "PLAIN", "ALLOW", "NONE", "MEDIUM", 15, 20, 120, None),
        ("THINKING_TOOLING", "REASONING_SUMMARY", "ALLOW", "NONE", "MEDIUM", 15, 20, 120, None),
        ("REACT", "PLAIN", "ALLOW", "NONE", "MEDIUM", 15, 20, 120, 6),
        ("PLAN_EXECUTE", "PLAIN", "ALLOW", "SECOND_PASS_FIX", "HIGH", 50, 60, 600, 8),
        ("REACT_TEAM", "PLAIN", "ALLOW", "NONE", "MEDIUM", 60, 60, 600, 10),
        ("SINGLE", "PLAIN", "ALLOW", "NONE", "MEDIUM", 60, 60, 600, None),
        ("PIPELINE", "PLAIN", "ALLOW", "NONE", "MEDIUM", 60, 60, 600, None),
        ("COLLABORATIVE", "PLAIN", "ALLOW", "NONE", "MEDIUM", 60, 60, 600, None),
        ("COMPETITIVE", "PLAIN", "ALLOW", "NONE", "MEDIUM", 60, 60, 600, None),
        ("CODE", "PLAIN", "ALLOW", "NONE", "HIGH", 150, 400, 3600, 50),
    ],
)
def test_presets_are_those_of_the_table(
    mode, output, tool_policy, verify, compute, model_calls, tool_calls, seconds, rounds
):
    preset = PRESETS[mode]
    assert (preset.output, preset.tool_policy, preset.verify, preset.compute) == (output, tool_policy, verify, compute)
    assert (preset.model_calls, preset.tool_calls, preset.timeout_ms, preset.rounds) == (
        model_calls, tool_calls, seconds * 1000, rounds,
    )  # fmt: skip


def test_a_field_in_the_file_overrides_the_preset_also_on_plain():
    policies = policies_of("PLAIN", compute="HIGH", verify="SECOND_PASS_FIX", output="REASONING_SUMMARY")
    assert (policies.compute, policies.verify, policies.output) == ("HIGH", "SECOND_PASS_FIX", "REASONING_SUMMARY")


def test_reasoning_is_shown_by_default_only_with_a_reasoning_summary():
    assert not policies_of().show_reasoning
    assert policies_of(output="REASONING_SUMMARY").show_reasoning


@pytest.mark.parametrize("shown", [True, False])
def test_expose_reasoning_overrides_the_default(shown):
    block = {"systemPrompt": "Help.", "exposeReasoningToUser": shown}
    assert policies_of(output="REASONING_SUMMARY", react=block).show_reasoning is shown


def test_requiring_tools_without_any_falls_back_to_disallow_with_a_warning():
    policies = policies_of(toolPolicy="REQUIRE")
    assert policies.tool_policy == "DISALLOW"
    [warning] = policies.warnings
    assert (warning.pointer, warning.severity) == ("/toolPolicy", "warning")


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "REACT", "keywords": ["weather"]},
        {"mode": "REACT_TEAM", "reactTeam": {"action": {"tools": ["bash"]}}},
        {"mode": "REACT_TEAM", "reactTeam": {"action": {"keywords": ["weather"]}}},
    ],
)
def test_tools_by_keyword_and_those_of_the_stage_that_acts_are_tools_that_can_be_required(fields):
    policies = policies_of(**fields, toolPolicy="REQUIRE")
    assert (policies.tool_policy, policies.warnings) == ("REQUIRE", ())


def test_tools_that_the_mode_does_not_offer_are_warned_about():
    policies = policies_of("PLAIN", tools=["bash"])
    assert policies.tool_policy == "DISALLOW"
    assert [warning.pointer for warning in policies.warnings] == ["/tools"]


def test_disallow_that_the_file_asks_for_itself_is_no_warning():
    assert not policies_of("PLAIN", tools=["bash"], toolPolicy="DISALLOW").warnings


@pytest.mark.parametrize(
    ("block", "budget", "rounds"),
    [
        ({}, {}, 6),
        ({"maxSteps": 9}, {}, 9),
        ({"maxRounds": 9}, {}, 9),
        ({}, {"maxSteps": 4}, 4),
        ({}, {"maxRounds": 40}, 40),
        ({"maxSteps": 9}, {"maxSteps": 20}, 9),
        ({"maxSteps": 9}, {"maxSteps": 3}, 3),
    ],
)
def test_rounds_come_from_the_block_then_the_budget_then_the_preset_and_a_lower_budget_binds(block, budget, rounds):
    policies = policies_of(react={"systemPrompt": "Help.", **block}, budget=budget)
    assert policies.budget["maxRounds"] == rounds


def test_budget_figures_override_the_preset_one_by_one():
    policies = policies_of(budget={"maxModelCalls": 3, "maxTokens": 1000})
    assert policies.budget == {
        "maxRounds": 6, "maxModelCalls": 3, "maxToolCalls": 20, "maxTokens": 1000, "timeoutMs": 120_000,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["maxSteps", "maxRounds"])
@pytest.mark.parametrize("mode", ["PLAIN", "THINKING", "PLAIN_TOOLING", "THINKING_TOOLING"])
def test_rounds_for_a_mode_without_any_are_warned_about_and_left_out(mode, name):
    policies = policies_of(mode, budget={name: 3}, tools=[] if mode in ("PLAIN", "THINKING") else ["bash"])
    [warning] = policies.warnings
    assert (warning.pointer, warning.severity) == (f"/budget/{name}", "warning")
    assert "maxRounds" not in policies.budget
