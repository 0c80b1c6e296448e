"""What the tools that write have in common: a planned change, the write itself, and what is kept to take it back.

A change is planned from the file as it is, before the intent of the write is recorded, as the intent says how to take it
back. It is carried out if the file is still the same.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphflow.content import LARGE_BYTES, FilePart
from graphflow.messages import ToolMessage
from graphflow.tools.coding.diff import preview
from graphflow.tools.coding.file_tool import PATH, checked_path, coding_tool, find, printable, resolved
from graphflow.tools.coding.locks import check_lock, forget_content, note_content
from graphflow.tools.coding.snapshot import Snapshot, take_snapshot
from graphflow.tools.context import ThreadNotes, ToolContext
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult
from graphflow.tools.run_in_thread import owner_of, run_in_thread
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.homes import Workspaces

MOST_PLANS, MOST_PLANNED_BYTES = 4, 4_000_000
"""Plans that are kept until their writes act, and the largest of them; what is not kept is made again."""
MAX_KEPT_BYTES = 10_000_000
"""Largest content that is kept to take a change back."""
UNDO_TOOL = "restore_file"
WRITTEN: dict[str, Any] = {
    "path": PATH,
    "dry_run": {"type": "boolean", "description": "Show what would change, and change nothing"},
    "expected_mtime_ms": {"type": "integer", "description": "Refuse the change if the file has another time"},
    "expected_size_bytes": {"type": "integer", "description": "Refuse the change if the file has another size"},
}
"""Parameters of every tool that writes."""
_OMISSION = re.compile(
    r"(rest of (the )?(file|code|function)|existing code|remaining code|unchanged code|previous code)"
    r"|\.\.\. ?(unchanged|rest|same as|existing)",
    re.IGNORECASE,
)
# A write compares and swaps: two threads of this process must not both compare first.
_SWAPS = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, kw_only=True)
class Change:
    """One file, before and after."""

    path: str
    before: Snapshot | None
    """None: nothing is there."""
    data: bytes
    old: str
    new: str
    """The text before and after, for the preview."""
    replacements: int | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content after."""
        return hashlib.sha256(self.data).hexdigest()


Plan = Callable[[Workspace, Mapping[str, Any], ThreadNotes], Change]
"""The change that a call asks for; raises `FileRefused`."""


class MadePlans:
    """Plans made before the intent of a write was recorded, for when it acts; that the file is still the same is seen then.

    Args:
        plan: makes one.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[str, Change] = {}

    def make(self, key: str, workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes) -> Change:
        """The plan of the call with this idempotency key, kept until it is taken or a few others were made."""
        change = self._plan(workspace, arguments, notes)
        if len(change.data) <= MOST_PLANNED_BYTES:
            self._made[key] = change
        while len(self._made) > MOST_PLANS:
            self._made.pop(next(iter(self._made), ""), None)
        return change

    def take(self, key: str, workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes) -> Change:
        """The plan that was made for the call, else a new one."""
        return self._made.pop(key, None) or self._plan(workspace, arguments, notes)


def writing_tool(
    workspaces: Workspaces,
    plan: Plan,
    *,
    name: str,
    description: str,
    properties: Mapping[str, Any],
    required: tuple[str, ...],
) -> Tool:
    """A tool that changes one file as planned."""
    plans = MadePlans(plan)

    def work(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        notes = ctx.notes or ThreadNotes()
        return _carried_out(workspace, plans.take(ctx.idempotency_key, workspace, arguments, notes), arguments, notes)

    return coding_tool(
        workspaces,
        work,
        name=name,
        description=description,
        properties={**WRITTEN, **properties},
        required=required,
        effects="write",
        capabilities=("files:write",),
        undo=f"tool:{UNDO_TOOL}",
        recovery=WriteRecovery(workspaces, plans),
    )


def current(
    workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes, *, must_exist: bool
) -> Snapshot | None:
    """The file as it is, if the thread may change it; None where nothing is there.

    Raises:
        FileRefused: it may not be changed.
    """
    path = checked_path(arguments["path"])
    _check_not_of_git(path, path.split("/"))
    try:
        found = find(workspace, path)
    except FileRefused as refused:
        # A new file may have folders that are missing.
        if refused.code != "NOT_FOUND" or must_exist:
            raise
        return None
    _check_not_of_git(path, found.parts)
    name = resolved(workspace, found)
    if found.facts is None:
        if must_exist:
            raise FileRefused("NOT_FOUND", f"{path!r} does not exist in {workspace.root}; Write makes a new file")
        check_lock(notes, name, path, None, arguments)
        return None
    snapshot = take_snapshot(workspace, path)
    check_lock(notes, name, path, snapshot, arguments)
    return snapshot


def _check_not_of_git(path: str, parts: Sequence[str]) -> None:
    # Some file systems drop trailing dots and blanks, and take `.GIT` for the same name.
    if any(part.casefold().rstrip(". ") == ".git" for part in parts):
        raise FileRefused("ACCESS_DENIED", f"{path!r} belongs to git, whose hooks and settings run programs")


def checked_text(name: str, text: str) -> str:
    """A text that a file may hold.

    Raises:
        FileRefused: it has half a character or a NUL.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FileRefused("INVALID_PARAM", f"{name} holds half a character (a lone surrogate)") from None
    if "\0" in text:
        raise FileRefused("INVALID_PARAM", f"{name} holds a NUL character; text files have none")
    return text


