"""Coding tools on a thread: each call is a run of a small graph, and its answer passes the one envelope validator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graphflow import CompiledGraph, MemoryCheckpointer, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.events import event_dict
from graphflow.testing.tool_envelope_conformance import assert_envelope
from graphflow.tools.coding import coding_tools
from graphflow.tools.port import Tool
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.system import SYSTEM, System


class CodingFolder:
    """A workspace, a secret outside of it, and threads whose runs call coding tools.

    Args:
        base: an empty folder.
        store: where the threads are; default: in memory.
        system: the operating system as the tools see it.
    """

    def __init__(self, base: Path, store: Checkpointer | None = None, system: System = SYSTEM) -> None:
        self.root, self.out = base / "root", base / "out"
        for folder in (self.root, self.out):
            folder.mkdir(exist_ok=True)
        self.secret = self.out / "secret"
        self.secret.write_bytes(b"what nobody may see\n")
        self.store = store or MemoryCheckpointer()
        self.tools = coding_tools(Workspaces(self.root, system=system))

    def graph(self, more: tuple[Tool, ...] = ()) -> CompiledGraph:
        """The graph that makes the calls of its input, as a new process loads it."""
        document = {
            "graphflow": "1",
            "tools": [tool.name for tool in (*self.tools, *more)],
            "input": {"type": "object", "properties": {"calls": {"type": "array"}}},
            "state": {"type": "object", "properties": {"messages": MESSAGES}},
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
        # The built-in ones work in the process's folder; these take their place.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("graphflow.tools.registry.builtin_tools", lambda: [*self.tools])
            return load_graph(document, tools=more, checkpointer=self.store)

    async def calls(self, *calls: tuple[str, Any], thread: str = "t") -> list[dict[str, Any]]:
        """The envelopes of calls that one turn makes."""
        given = [{"name": name, "arguments": arguments} for name, arguments in calls]
        events = [event_dict(event) async for event in self.graph().stream({"calls": given}, thread)]
        assert events[-1]["type"] == "run.complete", events[-1]
        results = [json.loads(event["result"]) for event in events if event["type"] == "tool.result"]
        for (name, _), envelope in zip(calls, results, strict=True):
            assert_envelope(envelope, tool=name)
            assert "what nobody may see" not in json.dumps(envelope)
        return results

    async def call(self, name: str, arguments: Mapping[str, Any], thread: str = "t") -> dict[str, Any]:
        """The envelope of one call."""
        [envelope] = await self.calls((name, arguments), thread=thread)
        return envelope

    def put(self, name: str, data: bytes | str) -> Path:
        """A file of the workspace."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def files(self) -> dict[str, bytes]:
        """Every regular file of the workspace by its path."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


MESSAGES = {"type": "array", "default": [], "x-reducer": "messages"}


def code_of(envelope: Mapping[str, Any]) -> str:
    """The code of an error, else the status."""
    return str(envelope["error"]["code"]) if envelope["status"] == "error" else str(envelope["status"])
