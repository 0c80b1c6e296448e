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
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any, BinaryIO

import msgspec

from graphflow.content import media_type_of, url_misfit
from graphflow.errors import GraphflowError
from graphflow.events import RequestUpload
from graphflow.excerpts import excerpt_of
from graphflow.id_rule import is_id
from graphflow.memory.chat_files import file_stem
from graphflow.private_files import FILE_MODE, FOLDER_MODE, make_private_folder
from graphflow.service.access import LOCAL, Caller, claim
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import find_queued
from graphflow.service.requests import bad_argument, unknown_chat
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace

BLOCK = 1 << 20
LONGEST_NAME = 255
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_OWN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIME = re.compile(r"[A-Za-z0-9.+-]{1,64}/[A-Za-z0-9.+-]{1,127}")
_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OCTETS = "application/octet-stream"
_CERTAIN = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "application/pdf"})
"""Types whose files always begin in a way that `media_type_of` knows."""
_PDF_BEGINS = 1024
"""Bytes that readers of PDF pass over before its first line."""


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
        mime_type: what the client says; the first bytes of a file decide where they show a type.
        chat_id: a new chat's when None.

    Raises:
        GraphflowError: `invalid_input`, `thread_not_found`, `too_large`, on Windows `forbidden`; nothing is kept.
    """
    if sys.platform == "win32":
        raise GraphflowError("uploads are refused on Windows: it has no way to open beneath a folder", code="forbidden")
    if not chat_id:
        chat_id = context.ids.new_id()
    elif not is_id(chat_id) and await context.store.thread(chat_id) is None:
        raise unknown_chat(chat_id)
    if kind is not None and not _WORD.fullmatch(kind):
        raise bad_argument("type", f"{excerpt_of(kind)} must be 1 to 64 letters, digits, '.', '_' and '-'")
    upload_id = context.ids.new_id()
    name = plain_name(name)
    said = (mime_type if mime_type and _MIME.fullmatch(mime_type) else mimetypes.guess_type(name)[0]) or _OCTETS
    # Checked before anything is written: nobody may fill up the chat of another user.
    await claim(context, caller, chat_id)
    async with context.thread_lock(chat_id):
        size, digest, shown = await asyncio.to_thread(_keep, context, chat_id, upload_id, file, said, kind)
        kept = Upload(
            id=upload_id,
            request_id=request_id or upload_id,
            type=kind or type_of(shown),
            name=name,
            size_bytes=size,
            mime_type=shown,
            sha256=digest,
        )
        await asyncio.to_thread(_note, context, folder_of(chat_id), kept)
    return chat_id, kept


async def announced(context: ServiceContext, chat_id: str, run_id: str) -> list[RequestUpload]:
    """The uploads that this run is the first to announce, oldest first."""
    folder = folder_of(chat_id)
    out = []
    for mark, teller in await asyncio.to_thread(_marks, context, folder):
        if teller and teller != run_id and await _has_begun(context, teller):
            await asyncio.to_thread(_unmark, context, mark)
        elif (kept := await asyncio.to_thread(_facts, context, folder, PurePath(mark).stem)) is not None:
            await asyncio.to_thread(_mark, context, mark, run_id)
            out.append(RequestUpload(request_id=kept.request_id, chat_id=chat_id, upload=kept.facts()))
    return out


async def _has_begun(context: ServiceContext, run_id: str) -> bool:
    """Whether the run has announced its uploads: it is known, and does not wait for its turn."""
    return await context.store.find_run(run_id) is not None and await find_queued(context, run_id) is None


async def resolved(context: ServiceContext, chat_id: str, references: Sequence[Any] | None) -> list[Any] | None:
    """The references; those that name an upload of the chat by its id have its facts."""
    if not references:
        return None if references is None else []
    return await asyncio.to_thread(_resolved, context, folder_of(chat_id), references)


async def content(context: ServiceContext, chat_id: str, upload_id: str) -> bytes | None:
    """The bytes of an upload of the chat; None where it is not there."""
    if not _ID.fullmatch(upload_id):
        return None
    return await asyncio.to_thread(_content, context, folder_of(chat_id), upload_id)


async def share(context: ServiceContext, chat_id: str, fork_id: str) -> None:
    """Gives the uploads of a chat to a thread that is forked from it: the bytes stay while one of the two has them."""
    await asyncio.to_thread(_share, context, folder_of(chat_id), folder_of(fork_id))


async def delete(context: ServiceContext, chat_id: str) -> bool:
    """Removes every file of a chat; whether there was any."""
    return await asyncio.to_thread(_delete, context, folder_of(chat_id))


def folder_of(chat_id: str) -> str:
    """The name of the chat's folder in the uploads' own."""
    return f"{file_stem(chat_id)}.files"


def plain_name(name: str) -> str:
    """The last part of a file's name, without what no name has: separators of any system and control characters."""
    last = re.split(r"[\\/]", name)[-1]
    return "".join(c for c in last if c.isprintable()).strip(" .")[:LONGEST_NAME] or "file"