def omission_warning(text: str) -> str:
    """A note about a text that says that something was left out."""
    found = next((line for line in text.splitlines() if len(line) < 200 and _OMISSION.search(line)), None)
    return "" if found is None else f" Warning: {found.strip()!r} was written as it is; nothing is filled in for it."


def _carried_out(workspace: Workspace, change: Change, arguments: Mapping[str, Any], notes: ThreadNotes) -> ToolResult:
    dry, new = bool(arguments.get("dry_run")), change.before is None
    if not dry:
        _write(workspace, change)
    found = find(workspace, change.path) if not dry or not new else None
    name = printable(change.path) if found is None else resolved(workspace, found)
    if not dry and found is not None and found.facts is not None:
        note_content(notes, name, found.facts, change.digest)
    shown = preview(change.old, change.new)
    kept = change.before is None or len(change.before.data) <= MAX_KEPT_BYTES
    text = f"{'Would ' if dry else ''}{('create' if new else 'update') + ('' if dry else 'd')} {name!r}"
    text = f"{text[0].upper()}{text[1:]}: {shown.added} lines added, {shown.removed} removed."
    text += " This was a dry run: nothing was written." if dry else ""
    text += " The diff is truncated; Read shows the file." if shown.truncated else ""
    if not kept:
        text += f" The content before is larger than {MAX_KEPT_BYTES:,} bytes: this change can't be undone."
    inserted = [arguments.get("content", ""), arguments.get("new_string", "")]
    text += omission_warning("\n".join([*inserted, *(e.get("new_string", "") for e in arguments.get("edits", ()))]))
    data: dict[str, Any] = {
        "applied": not dry,
        "operation": "create" if new else "update",
        "diff_preview": shown.text,
        "diff_truncated": shown.truncated,
    }
    data |= {"truncated": True} if shown.truncated else {}
    data |= {} if kept else {"undoable": False}
    data |= {} if change.replacements is None else {"replacements": change.replacements}
    return ToolResult(
        status="partial" if dry or shown.truncated else "success",
        data=data,
        text=text,
        stats={
            "bytes_written": 0 if dry else len(change.data),
            "original_size": 0 if change.before is None else len(change.before.data),
            "new_size": len(change.data),
            "lines_added": shown.added,
            "lines_removed": shown.removed,
        },
        context={"path_resolved": name},
    )


def _write(workspace: Workspace, change: Change) -> None:
    if change.before is None:
        folder = change.path.rpartition("/")[0]
        if folder:
            workspace.make_folder(folder)
    with _SWAPS[hash((str(workspace.root), change.path)) % len(_SWAPS)]:
        expected = None if change.before is None else change.before.digest
        workspace.write(change.path, change.data, replace=change.before is not None, expected=expected)


