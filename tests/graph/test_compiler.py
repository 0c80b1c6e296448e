"""A document is checked as a whole: every error at once, each with its place, the value, and the next step (spec 2.3)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import load_graph
from graphflow.errors import DefinitionError
from graphflow.graph.core.plan_builder import build_plan
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.source import Source, parse_source, read_source
from graphflow.graph.definition.versions import unchecked
from graphflow.graph.validation.validate import check_document
from tests.campaign import size
from tests.graph.documents import FakeKind, FakeKinds, document
from tests.patience import PATIENCE_S

BROKEN = Path(__file__).parent / "broken"
GRAPHS = {
    "child": document(),
    "broken": document({"inner": {"use": "modle", "next": "end"}}),
    "ping": document({"p": {"graph": "pong", "next": "end"}}),
    "pong": document({"q": {"graph": "ping", "next": "end"}}),
}

TABLE = [
    # file, how many errors, and of the first: kind, pointer, line, words of the hint
    ("a_list", 1, "shape", "", 1, 'begin with {"graphflow": "1"'),
    ("answer_outside_a_question", 1, "reference", "/nodes/answer/next/0/if", 12, "only `set` and `next` of an"),
    ("append_of_an_item", 1, "type", "/nodes/answer/set/results", 21, "write \"['x']\""),
    ("ask_expires_to_nowhere", 1, "reference", "/nodes/answer/ask/onExpire", 9, "one of answer, end, fail"),
    ("ask_on_expire_without_expires", 1, "shape", "/nodes/answer/ask/onExpire", 8, 'add "expires": "P2D", or'),
    (
        "ask_with_a_broken_schema",
        1,
        "type",
        "/nodes/answer/ask/schema/properties/ok/type",
        12,
        "did you mean 'boolean'?",
    ),
    ("ask_with_a_wrong_duration", 1, "type", "/nodes/answer/ask/expires", 8, "write P2D for two days,"),
    ("ask_without_a_message", 1, "shape", "/nodes/answer/ask", 6, "it is text"),
    ("bad_escape", 1, "syntax", "/nodes/answer/with/prompt", 4, "write \\\\d for a backslash"),
    ("broken_graph_in_place", 1, "reference", "/nodes/answer/graph/nodes/inner/next", 15, "one of end, fail, inner"),
    ("broken_input_schema", 1, "type", "/input/required", 15, '"required": ["key"], beside'),
    ("broken_subgraph", 1, "reference", "/nodes/answer/graph", 6, "did you mean 'model'?"),
    ("budget_on_exceeded_unknown", 1, "reference", "/budget/onExceeded", 15, "one of answer"),
    ("choose_on_a_model", 1, "graph", "/nodes/answer/next", 10, "write a list of {if, to},"),
    ("comment", 1, "syntax", "", 2, "put it into a"),
    ("cycle_through_an_error_route_without_budget", 1, "graph", "/nodes/answer", 5, 'add "budget": {"maxSteps":'),
    ("cycle_without_budget", 1, "graph", "/nodes/answer", 5, 'add "budget": {"maxSteps":'),
    ("cycle_without_condition", 1, "graph", "/nodes/plan/next", 10, "give one of its routes a"),
    ("dead_end", 1, "graph", "/nodes/wait_here/next", 25, "give one of its routes a"),
    ("default_of_another_type", 1, "type", "/state/properties/score/default", 9, ""),
    ("default_route_not_last", 1, "graph", "/nodes/answer/next/0", 11, "give it an `if`, or make it"),
    ("duplicate_key", 1, "syntax", "/nodes/answer", 6, "the first is at line 5,"),
    ("duplicate_key_and_more", 3, "syntax", "/start", 4, "the first is at line 3,"),
    ("empty_file", 1, "syntax", "", 1, "a file holds one JSON object"),
    ("empty_routes", 1, "graph", "/nodes/answer/next", 10, 'write "end", or one {"to":'),
    ("environment_name_in_with", 1, "reference", "/nodes/answer/with/prompt", 8, "read the environment"),
    ("error_on_an_unknown_code", 1, "reference", "/nodes/answer/error/0/on/0", 13, "did you mean 'rate_limit'?"),
    ("error_route_to_nowhere", 1, "reference", "/nodes/answer/error/0/to", 12, "did you mean 'fail'?"),
    ("expression_syntax", 1, "syntax", "/nodes/answer/next/0/if", 21, ""),
    ("expression_too_deep", 1, "syntax", "/nodes/answer/next/0/if", 12, "split it over several"),
    ("expression_too_long", 1, "syntax", "/nodes/answer/next/0/if", 12, "split it over several"),
    ("has_of_a_state_key", 1, "type", "/nodes/answer/next/0/if", 24, "write 'state.draft != null'"),
    ("if_is_a_number", 1, "type", "/nodes/answer/next/0/if", 21, "compare it, as in"),
    ("if_is_text", 1, "type", "/nodes/answer/next/0/if", 12, "compare it, as in \"'yes' !="),
    ("integer_beside_a_number", 1, "type", "/nodes/answer/next/0/if", 21, "one side is a number with"),
    ("interrupt_before_an_unknown_node", 1, "reference", "/interruptBefore/0", 14, "did you mean 'answer'?"),
    ("key_of_another_form", 2, "shape", "/nodes/answer/do", 10, "it belongs to nodes with"),
    ("limit_in_money_without_a_price", 1, "property", "/budget/maxCostUsd", 14, "limit maxTokens or"),
    ("line_break_in_text", 1, "syntax", "/start", 3, "close the text, or write \\n"),
    ("many_faults_at_once", 9, "reference", "/start", 3, "did you mean 'plan'?"),
    ("missing_comma", 1, "syntax", "", 3, "put a comma before it"),
    ("missing_graphflow", 1, "shape", "", 1, 'it is "1"'),
    ("missing_nodes", 1, "shape", "", 1, "it is an object"),
    ("missing_start", 1, "shape", "", 1, "it is text"),
    ("misspelt_mark", 1, "shape", "/state/properties/score/x-reduces", 10, "did you mean 'x-reducer'?"),
    ("negative_timeout", 1, "type", "/nodes/answer/timeoutMs", 10, "leave it out for none"),
    ("no_nodes", 1, "shape", "/nodes", 4, 'as in {"answer": {"use":'),
    ("node_is_no_object", 1, "shape", "/nodes/answer", 5, ""),
    ("node_name_is_a_cel_word", 1, "reference", "/nodes/loop", 12, "choose another name"),
    ("node_name_with_a_hyphen", 1, "reference", "/nodes/draft-text", 5, "write 'draft_text'"),
    ("node_with_two_forms", 1, "shape", "/nodes/answer", 5, "keep one"),
    ("node_without_a_form", 1, "shape", "/nodes/answer", 5, ""),
    ("not_a_number", 1, "syntax", "/budget/maxTokens", 4, "leave the key out, or write"),
    ("not_utf8", 1, "syntax", "", 3, "save the file as UTF-8"),
    ("only_fail", 1, "graph", "/start", 3, "give some node a route to"),
    ("output_in_with", 1, "reference", "/nodes/answer/with/prompt", 8, "only `set` and `next` of"),
    ("python_code_in_an_expression", 2, "reference", "/nodes/answer/next/0/if", 12, "CEL has size, has, exists,"),
    ("python_code_in_use", 1, "reference", "/nodes/answer/use", 6, "register the function in"),
    ("python_file_in_node", 1, "reference", "/nodes/answer/use", 6, "register the function in"),
    ("python_import_path_in_fn", 1, "reference", "/nodes/answer/use", 6, "register the function in"),
    (
        "python_import_path_in_reducer",
        1,
        "reference",
        "/state/properties/best/x-reducer",
        10,
        "register the function in",
    ),
    ("python_import_path_in_use", 1, "reference", "/nodes/answer/use", 6, "register the function in"),
    ("python_words", 1, "syntax", "/nodes/answer/idempotent", 4, "write true"),
    ("reducer_of_another_type", 1, "type", "/state/properties/draft/x-reducer", 10, "give the key the type"),
    ("reserved_node_name", 1, "reference", "/nodes/fail", 12, "choose another name"),
    ("result_with_an_unknown_key", 1, "reference", "/result", 13, "the document declares no"),
    ("retry_on_an_ask", 1, "shape", "/nodes/answer/retry", 9, "it belongs to nodes with"),
    ("retry_on_an_unknown_code", 1, "reference", "/nodes/answer/retry/on/0", 13, "did you mean 'timeout'?"),
    ("retry_without_attempts", 2, "type", "/nodes/answer/retry/max", 11, "leave it out for none"),
    ("route_to_nowhere", 1, "reference", "/nodes/answer/next/0/to", 13, "one of answer, end, fail"),
    ("route_without_default", 1, "graph", "/nodes/answer/next/0", 11, 'add {"to": "NODE"} at the'),
    ("set_by_output_schema", 1, "type", "/nodes/answer/set/draft", 20, "convert it: string(out.code)"),
    ("set_decimals_to_an_integer", 1, "type", "/nodes/answer/set/count", 24, "convert it: int(state.score"),
    ("set_null_to_a_text", 1, "type", "/nodes/answer/set/draft", 20, "let the key be null:"),
    ("set_of_another_type", 1, "type", "/nodes/answer/set/score", 20, "convert it: double('high')"),
    ("single_quotes", 1, "syntax", "", 2, 'write "key": …'),
    ("state_key_with_a_capital", 1, "reference", "/state/properties/Draft", 7, "write 'draft'"),
    ("state_without_properties", 1, "shape", "/state/score", 14, "put state keys under"),
    ("subgraph_cycle", 1, "graph", "/nodes/answer/graph", 6, "a graph can't contain itself"),
    ("subgraph_input_of_another_type", 1, "type", "/nodes/answer/with/query", 8, ""),
    ("text_after_the_end", 1, "syntax", "", 6, "remove what follows the"),
    ("three_quotes_outside_a_prompt", 1, "syntax", "/nodes/answer/with/prompt", 4, "three quotation marks are"),
    ("trailing_comma", 1, "syntax", "/nodes", 5, "remove the comma"),
    ("typo_in_a_form", 1, "shape", "/nodes/answer/usee", 6, "did you mean 'use'?"),
    ("typo_in_a_node_key", 1, "shape", "/nodes/answer/wiht", 7, "did you mean 'with'?"),
    ("typo_in_a_node_name", 1, "reference", "/nodes/plan/next", 10, "did you mean 'judge'?"),
    ("typo_in_a_route_key", 1, "shape", "/nodes/answer/next/0/iff", 12, "did you mean 'if'?"),
    ("typo_in_a_top_level_key", 1, "shape", "/nods", 13, "'nodes' is there already; remove 'nods'"),
    ("typo_in_next", 1, "shape", "/nodes/answer/nxt", 7, "did you mean 'next'?"),
    ("typo_in_start", 1, "reference", "/start", 3, "did you mean 'plan'?"),
    ("typo_in_use", 1, "reference", "/nodes/answer/use", 6, "did you mean 'model'?"),
    ("unbalanced_template", 1, "syntax", "/nodes/answer/with/prompt", 8, "close it with '}', or write"),
    ("unclosed_object", 1, "syntax", "/nodes", 5, "close every bracket and"),
    ("unclosed_three_quotes", 1, "syntax", "/nodes/answer/with/systemPrompt", 4, 'close it with """'),
    ("undo_by_a_node", 1, "reference", "/nodes/answer/undo", 10, "tool:NAME or fn:NAME"),
    ("unknown_agent", 1, "reference", "/nodes/answer/use", 6, "an agent's key is its file name"),
    ("unknown_budget_figure", 1, "shape", "/budget/maxTokns", 14, "did you mean 'maxTokens'?"),
    ("unknown_effects", 1, "shape", "/nodes/answer/effects", 10, "did you mean 'write'?"),
    ("unknown_field_of_a_closed_output", 1, "reference", "/nodes/answer/next/0/if", 12, "did you mean 'text'?"),
    ("unknown_format_version", 1, "shape", "/graphflow", 2, 'write "1"'),
    ("unknown_function", 1, "reference", "/nodes/answer/use", 6, "did you mean 'fn:summarise'?"),
    ("unknown_limit", 1, "reference", "/nodes/answer/next/0/if", 12, "did you mean 'rounds'?"),
    ("unknown_node_in_visits", 1, "reference", "/nodes/answer/next/0/if", 12, "did you mean 'answer'?"),
    ("unknown_reducer", 1, "reference", "/state/properties/n/x-reducer", 10, "one of append, fn:NAME,"),
    ("unknown_root", 1, "reference", "/nodes/answer/next/0/if", 12, "did you mean 'out'?"),
    ("unknown_scope", 1, "reference", "/state/properties/score/x-scope", 10, "did you mean 'run'?"),
    ("unknown_state_key_in_a_condition", 1, "reference", "/nodes/answer/next/0/if", 21, "did you mean 'score'?"),
    ("unknown_state_key_in_a_template", 1, "reference", "/nodes/answer/with/prompt", 17, "did you mean 'draft'?"),
    ("unknown_state_key_in_set", 1, "reference", "/nodes/answer/set/drafft", 20, "did you mean 'draft'?"),
    ("unknown_subgraph", 1, "reference", "/nodes/answer/graph", 6, "a graph's key is its file"),
    ("unknown_tool", 1, "reference", "/nodes/answer/use", 6, "did you mean 'tool:bash'?"),
    ("unknown_tool_in_with", 1, "reference", "/nodes/answer/with/tools/1", 10, "one of bash"),
    ("unknown_type_in_the_state", 1, "type", "/state/properties/score/type", 8, "did you mean 'number'?"),
    ("unknown_undo", 1, "reference", "/nodes/answer/undo", 10, "did you mean 'tool:bash'?"),
    ("unreachable_node", 1, "graph", "/nodes/lost", 12, "add a route to it, or"),
    ("unregistered_reducer", 1, "reference", "/state/properties/n/x-reducer", 10, "register it in Python"),
    ("with_expression_of_another_type", 1, "type", "/nodes/answer/with/command", 17, ""),
    ("with_is_a_list", 1, "type", "/nodes/answer/with", 7, 'as in {"name": "${…}"}'),
    ("with_missing_argument", 1, "type", "/nodes/answer/with", 7, "it is text"),
    ("with_of_another_type", 1, "type", "/nodes/answer/with/prompt", 8, ""),
    ("with_unknown_argument", 1, "type", "/nodes/answer/with/promt", 8, "did you mean 'prompt'?"),
    ("with_value_outside_its_enum", 1, "type", "/nodes/answer/with/stream", 9, "did you mean 'content'?"),
    ("zero_limit", 1, "type", "/budget/maxSteps", 14, "leave it out for no limit"),
]


