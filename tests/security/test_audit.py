"""The list of decisions says that a call ran only if it was made, and with which arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow import tool
from tests.server.conftest import serving
from tests.service.conftest import make_application

APPROVE = {"decision": "approve"}
DENIED_BY_RULE = 82
ran: list[int] = []


@tool
def pay(amount: int) -> str:
    """Pays."""
    ran.append(amount)
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def headers(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-secret"}


class Asked:
    """A thread whose call waits for two people."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def begin(self) -> None:
        rule = {"tool": "pay", "decision": "deny", "args": f"args.amount == {DENIED_BY_RULE}", "reason": "too much"}
        assert (await self._client.post("/api/rules", json=rule, headers=headers("root"))).status_code == 200
        body = {"message": "go", "agentKey": "payer", "stream": False, "chatId": "c"}
        assert (await self._client.post("/api/query", json=body, headers=headers("ann"))).status_code == 200

    async def decided(self, who: str, answer: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The list after the answer: who, what, and with which amount the call ran."""
        (line,) = (await self._client.get("/api/inbox", headers=headers("root"))).json()["data"]
        body = {"stream": False, "answers": {line["interruptId"]: answer}}
        done = await self._client.post("/api/threads/c/resume", json=body, headers=headers(who))
        assert done.status_code == 200, done.text
        listed = (await self._client.get("/api/threads/c/decisions", headers=headers("root"))).json()["data"]
        return [(each["by"], each["decision"], each.get("ran", {}).get("amount")) for each in listed]


@pytest.fixture
async def asked(tmp_path: Path) -> Any:
    (tmp_path / "graphs").mkdir()
    calls = [{"id": "call-1", "name": "pay", "arguments": {"amount": 81}}]
    document = {
        "graphflow": "1",
        "start": "a",
        "nodes": {"a": {"use": "tools", "with": {"calls": calls}, "next": "end"}},
        "tools": ["pay"],
        "approval": {"pay": {"mode": "REQUIRE_APPROVAL", "count": 2}},
    }
    (tmp_path / "graphs" / "payer.json").write_text(json.dumps(document), encoding="utf-8")
    tokens = ",".join(f"{name}:*:{name}-secret" for name in ("root", "ann", "bob", "eve"))
    (tmp_path / ".env").write_text(f"GRAPHFLOW_TOKENS={tokens}\n", encoding="utf-8")
    async with serving(make_application(tmp_path, tools=[pay])) as (client, _):
        found = Asked(client)
        await found.begin()
        yield found


async def test_while_another_person_is_asked_nothing_ran_and_a_rejection_leaves_it_so(asked: Asked) -> None:
    assert await asked.decided("bob", APPROVE) == [("bob", "approve", None)]
    after = await asked.decided("eve", {"decision": "reject", "reason": "no"})
    assert after == [("bob", "approve", None), ("eve", "reject", None)]
    assert ran == []


async def test_both_have_approved_what_ran(asked: Asked) -> None:
    await asked.decided("bob", APPROVE)
    assert await asked.decided("eve", APPROVE) == [("bob", "approve", 81), ("eve", "approve", 81)]
    assert ran == [81]


async def test_what_ran_is_what_was_edited_last(asked: Asked) -> None:
    await asked.decided("bob", APPROVE)
    edit = {"decision": "edit", "arguments": {"amount": 83}}
    assert await asked.decided("eve", edit) == [("bob", "approve", None), ("eve", "edit", None)]
    after = await asked.decided("bob", APPROVE)
    assert after == [("bob", "approve", 83), ("eve", "edit", 83), ("bob", "approve", 83)]
    assert ran == [83]


async def test_an_approved_call_that_a_rule_denies_did_not_run(asked: Asked) -> None:
    await asked.decided("bob", {"decision": "edit", "arguments": {"amount": DENIED_BY_RULE}})
    after = await asked.decided("eve", APPROVE)
    assert after == [("bob", "edit", None), ("eve", "approve", None), ("root", "deny", None)]
    assert ran == []
