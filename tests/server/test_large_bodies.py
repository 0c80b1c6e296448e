"""Large bodies: what no library could read without keeping everybody waiting is refused before it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow.json_data import values_in
from tests.server.conftest import serving
from tests.service.conftest import make_application

MOST = 1_000


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({}, 2),
        ([1, [2, 3], {"a": 4, "b": []}], 9),
        ({"text": "a, b [c] {d}, " * 500}, 2),
        ({"text": '\\", "\\\\' * 500, "more": ","}, 3),
        ({",": ["[[[["] * 40}, 42),
        ({"text": "9" * 800}, 2),
        ([int("9" * 40)] * 10, 11 + 10 * 6),
    ],
)
def test_values_are_counted_and_not_what_stands_in_texts(value: Any, count: int) -> None:
    data = json.dumps(value).encode()
    assert values_in(data, 30) == count
    assert values_in(data, 10_000) >= count  # few are not counted exactly


@pytest.mark.parametrize(
    "value", [[1] * MOST, ["x"] * MOST, [[]] * MOST, [{}] * MOST, {f"k{n}": 1 for n in range(MOST)}]
)
async def test_a_large_body_of_too_many_values_is_refused_with_the_setting(folder: Path, value: Any) -> None:
    (folder / ".env").write_text(f"GRAPHFLOW_SERVER_MAX_BODY_VALUES={MOST}", encoding="utf-8")
    async with serving(make_application(folder)) as (client, _):
        given = {"message": "x" * 70_000, "agentKey": "plain", "stream": False}
        refused = await client.post("/api/query", json={**given, "params": {"p": value}})
        assert refused.status_code == 413, refused.text
        error = refused.json()["data"]["error"]
        assert error["code"] == "too_large" and "server.max_body_values" in error["message"]
        small = await client.post("/api/query", json={**given, "message": "x", "params": {"p": value}})
        assert small.status_code == 200, "a small body takes no time, whatever it is made of"
        assert (await client.post("/api/query", json={**given, "message": ", [" * 30_000})).status_code == 200


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"references": [1] * 10_001}, "references: must have at most 10,000 entries"),
        ({"interruptBefore": [1] * 10_001}, "interruptBefore: must have at most 10,000 entries"),
        ({"references": [{"id": "a", "x": 1}] * 2_000}, "body: 2,000 of its values break their rules"),
        ({f"k{n}": 1 for n in range(5_000)}, "has 5,000 unknown fields"),
    ],
)
async def test_thousands_of_errors_are_summed_up(folder: Path, given: dict[str, Any], says: str) -> None:
    async with serving(make_application(folder)) as (client, _):
        refused = await client.post("/api/query", json={"message": "x", "agentKey": "plain", **given})
    assert refused.status_code == 400
    assert len(refused.content) < 5_000 and says in json.dumps(refused.json()), refused.text
