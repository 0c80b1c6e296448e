"""Draws the pictures of docs/ and of the README as SVG: `make docs`. A test compares each with this file."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

STYLE = """
text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: #1f2328; }
.small { font-size: 11.5px; fill: #59636e; } .bold { font-weight: 600; }
.box { fill: #f6f8fa; stroke: #818b98; } .main { fill: #ddf4ff; stroke: #2f81f7; } .store { fill: #dafbe1; stroke: #2da44e; }
.wait { fill: #fff8c5; stroke: #d4900a; } .old { fill: #f6f8fa; stroke: #afb8c1; stroke-dasharray: 4 3; }
.line { fill: none; stroke: #59636e; stroke-width: 1.4; } .dash { stroke-dasharray: 5 4; } .life { stroke: #afb8c1; }
.tip { fill: #59636e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; } .tip { fill: #9198a1; } .line { stroke: #9198a1; }
  .box, .old { fill: #21262d; stroke: #6e7681; } .main { fill: #0c2d6b; } .store { fill: #033a16; } .wait { fill: #4b2900; }
}"""


class Picture:
    """A drawing of a fixed size; every method adds a shape."""

    def __init__(self, title: str, width: int, height: int) -> None:
        self._title = title
        self._size = (width, height)
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """A box with centred lines; the first is bold if there are several."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        top = y + height / 2 + 4.5 - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            mark = "small" if number else ("bold" if len(lines) > 1 else "")
            self.text(x + width / 2, top + 16 * number, line, mark)

    def circle(self, x: float, y: float, label: str, kind: str = "box") -> None:
        self._parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="15"/>')
        self.text(x, y + 4.5, label)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(self, *points: tuple[float, float], label: str = "", kind: str = "") -> None:
        """A line through the points with a tip at its end; the label stands above the middle of its longest part."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path class="line {kind}" d="{path}" marker-end="url(#tip)"/>')
        if label:
            parts = list(itertools.pairwise(points))
            (x1, y1), (x2, y2) = max(parts, key=lambda p: abs(p[0][0] - p[1][0]) + abs(p[0][1] - p[1][1]))
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, label, "small")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "") -> None:
        self._parts.append(f'<path class="line {kind}" d="M{x1} {y1} L{x2} {y2}"/>')

    def svg(self) -> str:
        width, height = self._size
        tip = '<defs><marker id="tip" viewBox="0 0 9 9" refX="8" refY="4.5" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0 0 L9 4.5 L0 9 Z"/></marker></defs>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(self._title)}">'
        return "\n".join([head, f"<style>{STYLE}\n</style>", tip, *self._parts, "</svg>", ""])


def sequence(title: str, actors: Sequence[str], messages: Sequence[tuple[int, int, str]]) -> str:
    """A sequence diagram; a message is (from, to, text), from an actor to itself a note."""
    gap, step = 190, 40
    width, height = gap * len(actors), 70 + step * len(messages)
    made = Picture(title, width, height)
    middle = [gap * number + gap / 2 for number in range(len(actors))]
    for x, actor in zip(middle, actors, strict=True):
        made.line(x, 44, x, height - 8, "life")
        made.box(x - 75, 10, 150, 34, actor, kind="main")
    for number, (source, target, text) in enumerate(messages):
        y = 78 + step * number
        if source == target:
            made.box(middle[source] - 90, y - 20, 180, 28, kind="wait")
            made.text(middle[source], y - 1, text, "small")
        else:
            made.arrow((middle[source], y), (middle[target], y), label=text)
    return made.svg()


def thread_tree() -> str:
    made = Picture("a thread's checkpoints as a tree", 640, 250)
    for number in range(5):
        kind = "store" if number < 3 else "old"
        made.circle(60 + 90 * number, 60, str(number), kind)
        if number:
            made.arrow((75 + 90 * (number - 1), 60), (45 + 90 * number, 60), kind="" if number < 3 else "dash")
    for number in range(2):
        made.circle(330 + 90 * number, 140, str(5 + number), "main" if number else "store")
    made.arrow((240, 75), (240, 140), (315, 140), label="")
    made.arrow((345, 140), (405, 140))
    made.circle(240, 215, "3′", "wait")
    made.arrow((150, 75), (150, 215), (225, 215))
    made.text(60, 28, "input", "small")
    made.text(375, 28, "rewound: still there", "small")
    made.text(445, 144, "head of thread trip", "small", "start")
    made.text(265, 219, "head of thread trip-2, a fork at 1", "small", "start")
    made.text(282, 128, "rewind to 2", "small", "middle")
    return made.svg()


def step() -> str:
    made = Picture("one step", 720, 230)
    made.box(20, 60, 120, 50, "tick", "what happened")
    made.box(200, 50, 150, 70, "advance", "pure function:", "no I/O, no clock", kind="main")
    made.box(420, 10, 130, 50, "record", "journal of the thread", kind="store")
    made.box(420, 110, 130, 50, "commands", "what to do next")
    made.box(610, 110, 95, 50, "node", "runs, streams")
    made.arrow((140, 85), (200, 85))
    made.arrow((350, 70), (420, 40))
    made.arrow((350, 100), (420, 130))
    made.arrow((550, 135), (610, 135))
    made.arrow((658, 160), (658, 205), (80, 205), (80, 110), label="its result is the next tick")
    made.text(485, 78, "committed while the next node runs", "small")
    return made.svg()


def interrupt() -> str:
    return sequence(
        "an interrupt",
        ["run", "store", "person", "another process"],
        [
            (0, 1, "commit the interrupt"),
            (0, 2, "interrupt.request"),
            (0, 0, "holds the stream open"),
            (0, 1, "release the thread"),
            (0, 2, "run.waiting"),
            (2, 3, "answer, days later"),
            (3, 1, "take the thread, check, commit"),
            (3, 3, "the next node runs"),
        ],
    )


def branches() -> str:
    made = Picture("branches and their join", 720, 210)
    made.box(20, 80, 110, 50, "fan", "map or parallel", kind="main")
    for number, (name, note) in enumerate(
        [("branch 0", "done"), ("branch 1", "waits for a person"), ("branch 2", "failed")]
    ):
        y = 15 + 65 * number
        made.box(220, y, 150, 50, name, note, kind=["store", "wait", "old"][number])
        made.arrow((130, 105), (220, y + 25))
        made.arrow((370, y + 25), (470, 105))
    made.box(470, 75, 110, 60, "join", "reduces writes", "in branch order", kind="main")
    made.arrow((580, 105), (630, 105))
    made.box(630, 80, 75, 50, "next")
    return made.svg()


def layers() -> str:
    rows = [
        ["cli", "server"], ["service"], ["agents", "cluster"], ["modes"], ["nodes"], ["middleware", "memory"],
        ["tools", "models"], ["runtime"], ["checkpoints"], ["graph"], ["events · messages · errors · masking · settings"],
    ]  # fmt: skip
    made = Picture("layers", 520, 44 * len(rows) + 10)
    for number, row in enumerate(rows):
        width = (500 - 10 * (len(row) - 1)) / len(row)
        for column, name in enumerate(row):
            made.box(
                10 + column * (width + 10), 8 + 44 * number, width, 34, name, kind="main" if name == "graph" else "box"
            )
    return made.svg()


def compiling() -> str:
    made = Picture("from a file to a plan", 780, 200)
    for number, name in enumerate(["agent file (mode)", "graph file", "Python builder"]):
        made.box(10, 10 + 60 * number, 140, 44, name)
        made.arrow((150, 32 + 60 * number), (210, 92))
    made.box(210, 67, 150, 50, "GraphDefinition", "one document")
    made.box(420, 67, 140, 50, "validation", "all errors at once", kind="main")
    made.box(630, 20, 140, 50, "Plan", "compiled, immutable", kind="store")
    made.box(630, 125, 140, 50, "DefinitionError", "place, value, hint", kind="wait")
    made.arrow((360, 92), (420, 92))
    made.arrow((560, 85), (630, 50))
    made.arrow((560, 100), (630, 145))
    return made.svg()


def request() -> str:
    return sequence(
        "the life of a request",
        ["client", "server", "service", "runtime", "model"],
        [
            (0, 1, "POST /api/query"),
            (1, 2, "query"),
            (2, 3, "take the thread, load its head"),
            (3, 0, "request.query, run.start"),
            (3, 4, "messages, tools"),
            (4, 3, "delta n"),
            (3, 0, "event n, before delta n + 1 is read"),
            (3, 0, "checkpoint.create, once durable"),
            (3, 0, "run.complete"),
        ],
    )


def crash() -> str:
    return sequence(
        "recovery after a crash",
        ["first process", "store", "second process"],
        [
            (0, 1, "nodes 1 and 2 committed"),
            (0, 0, "kill -9 during node 3"),
            (2, 1, "take the thread"),
            (1, 2, "snapshot, patches, list items"),
            (2, 2, "node 3 runs again"),
            (1, 2, "results of its recorded operations"),
        ],
    )


def rejoining() -> str:
    made = Picture("joining a stream again", 760, 190)
    made.box(10, 70, 130, 50, "client", "Last-Event-ID")
    made.box(200, 70, 140, 50, "in the ring?", "of this process", kind="main")
    made.box(420, 15, 320, 44, "the missed events, then live events", kind="store")
    made.box(
        420,
        110,
        320,
        64,
        "stream.reset, then snapshots",
        "of finished blocks, the open block so far,",
        "then live events",
        kind="wait",
    )
    made.arrow((140, 95), (200, 95))
    made.arrow((340, 85), (420, 40), label="yes")
    made.arrow((340, 105), (420, 140), label="no")
    return made.svg()


REVIEW = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"draft": {"type": "string", "default": ""}}},
    "budget": {"maxSteps": 10},
    "start": "write",
    "nodes": {
        "write": {
            "use": "model",
            "with": {"prompt": "One line about ${input.query}"},
            "set": {"draft": "out.text"},
            "next": "approve",
        },
        "approve": {
            "ask": {"message": "Publish it?", "show": "state.draft", "schema": {"type": "boolean"}},
            "next": [{"if": "answer == true", "to": "end"}, {"to": "write"}],
        },
    },
}
"""The agent of the README, whose test compares the two."""


def review() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "review.json").write_text(json.dumps(REVIEW), encoding="utf-8")
        command = [sys.executable, "-m", "graphflow", "graph", "show", "review.json", "--svg"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


TERMINAL = """\
$ graphflow graph show demo_react
reason  model  → tools [size(out.toolCalls) > 0]  → end
tools   tools  ↺ reason [visits.reason < limits.rounds]  → answer
answer  model  → end
$ graphflow run demo_react --thread trip "What time is it in Tokyo?"
Local time:

Tokyo: 2026-11-23 01:08:30 (Asia/Tokyo)
$ graphflow threads show trip
thread trip  idle
   step  node    source   time                            tokens  checkpoint  next
   0     reason  input                                            4e074b8e    reason
   1     reason  node    20 ms  ████████████████████████     128  c5f89c67    tools
   2     tools   node     3 ms  ████                              3b7d8fbe    reason
▶  3     reason  node     0 ms  ▏                            184  8e50b993
$ graphflow threads rewind trip@c5f89c67
"""


def terminal() -> str:
    lines = TERMINAL.splitlines()
    height = 19 * len(lines) + 46
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" viewBox="0 0 760 {height}" role="img" aria-label="a terminal session">'
    style = "text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre; } .typed { fill: #7ee787; font-weight: 600; }"
    parts = [head, f"<style>{style}</style>", f'<rect width="760" height="{height}" rx="8" fill="#0d1117"/>']
    parts += [
        f'<circle cx="{20 + 18 * n}" cy="18" r="5" fill="{c}"/>'
        for n, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    for number, line in enumerate(lines):
        mark = ' class="typed"' if line.startswith("$ ") else ""
        parts.append(f'<text{mark} x="18" y="{50 + 19 * number}" xml:space="preserve">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>", ""])


PICTURES: dict[str, Callable[[], str]] = {
    "pictures/thread-tree.svg": thread_tree,
    "pictures/step.svg": step,
    "pictures/interrupt.svg": interrupt,
    "pictures/branches.svg": branches,
    "pictures/layers.svg": layers,
    "pictures/compiling.svg": compiling,
    "pictures/request.svg": request,
    "pictures/crash.svg": crash,
    "pictures/rejoining.svg": rejoining,
    "pictures/review.svg": review,
    "pictures/terminal.svg": terminal,
}
"""File name → what draws it."""
