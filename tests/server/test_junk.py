"""Whatever is sent to whatever route is answered or refused with a code and the place: no 500, and nothing that hangs (spec 3)."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import size
from tests.patience import PATIENCE_S
from tests.server.conftest import serving
from tests.server.test_refusals import (
    NOTHING,
    Call,
    Ids,
    assert_refusal,
    filled,
    operations,
    owned,
    resolved,
    sample,
    send,
)
from tests.server.test_users import OPS, TOKENS
from tests.service.conftest import make_application

ROUNDS = size(4, long=400)
"""Requests to each route."""
TEXTS = (
    "", " ", "\0", "a\0b", "..", "../../etc/passwd", "%2e%2e", "a/b", "\ud800", "🙂" * 3, "x" * 5_000, "null", "true", "-1", "1e999",
    "9" * 400, "${state}", "<script>", "1; DROP TABLE", "00000000-0000-7000-8000-000000000000",
)  # fmt: skip


def junk(draw: random.Random, depth: int = 2) -> Any:
    """JSON of any kind, also what is at the end of what a reader takes."""
    kinds: list[Any] = [
        None, draw.random() < 0.5, draw.randint(-3, 3), 2**63, -(2**63) - 1, 10**40, draw.uniform(-1e300, 1e300), *draw.sample(TEXTS, 6),
    ]  # fmt: skip
    if depth:
        kinds.append([junk(draw, depth - 1) for _ in range(draw.randint(0, 3))])
        kinds.append({draw.choice(TEXTS): junk(draw, depth - 1) for _ in range(draw.randint(0, 3))})
    return draw.choice(kinds)


def junk_call(
    draw: random.Random, method: str, path: str, operation: dict[str, Any], page: dict[str, Any], mine: Ids
) -> Call:
    """A request in which some things are right and at least one is junk."""
    parameters = [p for p in operation.get("parameters", ()) if p["in"] in ("path", "query")]
    content = operation.get("requestBody", {}).get("content", {})
    schema = resolved(content["application/json"]["schema"], page) if "application/json" in content else {}
    fields = schema.get("properties", {})
    given = {
        p["name"]: sample(p["name"], p["schema"], mine) for p in parameters if p["required"] or draw.random() < 0.3
    }
    body = {
        name: sample(name, fields[name], mine)
        for name in fields
        if name in schema.get("required", ()) or draw.random() < 0.3
    }
    wrong = draw.sample(
        [p["name"] for p in parameters] + list(fields), draw.randint(0, min(2, len(parameters) + len(fields)))
    )
    for parameter in parameters:
        if parameter["name"] in wrong:
            given[parameter["name"]] = draw.choice(TEXTS).encode("utf-8", "replace").decode() or "x"
    for name in fields.keys() & set(wrong):
        body[name] = junk(draw)
    call = Call(method, path, ", ".join(wrong), filled(parameters, given, None))
    call.request["path"] = {
        name: value.replace("/", "%2F").replace("\0", "%00").replace("?", "%3F")
        for name, value in call.request["path"].items()
    }
    if fields:
        whole = body if draw.random() < 0.9 else junk(draw)
        text = json.dumps(whole).encode()
        call.request["content"] = text if draw.random() < 0.9 else text[: draw.randint(0, len(text))]
    return call


def words_of(call: Call) -> list[str]:
    """What was wrong in a request: the names of its parts, and their values as far as a message shows them."""
    body = call.request.get("content", b"")
    given = {**call.request["params"], **call.request["path"]}
    try:
        read = json.loads(body) if body else {}
    except ValueError:
        read = {}
    given |= read if isinstance(read, dict) else {}
    return [word for name in call.place.split(", ") for word in (name, str(given.get(name, name))[:20])]


@pytest.mark.campaign
async def test_junk_is_answered_or_refused_with_a_code_and_its_place(folder: Path) -> None:
    (folder / ".env").write_text(f"GRAPHFLOW_TOKENS={TOKENS}\nGRAPHFLOW_TOOLS_HOLD_MS=0\n", encoding="utf-8")
    seen: Counter[int] = Counter()
    mine = NOTHING
    async with serving(make_application(folder)) as (client, _):
        page = (await client.get("/openapi.json")).json()
        for method, path, operation in operations(page):
            for number in range(ROUNDS):
                draw = random.Random(f"{method} {path} {number}")
                if number % 4 == 0:
                    mine = await owned(client, f"chat{seen.total()}", OPS)
                call = junk_call(draw, method, path, operation, page, mine)
                async with asyncio.timeout(PATIENCE_S):
                    response = await send(client, call, OPS)
                seen[response.status_code] += 1
                assert response.status_code < 500, (call, response.text)
                if response.status_code >= 400 and path != "/metrics":
                    code = assert_refusal(response, call, folder)
                    if code == "invalid_input":
                        data = response.json()["data"]
                        named = data.get("fields") or data["error"]["detail"]
                        assert named or any(word in response.text for word in words_of(call)), (call, response.text)
    assert seen[400] >= seen.total() // 5 and seen[200] >= seen.total() // 20, f"it tried next to nothing: {seen}"
