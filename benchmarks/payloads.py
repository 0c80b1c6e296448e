"""What the workloads write: texts and tool calls, the same bytes for every system."""

from __future__ import annotations

import random
import uuid
from typing import Any, NamedTuple

KIB = 1024


def text(size: int, seed: int = 0) -> str:
    """Exactly `size` characters of made-up words, the same for the same seed; hardly compressible."""
    source = random.Random(seed)
    words: list[str] = []
    length = 0
    while length < size:
        word = "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9)))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


class Call(NamedTuple):
    """One tool call of the scripted model."""

    id: str
    query: str


class Script(NamedTuple):
    """What the model of `react` says: these calls, one a turn, then the answer."""

    tool: str
    calls: list[Call]
    answer: str

    def content_bytes(self) -> int:
        """Characters of message content that one run adds: arguments, results, the answer."""
        return sum(len(call.query) + len(tool_result(call.query)) for call in self.calls) + len(self.answer)


def script(calls: int) -> Script:
    """The payload sizes of LangGraph's own `react_agent_Nx` benchmark: 3.6 KB a call, 36 KB a result, 600 B the answer."""
    source = random.Random(7)

    def identity() -> str:
        return str(uuid.UUID(int=source.getrandbits(128)))

    return Script("search", [Call(identity(), identity() * 100) for _ in range(calls)], "answer" * 100)


def tool_result(query: str) -> str:
    return f"result for query: {query}" * 10


class Chat:
    """Messages of one KiB for the growth workloads; with tools a turn is user, call, result, answer."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.turns: int = params["turns"]
        self.tools: bool = params["tools"]
        self._texts = [text(KIB, seed) for seed in range(64)]

    @property
    def per_turn(self) -> int:
        return 4 if self.tools else 2

    @property
    def messages(self) -> int:
        return self.turns * self.per_turn

    def text(self, number: int) -> str:
        """The content of message `number` of the thread."""
        return self._texts[number % 64]
