"""Promises about order, atomicity and the compare-and-swap (E3)."""

from __future__ import annotations

import asyncio
import threading

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import OpenInterrupt, Record
from graphflow.errors import Fenced, StoreError
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Driver,
    Suite,
    drive,
    facts,
    messages,
    new_id,
    promise,
    refused,
)
from graphflow.testing.existing import existing


class Committing(Suite):
    """Order, atomicity and the compare-and-swap of E3."""

    @promise
    async def test_commits_of_a_thread_become_durable_in_the_order_of_their_calls(self, store: Checkpointer) -> None:
        """M4, E7."""
        driver = await drive(store)
        order: list[int] = []
        promises = []
        for n in range(50):
            durable = driver.commit(driver.record(b"%d" % n))
            durable.when_done(lambda n=n: order.append(n))  # type: ignore[misc]
            promises.append(durable)
        # Awaiting the last one has to be enough: whatever came before it is durable by then.
        await promises[-1]
        assert all(durable.done for durable in promises)
        await asyncio.sleep(0)
        # The turn above is for the callbacks, which run on the loop and not in a thread of the store.
        assert order == list(range(50))
        assert await messages(store, "thread", count=50) == [b"%d" % n for n in range(50)]

    @promise
    async def test_a_promise_may_be_awaited_twice_and_calls_back_at_once_when_kept(self, store: Checkpointer) -> None:
        driver = await drive(store)
        durable = driver.commit(driver.record())
        await durable
        await durable
        called: list[bool] = []
        durable.when_done(lambda: called.append(durable.done))
        assert called == [True]

    @promise
    async def test_giving_up_waiting_for_a_promise_does_not_undo_it(self, store: Checkpointer) -> None:
        """X2: a write in flight is completed."""
        driver = await drive(store)
        durable = driver.commit(driver.record())

        async def wait() -> None:
            await durable

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(wait())
            # One turn, so that the waiter is cancelled inside the promise and not before it looks at it.
            await asyncio.sleep(0)
            waiting.cancel()
        await durable
        assert [r.id for r in await store.list_checkpoints("thread")] == driver.ids

    @promise
    async def test_flush_waits_for_everything_queued_before(self, store: Checkpointer) -> None:
        driver = await drive(store)
        promises = [driver.commit(driver.record()) for _ in range(20)]
        await store.flush()
        assert all(durable.done for durable in promises)

    @promise
    async def test_several_records_are_one_commit(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.commit(*(driver.record(b"%d" % n) for n in range(3)))
        assert [r.id for r in await store.list_checkpoints("thread")] == driver.ids[::-1]
        assert await messages(store, "thread", count=3) == [b"0", b"1", b"2"]

    @promise
    async def test_a_commit_without_records_changes_the_facts_only(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add()
        await driver.commit(facts=facts(status="failed"), release=True)
        row = existing(await store.thread("thread"))
        assert (row.head, row.facts.status, row.owner) == (driver.head, "failed", None)

    @promise
    async def test_of_two_writers_on_one_head_one_wins(self, store: Checkpointer) -> None:
        """M2, W7: what lost left nothing."""
        driver = await drive(store)
        await driver.add(b"first")
        # The second writer has loaded the same head, so both follow the rules as far as each can see.
        head, ordinal = driver.head, driver.ordinal
        winner = driver.commit(driver.record(b"winner"))
        driver.head, driver.ordinal, driver.counts = head, ordinal, {(0, "messages"): 1}
        loser = driver.commit(driver.record(b"loser"))
        await winner
        error = await refused(Fenced, loser)
        assert error.code == "fenced"
        assert await messages(store, "thread", count=2) == [b"first", b"winner"]

    @promise
    async def test_after_a_failed_commit_every_later_one_of_that_epoch_fails(self, store: Checkpointer) -> None:
        driver = await drive(store)
        good = await driver.add(b"good")
        lost = Record(id=new_id(), lineage=driver.lineage, ordinal=2, checkpoint=True, meta=b"", data=b"")
        # Not awaited: the later commit has to fail by the fence alone, before anybody has heard of the first failure.
        store.commit("thread", driver.fence, "another head", [lost], facts=facts())
        later = driver.commit(driver.record(b"later"))
        await refused(Fenced, later)
        row = existing(await store.thread("thread"))
        assert row.head == good.id
        # An epoch with a failed commit is over; the next one goes on from what is durable.
        again = await drive(store, now=NOW + LEASE + 1)
        assert (await again.add()).ordinal == 2

    @promise
    async def test_an_older_epoch_is_fenced(self, store: Checkpointer) -> None:
        """E2: a second writer never writes."""
        old = await drive(store)
        await old.add(b"old")
        new = await drive(store, now=NOW + LEASE + 1, owner="other")
        await refused(Fenced, old.commit(old.record(b"late")))
        # Another channel: the old epoch may have had the same ordinals of `messages` in mind.
        await new.add(channel="notes")
        assert [r.id for r in await store.list_checkpoints("thread")] == [new.ids[0], old.ids[0]]

    @promise
    async def test_one_threads_failure_does_not_touch_the_others(self, store: Checkpointer) -> None:
        drivers = [await drive(store, f"thread-{n}") for n in range(6)]
        for driver in drivers:
            await driver.add()
        for driver in drivers[::2]:
            driver.head = "not the head"
        promises = [driver.commit(driver.record(b"x")) for driver in drivers]
        for n, durable in enumerate(promises):
            if n % 2:
                await durable
            else:
                await refused(Fenced, durable)
        assert [len(await store.list_checkpoints(f"thread-{n}")) for n in range(6)] == [1, 2, 1, 2, 1, 2]

    @promise
    async def test_a_commit_is_all_or_nothing(self, store: Checkpointer) -> None:
        """M3: a record that breaks a rule takes its whole commit along, and leaves other threads' commits be."""
        driver, other = await drive(store), await drive(store, "other")
        await driver.add(b"kept")
        interrupt = OpenInterrupt(interrupt_id="i", thread_id="thread", run_id="r", kind="ask", node="n")
        # The first record breaks no rule: when the gap shows, its rows may be in the transaction already.
        fine = driver.record(b"lost", opened=(interrupt,))
        driver.ordinal += 1
        gap = driver.record(b"after a gap")
        # Commits of another thread before and after it, which a store may put into the same transaction.
        mixed = (
            other.commit(other.record()),
            driver.commit(fine, gap, facts=facts(run_id="r")),
            other.commit(other.record()),
        )
        await mixed[0]
        await refused(StoreError, mixed[1])
        await mixed[2]
        assert [r.id for r in await store.list_checkpoints("thread")] == driver.ids[:1]
        assert await store.open_interrupts() == []
        assert await store.find_run("r") is None
        stored = existing(await store.load("thread"))
        await refused(StoreError, store.read_items(stored.chain, 0, "messages", 2))
        assert len(await store.list_checkpoints("other")) == 2

    @promise
    async def test_records_outside_the_heads_lineage_are_refused(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add()
        # A lineage that nobody began: a journal whose `begins` got lost would name it.
        driver.lineage += 1000
        await refused(StoreError, driver.commit(driver.record()))

    @promise
    async def test_an_entrys_ordinal_is_never_used_twice(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"first")
        # As a journal that has counted wrong: a log with two entries of one ordinal could not be read back.
        driver.counts.clear()
        await refused(StoreError, driver.commit(driver.record(b"again")))
        assert await messages(store, "thread", count=1) == [b"first"]

    @promise
    async def test_committing_to_an_unknown_thread_is_fenced(self, store: Checkpointer) -> None:
        await drive(store)
        stranger = Driver(store, "nobody", 1, None)
        stranger.begin()
        await refused(Fenced, stranger.commit(stranger.record()))
        assert await store.thread("nobody") is None

    @promise
    async def test_loops_of_several_threads_may_share_the_store(self, store: Checkpointer) -> None:
        """M10: the synchronous twins run loops of their own."""
        failures: list[BaseException] = []

        async def work(name: str) -> None:
            driver = await drive(store, name)
            for n in range(20):
                durable = driver.commit(driver.record(b"%d" % n))
            await durable
            assert await messages(store, name, count=20) == [b"%d" % n for n in range(20)]
            assert len(await store.threads()) >= 1

        def run(name: str) -> None:
            try:
                asyncio.run(work(name))
            except BaseException as error:
                failures.append(error)
                raise

        # Threads with loops of their own, while this loop goes on: connections and callbacks must not be shared between them.
        workers = [threading.Thread(target=run, args=(f"thread-{n}",)) for n in range(4)]
        for worker in workers:
            worker.start()
        await work("here")
        for worker in workers:
            await asyncio.to_thread(worker.join)
        assert failures == []
        assert len(await store.threads()) == 5
