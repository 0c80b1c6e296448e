"""Promises about interrupts, runs, lists of threads, documents and the queue."""

from __future__ import annotations

from typing import Any

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import OpenInterrupt, ThreadFacts
from graphflow.errors import Fenced, StoreError, ThreadNotFound
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Driver,
    Suite,
    drive,
    facts,
    lines_of,
    new_id,
    next_number,
    promise,
    refused,
    stream,
)
from graphflow.testing.existing import existing


class Inbox(Suite):
    """Open interrupts, runs, threads, documents and the queue."""

    @promise
    async def test_interrupts_are_open_from_the_record_that_asks_to_the_one_that_answers(
        self, store: Checkpointer
    ) -> None:
        driver = await drive(store)
        asked = OpenInterrupt(
            interrupt_id=f"{new_id()}:approve", thread_id="thread", run_id="run", kind="approval", node="tools",
            owner="ann", role="admin", agent_key="demo", opened_at=NOW, due_at=NOW + 9, data=b"\x00\xff",
        )  # fmt: skip
        await driver.add(opened=(asked,))
        assert await store.open_interrupts() == [asked]
        # Closing what is not open has no effect: a store may have lost it to a prune or an import.
        await driver.add(closed=(asked.interrupt_id, "never opened"))
        assert await store.open_interrupts() == []

    @promise
    async def test_interrupts_are_filtered_and_paged_oldest_first(self, store: Checkpointer) -> None:
        await fill_inbox(store)
        everything = await store.open_interrupts()
        assert [i.interrupt_id for i in everything] == [f"i{n}" for n in range(8)]
        assert [i.interrupt_id for i in await store.open_interrupts(owner="ann")] == ["i0", "i2", "i4", "i6"]
        assert [i.interrupt_id for i in await store.open_interrupts(owner="ann", role="admin")] == ["i0", "i4"]
        assert [i.interrupt_id for i in await store.open_interrupts(thread_id="thread-1")] == ["i4", "i5", "i6", "i7"]
        assert await store.open_interrupts(agent_key="nobody") == []
        pages: list[OpenInterrupt] = []
        cursor = None
        while page := await store.open_interrupts(limit=3, cursor=cursor):
            pages += page
            cursor = page[-1].cursor
        assert pages == everything

    @promise
    async def test_an_answer_between_two_pages_hides_nothing(self, store: Checkpointer) -> None:
        drivers = await fill_inbox(store)
        first = await store.open_interrupts(limit=3)
        await drivers[0].add(closed=(first[-1].interrupt_id,))
        second = await store.open_interrupts(limit=3, cursor=first[-1].cursor)
        assert [i.interrupt_id for i in second] == ["i3", "i4", "i5"]
        # Thirty digits are more than an integer of 64 bits; U+0663 is a digit to Python and to no database.
        for cursor in ("no cursor", "", "1", ":i", "-1:i", "1.5:i", "9" * 30 + ":i", "\u0663:i"):
            await refused(StoreError, store.open_interrupts(cursor=cursor))

    @promise
    async def test_a_thread_is_whose_it_was_made_for_whatever_is_committed(self, store: Checkpointer) -> None:
        assert await store.assign("thread", "ann", now=NOW) == "ann"
        # The first to name a user wins: whose a thread is must not change under those who may see it.
        assert await store.assign("thread", "bob", now=NOW + 1) == "ann"
        driver = await drive(store)
        await driver.add(b"one")
        row = await store.thread("thread")
        assert row is not None and row.facts.user == "ann" and row.created_at == NOW
        forked = await store.fork(driver.ids[0], "thread", "fork", number=next_number(), facts=row.facts)
        assert forked.facts.user == "ann"
        copied = await store.import_thread(stream(await lines_of(store, "thread")), thread_id="copy")
        assert await store.assign(copied, "bob", now=NOW) == "ann"
        await drive(store, "nobody's")
        assert await store.assign("nobody's", "bob", now=NOW) is None
        await store.release("thread", driver.fence)
        await store.delete_thread("thread")
        assert await store.assign("thread", "bob", now=NOW) == "bob"

    @promise
    async def test_what_is_written_about_a_thread_survives_commits_forks_and_copies(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"one")
        assert await store.describe("thread", '{"title":"漢字 🎉"}', instead_of=None, now=NOW + 5)
        row = existing(await store.thread("thread"))
        assert (row.facts.about, row.facts.updated_at) == ('{"title":"漢字 🎉"}', NOW + 5)
        await driver.add(b"two")
        await driver.commit(driver.record(), facts=facts(title="automatic", status="idle"))
        row = existing(await store.thread("thread"))
        assert (row.facts.about, row.facts.title) == ('{"title":"漢字 🎉"}', "automatic")
        assert existing(await store.load("thread")).thread.facts.about == row.facts.about
        assert [listed.facts.about for listed in await store.threads()] == [row.facts.about]
        forked = await store.fork(driver.ids[0], "thread", "fork", number=next_number(), facts=row.facts)
        assert forked.facts.about == row.facts.about
        copied = await store.import_thread(stream(await lines_of(store, "thread")), thread_id="copy")
        assert existing(await store.thread(copied)).facts.about == row.facts.about
        await store.release("thread", driver.fence)
        await store.delete_thread("thread")
        assert existing(await store.take("thread", owner="o", now=NOW, lease_ms=LEASE)).facts.about is None

    @promise
    async def test_of_two_who_write_about_a_thread_at_once_the_second_finds_the_first(
        self, store: Checkpointer
    ) -> None:
        await drive(store)
        assert not await store.describe("thread", "B", instead_of="A", now=NOW)
        assert await store.describe("thread", "A", instead_of=None, now=NOW)
        assert not await store.describe("thread", "B", instead_of=None, now=NOW)
        assert await store.describe("thread", "B", instead_of="A", now=NOW - 5)
        row = existing(await store.thread("thread"))
        assert (row.facts.about, row.facts.updated_at) == ("B", NOW)
        assert await store.describe("thread", None, instead_of="B", now=NOW)
        assert existing(await store.thread("thread")).facts.about is None
        await refused(ThreadNotFound, store.describe("nowhere", "A", instead_of=None, now=NOW))

    @promise
    async def test_threads_and_interrupts_are_listed_by_user(self, store: Checkpointer) -> None:
        await store.assign("thread-1", "ann", now=NOW)
        await fill_inbox(store)
        assert [row.thread_id for row in await store.threads(user="ann")] == ["thread-1"]
        assert await store.threads(user="bob") == []
        assert [i.interrupt_id for i in await store.open_interrupts(user="ann")] == ["i4", "i5", "i6", "i7"]
        assert await store.open_interrupts(user="ann", thread_id="thread-0") == []
        assert len(await store.open_interrupts(user="ann", limit=3)) == 3
        assert await store.open_interrupts(user="bob") == []

    @promise
    async def test_due_interrupts_are_those_whose_time_has_come(self, store: Checkpointer) -> None:
        await fill_inbox(store)
        assert [i.interrupt_id for i in await store.due(NOW + 102)] == ["i1", "i2"]
        assert await store.due(NOW) == []

    @promise
    async def test_a_run_is_found_by_its_id(self, store: Checkpointer) -> None:
        driver = await drive(store)
        # The same run in two commits: stores write the index only when it changes.
        for run in ("run-1", "run-1", "run-2"):
            driver.commit(driver.record(), facts=facts(run_id=run))
        await store.flush()
        assert [await store.find_run(run) for run in ("run-1", "run-2", "run-3")] == ["thread", "thread", None]

    @promise
    async def test_runs_are_listed_newest_first_with_their_threads(self, store: Checkpointer) -> None:
        ids = [f"01890000-0000-7000-8000-00000000000{n}" for n in range(4)]
        for n, run in enumerate(ids):
            if n < 2:
                await store.assign(f"thread-{n}", f"user-{n}", now=NOW)
            driver = await drive(store, f"thread-{n % 2}")
            await driver.commit(driver.record(), facts=facts(run_id=run, agent_key=f"agent-{n % 2}"), release=True)

        async def found(**options: Any) -> list[tuple[str, str]]:
            return [(run[-1], row.thread_id) for run, row in await store.runs(**options)]

        assert await found() == [("3", "thread-1"), ("2", "thread-0"), ("1", "thread-1"), ("0", "thread-0")]
        assert await found(limit=2, cursor=ids[3]) == [("2", "thread-0"), ("1", "thread-1")]
        assert await found(thread_id="thread-1", cursor=ids[3]) == [("1", "thread-1")]
        assert await found(user="user-0") == await found(agent_key="agent-0") == [("2", "thread-0"), ("0", "thread-0")]
        assert await found(user="user-0", agent_key="agent-1") == await found(thread_id="nobody") == []
        assert await found(cursor=ids[0]) == []
        await store.delete_thread("thread-1")
        assert await found() == [("2", "thread-0"), ("0", "thread-0")]

    @promise
    async def test_threads_are_listed_by_last_change(self, store: Checkpointer) -> None:
        """M7, L4, L14."""
        for n, status in enumerate(("idle", "waiting", "idle", "failed", "idle")):
            driver = await drive(store, f"thread-{n}")
            new = facts(status=status, updated_at=NOW + n * 10, agent_key=f"agent-{n % 2}")
            await driver.commit(driver.record(), facts=new, release=True)
        # An older thread changes last: order and filters have to follow the facts, not the time of making.
        driver = await drive(store, "thread-1")
        await driver.commit(driver.record(), facts=facts(status="idle", updated_at=NOW + 99, agent_key="agent-1"))

        async def names(**options: Any) -> list[str]:
            return [row.thread_id for row in await store.threads(**options)]

        assert await names() == ["thread-1", "thread-4", "thread-3", "thread-2", "thread-0"]
        assert await names(limit=2, cursor="thread-3") == ["thread-2", "thread-0"]
        assert await names(status="idle", limit=2) == ["thread-1", "thread-4"]
        assert await names(agent_key="agent-1", status="failed") == ["thread-3"]
        assert await names(status="stopped") == []
        assert await names(cursor="thread-0") == []
        await refused(ThreadNotFound, store.threads(cursor="nobody"))

    @promise
    async def test_documents_are_kept_under_their_hash(self, store: Checkpointer) -> None:
        assert await store.document("sha256:1") is None
        await store.put_document("sha256:1", b"\x00document")
        await store.put_document("sha256:1", b"\x00document")
        assert await store.document("sha256:1") == b"\x00document"

    @promise
    async def test_inputs_wait_in_order(self, store: Checkpointer) -> None:
        for name in ("thread", "other"):
            await drive(store, name)
        positions = [await store.enqueue("thread", b"%d" % n, now=NOW + n) for n in range(3)]
        await store.enqueue("other", b"other", now=NOW)
        assert positions == sorted(set(positions))
        assert await store.queued("thread") == (positions[0], b"0")
        assert [await store.dequeue("thread") for _ in range(4)] == [b"0", b"1", b"2", None]
        # Also when the queue was empty: a position that comes twice would consume somebody else's input.
        assert await store.enqueue("thread", b"again", now=NOW) > positions[-1]
        assert await store.dequeue("other") == b"other"
        await refused(ThreadNotFound, store.enqueue("nobody", b"x", now=NOW))
        assert await store.dequeue("nobody") is None

    @promise
    async def test_an_input_is_consumed_with_the_commit_that_records_it(self, store: Checkpointer) -> None:
        driver = await drive(store)
        first = await store.enqueue("thread", b"first", now=NOW)
        second = await store.enqueue("thread", b"second", now=NOW)
        await driver.commit(driver.record(), consumes=first)
        assert await store.queued("thread") == (second, b"second")
        await refused(StoreError, driver.commit(driver.record(b"not kept"), consumes=first))
        assert len(await store.list_checkpoints("thread")) == 1
        assert await store.queued("thread") == (second, b"second")

    @promise
    async def test_a_queue_tells_what_waits_and_of_which_kind(self, store: Checkpointer) -> None:
        for name in ("thread", "other"):
            await drive(store, name)
        signal = await store.enqueue("thread", b"signal", now=NOW, kind="signal")
        first = await store.enqueue("thread", b"first", now=NOW + 1)
        await store.enqueue("other", b"other", now=NOW + 2)
        everything = await store.queue()
        assert [(q.thread_id, q.kind, q.body, q.at) for q in everything] == [
            ("thread", "signal", b"signal", NOW), ("thread", "input", b"first", NOW + 1), ("other", "input", b"other", NOW + 2)
        ]  # fmt: skip
        assert [q.position for q in await store.queue("thread")] == [signal, first]
        assert [q.body for q in await store.queue(kind="input", limit=1)] == [b"first"]
        assert await store.queued("thread") == (first, b"first"), "a signal is not an input"
        assert await store.queue("nobody") == [] and await store.queue(owner="nobody") == []
        assert [q.body for q in await store.queue(owner="owner", kind="signal")] == [b"signal"]

    @promise
    async def test_who_takes_a_thread_is_told_that_inputs_wait(self, store: Checkpointer) -> None:
        driver = await drive(store)
        assert not existing(await store.thread("thread")).queued
        await store.enqueue("thread", b"signal", now=NOW, kind="signal")
        assert not existing(await store.thread("thread")).queued, "a signal waits for nobody's turn"
        position = await store.enqueue("thread", b"input", now=NOW)
        assert existing(await store.thread("thread")).queued
        await store.release("thread", driver.fence)
        row = await store.take("thread", owner="owner", now=NOW, lease_ms=LEASE)
        assert row.queued
        loaded = await store.load("thread")
        assert loaded is not None and loaded.thread.queued
        await drive(store, "other")
        assert {row.thread_id: row.queued for row in await store.threads()} == {"thread": True, "other": False}
        assert await store.withdraw("thread", position)
        assert not existing(await store.thread("thread")).queued
        assert not any(row.queued for row in await store.threads())

    @promise
    async def test_what_is_withdrawn_is_gone_once(self, store: Checkpointer) -> None:
        driver = await drive(store)
        first, second = [await store.enqueue("thread", b"%d" % n, now=NOW) for n in range(2)]
        # The thread has to fit too, or a caller could withdraw what waits on a thread that it may not see.
        assert not await store.withdraw("other", first)
        assert [await store.withdraw("thread", first), await store.withdraw("thread", first)] == [True, False]
        await refused(Fenced, driver.commit(driver.record(), consumes=first))
        assert await store.queued("thread") == (second, b"1")

    @promise
    async def test_queues_that_nobody_drives_are_found(self, store: Checkpointer) -> None:
        for name in ("thread", "other", "empty"):
            driver = await drive(store, name)
            if name != "empty":
                await store.enqueue(name, b"x", now=NOW)
            if name != "thread":
                await store.release(name, driver.fence)
        assert (await store.thread_count("idle"), await store.thread_count("waiting")) == (3, 0)
        assert (await store.queue_size("input"), await store.queue_size("signal")) == (2, 0)
        assert await store.queues(NOW) == ["other"]
        assert sorted(await store.queues(NOW + LEASE + 1)) == ["other", "thread"], (
            "a lease that has run out drives nobody"
        )

    @promise
    async def test_inputs_that_are_parked_are_not_found_until_their_thread_is_taken_or_one_is_withdrawn(
        self, store: Checkpointer
    ) -> None:
        driver = await drive(store)
        await driver.commit(driver.record(), facts=ThreadFacts(status="waiting"), release=True)
        first = await store.enqueue("thread", b"first", now=NOW)
        await store.enqueue("thread", b"second", now=NOW)
        await store.park("thread", driver.fence - 1)
        assert await store.queues(NOW) == ["thread"], "of another epoch"
        await store.park("thread", driver.fence)
        assert await store.queues(NOW) == []
        position = await store.enqueue("thread", b"signal", now=NOW, kind="signal")
        assert await store.queues(NOW) == ["thread"], "a signal waits for nobody"
        assert await store.withdraw("thread", position)
        await store.park("thread", driver.fence)
        assert await store.still_queued(0, 1 << 31) == {entry.position for entry in await store.queue(kind="input")}
        assert await store.withdraw("thread", first)
        assert await store.queues(NOW) == ["thread"], "another one is first now"
        await store.park("thread", driver.fence)
        assert await store.queues(NOW) == []
        row = await store.take("thread", owner="owner", now=NOW, lease_ms=LEASE)
        await store.release("thread", row.fence)
        assert await store.queues(NOW) == ["thread"]

    @promise
    async def test_webhooks_make_no_queue_due_and_one_may_be_parked_alone(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.commit(driver.record(), facts=facts(status="waiting"), release=True)
        first, second = [await store.enqueue("thread", body, now=NOW, kind="webhook") for body in (b"1", b"2")]

        async def found() -> list[tuple[bytes, str]]:
            return [(entry.body, row.thread_id) for entry, row in await store.unparked("webhook")]

        assert await store.queues(NOW) == [] and await store.unparked("input") == []
        assert await found() == [(b"1", "thread"), (b"2", "thread")]
        await store.park("thread", driver.fence - 1, position=first)
        assert len(await found()) == 2, "an older fence parks nothing"
        await store.park("thread", driver.fence, position=first)
        assert await found() == [(b"2", "thread")]
        await drive(store)
        assert await found() == [(b"1", "thread"), (b"2", "thread")], "the thread was taken again"
        assert await store.withdraw("thread", second)
        lines = [line async for line in store.export_thread("thread")]
        assert not [line for line in lines if line["kind"] == "input"], "a copy of the thread calls nobody"

    @promise
    async def test_a_request_to_stop_makes_no_queue_due(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await store.enqueue("thread", b"stop", now=NOW, kind="stop")
        await store.release("thread", driver.fence)
        assert await store.queues(NOW) == []

    @promise
    async def test_runs_that_lost_their_process_are_found(self, store: Checkpointer) -> None:
        for name, status in (("lapses", "running"), ("left", "running"), ("waits", "waiting"), ("done", "idle")):
            driver = await drive(store, name)
            await driver.commit(driver.record(), facts=ThreadFacts(status=status), release=name != "lapses")
        assert await store.stopped(NOW) == ["left"]
        assert sorted(await store.stopped(NOW + LEASE)) == ["lapses", "left"]
        assert len(await store.stopped(NOW + LEASE, limit=1)) == 1
        async with store.alone("take over") as mine:
            assert mine

    @promise
    async def test_attempts_are_counted_until_another_checkpoint_is_attempted(self, store: Checkpointer) -> None:
        await drive(store)
        counted = [await store.count_attempt("thread", name) for name in ("a", "a", "b", "a")]
        assert counted == [1, 2, 1, 1]
        await refused(ThreadNotFound, store.count_attempt("nobody", "a"))

    @promise
    async def test_a_run_that_has_not_begun_is_found_by_its_id(self, store: Checkpointer) -> None:
        await drive(store)
        position = await store.enqueue("thread", b"x", now=NOW, run_id="later")
        assert await store.find_run("later") == "thread"
        assert await store.withdraw("thread", position, run_id="later")
        assert await store.find_run("later") is None

    @promise
    async def test_a_refused_commit_consumes_nothing(self, store: Checkpointer) -> None:
        driver = await drive(store)
        position = await store.enqueue("thread", b"input", now=NOW)
        driver.head = "not the head"
        await refused(Fenced, driver.commit(driver.record(), consumes=position))
        assert await store.queued("thread") == (position, b"input")


async def fill_inbox(store: Checkpointer) -> list[Driver]:
    """Two threads with four interrupts each, of which `i1` to `i3` are due at 101 to 103."""
    drivers = [await drive(store, f"thread-{n}") for n in range(2)]
    for n in range(8):
        interrupt = OpenInterrupt(
            interrupt_id=f"i{n}",
            thread_id=f"thread-{n // 4}",
            run_id="run",
            kind="ask",
            node="n",
            owner="ann" if n % 2 == 0 else "bob",
            role="admin" if n % 4 == 0 else None,
            # Two at each moment, so that a page may end between equals.
            opened_at=NOW + n // 2,
            due_at=NOW + 100 + n if n in {1, 2, 3} else None,
        )
        await drivers[n // 4].add(opened=(interrupt,))
    return drivers
