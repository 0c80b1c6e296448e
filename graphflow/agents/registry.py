"""All agents of a folder: the last good version of each, what is wrong with the others, and hot reload (spec 1.1)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from graphflow.agents.draft import Draft, Known, read_draft, unreadable_draft
from graphflow.agents.loader import LoadedAgent
from graphflow.agents.polling import folder_changes, until_sure
from graphflow.agents.reload import AgentChanges, InvalidAgent, Round, Table, current_round, next_table
from graphflow.authored_files import MAX_BYTES, read_authored
from graphflow.errors import AgentNotFound, DefinitionError, summed_up
from graphflow.graph.definition.kinds import Kinds
from graphflow.suggestions import nearest

SUFFIX = ".json"

log = logging.getLogger("graphflow.agents")


class AgentRegistry:
    """The agents of a folder (`*.json`); a file's name without its suffix is its agent's key.

    A broken file keeps its last valid version active and does not affect other files.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        kinds: Callable[[AgentRegistry], Kinds],
        tools: Callable[[], Collection[str]] | None = None,
        providers: Collection[str] | None = None,
        users: bool | None = None,
        refresh_interval_ms: int = 10_000,
        document_bytes: int = MAX_BYTES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A registry that has loaded nothing yet: call `reload()`.

        Args:
            folder: need not exist.
            kinds: returns the node kinds; called once, with this registry for looking up agents.
            tools: returns the names of all registered tools; `None` skips that check.
            providers: the keys and aliases of all known providers; `None` skips that check.
            users: whether there are users; `None` skips that check.
            refresh_interval_ms: interval at which `watch()` checks the folder (`AGENT_REFRESH_INTERVAL_MS`).
            document_bytes: largest file.
            sleep: the wait function; tests pass their own.
        """
        self.folder = Path(folder)
        self._tools = tools
        self._providers, self._users = providers, users
        self._document_bytes = document_bytes
        self._interval_ms = refresh_interval_ms
        self._sleep = sleep
        self._table = Table()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[AgentChanges], None]] = []
        self._kinds = kinds(self)

    # --- looking up ---------------------------------------------------------------------------------------------------

    def get(self, key: str) -> LoadedAgent:
        """The newest valid version of an agent.

        Raises:
            AgentNotFound: none has this key; the text names near ones, or the error if its file was rejected.
        """
        table = self._table  # one look: a reload may replace the table in another thread
        if agent := table.agents.get(key):
            return agent
        if refused := table.invalid.get(key):
            issues = [issue.as_dict() for issue in refused.errors]
            raise AgentNotFound(f"agent {key!r} was rejected: {refused.errors[0].render()}", key=key, errors=issues)
        known = sorted(table.agents)
        near = nearest(key, known)
        hint = f"did you mean {near!r}? " if near else ""
        listed = f"agents are {', '.join(known)}" if known else "there are no agents"
        text = f"no agent has the key {key!r}; {hint}{listed}"
        raise AgentNotFound(text, key=key, known=known)

    def list(self) -> tuple[LoadedAgent, ...]:
        """All active agents, by key."""
        return tuple(agent for _, agent in sorted(self._table.agents.items()))

    def invalid(self) -> tuple[InvalidAgent, ...]:
        """All rejected files, by key."""
        return tuple(refused for _, refused in sorted(self._table.invalid.items()))

    def keys(self) -> tuple[str, ...]:
        """All keys that a document may refer to."""
        checking = self._round()
        return tuple(sorted(self._table.agents if checking is None else checking.drafts))

    def document(self, key: str) -> Mapping[str, Any] | None:
        """The explicit document of `KEY` or `KEY@VERSION` as plain JSON data, or None.

        `VERSION` is the document's own `version` or its version hash; only the newest version is looked at.
        """
        name, _, version = key.partition("@")
        checking = self._round()
        agent = self._table.agents.get(name)
        data = agent.data if agent else None
        if checking is not None:
            # Inside a check the drafts count: agents that refer to each other must fit together as they will be.
            data = checking.document(name)
            agent = checking.good.get(name, agent)
        if data is None or not version or version == data.get("version"):
            return data
        return data if agent is not None and agent.version == version else None

    def _round(self) -> Round | None:
        """This registry's round if the caller is inside of its checks, else None."""
        checking = current_round.get()
        # Another registry may be checking in the same context.
        return checking if checking is not None and checking.kinds is self._kinds else None

    # --- loading ------------------------------------------------------------------------------------------------------

    def reload(self, paths: Iterable[str | Path] | None = None, *, recheck: bool = False) -> AgentChanges:
        """Reads, checks and activates changed files; reports broken ones at once.

        Args:
            paths: check these files only; `None` checks the whole folder.
            recheck: also read unchanged files again, because tools, providers or kinds changed.
        """
        only = None if paths is None else {_key_of(Path(path)) for path in paths}
        change, _ = self._look(only=only, recheck=recheck)
        self._notify(change)
        return change

    def check(self, key: str, content: bytes) -> LoadedAgent:
        """The agent that a file of this content would be: what a reload would say of it, before it is written.

        Raises:
            DefinitionError: a reload would refuse it.
        """
        with self._lock:
            old = self._table
            table, _ = next_table(old, {**old.texts, key: content}, {key: self._read(key, content)}, self._kinds)
        if (refused := table.invalid.get(key)) is not None:
            raise DefinitionError(refused.errors)
        return table.agents[key]

    async def refresh(self) -> None:
        """Like `reload`, off the event loop; a file that vanished or is not JSON is read again shortly after, before
        that is reported, because somebody may still be writing it.
        """

        async def look(sure: bool) -> bool:
            change, doubtful = await asyncio.to_thread(self._look, sure=sure)
            self._notify(change)
            return doubtful

        await until_sure(look, self._sleep)

    async def recheck(self, kinds: Kinds) -> None:
        """Checks every agent against other kinds, off the event loop, because tools were added, changed or removed.

        An agent that does not fit them is reported and keeps its last valid version.
        """
        change, _ = await asyncio.to_thread(self._look, recheck=True, sure=True, kinds=kinds)
        self._notify(change)

    async def watch(self) -> None:
        """Keeps the agents up to date until cancelled; run it in a task group."""
        changes = folder_changes(self.folder, suffix=SUFFIX, interval_ms=self._interval_ms, sleep=self._sleep)
        async with aclosing(changes) as due:
            async for _ in due:
                await self.refresh()

    def on_change(self, listener: Callable[[AgentChanges], None]) -> Callable[[], None]:
        """Registers a callback for each reload that changed anything; returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify(self, change: AgentChanges) -> None:
        for refused in change.invalid:
            for issue in summed_up(refused.errors):
                log.warning("agents: %s", issue.render())
        if change:
            # A copy: a listener may remove itself.
            for listener in tuple(self._listeners):
                try:
                    listener(change)
                except Exception:  # a listener's defect must not end hot reload, nor keep the news from others
                    log.exception("agents: a listener failed")

    def _look(
        self, *, only: set[str] | None = None, recheck: bool = False, sure: bool = False, kinds: Kinds | None = None
    ) -> tuple[AgentChanges, bool]:
        """Activates what differs, with `sure` only files that are certainly complete; also whether others are left."""
        # Reloads come from the watcher's threads and from callers; each must start from the table of the one before.
        with self._lock:
            self._kinds = kinds or self._kinds
            files, old = self._scan(), self._table
            names = files.keys() | old.texts.keys()
            news = {key for key in names if recheck or files.get(key) != old.texts.get(key)}
            if only is not None:
                news &= only
            drafts = {key: self._read(key, files[key]) for key in news & files.keys()}
            # An editor that saves may remove or truncate the file for a moment.
            doubtful = {key for key in news if key not in drafts or drafts[key].unreadable} if sure else set()
            news -= doubtful
            if not news:
                return AgentChanges(), bool(doubtful)
            texts = {key: text for key, text in old.texts.items() if key not in news}
            texts |= {key: files[key] for key in news & files.keys()}
            read = {key: draft for key, draft in drafts.items() if key in news}
            # Replaced as a whole: readers take no lock and must never see half a reload.
            self._table, change = next_table(old, texts, read, self._kinds)
            return change, bool(doubtful)

    def _scan(self) -> dict[str, bytes | str]:
        """Key → the agent file's bytes, or why it can't be read; hidden files (of editors) are skipped."""
        try:
            files = sorted(file for file in self.folder.glob(f"[!.]*{SUFFIX}") if not file.is_dir())
        except OSError:
            return {}
        return {_key_of(file): _content(file, self._document_bytes) for file in files}

    def _read(self, key: str, content: bytes | str) -> Draft:
        file = str(self.folder / f"{key}{SUFFIX}")
        if isinstance(content, str):
            return unreadable_draft(file, content)
        known = Known(
            tools=self._tools and self._tools(),
            providers=self._providers,
            users=self._users,
            document_bytes=self._document_bytes,
        )
        try:
            return read_draft(content, file=file, known=known)
        # A defect in a check must not stop the reload of the other files.
        except Exception as error:
            log.exception("agents: %s could not be read", file)
            return unreadable_draft(file, f"{type(error).__name__}: {error}")


def _key_of(file: Path) -> str:
    return file.name.removesuffix(SUFFIX)


def _content(file: Path, max_bytes: int) -> bytes | str:
    try:
        return read_authored(file, max_bytes)
    except OSError as error:
        return error.strerror or type(error).__name__