def type_of(mime_type: str) -> str:
    major = mime_type.partition("/")[0]
    return major if major in ("image", "audio", "video") else "file"


def type_of_bytes(begin: bytes, said: str, kind: str | None) -> str:
    """The MIME type of a file that begins so; the type that the client says where its bytes show none.

    Raises:
        GraphflowError: the bytes are not of the type or kind that the client says. Providers refuse a message with such a file, and
            then each later message of the chat.
    """
    shown = media_type_of(None, None, begin)
    if said == "application/pdf" and shown is None and b"%PDF-" in begin[:_PDF_BEGINS]:
        shown = said
    if said in _CERTAIN and shown is None:
        raise bad_argument(
            "file", f"it is sent as {said} and does not begin like one; send a whole file, with its own type"
        )
    if shown is not None and (shown in _CERTAIN or said == _OCTETS or said.startswith(("audio/", "image/"))):
        said = shown
    if kind in ("image", "audio", "video") and said in _CERTAIN and type_of(said) != kind:
        raise bad_argument("type", f"is {kind}, and the file is of the type {said}; leave `type` out")
    return said


def too_large(what: str, most: int) -> GraphflowError:
    return GraphflowError(f"{what} may have at most {most} bytes", code="too_large", maxBytes=most)


# --- files; all of this blocks --------------------------------------------------------------------


def _files(context: ServiceContext) -> Workspace:
    # A chat may be called as it likes: names mean nothing in this folder, which no tool reaches.
    return Workspace(context.settings.uploads.dir, protected=ProtectedFiles(names=False))


def _keep(
    context: ServiceContext, chat_id: str, upload_id: str, file: BinaryIO, mime_type: str, kind: str | None
) -> tuple[int, str, str]:
    """Copies the file into the chat's folder; its size, hash and type."""
    block = file.read(BLOCK)
    mime_type = type_of_bytes(block, mime_type, kind)
    settings, folder, files = context.settings.uploads, folder_of(chat_id), _files(context)
    make_private_folder(settings.dir)
    files.make_folder(folder, mode=FOLDER_MODE)
    # Only the files themselves count, which have no suffix; facts and marks are ours.
    kept = files.entries(folder, limit=sys.maxsize - 1)[0]
    room = settings.max_chat_bytes - sum(entry.facts.st_size for entry in kept if "." not in entry.name)
    digest, size = hashlib.sha256(), 0

    def blocks() -> Iterator[bytes]:
        nonlocal size, block
        while block:
            size += len(block)
            if size > settings.max_bytes:
                raise too_large("an upload", settings.max_bytes)
            if size > room:
                raise too_large("the uploads of a chat", settings.max_chat_bytes)
            digest.update(block)
            yield block
            block = file.read(BLOCK)

    # An id is never written twice. On the disk before the facts name it: a file is there once its facts are.
    files.write(f"{folder}/{upload_id}", blocks(), replace=False, mode=FILE_MODE)
    return size, digest.hexdigest(), mime_type


def _note(context: ServiceContext, folder: str, kept: Upload) -> None:
    files = _files(context)
    # The mark comes first: after a crash in between, facts without a mark would never be announced.
    files.write(f"{folder}/{kept.id}.new", b"", mode=FILE_MODE)
    files.write(f"{folder}/{kept.id}.json", msgspec.json.encode(kept), mode=FILE_MODE)


