"""`RunHost`: what every run of one graph needs from outside: documents, store, clock, ids and services."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.errors import unknown_thread
from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.errors import CheckpointNotFound, GraphflowError
from graphflow.graph.engine.ports import Clock, Ids
from graphflow.runtime.documents import Documents
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns, registry_of


class RunHost:
    """The documents, the store, the clock and the services of one graph's runs.

    Args:
        store: where threads live; without one a run leaves nothing behind.
        services: what nodes reach through `ctx`: models, tools, the long-term store.
        agent_key: the agent that threads begun here belong to.
    """

    __slots__ = ("_registry", "agent_key", "clock", "documents", "ids", "services", "store")

    def __init__(
        self,
        documents: Documents,
        store: Checkpointer | None,
        *,
        clock: Clock,
        ids: Ids,
        services: Mapping[str, Any],
        agent_key: str | None,
    ) -> None:
        self.documents, self.store = documents, store
        self.clock, self.ids = clock, ids
        self.services, self.agent_key = services, agent_key
        self._registry = None if store is None else registry_of(store)

    def with_services(self, **services: Any) -> RunHost:
        """The same with other services: `model` a function `(provider key, name) → model`, `tool` a tool runner."""
        # A view, not a merge: the library's `Services` make their parts when they are first asked for.
        merged: Mapping[str, Any] = ChainMap(services, self.services)  # type: ignore[arg-type] # only read
        return RunHost(
            self.documents, self.store, clock=self.clock, ids=self.ids, services=merged, agent_key=self.agent_key
        )

    @property
    def runs(self) -> LiveRuns | None:
        """The live runs over the store; None without one."""
        return None if self._registry is None else self._registry.here(self.clock)

    def live(self, thread_id: str) -> LiveRun | None:
        """The run of this process that drives the thread, if any, on whatever event loop."""
        home = None if self._registry is None else self._registry.home_of(thread_id)
        return None if home is None else home.by_thread.get(thread_id)

    def need_runs(self) -> LiveRuns:
        """The live runs, for what makes no sense without a store.

        Raises:
            GraphflowError: `nothing_to_resume`.
        """
        runs = self.runs
        if runs is None:
            raise GraphflowError(
                "without a checkpointer no thread can go on; pass one to `compile` or `load_graph`",
                code="nothing_to_resume",
            )
        return runs

    async def open_runs(self) -> LiveRuns:
        """The live runs over a store that is set up.

        Raises:
            GraphflowError: `thread_not_found` without a store.
        """
        runs = self.runs
        if runs is None:
            raise GraphflowError(
                "without a checkpointer there are no threads; pass one to `compile` or `load_graph`",
                code="thread_not_found",
            )
        await runs.ready()
        return runs

    async def load(self, thread_id: str, checkpoint_id: str | None = None, *, logs: bool = True) -> Loaded:
        """The thread at its head or at a checkpoint; takes nothing.

        Raises:
            ThreadNotFound, CheckpointNotFound
        """
        store = (await self.open_runs()).store
        loaded = await load_thread(store, thread_id, checkpoint_id, logs=logs)
        if loaded is None or loaded.row.head is None:
            if await store.thread(thread_id) is None:
                raise unknown_thread(thread_id)
            raise CheckpointNotFound(
                f"thread {thread_id!r} has no checkpoint yet; run it first"
                if checkpoint_id is None
                else f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}; list them with thread.history()"
            )
        return loaded

    def tick(self, cls: Any, **fields: Any) -> Any:
        """A tick with an id and the time."""
        return cls(id=self.ids.new_id(), at=self.clock.now_ms(), **fields)

    def new_lineage(self) -> int:
        return int(self.ids.random() * (1 << 48)) + 1
