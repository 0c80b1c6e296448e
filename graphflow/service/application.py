"""The application: settings, store, agents, tools and models put together once, for every edge.

The CLI, the server and scripts all begin here; nothing below knows that they exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from graphflow.agents.loader import LoadedAgent, load_agent
from graphflow.agents.registry import AgentRegistry
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import Fault, GraphflowError, ThreadNotFound
from graphflow.graph.ports import Clock, Ids
from graphflow.memory.chat_files import ChatFiles
from graphflow.memory.chat_recorder import ChatRecorder
from graphflow.memory.open_stores import open_conversations, open_long_term, open_tables
from graphflow.memory.prompt_snapshot import system_of
from graphflow.memory.tools import memory_tools
from graphflow.models.pool import ModelPool, Opener
from graphflow.models.prices import Prices
from graphflow.models.providers import known_providers, open_model
from graphflow.nodes.kinds import NodeKinds
from graphflow.runtime.clock_and_ids import SystemClock, Uuid7Ids
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.live_runs import Runs
from graphflow.service.catalog.modules import import_modules
from graphflow.service.catalog.rules import StandingRules
from graphflow.service.catalog.toolbox import Toolbox
from graphflow.service.chats.search import ChatSearch
from graphflow.service.requests import unknown_thread
from graphflow.service.runs.pinned_tools import BegunWith
from graphflow.service.runs.queues import Queues
from graphflow.settings import Settings, load_settings
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.circuit_breaker import CircuitBreaker
from graphflow.tools.running.runner import ToolRunner

if TYPE_CHECKING:
    from graphflow.graph.definition.checked_document import CheckedDocument
    from graphflow.memory.conversations import ConversationStore
    from graphflow.memory.store import Store as LongTermStore
    from graphflow.memory.tables import MemoryTables
    from graphflow.models.chat_model import ChatModel


class Application:
    """Everything that an edge needs. Use it as an async context manager.

    Args:
        settings: default: those of the current folder and environment.
        checkpointer: default: PostgreSQL at `settings.store.url` if that is given, else SQLite at `settings.store.path`.
        models: opens models; default: by provider key and environment.
        tools: further tools, beside the built-in ones and what `settings.tools.modules` offer.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        checkpointer: Checkpointer | None = None,
        models: Opener | None = None,
        tools: Sequence[Any] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.settings = settings or load_settings()
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or Uuid7Ids()
        self._store = checkpointer
        self._listens = False
        self.rules = StandingRules(lambda: self.store, self.clock, self.ids)
        self._breaker = CircuitBreaker(
            self.clock.monotonic,
            threshold=self.settings.tools.circuit_failure_threshold,
            recovery_s=self.settings.tools.circuit_recovery_s,
        )
        self._offered = import_modules(self.settings.tools.modules, self.settings.folder)
        self.toolbox = Toolbox(self.settings, self._registered_tools([*self._offered.tools, *tools]), self._take_tools)
        self.tools = self.toolbox.registry
        """The newest version of all tools; what has begun keeps the one it began with."""
        self.runner = self._make_runner()
        self.models = ModelPool(models or self._open_model)
        self.prices = Prices(self.settings.prices)
        self.providers = known_providers(self.settings.providers)
        self.chat_record = self._make_chat_record()
        self.chat_search = ChatSearch(self)
        self.queues = Queues(self)
        self._begun = BegunWith()
        self._listeners = (self.chat_record.ended, self.queues.ended, self._begun.ended)
        self._kinds: NodeKinds | None = None
        self.agents = AgentRegistry(
            self.settings.agents.dir,
            kinds=self._make_kinds,
            tools=lambda: self.tools.names(),  # noqa: PLW0108 - `self.tools` is replaced when tool files change
            providers=self.providers,
            refresh_interval_ms=self.settings.agents.refresh_interval_ms,
        )
        self._graphs: dict[str, tuple[LoadedAgent, ToolRegistry, CompiledGraph]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self.stopping = False
        """The process shuts down: nothing new begins (spec 3.5)."""
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._systems: dict[str | None, Mapping[str, Any] | None] = {}

    def _registered_tools(self, more: Sequence[Any]) -> ToolRegistry:
        """The built-in tools, and `more`."""
        from graphflow.service.catalog.builtin_tools import registered_tools

        tools = memory_tools(lambda: self.long_term, self._user_of)
        return registered_tools(self.settings, more, load=self.load, memory=tools)

    async def _user_of(self, thread_id: str) -> str | None:
        row = await self.store.thread(thread_id)
        return None if row is None else row.facts.user

    def _make_runner(self) -> ToolRunner:
        return ToolRunner(
            self.tools,
            approval=self.settings.tools.approval_mode,
            max_result_chars=self.settings.tools.max_result_chars,
            legacy=self.settings.tools.legacy_adapter,
            breaker=self._breaker,
            rules=self.rules,
        )

    async def _take_tools(self, tools: ToolRegistry) -> None:
        """Puts another version of the tools in service; an agent that does not fit them keeps the one before."""
        for agent in self.agents.list():
            self.graph(agent.key)
        self.tools = tools
        self.runner = self._make_runner()
        self._kinds = self.kinds.with_tools(tools)
        self._systems.clear()
        await self.agents.recheck(self._kinds)

    def _make_chat_record(self) -> ChatRecorder:
        memory = self.settings.memory
        files = ChatFiles(memory.chat_dir, memory.chat_charset)
        return ChatRecorder(lambda: self.store, files, self._system_of, memory.chat_action_tools)

    async def _system_of(self, digest: str | None) -> Mapping[str, Any] | None:
        """What a version of an agent tells its model, for the chat record."""
        from graphflow.runtime.documents import stored_document

        if digest not in self._systems:
            document = (await stored_document(self.store, digest)).document
            self._systems[digest] = system_of(document, self.tools, self._model_name)
        return self._systems[digest]

    def _model_name(self, provider_key: str | None, model: str | None) -> str | None:
        try:
            return self.models(provider_key, model).model
        except GraphflowError:  # no key for it, or none any more
            return model

    def _make_kinds(self, agents: AgentRegistry) -> NodeKinds:
        self._kinds = NodeKinds(self.tools, agents=agents, providers=self.providers, priced=self._is_priced)
        self._offered.register(self._kinds)
        return self._kinds

    def _is_priced(self, provider_key: str | None, model: str | None) -> bool:
        try:
            opened = self.models(provider_key, model)
        except GraphflowError:  # no key for it yet; a node that calls it looks again
            return False
        return self.prices.find(opened.provider, opened.model) is not None

    @property
    def kinds(self) -> NodeKinds:
        """Every kind of node; register functions here before agents that use them are loaded."""
        assert self._kinds is not None
        return self._kinds

    def _open_model(self, provider_key: str | None, model: str | None) -> ChatModel:
        opened = open_model(provider_key, model, env=self.settings.environ, profiles=self.settings.providers)
        if not self.settings.llm.interaction_log_enabled:
            return opened
        from graphflow.models.interaction_log import LoggedModel

        return LoggedModel(opened, mask_sensitive=self.settings.llm.interaction_log_mask_sensitive)

    # --- life

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.agents.reload)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def watch(self) -> None:
        """Takes changed files of agents, tools and viewports into service until `aclose` (spec 1.1)."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())  # noqa: TID251 - ended by `aclose`

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.agents.watch())
            group.create_task(self.toolbox.watch())

    async def aclose(self, grace_s: float = 0.0) -> None:
        """Stops watching, gives running nodes `grace_s` to finish, leaves the rest at their last checkpoint."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        await self.queues.close()
        if self._store is not None:
            await self.runs.close(grace_s)
            if self._listens:
                for listener in self._listeners:
                    Runs.listeners(self._store).remove(listener)
                self._listens = False
            await self._store.close()
        if "_memory_tables" in self.__dict__:
            await self._memory_tables.close()
        await self.models.aclose()

    # --- what edges call

    @property
    def store(self) -> Checkpointer:
        """The store of threads, opened when it is first asked for."""
        if self._store is None:
            from graphflow.checkpoints.open_store import open_store

            self._store = open_store(self.settings.store)
        if not self._listens:
            self._listens = True
            Runs.listeners(self._store).extend(self._listeners)
        return self._store

    @cached_property
    def _memory_tables(self) -> MemoryTables:
        return open_tables(self.settings.store)

    @cached_property
    def conversations(self) -> ConversationStore:
        """What was said in each chat, for listing and searching; see `service.conversations`."""
        return open_conversations(self.settings.store, self._memory_tables)

    @cached_property
    def long_term(self) -> LongTermStore:
        """The long-term store across threads: `ctx.store` in nodes (spec 5.3)."""
        return open_long_term(self.settings.store, self._memory_tables, self.clock)

    @property
    def runs(self) -> Runs:
        """The live runs of this process over the store."""
        runs = Runs.over(self.store, self.clock)
        runs.lease_ms = self.settings.store.lease_ms
        return runs

    def status_of(self, row: ThreadRow) -> str:
        """`idle`, `running`, `waiting`, `failed` or `stopped` (spec 3.2), as far as a thread's row tells.

        A thread whose driver is gone is `stopped`: nobody renews its lease, or the owner's lock is free.
        """
        if row.facts.status != "running":
            return row.facts.status
        return "running" if self.runs.is_driven(row) else "stopped"

    @asynccontextmanager
    async def turn(self, thread_id: str) -> AsyncIterator[None]:
        """One request at a time decides about a thread, so that of two answers the second sees the first."""
        lock, users = self._turns.get(thread_id, (asyncio.Lock(), 0))
        self._turns[thread_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns.pop(thread_id)
            if users > 1:
                self._turns[thread_id] = (lock, users - 1)

    def services(self, agent_key: str | None) -> dict[str, Any]:
        """What nodes of this agent reach through `ctx`."""
        return {
            "agent_key": agent_key,
            "kinds": self.kinds,
            "model": self.models,
            "tool": self.runner,
            "prices": self.prices,
            "store": self.long_term,
            "window_runs": self.settings.memory.chat_k,
        }

    def graph(self, agent_key: str) -> CompiledGraph:
        """The newest version of an agent, ready to run.

        Raises:
            AgentNotFound: names near keys, or the fault of a refused file.
        """
        agent = self.agents.get(agent_key)
        known = self._graphs.get(agent_key)
        if known is not None and known[0] is not agent:
            same = known[0].version == agent.version and known[1] is self.tools
            known = (agent, self.tools, known[2]) if same else None
        if known is None:
            known = (agent, self.tools, self.compiled(agent))
        self._graphs[agent_key] = known
        return known[2]

    def compiled(self, agent: LoadedAgent) -> CompiledGraph:
        """An agent that is in no folder, ready to run on this application's store."""
        return self._compiled(agent.checked, agent.key, self.services(agent.key))

    def _compiled(
        self,
        checked: CheckedDocument | Callable[[], CheckedDocument],
        agent_key: str | None,
        services: Mapping[str, Any],
    ) -> CompiledGraph:
        return CompiledGraph(
            checked,
            kinds=services["kinds"],
            checkpointer=self.store,
            services=services,
            agent_key=agent_key,
            clock=self.clock,
            ids=self.ids,
        )

    def load(self, origin: Any) -> LoadedAgent:
        """An agent from a file, a text or data, checked against this application's tools and providers."""
        return load_agent(origin, kinds=self.kinds, tools=self.tools.names(), providers=self.providers)

    async def graph_of_thread(self, thread_id: str) -> CompiledGraph:
        """The graph that a thread belongs to; its own version of the document is used for what it has begun, and the tools
        that an unfinished run of this process began with.

        Raises:
            ThreadNotFound: no such thread.
        """
        await self.runs.ready()
        row = await self.store.thread(thread_id)
        if row is None:
            raise unknown_thread(thread_id)
        if row.head is None:
            raise ThreadNotFound(f"thread {thread_id!r} has no checkpoint yet; send it an input first")
        key = row.facts.agent_key
        if key is None or key not in {agent.key for agent in self.agents.list()}:
            graph = await self._orphan(row.facts.document, key)
        else:
            graph = self.graph(key)
        begun = self._begun.services(row)
        if begun is None or begun["tool"] is graph.services["tool"]:
            return graph
        return self._compiled(graph.documents.checked, key, begun)

    async def _orphan(self, digest: str | None, key: str | None) -> CompiledGraph:
        """The graph of a thread whose agent is gone: the version that it has begun lives in the store."""
        from graphflow.runtime.documents import stored_document

        return self._compiled(await stored_document(self.store, digest), key, self.services(key))

    def faults(self) -> list[Fault]:
        """Faults of tool files and viewports; those of agents are in `agents.invalid()`."""
        return self.toolbox.faults()
