"""The agent file as data (spec 1.1): an `AgentDefinition` names a mode and fills in its block.

The structs are the one definition of the format, as `graph/definition/document.py` is of the graph's. What a
shape can't say (ranges, names that must exist, a mode and its block) is in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from graphflow.approval_mode import ApprovalMode, ApprovalRule
from graphflow.graph.definition.document import GraphDefinition, PerRequest

Compute = Literal["LOW", "MEDIUM", "HIGH"]
Output = Literal["PLAIN", "REASONING_SUMMARY"]
ToolPolicy = Literal["DISALLOW", "ALLOW", "REQUIRE"]
Verify = Literal["NONE", "SECOND_PASS_FIX"]

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


class LimitsOfCalls(_AgentPart, frozen=True):
    """Time limits of a model call, in milliseconds. Absent: those of the provider."""

    connect_ms: int | None = None
    """For the connection, TLS included."""
    first_token_ms: int | None = None
    """From the request to the first data; comments do not count."""
    idle_ms: int | None = None
    """Between data; comments do not count."""
    total_ms: int | None = None
    """The whole call with its retries."""


class Options(_AgentPart, frozen=True):
    """Options of every model call; absent means the provider's default."""

    temperature: float | None = None
    """Sampling temperature, 0 to 2."""
    top_p: float | None = None
    """Nucleus sampling, above 0 and at most 1."""
    max_output_tokens: int | None = None
    """Longest answer, in tokens, reasoning included."""
    max_tokens: int | None = None
    """Alias of `maxOutputTokens`."""
    timeout_ms: int | None = None
    """Limit of one model call with its retries, in milliseconds; alias of `limits.totalMs`."""
    stop: tuple[str, ...] = ()
    """Texts at which the model stops."""
    seed: int | None = None
    """Makes answers repeatable, as far as the provider can."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How hard the model may think, in the provider's words; wins over `compute`."""
    tool_choice: str | dict[str, str] | None = None
    """`none`, `auto`, `required`, or the name of a tool that must be called. Where no tools are offered it does not count."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may call several tools."""
    response_format: dict[str, Any] | None = None
    """JSON Schema of the answer, or `{schema, strict, name}`. A node's own `schema` wins over it."""
    prompt_cache: Literal["off", "5m", "1h"] | None = None
    """How long Claude's prompt is kept for the next call; absent: 5 minutes where tools are offered, else not at all."""
    limits: LimitsOfCalls | None = None
    """Time limits of a call."""
    fallback: tuple[str, ...] | None = None
    """Models (`PROVIDER/MODEL`) that are asked in this order where one fails before its first text. Absent: those of the provider's settings."""
    headers: dict[str, str] | None = None
    """HTTP headers of the request; those with credentials belong to the provider's settings."""
    extra: dict[str, Any] | None = None
    """Fields of the request that only one provider knows."""


class AgentBudget(_AgentPart, frozen=True):
    """Limits of one run. Absent: the mode's preset."""

    max_rounds: int | None = None
    """Rounds of the mode."""
    max_steps: int | None = None
    """Alias of `maxRounds`."""
    max_model_calls: int | None = None
    """Model calls, including retries and verification."""
    max_tool_calls: int | None = None
    """Tool calls."""
    max_tokens: int | None = None
    """Prompt and completion tokens."""
    max_cost_usd: float | None = None
    """Cost in USD; needs a price for each model."""
    timeout_ms: int | None = None
    """Active time in milliseconds; waiting for people does not count."""


class PromptBlock(_AgentPart, frozen=True):
    """The block of a mode without a loop: `PLAIN`, `THINKING` and their tooling modes."""

    system_prompt: str
    """The agent's instructions; may span several lines between triple quotes."""
    expose_reasoning_to_user: bool | None = None
    """Whether reasoning is streamed. Absent: true with `REASONING_SUMMARY`, else false."""


class ReactBlock(PromptBlock, frozen=True):
    """The block of `REACT`."""

    max_rounds: int | None = None
    """Rounds of tools. Absent: 6."""
    max_steps: int | None = None
    """Alias of `maxRounds`."""


class PlanExecuteBlock(_AgentPart, frozen=True):
    """The block of `PLAN_EXECUTE`."""

    plan_system_prompt: str
    """Instructions for the plan."""
    execute_system_prompt: str
    """Instructions for each task."""
    summary_system_prompt: str | None = None
    """Instructions for the final answer. Absent: those for tasks."""
    max_rounds: int | None = None
    """Most tasks that are executed. Absent: 8."""
    max_steps: int | None = None
    """Alias of `maxRounds`."""
    max_rounds_per_task: int | None = None
    """Rounds of tools in one task. Absent: 6."""
    expose_reasoning_to_user: bool | None = None
    """Whether reasoning is streamed. Absent: true with `REASONING_SUMMARY`, else false."""

    @property
    def system_prompt(self) -> str:
        """The agent's instructions: those by which it works."""
        return self.execute_system_prompt


class TeamStage(_AgentPart, frozen=True):
    """One stage of a team; absent keys are those of the agent."""

    model: str | None = None
    """Model of this stage."""
    provider_key: str | None = None
    """Provider of this stage."""
    tools: tuple[str, ...] | None = None
    """Tools of this stage."""
    keywords: tuple[str, ...] | None = None
    """Adds the tools that are registered with one of these words."""
    agent: str | None = None
    """Key of an agent that replaces this stage; excludes the other keys."""


