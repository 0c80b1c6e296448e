"""Standing rules and decisions over HTTP and the command line; kept in the store (spec 8.5)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphflow.runtime.clock_and_ids import SystemClock
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.cli.processes import in_process
from tests.server.conftest import ask, serving, take
from tests.service.conftest import make_application

BASH = {
    "turns": [
        {"tool_calls": [{"name": "bash", "arguments": {"command": "pwd"}, "id": "b1"}]},
        {"text": "Done."},
    ]
}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_a_rule_is_added_listed_used_and_removed_and_outlives_the_server(folder: Path):
    async with serving(make_application(folder, script=BASH)) as (client, _):
        body = {
            "tool": "bash",
            "decision": "allow",
            "args": "args.command == 'pwd'",
            "agentKey": "react",
            "expires": "PT1H",
        }
        added = (await client.post("/api/rules", json=body)).json()["data"]
        assert (added["decision"], added["agentKey"], added["createdBy"]) == ("allow", "react", "local")
        assert added["expiresAt"] == added["createdAt"] + 3_600_000
    async with serving(make_application(folder, script=BASH)) as (client, _):
        assert (await client.get("/api/rules")).json()["data"] == [added]
        seen = await ask(client, agentKey="react", chatId="c")
        assert "interrupt.request" not in kinds(seen.events)
        assert kinds(seen.events)[-1] == "run.complete"
        (decision,) = (await client.get("/api/threads/c/decisions")).json()["data"]
        assert (decision["kind"], decision["decision"], decision["ruleId"]) == ("rule", "allow", added["id"])
        assert decision["ran"] == {"command": "pwd"}
        assert (await client.delete(f"/api/rules/{added['id']}")).json()["data"]["removed"] is True
        assert (await client.delete(f"/api/rules/{added['id']}")).status_code == 404
        assert (await client.get("/api/rules")).json()["data"] == []


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"decision": "approve"}, {"decision": "approve", "ran": {"command": "pwd"}}),
        ({"decision": "edit", "arguments": {"command": "ls"}}, {"decision": "edit", "ran": {"command": "ls"}}),
        ({"decision": "reject", "reason": "no"}, {"decision": "reject", "reason": "no"}),
        ({"decision": "respond", "response": "/x"}, {"decision": "respond"}),
        ({"decision": "terminate", "reason": "stop"}, {"decision": "terminate"}),
    ],
)
async def test_every_decision_of_a_person_is_a_record_of_who_when_what_was_shown_and_what_ran(
    folder: Path, payload: dict[str, Any], expected: dict[str, Any]
):
    async with serving(make_application(folder, script=BASH), token="alice:*:secret-1") as (client, _):
        client.headers["Authorization"] = "Bearer secret-1"
        body = {"message": "hi", "agentKey": "react", "chatId": "c", "stream": False}
        waiting = (await client.post("/api/query", json=body)).json()["data"]
        assert (await client.get("/api/threads/c/decisions")).json()["data"] == []
        submit = {"chatId": "c", "runId": waiting["runId"], "toolId": "b1", "payload": payload}
        assert (await client.post("/api/submit", json=submit)).json()["data"]["accepted"]
        await take(client, "GET", f"/api/runs/{waiting['runId']}/events")
        (decision,) = (await client.get("/api/threads/c/decisions")).json()["data"]
        assert (decision["by"], decision["kind"], decision["toolName"]) == ("alice", "approval", "bash")
        assert decision["shown"]["arguments"] == {"command": "pwd"}
        assert decision["at"] > 0
        assert {key: decision.get(key) for key in expected} == expected
        assert ("ran" in decision) == ("ran" in expected)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tool": "bash", "decision": "perhaps"}, "decision"),
        ({"tool": " ", "decision": "allow"}, "tool"),
        ({"tool": "bahs", "decision": "deny"}, "tool"),
        ({"tool": "bash", "decision": "deny", "agentKey": "raect"}, "agentKey"),
        ({"tool": "bash", "decision": "deny", "threadId": "a b"}, "threadId"),
        ({"tool": "bash", "decision": "allow", "args": "state.x"}, "args"),
        ({"tool": "bash", "decision": "allow", "args": "'text'"}, "args"),
        ({"tool": "bash", "decision": "allow", "expires": "soon"}, "expires"),
        ({"tool": "bash", "decision": "allow", "expires": "2020-01-01T00:00:00Z"}, "expires"),
        ({"tool": "bash", "decision": "allow", "expires": "2090-01-01T00:00:00"}, "expires"),
        ({"tool": "bash", "decision": "allow", "threadId": "t", "agentKey": "a"}, "agentKey"),
        ({"tool": "bash", "decision": "allow", "more": 1}, "more"),
    ],
)
async def test_a_rule_that_is_none_is_refused_with_its_field(folder: Path, body: dict[str, Any], field: str):
    async with serving(make_application(folder)) as (client, _):
        answer = await client.post("/api/rules", json=body)
        assert (answer.status_code, list(answer.json()["data"]["fields"])) == (400, [field])
        assert (await client.get("/api/rules")).json()["data"] == []


async def test_rules_need_their_scopes(folder: Path):
    async with serving(make_application(folder), token="reader:read:secret-1") as (client, _):
        client.headers["Authorization"] = "Bearer secret-1"
        assert (await client.get("/api/rules")).status_code == 200
        assert (await client.post("/api/rules", json={"tool": "bash", "decision": "deny"})).status_code == 403
        assert (await client.delete("/api/rules/x")).status_code == 403


def test_the_command_line_adds_lists_and_removes_rules(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    run = in_process
    added = run("rules", "add", "deny", "bash", "--args", "args.command == 'ls'", "--thread", "t1", "--reason", "no")
    assert added.code == 0, added
    (rule,) = run("rules", "list", "--json").json
    assert (rule["id"], rule["decision"], rule["threadId"], rule["createdBy"]) == (
        added.out.strip(), "deny", "t1", "local",
    )  # fmt: skip
    shown = run("rules").out
    assert "thread t1" in shown and "args.command == 'ls'" in shown
    assert run("rules", "add", "maybe", "bash").code == 2
    assert run("rules", "remove", rule["id"]).code == 0
    assert run("rules", "remove", rule["id"]).code == 2
    assert run("rules", "list", "--json").json == []


async def test_rules_of_another_process_take_effect_here_within_a_second(folder: Path):
    moved = [0.0]

    class Clock(SystemClock):
        def now_ms(self) -> int:
            return 1_700_000_000_000 + round(moved[0] * 1000)

        def monotonic(self) -> float:
            return moved[0]

    async with (
        Application(load_settings(folder, environ={}), clock=Clock()) as one,
        Application(load_settings(folder, environ={}), clock=Clock()) as two,
    ):
        await one.runs.ready()
        await two.runs.ready()
        assert await one.rules.standing() == []
        await two.rules.add(tool="bash", decision="deny", expires="PT2S")
        moved[0] = 1.0
        assert [rule.tool for rule in await one.rules.standing()] == ["bash"]
        moved[0] = 2.0
        assert await one.rules.standing() == []


async def test_rules_that_two_processes_add_in_the_same_moment_are_all_kept(folder: Path):
    async with (
        Application(load_settings(folder, environ={})) as one,
        Application(load_settings(folder, environ={})) as two,
    ):
        await one.runs.ready()
        await two.runs.ready()
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                app = (one, two)[number % 2]
                group.create_task(app.rules.add(tool="bash", decision="ask", reason=f"t{number}"))
        await one.rules.remove("nothing of this id")
        kept = await one.rules.standing()
        assert sorted(rule.reason or "" for rule in kept) == [f"t{number}" for number in range(10)]
        async with asyncio.TaskGroup() as group:
            for number, rule in enumerate(kept):
                group.create_task((one, two)[number % 2].rules.remove(rule.id))
        await one.rules.remove("nothing of this id")
        assert await one.rules.standing() == []
