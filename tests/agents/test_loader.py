"""An agent file loads, or is refused with all its errors, each with its place (spec 1.1, 2.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.agents.loader import LoadedAgent, load_agent
from graphflow.errors import DefinitionError, Issue
from tests.agents.fakes import PROVIDERS, TOOLS, FakeKinds

GRAPHS = Path(__file__).parents[2] / "graphs"


def load(origin: Any, **options: Any) -> LoadedAgent:
    options.setdefault("kinds", FakeKinds())
    return load_agent(origin, tools=TOOLS, providers=PROVIDERS, **options)


def issues_of(origin: Any, **options: Any) -> tuple[Issue, ...]:
    with pytest.raises(DefinitionError) as refused:
        load(origin, **options)
    return refused.value.errors


def agent(**fields: Any) -> dict[str, Any]:
    return {"mode": "REACT", "react": {"systemPrompt": "Help."}, "tools": ["bash"], **fields}


def graph(**fields: Any) -> dict[str, Any]:
    return {"graphflow": "1", "start": "say", "nodes": {"say": {"use": "model", "next": "end"}}, **fields}


# --- what loads -------------------------------------------------------------------------------------------------------


def test_a_mode_file_loads_with_its_fields_and_its_compiled_graph(tmp_path):
    file = tmp_path / "helper.json"
    file.write_text(json.dumps(agent(name="Helper", icon="🤖", description="Helps.", providerKey="qwen", model="m")))
    helper = load(file)
    assert (helper.key, helper.name, helper.icon, helper.description) == ("helper", "Helper", "🤖", "Helps.")
    assert (helper.mode, helper.provider_key, helper.model, helper.tools) == ("REACT", "qwen", "m", ("bash",))
    assert list(helper.checked.document.nodes) == ["reason", "tools", "answer"]
    assert helper.instructions == "Help."


def test_an_explicit_graph_loads_and_shows_as_graph():
    loaded = load(graph(key="talker", name="Talker"))
    assert (loaded.key, loaded.name, loaded.mode, loaded.definition) == ("talker", "Talker", "GRAPH", None)


def test_path_text_bytes_and_data_give_the_same_version(tmp_path):
    file = tmp_path / "helper.json"
    data = agent()
    file.write_text(json.dumps(data), encoding="utf-8")
    versions = {load(origin).version for origin in (file, str(file), file.read_text(), file.read_bytes(), data)}
    assert len(versions) == 1


def test_an_agent_without_name_or_description_is_shown_by_its_file(tmp_path):
    file = tmp_path / "helper.json"
    file.write_text(json.dumps(agent()))
    assert load(file).name == "helper"
    assert "helper.json" in load(file).description


def test_a_three_quoted_prompt_keeps_its_lines_and_quotes():
    text = '{"mode": "PLAIN", "plain": {"systemPrompt": """\nSay "hi".\nThen \\\\ stop.\n"""}}'
    assert (load(text).instructions or "").splitlines()[0] == 'Say "hi".'


@pytest.mark.parametrize(
    "data", [agent(toolPolicy="REQUIRE"), agent(compute="HIGH", budget={"maxSteps": 2}), graph(tools=["bash"])]
)
def test_an_ejected_agent_is_the_same_agent_with_the_same_version(data, tmp_path):
    """`graph show --json` saved as a file is again a valid agent (E23)."""
    first = load(data)
    ejected = tmp_path / f"{first.key}.json"
    ejected.write_text(json.dumps(first.data), encoding="utf-8")
    again = load(ejected)
    assert again.version == first.version
    assert again.mode == "GRAPH"
    assert load(again.data).version == first.version


def test_agent_fields_are_part_of_the_version_and_the_spelling_of_the_file_is_not():
    assert load(agent(name="A")).version != load(agent(name="B")).version
    respelt = {**dict(reversed(agent().items())), "mode": "react"}
    assert load(respelt).version == load(agent()).version


def test_requiring_tools_without_any_loads_with_a_located_warning():
    text = json.dumps(agent(tools=[], toolPolicy="REQUIRE"), indent=1)
    [warning] = load(text).warnings
    assert (warning.pointer, warning.severity) == ("/toolPolicy", "warning")
    assert warning.line == 1 + text[: text.index('"toolPolicy"')].count("\n")


def test_a_block_of_another_mode_is_a_warning_so_a_person_can_switch():
    [warning] = load(agent(plain={"systemPrompt": "Help."})).warnings
    assert warning.pointer == "/plain"


@pytest.mark.parametrize(
    "name",
    ["demo_plain", "demo_thinking", "demo_plain_tooling", "demo_thinking_tooling", "demo_react", "demo_review"],
)
def test_the_demo_agents_load_without_a_warning(name):
    documents = FakeKinds(lambda key: load(GRAPHS / f"{key}.json").data)
    assert load(GRAPHS / f"{name}.json", kinds=documents).warnings == ()


# --- what is refused --------------------------------------------------------------------------------------------------

BROKEN: list[tuple[str, Any, str, str]] = [
    ("no mode and no graph", {"name": "x"}, "", "mode"),
    ("an empty file object", {}, "", "mode"),
    ("a block but no mode", {"react": {"systemPrompt": "x"}}, "", "mode"),
    ("an unknown mode", agent(mode="REACTT"), "/mode", "did you mean 'REACT'"),
    ("a mode near one of another version", agent(mode="SNGLE"), "/mode", "one of PLAIN, PLAIN_TOOLING, PLAN_EXECUTE, REACT,"),
    ("only the block of such a mode", {"single": {}}, "", "modes are PLAIN,"),
    ("a mode of another version", agent(mode="CODE"), "/mode", "CODE is not in this version; modes are PLAIN, "),
    ("such a mode in other letters", agent(mode="Competitive"), "/mode", "COMPETITIVE is not in this version"),
    ("the word GRAPH as mode", agent(mode="GRAPH"), "/mode", "nodes"),
    ("a mode that is no text", agent(mode=3), "/mode", "3"),
    ("a mode without its block", {"mode": "PLAIN"}, "/mode", "plain"),
    ("a misspelt block", {"mode": "PLAIN", "plian": {"systemPrompt": "x"}}, "/plian", "plain"),
    ("a block without a prompt", {"mode": "PLAIN", "plain": {}}, "/plain", "systemPrompt"),
    ("an empty prompt", {"mode": "PLAIN", "plain": {"systemPrompt": " \n"}}, "/plain/systemPrompt", "empty"),
    ("a prompt that is no text", {"mode": "PLAIN", "plain": {"systemPrompt": ["x"]}}, "/plain/systemPrompt", "text"),
    ("an unknown field", agent(temprature=1), "/temprature", "temprature"),
    ("an unknown field of a block", agent(react={"systemPrompt": "x", "maxStep": 1}), "/react/maxStep", "maxSteps"),
    ("an unknown option", agent(options={"temprature": 1}), "/options/temprature", "temperature"),
    ("an unknown figure of the budget", agent(budget={"maxModelCall": 1}), "/budget/maxModelCall", "maxModelCalls"),
    ("a key that is not the file's name", agent(key="other"), "/key", "other"),
    ("an unknown provider", agent(providerKey="baillian"), "/providerKey", "did you mean 'bailian'"),
    ("an unknown tool", agent(tools=["bash", "city_datetme"]), "/tools/1", "did you mean 'city_datetime'"),
    ("a tool in other letters", agent(tools=["BASH"]), "/tools/0", "did you mean 'bash'"),
    ("a tool listed twice", agent(tools=["bash", "bash"]), "/tools/1", "twice"),
    ("tools that are no list", agent(tools="bash"), "/tools", "bash"),
    ("an approval of an unknown tool", agent(approval={"bsh": "AUTO"}), "/approval/bsh", "did you mean 'bash'"),
    ("an unknown approval word", agent(approval="ASK"), "/approval", "REQUIRE_APPROVAL"),
    ("an unknown approval word of a tool", agent(approval={"bash": "ASK"}), "/approval/bash", "REQUIRE_APPROVAL"),
    ("a top-level prompt of the old format", agent(systemPrompt="x"), "/systemPrompt", "old format"),
    ("a deepThink of the old format", agent(deepThink=True), "/deepThink", "old format"),
    ("a budget of 0", agent(budget={"maxModelCalls": 0}), "/budget/maxModelCalls", "at least 1"),
    ("a negative time", agent(budget={"timeoutMs": -5}), "/budget/timeoutMs", "-5"),
    ("rounds of 0", agent(react={"systemPrompt": "x", "maxSteps": 0}), "/react/maxSteps", "at least 1"),
    ("rounds under two names", agent(budget={"maxSteps": 2, "maxRounds": 3}), "/budget/maxSteps", "alias"),
    ("rounds without an end", agent(react={"systemPrompt": "x", "maxSteps": 10**30}), "/react/maxSteps", "at most 9007"),
    ("too hot", agent(options={"temperature": 2.5}), "/options/temperature", "from 0 to 2"),
    ("a topP of 0", agent(options={"topP": 0}), "/options/topP", "above 0"),
    ("no tokens", agent(options={"maxTokens": 0}), "/options/maxTokens", "at least 1"),
    ("an unknown compute", agent(compute="MAXIMUM"), "/compute", "MEDIUM"),
    ("an unknown toolPolicy", agent(toolPolicy="FORCE"), "/toolPolicy", "REQUIRE"),
    ("a limit in money without a price", agent(budget={"maxCostUsd": 1}), "/budget/maxCostUsd", "price"),
    ("a mode and a graph", {**graph(), "mode": "PLAIN", "plain": {"systemPrompt": "x"}}, "/graphflow", "mode"),
    ("a graph with an unknown tool", graph(tools=["bsh"]), "/tools/0", "did you mean 'bash'"),
    ("a graph with a wild option", graph(options={"temperature": -1}), "/options/temperature", "from 0 to 2"),
    ("a graph with a misspelt option", graph(options={"temprature": 1}), "/options/temprature", "temperature"),
    ("a graph with an unknown provider", graph(providerKey="x"), "/providerKey", "'x'"),
    ("a graph with a wrong approval", graph(approval={"bash": "YES"}), "/approval/bash", "AUTO"),
    ("a graph with a lost route", graph(nodes={"say": {"use": "model", "next": "done"}}), "/nodes/say/next", "done"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "pointer", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_file_is_refused_with_its_place_and_what_to_do(data, pointer, words, tmp_path):
    file = tmp_path / "helper.json"
    file.write_text(json.dumps(data, indent=2), encoding="utf-8")
    found = issues_of(file)
    assert pointer in {issue.pointer for issue in found}, [issue.render() for issue in found]
    issue = next(issue for issue in found if issue.pointer == pointer)
    assert words in issue.render()
    assert issue.file == str(file)
    assert (issue.line, issue.column) != (None, None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"[1]", "object"),
        (b'{"mode": "PLAIN",', ""),
        (b'{"mode": "PLAIN" "plain": {}}', ""),
        (b'{"mode": "PLAIN", "mode": "REACT", "plain": {"systemPrompt": "x"}}', "mode"),
        (b'{"mode": "PLAIN", "plain": {"systemPrompt": """never closed}}', ""),
        (b'{"name": """three quotes in another key"""}', ""),
        (b'{"mode": "PL\xffAIN"}', "UTF-8"),
        (b'{"mode": NaN}', ""),
    ],
)
def test_a_text_that_is_no_agent_is_refused_with_its_line(content, words, tmp_path):
    file = tmp_path / "helper.json"
    file.write_bytes(content)
    found = issues_of(file)
    assert words in "\n".join(issue.render() for issue in found)
    assert all(issue.file == str(file) and issue.line == 1 for issue in found)


