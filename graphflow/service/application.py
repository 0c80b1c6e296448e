"""The application: builds the service context of one process, and opens, watches and closes what it holds.

The CLI, the server and scripts all begin here; nothing below knows that they exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from graphflow.agents.registry import AgentRegistry
from graphflow.arguments import checked
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import DefinitionError, GraphflowError, Issue
from graphflow.graph.engine.ports import Clock, Ids
from graphflow.memory.chat_files import ChatFiles
from graphflow.memory.chat_recorder import ChatRecorder
from graphflow.memory.prompt_snapshot import system_of
from graphflow.memory.tools import memory_tools
from graphflow.models.model_data import listed_prices
from graphflow.models.opening import pool_of
from graphflow.models.pool import ModelPool, Opener
from graphflow.models.prices import Prices
from graphflow.models.providers import check_tables, known_providers
from graphflow.models.unpriced import unpriced_models
from graphflow.nodes.kinds import NodeKinds
from graphflow.runtime.clock_and_ids import SystemClock, Uuid7Ids
from graphflow.runtime.documents import stored_document
from graphflow.service import uploads
from graphflow.service.catalog.modules import import_modules
from graphflow.service.catalog.rules import StandingRules
from graphflow.service.catalog.toolbox import Toolbox
from graphflow.service.context import ServiceContext
from graphflow.service.runs import input_queue
from graphflow.settings import Settings, load_settings
from graphflow.settings.folders import folder_issues
from graphflow.tools.owned_names import server_of
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.circuit_breaker import CircuitBreaker
from graphflow.tools.running.runner import ToolRunner

if TYPE_CHECKING:
    from graphflow.agents.loader import LoadedAgent
    from graphflow.tools.mcp.servers import McpServers


class Application(ServiceContext):
    """One process of graphflow: its settings, store, agents, tools and models. Use it as an async context manager.

    Args:
        settings: default: those of the current folder and environment.
        checkpointer: default: PostgreSQL at `settings.store.url` if that is given, else SQLite at `settings.store.path`.
        models: opens models; default: by provider key and environment.
        tools: tools in addition to the built-in ones and those of `settings.tools.modules`.
    """

    toolbox: Toolbox

    @checked
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
        super().__init__(settings or load_settings(), clock or SystemClock(), ids or Uuid7Ids(), checkpointer)
        # Before the first of them is read or written to: who needs one later could only fail.
        if issues := folder_issues(self.settings):
            raise DefinitionError(issues)
        self.rules = StandingRules(
            lambda: self.store,
            self.clock,
            self.ids,
            tools=lambda: self.tools.declared(),  # noqa: PLW0108 - `self.tools` is replaced when tool files change
            fingerprint=self._fingerprint,
            agents=lambda: (agent.key for agent in self.agents.list()),
        )
        self._breaker = CircuitBreaker(
            self.clock.monotonic,
            threshold=self.settings.tools.circuit_failure_threshold,
            recovery_s=self.settings.tools.circuit_recovery_s,
        )
        self._offered = import_modules(self.settings.tools.modules, self.settings.folder)
        self.toolbox = Toolbox(self.settings, self._registered_tools([*self._offered.tools, *tools]), self._take_tools)
        self.tools = self.toolbox.registry
        if self.tools.servers:
            self.mcp = self._make_mcp()
        self.runner = self.runner_of(self.tools)
        self.models = pool_of(lambda: self.settings) if models is None else ModelPool(models)
        self.prices = Prices(self.settings.prices, listed_prices(self.settings.llm.models_file))
        self.providers = known_providers(self.settings.providers)
        check_tables(self.settings.environ, self.settings.providers)
        self.chat_record = self._make_chat_record()
        self.upload_bytes = partial(uploads.content, self)
        self.share_uploads = partial(uploads.share, self)
        self._listeners = (self.chat_record.ended, partial(input_queue.ended, self), self.pinned_tools.ended)
        self.agents = AgentRegistry(
            self.settings.agents.dir,
            kinds=self._make_kinds,
            tools=lambda: self.tools.declared(),  # noqa: PLW0108 - `self.tools` is replaced when tool files change
            providers=self.providers,
            users=self.users,
            refresh_interval_ms=self.settings.agents.refresh_interval_ms,
            document_bytes=self.settings.bounds.document_bytes,
        )
        self._watcher: asyncio.Task[None] | None = None
        self._systems: dict[str | None, Mapping[str, Any] | None] = {}

    def _registered_tools(self, more: Sequence[Any]) -> ToolRegistry:
        """The built-in tools, and `more`."""
        from graphflow.service.catalog.agent_grants import excess
        from graphflow.service.catalog.builtin_tools import names_users, registered_tools

        self.users = names_users(self.settings.server.tokens)
        tools = memory_tools(lambda: self.long_term, self._user_of)
        return registered_tools(
            self.settings,
            more,
            check=self._check_agent,
            excess=partial(excess, self),
            memory=tools,
            user_of=self._user_of,
        )

    async def _fingerprint(self, tool: str) -> str | None:
        """What a standing rule about the tool holds for; its MCP server is asked, if it has one."""
        if self.mcp is not None and self.tools.gone(tool) is not None:
            await self.mcp.ready([server_of(tool)])
        found = self.tools.get(tool)
        return None if found is None else found.fingerprint

    def _make_mcp(self) -> McpServers:
        from graphflow.tools.mcp.config import server_configs
        from graphflow.tools.mcp.servers import McpServers

        return McpServers(server_configs(self.settings), self.toolbox.take_served, self.clock.monotonic)

    async def _user_of(self, thread_id: str) -> str | None:
        row = await self.store.thread(thread_id)
        return None if row is None else row.facts.user

    def runner_of(self, tools: ToolRegistry) -> ToolRunner:
        """See `ServiceContext`."""
        return ToolRunner(
            tools,
            approval=self.settings.tools.approval_mode,
            max_result_chars=self.settings.tools.max_result_chars,
            max_output_bytes=self.settings.bounds.tool_output_bytes,
            legacy=self.settings.tools.legacy_adapter,
            breaker=self._breaker,
            rules=self.rules,
        )

    async def _take_tools(self, tools: ToolRegistry) -> None:
        """Activates a new version of the tools; an agent that does not fit it keeps the one before."""
        # Compiled with the old tools now: an agent that the new ones do not fit stays usable.
        for agent in self.agents.list():
            self.graph(agent.key)
        self.tools = tools
        self.runner = self.runner_of(tools)
        self.kinds = self.kinds.with_tools(tools)
        self._systems.clear()
        await self.agents.recheck(self.kinds)

    def _make_chat_record(self) -> ChatRecorder:
        memory = self.settings.memory
        files = ChatFiles(memory.chat_dir, memory.chat_charset)
        return ChatRecorder(lambda: self.store, files, self._system_of, memory.chat_action_tools)

    async def _system_of(self, digest: str | None) -> Mapping[str, Any] | None:
        """The system prompt and tools that a version of an agent gives its model, for the chat record."""
        if digest not in self._systems:
            document = (await stored_document(self.store, digest)).document
            self._systems[digest] = system_of(document, self.tools, self._model_name)
        return self._systems[digest]

    def _model_name(self, provider_key: str | None, model: str | None) -> str | None:
        try:
            return self.models(provider_key, model).model
        except GraphflowError:  # no key for it, or none any more
            return model

    def _check_agent(self, key: str, content: bytes) -> LoadedAgent:
        return self.agents.check(key, content)  # which is made after the tools

    def _make_kinds(self, agents: AgentRegistry) -> NodeKinds:
        self.kinds = NodeKinds(
            self.tools, agents=agents, providers=self.providers, unpriced=self._unpriced, users=self.users
        )
        self._offered.register(self.kinds)
        return self.kinds

    def _unpriced(self, provider_key: str | None, model: str | None, fallback: Sequence[str] | None) -> list[str]:
        return unpriced_models(self.models, self.prices, provider_key, model, fallback)

    # --- life

    async def __aenter__(self) -> Self:
        # Reading agent files blocks, so not on the event loop.
        await asyncio.to_thread(self.agents.reload)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def watch(self) -> None:
        """Takes changed files of agents, tools and viewports into service until `aclose` (spec 1.1)."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())  # noqa: TID251 - ended by `aclose`
        if self.mcp is not None:
            self.mcp.start()

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
        # Queued inputs first: otherwise a run that ends below would begin the next one.
        await input_queue.close(self)
        # A store that nobody has asked for is not opened only to be closed.
        if self._given_store is not None or "store" in self.__dict__:
            await self.runs.close(grace_s)
            for listener in self._listeners:
                self.registry.on_end.remove(listener)
            await self.store.close()
            del self.store, self.registry  # whoever asks for a store again gets one that tells the listeners again
        if "_memory_tables" in self.__dict__:
            await self._memory_tables.close()
        if self.mcp is not None:
            await self.mcp.aclose()
        await self.models.aclose()

    def errors(self) -> list[Issue]:
        """Errors of tool files and viewports; those of agents are in `agents.invalid()`."""
        return self.toolbox.errors()
