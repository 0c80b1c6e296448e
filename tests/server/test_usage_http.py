"""What was used, over HTTP: per thread, and over all threads by day, agent and model."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.server.conftest import serving
from tests.service.conftest import make_application


async def test_usage_is_told_per_thread_and_over_all(client: httpx.AsyncClient) -> None:
    done = (await client.post("/api/query", json={"agentKey": "plain", "message": "hi", "stream": False})).json()[
        "data"
    ]
    usage = done["usage"]
    assert usage["modelCalls"] == 1 and usage["costUsd"] is None, "the price is not known"
    thread = (await client.get(f"/api/threads/{done['chatId']}")).json()["data"]
    assert thread["usage"] == usage
    cost = (await client.get(f"/api/threads/{done['chatId']}/cost")).json()["data"]
    assert cost["total"] == usage and cost["spent"]["promptTokens"] == usage["promptTokens"]
    told = (await client.get("/api/usage", params={"by": "agentKey,model"})).json()["data"]
    (line,) = told["lines"]
    assert (line["agentKey"], line["model"], line["modelCalls"]) == ("plain", "scripted/scripted", 1)
    assert line["costUsd"] is None and told["total"]["unpricedCalls"] == 1


async def test_a_wrong_question_is_a_bad_argument(client: httpx.AsyncClient) -> None:
    for asked in ({"since": "yesterday"}, {"by": "moon"}):
        response = await client.get("/api/usage", params=asked)
        assert response.status_code == 400 and next(iter(asked)) in response.json()["data"]["fields"]


async def test_a_token_of_one_user_does_not_see_everybodys_usage(folder: Path) -> None:
    tokens = 'tokens = ["ann@ann:read:ann-secret-1", "op:read:op-secret-12"]'
    (folder / "graphflow.toml").write_text(f"[settings.server]\n{tokens}\n", encoding="utf-8")
    async with serving(make_application(folder)) as (client, _):
        status = {}
        for secret in ("ann-secret-1", "op-secret-12"):
            response = await client.get("/api/usage", headers={"Authorization": f"Bearer {secret}"})
            status[secret] = response.status_code
        assert status == {"ann-secret-1": 403, "op-secret-12": 200}
