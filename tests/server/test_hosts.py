"""Which names the server answers to: no page may point its own name at it and read (spec 3.5, DNS rebinding)."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.errors import DefinitionError
from graphflow.server.app import create_app
from tests.server.conftest import serving
from tests.server.test_users import OPS, with_tokens
from tests.service.conftest import make_application

OURS = ("localhost", "LOCALHOST:8080", "app.localhost", "127.0.0.1:8080", "192.168.1.7", "[::1]:8080", "localhost.")
FOREIGN = (
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "a@localhost",
    "0x7f.1",
    "",
)


def allowing(folder: Path, *hosts: str) -> None:
    (folder / "graphflow.toml").write_text(f"[settings.server]\nallowed_hosts = {list(hosts)}", encoding="utf-8")


async def test_without_tokens_only_names_of_this_machine_and_addresses_are_served(folder: Path) -> None:
    async with serving(make_application(folder)) as (client, _):
        for method, path in (
            ("GET", "/api/chats"), ("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json"), ("HEAD", "/"), ("GET", "/none"),
            ("OPTIONS", "/api/query"), ("POST", "/api/query"), ("DELETE", "/api/threads/x"), ("GET", "/metrics"),
        ):  # fmt: skip
            for host in OURS:
                assert (await client.request(method, path, headers={"Host": host})).status_code != 421, (method, host)
            for host in FOREIGN:
                refused = await client.request(method, path, headers={"Host": host})
                assert refused.status_code == 421, (method, path, host)
                if method != "HEAD":
                    error = refused.json()["data"]["error"]
                    assert error["code"] == "host_not_allowed" and "server.allowed_hosts" in error["message"]
        for path in ("/api/health", "/api/ready"):
            assert (await client.get(path, headers={"Host": "evil.example"})).status_code == 200


async def test_listed_names_are_served_with_and_without_tokens(folder: Path) -> None:
    allowing(folder, "graphflow.internal", "*.example.com")
    for app in (make_application(folder), with_tokens(folder)):
        async with serving(app) as (client, _):
            for host, served in (
                ("graphflow.internal:443", True), ("Chat.Example.com", True), ("a.b.example.com", True), ("localhost", True),
                ("example.com", False), ("evil-example.com", False), ("other.internal", False),
            ):  # fmt: skip
                answer = await client.get("/api/chats", headers={"Host": host, **OPS})
                assert answer.status_code == (200 if served else 421), host


async def test_with_tokens_and_no_list_every_name_is_served(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        for host in ("evil.example", "localhost"):
            assert (await client.get("/api/chats", headers={"Host": host, **OPS})).status_code == 200


def test_a_list_with_something_else_than_host_names_is_refused(folder: Path) -> None:
    allowing(folder, "https://app.example.com/")
    with pytest.raises(DefinitionError, match="server.allowed_hosts"):
        create_app(make_application(folder))