def test_a_missing_file_is_an_error_and_no_traceback(tmp_path):
    [issue] = issues_of(tmp_path / "none.json")
    assert "can't be read" in issue.message


@pytest.mark.parametrize("name", ["a b.json", "a@1.json", "a:b.json"])
def test_a_file_name_that_could_not_be_referred_to_is_refused(name, tmp_path):
    file = tmp_path / name
    file.write_text(json.dumps(agent()))
    assert "rename the file" in issues_of(file)[0].render()


def test_all_errors_of_a_file_come_at_once():
    data = agent(providerKey="x", tools=["y"], options={"temperature": 9}, compute="Z", react={"maxSteps": 0})
    pointers = {issue.pointer for issue in issues_of(data)}
    assert pointers >= {"/providerKey", "/tools/0", "/options/temperature", "/compute", "/react", "/react/maxSteps"}


def test_all_errors_of_an_explicit_graph_come_at_once():
    data = graph(providerKey="x", nodes={"say": {"use": "modl", "next": "nowhere"}})
    assert {issue.pointer for issue in issues_of(data)} >= {"/providerKey", "/nodes/say/use", "/nodes/say/next"}


def test_each_place_is_reported_once():
    found = issues_of(agent(tools=["nope"], compute="Z", systemPrompt="old"))
    assert len({issue.pointer for issue in found}) == len(found)


