"""`mock_ops_runbook`: an invented runbook for an alert, the same for the same arguments."""

from __future__ import annotations

import re
from typing import Any

from graphflow.tools.port import tool
from graphflow.tools.result import ToolResult, failed

# Only commands that the `bash` tool allows: a demo agent goes on to run what is recommended.
_TOPICS = (
    (r"disk|磁盘|硬盘|\bfull\b|no space", "df -h", ["Find the file system that is full.", "Move or remove old logs."]),
    (r"memory|内存|\boom\b|swap", "free -h", ["See what is free.", "Restart what leaks, one instance at a time."]),
    (
        r"cpu|load|slow|负载|卡",
        "top -b -n 1",
        ["Find the process that takes most.", "Lower its traffic, then restart it."],
    ),
)
_OTHERWISE = ("ls", ["Look at the newest logs.", "Compare with the last change that was rolled out."])
_HIGH = re.compile(r"down|outage|crash|data loss|\bfull\b|\boom\b|宕机|崩溃|告警|严重", re.IGNORECASE)
_MEDIUM = re.compile(r"slow|error|timeout|warn|失败|超时|慢", re.IGNORECASE)


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "The alert, or what is wrong, in words."},
            "city": {"type": "string", "description": "Where the machines stand."},
        },
        "required": ["message"],
        "additionalProperties": False,
    },
)
def mock_ops_runbook(message: str, city: str = "Shanghai") -> dict[str, Any] | ToolResult:
    """What to do about an alert. Invented for demonstrations; the command it recommends only looks."""
    text = message.strip()
    if not text:
        return failed("INVALID_PARAM", "message: it is blank", "Say what is wrong.")
    command, steps = next(
        ((command, steps) for pattern, command, steps in _TOPICS if re.search(pattern, text, re.IGNORECASE)), _OTHERWISE
    )
    return {
        "message": text,
        "city": city,
        "riskLevel": "high" if _HIGH.search(text) else "medium" if _MEDIUM.search(text) else "low",
        "recommendedCommand": command,
        "steps": [f"Run `{command}` on the machines in {city}.", *steps, "Tell the team what you found."],
        "mockTag": "mock",
    }