def check(source, graphs=GRAPHS) -> CheckedDocument:
    return check_document(source, FakeKinds(graphs))


def issues_of(source, graphs=GRAPHS):
    with pytest.raises(DefinitionError) as caught:
        check(source, graphs)
    assert caught.value.code == "invalid_definition"
    return caught.value.errors


def broken(name):
    """The errors of a file of `broken/`, in the order of the text."""
    with pytest.raises(DefinitionError) as caught:
        check(read_source(BROKEN / f"{name}.json", strict=False))
    assert caught.value.code == "invalid_definition"
    return caught.value.errors


def warnings_of(source):
    return {warning.pointer: warning for warning in check(source).warnings}


@pytest.mark.parametrize(("name", "count", "kind", "pointer", "line", "hint"), TABLE, ids=[row[0] for row in TABLE])
def test_a_broken_document_is_refused_with_place_and_next_step(name, count, kind, pointer, line, hint):
    issues = broken(name)
    first = issues[0]
    assert (len(issues), first.kind, first.pointer, first.line) == (count, kind, pointer, line)
    assert hint in (first.hint or "")
    assert first.file == str(BROKEN / f"{name}.json")
    assert first.column is not None


def test_every_broken_file_stands_in_the_table():
    assert sorted(path.stem for path in BROKEN.glob("*.json")) == [row[0] for row in TABLE]


