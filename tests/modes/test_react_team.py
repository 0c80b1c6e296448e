"""REACT_TEAM: what its graph is, what each of its agents is shown, and how its work ends (spec 1.2, 6.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphflow.errors import DefinitionError
from graphflow.messages import AIMessage, HumanMessage, Message, ToolMessage
from graphflow.modes.checks import agent_issues
from graphflow.modes.definition import decode_definition
from graphflow.modes.registry import compile_agent
from graphflow.nodes.message_pairing import paired
from graphflow.nodes.team_prompts import DEFAULTS
from tests.modes.conftest import Stage, call
from tests.modes.test_events import told

PROMPTS = {f"{name}SystemPrompt": name.upper() for name in DEFAULTS}
THINK = {"text": "Look it up.", "piece": 6}
JUDGE = {"text": "It is a thing.", "piece": 7}
ANSWER = {"text": "A graph is a thing.", "piece": 9}


def document(*, block: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    team = {"exposeReasoningToUser": True, **PROMPTS, **(block or {})}
    data = {"mode": "REACT_TEAM", "reactTeam": team, "tools": ["look_up", "broken"], **fields}
    return compile_agent(decode_definition(data), data).data


def done(number: int = 9) -> dict[str, Any]:
    return {"tool_calls": [call("task_done", number, finishContent="A graph is a thing.")], "piece": 20}


CASES: dict[str, list[Any]] = {
    "no tool": [THINK, done(), ANSWER],
    "one tool": [THINK, {"text": "I look.", "tool_calls": [call()]}, JUDGE, THINK, done(), ANSWER],
    "several tools": [
        THINK,
        {"tool_calls": [call(number=1), call(number=2, word="{{look_up.text}}!")]},
        JUDGE,
        THINK,
        done(),
        ANSWER,
    ],
    "a tool that fails": [THINK, {"tool_calls": [call("broken")]}, JUDGE, THINK, done(), ANSWER],
    "a call that does not fit": [THINK, {"tool_calls": [call(nothing=1)]}, done(), ANSWER],
    "no call": [THINK, {"text": "Nothing to call."}, JUDGE, ANSWER],
    "a limit of rounds": [THINK, {"tool_calls": [call()]}, JUDGE, ANSWER],
    "a limit of calls": [THINK, {"tool_calls": [call()]}, ANSWER],
    "cancelled": [THINK, {"text": "I lo", "piece": 4, "hang": True}],
    "an error": [THINK, {"error": {"status": 400, "message": "too bad"}}],
}
FIELDS: dict[str, dict[str, Any]] = {
    "no call": {"block": {"maxRounds": 1}},
    "a limit of rounds": {"block": {"maxRounds": 1}},
    "a limit of calls": {"budget": {"maxModelCalls": 2}},
}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_sends_these_events(case: str, snapshot: Any) -> None:
    stage = Stage(document(**FIELDS.get(case, {})), *CASES[case])
    assert told(await stage.play()) == snapshot
    assert len(stage.model.asked) == len(CASES[case])


@pytest.mark.parametrize("case", ["one tool", "a limit of rounds", "cancelled"])
async def test_a_run_with_a_second_pass_sends_these_events(case: str, snapshot: Any) -> None:
    stage = Stage(
        document(verify="SECOND_PASS_FIX", **FIELDS.get(case, {})), *CASES[case], {"text": "Checked.", "piece": 9}
    )
    assert told(await stage.play()) == snapshot


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"verify": "SECOND_PASS_FIX"},
        {"toolPolicy": "REQUIRE"},
        {"toolPolicy": "DISALLOW"},
        {
            "keywords": ["words"],
            "block": {
                "thinking": {"model": "big", "providerKey": "auto"},
                "action": {"tools": ["look_up"], "keywords": ["books"]},
                "observation": {"agent": "judge"},
                "maxSteps": 4,
            },
        },
        {"block": {"final": {"agent": "speaker"}}},
        {"block": {"final": {"agent": "speaker"}}, "verify": "SECOND_PASS_FIX"},
    ],
    ids=["as it is", "verify", "require", "disallow", "stages", "another final", "another final, verified"],
)
def test_it_compiles_to_this_graph(fields: dict[str, Any], snapshot: Any) -> None:
    assert document(**fields) == snapshot


def test_its_budget_and_rounds_are_the_presets() -> None:
    assert document()["budget"] == {
        "maxRounds": 10, "maxModelCalls": 60, "maxToolCalls": 60, "timeoutMs": 600_000, "onExceeded": "final",
    }  # fmt: skip
    assert list(document()["nodes"]) == ["thinking", "action", "tools", "observation", "final"]


def test_each_agent_has_a_long_prompt_of_its_own_where_the_file_gives_none() -> None:
    data = {"mode": "REACT_TEAM", "reactTeam": {}}
    nodes = compile_agent(decode_definition(data), data).data["nodes"]
    prompts = [node["with"]["systemPrompt"] for node in nodes.values() if node["use"] == "stage"]
    assert len(set(prompts)) == 4 and all(len(prompt) > 800 for prompt in prompts)
    assert all("<TOOLS>" in prompt for prompt in prompts[:3])


async def test_the_tools_stand_in_a_prompt_and_only_action_can_call_them() -> None:
    stage = Stage(document(block={"thinkingSystemPrompt": "Think of:\n<TOOLS>"}), *CASES["no tool"])
    await stage.play()
    assert stage.model.asked[0][0][0].content == (
        "Think of:\n1. look_up: What a word means.\n   - word (string), required\n"
        "2. broken: Fails.\n   - word (string), required"
    )
    assert [tools for _, tools, _ in stage.model.asked] == [[], ["look_up", "broken", "task_done"], []]
    assert [messages[0].content for messages, _, _ in stage.model.asked][1:] == ["ACTION", "FINAL"]


async def test_each_agent_is_shown_what_was_said_before_it_in_that_order() -> None:
    stage = Stage(document(), *CASES["one tool"])
    await stage.play()
    shown = stage.model.asked[-1][0][1:]
    assert [getattr(m, "content", "") for m in shown[:-1]] == [
        "Question?",
        "[thinking]: Look it up.",
        "[action]: I look.",
        "graph: a thing",
        "[observation]: It is a thing.",
        "[thinking]: Look it up.",
        "",
        '{"finishContent":"A graph is a thing."}',
    ]
    assert isinstance(shown[-1], HumanMessage) and shown[-1].name == "team"
    assert paired(shown) == shown


async def test_only_the_final_answer_is_content_and_joins_the_conversation_as_text() -> None:
    stage = Stage(document(), *CASES["one tool"])
    await stage.play()
    assert stage.texts("content") == "A graph is a thing."
    assert stage.texts("reasoning") == "Look it up.I look.It is a thing.Look it up."
    said = await stage.said()
    assert [(message.content, len(message.tool_calls)) for message in said] == [("", 1), ("", 1), (ANSWER["text"], 0)]


async def test_what_the_team_says_is_hidden_unless_the_agent_exposes_it_but_its_calls_are_not() -> None:
    stage = Stage(document(block={"exposeReasoningToUser": False}), *CASES["one tool"])
    await stage.play()
    assert stage.texts("reasoning") == "" and stage.texts("content") == ANSWER["text"]
    assert stage.types.count("tool.start") == stage.types.count("tool.result") == 2
    assert [note["text"] for note in (await stage.state()).notes] == [
        "Look it up.", "I look.", "It is a thing.", "Look it up.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "reason"),
    [("no tool", "task_done"), ("a limit of rounds", "max_rounds"), ("no call", "max_rounds"), ("a limit of calls", "budget")],
)  # fmt: skip
async def test_the_reason_tells_how_the_work_ended(case: str, reason: str) -> None:
    stage = Stage(document(**FIELDS.get(case, {})), *CASES[case])
    await stage.play()
    assert stage.finish_reason == reason


async def test_a_call_that_could_not_be_run_is_mended_in_the_same_round() -> None:
    stage = Stage(document(), *CASES["a call that does not fit"])
    nodes = [event["node"] for event in await stage.play() if event["type"] == "node.start"]
    assert nodes == ["thinking", "action", "tools", "action", "tools", "final"]


async def test_calls_that_never_fit_are_left_to_observation_after_some_tries() -> None:
    bad = {"tool_calls": [call(nothing=1)]}
    stage = Stage(document(block={"maxRounds": 1}), THINK, bad, bad, bad, JUDGE, ANSWER)
    nodes = [event["node"] for event in await stage.play() if event["type"] == "node.start"]
    assert nodes == ["thinking", *["action", "tools"] * 3, "observation", "final"]


async def test_a_tool_that_has_to_be_called_is_asked_for_once_more_and_then_the_run_fails() -> None:
    stage = Stage(document(toolPolicy="REQUIRE"), THINK, {"text": "No."}, {"text": "Still no."})
    await stage.play()
    assert stage.events[-1]["error"]["code"] == "tool_required"
    assert [options.tool_choice for _, _, options in stage.model.asked][1:] == ["required", "required"]


async def test_without_tools_the_team_can_still_end_its_work() -> None:
    stage = Stage(document(toolPolicy="DISALLOW"), THINK, {"tool_calls": [call()]}, done(), ANSWER)
    await stage.play()
    assert stage.model.asked[1][1] == ["task_done"] and stage.finish_reason == "task_done"


async def test_a_stage_may_have_a_model_and_tools_of_its_own() -> None:
    block = {"action": {"tools": ["look_up"]}, "thinking": {"model": "big"}}
    stage = Stage(document(block=block), *CASES["no tool"])
    await stage.play()
    assert stage.model.asked[1][1] == ["look_up", "task_done"]
    assert document(block=block)["nodes"]["thinking"]["with"]["model"] == "big"


async def test_a_call_of_a_tool_that_the_stage_does_not_have_is_refused() -> None:
    block = {"action": {"tools": ["look_up"]}}
    stage = Stage(document(block=block), THINK, {"tool_calls": [call("broken")]}, done(), ANSWER)
    await stage.play()
    [refused, _] = [event["result"] for event in stage.events if event["type"] == "tool.result"]
    assert "there is no tool 'broken'" in refused


async def test_an_approval_holds_the_team_and_its_answer_lets_it_go_on() -> None:
    stage = Stage(document(approval={"look_up": "REQUIRE_APPROVAL"}), *CASES["one tool"])
    await stage.play()
    assert stage.types[-1] == "run.waiting"
    [interrupt] = (await stage.graph.thread("t").state()).interrupts
    rejects = {"decision": "reject", "reason": "not this one"}
    after = [event async for event in stage.graph.stream_answer("t", {interrupt.id: rejects})]
    assert after[-1].type == "run.complete"
    assert any("not this one" in getattr(m, "content", "") for m in stage.model.asked[2][0])


async def test_nobody_is_asked_whether_the_work_may_end() -> None:
    stage = Stage(document(approval="REQUIRE_APPROVAL"), *CASES["no tool"])
    await stage.play()
    assert stage.finish_reason == "task_done"


async def test_an_ejected_team_sends_the_same_events() -> None:
    ejected = json.loads(json.dumps(document()))
    assert "mode" not in ejected
    mode, graph = Stage(document(), *CASES["one tool"]), Stage(ejected, *CASES["one tool"])
    assert told(await mode.play()) == told(await graph.play())


@pytest.mark.parametrize(
    ("team", "pointer"),
    [
        ({"action": {"tools": ["look_upp"]}}, "/reactTeam/action/tools/0"),
        ({"thinking": {"providerKey": "nobody"}}, "/reactTeam/thinking/providerKey"),
        ({"final": {"agent": "x", "tools": []}}, "/reactTeam/final"),
        ({"thinking": {"agent": "x", "model": "m"}}, "/reactTeam/thinking"),
    ],
)
def test_what_a_stage_can_not_have_is_told_at_its_place(team: dict[str, Any], pointer: str) -> None:
    issues = agent_issues({"reactTeam": team}, tools=["look_up"], providers=["auto"])
    assert [issue.pointer for issue in issues] == [pointer]


def ai(*ids: str) -> AIMessage:
    from graphflow.messages import ToolCall

    return AIMessage(tool_calls=tuple(ToolCall(id=i, name="look_up") for i in ids))


def result(call_id: str, text: str = "r") -> ToolMessage:
    return ToolMessage(tool_call_id=call_id, name="look_up", content=text)


SAID = HumanMessage(content="and?")
MISSING = ToolMessage(tool_call_id="b", name="look_up", content="this call was not run", error=True)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ([ai("a", "b"), result("a"), result("b")], [ai("a", "b"), result("a"), result("b")]),
        ([ai("a", "b"), result("b"), result("a")], [ai("a", "b"), result("a"), result("b")]),
        ([ai("a", "b"), result("a"), SAID], [ai("a", "b"), result("a"), MISSING, SAID]),
        ([ai("a"), SAID, result("a")], [ai("a"), result("a"), SAID]),
        ([result("x"), ai("a"), result("a"), result("a", "twice")], [ai("a"), result("a")]),
        ([ai("a"), result("a", "1"), ai("a"), result("a", "2")], [ai("a"), result("a", "1"), ai("a"), result("a", "2")]),
    ],
    ids=["paired", "other order", "missing", "parted", "too many", "an id used again"],
)  # fmt: skip
def test_every_call_is_followed_by_its_one_result(given: list[Message], sent: list[Message]) -> None:
    assert paired(given) == sent
    assert paired(sent) == sent


def test_a_team_needs_its_tool_to_end() -> None:
    from graphflow.graph.validation.validate import check_document
    from graphflow.nodes.kinds import NodeKinds
    from graphflow.tools.registry import ToolRegistry

    data = {"mode": "REACT_TEAM", "reactTeam": {}}
    with pytest.raises(DefinitionError, match="task_done"):
        check_document(compile_agent(decode_definition(data), data).data, NodeKinds(ToolRegistry(builtins=())))
