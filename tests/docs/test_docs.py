"""The docs are true: their blocks run, their generated pages are up to date, their links lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from docs import generate
from docs.generators import errors, events, http_api, pictures
from graphflow import load_graph
from graphflow.errors import ERROR_CODES
from graphflow.events import EVENT_TYPES
from graphflow.models.scripted.model import ScriptedModel
from tests.docs.blocks import (
    ROOT,
    Block,
    assert_page_is_true,
    blocks_of,
    commands_of,
    file_of,
    is_runnable,
    matches,
    plain_arguments,
    working_copy,
)
from tests.needs import need

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "checkpoints" / "README.md"])


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_by(path: Path) -> tuple[Any, ...]:
    """What running a page does; a translation that shows the same commands and outputs need not run them again."""
    blocks = blocks_of(path)
    return (
        tuple((b.mark, b.info, b.body) for b in blocks if b.mark or file_of(b)) if any(map(is_runnable, blocks)) else ()
    )


FIRST = {ROOT / "README.md", ROOT / "docs" / "start" / "quickstart.md"}
"""What a newcomer types: each of their commands is a process of its own, as it is there."""
RUNNING = sorted(path for runs, path in {run_by(page): page for page in reversed(PAGES)}.items() if runs)


@pytest.mark.parametrize("path", RUNNING, ids=page_id)
def test_every_block_that_is_marked_to_run_does_what_the_page_says(path, tmp_path):
    if any("curl " in block.body for block in blocks_of(path) if is_runnable(block)):
        need(shutil.which("curl"), "curl")
    assert_page_is_true(path, working_copy(tmp_path), forked=path not in FIRST)


def test_both_readmes_have_the_same_example():
    first, second = (
        [re.sub(r" +#.*", "", b.body) for b in blocks_of(ROOT / name) if is_runnable(b)]
        for name in ("README.md", "README.zh.md")
    )
    assert first == second
    assert first


def test_the_picture_in_the_readme_is_of_its_agent():
    shown = next(b.body for b in blocks_of(ROOT / "README.md") if "REVIEW = " in b.body)
    assert ast.literal_eval(shown.partition("REVIEW = ")[2].partition("\napp = ")[0]) == pictures.REVIEW


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_figures_of_a_readme_are_those_of_the_performance_page(name):
    measured = (ROOT / "docs" / "internals" / "performance.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([A-K]\d) \| .* \| (.*) \| (.*) \|$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows
    for row, ours, others in rows:
        cells = [line for line in measured.splitlines() if line.startswith(f"| {row} |") and f"| {ours} |" in line]
        assert any(all(other in line for other in re.split(r", (?=[A-Za-z])", others)) for line in cells), (row, others)


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_generated_page_is_what_its_source_says(name):
    """Fix with `make docs`."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generate.PAGES[name]()


def test_every_event_has_its_meaning():
    assert set(events.MEANINGS) == set(EVENT_TYPES)


def test_every_error_code_has_its_cause_and_remedy():
    assert set(errors.REMEDIES) == set(ERROR_CODES)


def test_every_route_has_its_curl_command():
    found = {f"{method} {path}" for method, path, _ in http_api.routes(http_api.openapi())}
    assert set(http_api.EXAMPLES) == found
    assert all(path.startswith(sum(http_api.GROUPS.values(), ())) for _, path in (name.split() for name in found))


