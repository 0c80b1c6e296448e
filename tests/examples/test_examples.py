"""Every example runs, and shows what it says that it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def _run(name: str, *arguments: str, folder: Path = ROOT, logs: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py"), *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LLM_PROVIDER": "scripted",
            "AGENT_LLM_INTERACTION_LOG_ENABLED": "false",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(logs) and bool(done.stderr) is bool(logs), done.stderr
    return done.stdout


def test_each_example_has_a_test():
    assert EXAMPLES == [
        "coding_tools", "first_run", "http_client", "human_approval", "map_fan_out", "mcp_tools", "parallel_reviews", "plain_python_graph", "time_travel",
    ]  # fmt: skip


def test_the_first_run_shows_graph_tokens_tools_approval_and_checkpoints():
    """What `make run` promises, in order."""
    shown = _run("first_run")
    places = [
        "reason  model",  # the graph
        "every token comes over HTTP from http://127.0.0.1:",
        "● reason",
        "⚙ city_datetime",
        "✓ tools",
        '⚙ bash {"command":"ls"}',
        "waits for a person",
        "approves by itself",
        "▶ approve",
        "This is what `ls` gave:",
        "README.md",
        "is a checkpoint of the thread",
        "input",
        "ask",
        "answer",
        "graphflow threads show",
    ]
    at = 0
    for place in places:
        at = shown.find(place, at)
        assert at >= 0, f"{place!r} is missing, or comes too early:\n{shown}"


def test_a_graph_of_plain_functions(snapshot):
    assert _run("plain_python_graph") == snapshot


def test_a_map_opens_a_branch_for_each_item_and_keeps_their_order():
    assert _run("map_fan_out", logs="node 'count' of thread").splitlines() == [
        "6 nodes: 4 branches, opened by 'fan'",
        "page 1: 5 words",
        "page 3: 6 words",
        "page 4: 2 words",
        "failed: page 2",
    ]


def test_a_branch_waits_for_others_and_for_a_person():
    assert _run("parallel_reviews").splitlines() == [
        "waiting: Print it?",
        "style: 16 letters, none wasted",
        "facts: true",
        "editor: 2 notes read",
        "Graphs remember. (yes, print it)",
    ]


def test_an_approval_that_another_process_answers():
    shown = _run("human_approval")
    assert "waiting approval send_letter" in shown
    assert "(a letter goes to Ada Lovelace)" in shown and "completed" in shown


def test_coding_tools_edit_what_was_read_and_take_it_back():
    refused, read, edited, after, restored = _run("coding_tools").splitlines()
    assert refused.startswith("Edit error 'greeting.txt' exists and this thread has not read it")
    assert read == "Read success Lines 1 to 2 of 2."
    assert edited.startswith("Edit success Updated 'greeting.txt'")
    assert (after, restored) == ("['hello', 'reader']", "['hello', 'world']")


def test_time_travel(snapshot):
    assert _run("time_travel") == snapshot


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_say_what_they_are(name: str):
    assert (ROOT / "examples" / f"{name}.py").read_text().startswith('"""')


def test_an_agent_uses_the_tool_of_an_mcp_server():
    shown = _run("mcp_tools").splitlines()
    assert shown[:2] == ["the server offers time.get_current_time, time.convert_time", "calls time.get_current_time"]
    assert "Asia/Tokyo" in shown[2]
    assert shown[-1] == "This is what I found:"