def test_the_reports_read_well(snapshot):
    """Review the snapshot as a person who made the mistake."""
    report = [
        "\n".join([f"{name}:", *(f"  {replace(issue, file=None).render()}" for issue in broken(name))])
        for name, *_ in TABLE
    ]
    assert "\n".join(report) == snapshot


FOLLOWS = [
    # what is wrong, and the one place that is told: not all that follows from it
    ("nodes are no object", {"nodes": [], "budget": {"maxSteps": 5, "onExceeded": "b"}, "interruptBefore": ["a"], "invariants": ["before b visit a"]}, "/nodes"),
    ("a plan's nodes are lost", {"nodes": 5, "state": {"properties": {"tasks": {"x-tasks": ["a"]}}}, "result": "[state.tasks, visits.a]"}, "/nodes"),
    ("state is no object", {"state": [], "nodes": {"a": {"use": "model", "set": {"x": "state.y"}}}}, "/state"),
    ("state is misspelt", {"stat": {"properties": {"x": {}}}, "nodes": {"a": {"use": "model", "set": {"x": "state.x"}}}}, "/stat"),
    ("properties are a list", {"state": {"properties": []}, "nodes": {"a": {"use": "model", "set": {"x": "state.x"}}}}, "/state/properties"),
    ("properties are misspelt", {"state": {"propertes": {"x": {}}}, "nodes": {"a": {"use": "model", "set": {"x": "state.x"}}}}, "/state/propertes"),
    ("a map's item has no name", {"nodes": {"a": {"map": "[1]", "as": 5, "do": "w"}, "w": {"use": "model", "with": {"prompt": "${string(item)}"}}}}, "/nodes/a/as"),
    ("a map's body is lost", {"nodes": {"a": {"map": "[1]", "as": "item", "do": 5}, "w": {"use": "model", "with": {"prompt": "${string(item)}"}}}}, "/nodes/a/do"),
    ("a map has no body", {"nodes": {"a": {"map": "[1]", "as": "item"}, "w": {"use": "model", "with": {"prompt": "${string(item)}"}}}}, "/nodes/a"),
    ("map is misspelt", {"nodes": {"a": {"mapp": "[1]", "as": "item", "do": "w"}, "w": {"use": "model"}}}, "/nodes/a/mapp"),
    ("ask is misspelt", {"nodes": {"a": {"aks": {"message": "?"}, "next": [{"if": "answer.ok", "to": "end"}, {"to": "end"}]}}}, "/nodes/a/aks"),
    ("a use is lost that a property names", {"nodes": {"a": {"use": 5}}, "invariants": ["tool:bash at most 1"]}, "/nodes/a/use"),
    ("the input schema is lost", {"input": 5, "nodes": {"a": {"use": "model", "with": {"prompt": "${input.x.y}"}}}}, "/input"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "pointer"), [row[1:] for row in FOLLOWS], ids=[row[0] for row in FOLLOWS])
