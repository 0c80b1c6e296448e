"""A tool that needs approval: the question is durable, and the answer may come to another process.

The first store stands for the process that asked and went away, the second for the one that is answered.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from graphflow import CompiledGraph, SqliteCheckpointer, load_graph, tool

AGENT = {
    "name": "Post office",
    "mode": "REACT",
    "tools": ["send_letter"],
    "approval": {"send_letter": "REQUIRE_APPROVAL"},
    "react": {"systemPrompt": "You send letters.", "maxRounds": 3},
}


@tool
def send_letter(to: str) -> str:
    """Sends a letter.

    Args:
        to: who gets it.
    """
    print(f"  (a letter goes to {to})")
    return f"sent to {to}"


def open_app(store: SqliteCheckpointer) -> CompiledGraph:
    return load_graph(AGENT, tools=[send_letter], checkpointer=store)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteCheckpointer(Path(folder) / "threads.db")
        result = await open_app(store).run("Please use send_letter for me", thread_id="letters")
        question = result.interrupts[0]
        print(result.status, question.kind, question.tool_name, dict(question.arguments))
        await store.close()

        store = SqliteCheckpointer(Path(folder) / "threads.db")
        edited = {"decision": "edit", "arguments": {"to": "Ada Lovelace"}}
        result = await open_app(store).answer("letters", {question.id: edited}, by="example")
        print(result.status, result.output)
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
