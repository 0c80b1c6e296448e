"""Agent definitions compile into explicit documents whose node names are contract (spec 1.2, E23)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from graphflow.errors import DefinitionError
from graphflow.graph.document import decode_document, encode_document
from graphflow.modes.definition import decode_definition
from graphflow.modes.registry import compile_agent


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


@pytest.mark.parametrize("document", [plain(), compiled(), compiled(tools=["bash"], toolPolicy="REQUIRE")])
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


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [({"verify": "SECOND_PASS_FIX"}, "/verify"), ({"output": "REASONING_SUMMARY"}, "/output")],
)
def test_policies_that_are_not_built_are_refused_and_never_ignored(fields, pointer):
    with pytest.raises(DefinitionError) as refused:
        compiled(**fields)
    assert [fault.pointer for fault in refused.value.faults] == [pointer]


@pytest.mark.parametrize("tool_policy", ["ALLOW", "REQUIRE"])
def test_plain_with_tools_is_refused_until_its_tooling_mode_is_built(tool_policy):
    with pytest.raises(DefinitionError, match="PLAIN_TOOLING"):
        plain(tools=["bash"], toolPolicy=tool_policy)