class ReactTeamBlock(_AgentPart, frozen=True):
    """The block of `REACT_TEAM`."""

    thinking_system_prompt: str | None = None
    """Instructions for `thinking`. Absent: a built-in prompt."""
    action_system_prompt: str | None = None
    """Instructions for `action`. Absent: a built-in prompt."""
    observation_system_prompt: str | None = None
    """Instructions for `observation`. Absent: a built-in prompt."""
    final_system_prompt: str | None = None
    """Instructions for `final`. Absent: a built-in prompt."""
    thinking: TeamStage | None = None
    """Model or agent of the stage that analyzes."""
    action: TeamStage | None = None
    """Model, tools or agent of the stage that calls tools."""
    observation: TeamStage | None = None
    """Model or agent of the stage that judges results."""
    final: TeamStage | None = None
    """Model or agent of the stage that writes the answer."""
    max_rounds: int | None = None
    """Rounds of the team. Absent: 10."""
    max_steps: int | None = None
    """Alias of `maxRounds`."""
    expose_reasoning_to_user: bool | None = None
    """Whether the notes of the team are streamed. Absent: true with `REASONING_SUMMARY`, else false."""


class AgentFields(_AgentPart, frozen=True, kw_only=True):
    """What an agent file may say in either form (E23), but for `budget`, which each form reads its own way."""

    key: str | None = None
    """Must equal the file's name, if given."""
    name: str | None = None
    """Name for people. Absent: the key."""
    icon: str | dict[str, Any] | None = None
    """For clients; passed on as it is."""
    description: str | None = None
    """What the agent is for; shown in lists."""
    provider_key: str | None = None
    """The provider. Absent: the one that the settings select."""
    model: str | None = None
    """The model. Absent: the provider's default."""
    options: Options | None = None
    """Sampling options of every model call."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the agent may call."""
    keywords: tuple[str, ...] = ()
    """Adds the tools that are registered with one of these words."""
    approval: ApprovalMode | dict[str, ApprovalMode | ApprovalRule] | None = None
    """When a tool call needs a person: one word, or by tool name a word or `{mode, by, count}`, with `*` for the rest."""
    context: dict[str, Any] | None = None
    """Reserved; checked, and not used by this version."""
    per_request: PerRequest | None = None
    """What a request may choose for its run. Absent: nothing."""
    compute: Compute | None = None
    """How much the model should think."""
    output: Output | None = None
    """Form of the answer: text, or a summary of the reasoning and a text."""
    tool_policy: ToolPolicy | None = None
    """Whether the agent may, must not, or must call tools."""
    verify: Verify | None = None
    """Whether a second model call checks the answer."""


class AgentDefinition(AgentFields, frozen=True, kw_only=True):
    """An agent file that names a mode."""

    # Blocks of modes that this version can't compile may hold anything, so that the error is about the mode.

    # A text and not a Literal: any case is read, and `checks.py` names the nearest mode.
    mode: str
    """The mode, such as `REACT`; any case, `-` or `_`."""
    budget: AgentBudget | None = None
    """Limits of a run."""
    plain: PromptBlock | None = None
    """Block of `PLAIN`."""
    thinking: PromptBlock | None = None
    """Block of `THINKING`."""
    plain_tooling: PromptBlock | None = None
    """Block of `PLAIN_TOOLING`."""
    thinking_tooling: PromptBlock | None = None
    """Block of `THINKING_TOOLING`."""
    react: ReactBlock | None = None
    """Block of `REACT`."""
    plan_execute: PlanExecuteBlock | None = None
    """Block of `PLAN_EXECUTE`."""
    react_team: ReactTeamBlock | None = None
    """Block of `REACT_TEAM`."""
    single: dict[str, Any] | None = None
    """Block of `SINGLE`, a mode that is not in this version."""
    pipeline: dict[str, Any] | None = None
    """Block of `PIPELINE`, a mode that is not in this version."""
    collaborative: dict[str, Any] | None = None
    """Block of `COLLABORATIVE`, a mode that is not in this version."""
    competitive: dict[str, Any] | None = None
    """Block of `COMPETITIVE`, a mode that is not in this version."""
    code: dict[str, Any] | None = None
    """Block of `CODE`, a mode that is not in this version."""


def mode_word(text: str) -> str:
    """The mode in its one spelling: upper case, `_` for `-`; not checked for being a mode."""
    return text.strip().upper().replace("-", "_")


def decode_definition(data: Mapping[str, Any]) -> AgentDefinition:
    """The definition behind data whose shape was checked; raises `msgspec.ValidationError` for other data."""
    definition = msgspec.convert(dict(data), AgentDefinition)
    return msgspec.structs.replace(definition, mode=mode_word(definition.mode))


def agent_schema() -> dict[str, Any]:
    """Schema of any agent file: with a mode, or with an explicit graph."""
    from graphflow.graph.definition.field_docs import allow_schema, describe_fields

    # In one call, so that a part which both forms use is defined once.
    (agent, graph), parts = msgspec.json.schema_components(
        [AgentDefinition, GraphDefinition], ref_template="#/$defs/{name}"
    )
    describe_fields(parts, AgentDefinition, GraphDefinition)
    allow_schema(parts, AgentDefinition, GraphDefinition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "graphflow agent",
        "if": {"required": ["mode"]},
        "then": agent,
        "else": graph,
        "$defs": parts,
    }
