"""Several processes over one store: one writer per thread, and the state holds exactly the successes (E2)."""

from __future__ import annotations

from pathlib import Path

from graphflow import SqliteCheckpointer
from tests.forked import STREAMS, ForkedProcess, python
from tests.runtime.graphs import chain

CHILD = """
import asyncio, sys
from graphflow import Graph, SqliteCheckpointer, ThreadBusy
graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})

@graph.node
async def add(state):
    if len(sys.argv) > 2:
        print("inside", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return {"n": state.n + 1}

async def main():
    store = SqliteCheckpointer(sys.argv[1])
    app, done = graph.compile(checkpointer=store), 0
    for _ in range(1 if len(sys.argv) > 2 else 20):
        try:
            await app.run(thread_id="t")
            done += 1
        except ThreadBusy:
            await asyncio.sleep(0)
    print(done, flush=True)
    await store.close()

asyncio.run(main())
"""


def start(tmp_path: Path, *arguments: str) -> ForkedProcess:
    script = tmp_path / "child.py"
    if not script.exists():  # written once: a child that starts must not meet it half written
        script.write_text(CHILD, encoding="utf-8")
    return python(script, tmp_path / "t.db", *arguments, pipes=STREAMS)


def said(child: ForkedProcess) -> str:
    """The last line of a child that ended well."""
    out, errors = child.communicate()
    assert (child.returncode, bool(out)) == (0, True), (child.returncode, out, errors)
    return out.split()[-1]


async def state_n(tmp_path: Path) -> int:
    store = SqliteCheckpointer(tmp_path / "t.db")
    state = await chain("a")[0].compile(checkpointer=store).thread("t").state()
    await store.close()
    return int(state.values.n)


async def test_five_processes_on_one_thread_leave_exactly_their_successes(tmp_path: Path) -> None:
    children = [start(tmp_path) for _ in range(5)]
    done = [int(said(child)) for child in children]
    assert sum(done) >= 1
    assert await state_n(tmp_path) == sum(done)


async def test_a_thread_that_a_living_process_drives_is_refused_and_a_dead_ones_is_taken_at_once(
    tmp_path: Path,
) -> None:
    holder = start(tmp_path, "hold")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    second = start(tmp_path)
    assert said(second) == "0"
    holder.kill()
    holder.communicate()
    third = start(tmp_path)
    assert said(third) == "20"
    assert await state_n(tmp_path) == 20
