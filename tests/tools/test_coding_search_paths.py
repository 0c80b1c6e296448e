"""Paths given to LS, Glob and Grep: literal, inside the workspace, and refused in the same words whatever is outside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow.testing.tool_envelope_conformance import assert_envelope
from graphflow.tools.envelope import to_envelope
from graphflow.tools.port import Tool
from graphflow.tools.workspace.homes import Workspaces
from tests.campaign import size
from tests.tools.coding_folder import CodingFolder, code_of
from tests.tools.fakes import tool_context

TOOLS: dict[str, dict[str, Any]] = {"LS": {}, "Glob": {"pattern": "**"}, "Grep": {"pattern": "nobody"}}
every_tool = pytest.mark.parametrize("tool", TOOLS)


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    folder = CodingFolder(tmp_path)
    folder.put("a/b/file", "text\n")
    folder.put("ok.txt", "text\n")
    (tmp_path / "root-sibling").mkdir()
    for name, target in {
        "out": "../out", "out-file": "../out/secret", "out-absolute": str(folder.out), "chain": "out", "loop": "loop",
        "broken": "nothing", "in": "a/b", "in-file": "a/b/file",
    }.items():  # fmt: skip
        (folder.root / name).symlink_to(target)
    os.mkfifo(folder.root / "pipe")
    return folder


CASES = [
    ("../out", "ACCESS_DENIED"), ("a/../../out", "ACCESS_DENIED"), ("a/b/../../../x", "ACCESS_DENIED"), ("/etc", "ACCESS_DENIED"),
    ("..", "ACCESS_DENIED"), ("/", "ACCESS_DENIED"), ("out", "ACCESS_DENIED"), ("out-absolute", "ACCESS_DENIED"),
    ("out/missing", "ACCESS_DENIED"), ("chain", "ACCESS_DENIED"), ("out-file", "ACCESS_DENIED"), ("loop", "INVALID_PARAM"),
    ("../root-sibling", "ACCESS_DENIED"), ("broken", "NOT_FOUND"), ("a\0b", "INVALID_PARAM"), ("ok.txt\0.png", "INVALID_PARAM"),
    ("", "INVALID_PARAM"), ("   ", "INVALID_PARAM"), ("%2e%2e/x", "NOT_FOUND"), ("..%2fout", "NOT_FOUND"), ("．．/x", "NOT_FOUND"),
    ("‥/x", "NOT_FOUND"), ("..\\out", "NOT_FOUND"), ("C:\\x", "NOT_FOUND"), ("\\\\host\\share", "NOT_FOUND"),
    ("file:///etc/passwd", "NOT_FOUND"), ("~", "NOT_FOUND"), ("$HOME", "NOT_FOUND"), ("pipe", "INVALID_PARAM"),
    ("a\nb", "INVALID_PARAM"), ("x" * 300, "INVALID_PARAM"), ("x/" * 3_000, "INVALID_PARAM"), ("ok.txt/x", "INVALID_PARAM"),
    ([], "INVALID_PARAM"), (5, "INVALID_PARAM"), (None, "INVALID_PARAM"), (True, "INVALID_PARAM"), ("missing", "NOT_FOUND"),
]  # fmt: skip


@every_tool
@pytest.mark.parametrize(("path", "code"), CASES, ids=[ascii(path)[:30] for path, _ in CASES])
async def test_a_path_is_taken_literally_and_stays_inside(folder: CodingFolder, tool: str, path: object, code: str):
    refused = await folder.call(tool, TOOLS[tool] | {"path": path})
    assert code_of(refused) == code
    assert str(folder.out) not in refused["text"].replace(str(path), "")


@every_tool
@pytest.mark.parametrize("path", [".", "./", "a", "a/b/", "in", "in/..", "a/./b", "{root}", "{root}/a"])
async def test_a_folder_of_the_workspace_is_found_under_each_of_its_names(folder: CodingFolder, tool: str, path: str):
    answer = await folder.call(tool, TOOLS[tool] | {"path": path.format(root=folder.root)})
    assert code_of(answer) == "success"
    assert not answer["context"]["path_resolved"].startswith(("/", ".."))


@every_tool
async def test_an_existing_and_a_missing_path_outside_get_the_same_answer(folder: CodingFolder, tool: str):
    there, gone = [await folder.call(tool, TOOLS[tool] | {"path": path}) for path in ("../out", "../oux")]
    assert json.dumps(there["error"]).replace("../out", "P") == json.dumps(gone["error"]).replace("../oux", "P")


@every_tool
async def test_a_workspace_given_through_a_link_has_relative_paths(tmp_path: Path, tool: str):
    folder = CodingFolder(tmp_path)
    folder.put("sub/file", "nobody\n")
    (tmp_path / "link").symlink_to("root")
    folder.root = tmp_path / "link"
    from graphflow.tools.coding import coding_tools

    folder.tools = coding_tools(Workspaces(folder.root))
    answer = await folder.call(tool, TOOLS[tool] | {"path": "sub"})
    assert (answer["status"], answer["context"]["path_resolved"]) == ("success", "sub")
    assert "sub/file" in json.dumps(answer["data"])


@every_tool
@pytest.mark.campaign
@settings(max_examples=size(60, long=10_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.dictionaries(
    st.sampled_from(["path", "pattern", "limit", "offset", "ignore", "include", "context_lines", "output_mode", "literal", "x"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
                 | st.sampled_from([".", "a", "**", "../x", "(", "[", "{a,b}", "count", "x" * 100_000]),
                 lambda inner: st.lists(inner, max_size=3), max_leaves=3),
))  # fmt: skip
async def test_whatever_the_arguments_are_the_answer_is_an_envelope(
    folder: CodingFolder, tool: str, arguments: dict[str, Any]
):
    made: Tool = next(each for each in folder.tools if each.name == tool)
    envelope = to_envelope(await made.call(arguments, tool_context()))
    assert_envelope(envelope, tool=tool)
    assert "what nobody may see" not in json.dumps(envelope, allow_nan=False)
