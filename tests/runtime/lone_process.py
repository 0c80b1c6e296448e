"""One process over a store file, without a server: `python -m tests.runtime.lone_process STORE ROLE`.

Its graph notes its input; while the file `held` lies beside the store, its node waits.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from graphflow import Context, Graph, SqliteCheckpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.runtime.graphs import Counter


def graph(folder: Path) -> Graph:
    """`note` → `hold` → `finish`."""
    made = Graph(Counter)

    @made.node(next="hold")
    async def note(state: Any, ctx: Context) -> dict[str, Any]:
        return {"log": [ctx.input["query"]]}

    @made.node(next="finish")
    async def hold(state: Any) -> None:
        if (folder / "held").exists():
            say("held")
            await asyncio.Event().wait()

    @made.node
    async def finish(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    return made


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def lone_app(store: Path) -> CompiledGraph:
    return graph(store.parent).compile(checkpointer=SqliteCheckpointer(store))


async def main(app: CompiledGraph, role: str) -> None:
    if role == "drive":  # is killed in its node
        await app.run("driven", "t", durability="sync")
    else:  # is killed in the queue
        waits = asyncio.ensure_future(app.run(role, "t", on_busy="enqueue"))  # noqa: TID251 - the process is killed
        while role not in [queued.input["query"] for queued in await app.thread("t").queue()]:
            await asyncio.sleep(0.01)
        say("queued")
        await waits


# --- for the tests


@asynccontextmanager
async def app_over(file: Path) -> AsyncIterator[CompiledGraph]:
    app = lone_app(file)
    async with asyncio.timeout(30):
        yield app
    assert app.host.store is not None
    await app.host.store.close()


def killed_inside(file: Path, *roles: str) -> None:
    """Processes that were each killed where their role leads them: in a node, or in the queue behind it."""
    with alive_inside(file, *roles):
        pass


@contextmanager
def alive_inside(file: Path, *roles: str) -> Iterator[None]:
    """Processes that stand in a node, or in the queue behind it, and are killed when the block ends."""
    (file.parent / "held").touch()
    children = []
    for role in roles:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.lone_process", str(file), role], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == ("held\n" if role == "drive" else "queued\n")
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()
    (file.parent / "held").unlink()


if __name__ == "__main__":
    asyncio.run(main(lone_app(Path(sys.argv[1])), sys.argv[2]))
