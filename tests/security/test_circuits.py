"""A tool that fails for one person is left alone for that person, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Person, load_graph, tool
from graphflow.tools.running import circuit_breaker
from graphflow.tools.running.circuit_breaker import CircuitBreaker
from tests.tools.fakes import FakeTime


async def test_the_failing_calls_of_one_person_do_not_close_a_tool_to_another() -> None:
    """A person is a user, whatever the token, else a token."""

    @tool(effects="read")
    async def fetch(url: str) -> str:
        if url == "down":
            raise OSError("no")
        return "a page"

    node: dict[str, Any] = {
        "use": "tools",
        "with": {"calls": [{"name": "fetch", "arguments": {"url": "${input.query}"}}]},
        "next": "end",
    }
    state = {"type": "object", "properties": {"texts": {"type": "array", "items": {"type": "string"}, "default": []}}}
    node["set"] = {"texts": "[out.results[0].text]"}
    document = {"graphflow": "1", "state": state, "tools": ["fetch"], "start": "a", "nodes": {"a": node}}
    app = load_graph(document, tools=[fetch])

    async def gets(url: str, by: Person | None) -> bool:
        return "left alone" not in str((await app.run(url, by=by)).state)

    bob, same_bob = Person(name="laptop", user="bob"), Person(name="phone", user="bob")
    assert [await gets("down", by) for by in (bob, same_bob, bob, same_bob)] == [True, True, True, False]
    assert not await gets("up", bob)
    for other in (Person(name="ann"), Person(name="laptop", user="ann"), None):
        assert await gets("up", other)


def test_circuits_are_bounded_however_many_people_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "MOST_CIRCUITS", 3)
    breaker = CircuitBreaker(FakeTime(), threshold=1, recovery_s=10)
    for n in range(4):
        breaker.report(("t", str(n)), failed=True)
    assert [breaker.wait_s(("t", str(n))) for n in range(4)] == [None, 10, 10, 10]
