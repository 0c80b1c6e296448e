"""A wrong expression is refused, or fails its run, with the same words in Python, at the command line and over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import graphflow
from graphflow.errors import DefinitionError
from tests.cli.processes import Command
from tests.server.conftest import serving
from tests.service.conftest import make_application

NUMBER, WHOLE = {"type": "number"}, {"type": "integer"}
STATE = {
    "a": {"type": "number", "default": 1.0},
    "b": {"type": "number", "default": 0.0},
    "big": {"type": "number", "default": 1e300},
    "n": {"type": "integer", "default": 3},
    "key": {"type": ["number", "null"], "default": 1.0},
    "list": {"type": "array", "default": [1, 2]},
    "rows": {"type": "array", "items": {"type": "object", "properties": {"price": NUMBER, "n": WHOLE}}, "default": []},
    "many": {"type": "array", "default": list(range(10_001))},
}


def document(source: str) -> dict[str, Any]:
    """A graph whose only node has the expression in its prompt; without it, it is one that loads and runs."""
    return {
        "graphflow": "1",
        "state": {"properties": STATE},
        "start": "say",
        "nodes": {"say": {"use": "model", "with": {"prompt": f"${{{source}}} {' '.join(f'${{size([state.{key}])}}' for key in STATE)}"}}},
        "model": "scripted",
    }  # fmt: skip


REFUSED = {
    "state.a * state.n": "write double(state.n)",
    "state.key * state.n": "write double(state.n)",
    "state.rows.map(row, row.price * row.n)": "write double(row.n)",
    "size(state.rows) * 0.5": "write double(size(state.rows))",
    "state.n * 2u": "write 2 instead of 2u",
    "state.list[state.a]": "write int(state.a)",
    "state.rows.all(row, [1])": "does not take",
}
FAILING = {
    "state.a / state.b": ("expression", "its value is infinite"),
    "state.b / state.b": ("expression", "its value is not a number (NaN)"),
    "state.list[state.key]": ("expression", "write int(…) around the index"),
    "state.many.map(x, x)": ("limit_exceeded", "map() has 10,001"),
}


@pytest.fixture
def write(project: Path) -> Any:
    def write(sources: Any) -> dict[str, str]:
        keys = {f"e{place}": source for place, source in enumerate(sources)}
        for key, source in keys.items():
            (project / "graphs" / f"{key}.json").write_text(json.dumps(document(source)), encoding="utf-8")
        return keys

    return write


def flat(text: str) -> str:
    """The words, however the lines are broken."""
    return " ".join(text.split())


def over_http(project: Path, keys: Any) -> dict[str, str]:
    """What the server answers to a message for each agent."""

    async def ask() -> dict[str, str]:
        async with serving(make_application(project)) as (client, _):
            return {
                key: (
                    await client.post("/api/query", json={"message": "hi", "agentKey": key, "stream": False})
                ).text.replace('\\"', '"')
                for key in keys
            }

    return asyncio.run(ask())


def test_what_can_never_work_is_refused_with_the_same_words_at_every_door(
    cli: Command, project: Path, write: Any
) -> None:
    keys = write(REFUSED)
    checked, answers = cli("validate"), over_http(project, keys)
    assert checked.code != 0
    for key, source in keys.items():
        with pytest.raises(DefinitionError) as caught:
            graphflow.load_graph(document(source))
        (issue,) = caught.value.errors
        assert REFUSED[source] in f"{issue.message} {issue.hint}"
        assert flat(issue.message) in flat(checked.out + checked.err)
        assert flat(str(issue.hint)) in flat(checked.out + checked.err)
        assert issue.message in answers[key]


def test_what_fails_in_a_run_fails_with_the_same_words_at_every_door(cli: Command, project: Path, write: Any) -> None:
    keys = write(FAILING)
    folder = project / "graphs" / "tests"
    folder.mkdir()
    for key, source in keys.items():
        case = {"name": key, "input": "hi", "model": [{"text": "no"}], "expect": {"error": FAILING[source][0]}}
        (folder / f"{key}.json").write_text(json.dumps({"agent": key, "cases": [case]}), encoding="utf-8")
    tested = cli("test", "--json")
    assert {case["case"]: case["differs"] for case in tested.json} == {key: [] for key in keys}
    ran = {key: cli("run", key, "hi") for key in ("e0", "e3")}
    answers = over_http(project, keys)
    for key, source in keys.items():
        code, words = FAILING[source]
        error = graphflow.load_graph(document(source)).run_sync({"query": "hi"}).error
        assert error is not None
        assert error["code"] == code
        assert words in error["message"]
        assert key not in ran or flat(words) in flat(ran[key].out + ran[key].err)
        assert words in answers[key]
