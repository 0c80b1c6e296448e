"""Imports hold the event loop, so a server has done them before it says that it is ready."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
LATE = frozenset({"mmap", "http.cookiejar", "zstandard", "zstandard.backend_c"})
"""Small ones, of libraries, that may come with the first request."""

SERVE = """
import asyncio, json, os, sys, urllib.request

async def main():
    from graphflow.models.scripted.model import ScriptedModel
    from graphflow.models.scripted.script import default_script
    from graphflow.models.scripted.server import ScriptedServer
    from graphflow.server.run import make_server
    from graphflow.service.application import Application
    from graphflow.settings import load_settings

    models = ScriptedServer(ScriptedModel(default_script()))
    await models.start("127.0.0.1", 0)
    provider = {"LLM_PROVIDER": "openai", "LLM_API_KEY": "k", "LLM_BASE_URL": models.url, "LLM_MODEL_ID": "scripted"}
    folder = {"AGENT_EXTERNAL_DIR": sys.argv[1], "AGENT_TOOLS_EXTERNAL_DIR": sys.argv[1] + "/tools"}
    server = make_server(Application(load_settings(environ={**provider, **folder})), port=0)

    def ask(agent):
        body = json.dumps({"agentKey": agent, "message": "What is the weather in Paris?", "stream": False}).encode()
        request = urllib.request.Request(server.url + "/api/query", body, {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.001)
        before = set(sys.modules)
        statuses = {}
        for agent in sys.argv[2:]:
            statuses[agent] = (await asyncio.to_thread(ask, agent))["data"]["status"]
        late = sorted(set(sys.modules) - before)
        server.should_exit = True
    await models.aclose()
    print(json.dumps([statuses, late]))

asyncio.run(main())
"""
AGENTS = (
    "demo_plain", "demo_thinking", "demo_plain_tooling", "demo_thinking_tooling", "demo_react", "demo_plan_execute",
    "demo_react_team",
)  # fmt: skip


def test_a_query_of_every_mode_imports_nothing_after_the_server_is_ready(tmp_path: Path):
    """In a process of its own, over HTTP to the models: tests have imported everything."""
    command = [sys.executable, "-c", SERVE, str(ROOT / "graphs"), *AGENTS]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    statuses, late = json.loads(ran.stdout.decode().splitlines()[-1])
    assert statuses == dict.fromkeys(AGENTS, "completed")
    assert set(late) <= LATE, late
