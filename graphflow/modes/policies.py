"""Policies: the presets of every mode as a table, and how an agent file overrides them (spec 1.1, E11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphflow.errors import Issue
from graphflow.modes.definition import AgentBudget, AgentDefinition, Compute, Output, ToolPolicy, Verify

MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A mode's defaults for fields that the agent file leaves out."""

    output: Output = "PLAIN"
    tool_policy: ToolPolicy = "ALLOW"
    verify: Verify = "NONE"
    compute: Compute = "MEDIUM"
    model_calls: int = 15
    tool_calls: int = 20
    timeout_ms: int = 2 * MINUTE_MS
    rounds: int | None = None
    """`None` for modes without a loop."""


# Modes that this version can't compile yet have presets too: the table has a row for each of `BLOCKS`.
_STRATEGY = Preset(model_calls=60, tool_calls=60, timeout_ms=10 * MINUTE_MS)

PRESETS: dict[str, Preset] = {
    "PLAIN": Preset(tool_policy="DISALLOW", compute="LOW"),
    "THINKING": Preset(output="REASONING_SUMMARY", tool_policy="DISALLOW"),
    "PLAIN_TOOLING": Preset(),
    "THINKING_TOOLING": Preset(output="REASONING_SUMMARY"),
    "REACT": Preset(rounds=6),
    "PLAN_EXECUTE": Preset(
        verify="SECOND_PASS_FIX", compute="HIGH", model_calls=50, tool_calls=60, timeout_ms=10 * MINUTE_MS, rounds=8
    ),
    "REACT_TEAM": Preset(model_calls=60, tool_calls=60, timeout_ms=10 * MINUTE_MS, rounds=10),
    "SINGLE": _STRATEGY,
    "PIPELINE": _STRATEGY,
    "COLLABORATIVE": _STRATEGY,
    "COMPETITIVE": _STRATEGY,
    "CODE": Preset(compute="HIGH", model_calls=150, tool_calls=400, timeout_ms=60 * MINUTE_MS, rounds=50),
}


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The complete policies of one agent."""

    output: Output
    tool_policy: ToolPolicy
    verify: Verify
    compute: Compute
    show_reasoning: bool
    """Whether reasoning is streamed to readers; it is in the state either way."""
    budget: dict[str, Any]
    """In the form of a document's `budget`, without `onExceeded`."""
    warnings: tuple[Issue, ...] = ()


def resolve_policies(definition: AgentDefinition, block: Any) -> Policies:
    """The mode's preset, overridden by the fields of the file.

    Args:
        definition: the agent, its mode in canonical spelling.
        block: the mode's block (`PromptBlock`, `ReactBlock`, …).
    """
    preset = PRESETS[definition.mode]
    output = definition.output or preset.output
    tool_policy, warnings = _tool_policy(definition, preset)
    shown = block.expose_reasoning_to_user
    budget = definition.budget or AgentBudget()
    return Policies(
        output=output,
        tool_policy=tool_policy,
        verify=definition.verify or preset.verify,
        compute=definition.compute or preset.compute,
        # Who asks for a summary of the reasoning wants to see it.
        show_reasoning=output == "REASONING_SUMMARY" if shown is None else shown,
        budget=_budget(budget, preset, _rounds_of(block)),
        warnings=(*warnings, *_unused_rounds(definition.mode, budget, preset)),
    )


def _tool_policy(definition: AgentDefinition, preset: Preset) -> tuple[ToolPolicy, tuple[Issue, ...]]:
    asked = definition.tool_policy
    if asked == "REQUIRE" and not _has_tools(definition):
        return "DISALLOW", (
            _warning(
                "/toolPolicy",
                "toolPolicy 'REQUIRE' without tools can't be met; it falls back to 'DISALLOW'",
                "list the agent's tools or keywords that tools are bound to, or leave toolPolicy out",
            ),
        )
    # Silence would look like a model that does not want to call anything.
    if asked is None and preset.tool_policy == "DISALLOW" and definition.tools:
        return "DISALLOW", (
            _warning(
                "/tools",
                f"mode {definition.mode} offers no tools by itself, so those listed are not used",
                "set toolPolicy to 'ALLOW', choose a mode with tools, or remove `tools`",
            ),
        )
    return asked or preset.tool_policy, ()


def _has_tools(definition: AgentDefinition) -> bool:
    """Whether the acting model may have tools: from the agent, its keywords, or a team's own `action`."""
    team = definition.react_team
    own = None if team is None else team.action
    return bool(definition.tools or definition.keywords or (own is not None and (own.tools or own.keywords)))


def _unused_rounds(mode: str, budget: AgentBudget, preset: Preset) -> Iterator[Issue]:
    """Warns about rounds that are given for a mode without rounds."""
    for name, given in (("maxRounds", budget.max_rounds), ("maxSteps", budget.max_steps)):
        if preset.rounds is None and given is not None:
            message = f"mode {mode} has no rounds, so {name!r} limits nothing"
            yield _warning(f"/budget/{name}", message, "remove it, or choose a mode with rounds, such as REACT")


def _warning(pointer: str, message: str, hint: str) -> Issue:
    return Issue(pointer=pointer, message=message, hint=hint, severity="warning", kind="property")


def _rounds_of(part: Any) -> int | None:
    """`maxRounds` or its alias `maxSteps`; None if a part has neither."""
    rounds: int | None = getattr(part, "max_rounds", None)
    return rounds if rounds is not None else getattr(part, "max_steps", None)


def _budget(budget: AgentBudget, preset: Preset, block_rounds: int | None) -> dict[str, Any]:
    """The document's budget: explicit limits, else the preset's; of two explicit round limits the lower applies."""
    # Both are ceilings: neither may raise the other.
    explicit = [rounds for rounds in (block_rounds, _rounds_of(budget)) if rounds is not None]
    limits = {
        "maxRounds": None if preset.rounds is None else min(explicit, default=preset.rounds),
        "maxModelCalls": preset.model_calls if budget.max_model_calls is None else budget.max_model_calls,
        "maxToolCalls": preset.tool_calls if budget.max_tool_calls is None else budget.max_tool_calls,
        "maxTokens": budget.max_tokens,
        "maxCostUsd": budget.max_cost_usd,
        "timeoutMs": preset.timeout_ms if budget.timeout_ms is None else budget.timeout_ms,
    }
    # Left out rather than null: defaults must not enter the version hash.
    return {name: limit for name, limit in limits.items() if limit is not None}
