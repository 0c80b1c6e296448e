"""Files that users upload: kept under their chat, announced in its next run, referred to by id (spec 3.3).

A chat's folder holds each file under its id, with its facts beside it in `ID.json`; a file is there once its facts are.
`ID.new` marks a file that no run has announced; it contains the id of the run that is about to. So a crash neither loses
an event nor sends it twice: a run that the store does not know, or that waits for its turn, has announced nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from graphflow.errors import GraphflowError
from graphflow.events import RequestUpload
from graphflow.id_rule import is_id
from graphflow.memory.chat_files import file_stem
from graphflow.service.access import LOCAL, Caller, claim
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import find_queued
from graphflow.service.requests import bad_argument, unknown_chat

BLOCK = 1 << 20
LONGEST_NAME = 255
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_OWN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIME = re.compile(r"[A-Za-z0-9.+-]{1,64}/[A-Za-z0-9.+-]{1,127}")
_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Upload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The facts of a file that is kept."""

    id: str
    request_id: str
    type: str
    """`image`, `audio`, `video` or `file`, or what the client calls it."""
    name: str
    """The last part of the client's file name."""
    size_bytes: int
    mime_type: str
    sha256: str

    def facts(self) -> dict[str, Any]:
        """As `request.upload` sends them."""
        out: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in out.items() if name not in ("id", "requestId")}

    def reference(self) -> dict[str, Any]:
        """As a query's reference names them."""
        return {"id": self.id, **self.facts()}


async def upload(
    context: ServiceContext,
    file: BinaryIO,
    *,
    name: str,
    mime_type: str | None = None,
    kind: str | None = None,
    chat_id: str | None = None,
    request_id: str | None = None,
    caller: Caller = LOCAL,
) -> tuple[str, Upload]:
    """Keeps a file; the chat's id, and its facts.

    Args:
        chat_id: a new chat's when None.

    Raises:
        GraphflowError: `invalid_input`, `thread_not_found`, `too_large`; nothing is kept.
    """
    if not chat_id:
        chat_id = context.ids.new_id()
    elif not is_id(chat_id) and await context.store.thread(chat_id) is None:
        raise unknown_chat(chat_id)
    if kind is not None and not _WORD.fullmatch(kind):
        raise bad_argument("type", f"{kind!r:.80} must be 1 to 64 letters, digits, '.', '_' and '-'")
    upload_id = context.ids.new_id()
    name = plain_name(name)
    mime_type = mime_type if mime_type and _MIME.fullmatch(mime_type) else mimetypes.guess_type(name)[0]
    mime_type = mime_type or "application/octet-stream"
    # Checked before anything is written: nobody may fill up the chat of another user.
    await claim(context, caller, chat_id)
    async with context.thread_lock(chat_id):
        size, digest = await asyncio.to_thread(_keep, context, chat_id, upload_id, file)
        kept = Upload(
            id=upload_id,
            request_id=request_id or upload_id,
            type=kind or type_of(mime_type),
            name=name,
            size_bytes=size,
            mime_type=mime_type,
            sha256=digest,
        )
        await asyncio.to_thread(_note, folder_of(context, chat_id), kept)
    return chat_id, kept


async def announced(context: ServiceContext, chat_id: str, run_id: str) -> list[RequestUpload]:
    """The uploads that this run is the first to announce, oldest first."""
    folder = folder_of(context, chat_id)
    out = []
    for mark, teller in await asyncio.to_thread(_marks, folder):
        if teller and teller != run_id and await _has_begun(context, teller):
            await asyncio.to_thread(mark.unlink, missing_ok=True)
        elif (kept := await asyncio.to_thread(_facts, folder, mark.stem)) is not None:
            await asyncio.to_thread(_write, mark, run_id.encode())
            out.append(RequestUpload(request_id=kept.request_id, chat_id=chat_id, upload=kept.facts()))
    return out


async def _has_begun(context: ServiceContext, run_id: str) -> bool:
    """Whether the run has announced its uploads: it is known, and does not wait for its turn."""
    return await context.store.find_run(run_id) is not None and await find_queued(context, run_id) is None


