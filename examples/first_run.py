"""The first minute with graphflow, what `make run` shows: a graph, streamed tokens, tool calls, an approval, a thread.

The model is the scripted one, as a server of its own process: every token comes over a real HTTP connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from graphflow import Application, CompiledGraph, Interrupt
from graphflow.events import (
    ContentDelta,
    ContentEnd,
    Event,
    InterruptResolve,
    NodeEnd,
    NodeStart,
    ReasoningDelta,
    ReasoningEnd,
    ToolArgs,
    ToolEnd,
    ToolResultEvent,
    ToolStart,
)
from graphflow.graph.drawing.render import draw_text
from graphflow.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "checkpoints" / "first_run" / "threads.db"
QUESTION = "What time is it in Beijing? And list the files in this folder."
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


async def main() -> None:
    with scripted_model_server() as url:
        settings = load_settings(
            ROOT,
            flags={
                "llm.base_url": url,
                "llm.model_id": "scripted",
                "llm.interaction_log_enabled": False,
                "agents.dir": ROOT / "graphs",
                "bash.working_directory": ROOT,
                "store.path": STORE,
            },
        )
        async with Application(settings) as app:
            await show(app, "demo_react", url)


async def show(app: Application, agent: str, url: str) -> None:
    heading(f"1. The agent graphs/{agent}.json is a graph")
    print(draw_text(app.agents.get(agent).checked.document))

    heading(f"2. It runs; every token comes over HTTP from {url}")
    print(f"you: {QUESTION}\n")
    graph, thread_id = app.graph(agent), app.ids.new_id()
    await follow(graph.stream(QUESTION, thread_id))

    while waiting := (await graph.thread(thread_id).state()).interrupts:
        heading("3. The run waits for a person; it could wait for a week, in no process at all")
        await follow(graph.stream_answer(thread_id, {i.id: decide(i) for i in waiting}))

    heading("4. Every finished node is a checkpoint of the thread")
    await show_checkpoints(graph, thread_id)
    print(f"\nthread {thread_id}; look around in it:")
    print(f"  export GRAPHFLOW_STORE_PATH={STORE.relative_to(ROOT)}")
    print(f"  .venv/bin/graphflow threads show {thread_id}")
    print("  .venv/bin/graphflow threads fork THREAD@CHECKPOINT --run 'And in Shanghai?'")


@contextmanager
def scripted_model_server() -> Iterator[str]:
    """The base URL of a scripted model that runs in a process of its own, on a free loopback port."""
    command = [sys.executable, "-m", "graphflow", "scripted-model", "--port", "0", "--delay-ms", "20"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline().strip()
            if not line.startswith("LLM_BASE_URL="):
                raise SystemExit(f"the scripted model did not start: {' '.join(command)}")
            yield line.removeprefix("LLM_BASE_URL=")
        finally:
            server.terminate()


async def follow(events: AsyncIterator[Event]) -> None:
    """Prints each event as it comes."""
    async with aclosing(events) as stream:  # type: ignore[type-var]  # `stream` and `stream_answer` are generators
        async for event in stream:
            match event:
                case NodeStart():
                    print(paint("36", f"● {event.node}"))
                case NodeEnd():
                    print(paint("32", f"✓ {event.node}") + paint("2", f"  {event.duration_ms} ms"))
                case ReasoningDelta():
                    write(paint("2", event.delta))
                case ContentDelta():
                    write(event.delta)
                case ToolStart():
                    write(paint("35", f"  ⚙ {event.tool_name} "))
                case ToolArgs():
                    write(paint("35", event.delta))
                case ReasoningEnd() | ContentEnd() | ToolEnd():
                    print()
                case ToolResultEvent():
                    print(paint("35", f"  → {' '.join(event.result.split())[:100]}"))
                case InterruptResolve():
                    print(paint("33", f"▶ {event.decision}"))


def decide(interrupt: Interrupt) -> dict[str, str]:
    """The person's answer; without a terminal this program approves, and says so."""
    print(f"{interrupt.tool_name} {json.dumps(interrupt.arguments)} needs an approval.")
    if not sys.stdin.isatty():
        print("Nobody can be asked here (no terminal), so this example approves by itself.\n")
        return {"decision": "approve"}
    if input("Approve? [Y/n] ").strip().lower() in ("", "y", "yes"):
        return {"decision": "approve"}
    return {"decision": "reject", "reason": "the person said no"}


async def show_checkpoints(graph: CompiledGraph, thread_id: str) -> None:
    history = (await graph.thread(thread_id).history())[::-1]
    print(paint("2", f"{'step':>4}  {'node':<8}  {'source':<8}  {'at':>8}  {'bytes':>6}  checkpoint"))
    for row in history:
        at = f"{(row.created_at - history[0].created_at) / 1000:.2f} s"
        print(f"{row.step:>4}  {row.node or '-':<8}  {row.source:<8}  {at:>8}  {row.size:>6}  {row.id}")


def heading(text: str) -> None:
    print("\n" + paint("1", text))


def paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOUR else text


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