@pytest.mark.parametrize("made", [agent, graph])
@pytest.mark.parametrize(
    "options", [{"temperature": "hot"}, {"temprature": 1}, {"stop": 3}, {"temperature": True}, {"maxTokens": "9"}]
)
def test_an_option_is_reported_once_and_by_its_own_place(made, options):
    (issue,) = issues_of(made(options=options))
    (name,) = options
    assert issue.pointer == f"/options/{name}"


def test_an_error_names_line_and_column_of_its_value():
    text = json.dumps(agent(tools=["bash", "nope"]), indent=2)
    [issue] = issues_of(text)
    line = text.splitlines()[(issue.line or 0) - 1]
    assert line[(issue.column or 0) - 1 :].startswith('"nope"')


# --- anything at all --------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "key name icon description providerKey model options tools keywords approval budget context compute output "
    "toolPolicy verify plain react thinking mode graphflow start nodes state input result always systemPrompt"
).split()
words = st.sampled_from(["PLAIN", "REACT", "THINKING", "1", "say", "end", "bash", "*", "AUTO", "model"])
part = (
    json_values
    | words
    | st.dictionaries(st.sampled_from(["systemPrompt", "maxSteps", "use", "next", "bash"]), words | json_values)
)
agent_like = st.dictionaries(st.sampled_from(FIELDS), part, max_size=6)


