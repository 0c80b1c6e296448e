"""The page that the guide shows, in a real browser: chats, rejoins after a reload, shows a form, approves (spec 3)."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.needs import need
from tests.server.conftest import serving
from tests.service.conftest import AGENTS, TURNS, Gate, make_application, write_agents
from tests.web.test_generated_clients import HERE, TOOLS, run

pytestmark = pytest.mark.web
GUIDE = HERE.parents[1] / "docs" / "http.md"
LEAVE = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["kind", "days"],
}
FORM = {
    **AGENTS["ask"],
    "state": {"type": "object", "properties": {"leave": {"type": "object", "default": {}}}},
    "result": "state.leave",
    "nodes": {"who": {"ask": {"message": "Which leave?", "schema": LEAVE}, "set": {"leave": "answer"}, "next": "end"}},
}
BASH = {"match": "folder", "steps": [{"tool": "bash", "arguments": {"command": "echo hi"}}], "answer": "Done."}


def page() -> str:
    found = re.search(r'```html title="chat.html"\n(.*?)```', GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_page_has_at_most_forty_lines_of_javascript() -> None:
    script = re.search(r"<script[^>]*>\n(.*?)</script>", page(), re.DOTALL)
    assert script is not None and len(script[1].splitlines()) <= 40


async def test_the_page_of_the_guide_works_in_a_browser(tmp_path: Path) -> None:
    node, chrome = shutil.which("node"), shutil.which("chromium") or shutil.which("google-chrome")
    need(node and chrome and (TOOLS / "node_modules").exists(), "node, chromium and what `make test-web` installs")
    assert node is not None and chrome is not None
    write_agents(tmp_path)
    (tmp_path / "graphs" / "form.json").write_text(json.dumps(FORM), encoding="utf-8")
    (tmp_path / "chat.html").write_text(page(), encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    shutil.copy(HERE / "browser.mjs", tmp_path)
    gate, mark = Gate(), tmp_path / "opened"
    gate.close()
    gate.open(7)  # the reasoning and the first words of the text

    async def opener() -> None:
        while not mark.exists():  # the browser's process says so by a file
            await asyncio.sleep(0.02)
        gate.open()

    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        waits = group.create_task(opener())
        script = {"rules": [BASH, {"match": "story", "turn": TURNS[0]}]}
        async with serving(make_application(tmp_path, gate=gate, script=script)) as (_, server):
            what = (server.url, chrome, "chat.html", tmp_path / "profile", mark)
            try:
                out = await run(node, "browser.mjs", *map(str, what), cwd=tmp_path)
            finally:
                waits.cancel()
    story, *rest = out.splitlines()
    assert (
        story
        == "Tell me a story Once upon a time there was a graph. working hard yes Once upon a time there was a graph."
    )
    assert rest == ["refused", "answered", "approved"]
