"""Coding tools: a thread reads a file, edits it, and the edit is taken back by a rewind. No model is needed."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path

from graphflow import MemoryCheckpointer, load_graph

GRAPH = {
    "graphflow": "1",
    "tools": ["Read", "Edit"],
    "input": {"type": "object", "properties": {"calls": {"type": "array"}}},
    "state": {"type": "object", "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}}},
    "start": "work",
    "nodes": {
        "work": {
            "use": "tools",
            "with": {"calls": "${input.calls}"},
            "set": {"messages": "out.messages"},
            "next": "end",
        }
    },
}


FILE = Path("greeting.txt")


def words() -> list[str]:
    return FILE.read_text(encoding="utf-8").split()


async def main() -> None:
    graph = load_graph(GRAPH, checkpointer=MemoryCheckpointer())

    async def call(name: str, **arguments: object) -> None:
        result = await graph.run({"calls": [{"name": name, "arguments": arguments}]}, thread_id="coding")
        answer = json.loads(result.state["messages"][-1].text)
        print(name, answer["status"], answer["text"])

    await call("Edit", path="greeting.txt", old_string="world", new_string="reader")
    await call("Read", path="greeting.txt")
    before = (await graph.thread("coding").history())[0]
    await call("Edit", path="greeting.txt", old_string="world", new_string="reader")
    print(words())
    await graph.thread("coding").rewind(before.id, effects="undo")
    print(words())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the workspace of the built-in tools is the folder of the process
        FILE.write_text("hello\nworld\n", encoding="utf-8")
        asyncio.run(main())
