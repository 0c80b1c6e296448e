"""`compile` checks a graph at once (E20): no error of a graph comes from a run, and a known document is not checked again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from graphflow import DefinitionError, Graph, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer, knows_document
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.encryption.cipher import new_key
from graphflow.graph.definition.versions import unchecked
from graphflow.graph.validation.validate import check_document
from tests.campaign import size
from tests.graph.random_documents import RandomDocument, random_documents
from tests.patience import PATIENCE_S


@dataclass
class Counter:
    n: int = 0


def right(**fields: Any) -> Graph[Counter]:
    graph = Graph(Counter, result="state.n", **fields)

    @graph.node(next="end")
    async def one(state: Counter) -> dict[str, Any]:
        return {"n": state.n + 1}

    return graph


def wrong() -> Graph[Counter]:
    return right().add("lost", use="node:one", next="nowhere")


# --- when a graph is checked


async def test_an_error_comes_from_compile_inside_a_loop_with_every_store(store: Checkpointer) -> None:
    with pytest.raises(DefinitionError) as refused:
        wrong().compile(checkpointer=store)
    assert {issue.pointer for issue in refused.value.errors} == {"/nodes/lost", "/nodes/lost/next"}


@pytest.mark.parametrize("stored", [False, True])
def test_an_error_comes_from_compile_outside_a_loop(tmp_path: Path, stored: bool) -> None:
    with pytest.raises(DefinitionError):
        wrong().compile(checkpointer=SqliteCheckpointer(tmp_path / "t.db") if stored else None)
    assert list(tmp_path.iterdir()) == []  # asking makes no store


async def test_without_validation_an_error_comes_from_the_first_use() -> None:
    app = wrong().compile(validate=False)
    assert "errors in its document" in repr(app)
    for use in (lambda: app.version, lambda: app.plan):
        with pytest.raises(DefinitionError):
            use()
    with pytest.raises(DefinitionError):
        await app.run({})


async def test_a_right_graph_runs_with_and_without_validation(store: Checkpointer) -> None:
    for validate in (True, False):
        app = right().compile(checkpointer=store, validate=validate)
        assert (await app.run({})).output == 1


# --- what a store knows


async def test_a_document_is_known_to_a_sqlite_store_once_it_has_run(tmp_path: Path) -> None:
    for store in (
        SqliteCheckpointer(tmp_path / "plain.db"),
        EncryptedCheckpointer(SqliteCheckpointer(tmp_path / "hidden.db"), [f"k1:{new_key()}"]),
    ):
        app = right().compile(checkpointer=store)
        assert not knows_document(store, app.version)
        await app.run({})
        assert knows_document(store, app.version)
        await store.close()
        assert knows_document(store, app.version)  # also while it is closed


def test_other_stores_are_not_asked(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database", encoding="utf-8")
    for store in (None, SqliteCheckpointer(tmp_path / "text.db"), SqliteCheckpointer(tmp_path / "none" / "t.db")):
        assert not knows_document(store, "sha256:0")


COLD = """
import asyncio, sys
sys.path.insert(0, {root!r})
from graphflow import SqliteCheckpointer
from tests.runtime.test_compile_checks import right
loaded = set(sys.modules)
for name in [name for name in loaded if name.startswith(("graphflow.graph.validation", "networkx"))]:
    del sys.modules[name]
store = SqliteCheckpointer({file!r})
{body}
checks = [name for name in sys.modules if name.startswith(("graphflow.graph.validation.validate", "networkx"))]
assert checks == [], checks
"""


@pytest.mark.parametrize(
    "body",
    [
        "app = right().compile(checkpointer=store); print(app.run_sync({}).output)",
        "async def main():\n    print((await right().compile(checkpointer=store).run({})).output)\nasyncio.run(main())",
    ],
    ids=["outside a loop", "inside a loop"],
)
async def test_a_known_document_loads_no_check_in_a_new_process(tmp_path: Path, body: str) -> None:
    file = tmp_path / "t.db"
    store = SqliteCheckpointer(file)
    await right().compile(checkpointer=store).run({})
    await store.close()
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", COLD.format(root=root, file=str(file), body=body)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


# --- what the version does not cover is checked each time


def document_with(functions: dict[str, Callable[..., Any]]) -> Graph[Any]:
    return Graph.from_json(
        {
            "graphflow": "1",
            "start": "a",
            "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0, "x-reducer": "fn:mix"}}},
            "nodes": {"a": {"use": "fn:add", "with": {"x": 1}, "set": {"n": "out"}, "undo": "fn:sub", "next": "end"}},
        },
        functions,
    )


def add(x: int) -> int:
    return x + 1


def other(y: int) -> int:
    return y


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"add": None}, "/nodes/a/use"),
        ({"add": other}, "/nodes/a/with"),
        ({"sub": None}, "/nodes/a/undo"),
        ({"mix": None}, "/state/properties/n/x-reducer"),
    ],
    ids=["missing", "other arguments", "missing undo", "missing reducer"],
)
async def test_a_known_document_without_its_functions_is_refused_by_compile(
    tmp_path: Path, changed: dict[str, Any], place: str
) -> None:
    store = SqliteCheckpointer(tmp_path / "t.db")
    functions: dict[str, Any] = {"add": add, "sub": add, "mix": lambda old, new: old + new}
    await document_with(functions).compile(checkpointer=store).run({})
    present = {name: made for name, made in {**functions, **changed}.items() if made is not None}
    with pytest.raises(DefinitionError) as refused:
        document_with(present).compile(checkpointer=store)
    assert [issue.pointer for issue in refused.value.errors] == [place]
    await store.close()


# --- the version without the checks is the version


@given(random_documents())
@pytest.mark.campaign
@settings(max_examples=size(40, long=2_000), deadline=None)
def test_a_document_has_the_same_version_with_and_without_the_checks(made: RandomDocument) -> None:
    known, checked = unchecked(made.document, made.kinds), check_document(made.document, made.kinds)
    assert known is not None
    assert (known.digest, known.data, known.document) == (checked.digest, checked.data, checked.document)
    assert {key: sub.digest for key, sub in known.subgraphs.items()} == {
        key: sub.digest for key, sub in checked.subgraphs.items()
    }
