"""An agent that uses a tool of an MCP server: `pip install 'graphflow[mcp]' mcp-server-time`.

The server is the folder `examples/mcp`, in its `graphflow.toml`. graphflow starts it when the first run needs it, and
records with the run what the server offers.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from graphflow.events import ToolResultEvent, ToolStart
from graphflow.service.application import Application
from graphflow.settings import load_settings

FOLDER = Path(__file__).parent / "mcp"
QUESTION = 'Call time__get_current_time {"timezone": "Asia/Tokyo"}'
"""In the words of the scripted model, which answers without a key; any other understands "What time is it in Tokyo?"."""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # A copy, so that the store and the transcripts of this example leave nothing behind.
        shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
        async with Application(load_settings(folder)) as app:
            graph = await app.ready_graph("demo_mcp")
            print("the server offers", ", ".join(app.tools.of_server("time")))
            async for event in graph.stream(QUESTION, "clock"):
                if isinstance(event, ToolStart):
                    print("calls", event.tool_name)
                elif isinstance(event, ToolResultEvent):
                    print("gets", event.result[:26], "…")
            state = await graph.thread("clock").state()
            print(state.values["messages"][-1].text.splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())
