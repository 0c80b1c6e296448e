"""`Write`: a whole file, new or in the place of one that the thread has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.tools.coding.change import Change, checked_text, current, writing_tool
from graphflow.tools.coding.text import NEW, text_of
from graphflow.tools.context import ThreadNotes
from graphflow.tools.port import Tool
from graphflow.tools.workspace import Workspace
from graphflow.tools.workspace.homes import Workspaces


def write_tool(workspaces: Workspaces, encodings: Sequence[str] = ()) -> Tool:
    """The tool `Write`; the arguments are those of `read_tool`."""

    def plan(workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes) -> Change:
        content = checked_text("content", arguments["content"])
        before = current(workspace, arguments, notes, must_exist=False)
        old = NEW if before is None else text_of(before.data, encodings)
        # What was no text has no encoding to be kept.
        form = old if old is not None and old.exact else NEW
        return Change(
            path=arguments["path"],
            before=before,
            data=form.encoded(content),
            old="" if old is None else old.text,
            new=content,
        )

    return writing_tool(
        workspaces,
        plan,
        name="Write",
        description="Writes a whole text file, with missing folders. A file that exists must have been read with Read; its mode, "
        "encoding and byte order mark stay. Prefer Edit for small changes.",
        properties={"content": {"type": "string", "description": "All of the file, line ends included"}},
        required=("path", "content"),
    )
