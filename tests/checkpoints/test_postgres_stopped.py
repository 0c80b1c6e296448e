"""A process that stands still amid a batch of statements keeps nobody from its thread (E2).

What of the batch has reached the server holds locks, and the rest never comes while the process is stopped.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphflow.checkpoints.postgres import stopped_clients
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.testing.checkpointer.suite import LEASE, Driver
from tests.forked import python
from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer

CHILDREN = Path(__file__).with_name("children.py")


@pytest.fixture(scope="module", params=[False, True], ids=["newest", "oldest"])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(oldest=request.param) as made:
        yield made


async def test_a_process_that_is_stopped_amid_a_commit_keeps_nobody_from_its_thread(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped_clients, "LOOK_S", 0.05)
    monkeypatch.setattr(stopped_clients, "HELD_MS", 500)
    with server.database() as url:
        store = PostgresCheckpointer(url, schema="s", patience_s=PATIENCE_S)
        await store.setup()
        process = python(CHILDREN, "stops", f"{url}#s")
        try:
            await asyncio.to_thread(process.wait_until_stopped)
            held = await store.thread("thread")
            assert held is not None
            async with asyncio.timeout(PATIENCE_S):
                row = await store.take("thread", owner=store.owner, now=held.lease_until, lease_ms=LEASE)
            driver = Driver(store, "thread", row.fence, row.head)
            driver.lineage, driver.ordinal, driver.counts = row.lineage or 0, row.ordinal, {(0, "messages"): 1}
            await driver.add(b"mine")
            process.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(process.wait) == 1, "the commit that was cut off is refused"
        finally:
            process.kill()
            process.communicate()
        stored = await store.load("thread")
        assert stored is not None
        assert [record.id for record in stored.records[-1:]] == driver.ids[-1:]
        await store.close()
