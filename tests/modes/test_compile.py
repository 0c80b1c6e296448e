"""Agent definitions compile into explicit documents whose node names are contract (spec 1.2, E23)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from graphflow.graph.definition.document import decode_document, encode_document
from graphflow.graph.validation.validate import check_document
from graphflow.modes.definition import decode_definition
from graphflow.modes.registry import compile_agent
from graphflow.nodes.kinds import NodeKinds
from graphflow.tools.registry import ToolRegistry

KINDS = NodeKinds(ToolRegistry())


def compiled(**fields: Any) -> dict[str, Any]:
    fields.setdefault("mode", "REACT")
    if fields["mode"] == "REACT":
        fields.setdefault("react", {"systemPrompt": "Help."})
    return compile_agent(decode_definition(fields), fields).data


def plain(**fields: Any) -> dict[str, Any]:
    return compiled(mode="PLAIN", plain={"systemPrompt": "Help."}, **fields)


def test_plain_compiles_to_one_answer(snapshot):
    assert plain(key="helper", name="Helper", description="Helps.") == snapshot


def test_react_compiles_to_reason_tools_answer(snapshot):
    assert compiled(tools=["bash"], approval={"bash": "REQUIRE_APPROVAL", "*": "AUTO"}) == snapshot


def test_react_that_requires_tools_asks_once_more_and_then_fails(snapshot):
    assert compiled(tools=["bash"], toolPolicy="REQUIRE")["nodes"]["reason"] == snapshot


@pytest.mark.parametrize("fields", [{"tools": ["bash"], "toolPolicy": "DISALLOW"}, {}, {"toolPolicy": "REQUIRE"}])
def test_react_without_allowed_tools_offers_none_and_runs_none(fields):
    nodes = compiled(**fields)["nodes"]
    assert nodes["reason"]["with"]["tools"] == []
    assert nodes["tools"]["with"] == {"max": 0}


@pytest.mark.parametrize(
    "document", [plain(), compiled(), compiled(tools=["bash"], toolPolicy="REQUIRE", verify="SECOND_PASS_FIX")]
)
def test_a_compiled_document_is_in_the_form_of_the_document_structs(document):
    assert msgspec.json.decode(msgspec.json.encode(encode_document(decode_document(document)))) == document


def test_own_fields_are_carried_over_and_mode_block_and_budget_are_not():
    own = {
        "key": "k", "name": "N", "icon": "🤖", "description": "D", "providerKey": "auto", "model": "m",
        "options": {"temperature": 0.2}, "tools": ["bash"], "keywords": ["w"], "approval": "AUTO", "compute": "HIGH",
        "output": "PLAIN", "toolPolicy": "ALLOW", "verify": "NONE",
    }  # fmt: skip
    document = compiled(**own, budget={"maxSteps": 2})
    assert {name: document[name] for name in own} == own
    assert document.keys() - own.keys() == {"graphflow", "state", "budget", "start", "nodes"}
    assert document["budget"]["maxRounds"] == 2


def test_the_rounds_are_data_so_a_request_can_change_them():
    document = compiled(react={"systemPrompt": "Help.", "maxSteps": 3})
    assert document["budget"]["maxRounds"] == 3
    assert document["nodes"]["tools"]["next"][0] == {"if": "visits.reason < limits.rounds", "to": "reason"}


def test_a_prompt_that_looks_like_an_expression_is_text():
    document = compiled(react={"systemPrompt": "Use ${HOME}, not $HOME or $${HOME}."})
    assert document["nodes"]["reason"]["with"]["systemPrompt"] == "Use $${HOME}, not $HOME or $$${HOME}."


@pytest.mark.parametrize("word", ["react", "React", " REACT "])
def test_the_mode_word_may_be_written_in_any_case(word):
    assert decode_definition({"mode": word}).mode == "REACT"


def test_hyphens_in_the_mode_word_are_underscores():
    assert decode_definition({"mode": "plain-tooling"}).mode == "PLAIN_TOOLING"


EVERY_MODE = {
    "PLAIN": "plain",
    "THINKING": "thinking",
    "PLAIN_TOOLING": "plainTooling",
    "THINKING_TOOLING": "thinkingTooling",
    "REACT": "react",
}
POLICIES: dict[str, dict[str, Any]] = {
    "presets": {},
    "disallow": {"toolPolicy": "DISALLOW"},
    "allow": {"toolPolicy": "ALLOW"},
    "require": {"toolPolicy": "REQUIRE"},
    "verify": {"verify": "SECOND_PASS_FIX"},
    "summary": {"output": "REASONING_SUMMARY"},
    "plain text": {"output": "PLAIN"},
    "all": {
        "toolPolicy": "REQUIRE", "verify": "SECOND_PASS_FIX", "output": "REASONING_SUMMARY", "compute": "HIGH",
        "budget": {"maxModelCalls": 4, "maxSteps": 3},
    },
}  # fmt: skip


def of_mode(mode: str, *, block: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    fields[EVERY_MODE[mode]] = {"systemPrompt": "Help.", **(block or {})}
    return compiled(mode=mode, **fields)


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_every_mode_compiles_to_its_graph_under_every_policy(mode, policies, snapshot):
    document = of_mode(mode, tools=["bash"], **POLICIES[policies])
    assert {key: document[key] for key in ("state", "budget", "start", "nodes")} == snapshot


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("tools", [[], ["bash"]])
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_every_compiled_graph_passes_every_check_of_a_graph(mode, tools, policies):
    document = of_mode(mode, tools=tools, **POLICIES[policies])
    checked = check_document(document, KINDS)
    assert checked.warnings == ()


NODES = {
    "PLAIN": ["answer"],
    "THINKING": ["think"],
    "PLAIN_TOOLING": ["decide", "tools", "answer"],
    "THINKING_TOOLING": ["think", "tools", "answer"],
    "REACT": ["reason", "tools", "answer"],
}


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_the_nodes_have_the_names_of_the_contract(mode):
    assert list(of_mode(mode)["nodes"]) == NODES[mode]


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_second_pass_is_one_more_node_at_the_end_of_any_mode(mode):
    document = of_mode(mode, verify="SECOND_PASS_FIX")
    assert list(document["nodes"]) == [*NODES[mode], "verify"]
    assert document["nodes"]["verify"]["next"] == "end"
    assert "end" not in str([node["next"] for name, node in document["nodes"].items() if name != "verify"])


@pytest.mark.parametrize("tool_policy", ["ALLOW", "REQUIRE"])
@pytest.mark.parametrize(("mode", "tooling"), [("PLAIN", "PLAIN_TOOLING"), ("THINKING", "THINKING_TOOLING")])
def test_a_mode_of_one_turn_with_tools_is_its_tooling_graph(mode, tooling, tool_policy):
    alike = {"tools": ["bash"], "toolPolicy": tool_policy, "compute": "HIGH"}
    assert of_mode(mode, **alike)["nodes"] == of_mode(tooling, **alike)["nodes"]


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_requiring_tools_without_any_offers_none(mode):
    document = of_mode(mode, toolPolicy="REQUIRE")
    assert document["nodes"] == of_mode(mode, toolPolicy="DISALLOW")["nodes"]


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_reasoning_is_shown_by_every_turn_or_by_none(mode, shown):
    document = of_mode(mode, verify="SECOND_PASS_FIX", block={"exposeReasoningToUser": shown})
    turns = [node for node in document["nodes"].values() if node["use"] != "tools"]
    assert {node["with"]["showReasoning"] for node in turns} == {shown}


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_compute_reaches_every_turn(mode):
    document = of_mode(mode, verify="SECOND_PASS_FIX", compute="HIGH")
    assert {node["with"]["compute"] for node in document["nodes"].values() if node["use"] != "tools"} == {"HIGH"}
