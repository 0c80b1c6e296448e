"""Promises about taking a thread (E2)."""

from __future__ import annotations

import asyncio

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import Fenced, ThreadBusy, ThreadNotFound
from graphflow.testing.checkpointer.suite import LEASE, NOW, Suite, drive, facts, messages, promise, refused
from graphflow.testing.existing import existing


class Leases(Suite):
    """Taking a thread (E2)."""

    @promise
    async def test_taking_creates_the_thread_and_raises_its_fence(self, store: Checkpointer) -> None:
        row = await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        assert (row.fence, row.owner, row.lease_until, row.head, row.lineage) == (1, "me", NOW + LEASE, None, None)
        await store.release("thread", 1)
        row = await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        assert row.fence == 2

    @promise
    async def test_taking_an_unknown_thread_may_be_refused(self, store: Checkpointer) -> None:
        await refused(ThreadNotFound, store.take("thread", owner="me", now=NOW, lease_ms=LEASE, create=False))
        assert await store.thread("thread") is None

    @promise
    async def test_a_living_lease_is_busy_even_for_its_own_owner(self, store: Checkpointer) -> None:
        await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        for owner in ("me", "you"):
            error = await refused(ThreadBusy, store.take("thread", owner=owner, now=NOW + 5000, lease_ms=LEASE))
            assert error.detail["retryAfterMs"] == LEASE - 5000
        row = existing(await store.thread("thread"))
        assert row.fence == 1

    @promise
    async def test_an_expired_lease_may_be_taken(self, store: Checkpointer) -> None:
        await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        row = await store.take("thread", owner="you", now=NOW + LEASE, lease_ms=LEASE)
        assert (row.owner, row.fence) == ("you", 2)

    @promise
    async def test_of_many_at_once_one_takes_the_thread(self, store: Checkpointer) -> None:
        # Which of them wins is open; that nine lose is not.
        results = await asyncio.gather(
            *(store.take("thread", owner=f"owner-{n}", now=NOW, lease_ms=LEASE) for n in range(10)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, ThreadBusy) for result in results) == 9

    @promise
    async def test_renewing_extends_every_lease_of_the_owner_and_no_other(self, store: Checkpointer) -> None:
        for thread_id, owner in (("a", "me"), ("b", "me"), ("c", "you")):
            await store.take(thread_id, owner=owner, now=NOW, lease_ms=LEASE)
        await store.renew("me", lease_until=NOW + 2 * LEASE)
        # The second renewal lies in the past: a lease is never made shorter.
        await store.renew("me", lease_until=NOW)
        assert [row.lease_until - NOW for row in [await store.thread(t) for t in "abc"] if row] == [
            30_000,
            30_000,
            15_000,
        ]

    @promise
    async def test_releasing_gives_the_thread_back_unless_the_fence_is_old(self, store: Checkpointer) -> None:
        await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        # A fence that is not the thread's, and a thread that is not there: neither may take the lease from its owner.
        await store.release("thread", 7)
        await store.release("nobody", 1)
        await refused(ThreadBusy, store.take("thread", owner="you", now=NOW, lease_ms=LEASE))
        await store.release("thread", 1)
        assert (await store.take("thread", owner="you", now=NOW, lease_ms=LEASE)).fence == 2

    @promise
    async def test_the_last_commit_may_give_the_thread_back(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.commit(driver.record(), facts=facts(status="idle"), release=True)
        row = existing(await store.thread("thread"))
        assert (row.owner, row.lease_until, row.facts.status) == (None, 0, "idle")

    @promise
    async def test_nothing_is_committed_after_giving_back(self, store: Checkpointer) -> None:
        driver = await drive(store)
        # Both are queued before the first is durable, so the release counts in the order of the calls.
        promises = [driver.commit(driver.record(), release=True), driver.commit(driver.record())]
        await promises[0]
        await refused(Fenced, promises[1])
        again = await drive(store)
        await again.add()
        await store.release("thread", again.fence)
        await refused(Fenced, again.commit(again.record()))

    @promise
    async def test_a_deleted_threads_driver_is_fenced_also_from_its_namesake(self, store: Checkpointer) -> None:
        old = await drive(store)
        await store.delete_thread("thread")
        assert await store.thread("thread") is None
        assert await store.threads() == []
        # A namesake that began with the fence 1 would let the old driver in.
        new = await drive(store)
        assert new.fence > old.fence
        await refused(Fenced, old.commit(old.record(b"into the wrong thread")))
        await new.add(b"right")
        assert await messages(store, "thread", count=1) == [b"right"]
