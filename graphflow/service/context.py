"""What the functions of the service work on: the settings, the store, the agents and the tools of one process.

`Application` fills the context and owns its life. Functions take the context and never the application, so that each can be
called, and tested, with a context alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from graphflow.agents.loader import LoadedAgent, load_agent
from graphflow.agents.registry import AgentRegistry
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.errors import unknown_thread
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.open_store import open_store
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError, ThreadNotFound
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.engine.ports import Clock, Ids
from graphflow.memory.chat_recorder import ChatRecorder
from graphflow.memory.conversations import ConversationStore
from graphflow.memory.open_stores import open_conversations, open_long_term, open_tables
from graphflow.memory.store import Store as LongTermStore
from graphflow.memory.tables import MemoryTables
from graphflow.models.pool import ModelPool
from graphflow.models.prices import Prices
from graphflow.nodes.kinds import NodeKinds
from graphflow.nodes.model import MODEL_SERVICES
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.documents import stored_document
from graphflow.runtime.recovery_pauses import RecoveryPauses
from graphflow.runtime.runs.live_runs import Listener, LiveRuns, RunRegistry, registry_of
from graphflow.service.pinned_tools import UNFINISHED, PinnedTools
from graphflow.settings import Settings
from graphflow.tools.files.tool_files import ToolFiles
from graphflow.tools.files.viewports import Viewports
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner

if TYPE_CHECKING:
    from graphflow.tools.mcp.servers import McpServers


class ToolFolders(Protocol):
    """The tool files and viewports in service; `catalog.toolbox.Toolbox` keeps them up to date."""

    files: ToolFiles
    viewports: Viewports


class QueueState:
    """What this process knows of inputs that wait for their turn; `runs.input_queue` works on it."""

    def __init__(self) -> None:
        self.serving = False
        """Only a process that serves begins queued inputs: a command that ends soon would cut their runs off."""
        self.closed = False
        self.turns: WeakValueDictionary[tuple[str, int], asyncio.Future[Any]] = WeakValueDictionary()
        """(thread, position) → who waits for it here."""
        self.observer: asyncio.Task[None] | None = None
        self.draining: dict[str, asyncio.Task[None]] = {}
        self.again: set[str] = set()
        """Threads to look at once more when their drain is done."""
        self.pauses = RecoveryPauses()
        """Threads that the sweep leaves alone for a while."""


class SearchState:
    """How far the conversation store is up to date; `chats.search` works on it."""

    def __init__(self) -> None:
        self.upto: dict[str | None, int] = {}
        """By user: of his threads those are known that have not changed after this moment (epoch ms). None: all threads."""
        self.lock = asyncio.Lock()


class ServiceContext:
    """The parts of one process that every function of the service may use."""

    settings: Settings
    clock: Clock
    ids: Ids
    agents: AgentRegistry
    kinds: NodeKinds
    """Every kind of node; register functions here before agents that use them are loaded."""
    tools: ToolRegistry
    """The newest version of all tools; an unfinished run keeps the one it began with."""
    runner: ToolRunner
    toolbox: ToolFolders
    models: ModelPool
    prices: Prices
    providers: list[str]
    users: bool
    """Whether tokens name users."""
    mcp: McpServers | None = None
    """The MCP servers; None without any, and then nothing of them is loaded."""
    chat_record: ChatRecorder
    upload_bytes: Callable[[str, str], Awaitable[bytes | None]]
    """`(chat id, upload id)` → the bytes of an uploaded file, None where it is not there."""
    share_uploads: Callable[[str, str], Awaitable[None]]
    """`(chat id, id of a fork)`: the fork has the uploads too."""

    def __init__(self, settings: Settings, clock: Clock, ids: Ids, store: Checkpointer | None) -> None:
        self.settings, self.clock, self.ids = settings, clock, ids
        self._given_store = store
        self._listeners: tuple[Listener, ...] = ()
        """Called when a run of this process ends or waits, from the moment on at which the store is opened."""
        self.pinned_tools = PinnedTools()
        self.queue, self.search = QueueState(), SearchState()
        self.stopping = False
        """The process shuts down: nothing new begins (spec 3.5)."""
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._graphs: dict[str, tuple[LoadedAgent, ToolRegistry, CompiledGraph]] = {}

    # --- stores

    @cached_property
    def store(self) -> Checkpointer:
        """The store of threads, opened when it is first asked for."""
        store = open_store(self.settings.store) if self._given_store is None else self._given_store
        registry = registry_of(store)
        registry.lease_ms = self.settings.store.lease_ms
        registry.on_end.extend(self._listeners)
        return store

    @cached_property
    def registry(self) -> RunRegistry:
        """The live runs of this process over the store, and their listeners."""
        return registry_of(self.store)

    @property
    def runs(self) -> LiveRuns:
        """The live runs of this event loop over the store."""
        return self.registry.here(self.clock)

    @cached_property
    def _memory_tables(self) -> MemoryTables:
        return open_tables(self.settings.store)

    @cached_property
    def conversations(self) -> ConversationStore:
        """What was said in each chat, for listing and searching; see `chats.search`."""
        return open_conversations(self.settings.store, self._memory_tables)

    @cached_property
    def long_term(self) -> LongTermStore:
        """The long-term store across threads: `ctx.store` in nodes (spec 5.3)."""
        return open_long_term(self.settings.store, self._memory_tables, self.clock)

    # --- threads

    def refuse_when_stopping(self) -> None:
        """Raises `shutting_down` while the process shuts down (spec 3.5)."""
        if self.stopping:
            raise GraphflowError(
                "the server is stopping; try again in a moment", code="shutting_down", retryAfterMs=1000
            )

    @asynccontextmanager
    async def thread_lock(self, thread_id: str) -> AsyncIterator[None]:
        """One request at a time decides about a thread, so that of two answers the second sees the first."""
        lock, users = self._locks.get(thread_id, (asyncio.Lock(), 0))
        self._locks[thread_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        # The last user removes the lock, so the table does not grow with every thread id ever asked for.
        finally:
            lock, users = self._locks.pop(thread_id)
            if users > 1:
                self._locks[thread_id] = (lock, users - 1)

    # --- graphs

    def services(self, agent_key: str | None) -> dict[str, Any]:
        """What nodes of this agent reach through `ctx`."""
        return {
            **MODEL_SERVICES,
            "agent_key": agent_key,
            "kinds": self.kinds,
            "model": self.models,
            "tool": self.runner,
            "prices": self.prices,
            "store": self.long_term,
            "window_runs": self.settings.memory.chat_k,
            "upload_bytes": self.upload_bytes,
            "share_uploads": self.share_uploads,
        }

    async def ready_graph(self, agent_key: str) -> CompiledGraph:
        """The same as `graph`, once the MCP servers that the agent names have told what they offer, or can't be reached."""
        if self.mcp is not None:
            from graphflow.tools.mcp.named import servers_named

            await self.mcp.ready(servers_named(self.agents.get(agent_key).checked, self.mcp.by_name))
        return self.graph(agent_key)

    def graph(self, agent_key: str) -> CompiledGraph:
        """The newest version of an agent, ready to run.

        Raises:
            AgentNotFound: names near keys, or the error of a refused file.
        """
        agent = self.agents.get(agent_key)
        known = self._graphs.get(agent_key)
        # A reload makes new agent objects even for unchanged files; the graph is kept unless version or tools differ.
        if known is not None and known[0] is not agent:
            same = known[0].version == agent.version and known[1] is self.tools
            known = (agent, self.tools, known[2]) if same else None
        if known is None:
            known = (agent, self.tools, self.compiled(agent))
        self._graphs[agent_key] = known
        return known[2]

    def compiled(self, agent: LoadedAgent) -> CompiledGraph:
        """An agent that is in no folder, ready to run on this store."""
        services = self.services(agent.key)
        if self.mcp is not None:
            services["offered"] = self.mcp.recorded(agent.checked)
        return self._compiled(agent.checked, agent.key, services)

    def runner_of(self, tools: ToolRegistry) -> ToolRunner:
        """A runner of these tools, with the settings and rules of this process."""
        raise NotImplementedError

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
            bounds=self.settings.bounds,
        )

    def load(self, origin: Any) -> LoadedAgent:
        """An agent from a file, a text or data, checked against the tools and providers of this process."""
        return load_agent(
            origin,
            kinds=self.kinds,
            tools=self.tools.declared(),
            providers=self.providers,
            document_bytes=self.settings.bounds.document_bytes,
            users=self.users,
        )

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
            # The agent is gone; the version that the thread began with lives in the store.
            checked = await stored_document(self.store, row.facts.document)
            graph = self._compiled(checked, key, self.services(key))
        else:
            graph = self.graph(key)
        begun = self.pinned_tools.services(row)
        if begun is None and self.mcp is not None:
            begun = await self._recorded_services(row, graph, self.mcp)
        if begun is None or begun["tool"] is graph.host.services["tool"]:
            return graph
        return self._compiled(graph.host.documents.checked, key, begun)

    async def _recorded_services(
        self, row: ThreadRow, graph: CompiledGraph, mcp: McpServers
    ) -> Mapping[str, Any] | None:
        """The services of a run that another process has begun with other tools of MCP servers than there are now."""
        loaded = (
            None if row.facts.status not in UNFINISHED else await load_thread(self.store, row.thread_id, logs=False)
        )
        digest = "" if loaded is None else loaded.machine.tools
        now = graph.host.services.get("offered")
        if not digest or (now is not None and now.digest == digest):
            return None
        from graphflow.tools.mcp.recorded import RecordedTools

        begun = await RecordedTools.stored(self.store, digest)
        tools = self.tools.with_servers(begun.lists, mcp.tools(begun.lists))
        services = {"kinds": self.kinds.with_tools(tools), "tool": self.runner_of(tools), "offered": begun}
        return {**graph.host.services, **services}
