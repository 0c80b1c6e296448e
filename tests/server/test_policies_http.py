"""`GET /api/agent` shows the policies that an agent's runs are held to, and no secret (spec 3.1)."""

from __future__ import annotations

import json
from pathlib import Path

from graphflow import tool
from tests.server.conftest import serving
from tests.service.conftest import make_application

AGENT = {
    "mode": "REACT", "tools": ["send_mail", "look"], "approval": {"send_mail": "REQUIRE_APPROVAL"},
    "budget": {"maxModelCalls": 7}, "react": {"systemPrompt": "Help."},
}  # fmt: skip
GRAPH = {
    "graphflow": "1", "start": "a", "interruptBefore": ["b"],
    "nodes": {
        "a": {"use": "tool:look", "next": "b"},
        "b": {"graph": {"graphflow": "1", "start": "c", "nodes": {"c": {"use": "tool:send_mail", "with": {"text": "x"}, "next": "end"}}}, "next": "end"},
    },
}  # fmt: skip


@tool(undo="tool:look", approval_hint="It can't be taken back.")
async def send_mail(text: str) -> str:
    return text


@tool(effects="read")
async def look() -> str:
    return "seen"


async def test_an_agent_shows_effects_approvals_budgets_and_limits(folder: Path) -> None:
    for key, document in (("mailer", AGENT), ("nested", GRAPH)):
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / ".env").write_text("GRAPHFLOW_SERVER_MAX_RUNS=9\nOPENAI_API_KEY=sk-very-secret\n", encoding="utf-8")
    async with serving(make_application(folder, tools=[send_mail, look])) as (client, _):
        answer = await client.get("/api/agent?agentKey=mailer")
        assert "sk-very-secret" not in answer.text
        policies = answer.json()["data"]["policies"]
        named = {line["name"]: line for line in policies["tools"]}
        mail = {
            "effects": "write",
            "idempotent": False,
            "undo": "tool:look",
            "approval": "REQUIRE_APPROVAL",
            "asks": True,
            "capabilities": [],
            "by": "anyone",
            "count": 1,
        }
        assert named["send_mail"] == {"name": "send_mail", **mail}
        assert (named["look"]["effects"], named["look"]["approval"], named["look"]["asks"]) == ("read", "AUTO", False)
        assert policies["budget"]["maxModelCalls"] == 7 and policies["limits"]["maxRuns"] == 9
        assert {"budget", "params", "interruptBefore"} <= set(policies["request"]) and "model" not in policies[
            "request"
        ]
        assert "maxModelCalls" in policies["requestBudget"]
        nested = (await client.get("/api/agent?agentKey=nested")).json()["data"]["policies"]
        assert [(line["name"], line["asks"]) for line in nested["tools"]] == [("look", False), ("send_mail", True)]
        assert nested["interruptBefore"] == ["b"]
