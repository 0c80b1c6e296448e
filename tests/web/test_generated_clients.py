"""Clients that two generators make of the OpenAPI document chat, leave and rejoin, and answer a form (spec 3)."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import httpx
import pytest

from tests.needs import need
from tests.server.conftest import serving
from tests.service.conftest import make_application, write_agents

pytestmark = pytest.mark.web
HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".venv" / "web"
"""What `make test-web` installs."""
SAID = ["Once upon a time there was a graph.working hardyesAnd it went on happily.", "204"]
ASKED = ["invalid", "accepted", "run.complete", "Ada", "thread_not_found"]
CONFIG = "package_name_override: graphflow_client\npost_hooks: []\ncontent_type_overrides:\n  text/event-stream: text/plain\n"


async def run(*command: str | Path, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0, f"{command}:\n{out.decode()}"
    return out.decode()


async def document(client: httpx.AsyncClient, folder: Path) -> None:
    page = (await client.get("/openapi.json")).json()
    (folder / "openapi.json").write_text(json.dumps(page), encoding="utf-8")


async def test_the_typescript_client_compiles_strictly_and_does_it_all(tmp_path: Path) -> None:
    node = shutil.which("node")
    bin_ = TOOLS / "node_modules" / ".bin"
    need(node and (bin_ / "tsc").exists(), "node, and the packages that `make test-web` installs")
    assert node is not None
    write_agents(tmp_path)
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    shutil.copy(HERE / "client.mts", tmp_path)
    async with asyncio.timeout(240), serving(make_application(tmp_path)) as (client, server):
        await document(client, tmp_path)
        types = ("openapi.json", "-o", "api.d.ts", "--default-non-nullable", "false")
        await run(bin_ / "openapi-typescript", *types, cwd=tmp_path)
        how = ("--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom,dom.asynciterable")
        await run(bin_ / "tsc", *how, "client.mts", cwd=tmp_path)
        out = await run(node, "client.mjs", server.url, cwd=tmp_path)
    assert out.splitlines() == [*SAID, *ASKED]


async def test_the_python_client_is_generated_whole_and_does_it_all(tmp_path: Path) -> None:
    generator = TOOLS / "bin" / "openapi-python-client"
    need(generator.exists(), "the generator that `make test-web` installs")
    write_agents(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    shutil.copy(HERE / "client.py.txt", tmp_path / "client.py")
    async with asyncio.timeout(240), serving(make_application(tmp_path)) as (client, server):
        await document(client, tmp_path)
        made = ("--path", "openapi.json", "--config", "config.yaml", "--meta", "none", "--fail-on-warning")
        await run(generator, "generate", *made, "--output-path", "graphflow_client", cwd=tmp_path)
        out = await run(TOOLS / "bin" / "python", "client.py", server.url, cwd=tmp_path)
    assert out.splitlines() == [*SAID, *ASKED]
