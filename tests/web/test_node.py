"""Node as a client, without a package of ours: its `fetch` reads a run's stream as a page's script would (spec 3.3)."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.needs import need
from tests.server.conftest import serving
from tests.service.conftest import make_application, write_agents

pytestmark = pytest.mark.web
CHAT = """
const [url, body] = process.argv.slice(2);
const answer = await fetch(`${url}/api/query`, {
  method: "POST", headers: { "content-type": "application/json" }, body,
});
let rest = "";
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
  const frames = (rest + text).split("\\n\\n");
  rest = frames.pop();
  for (const frame of frames) {
    const data = frame.split("\\n").find((line) => line.startsWith("data: "));
    if (data) console.log(JSON.parse(data.slice(6)).type);
  }
}
"""


async def test_node_reads_a_stream_to_its_end(tmp_path: Path) -> None:
    node = shutil.which("node")
    need(node, "node")
    assert node is not None
    write_agents(tmp_path)
    (tmp_path / "chat.mjs").write_text(CHAT, encoding="utf-8")
    async with asyncio.timeout(120), serving(make_application(tmp_path)) as (_, server):
        body = json.dumps({"message": "Tell me a story", "agentKey": "story"})
        process = await asyncio.create_subprocess_exec(
            node, str(tmp_path / "chat.mjs"), server.url, body,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    types = out.decode().split()
    assert (types[0], types[-1]) == ("request.query", "run.complete")
    assert "content.delta" in types