def test_what_follows_from_an_error_is_not_told_beside_it(keys, pointer):
    assert [issue.pointer for issue in issues_of({"graphflow": "1", "start": "a", **keys})] == [pointer]


def test_a_document_with_more_errors_than_anybody_reads_is_refused_like_any_other():
    nodes = {f"n{number}": {"use": "model", "nxet": "end"} for number in range(300)}
    assert [issue.pointer for issue in issues_of(document(nodes))] == [f"/nodes/{name}/nxet" for name in nodes]
    *first, last = issues_of(document({f"n{number}": {"use": "model", "next": number} for number in range(2_000)}))
    assert len(first) == 1_000
    assert last.message == "only the first 1000 errors are reported"


# --- what is sound --------------------------------------------------------------------------------

REVIEW = document(
    {
        "plan": {
            "use": "model",
            "with": {"prompt": "Plan: ${input.query}"},
            "set": {"steps": "out.steps"},
            "next": "judge",
        },
        "judge": {
            "use": "model",
            "with": {"prompt": "Score ${state.steps}"},
            "set": {"score": "out.score"},
            "next": [
                {"if": "state.score >= 0.8", "to": "approve"},
                {"if": "visits.judge < limits.rounds", "to": "plan"},
                {"to": "wrap_up"},
            ],
        },
        "approve": {
            "ask": {
                "message": "Send ${size(state.steps)} steps?",
                "show": "{'steps': state.steps}",
                "expires": "P2D",
                "onExpire": "wrap_up",
                "schema": {
                    "type": "object",
                    "required": ["decision"],
                    "properties": {"decision": {"enum": ["yes", "no"]}},
                },
            },
            "set": {"draft": "has(answer.draft) ? answer.draft : state.draft"},
            "next": [{"if": "answer.decision == 'no'", "to": "wrap_up"}, {"to": "send"}],
        },
        "send": {
            "use": "tool:bash",
            "with": {"command": "mail '${state.draft}'"},
            "effects": "write",
            "retry": {"max": 2, "on": ["timeout", "rate_limit"]},
            "error": [{"on": ["timeout"], "to": "wrap_up"}, {"to": "fail"}],
            "next": "end",
        },
        "wrap_up": {"use": "model", "with": {"prompt": "Summarise"}, "next": "end"},
    },
    state={
        "steps": {"type": "array", "default": []},
        "score": {"type": "number", "default": 0},
        "draft": {"type": ["string", "null"], "default": None},
    },
    budget={"maxRounds": 3, "maxSteps": 60, "timeoutMs": 300000, "onExceeded": "wrap_up"},
    interruptBefore=["send"],
)


