"""The registry, and tool files (spec 8.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import DefinitionError, Issue
from graphflow.messages import ToolCall
from graphflow.models.options import ToolSpec
from graphflow.tools.files.tool_files import load_tool_files
from graphflow.tools.port import Tool, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.tools.fakes import FakeContext, call


@tool(effects="read")
async def lookup(word: str) -> str:
    """Looks a word up."""
    return word


def test_the_built_in_tools_are_there_by_default():
    registry = ToolRegistry()
    assert {"bash", "city_datetime", "mock_city_weather", "task_done", "time_now", "math_eval"} <= set(registry.names())
    assert ToolRegistry(builtins=()).names() == []


def test_effects_of_the_built_in_tools_are_those_of_rule_e6():
    effects = {each.name: each.effects for each in ToolRegistry()}
    for name in ("city_datetime", "mock_city_weather", "time_now", "math_eval"):
        assert effects[name] == "read"
    assert effects["bash"] == "write"


def test_names_match_exactly_so_two_may_differ_by_case():
    registry = ToolRegistry([lookup, lookup.changed(name="Lookup")], builtins=())
    assert registry.get("LOOKUP") is None
    assert registry.names() == ["lookup", "Lookup"]


def test_an_unknown_name_is_refused_with_a_hint():
    with pytest.raises(
        DefinitionError, match=r"there is no tool 'lookupp' \(tools are lookup. Did you mean 'lookup'\?\)"
    ):
        ToolRegistry([lookup], builtins=()).require("lookupp")


def test_a_second_tool_of_a_name_is_refused():
    with pytest.raises(DefinitionError, match="there is a tool 'bash' already"):
        ToolRegistry([lookup.changed(name="bash")])


def test_a_plain_typed_function_can_be_registered():
    def shout(text: str) -> str:
        """Says it louder."""
        return text.upper()

    made = ToolRegistry(builtins=()).register(shout)
    assert (made.name, made.description) == ("shout", "Says it louder.")


def test_tools_are_found_by_any_of_their_keywords_whatever_the_case():
    registry = ToolRegistry(builtins=())
    registry.register(lookup, keywords={"Words", "search"})
    registry.register(lookup.changed(name="plain"))
    assert registry.for_keywords(["WORDS", "x"]) == [lookup]
    assert registry.for_keywords([]) == []


def test_specs_are_what_a_model_is_told_in_the_order_asked_for():
    registry = ToolRegistry([lookup])
    first, second = registry.specs(["lookup", "task_done"])
    assert first == ToolSpec(name="lookup", description="Looks a word up.", parameters=lookup.parameters)
    assert second.name == "task_done"
    with pytest.raises(DefinitionError):
        registry.specs(["nothing"])


# tool files


def write(folder: Path, name: str, *tools: Any) -> None:
    (folder / name).write_text(json.dumps({"tools": tools}), encoding="utf-8")


def load(folder: Path) -> tuple[dict[str, Tool], list[Issue]]:
    found = load_tool_files(folder, ToolRegistry([lookup]))
    return {each.name: each for each in found.tools}, list(found.errors)


def test_a_folder_that_does_not_exist_has_no_tools(tmp_path: Path):
    assert load(tmp_path / "none") == ({}, [])


def test_a_backend_file_overrides_what_the_model_is_told(tmp_path: Path):
    schema = {"type": "object", "properties": {"word": {"type": "string", "enum": ["a"]}}, "required": ["word"]}
    write(
        tmp_path,
        "x.backend",
        {"name": "lookup", "description": "New.", "prompt": "Use it.", "parameters": schema, "afterCallHint": "h"},
    )
    tools, issues = load(tmp_path)
    assert issues == []
    changed = tools["lookup"]
    assert changed.spec == ToolSpec(name="lookup", description="New.", parameters=schema)
    assert (changed.prompt, changed.after_call_hint, changed.effects) == ("Use it.", "h", "read")


async def test_an_overridden_tool_runs_and_its_arguments_must_fit_the_new_schema_too(tmp_path: Path):
    schema = {"type": "object", "properties": {"word": {"type": "string", "pattern": "^a"}}}
    write(tmp_path, "x.backend", {"name": "lookup", "parameters": schema})
    registry = ToolRegistry([lookup])
    over = registry.overlaid(load_tool_files(tmp_path, registry).tools)
    runner = ToolRunner(over)
    assert (await runner.run(call("lookup", {"word": "abc"}), FakeContext())).text == "abc"
    refused = await runner.run(call("lookup", {"word": "xyz"}), FakeContext())
    assert "word: " in refused.text
    assert "xyz" in refused.text
    assert registry.require("lookup") is lookup


async def test_an_action_file_makes_a_tool_that_is_ok_at_once(tmp_path: Path):
    schema = {"type": "object", "properties": {"theme": {"enum": ["light", "dark"]}}, "required": ["theme"]}
    write(
        tmp_path,
        "theme.action",
        {"name": "switch_theme", "description": "Switches.", "parameters": schema},
        {"name": "bang"},
    )
    tools, issues = load(tmp_path)
    assert issues == []
    assert (tools["switch_theme"].kind, tools["switch_theme"].effects) == ("action", "none")
    assert tools["bang"].parameters["additionalProperties"] is True
    runner = ToolRunner(ToolRegistry(tools.values(), builtins=()))
    ctx = FakeContext()
    await runner.run(ToolCall(id="1", name="switch_theme", arguments='{"theme": "dark"}'), ctx)
    await runner.run(ToolCall(id="2", name="switch_theme", arguments='{"theme": "blue"}'), ctx)
    assert ctx.events[0] == ("action", "1", {"theme": "dark"}, "OK")
    assert ctx.events[1][3].startswith("Error INVALID_PARAM")


def test_other_files_are_passed_over(tmp_path: Path):
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    (tmp_path / ".hidden.action").write_text("{", encoding="utf-8")
    assert load(tmp_path) == ({}, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"tools": [', "not valid JSON"),
        ("[]", "no list `tools`"),
        ('{"tools": {}}', "no list `tools`"),
        ('{"tools": [5]}', "a tool is 5"),
        ('{"tools": [{"name": "lookup", "name": "x"}]}', "'name' stands twice"),
        ('{"tool": []}', "no list `tools`"),
        ('{"tools": [], "more": 1}', "unknown key 'more'"),
    ],
)
def test_a_broken_file_is_an_error_and_the_others_stay(tmp_path: Path, text: str, words: str):
    (tmp_path / "broken.action").write_text(text, encoding="utf-8")
    write(tmp_path, "good.backend", {"name": "lookup", "description": "New."})
    tools, issues = load(tmp_path)
    assert list(tools) == ["lookup"]
    assert words in issues[0].render()
    assert (issues[0].file or "").endswith("broken.action")


def test_a_syntax_error_names_line_and_column(tmp_path: Path):
    (tmp_path / "broken.action").write_text('{"tools": [\n  oops]}', encoding="utf-8")
    _, issues = load(tmp_path)
    assert (issues[0].line, issues[0].column) == (2, 3)


@pytest.mark.parametrize(
    ("entry", "pointer", "words"),
    [
        ({"description": "x"}, "/tools/0/name", "name is null"),
        ({"name": "lokup"}, "/tools/0/name", "Did you mean 'lookup'"),
        ({"name": "lookup", "descriptions": "x"}, "/tools/0/descriptions", "Did you mean 'description'"),
        ({"name": "lookup", "description": 5}, "/tools/0/description", "description is 5"),
        ({"name": "lookup", "holdMs": True}, "/tools/0/holdMs", "holdMs is true"),
        ({"name": "lookup", "type": "html"}, "/tools/0/type", "expected 'function'"),
        ({"name": "lookup", "effects": "some"}, "/tools/0/effects", "none, read, write"),
        ({"name": "lookup", "parameters": {"type": "array"}}, "/tools/0/parameters", "a tool takes an object"),
        ({"name": "lookup", "parameters": []}, "/tools/0/parameters", "a tool takes an object"),
        (
            {"name": "lookup", "parameters": {"properties": {"a": {"type": "strnig"}}}},
            "/tools/0/parameters/properties/a/type",
            "did you mean 'string'?",
        ),
    ],
)
def test_a_faulty_entry_names_its_place_value_and_rule_and_the_others_stay(
    tmp_path: Path, entry: dict[str, Any], pointer: str, words: str
):
    write(tmp_path, "x.backend", entry, {"name": "task_done", "description": "New."})
    tools, issues = load(tmp_path)
    assert list(tools) == ["task_done"]
    assert [issue.pointer for issue in issues] == [pointer]
    assert words in issues[0].render()


@pytest.mark.parametrize(
    ("suffix", "payload", "words"),
    [
        ("action", {"type": "object"}, "only a frontend tool"),
        ("backend", {}, "only a frontend tool"),
        ("html", {"type": "strnig"}, "did you mean 'string'?"),
        ("qlc", "object", "payload is 'object'"),
    ],
)
def test_only_a_form_has_a_payload_and_it_is_a_schema(tmp_path: Path, suffix: str, payload: Any, words: str):
    place = "/tools/0/payload" + ("/type" if suffix == "html" else "")
    write(tmp_path, f"x.{suffix}", {"name": "other" if suffix != "backend" else "lookup", "payload": payload})
    tools, issues = load(tmp_path)
    assert tools == {}
    assert [issue.pointer for issue in issues] == [place]
    assert words in issues[0].render()


def test_a_name_that_stands_twice_anywhere_counts_nowhere(tmp_path: Path):
    write(tmp_path, "a.backend", {"name": "lookup", "description": "A."})
    write(tmp_path, "b.backend", {"name": "lookup", "description": "B."})
    tools, issues = load(tmp_path)
    assert tools == {}
    assert len(issues) == 2
    assert "a.backend/tools/0 and b.backend/tools/0" in issues[0].message


def test_an_action_may_not_take_the_name_of_a_python_tool_or_one_that_providers_refuse(tmp_path: Path):
    write(tmp_path, "a.action", {"name": "lookup"}, {"name": "no spaces"})
    tools, issues = load(tmp_path)
    assert tools == {}
    assert "name of a Python tool" in issues[0].message
    assert "letters, digits" in issues[1].message
