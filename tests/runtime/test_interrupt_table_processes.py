"""Several processes answer one question at once: one answer is taken, every other is refused, nothing runs twice (E2, E13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow import SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from tests.forked import STREAMS, python
from tests.runtime.questions import paying_graph

CHILD = """
import asyncio, sys
from graphflow import SqliteCheckpointer, ThreadBusy
from graphflow.errors import AnswerRefused
from tests.runtime.questions import paying_graph

async def main(path, question, decision):
    store, did = SqliteCheckpointer(path), []
    app = paying_graph(store, did)
    await store.setup()
    print("ready", flush=True)
    sys.stdin.readline()
    takes = {"reject": {"reason": "no"}, "edit": {"arguments": {"to": "Bob"}}}
    answer = {"decision": decision, **takes.get(decision, {})}
    while True:
        try:
            result = await app.answer("t", {question: answer})
        except ThreadBusy:
            continue
        except AnswerRefused as refused:
            print(refused.code, flush=True)
        else:
            print("taken", result.status, decision, *did, flush=True)
        break
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("round_", range(2))
async def test_of_answers_from_several_processes_one_is_taken_and_the_others_are_stale(
    tmp_path: Path, round_: int
) -> None:
    store, did = SqliteCheckpointer(tmp_path / "t.db"), list[str]()
    app = paying_graph(store, did)
    (asked,) = (await app.run(thread_id="t")).interrupts
    await store.close()
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    words = ("approve", "reject", "edit", "approve")
    children = [python(script, tmp_path / "t.db", asked.id, word, pipes=STREAMS) for word in words]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    said = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, errors = child.communicate()
        assert child.returncode == 0, errors
        said.append(out.strip())
    taken = [line.split() for line in said if line.startswith("taken")]
    assert len(taken) == 1
    assert sorted(line for line in said if not line.startswith("taken")) == ["answer_stale"] * 3
    _, status, decision, *paid = taken[0]
    assert (status, paid) == ("completed", {"approve": ["Ada"], "edit": ["Bob"], "reject": []}[decision])
    store = SqliteCheckpointer(tmp_path / "t.db")
    after: Checkpointer = store
    state = await paying_graph(after, did).thread("t").state()
    assert (state.status, len([m for m in state.values.messages if type(m).__name__ == "ToolMessage"])) == ("idle", 1)
    await store.close()