def test_a_sound_document_has_no_errors_and_no_warnings():
    checked = check(REVIEW)
    assert checked.warnings == ()
    assert checked.data == REVIEW
    assert checked.digest.startswith("sha256:")


def test_what_was_checked_can_be_built_and_its_data_checks_again_to_the_same_hash():
    checked = check(REVIEW)
    assert set(build_plan(checked, FakeKinds()).nodes) == set(REVIEW["nodes"])
    assert check(checked.data).digest == checked.digest


def test_written_defaults_and_the_order_of_keys_change_nothing():
    spelled = json.loads(json.dumps(REVIEW, sort_keys=True))
    spelled["nodes"]["send"]["error"][1]["on"] = ["any"]
    spelled["nodes"]["plan"]["set"] = dict(spelled["nodes"]["plan"]["set"])
    spelled["nodes"]["send"]["retry"]["factor"] = 2
    spelled["invariants"] = []
    assert check(spelled).digest == check(REVIEW).digest


def test_any_other_change_changes_the_hash():
    other = json.loads(json.dumps(REVIEW))
    other["nodes"]["wrap_up"]["with"]["prompt"] = "Summarise!"
    assert check(other).digest != check(REVIEW).digest


def test_data_without_a_text_has_pointers_and_no_lines():
    (issue,) = issues_of(document({"answer": {"use": "modle", "next": "end"}}))
    assert (issue.pointer, issue.line, issue.file) == ("/nodes/answer/use", None, None)


def test_a_name_can_be_given_for_errors():
    with pytest.raises(DefinitionError) as caught:
        check_document(document({"answer": {"use": "modle"}}), FakeKinds(), file="built.py")
    assert caught.value.errors[0].file == "built.py"


