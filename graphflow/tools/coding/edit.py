"""`Edit` and `MultiEdit`: exact replacements in a text file that the thread has read; all bytes beside them stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from graphflow.excerpts import excerpt_of
from graphflow.tools.coding.change import Change, checked_text, current, writing_tool
from graphflow.tools.coding.splice import Splice, SplicedText, nearest_lines, splice_of
from graphflow.tools.coding.text import text_of
from graphflow.tools.context import ThreadNotes
from graphflow.tools.port import Tool
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.homes import Workspaces

MAX_EDITS = 1_000
MAX_SEARCHED = 1_000_000_000
"""Characters that the edits of one call look through together."""
EDIT: dict[str, Any] = {
    "old_string": {"type": "string", "description": "The exact text to replace; must occur exactly once"},
    "new_string": {"type": "string", "description": "What takes its place; may be empty"},
    "replace_all": {"type": "boolean", "description": "Replace every occurrence; default false"},
}


def edit_tools(workspaces: Workspaces, encodings: Sequence[str] = ()) -> list[Tool]:
    """The tools `Edit` and `MultiEdit`; the arguments are those of `read_tool`."""

    def edit(workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes) -> Change:
        return _change(workspace, arguments, [arguments], notes, encodings)

    def multi_edit(workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes) -> Change:
        return _change(workspace, arguments, arguments["edits"], notes, encodings)

    each = {
        "type": "object",
        "properties": EDIT,
        "required": ["old_string", "new_string"],
        "additionalProperties": False,
    }
    return [
        writing_tool(
            workspaces,
            edit,
            name="Edit",
            description="Replaces an exact text in a file that was read with Read. old_string must occur exactly once unless "
            "replace_all is true; give more lines around it to tell places apart.",
            properties=EDIT,
            required=("path", "old_string", "new_string"),
        ),
        writing_tool(
            workspaces,
            multi_edit,
            name="MultiEdit",
            description="Makes several exact replacements in one file that was read with Read: all of them or none. Each "
            "old_string is looked for in the file as it is now; places must not overlap.",
            properties={"edits": {"type": "array", "items": each, "minItems": 1, "maxItems": MAX_EDITS}},
            required=("path", "edits"),
        ),
    ]


class EditRefused(FileRefused):
    """An edit that can't be made.

    Args:
        index: its place among those of the call; None where there is only one.
    """

    def __init__(self, message: str, index: int | None) -> None:
        self.data = {} if index is None else {"failed_index": index}
        super().__init__("INVALID_PARAM", message if index is None else f"edits[{index}]: {message}")


def _change(
    workspace: Workspace,
    arguments: Mapping[str, Any],
    edits: Sequence[Mapping[str, Any]],
    notes: ThreadNotes,
    encodings: Sequence[str],
) -> Change:
    path = arguments["path"]
    before = current(workspace, arguments, notes, must_exist=True)
    assert before is not None
    text = text_of(before.data, encodings)
    if text is None:
        raise FileRefused("BINARY_FILE", f"{path!r} is a binary file; only text can be edited")
    if not text.exact:
        raise FileRefused("INVALID_PARAM", f"{path!r} has bytes that are no UTF-8: it is not editable as text")
    if len(edits) * len(text.text) > MAX_SEARCHED:
        raise FileRefused(
            "INVALID_PARAM", f"{len(edits)} edits of {len(text.text):,} characters are too many for one call"
        )
    spliced = SplicedText(text.text)
    found: list[tuple[int, int, Splice, int]] = []
    for number, edit in enumerate(edits):
        index = number if "edits" in arguments else None
        found += [(*place, number) for place in _splices(spliced, edit, index)]
    found.sort(key=lambda each: each[0])
    for (_, end, _, _), (start, _, _, number) in pairwise(found):
        if start < end:
            raise EditRefused("overlaps another edit; join them into one", number)
    new = spliced.replaced(splice for _, _, splice, _ in found)
    return Change(
        path=path, before=before, data=text.encoded(new), old=text.text, new=new, replacements=len(found)
    )  # fmt: skip


def _splices(text: SplicedText, edit: Mapping[str, Any], index: int | None) -> list[tuple[int, int, Splice]]:
    """The replacements of one edit, from left to right, each with where the text that it replaces begins and ends."""
    old = checked_text("old_string", edit["old_string"]).replace("\r\n", "\n")
    new = checked_text("new_string", edit["new_string"]).replace("\r\n", "\n")
    if not old:
        raise EditRefused("old_string is empty; give the text to replace", index)
    if old == new:
        raise EditRefused("old_string and new_string are equal; nothing would change", index)
    places = list(text.places(old))
    if not places:
        near = nearest_lines(text.plain, old)
        shown = "; the nearest lines are:\n" + "\n".join(near) if near else ""
        raise EditRefused(f"old_string occurs 0 times: {excerpt_of(old, 160)}{shown}", index)
    if len(places) > 1 and not edit.get("replace_all"):
        raise EditRefused(
            f"old_string occurs {len(places)} times, and must occur once: give more of its surroundings, or replace_all",
            index,
        )
    model = splice_of(0, old, new)
    return [(at, at + len(old), Splice(at + model.start, at + model.end, model.text)) for at in places]