class WriteRecovery:
    """What a write keeps: the content before, or that there was none, and the digest of the content after."""

    def __init__(self, workspaces: Workspaces, plans: MadePlans) -> None:
        self._workspaces, self._plans = workspaces, plans

    async def before(self, arguments: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """`{path, after, before?}`; `{}` for a call that writes nothing."""
        notes = ctx.notes or ThreadNotes()
        try:
            workspace = (await self._workspaces.of(ctx.thread_id)).workspace
            owner, key = owner_of(ctx.starter, ctx.thread_id), ctx.idempotency_key
            return await run_in_thread(owner, self._kept, key, workspace, arguments, notes)  # type: ignore[no-any-return]
        except FileRefused:  # the call says why
            return {}

    def _kept(self, key: str, workspace: Workspace, arguments: Mapping[str, Any], notes: ThreadNotes) -> dict[str, Any]:
        if arguments.get("dry_run"):
            return {}
        change = self._plans.make(key, workspace, arguments, notes)
        kept: dict[str, Any] = {"path": change.path, "after": change.digest}
        before = change.before
        if before is None:
            return kept
        kept["before"] = {"digest": before.digest, "mode": before.facts.st_mode & 0o7777, "size": len(before.data)}
        if len(before.data) <= MAX_KEPT_BYTES:
            content = ToolMessage(tool_call_id="", content=(FilePart(data=before.data),))
            kept["content"] = content
            # The store has large bytes once for as long as the thread names them.
            if len(before.data) >= LARGE_BYTES and notes.get(f"bytes:{before.digest}") is None:
                notes.put(f"bytes:{before.digest}", content)
        return kept

    async def outcome(self, arguments: Mapping[str, Any], kept: Any, ctx: ToolContext) -> ToolResult | bool | None:
        """By what the file is now: the content after, the content before, or neither."""
        if not kept:
            return False
        workspace = (await self._workspaces.of(ctx.thread_id)).workspace
        owner = owner_of(ctx.starter, ctx.thread_id)
        return await run_in_thread(owner, _outcome, workspace, kept, ctx.notes or ThreadNotes())  # type: ignore[no-any-return]


def digest_now(workspace: Workspace, path: str) -> str | None:
    """SHA-256 of a file; None where nothing is there."""
    try:
        return take_snapshot(workspace, path).digest
    except FileRefused as refused:
        if refused.code == "NOT_FOUND":
            return None
        raise


def _outcome(workspace: Workspace, kept: Mapping[str, Any], notes: ThreadNotes) -> ToolResult | bool | None:
    path = str(kept["path"])
    before = kept["before"]["digest"] if "before" in kept else None
    try:
        now = digest_now(workspace, path)
        if now == before:
            return False
        if now != kept["after"]:
            return None
        found = find(workspace, path)
    except FileRefused:
        return None
    name = resolved(workspace, found)
    if found.facts is not None:
        note_content(notes, name, found.facts, str(kept["after"]))
    operation = "create" if before is None else "update"
    return ToolResult(
        data={"applied": True, "operation": operation, "diff_preview": "", "diff_truncated": False},
        text=f"{name!r} was written before the process ended; the file has the new content.",
        context={"path_resolved": name},
    )


def restore_tool(workspaces: Workspaces) -> Tool:
    """The tool that takes back what a tool of this package wrote; it has no arguments, and only an undo can use it."""

    def work(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        if ctx.undoes is None:
            raise FileRefused(
                "INVALID_PARAM", f"{UNDO_TOOL} only takes back what a write has recorded, and is not called"
            )
        if not ctx.undoes:
            return ToolResult(text="Nothing was written, so nothing is taken back.")
        return _restored(workspace, ctx.undoes, ctx.notes or ThreadNotes())

    return coding_tool(
        workspaces,
        work,
        name=UNDO_TOOL,
        description="Takes back what Write, Edit or MultiEdit did. Used by an undo only; calling it does nothing.",
        properties={},
        effects="write",
        idempotent=True,
        capabilities=("files:write",),
    )


def _restored(workspace: Workspace, kept: Mapping[str, Any], notes: ThreadNotes) -> ToolResult:
    path, before = str(kept["path"]), kept.get("before")
    now = digest_now(workspace, path)
    if now == (before["digest"] if before else None):
        return ToolResult(text=f"{path!r} has the content from before already.")
    if now != kept["after"]:
        raise FileRefused("CONFLICT", f"{path!r} is not what was written: it has changed since, and stays as it is")
    if before is None:
        name = resolved(workspace, find(workspace, path))
        workspace.delete(path)
        forget_content(notes, name)
        return ToolResult(text=f"Removed {path!r}, which had not existed.", context={"path_resolved": name})
    if "content" not in kept:
        raise FileRefused(
            "CONFLICT",
            f"{path!r} had {before['size']:,} bytes, more than the {MAX_KEPT_BYTES:,} that are kept for an undo",
        )
    [part] = kept["content"].content
    workspace.write(path, part.data, expected=now)
    found = find(workspace, path)
    name = resolved(workspace, found)
    if found.facts is not None:
        note_content(notes, name, found.facts, before["digest"])
    return ToolResult(text=f"Restored the content of {path!r} from before.", context={"path_resolved": name})
