"""`task_done`: how a model says that the task is finished."""

from __future__ import annotations

from typing import Any

from graphflow.tools.port import tool


@tool(
    effects="none",
    parameters={
        "type": "object",
        "properties": {"finishContent": {"type": "string", "description": "What was achieved, in a few sentences."}},
        "required": ["finishContent"],
        "additionalProperties": False,
    },
)
def task_done(finishContent: str) -> dict[str, Any]:  # noqa: N803 - the wire name
    """Call this once, when the task is finished or can't be taken further."""
    return {"finishContent": finishContent}
