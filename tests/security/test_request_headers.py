"""`http_request` checks what it is given before anything is sent: a request that can't be sent has no unknown outcome."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from graphflow.http_headers import can_be_sent
from graphflow.tools.builtin.http import HttpPolicy, http_tool
from graphflow.tools.port import ToolResult
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.campaign import size
from tests.tools.fakes import FakeContext, call

MALFORMED = [
    {"X-A": "one\r\nX-B: two"}, {"X-A": "one\ntwo"}, {"X-A": "one\rtwo"}, {"X-A": "\0"}, {"X-A": "a\x1fb"}, {"X-A": "a\x7fb"},
    {"X-A": "grüezi"}, {"X-A": "“quoted”"}, {"X-A": "\ud800"}, {"X-A": "a\tb"}, {"": "value"}, {"X A": "value"}, {"X-A:": "value"},
    {"X-A\r\nX-B": "value"}, {"X-Ä": "value"}, {"X(A)": "value"}, {" X-A": "value"}, {"Fine": "fine", "\ud800": "value"},
]  # fmt: skip


async def ask(port: int, **arguments: Any) -> ToolResult:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    runner = ToolRunner(ToolRegistry([http_tool(HttpPolicy(private_hosts=("good.test",)), resolve)], builtins=()))
    url = f"http://good.test:{port}/"
    # By `json`, which writes half of a surrogate pair as a model may.
    return await runner.run(
        call("http_request", json.dumps({"url": url, "method": "POST", **arguments})), FakeContext()
    )


@pytest.mark.parametrize("headers", MALFORMED, ids=repr)
async def test_a_malformed_header_is_refused_before_anything_is_sent(headers: dict[str, str]):
    reached: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        result = await ask(listening.sockets[0].getsockname()[1], headers=headers)
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"
    assert reached == []


async def test_a_body_that_has_no_bytes_is_refused():
    result = await ask(9, body="half \ud800")
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"


async def test_a_request_that_never_reached_a_server_has_a_known_outcome():
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
    result = await ask(port, body="x")
    assert result.error is not None
    assert result.error.code == "EXECUTION_ERROR"


@pytest.mark.campaign
def test_a_header_that_passes_is_one_that_h11_sends():
    import h11

    draw, passed = random.Random(7), 0
    letters = [
        "a",
        "Z",
        "9",
        "-",
        "_",
        " ",
        "\t",
        ":",
        "\r",
        "\n",
        "\0",
        "é",
        "\ud800",
        "(",
        "~",
        "'",
        "\x85",
        "\u2028",
    ]
    for _ in range(size(2_000, long=200_000)):
        name, value = ("".join(draw.choices(letters, k=draw.randrange(6))) for _ in range(2))
        if can_be_sent(name, value):
            passed += 1
            h11.Request(method="GET", target="/", headers=[("Host", "x"), (name, value)])
    assert passed
