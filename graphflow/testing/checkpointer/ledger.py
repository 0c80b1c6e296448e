"""Promises about the ledger: what was used, by day, agent, model and thread."""

from __future__ import annotations

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Spent
from graphflow.errors import Fenced
from graphflow.testing.checkpointer.suite import Suite, drive, facts, promise, refused


def line(day: int = 1, agent_key: str = "demo", model: str = "p/m", **figures: int) -> Spent:
    return Spent(day=day, agent_key=agent_key, model=model, **{"model_calls": 1, "cost": 1_000, **figures})


class Ledger(Suite):
    """What records have used."""

    @promise
    async def test_what_records_have_used_is_added_up_by_day_agent_and_model(self, store: Checkpointer) -> None:
        one, two = await drive(store, "one"), await drive(store, "two")
        await one.add(spent=line(prompt_tokens=10, cost=2**40))
        await one.add(spent=line(prompt_tokens=5, unpriced=1))
        await one.add(spent=line(day=2, model=""))
        await two.add(spent=line(prompt_tokens=7, active_ms=3))
        await two.add(spent=line(agent_key="other"))
        # Beyond 32 bits: costs are in 10⁻¹² USD, of which a few tenths of a cent fill an integer.
        both = line(prompt_tokens=22, unpriced=1, active_ms=3, model_calls=3, cost=2**40 + 2_000)
        assert await store.spent() == [both, line(agent_key="other"), line(day=2, model="")]
        mine = line(prompt_tokens=15, unpriced=1, model_calls=2, cost=2**40 + 1_000)
        assert await store.spent(thread_id="one") == [mine, line(day=2, model="")]
        assert await store.spent(agent_key="other") == [line(agent_key="other")]
        assert await store.spent(since=2) == [line(day=2, model="")]
        assert await store.spent(until=1, agent_key="demo") == [both]
        assert await store.spent(thread_id="nobody") == []

    @promise
    async def test_a_commit_that_is_refused_adds_nothing(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(spent=line())
        late = driver.store.commit("thread", driver.fence - 1, None, [driver.record(spent=line())], facts=facts())
        await refused(Fenced, late)
        assert await store.spent() == [line()]

    @promise
    async def test_what_a_deleted_thread_has_used_stays_used_without_its_name(self, store: Checkpointer) -> None:
        for name in ("one", "two", "three"):
            driver = await drive(store, name)
            await driver.add(spent=line())
            await store.release(name, driver.fence)
        # Two of them: their lines fall together under the empty name and have to be added, not replaced.
        await store.delete_thread("one")
        await store.delete_thread("two")
        assert await store.spent() == [line(model_calls=3, cost=3_000)]
        assert await store.spent(thread_id="one") == await store.spent(thread_id="two") == []
        assert await store.spent(thread_id="three") == [line()]
