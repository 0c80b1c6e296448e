"""The start page and the API docs: they answer at the printed address, work offline, and trust nothing that they show."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.openapi.utils import get_openapi

from graphflow.server import openapi
from graphflow.server.api_docs import api_docs
from graphflow.server.routes import pages
from tests.server.conftest import frames, serving
from tests.server.test_users import ANN, with_tokens
from tests.service.conftest import make_application

PAGES = ("/", "/docs")
HOSTILE = """<script>alert(1)</script>"' onload=x &lt; </td></table>"""


class Page(HTMLParser):
    """The elements, addresses, texts and commands of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()
        self.commands: list[str] = []
        self.text = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self._open = tag
        for name, value in attrs:
            assert not name.startswith("on") and name != "style", f"<{tag} {name}>"
            if name in ("href", "src", "action"):
                self.addresses.append(value or "")
            if name == "id":
                self.anchors.add(value or "")
        if tag == "pre":
            self.commands.append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open == "pre":
            self.commands[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_answers_and_refers_to_no_other_host(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.elements.isdisjoint({"script", "iframe", "object", "embed", "form", "base", "img"})
    own = str(client.base_url).rstrip("/")
    assert set(re.findall(r"\bhttps?://[^\s/'\"<&]+", answer.text)) == {own}
    for address in page.addresses:
        assert address.startswith("#") or re.match(r"[a-z./]+$", address) or address == "data:,", address
        if not address.startswith(("#", "data:")):
            assert (await client.get(f"/{address}")).status_code == 200, address
        elif address.startswith("#"):
            assert address[1:] in page.anchors, address


@pytest.mark.parametrize("path", PAGES)
async def test_a_browser_is_told_to_load_and_run_nothing(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert rules["default-src"] == "'none'" and "script-src" not in rules
    assert rules["style-src"] == f"'sha256-{digest}'", "the style sheet is the one that the browser may use"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PAGES)
async def test_head_answers_as_get_does_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    whole, head = await client.get(path), await client.head(path)
    assert head.status_code == 200 and head.content == b""
    assert head.headers["content-length"] == whole.headers["content-length"]


async def test_the_start_page_lists_the_agents_and_its_command_starts_a_run(client: httpx.AsyncClient) -> None:
    page = Page((await client.get("/")).text)
    for agent in (await client.get("/api/agents")).json()["data"]:
        assert agent["key"] in page.text and agent["name"] in page.text
    (command,) = page.commands
    curl, stream, url, flag, body = shlex.split(command)
    assert (curl, stream, flag) == ("curl", "-N", "-d")
    async with client.stream("POST", url, content=body) as response:
        _, first = await anext(frames(response))
    assert (first["type"], first["message"]) == ("request.query", "Hello")


async def test_what_an_agent_s_file_says_is_text_and_no_markup(folder: Path) -> None:
    agent: dict[str, Any] = {"mode": "PLAIN", "name": HOSTILE, "description": HOSTILE, "plain": {"systemPrompt": "x"}}
    (folder / "graphs" / "aa.json").write_text(json.dumps(agent), encoding="utf-8")
    async with serving(make_application(folder)) as (client, _):
        assert (await client.get("/api/agent", params={"agentKey": "aa"})).json()["data"]["name"] == HOSTILE
        text = (await client.get("/")).text
    page = Page(text)
    assert "script" not in page.elements and "<script" not in text
    assert page.text.count(HOSTILE) == 2


@pytest.mark.parametrize("host", ["evil.example/<script>", "a'; rm -rf $HOME #", '"><script>alert(1)</script>'])
async def test_a_host_header_that_is_no_host_is_not_shown(folder: Path, host: str) -> None:
    async with serving(with_tokens(folder)) as (client, _):  # without tokens it is refused
        for path in PAGES:
            answer = await client.get(path, headers={"host": host})
            commands = Page(answer.text).commands
            assert answer.status_code == 200 and commands
            assert all(f"'{str(client.base_url).rstrip('/')}" in command for command in commands)


async def test_with_tokens_the_pages_show_nothing_that_needs_one(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        agents = (await client.get("/api/agents", headers=ANN)).json()["data"]
        page = Page((await client.get("/")).text)
        assert all(agent["key"] not in page.text and agent["description"] not in page.text.split() for agent in agents)
        assert "Authorization: Bearer $GRAPHFLOW_TOKEN" in page.commands[0]
        docs = Page((await client.get("/docs")).text)
        assert sum("Authorization" in command for command in docs.commands) == len(docs.commands) - 2, "but the probes"


async def test_the_docs_have_every_route_with_its_parameters_fields_and_a_command_that_names_them(
    client: httpx.AsyncClient,
) -> None:
    document = (await client.get("/openapi.json")).json()
    page = Page((await client.get("/docs")).text)
    operations = [(m, path, op) for path, methods in document["paths"].items() for m, op in methods.items()]
    assert len(page.commands) == len(operations) > 30
    for (method, path, operation), command in zip(operations, page.commands, strict=True):
        assert f"{method.upper()} {path}" in page.text
        words = shlex.split(command)
        assert words[0] == "curl"
        for parameter in operation.get("parameters", ()):
            assert parameter["name"] in page.text
            if parameter["required"] and parameter["in"] == "query":
                assert f"{parameter['name']}=" in command
    for schema in document["components"]["schemas"].values():
        assert all(field in page.text for field in schema.get("properties", ()))


async def test_what_takes_a_moment_to_render_is_rendered_off_the_event_loop(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noted(made: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            threads.append(threading.get_ident())
            return made(*args, **kwargs)

        return call

    await client.get("/api/health")  # by its first answer the client of the tests learns what answers look like
    monkeypatch.setattr(pages, "api_docs", noted(api_docs))
    monkeypatch.setattr(openapi, "get_openapi", noted(get_openapi))
    for path in ("/openapi.json", "/docs"):
        assert (await client.get(path)).status_code == 200
    assert len(threads) == 2 and threading.get_ident() not in threads


async def test_the_command_that_answers_names_what_it_answers(client: httpx.AsyncClient) -> None:
    """Either id may be given, one must; a command without both could only fail."""
    page = Page((await client.get("/docs")).text)
    command = next(command for command in page.commands if "/api/submit" in command)
    assert json.loads(shlex.split(command)[-1]).keys() == {"chatId", "runId", "interruptId", "payload"}