def test_a_missing_next_ends_the_graph():
    assert check(document({"answer": {"use": "model"}})).document.nodes["answer"].next is None


def test_a_python_node_may_choose_its_route():
    nodes = {"work": {"use": "node:worker", "next": {"choose": ["work", "end"]}}}
    assert isinstance(check(document(nodes, budget={"maxSteps": 9})), CheckedDocument)
    (issue,) = issues_of(document(nodes))
    assert "no budget that ends it" in issue.message


def test_a_wrong_route_is_reported_once_and_not_as_all_that_follows_from_it():
    nodes = {
        "a": {"use": "model", "next": "bb"},
        "b": {"use": "model", "next": "c"},
        "c": {"use": "model", "next": "end"},
    }
    assert [issue.pointer for issue in issues_of(document(nodes))] == ["/nodes/a/next"]


def test_the_node_that_wraps_up_counts_as_reachable():
    nodes = {"a": {"use": "model"}, "wrap": {"use": "model"}}
    assert isinstance(check(document(nodes, budget={"maxSteps": 5, "onExceeded": "wrap"})), CheckedDocument)


def test_the_error_of_a_kind_stands_at_its_place_in_the_document():
    (issue,) = issues_of(document({"a/b": {"use": "model", "with": {"tools": ["rm"]}}}))[1:]
    assert issue.pointer == "/nodes/a~1b/with/tools/0"


def test_a_kind_may_tell_the_output_of_this_very_node():
    kinds = FakeKinds()
    kind = FakeKind("model")
    kind.out_schema_of = lambda node: node.with_["schema"]  # type: ignore[attr-defined]
    kinds.kinds["model"] = kind
    schema = {"type": "object", "properties": {"score": {"type": "string"}}}
    doc = document(
        {"answer": {"use": "model", "with": {"schema": schema}, "set": {"score": "out.score"}}},
        state={"score": {"type": "number", "default": 0}},
    )
    with pytest.raises(DefinitionError, match="takes a number, and 'out.score' gives text"):
        check_document(doc, kinds)


def test_known_prices_allow_a_limit_in_money():
    kinds = FakeKinds()
    kinds.unpriced = lambda *asked: [] if asked == ("qwen", "m", None) else ["x/y"]  # type: ignore[attr-defined]
    costly = document(budget={"maxCostUsd": 0.5}, providerKey="qwen", model="m")
    assert isinstance(check_document(costly, kinds), CheckedDocument)
    assert issues_of(costly)[0].pointer == "/budget/maxCostUsd"


# --- warnings -------------------------------------------------------------------------------------


def test_a_key_that_is_read_and_never_written_is_a_warning():
    state = {"draft": {"type": ["string", "null"], "default": None}, "limit": {"type": "integer", "default": 3}}
    doc = document({"answer": {"use": "model", "with": {"prompt": "${state.draft} ${state.limit}"}}}, state=state)
    (warning,) = check(doc).warnings
    assert warning.pointer == "/state/properties/draft"
    assert "never written" in warning.message
    assert warning.severity == "warning"


def test_a_key_that_is_written_and_never_read_is_a_warning_where_the_result_is_something_else():
    state = {"draft": {"type": "string", "default": ""}}
    nodes = {"answer": {"use": "model", "set": {"draft": "out.text"}}}
    assert "/state/properties/draft" in warnings_of(document(nodes, state=state, result="'done'"))
    assert warnings_of(document(nodes, state=state)) == {}


def test_python_nodes_may_read_and_write_what_they_like():
    state = {"draft": {"type": ["string", "null"]}, "other": {"type": "string", "default": ""}}
    doc = document({"work": {"use": "node:worker"}}, state=state, result="state.draft")
    assert check(doc).warnings == ()


def test_rounds_that_no_condition_names_are_a_warning():
    nodes = {"a": {"use": "model", "next": [{"if": "visits.a < 3", "to": "a"}, {"to": "end"}]}}
    assert "ends nothing" in warnings_of(document(nodes, budget={"maxRounds": 3}))["/budget/maxRounds"].message


# --- graphs in graphs -----------------------------------------------------------------------------


def test_subgraphs_are_checked_and_hashed_with_their_parent():
    nodes = {"child": {"graph": "kid", "with": {"query": "x"}, "set": {"draft": "out"}}}
    parent = document(nodes, state={"draft": {"default": None}})
    one = check(parent, {"kid": document()})
    other = check(parent, {"kid": document({"answer": {"use": "model", "with": {"prompt": "Bye"}}})})
    assert one.subgraphs["kid"].digest == check(document()).digest
    assert one.digest != other.digest


