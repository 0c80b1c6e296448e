"""Threads that earlier versions stored are read as they were, and go on (spec 4.3, E23).

The files of `format-N` are frozen: `python -m tests.corpus.make` says how they were made. A folder is of one version of what is
stored, the words of documents included; while that has not been released its files may be made anew.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphflow import MemoryCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.codec import EXTENSIONS
from graphflow.checkpoints.record_decoder import decode_body
from graphflow.graph.definition.version_hash import version_hash
from tests.corpus import kinds
from tests.corpus.make import NEWEST, after, make
from tests.corpus.picture import picture, state_of
from tests.corpus.scenarios import SCENARIOS, Stage, newer
from tests.registered_types import own_types

HERE = Path(__file__).parent
FOLDERS = sorted(HERE.glob("format-*"))
THREADS = [path for folder in FOLDERS for path in sorted(folder.glob("*.jsonl"))]


def thread_id(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with own_types():
        kinds.register()
        yield


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpointer]:
    made: Checkpointer = MemoryCheckpointer() if request.param == "memory" else SqliteCheckpointer(tmp_path / "t.db")
    await made.setup()
    yield made
    await made.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def put(store: Checkpointer, path: Path) -> None:
    async def lines() -> AsyncIterator[dict[str, Any]]:
        for line in lines_of(path):
            yield line

    await store.import_thread(lines())


def _sorted(line: dict[str, Any]) -> dict[str, Any]:
    """A record's items in one order: which of its channels comes first means nothing."""
    if line["kind"] == "record" and "items" in line["row"]:
        items = sorted(line["row"]["items"], key=lambda item: (item["frame"], item["channel"], item["ordinal"]))
        return {**line, "row": {**line["row"], "items": items}}
    return line


def expected(path: Path) -> dict[str, Any]:
    seen: dict[str, Any] = msgspec.json.decode(path.with_suffix(".json").read_bytes())
    return seen


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


@pytest.mark.parametrize("path", THREADS, ids=thread_id)
async def test_a_stored_thread_is_read_as_it_was_and_goes_on(store, path):
    seen = expected(path)
    await put(store, path)
    found = as_json(await picture(store, path.stem))
    assert found == {key: value for key, value in seen.items() if key not in ("scenario", "goesOn")}
    if "goesOn" in seen:
        assert as_json(await after(store, path.stem)) == seen["goesOn"]


@pytest.mark.parametrize("path", THREADS, ids=thread_id)
async def test_states_that_are_read_in_one_pass_are_those_that_are_read_one_by_one(store, path):
    await put(store, path)
    thread = newer(Stage(store)).thread(path.stem)
    for everything in (False, True):
        rows = await thread.history(all_lineages=everything)
        wanted = [state_of(await thread.state(row.id)) for row in rows]
        states = await thread.states(all_lineages=everything)
        assert [state.checkpoint_id for state in states] == [row.id for row in rows]
        assert [state_of(state) for state in states] == wanted
        page = await thread.states(2, before=rows[0].id, all_lineages=everything)
        assert [state_of(state) for state in page] == wanted[1:3]


@pytest.mark.parametrize("path", THREADS, ids=thread_id)
async def test_a_stored_thread_is_exported_as_it_was(store, path):
    await put(store, path)
    exported = as_json([line async for line in store.export_thread(path.stem)])
    assert list(map(_sorted, exported)) == list(map(_sorted, lines_of(path)))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
async def test_a_stored_database_is_opened_and_its_threads_are_what_they_were(folder, tmp_path):
    own = msgspec.json.decode((folder / "threads.json").read_bytes())
    shutil.copy(folder / "threads.db", tmp_path)
    store = SqliteCheckpointer(tmp_path / "threads.db")
    await store.setup()
    try:
        rows = await store.threads(limit=500)
        assert {row.thread_id for row in rows} == {path.stem for path in folder.glob("*.jsonl")}
        for row in rows:
            found = as_json(await picture(store, row.thread_id))
            seen = expected(folder / f"{row.thread_id}.jsonl")
            wanted = own.get(row.thread_id, {key: seen[key] for key in found})
            assert found == wanted, row.thread_id
            if "goesOn" in seen:
                assert (await after(store, row.thread_id))["status"] == seen["goesOn"]["status"]
    finally:
        await store.close()


