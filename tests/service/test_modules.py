"""Modules that the settings name: their tools, and their functions for documents (spec 10, settings; 2.1, rule 9)."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from graphflow import Context, DefinitionError, MemoryCheckpointer, function, node
from graphflow.service.application import Application
from graphflow.service.catalog.modules import import_modules
from graphflow.settings import load_settings

_numbers = itertools.count()
OFFERS = """
from graphflow import Context, function, node, tool
import {helper}

@tool
def first(x: int) -> int:
    return x

@tool
def second() -> str:
    return {helper}.WORD

alias = first

@function
def twice(n: int) -> int:
    return 2 * n

@function(name="longest")
def pick(old: str, new: str) -> str:
    return max(old, new, key=len)

@node
async def greet(state, ctx: Context):
    return {{"said": f"{helper} greets {{state.n}}"}}
"""


def module(folder: Path, text: str) -> str:
    """Writes a module of a name that no other test has imported."""
    name = f"offers_{next(_numbers)}"
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return name


def offering(folder: Path) -> str:
    return module(folder, OFFERS.format(helper=module(folder, "WORD = 'hi'\n")))


def test_what_a_module_offers_is_found_once_and_its_folder_is_on_the_path_only_meanwhile(tmp_path: Path) -> None:
    offered = import_modules([offering(tmp_path)], tmp_path)
    assert [each.name for each in offered.tools] == ["first", "second"]
    assert list(offered.functions) == ["twice", "longest"]
    assert list(offered.nodes) == ["greet"]
    assert offered.functions["twice"](4) == 8  # it stays what it was
    assert str(tmp_path.resolve()) not in sys.path


def test_every_module_that_can_not_be_imported_is_told_at_once(tmp_path: Path) -> None:
    good, bad = offering(tmp_path), module(tmp_path, "1 / 0\n")
    with pytest.raises(DefinitionError) as caught:
        import_modules([bad, good, "my_missing"], tmp_path)
    issues = caught.value.errors
    assert [issue.pointer for issue in issues] == ["/tools/modules/0", "/tools/modules/2"]
    assert "ZeroDivisionError" in issues[0].message
    assert "put my_missing.py into" in (issues[1].hint or "")


def test_two_functions_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    one, other = (module(tmp_path, f"from graphflow import function\n@function\ndef f(): return {n}\n") for n in (1, 2))
    with pytest.raises(DefinitionError) as caught:
        import_modules([one, other], tmp_path)
    assert [(f.pointer, f.message) for f in caught.value.errors] == [
        ("/tools/modules/1", f"fn:f is offered twice: by {one}.f and {other}.f")
    ]


def test_one_function_that_two_modules_have_is_one(tmp_path: Path) -> None:
    name = offering(tmp_path)
    again = module(tmp_path, f"from {name} import twice, greet, first\n")
    offered = import_modules([name, again], tmp_path)
    assert (len(offered.tools), len(offered.functions), len(offered.nodes)) == (2, 2, 1)


@pytest.mark.parametrize("name", ["", "a b", "1st", "fn:x", "ü"])
def test_a_name_that_no_document_could_write_is_refused_where_it_is_given(name: str) -> None:
    with pytest.raises(ValueError, match="can't be named as"):
        function(name=name)(lambda: None)
    with pytest.raises(ValueError, match="give name="):
        node(lambda state: None)


async def test_agents_of_a_folder_run_the_functions_that_the_settings_modules_offer(tmp_path: Path) -> None:
    name = offering(tmp_path)
    (tmp_path / "graphflow.toml").write_text(f'[tools]\nmodules = ["{name}"]\n', encoding="utf-8")
    agent: dict[str, Any] = {
        "graphflow": "1",
        "state": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "default": 21},
                "said": {"type": "string", "x-reducer": "fn:longest", "default": ""},
            },
        },
        "start": "double",
        "nodes": {
            "double": {"use": "fn:twice", "with": {"n": "${state.n}"}, "set": {"n": "out"}, "next": "greet"},
            "greet": {"use": "node:greet", "next": "short"},
            "short": {"use": "fn:twice", "with": {"n": 0}, "set": {"said": "'hi'"}, "next": "end"},
        },
        "result": "state.said",
    }
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "mine.json").write_text(json.dumps(agent), encoding="utf-8")
    settings = load_settings(tmp_path, environ={})
    async with Application(settings, checkpointer=MemoryCheckpointer()) as app:
        done = await app.graph("mine").run({"query": "x"}, "t")
    assert (done.status, done.state["n"]) == ("completed", 42)
    assert str(done.output).endswith("greets 42")


def test_a_marked_function_is_called_as_before() -> None:
    @node
    async def work(state: Any, ctx: Context) -> dict[str, int]:
        return {"n": 1}

    assert work.__name__ == "work"
