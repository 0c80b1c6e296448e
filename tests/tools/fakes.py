"""A node context for tool tests: keeps records and answers in dicts, like a thread that can be entered again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from graphflow.errors import BudgetExceeded
from graphflow.graph.engine.operation_keys import OperationKeys
from graphflow.messages import ToolCall
from graphflow.tools.context import RunnerContext, ToolContext

NOON_IN_SHANGHAI_MS = 1_706_673_600_000
"""2024-01-31T12:00:00+08:00."""


class Waiting(BaseException):
    """The node is left: nobody has answered yet."""


class FakeContext:
    """One node run. `entered_again()` is the same node after a restart: records and answers stay."""

    thread_id = "thread-1"
    run_id = "run-1"

    def __init__(self, answers: Mapping[str, Any] | None = None, *, budget: int | None = None) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.answers = dict(answers or {})
        self.budget = budget
        self.asked: list[dict[str, Any]] = []
        self.events: list[tuple[Any, ...]] = []
        self.used: set[str] = set()
        self.kept: dict[str, Any] = {}
        self.keys = OperationKeys()
        self.before: set[str] = set()
        """Keys of the questions that an earlier entry asked."""

    def entered_again(self, answers: Mapping[str, Any] | None = None) -> FakeContext:
        again = FakeContext({**self.answers, **(answers or {})}, budget=self.budget)
        again.records, again.kept = self.records, self.kept
        again.before = self.before | {str(question["key"]) for question in self.asked}
        return again

    def keep(self, notes: Mapping[str, Any]) -> None:
        self.kept |= notes

    def now_ms(self) -> int:
        return NOON_IN_SHANGHAI_MS

    def idempotency_key(self, key: str) -> str:
        return f"key-of-{key}"

    def call_key(self, call_id: str) -> str:
        return self.keys.of_call(call_id)

    def recorded(self, key: str) -> bool:
        return key in self.records or key in self.before

    def charge_tool_call(self, key: str | None = None, *, counted: bool = False) -> None:
        if self.budget is not None and not counted:
            if self.budget == 0:
                raise BudgetExceeded("no tool call is left")
            self.budget -= 1

    async def step(self, name: str, fn: Callable[[], Awaitable[Any]], **facts: Any) -> Any:
        assert name not in self.used, f"the key {name!r} was used twice"
        self.used.add(name)
        if name not in self.records:
            value = await fn()
            self.records[name] = {"value": msgspec.json.decode(msgspec.json.encode(value)), **facts}
        return self.records[name]["value"]

    async def ask(self, message: str, **question: Any) -> Any:
        self.asked.append({"message": message, **question})
        if question["key"] not in self.answers:
            raise Waiting
        return self.answers[question["key"]]

    async def tool_progress(self, call_id: str, data: Any) -> None:
        self.events.append(("progress", call_id, data))

    async def tool_result(self, call_id: str, text: str, action: bool = False, param: Any = None) -> None:
        self.events.append(("action", call_id, param, text) if action else ("result", call_id, text))

    def source(self, facts: dict[str, Any]) -> None:
        self.events.append(("source", facts))


def as_call_context(fake: FakeContext) -> RunnerContext:
    """For the type checker: the fake is a whole `RunnerContext`."""
    return fake


def call(name: str, arguments: Any = None, call_id: str = "call-1") -> ToolCall:
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return ToolCall(id=call_id, name=name, arguments=text)


def tool_context(results: Mapping[str, Any] | None = None, progress: list[Any] | None = None) -> ToolContext:
    async def keep(data: Any) -> None:
        if progress is not None:
            progress.append(data)

    return ToolContext(
        call_id="call-1",
        tool_name="some_tool",
        thread_id="thread-1",
        run_id="run-1",
        idempotency_key="key",
        results=results or {},
        now_ms=lambda: NOON_IN_SHANGHAI_MS,
        progress=keep,
    )


class FakeTime:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