def test_graphs_in_graphs_are_checked_to_a_depth_that_is_told():
    def chain(depth):
        return {f"g{n}": document({"a": {"graph": f"g{n + 1}"}}) for n in range(depth)} | {f"g{depth}": document()}

    assert isinstance(check(document({"a": {"graph": "g1"}}), chain(100)), CheckedDocument)
    (issue,) = issues_of(document({"a": {"graph": "g1"}}), chain(400))
    assert issue.message.endswith("graph 'g101' is nested more than 100 graphs deep")


def test_a_graph_in_place_is_checked_with_lines_of_the_same_file():
    inner = document({"answer": {"use": "model", "next": "edn"}})
    text = json.dumps(document({"child": {"graph": inner}}), indent=1)
    (issue,) = issues_of(parse_source(text, file="x.json"))
    assert issue.pointer == "/nodes/child/graph/nodes/answer/next"
    assert text.splitlines()[issue.line - 1].strip() == '"next": "edn"'
    assert check(document({"child": {"graph": document()}})).subgraphs["child"].digest == check(document()).digest


def test_the_document_of_an_agent_node_is_part_of_the_hash():
    kinds = FakeKinds({"helper": document()})
    kinds.kinds["agent:helper"] = FakeKind("agent")
    parent = document({"ask_it": {"use": "agent:helper"}})
    before = check_document(parent, kinds).digest
    kinds.graphs["helper"] = document({"answer": {"use": "model", "with": {"prompt": "Bye"}}})
    assert check_document(parent, kinds).digest != before


def test_agents_that_refer_to_each_other_in_a_circle_are_one_set_in_the_hash():
    kinds = FakeKinds()
    for key, other in (("a", "b"), ("b", "a")):
        kinds.graphs[key] = document({"call": {"use": f"agent:{other}"}})
        kinds.kinds[f"agent:{key}"] = FakeKind("agent")
    before = check_document(kinds.graphs["a"], kinds)
    assert sorted(before.agents) == ["a", "b"]
    again = unchecked(kinds.graphs["a"], kinds)
    assert again is not None
    assert again.digest == before.digest
    kinds.graphs["b"] = document({"call": {"use": "agent:a"}}, description="another")
    assert check_document(kinds.graphs["a"], kinds).digest != before.digest


def test_registered_names_are_part_of_the_hash_where_the_kinds_identify_them():
    kinds, versions = FakeKinds(), {"tool:bash": "1", "fn:summarise": None}
    kinds.identity = versions.get  # type: ignore[attr-defined]
    doc = document({"run": {"use": "tool:bash", "with": {"command": "ls"}}}, tools=["bash"])
    before = check_document(doc, kinds).digest
    versions["tool:bash"] = "2"
    assert check_document(doc, kinds).digest != before


def test_a_graph_that_many_nodes_name_is_checked_once():
    class Counting(FakeKinds):
        seen = 0

        def find(self, use):
            self.seen += use == "fn:summarise"
            return super().find(use)

    levels = {f"g{n}": document({"a": {"graph": f"g{n + 1}"}, "b": {"graph": f"g{n + 1}"}}) for n in range(12)}
    for level in levels.values():
        level["nodes"]["a"]["next"] = "b"
    kinds = Counting({**levels, "g12": document({"x": {"use": "fn:summarise"}})})
    check_document(levels["g0"], kinds)
    assert kinds.seen < 10


# --- robustness -----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)
KEYS = (
    "use map parallel graph ask with set next error retry timeoutMs effects undo as do max join if to choose on message "
    "schema expires state properties type default x-reducer budget maxSteps then start nodes input result always "
    "interruptBefore graphflow a b".split()
)
TEXTS = st.sampled_from(
    [
        "a",
        "b",
        "end",
        "fail",
        "model",
        "tool:bash",
        "state.a",
        "out.text",
        "${state.a}",
        "${",
        "1",
        "append",
        "array",
        "P2D",
        "any",
        "",
    ]
)
DOCUMENT_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(KEYS), children, max_size=5),
    max_leaves=30,
)


def checked_or_refused(check: Callable[[], object]) -> bool:
    """It gives something, or an error that names what is wrong; any other error comes through."""
    try:
        return check() is not None
    except DefinitionError as refused:
        return any(issue.severity == "error" and issue.message for issue in refused.errors)


@given(JSON)
def test_arbitrary_data_is_checked_or_refused(data):
    assert checked_or_refused(lambda: check_document(data, FakeKinds()))


