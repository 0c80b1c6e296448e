"""Every pattern of the package stays linear on text from outside: models, pages, clients and files write what they like.

Measured by the CPU time of the process, with a margin of some hundred times what a linear pattern takes.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import graphflow

LENGTH = 20_000
CPU_S = 1.0
PIECES = (
    "a", "A", "1", " ", "\n", "\t", ".", "-", "_", "/", "'", '"', "`", "```", "{", "{{", "{{1", "[", "(", "#", "$", "\\", "=",
    "a@", "1-", "1 ", "a ", "a.", "a_1", "-1", "+1 ", "1[", "é", "'a", '"a', "```\n", "```json ", "://a", "a://", "sk-a",
    "key=", "password: ", "Bearer ", "eyJ", " a:", "/a", "a/#1", "-----BEGIN A", "//\n", "x(a)", "}{", "1.",
)  # fmt: skip
AT_ONE_PLACE = {
    "graphflow.graph.expressions.growth._IS_READ",
    "graphflow.graph.expressions.parser._TOKEN",
    "graphflow.id_rule._ID",
    "graphflow.runtime.history.provenance._ABOVE",
    "graphflow.runtime.history.replay._WITH_VISIT",
    "graphflow.server.auth._NAMED",
    "graphflow.server.client_addresses._PORT",
    "graphflow.server.cors._ORIGIN",
    "graphflow.tools.running.templates._HEAD",
    "graphflow.tools.running.templates._NAMED",
}
"""Patterns that their users never search with: `match` and `fullmatch` begin at one place instead of at each."""


def in_module(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from in_module(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from in_module(item)


def patterns() -> dict[str, re.Pattern[Any]]:
    found: dict[re.Pattern[Any], str] = {}
    for module in pkgutil.walk_packages(graphflow.__path__, "graphflow."):
        if not module.name.startswith(("graphflow.testing", "graphflow.__main__")):
            for name, value in vars(importlib.import_module(module.name)).items():
                for pattern in in_module(value):
                    found.setdefault(pattern, f"{module.name}.{name}")
    return {f"{name} {pattern.pattern!r:.40}": pattern for pattern, name in found.items()}


PATTERNS = patterns()


def too_slow(*_: object) -> None:
    raise AssertionError(f"more than {CPU_S} s of CPU time for {LENGTH} characters")


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_reads_text_of_twice_the_length_in_twice_the_time(name: str):
    pattern = PATTERNS[name]
    anchored = name.partition(" ")[0] in AT_ONE_PLACE
    before = signal.signal(signal.SIGVTALRM, too_slow)
    try:
        for piece in PIECES:
            for end in ("", "!", "\0"):
                text: Any = piece * (LENGTH // len(piece)) + end
                if isinstance(pattern.pattern, bytes):
                    text = text.encode()
                signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
                pattern.match(text)
                if anchored:
                    if not name.startswith("graphflow.graph.expressions.parser"):
                        pattern.fullmatch(text)
                else:
                    sum(1 for _ in pattern.finditer(text))
                left, _ = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                assert left > 0, (piece, end)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
