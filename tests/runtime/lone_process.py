"""One process over a store file, without a server: `python -m tests.runtime.lone_process STORE ROLE`.

Each node of its graph does one thing outside, and says before and after that it is there; while the file `held` lies
beside the store, its second node waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from graphflow import Context, Graph, SqliteCheckpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.forked import ForkedProcess, python
from tests.patience import PATIENCE_S
from tests.runtime.graphs import Counter


def graph(folder: Path) -> Graph:
    """`note` → `hold` → `finish`."""
    made = Graph(Counter, name="lone")

    async def act(ctx: Context) -> str:
        name = ctx.input["query"]

        def write() -> None:
            with (folder / "world").open("a", encoding="utf-8") as world:
                world.write(f"{name} {ctx.node}\n")

        say(f"{name} comes to {ctx.node}")
        await ctx.step("act", write)
        say(f"{name} leaves {ctx.node}")
        return str(name)

    @made.node(next="hold")
    async def note(state: Any, ctx: Context) -> dict[str, Any]:
        return {"log": [await act(ctx)]}

    @made.node(next="finish")
    async def hold(state: Any, ctx: Context) -> None:
        if (folder / "held").exists():
            say("held")
            await asyncio.Event().wait()
        await act(ctx)

    @made.node
    async def finish(state: Any, ctx: Context) -> dict[str, Any]:
        await act(ctx)
        return {"n": state.n + 1}

    return made


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def lone_app(store: Path) -> CompiledGraph:
    return graph(store.parent).compile(checkpointer=SqliteCheckpointer(store))


async def main(app: CompiledGraph, role: str) -> None:
    if role == "drive":
        await app.run("driven", "t", durability="sync")
    elif role == "recover":
        await app.recover()
    else:
        waits = asyncio.ensure_future(app.run(role, "t", on_busy="enqueue"))  # noqa: TID251 - the process is killed
        while role not in [queued.input["query"] for queued in await app.thread("t").queue()]:
            await asyncio.sleep(0.01)
        say("queued")
        await waits


# --- for the tests


@asynccontextmanager
async def app_over(file: Path) -> AsyncIterator[CompiledGraph]:
    """The graph in this process, over the same store."""
    app = lone_app(file)
    async with asyncio.timeout(PATIENCE_S):
        yield app
    assert app.host.store is not None
    await app.host.store.close()


@contextmanager
def process(file: Path, role: str) -> Iterator[ForkedProcess]:
    """A process of this role; killed when the block ends."""
    child = python("-m", "tests.runtime.lone_process", file, role)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def hear(child: ForkedProcess, *last: str) -> None:
    """Returns when the process has said one of these."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() in last:
            return
    raise AssertionError(f"the process ended without saying {' or '.join(last)}")


@contextmanager
def alive_inside(file: Path, *roles: str) -> Iterator[None]:
    """Processes that stand in a node, or in the queue behind it, and are killed when the block ends."""
    held = file.parent / "held"
    held.touch()
    if not roles:
        yield
        held.unlink(missing_ok=True)
        return
    with process(file, roles[0]) as child:
        hear(child, "held", "queued")
        with alive_inside(file, *roles[1:]):
            yield


def killed_inside(file: Path, *roles: str) -> None:
    """Processes that were each killed where their role leads them: in a node, or in the queue behind it."""
    with alive_inside(file, *roles):
        pass


if __name__ == "__main__":
    asyncio.run(main(lone_app(Path(sys.argv[1])), sys.argv[2]))