def anchors_of(path: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_between_pages_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
        page = path.parent / target if target else path
        assert page.exists(), f"{page_id(path)} links to {target}"
        assert not anchor or anchor in anchors_of(page), f"{page_id(path)} links to {target}#{anchor}"


def test_the_site_has_every_page_in_its_navigation():
    listed = set(
        re.findall(
            r"^ +- (?:[\w ]+: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert listed == {page for page in pages if not re.search(r"decisions/(\d|template)", page)}


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_files_that_a_page_names_exist(path):
    text = path.read_text(encoding="utf-8")
    written = {file_of(block) for block in blocks_of(path)}
    for name in re.findall(r"\b((?:graphflow|tests|examples|benchmarks|docs)/[\w/]+\.py)\b", text):
        assert (ROOT / name).exists() or name in written, f"{page_id(path)} names {name}"


def test_both_tutorials_have_the_same_steps():
    first, second = (
        [(b.info, b.body) for b in blocks_of(ROOT / "docs" / name)] for name in ("tutorial.md", "tutorial.zh.md")
    )
    assert first == second
    assert first


@pytest.mark.parametrize(
    "block", [b for p in PAGES for b in blocks_of(p) if b.info == "json" and '"mode"' in b.body], ids=lambda b: b.place
)
def test_an_agent_file_that_a_page_shows_can_be_loaded(block):
    assert load_graph(json.loads(block.body), model=ScriptedModel()).version


def test_the_example_of_branches_can_be_loaded(tmp_path):
    shown = next(b.body for b in blocks_of(ROOT / "docs" / "how-to" / "branches.md") if b.info == "json")
    state = {"parts": "array", "results": "array", "failed": "integer", "verdict": ["string", "null"]}
    properties: dict[str, dict[str, Any]] = {key: {"type": kind} for key, kind in state.items()}
    properties["results"]["x-reducer"] = "append"
    wait = {"use": "wait", "with": {"for": "PT1S"}, "next": "end"}
    document = {
        "graphflow": "1",
        "start": "fan",
        "state": {"type": "object", "properties": properties},
        "nodes": json.loads(f"{{{shown}}}") | dict.fromkeys(("read_style", "check_facts", "sum_up"), wait),
    }
    (tmp_path / "fans.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "researcher.json").write_text('{"mode": "PLAIN", "plain": {"systemPrompt": "x"}}', encoding="utf-8")
    assert load_graph(tmp_path / "fans.json").version


def test_every_decision_is_listed_and_has_the_parts_of_the_template():
    folder = ROOT / "docs" / "internals" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    parts = re.findall(r"^## .*$", (folder / "template.md").read_text(encoding="utf-8"), re.MULTILINE)
    decisions = list(folder.glob("[0-9]*.md"))
    assert parts and decisions
    for path in decisions:
        assert path.name in listed
        assert re.findall(r"^## .*$", path.read_text(encoding="utf-8"), re.MULTILINE) == parts


def test_a_console_block_is_commands_and_what_they_print():
    found = commands_of(Block(info="console", mark="run", body="$ echo a \\\n> b\na b\n$ true\n", place="x:1"))
    assert [(c.text, c.expected) for c in found] == [("echo a \\\nb", "a b"), ("true", "")]


def test_dots_stand_for_anything_and_nothing_else_does():
    assert matches("a\n...\nz", "a\nb\nc\nz")
    assert matches("took ... ms", "took 12 ms\n")
    assert not matches("took 1. ms", "took 12 ms")


@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "<!-- run -->\n```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```\n",
        "<!-- run -->\n```python\nraise SystemExit(1)\n```\n",
        "<!-- run -->\n```console\n$ false\n```\n",
        "<!-- run -->\n```console\n$ graphflow nope\n```\n",
        "<!-- run -->\n```console\n$ graphflow --version\ngraphflow 0.0\n```\n",
    ],
)
def test_a_page_that_lies_is_found_out(tmp_path, body, forked):
    page = tmp_path / "page.md"
    page.write_text(body, encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        assert_page_is_true(page, tmp_path, forked=forked)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("graphflow run demo 'a | b' --budget maxSteps=3", ["run", "demo", "a | b", "--budget", "maxSteps=3"]),
        ('graphflow run demo \\\n  "two words"', ["run", "demo", "two words"]),
        ("graphflow threads | head -1", None),
        ("graphflow threads > list", None),
        ("LLM_PROVIDER=scripted graphflow run demo x", None),
        ("graphflow run demo $HOME", None),
        ("graphflow validate graphs/*.json", None),
        ("graphflow threads; false", None),
        ("graphflow run demo x &", None),
        ("python x.py", None),
    ],
)
def test_a_command_that_needs_no_shell_is_known(text, arguments):
    assert plain_arguments(text) == arguments