def test_the_corpus_of_this_format_has_every_kind_of_record_and_every_type():
    bodies = [
        decode_body(_bytes(line["row"]["data"]))
        for path in NEWEST.glob("*.jsonl")
        for line in lines_of(path)
        if line["kind"] == "record"
    ]
    sources = {body.source for body in bodies}
    assert sources >= set(
        "input node failed ask answer operation retry recovered resumed cancel edit rewind fork migrate signal".split()
    )
    text = "".join(path.read_text(encoding="utf-8") for path in NEWEST.glob("*.json"))
    missing = {name for name in EXTENSIONS.values() if f'"{name}"' not in text}
    assert not missing
    assert {expected(path)["scenario"] for path in NEWEST.glob("*.jsonl")} == set(SCENARIOS)


def _bytes(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


SINCE = dict.fromkeys(
    ("travelled", "travelled_fork", "unknown"), "a run that a rewind, fork or edit begins has the id of its move"
) | {
    "recovered": "a node that is told to end is watched for ten seconds, which pass at once here",
    "mapped": "a branch that waits frees its place, so all four items are asked about though two may work at once",
    "tools": "a call that somebody was asked about has a record of its own, which says that it was made",
}
"""Threads that are made otherwise today, and why. What is frozen stays as it was: such threads exist."""


async def test_what_is_made_today_is_what_was_frozen(tmp_path):
    """Who means to change what threads look like says so in `SINCE`; who does not has found out here."""
    await make(tmp_path / "now")
    frozen = [path for path in sorted(NEWEST.glob("*.json")) if path.name != "threads.json"]
    otherwise = {path.stem for path in frozen if expected(tmp_path / "now" / path.name) != expected(path)}
    assert otherwise == set(SINCE), "these would be made otherwise today, or no longer are"


async def test_a_thread_that_was_killed_under_old_words_goes_on_and_repeats_nothing(store):
    """`killed.jsonl` was written by the last version that said `ctx.once`, `always`, `then`, `x-reduce`, `x-life` and
    `x-scope: frame`, killed between two writes without a name. Its first write is found under the kind `once`, and the
    key that it was done with is the same; its document keeps its words and their hash.
    """
    path = HERE / "old-words" / "killed.jsonl"
    lines = lines_of(path)
    (document,) = [line for line in lines if line["kind"] == "document"]
    await put(store, path)
    stage = Stage(store, first_id=90_000)
    result = await newer(stage).resume("unnamed")
    state = await newer(stage).thread("unnamed").state()
    assert (result.status, stage.charged) == ("completed", 1)
    assert (state.values.n, state.values.word) == (11, "350fa2941ccc708d492197e6")
    row = await store.thread("unnamed")
    assert row is not None and row.facts.document == document["row"]["digest"]
    data = msgspec.json.decode(_bytes(document["row"]["data"]))["document"]
    assert (data["always"], data["budget"]["then"]) == (["pay at most 1"], "wrap_up")
    assert version_hash(data, graphs={}, names={}) == document["row"]["digest"]
    assert _document_of([line async for line in store.export_thread("unnamed")]) == _document_of(lines)


def _document_of(lines: list[dict[str, Any]]) -> Any:
    return as_json([line["row"] for line in lines if line["kind"] == "document"])


async def test_error_codes_of_an_earlier_version_are_read_as_those_of_today(store):
    """`unstorable.jsonl`: a node's value could not be stored, which was called `not_encodable`."""
    await put(store, HERE / "old-words" / "unstorable.jsonl")
    thread = newer(Stage(store)).thread("unstorable")
    failed, *_ = await thread.history()
    assert failed.error == "not_serializable"
    events = [event for event, _ in await thread.events(failed.run_id or "") if hasattr(event, "error")]
    assert [(event.type, event.error["code"]) for event in events] == [
        ("node.error", "not_serializable"),
        ("run.error", "not_serializable"),
    ]
    why = await thread.why(failed.id)
    assert [(decision.error or {}).get("code") for decision in why.decisions] == ["not_serializable"]
    state = await thread.state()
    assert state.status == "failed"
