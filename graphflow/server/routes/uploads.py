"""Uploads (spec 3.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from graphflow.server.auth import caller_of, needs
from graphflow.server.bodies import chunks_of
from graphflow.server.envelope import success
from graphflow.server.routes._parts import application
from graphflow.service.requests import bad_argument
from graphflow.service.uploads import upload as keep

router = APIRouter(prefix="/api", tags=["chats"])
ROOM = 64 * 1024
"""What the other fields and the seams may add to the file."""
FIELDS = ("chatId", "requestId", "type")
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "chatId": {"type": "string", "description": "The chat that keeps it; a new one when absent."},
                        "requestId": {"type": "string"},
                        "type": {"type": "string", "description": "What it is; by default derived from its MIME type."},
                    },
                }
            }
        },
    }
}


@router.post("/upload", summary="Upload a file", dependencies=[Depends(needs("run"))], openapi_extra=BODY)
async def upload(request: Request) -> Response:
    """Stores a file for a chat; queries refer to it by id, and the chat's next run reports it."""
    app = application(request)
    async with _form(request, app.settings.uploads.max_bytes + ROOM) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise bad_argument("file", "required: a file, as multipart/form-data")
        chat_id, kept = await keep(
            app,
            file.file,
            name=file.filename or "",
            mime_type=file.content_type,
            caller=caller_of(request),
            kind=_text(form, "type"),
            chat_id=_text(form, "chatId"),
            request_id=_text(form, "requestId"),
        )
    return success({"requestId": kept.request_id, "chatId": chat_id, "upload": kept.reference()})


@asynccontextmanager
async def _form(request: Request, most: int) -> AsyncIterator[FormData]:
    """The form of a body that is not larger than `most`; what it keeps on disk is gone at the end."""
    if "content-type" not in request.headers:
        raise bad_argument("body", "not multipart/form-data: the header Content-Type is missing")
    # The body is bounded while it is read, before a part of it lies on disk.
    parser = MultiPartParser(request.headers, chunks_of(request, most), max_files=1, max_fields=len(FIELDS))
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise bad_argument("body", f"not multipart/form-data: {error}") from None
    try:
        names = [name for name, _ in form.multi_items()]
        for name in names:
            if name not in ("file", *FIELDS):
                raise bad_argument(name, f"unknown field; fields are file, {', '.join(FIELDS)}")
            if names.count(name) > 1:
                raise bad_argument(name, "given more than once")
        yield form
    finally:
        # Also for a refused form: its file lies on disk by then.
        await form.close()


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    if isinstance(value, UploadFile):
        raise bad_argument(name, "must be text, not a file")
    if value is not None and len(value) > 256:
        raise bad_argument(name, "must have at most 256 characters")
    # An empty field of an HTML form means that nobody filled it in.
    return value or None
