"""`graphflow test`: an agent's cases from files."""

from __future__ import annotations

import json
from typing import Any

import pytest

GOOD: list[dict[str, Any]] = [
    {"name": "by rules", "input": 'Call city_datetime {"city": "Paris"}', "expect": {"tools": ["city_datetime"]}},
    {
        "name": "by a script",
        "input": {"query": "hi"},
        "model": [{"text": "Hello there."}],
        "expect": {"output": "Hello there.", "contains": ["there"], "nodes": ["reason"], "asked": ["hi"], "tools": []},
    },
    {"name": "a provider that fails", "input": "hi", "model": [{"error": {"status": 401}}], "expect": {"error": "provider_error"}},
]  # fmt: skip


def _case(**fields: Any) -> dict[str, Any]:
    return {"agent": "demo_react", "cases": [{"name": "x", "input": "hi", **fields}]}


@pytest.fixture
def cases(project):
    def write(data: Any, name: str = "react.json") -> None:
        folder = project / "graphs" / "tests"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(data), encoding="utf-8")

    return write


def test_cases_that_pass_are_listed(cli, cases, project):
    cases({"agent": "demo_react", "cases": GOOD})
    done = cli("test")
    assert (done.code, done.out.splitlines()) == (0, [f"✓ demo_react: {case['name']}" for case in GOOD])
    assert not list((project / "checkpoints").glob("*.db"))


def test_a_case_that_fails_says_what_differs(cli, cases):
    expect = {"output": "Bye.", "contains": ["moon"], "tools": ["bash"], "asked": ["sun"], "state": {"messages": 1}}
    cases(
        {
            "agent": "demo_react",
            "model": [{"text": "Hello."}],
            "cases": [{"name": "x", "input": "hi", "expect": expect}],
        }
    )
    done = cli("test", "--json")
    assert done.code == 1
    output, state, *rest = done.json[0]["differs"]
    assert (output, state[:19], state[-7:]) == ('output is "Hello.", not "Bye."', "state.messages is [", ", not 1")
    assert rest == [
        'tools is [], not ["bash"]',
        "the output has no 'moon': Hello.",
        "no message to the model has 'sun'",
    ]


def test_questions_get_their_answers_in_order(cli, cases):
    calls = [{"name": "bash", "arguments": {"command": "ls"}}]
    turns = [{"tool_calls": calls}, {"text": "Done."}]
    case = {"name": "approved", "input": "list", "model": turns, "expect": {"output": "Done.", "tools": ["bash"]}}
    cases({"agent": "demo_react", "cases": [{**case, "answers": [{"decision": "approve"}]}]})
    waits = {**case, "name": "left open", "expect": {"status": "waiting"}}
    cases({"agent": "demo_react", "cases": [waits]}, "waits.json")
    done = cli("test")
    assert (done.code, done.out.count("✓")) == (0, 2), done.out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"agent": "demo_react", "cases": [{"nam": "x"}]}, "did you mean 'name'?"),
        ({"agents": "demo_react", "cases": [{"name": "x"}]}, "did you mean 'agent'?"),
        (_case(model=["text"]), "/cases/0/model/0: expected an object"),
        (_case(model=[{"txt": "Hi."}]), "/cases/0/model/0/txt: unknown key 'txt' (did you mean 'text'?"),
        (_case(model=[{"match": "hi", "turns": {"text": "x"}}]), "did you mean 'turn'?"),
        ({"agent": "demo_react", "model": {"turn": []}, "cases": [{"name": "x"}]}, "/model/turn: unknown key 'turn' (did you mean"),
        (_case(expect={"ouptut": None}), "did you mean 'output'?"),
        (_case(expect={"state": {"mesages": None}}), "unknown key 'mesages' of the state of agent 'demo_react' (did you mean 'messages'?"),
        (_case(expect={"tools": ["city_datetme"]}), "/cases/0/expect/tools/0: unknown tool 'city_datetme', called by agent 'demo_react' (did you mean 'city_datetime'?"),
        (_case(expect={"nodes": ["reason", "raeson"]}), "/cases/0/expect/nodes/1: unknown node 'raeson' of agent 'demo_react' (did you mean 'reason'?"),
        (_case(model={"rules": [{"match": "x", "steps": [{"tool": "bsh"}]}]}), "/cases/0/model/rules/0/steps/0/tool: no tool is named 'bsh' (did you mean 'bash'?"),
        (_case(model=[{"match": "x", "steps": [{"tool": "bsh"}]}]), "/cases/0/model/0/steps/0/tool: no tool is named 'bsh'"),
        (_case(expect={"status": "complete"}), "did you mean 'completed'?"),
        (_case(expect={"error": "provider_eror"}), "did you mean 'provider_error'?"),
        (_case(expect={"status": "faild", "error": "provider_error"}), "did you mean 'failed'?"),
        ({"agent": "demo_reakt", "cases": [{"name": "x"}]}, "demo_react"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_place(cli, cases, data, said):
    cases(data)
    done = cli("test")
    assert done.code == 2
    assert said in done.err


def test_a_case_may_expect_a_call_of_a_tool_that_its_script_makes_up(cli, cases):
    turns = [{"tool_calls": [{"name": "made_up", "arguments": {}}]}, {"text": "Done."}]
    cases(
        {
            "agent": "demo_react",
            "cases": [{"name": "made up", "input": "x", "model": turns, "expect": {"tools": ["made_up"]}}],
        }
    )
    assert cli("test").code == 0


def test_a_refused_answer_fails_its_case_and_the_others_run(cli, cases):
    asks = [{"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}]
    refused = {"name": "refused", "input": "hi", "model": asks, "answers": ["x"], "expect": {"status": "waiting"}}
    cases({"agent": "demo_react", "cases": [refused, GOOD[1]]})
    done = cli("test", "--json")
    assert done.code == 1
    assert [bool(row["differs"]) for row in done.json] == [True, False]
    assert done.json[0]["differs"][0].startswith("answer_invalid: ")


def test_an_answer_without_a_question_and_a_file_without_cases_test_nothing_and_fail(cli, cases):
    cases({"agent": "demo_react", "cases": [{**GOOD[1], "answers": [True, False]}]})
    done = cli("test", "--json")
    assert (done.code, done.json[0]["differs"]) == (1, ["2 of the answers met no question"])
    cases({"agent": "demo_react", "cases": []})
    done = cli("test")
    assert done.code == 2 and "`cases` is empty" in done.err
