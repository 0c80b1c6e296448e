"""Answers that are compressed although nobody asked for it: read in small steps, and refused in words where they can't be."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable

import pytest

from graphflow.models.remote.bodies import EncodingRefused, decoded
from graphflow.models.remote.retry import Limits
from graphflow.models.remote.sse_decoder import MAX_EVENT_BYTES
from tests.models.raw_server import DONE, STOP, Connection, delta, raw_server
from tests.models.turns import OpenClient, hear


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


FORMS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "x-gzip": gzip.compress}


async def blocks(*data: bytes) -> AsyncIterator[bytes]:
    for block in data:
        yield block


@pytest.mark.parametrize(("form", "packed"), [*FORMS.items(), ("deflate", bare), ("identity", bytes), ("", bytes)])
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
async def test_a_body_is_the_same_however_it_is_cut(form: str, packed: Callable[[bytes], bytes], size: int) -> None:
    said = b"".join(b"%d " % number for number in range(30_000))
    data = packed(said)
    cut = [data[at : at + size] for at in range(0, len(data), size)]
    assert b"".join([piece async for piece in decoded(blocks(*cut), form)]) == said


async def test_what_a_block_unpacks_to_comes_in_small_pieces_and_lets_others_run() -> None:
    """A block of 300 KB was unpacked to 300 MB at once, and held the event loop for a second."""
    packed = gzip.compress(b"a" * 50_000_000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    longest = size = 0
    tracemalloc.start()
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(others())
        async for piece in decoded(blocks(packed), "gzip"):
            longest, size = max(longest, len(piece)), size + len(piece)
        beside.cancel()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 50_000_000 and longest <= 65_536
    assert most < 2_000_000
    assert turns >= 40


@pytest.mark.parametrize(("form", "data"), [("gzip", b"data: no gzip"), ("br", b"x"), ("gzip, gzip", b"x")])
async def test_what_can_not_be_read_is_refused_in_words(open_client: OpenClient, form: str, data: bytes) -> None:
    with pytest.raises(EncodingRefused, match="the answer is "):
        assert [piece async for piece in decoded(blocks(data), form)]

    async def answer(connection: Connection) -> None:
        await connection.head(content_encoding=form)
        await connection.chunk(data)
        await connection.end()

    async with raw_server(answer) as server:
        failure = (await hear(open_client(server.url, limits=Limits(max_retries=2)))).failure
    assert (failure.code, failure.retryable, len(server.requests)) == ("connection", False, 1)
    assert "the answer is " in failure.message


async def test_an_event_without_an_end_is_named_as_what_it_is(open_client: OpenClient) -> None:
    """It was a silence of three seconds, which was not true, and asked again."""

    async def bomb(connection: Connection) -> None:
        await connection.head(content_encoding="gzip")
        await connection.chunk(gzip.compress(b"data: " + b"a" * (MAX_EVENT_BYTES + 1_000_000), 1))
        await connection.hang()

    async with raw_server(bomb) as server:
        failure = (await hear(open_client(server.url, limits=Limits(max_retries=2, total_s=600)))).failure
    assert (failure.code, failure.retryable, len(server.requests)) == ("provider_error", False, 1)
    assert "longer than 67108864 bytes and has no end" in failure.message


async def test_a_compressed_stream_is_a_stream(open_client: OpenClient) -> None:
    async def answer(connection: Connection) -> None:
        await connection.head(content_encoding="gzip")
        await connection.chunk(gzip.compress(delta(content="hi") + STOP + DONE))
        await connection.end()

    async with raw_server(answer) as server:
        assert (await hear(open_client(server.url))).texts == ["hi"]
