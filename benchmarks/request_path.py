"""The way of a query through the files of graphflow, from the HTTP request to the model call.

    python benchmarks/request_path.py                # the figures
    python benchmarks/request_path.py --path         # every entry into a file, with the function entered
    python benchmarks/request_path.py --json results/request_path.json

A PLAIN agent, SQLite in a temporary folder, ASGI within this process, a model that only answers, a process that has answered three
queries before. *Entries* counts how often execution enters a file of graphflow from another one, on the event loop's thread, also
where a coroutine goes on after a wait: what a reader who follows the request has to jump. *Depth* is the number of graphflow's
functions on the stack at the model call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import httpx  # noqa: E402

from graphflow.models.chat_model import Capabilities, ChatOptions, ToolSpec  # noqa: E402
from graphflow.models.deltas import Delta, Finish, TextDelta  # noqa: E402
from graphflow.server.app import create_app  # noqa: E402
from graphflow.service.application import Application  # noqa: E402
from graphflow.settings import load_settings  # noqa: E402

PACKAGE = str(ROOT / "graphflow") + "/"
WARM = 3
BESIDE = {"runtime/loop_watch.py"}
"""Beats on the loop whatever goes on there; whether a beat comes between is chance."""


class Tracer:
    """Counts entries into files of graphflow between `begin` and `end`."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self.calls = 0
        self.stack: list[tuple[str, str]] = []
        self._file = ""

    def begin(self) -> None:
        self.entries, self.calls, self.stack, self._file = [], 0, [], ""
        sys.setprofile(self._see)

    def end(self) -> None:
        """At the model call: what stands on the stack is kept."""
        sys.setprofile(None)
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if (name := _name(frame)) is not None:
                self.stack.append(name)
            frame = frame.f_back

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (name := _name(frame)) is None or name[0] in BESIDE:
            return
        self.calls += 1
        if name[0] != self._file:
            self._file = name[0]
            self.entries.append(name)

    def figures(self) -> dict[str, int]:
        return {
            "entries": len(self.entries),
            "files": len({file for file, _ in self.entries}),
            "calls": self.calls,
            "depth": len(self.stack),
            "depth_files": len({file for file, _ in self.stack}),
        }


def _name(frame: FrameType) -> tuple[str, str] | None:
    code = frame.f_code
    file = code.co_filename
    return (file.removeprefix(PACKAGE), code.co_qualname) if file.startswith(PACKAGE) else None


class Model:
    """Answers in two words; its call ends the trace."""

    provider, model = "bench", "answer"
    capabilities = Capabilities()

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def stream(
        self, messages: Sequence[Any], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        self._tracer.end()
        yield TextDelta("Hello, ")
        yield TextDelta("you.")
        yield Finish("stop")

    def count_tokens(self, messages: Sequence[Any]) -> int:
        return len(messages)

    async def aclose(self) -> None: ...


async def trace(folder: Path) -> Tracer:
    """The trace of a query of a new chat."""
    (folder / "graphs").mkdir()
    agent = {"mode": "PLAIN", "name": "Plain", "description": "Answers.", "plain": {"systemPrompt": "Answer."}}
    (folder / "graphs" / "plain.json").write_text(json.dumps(agent), encoding="utf-8")
    tracer = Tracer()
    application = Application(load_settings(folder, environ={}), models=lambda *_: Model(tracer))
    app = create_app(application, watch=False)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        for _ in range(WARM + 1):
            await asyncio.sleep(0.1)  # until what follows the query before is over
            tracer.begin()
            body = {"message": "Hello", "agentKey": "plain"}
            answer = await client.post("/api/query", json=body)
            assert "run.complete" in answer.text, answer.text
    return tracer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", action="store_true", help="print every entry into a file")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tracer = asyncio.run(trace(Path(folder)))
    figures = tracer.figures()
    if given.path:
        for file, function in tracer.entries:
            print(f"  {file}: {function}")
        print(
            "files by entries:", ", ".join(f"{f} {n}" for f, n in Counter(f for f, _ in tracer.entries).most_common())
        )
        print("stack:", " < ".join(f"{file}: {function}" for file, function in tracer.stack))
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