def _mark(context: ServiceContext, mark: str, run_id: str) -> None:
    _files(context).write(mark, run_id.encode(), mode=FILE_MODE)


def _unmark(context: ServiceContext, mark: str) -> None:
    with _if_there():
        _files(context).delete(mark)


def _marks(context: ServiceContext, folder: str) -> list[tuple[str, str]]:
    """The marks of uploads that may not have been announced, oldest first, each with the run that was about to."""
    if not context.settings.uploads.dir.is_dir():
        return []
    files = _files(context)
    try:
        names = [entry.name for entry in files.entries(folder, limit=sys.maxsize - 1)[0]]
    except FileRefused as refused:
        if refused.code != "NOT_FOUND":
            raise
        return []
    marks = (f"{folder}/{name}" for name in names if name.endswith(".new"))
    return [(mark, files.read(mark, BLOCK).decode()) for mark in marks]


def _facts(context: ServiceContext, folder: str, upload_id: str) -> Upload | None:
    if not context.settings.uploads.dir.is_dir():
        return None
    with _if_there(), suppress(msgspec.MsgspecError):
        return msgspec.json.decode(_files(context).read(f"{folder}/{upload_id}.json", BLOCK), type=Upload)
    return None


def _content(context: ServiceContext, folder: str, upload_id: str) -> bytes | None:
    # A file is there once its facts are.
    if (kept := _facts(context, folder, upload_id)) is None:
        return None
    found = None
    with _if_there():
        found = _files(context).read(f"{folder}/{upload_id}", kept.size_bytes)
    return found  # noqa: RET504 - with a return inside, mypy takes the end for unreachable


def _share(context: ServiceContext, folder: str, to: str) -> None:
    root = context.settings.uploads.dir
    if not (root / folder).is_dir():
        return
    # Facts last: a file is there once they are. What no run has announced yet belongs to the chat's next run.
    kept = sorted(
        (path for path in (root / folder).iterdir() if path.suffix in ("", ".json")), key=lambda path: path.suffix
    )
    _files(context).make_folder(to, mode=FOLDER_MODE)
    for path in kept:
        mark = path.with_suffix(".new")
        if mark.exists() and not mark.stat().st_size:
            continue
        with suppress(FileExistsError):
            try:
                os.link(path, root / to / path.name)  # no file of an upload is ever written again
            except OSError as error:
                if isinstance(error, FileExistsError):
                    raise
                _files(context).write(f"{to}/{path.name}", path.read_bytes(), mode=FILE_MODE)  # a disk without links


def _delete(context: ServiceContext, folder: str) -> bool:
    found = False
    if not context.settings.uploads.dir.is_dir():
        return found
    with _if_there():
        files = _files(context)
        found = files.stat(folder).is_folder
        files.delete(folder, recursive=True)
    return found


@contextmanager
def _if_there() -> Iterator[None]:
    """Passes over a file that is not there."""
    try:
        yield
    except FileRefused as refused:
        if refused.code != "NOT_FOUND":
            raise


def _resolved(context: ServiceContext, folder: str, references: Iterable[Any]) -> list[Any]:
    return [_with_facts(context, folder, reference) for reference in references]


def _with_facts(context: ServiceContext, folder: str, reference: Any) -> Any:
    key = reference.get("id") if isinstance(reference, Mapping) else None
    # The id comes from the client and becomes a path.
    kept = _facts(context, folder, key) if isinstance(key, str) and _ID.fullmatch(key) else None
    # An id of another form is the client's own, for what it keeps elsewhere.
    if kept is None and isinstance(reference, Mapping) and reference.get("as") == "part":
        url = reference.get("url")
        if url is not None and (why := url_misfit(str(url))):
            raise bad_argument("references", f"{excerpt_of(key or url, 160)} has `as: part`: {why}")
        is_unknown = url is None
    else:
        is_unknown = (
            kept is None and isinstance(key, str) and set(reference) == {"id"} and _OWN_ID.fullmatch(key) is not None
        )
    if is_unknown:
        raise bad_argument(
            "references",
            f"there is no upload {excerpt_of(key)} of this chat on this server: upload the file first; several servers need one"
            " shared `uploads.dir`",
        )
    return reference if kept is None else {**reference, **kept.reference()}