async def resolved(context: ServiceContext, chat_id: str, references: Sequence[Any] | None) -> list[Any] | None:
    """The references; those that name an upload of the chat by its id have its facts."""
    if not references:
        return None if references is None else []
    return await asyncio.to_thread(_resolved, folder_of(context, chat_id), references)


async def delete(context: ServiceContext, chat_id: str) -> bool:
    """Removes every file of a chat; whether there was any."""
    folder = folder_of(context, chat_id)
    found = await asyncio.to_thread(folder.is_dir)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return found


def folder_of(context: ServiceContext, chat_id: str) -> Path:
    """The chat's folder, always in the uploads' own."""
    return context.settings.uploads.dir / f"{file_stem(chat_id)}.files"


def plain_name(name: str) -> str:
    """The last part of a file's name, without what no name has: separators of any system and control characters."""
    last = re.split(r"[\\/]", name)[-1]
    return "".join(c for c in last if c.isprintable()).strip(" .")[:LONGEST_NAME] or "file"


def type_of(mime_type: str) -> str:
    major = mime_type.partition("/")[0]
    return major if major in ("image", "audio", "video") else "file"


def too_large(what: str, most: int) -> GraphflowError:
    return GraphflowError(f"{what} may have at most {most} bytes", code="too_large", maxBytes=most)


# --- files; all of this blocks --------------------------------------------------------------------


def _keep(context: ServiceContext, chat_id: str, upload_id: str, file: BinaryIO) -> tuple[int, str]:
    """Copies the file into the chat's folder; its size and hash."""
    settings, folder = context.settings.uploads, folder_of(context, chat_id)
    folder.mkdir(parents=True, exist_ok=True)
    # Only the files themselves count, which have no suffix; facts and marks are ours.
    room = settings.max_chat_bytes - sum(entry.stat().st_size for entry in folder.iterdir() if not entry.suffix)
    digest, size = hashlib.sha256(), 0
    path = folder / upload_id
    try:
        # `x`: an id is never written twice.
        with path.open("xb") as out:
            while block := file.read(BLOCK):
                size += len(block)
                if size > settings.max_bytes:
                    raise too_large("an upload", settings.max_bytes)
                if size > room:
                    raise too_large("the uploads of a chat", settings.max_chat_bytes)
                digest.update(block)
                out.write(block)
            out.flush()
            # Synced before the facts name it: a file is there once its facts are.
            os.fsync(out.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return size, digest.hexdigest()


def _note(folder: Path, kept: Upload) -> None:
    # The mark comes first: after a crash in between, facts without a mark would never be announced.
    _write(folder / f"{kept.id}.new", b"")
    _write(folder / f"{kept.id}.json", msgspec.json.encode(kept))


def _write(path: Path, data: bytes) -> None:
    """The file is there whole, or as it was."""
    part = path.with_suffix(path.suffix + "~")
    part.write_bytes(data)
    part.replace(path)


def _marks(folder: Path) -> list[tuple[Path, str]]:
    """The marks of uploads that may not have been announced, oldest first, each with the run that was about to."""
    with suppress(FileNotFoundError):
        return [(path, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.new"))]
    return []


def _facts(folder: Path, upload_id: str) -> Upload | None:
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / f"{upload_id}.json").read_bytes(), type=Upload)
    return None


def _resolved(folder: Path, references: Iterable[Any]) -> list[Any]:
    return [_with_facts(folder, reference) for reference in references]


def _with_facts(folder: Path, reference: Any) -> Any:
    key = reference.get("id") if isinstance(reference, Mapping) else None
    # The id comes from the client and becomes a path.
    kept = _facts(folder, key) if isinstance(key, str) and _ID.fullmatch(key) else None
    # An id of another form is the client's own, for what it keeps elsewhere.
    if kept is None and isinstance(key, str) and set(reference) == {"id"} and _OWN_ID.fullmatch(key):
        raise bad_argument(
            "references",
            f"there is no upload {key!r:.80} of this chat on this server: upload the file first; several servers need one"
            " shared `uploads.dir`",
        )
    return reference if kept is None else {**reference, **kept.reference()}
