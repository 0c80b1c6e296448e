"""An MCP server of the protocol 2025-11-25 over stdio, written by hand: it starts at once, and breaks rules when it is asked to.

python plain.py [FOLDER]      # files that say what happened to it
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
READS = {"readOnlyHint": True}
TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Gives the text back.", "inputSchema": TEXT, "annotations": READS},
    {"name": "note", "description": "Writes the text down.", "inputSchema": TEXT},
    {"name": "empty", "description": "Has an empty schema.", "inputSchema": {}},
    {"name": "broken", "inputSchema": {"type": 5}},
    {"name": "no schema"},
    *(
        {"name": name, "inputSchema": TEXT}
        for name in ("die", "hang", "grow", "vanish", "mixed", "steps", "ask", "environ", "sample")
    ),
]
asked: dict[str, Any] = {}
"""Id of a request of ours → the call that waits for its answer."""


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: Any, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}], **more}


def mark(name: str, line: str) -> None:
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def call(request: dict[str, Any]) -> dict[str, Any] | None:
    name, given = request["params"]["name"], request["params"].get("arguments", {})
    word = given.get("text", "")
    match name:
        case "echo" | "empty" | "later":
            return text(word or "nothing")
        case "note":
            mark("notes", word)
            return text("noted")
        case "die":
            mark("deaths", word)
            os._exit(3)
        case "hang":
            mark("hanging", word)
            return None
        case "grow":
            TOOLS.append({"name": "later", "description": word, "inputSchema": TEXT})
            send(method="notifications/tools/list_changed")
            return text("grown")
        case "vanish":
            TOOLS[:] = [tool for tool in TOOLS if tool["name"] != "echo"]
            send(method="notifications/tools/list_changed")
            return text("gone")
        case "mixed":
            page = {"uri": "file:///notes/page.txt", "mimeType": "text/plain", "text": "a page"}
            scan = {"uri": "file:///notes/scan.pdf", "mimeType": "application/pdf", "blob": "JVBERi0="}
            blocks = [
                {"type": "text", "text": "see"},
                {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                {"type": "resource", "resource": page},
                {"type": "resource", "resource": scan},
                {"type": "resource_link", "uri": "https://example.com/a", "name": "A"},
                {"type": "hologram", "data": 1},
            ]
            return {"content": blocks, "structuredContent": {"found": 2}}
        case "steps":
            token = request["params"]["_meta"]["progressToken"]
            for step in (1, 2):
                send(
                    method="notifications/progress",
                    params={"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"},
                )
            return text("done")
        case "ask":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            asked["q"] = request
            mark("asked", word)
            send(id="q", method="elicitation/create", params={"message": "Who are you?", "requestedSchema": schema})
            return None
        case "sample":
            asked["s"] = request
            send(id="s", method="sampling/createMessage", params={"messages": [], "maxTokens": 5})
            return None
        case "environ":
            return text({"KEY": os.environ.get("KEY"), "OTHER": os.environ.get("OTHER")})
    return text(f"no tool {name}", isError=True)


def answered(message: dict[str, Any]) -> None:
    request = asked.pop(message["id"])
    send(id=request["id"], result=text(message.get("result") or message["error"]["message"]))


def main() -> None:
    if "--die-at-once" in sys.argv:
        sys.exit(f"can't start: the key {os.environ.get('KEY')} is wrong")
    mark("starts", str(os.getpid()))
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method is None:
            answered(message)
        elif method == "initialize":
            info = {"name": "plain", "version": "1"}
            about = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info,
            }
            send(id=message["id"], result=about)
        elif method == "tools/list":
            send(id=message["id"], result={"tools": TOOLS})
        elif method == "notifications/cancelled":
            mark("cancelled", str(message["params"]["requestId"]))
        elif method == "tools/call":
            if (result := call(message)) is not None:
                send(id=message["id"], result=result)
        elif "id" in message:
            send(id=message["id"], error={"code": -32601, "message": f"no method {method}"})


main()
