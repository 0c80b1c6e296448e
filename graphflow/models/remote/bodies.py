"""Compressed bodies of answers, read in steps of bounded size: 300 KB of gzip may be 300 MB of text."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from graphflow.excerpts import excerpt_of

_STEP = 64 * 1024
"""Bytes that come out at once."""
_PAUSE = 1024 * 1024
"""Bytes after which others get a turn: one block may hold a thousand times its size."""
_FORMS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class EncodingRefused(ValueError):
    """A body that can't be read: an unknown encoding, or data that are not of it."""


class _Inflater(Protocol):
    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


async def decoded(blocks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The bytes of a body as they arrive, without its `content-encoding`.

    Raises:
        EncodingRefused: the body can't be read.
    """
    form = encoding.strip().lower()
    if form in ("", "identity"):
        async for block in blocks:
            yield block
        return
    if form not in _FORMS:
        raise EncodingRefused(f"the answer is encoded as {excerpt_of(form, 60)}; only gzip and deflate are read")
    inflater: _Inflater | None = None
    since = 0
    async for block in blocks:
        if inflater is None:
            inflater = _begun(block, form)
        for piece in _steps(inflater, block, form):
            yield piece
            since += len(piece)
            if since >= _PAUSE:
                since = 0
                await asyncio.sleep(0)


def _begun(block: bytes, form: str) -> _Inflater:
    # Some servers send deflate without the header that the standard asks for.
    bare = form == "deflate" and block[:1] and (block[0] & 15) != zlib.DEFLATED
    return zlib.decompressobj(-zlib.MAX_WBITS if bare else _FORMS[form])


def _steps(inflater: _Inflater, block: bytes, form: str) -> Iterator[bytes]:
    data = block
    while True:
        try:
            piece = inflater.decompress(data, _STEP)
        except zlib.error as error:
            raise EncodingRefused(f"the answer is not {form}: {error}") from None
        data = inflater.unconsumed_tail
        if piece:
            yield piece
        # Less than was asked for means that nothing is held back.
        if not data and len(piece) < _STEP:
            return
