"""`TodoWrite`: the model's list of what is to be done, kept with the thread and shown to readers as its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.tools.coding.file_tool import coding_tool
from graphflow.tools.context import ThreadNotes, ToolContext
from graphflow.tools.function import FunctionBody
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.workspace import Workspace
from graphflow.tools.workspace.homes import Workspaces

MAX_ITEMS, MAX_CHARS = 10, 60
MAX_PENDING, MAX_CANCELLED = 3, 2
"""Items that the recap names."""
_ICONS = {"pending": "[ ]", "in_progress": "[▶]", "completed": "[✓]", "cancelled": "[~]"}
_IN_PLAN = {"pending": "init", "in_progress": "running", "completed": "completed", "cancelled": "canceled"}
NOTE = "todos"


def todo_tool(workspaces: Workspaces) -> Tool:
    """The tool `TodoWrite`."""

    def work(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        return _written(arguments, ctx.notes or ThreadNotes())

    made = coding_tool(
        workspaces,
        work,
        name="TodoWrite",
        description=f"Replaces the list of tasks: at most {MAX_ITEMS}, one of them in progress. Give the whole list each time.",
        properties={
            "summary": {"type": "string", "minLength": 1, "description": "What the tasks are for, in one sentence"},
            "todos": {
                "type": "array",
                "maxItems": MAX_ITEMS,
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {"type": "string", "description": f"At most {MAX_CHARS} characters"},
                        "status": {"enum": list(_ICONS)},
                    },
                    "required": ["content", "status"],
                },
            },
        },
        required=("summary", "todos"),
        effects="none",
    )
    assert isinstance(made.body, FunctionBody)
    in_thread = made.body.function

    async def run(ctx: ToolContext, **arguments: Any) -> ToolResult:
        new = ctx.notes is None or ctx.notes.get(NOTE) is None
        result: ToolResult = await in_thread(ctx, **arguments)
        if result.ok and ctx.show_plan is not None:
            ctx.show_plan([_step(todo) for todo in result.data["todos"]], new=new)
        return result

    return made.changed(body=FunctionBody(run, made.body.signature))


def _step(todo: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "taskId": todo["id"], "title": todo["content"], "description": todo["content"], "status": _IN_PLAN[todo["status"]],
    }  # fmt: skip


def _written(arguments: Mapping[str, Any], notes: ThreadNotes) -> ToolResult:
    summary = arguments["summary"].strip()
    # Ids of the input are ignored: they follow the order of the list.
    todos = [
        {"id": f"t{number}", "content": item["content"].strip(), "status": item["status"]}
        for number, item in enumerate(arguments["todos"], 1)
    ]
    if (wrong := _misfit(summary, todos)) is not None:
        kept = notes.get(NOTE)
        return failed("INVALID_PARAM", wrong, f"The list of before stays: {len(kept or ())} tasks.")
    notes.put(NOTE, todos)
    recap = _recap(todos)
    lines = [f"{_ICONS[todo['status']]} {todo['content']}" for todo in todos] or ["(no tasks)"]
    frame = "-" * 40
    return ToolResult(
        data={"todos": todos, "recap": recap, "summary": summary},
        text="\n".join([frame, summary, *lines, frame, recap]),
        stats={"total": len(todos), **{status: len(_of(todos, status)) for status in _ICONS}},
    )


def _misfit(summary: str, todos: Sequence[Mapping[str, Any]]) -> str | None:
    """The rule that the list breaks."""
    if not summary:
        return "summary is blank; say what the tasks are for"
    for index, todo in enumerate(todos):
        if not todo["content"]:
            return f"todos[{index}].content is blank; say what is to be done"
        if len(todo["content"]) > MAX_CHARS:
            return f"todos[{index}].content has {len(todo['content'])} characters; the limit is {MAX_CHARS}"
    if len(busy := _of(todos, "in_progress")) > 1:
        return f"{len(busy)} tasks are in_progress; at most one is"
    return None


def _recap(todos: Sequence[Mapping[str, Any]]) -> str:
    """`[2/5] In progress: X. Pending: a; b. Cancelled: c.`; empty sections are left out."""
    pending, gone = _of(todos, "pending"), _of(todos, "cancelled")
    ended = len(_of(todos, "completed")) + len(gone)
    busy = _of(todos, "in_progress")
    parts = [f"[{ended}/{len(todos)}] In progress: {busy[0] if busy else 'None'}."]
    if pending:
        parts.append(f"Pending: {'; '.join(pending[:MAX_PENDING])}{' …' if len(pending) > MAX_PENDING else ''}.")
    if gone:
        parts.append(f"Cancelled: {'; '.join(gone[:MAX_CANCELLED])}{' …' if len(gone) > MAX_CANCELLED else ''}.")
    return " ".join(parts)


def _of(todos: Sequence[Mapping[str, Any]], status: str) -> list[str]:
    return [str(todo["content"]) for todo in todos if todo["status"] == status]
