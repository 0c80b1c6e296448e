"""Pages that a server without tokens lets change something: those of this machine, told by the whole origin."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from graphflow.errors import GraphflowError
from graphflow.server import cors


def request_from(origin: str) -> Request:
    return Request({"type": "http", "method": "POST", "headers": [(b"origin", origin.encode("latin-1"))]})


def may_call(origin: str) -> bool:
    try:
        cors.check(request_from(origin), ())
    except GraphflowError as refused:
        return refused.code != "forbidden"
    return True


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:5173",
        "https://localhost",
        "http://127.0.0.1:8000",
        "http://[::1]:3000",
        "http://[::1]",
        "http://LOCALHOST",
    ],
)
def test_a_page_of_this_machine_may_call(origin: str):
    assert may_call(origin)


@pytest.mark.parametrize(
    "origin",
    [
        "http://[::1].evil.example", "http://[::1].evil.example:80", "http://[::1]evil.example", "http://127.0.0.1.evil.example",
        "http://localhost.evil.example", "http://evil.example", "http://localhost@evil.example", "http://evil.example@localhost",
        "http://[::1", "http://::1", "http://[localhost]", "http://127.1", "http://2130706433", "http://0.0.0.0",
        "http://[::1]:80:80", "http://localhost/evil", "http://localhost?evil", "http://localhost#evil", "http://localhost\\evil",
        "http://[::1%25eth0]", "http://[::1]\t.evil.example", "null", "", "localhost", "//localhost", "http://", "http:localhost",
        "http://localhost http://evil.example", "http://evil.example, http://localhost",
    ],
)  # fmt: skip
def test_a_page_of_elsewhere_may_not_however_its_origin_is_written(origin: str):
    assert not may_call(origin)