@pytest.mark.campaign
@settings(max_examples=size(120, long=10_000))
@given(
    st.dictionaries(
        st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(KEYS), DOCUMENT_LIKE, max_size=5), max_size=2
    ),
    st.dictionaries(
        st.sampled_from(["state", "budget", "input", "result", "interruptBefore", "start"]), DOCUMENT_LIKE, max_size=3
    ),
)
def test_data_that_looks_like_a_document_is_checked_or_refused(nodes, more):
    data = {"graphflow": "1", "start": "a", "nodes": nodes, **more}
    assert checked_or_refused(lambda: build_plan(check_document(data, FakeKinds()), FakeKinds()))


@pytest.mark.parametrize("data", [{1: 2}, {"a": object()}, {"a": b"x"}, {"graphflow": "\ud800"}, {"a": {1, 2}}])
def test_python_data_that_is_no_json_is_refused(data):
    assert issues_of(data)


def test_deep_nesting_is_refused_and_not_a_crash():
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert any("nested deeper" in issue.message for issue in issues_of(document(description=deep)))


def test_a_document_of_a_thousand_nodes_is_checked_in_its_stride():
    nodes = {f"n{i}": {"use": "model", "next": f"n{i + 1}"} for i in range(999)} | {"n999": {"use": "model"}}
    assert isinstance(check(document(nodes)), CheckedDocument)


def test_loading_the_compiler_imports_no_heavy_library():
    """networkx comes with the first cycle to show, CEL with the first check of types."""
    script = (
        "import sys, graphflow.graph.validation.validate\n"
        "heavy = {'networkx', 'pydantic', 'jsonschema_rs', 'cel_expr_python', 'httpx', 'structlog'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import graphflow\n"
        "from graphflow.models.scripted.model import ScriptedModel\n"
        "graphflow.load_graph({'mode': 'REACT', 'react': {'systemPrompt': 'x'}}, model=ScriptedModel())\n"
        "assert 'networkx' not in sys.modules, 'each start of a command and a server would wait for it'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_source_with_errors_of_its_text_is_checked_as_far_as_it_can_be_read():
    pointers = [(issue.kind, issue.pointer) for issue in broken("duplicate_key_and_more")]
    assert pointers == [("syntax", "/start"), ("reference", "/start"), ("reference", "/nodes/answer/next")]


def test_a_source_is_located_by_its_text():
    source = parse_source(json.dumps(document()))
    assert isinstance(source, Source)
    assert check(source).warnings == ()


@pytest.mark.parametrize(
    ("data", "pointer", "word"),
    [
        (document({"a": {"use": "model", "timeoutMs": 2**70}}), "/nodes/a/timeoutMs", "beyond 64 bits"),
        (document({"a": {"use": "fn:summarise", "with": {"n": -(2**63) - 1}}}), "/nodes/a/with/n", "beyond 64 bits"),
        (document(state={"a": True}), "/state/properties/a", "is an object, not true"),
        (
            document({"a": {"use": "model", "set": {"k": "1"}}}, state={"k": {"x-reducer": []}}),
            "/state/properties/k/x-reducer",
            "[] is not a reducer",
        ),
        (document(state={"a": {"$ref": "#/$defs/nope"}}), "/state/properties/a", "not a valid JSON Schema"),
        (document({"a": {"graph": "itself"}}), "/nodes/a/graph", "part of itself: itself → itself"),
        (document({"a": {"graph": "list"}}), "/nodes/a/graph", "a document is a JSON object"),
    ],
)
def test_extremes_are_refused_with_their_place(data, pointer, word):
    graphs = {"itself": document({"a": {"graph": "itself"}}), "list": []}
    issue = issues_of(data, graphs)[0]
    assert issue.pointer == pointer
    assert word in issue.message


def test_state_keys_may_refer_to_definitions_beside_them():
    doc = document(state={"plan": {"$ref": "#/$defs/plan", "default": {"steps": []}}})
    doc["state"]["$defs"] = {"plan": {"type": "object", "required": ["steps"]}}
    assert isinstance(check(doc), CheckedDocument)
    doc["state"]["properties"]["plan"]["default"] = {}
    assert issues_of(doc)[0].pointer == "/state/properties/plan/default"


@pytest.mark.parametrize("source", ["state.x+state.y", "state.x + state['y'] +", "${state.x + state.y"])
def test_what_a_wrong_expression_names_counts_as_read(source):
    keys = {"x": {"type": "number", "default": 1}, "y": {"type": "integer", "default": 1}, "r": {"type": "number"}}
    step = {"with": {"text": source}} if "$" in source else {"set": {"r": source}}
    wrong = {
        "graphflow": "1", "start": "a", "state": {"properties": keys}, "result": "state.r",
        "nodes": {"a": {"use": "say", **step, "next": "end"}},
    }  # fmt: skip
    with pytest.raises(DefinitionError) as caught:
        load_graph(wrong)
    assert [issue.message for issue in caught.value.errors if "neither read" in issue.message] == []
