"""REACT_TEAM, the multi-agent ReAct: `thinking` → `action` (⇄ `tools`) → `observation` → … → `final` (spec 1.2, 6.1)."""

from __future__ import annotations

import re
from typing import Any

from graphflow.modes.definition import AgentDefinition, ReactTeamBlock, TeamStage
from graphflow.modes.parts import CALLED, MESSAGES_STATE, literal, output_of
from graphflow.modes.policies import Policies
from graphflow.modes.verify import append_verify
from graphflow.nodes.team_prompts import DEFAULTS

ACTIONS_PER_ROUND = 3
"""Average number of tries per round for `action` to correct invalid calls before `observation` gets the failure."""

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        **MESSAGES_STATE["properties"],
        "notes": {"type": "array", "default": [], "x-reducer": "append", "x-scope": "run", "x-expose": "state"},
    },
}
"""The conversation, and the notes that the agents leave each other in this run."""

DONE = "out.results.exists(r, r.tool == 'task_done' && !has(r.error))"
"""After `tools`: `task_done` was called."""
INVALID = "out.results.exists(r, has(r.error) && r.error.code in ['INVALID_PARAM', 'NOT_FOUND'])"
"""After `tools`: a call was invalid and did not run, so `action` corrects it in the same round."""


def compile_react_team(definition: AgentDefinition, policies: Policies) -> dict[str, Any]:
    """The graph of the team; an agent that replaces a stage is a subgraph."""
    block = definition.react_team
    assert block is not None
    team = _Team(definition, policies, block)
    # An agent in place of `action` runs its own tools inside its subgraph, so the team has no `tools` node then.
    acts = block.action is None or block.action.agent is None
    nodes = {
        "thinking": {**team.stage("thinking"), "next": "action"},
        "action": {**team.stage("action"), "next": team.after_action() if acts else "observation"},
        **({"tools": team.tools()} if acts else {}),
        "observation": {
            **team.stage("observation"),
            "next": [{"if": "visits.thinking < limits.rounds", "to": "thinking"}, {"to": "final"}],
        },
        "final": {**team.stage("final"), "next": "end"},
    }
    last = "final"
    if "graph" in nodes["final"] and policies.verify == "NONE":
        # Another agent may need more than the one call that is left at a limit, so the team's own `final` answers then.
        last = "wrap_up"
        nodes[last] = {**team.own("final"), "next": "end"}
    document = {
        "graphflow": "1",
        "state": STATE,
        "budget": {**policies.budget, "onExceeded": last},
        "start": "thinking",
        "nodes": nodes,
    }
    return append_verify(document, policies, block.final_system_prompt or DEFAULTS["final"])


class _Team:
    """The nodes of one team."""

    def __init__(self, definition: AgentDefinition, policies: Policies, block: ReactTeamBlock) -> None:
        self.definition, self.policies, self.block = definition, policies, block
        self.requires = policies.tool_policy == "REQUIRE"

    def _settings(self, name: str) -> TeamStage:
        found: TeamStage | None = getattr(self.block, name)
        return found or TeamStage()

    def stage(self, name: str) -> dict[str, Any]:
        """The node of a stage, without its routes."""
        agent = self._settings(name).agent
        if agent is None:
            return self.own(name)
        return self._final_agent(agent) if name == "final" else _stage_agent(name, agent)

    def own(self, name: str) -> dict[str, Any]:
        """The node of the team's own version of a stage."""
        settings, policies = self._settings(name), self.policies
        prompt = getattr(self.block, f"{name}_system_prompt") or DEFAULTS[name]
        with_: dict[str, Any] = {
            "stage": name,
            "systemPrompt": literal(prompt),
            # Notes are not part of the conversation, so a stage sees them only if they are passed in.
            "notes": "${state.notes}",
            **self._offered(name),
            "compute": policies.compute,
            "showReasoning": policies.show_reasoning,
        }
        with_ |= {} if settings.provider_key is None else {"providerKey": settings.provider_key}
        with_ |= {} if settings.model is None else {"model": settings.model}
        written = {"messages": "out.messages", "notes": "out.notes"}
        if name == "action" and self.requires:
            # More visits of `action` than rounds: this is the corrective turn.
            again = "visits.tools == 0 && visits.action > visits.thinking"
            with_ |= {"toolChoice": "${visits.tools == 0 ? 'required' : 'auto'}", "mustCall": f"${{{again}}}"}
        if name == "final":
            # The answer joins the conversation, so it is no note.
            del written["notes"]
            with_ |= output_of(policies)
            if policies.verify != "NONE":
                with_["stream"], written["candidate"] = "candidate", "out.candidate"
        return {"use": "stage", "with": with_, "set": written}

    def _final_agent(self, agent: str) -> dict[str, Any]:
        """Another agent as `final`: its text is streamed, and its answer is the team's."""
        # A subgraph without an answer gives null, which has no place in a text.
        answer = "out == null ? '' : out"
        if self.policies.verify != "NONE":
            candidate = f"{{'text': {answer}, 'reasoning': '', 'finishReason': 'stop'}}"
            return {**_subgraph(agent), "set": {"candidate": candidate}}
        message = f"[{{'role': 'assistant', 'content': {answer}}}]"
        return {**_subgraph(agent), "stream": "content", "set": {"messages": message}}

    def _offered(self, name: str) -> dict[str, Any]:
        """The tools listed for the stage: its own, else those of `action`, else the agent's."""
        if self.policies.tool_policy == "DISALLOW":
            return {"tools": [], "keywords": []}
        for settings in (self._settings(name), self._settings("action")):
            if settings.tools is not None or settings.keywords is not None:
                return {"tools": list(settings.tools or ()), "keywords": list(settings.keywords or ())}
        return {"tools": list(self.definition.tools), "keywords": list(self.definition.keywords)}

    def after_action(self) -> list[dict[str, Any]]:
        """The routes after `action`: to `tools` with a call, else to `observation`, or once more to `action` under REQUIRE."""
        must = {"if": "visits.tools == 0 && visits.action <= visits.thinking", "to": "action"}
        return [{"if": CALLED, "to": "tools"}, *([must] if self.requires else []), {"to": "observation"}]

    def tools(self) -> dict[str, Any]:
        # The same list as in the node `action`: what was not offered there must not run here.
        offered = self._offered("action")
        return {
            "use": "tools",
            "with": {"parallel": False, "tools": [*offered["tools"], "task_done"], "keywords": offered["keywords"]},
            "set": {"messages": "out.messages"},
            "next": [
                {"if": DONE, "to": "final"},
                {"if": f"visits.tools < {ACTIONS_PER_ROUND} * visits.thinking && {INVALID}", "to": "action"},
                {"to": "observation"},
            ],
        }


def written_at(pointer: str) -> str | None:
    """The pointer into the agent file for a pointer into the compiled graph, if the two differ."""
    agent = _SUBGRAPH.fullmatch(pointer)
    return None if agent is None else f"/reactTeam/{agent[1]}/agent"


_SUBGRAPH = re.compile(r"/nodes/(\w+)/graph")


def _stage_agent(name: str, agent: str) -> dict[str, Any]:
    """Another agent as a stage: it gets the request and the notes, and its answer is a note."""
    note = f"[{{'stage': '{name}', 'text': out == null ? '' : out, 'at': size(state.messages)}}]"
    return {**_subgraph(agent), "set": {"notes": note}}


def _subgraph(agent: str) -> dict[str, Any]:
    return {"graph": agent, "with": {"query": "${input.query}\n\nNotes of the team so far:\n${state.notes}"}}
