"""The agent file as data (spec 1.1): an `AgentDefinition` names a mode and fills in its block.

The structs are the one definition of the format, as `graph/definition/document.py` is of the graph's. What a
shape can't say (ranges, names that must exist, a mode and its block) is in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from graphflow.graph.definition.document import GraphDefinition

Compute = Literal["LOW", "MEDIUM", "HIGH"]
Output = Literal["PLAIN", "REASONING_SUMMARY"]
ToolPolicy = Literal["DISALLOW", "ALLOW", "REQUIRE"]
Verify = Literal["NONE", "SECOND_PASS_FIX"]
Approval = Literal["AUTO", "REQUIRE_APPROVAL", "DISABLED"]

GRAPH = "GRAPH"
"""What an agent that spells its graph out shows as its mode; never written in a file."""

BLOCKS: Mapping[str, str] = {
    "PLAIN": "plain",
    "THINKING": "thinking",
    "PLAIN_TOOLING": "plainTooling",
    "THINKING_TOOLING": "thinkingTooling",
    "REACT": "react",
    "PLAN_EXECUTE": "planExecute",
    "REACT_TEAM": "reactTeam",
    "SINGLE": "single",
    "PIPELINE": "pipeline",
    "COLLABORATIVE": "collaborative",
    "COMPETITIVE": "competitive",
    "CODE": "code",
}
"""Every mode word → the key of its block."""


class _AgentPart(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Base of every part of an agent file: strict, immutable, written without defaults."""


class Options(_AgentPart, frozen=True):
    """Sampling options of every model call; `None` leaves the choice to the provider."""

    temperature: float | None = None
    """0 to 2."""
    top_p: float | None = None
    """Above 0, at most 1."""
    max_tokens: int | None = None
    """Of one answer."""
    timeout_ms: int | None = None
    """Of one model call."""
    stop: tuple[str, ...] = ()


class AgentBudget(_AgentPart, frozen=True):
    """Limits of one run; `maxSteps` is an alias of `maxRounds` here (E11)."""

    max_rounds: int | None = None
    max_steps: int | None = None
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_ms: int | None = None
    """Active time of the run; waiting for a person does not count."""


class PromptBlock(_AgentPart, frozen=True):
    """The block of a mode without a loop."""

    system_prompt: str
    expose_reasoning_to_user: bool | None = None
    """Default: true when the output is `REASONING_SUMMARY`, else false."""


class ReactBlock(PromptBlock, frozen=True):
    max_rounds: int | None = None
    max_steps: int | None = None
    """Alias of `maxRounds`."""


class PlanExecuteBlock(_AgentPart, frozen=True):
    plan_system_prompt: str
    execute_system_prompt: str
    summary_system_prompt: str | None = None
    """Default: the prompt of `execute`."""
    max_rounds: int | None = None
    """Tasks that are done at most."""
    max_steps: int | None = None
    """Alias of `maxRounds`."""
    max_rounds_per_task: int | None = None
    """Rounds of tools in one task; default 6."""
    expose_reasoning_to_user: bool | None = None

    @property
    def system_prompt(self) -> str:
        """The agent's instructions: those by which it works."""
        return self.execute_system_prompt


class TeamStage(_AgentPart, frozen=True):
    """One agent of a team; what it does not say is the agent's own."""

    model: str | None = None
    provider_key: str | None = None
    tools: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    """Tools that are registered under any of these words."""
    agent: str | None = None
    """Key of an agent that takes the stage's place."""


class ReactTeamBlock(_AgentPart, frozen=True):
    thinking_system_prompt: str | None = None
    action_system_prompt: str | None = None
    observation_system_prompt: str | None = None
    final_system_prompt: str | None = None
    thinking: TeamStage | None = None
    action: TeamStage | None = None
    observation: TeamStage | None = None
    final: TeamStage | None = None
    max_rounds: int | None = None
    max_steps: int | None = None
    """Alias of `maxRounds`."""
    expose_reasoning_to_user: bool | None = None


class AgentFields(_AgentPart, frozen=True, kw_only=True):
    """What an agent file may say in either form (E23), but for `budget`, which each form reads its own way."""

    key: str | None = None
    name: str | None = None
    icon: str | dict[str, Any] | None = None
    description: str | None = None
    provider_key: str | None = None
    model: str | None = None
    options: Options | None = None
    tools: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    approval: Approval | dict[str, Approval] | None = None
    """One word for all tools, or a word by tool name; `*` stands for the others."""
    context: dict[str, Any] | None = None
    compute: Compute | None = None
    output: Output | None = None
    tool_policy: ToolPolicy | None = None
    verify: Verify | None = None


class AgentDefinition(AgentFields, frozen=True, kw_only=True):
    """A whole agent file that names a mode.

    Blocks of modes that this version can't compile are taken as they are, so that the error is
    about the mode and not about its block.
    """

    mode: str
    """A word of `BLOCKS`; a file may write it in any case and with `-` for `_`."""
    budget: AgentBudget | None = None
    plain: PromptBlock | None = None
    thinking: PromptBlock | None = None
    plain_tooling: PromptBlock | None = None
    thinking_tooling: PromptBlock | None = None
    react: ReactBlock | None = None
    plan_execute: PlanExecuteBlock | None = None
    react_team: ReactTeamBlock | None = None
    single: dict[str, Any] | None = None
    pipeline: dict[str, Any] | None = None
    collaborative: dict[str, Any] | None = None
    competitive: dict[str, Any] | None = None
    code: dict[str, Any] | None = None


def mode_word(text: str) -> str:
    """The mode in its one spelling: upper case, `_` for `-`; not checked for being a mode."""
    return text.strip().upper().replace("-", "_")


def decode_definition(data: Mapping[str, Any]) -> AgentDefinition:
    """The definition behind data whose shape was checked; raises `msgspec.ValidationError` for other data."""
    definition = msgspec.convert(dict(data), AgentDefinition)
    return msgspec.structs.replace(definition, mode=mode_word(definition.mode))


def agent_schema() -> dict[str, Any]:
    """Schema of any agent file: with a mode, or with an explicit graph."""
    (agent, graph), parts = msgspec.json.schema_components(
        [AgentDefinition, GraphDefinition], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "graphflow agent",
        "if": {"required": ["mode"]},
        "then": agent,
        "else": graph,
        "$defs": parts,
    }