def issues_or_none(origin: Any) -> tuple[Issue, ...] | None:
    """None of an agent that can run; why another one was refused."""
    try:
        loaded = load(origin)
    except DefinitionError as refused:
        return refused.errors
    assert loaded.checked.document.nodes and loaded.version.startswith("sha256:")
    assert all(issue.severity == "warning" for issue in loaded.warnings)
    return None


def stands_in(data: Any, pointer: str) -> bool:
    """Whether a pointer leads to a place of the data."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(data, dict) and name in data:
            data = data[name]
        elif isinstance(data, list) and name.isdecimal() and int(name) < len(data):
            data = data[int(name)]
        else:
            return False
    return True


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4) | agent_like)
def test_whatever_is_given_can_run_or_is_refused_with_errors_at_places_that_are_there(data):
    issues = issues_or_none(data)
    if issues is not None:
        assert any(issue.severity == "error" for issue in issues)
        assert all(issue.message and stands_in(data, issue.pointer) for issue in issues)


@given(agent_like)
def test_a_valid_agent_with_odd_fields_can_run_or_is_refused_for_one_of_them(fields):
    issues = issues_or_none({**agent(), **fields})
    if issues is not None:
        named = {issue.pointer.split("/")[1] for issue in issues if issue.severity == "error" and issue.pointer}
        assert named & fields.keys() or "mode" in named


@given(st.text() | st.binary())
def test_any_text_is_refused_and_it_is_said_why(text):
    issues = issues_of(text)
    assert [issue.message for issue in issues if issue.severity == "error"]


@pytest.mark.parametrize("key", ["auto", "default"])
def test_no_agent_has_a_key_that_means_any_agent_in_a_request(tmp_path: Path, key: str):
    file = tmp_path / f"{key}.json"
    file.write_text('{"mode": "PLAIN", "plain": {"systemPrompt": "x"}}', encoding="utf-8")
    assert "means the first agent by key" in issues_of(file)[0].render()
