"""One round of loading: from the table in service and the files that changed to the next table.

Nothing here touches a disk. A table is immutable and replaced as a whole, so a reader never sees
half a reload.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from graphflow.agents.draft import Draft
from graphflow.agents.loader import LoadedAgent, check_draft
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.kinds import Kinds


@dataclass(frozen=True, kw_only=True)
class InvalidAgent:
    """A rejected file."""

    key: str
    file: str | None
    errors: tuple[Issue, ...]
    in_service: bool
    """Whether an earlier valid version is still active."""


@dataclass(frozen=True, kw_only=True)
class AgentChanges:
    """The changes of a reload, by agent key; false if there are none."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    invalid: tuple[InvalidAgent, ...] = ()
    """Rejected files whose errors differ from those reported before."""
    fixed: tuple[str, ...] = ()
    """Keys that were rejected before and are valid now."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.invalid or self.fixed)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A consistent view of the folder, by agent key."""

    texts: Mapping[str, bytes | str] = field(default_factory=dict)
    """The bytes of each file as last read, or why it can't be read."""
    drafts: Mapping[str, Draft] = field(default_factory=dict)
    agents: Mapping[str, LoadedAgent] = field(default_factory=dict)
    """The active agents: the newest valid version of each."""
    invalid: Mapping[str, InvalidAgent] = field(default_factory=dict)


class Round:
    """Checks drafts against each other; the order of their references does not matter."""

    def __init__(self, kinds: Kinds, old: Table, drafts: Mapping[str, Draft], suspects: frozenset[str]) -> None:
        self.kinds = kinds
        self._old = old
        self._suspects = suspects
        self._open: list[str] = []
        self.drafts = drafts
        self.good: dict[str, LoadedAgent] = {}
        self.refused: dict[str, tuple[Issue, ...]] = {}

    def check(self, key: str) -> LoadedAgent | None:
        """The agent in this round: checked again, unchanged, or the last valid version of a rejected one."""
        if key in self._suspects and key not in self.good and key not in self.refused:
            # Checking one agent may check another; the stack tells a cycle from a plain reference.
            self._open.append(key)
            try:
                self.good[key] = check_draft(self.drafts[key], self.kinds)
            except DefinitionError as error:
                self.refused[key] = error.errors
            except Exception as error:  # noqa: BLE001 — one file must never take the others down
                self.refused[key] = (_defect(self.drafts[key], error),)
            finally:
                self._open.pop()
        return self.good.get(key) or self._old.agents.get(key)

    def document(self, key: str) -> Mapping[str, Any] | None:
        """The document of an agent that another one refers to.

        An agent in the middle of its own check is returned as written, so that the graph's compiler sees the cycle.
        """
        if key not in self.drafts:
            return None
        if key in self._open:
            return self.drafts[key].data
        agent = self.check(key)
        return agent.data if agent else None


current_round: ContextVar[Round | None] = ContextVar("current_round", default=None)
"""Set while a round checks: look-ups inside a check see its drafts, all others the active table."""


def next_table(
    old: Table, texts: Mapping[str, bytes | str], read: Mapping[str, Draft], kinds: Kinds
) -> tuple[Table, AgentChanges]:
    """The table after some files changed, and the changes.

    Args:
        old: the active table.
        texts: every file of the folder now.
        read: the drafts of the files that are new or differ.
        kinds: the registered node kinds.
    """
    drafts = {key: read.get(key) or old.drafts[key] for key in texts}
    # Documents refer to each other and are hashed together, so a referring one is checked with every change.
    suspects = frozenset(read) | {key for key, draft in drafts.items() if draft.refers}
    checked = Round(kinds, old, drafts, suspects)
    # A context variable: the kinds look agents up through the registry and can't be passed the round.
    token = current_round.set(checked)
    try:
        agents = {key: agent for key in drafts if (agent := checked.check(key))}
    finally:
        current_round.reset(token)
    # What was not checked again keeps its errors; they would otherwise look fixed.
    invalid = {key: refused for key, refused in old.invalid.items() if key in drafts and key not in suspects}
    for key, issues in checked.refused.items():
        invalid[key] = InvalidAgent(key=key, file=drafts[key].file, errors=issues, in_service=key in agents)
    table = Table(texts=dict(texts), drafts=drafts, agents=agents, invalid=invalid)
    return table, _difference(old, table)


def _difference(old: Table, new: Table) -> AgentChanges:
    both = old.agents.keys() & new.agents.keys()
    return AgentChanges(
        added=tuple(sorted(new.agents.keys() - old.agents.keys())),
        changed=tuple(sorted(key for key in both if old.agents[key].version != new.agents[key].version)),
        removed=tuple(sorted(old.agents.keys() - new.agents.keys())),
        invalid=tuple(refused for key, refused in sorted(new.invalid.items()) if refused != old.invalid.get(key)),
        fixed=tuple(sorted((old.invalid.keys() - new.invalid.keys()) & new.agents.keys())),
    )


def _defect(draft: Draft, error: Exception) -> Issue:
    message = f"could not be checked: {type(error).__name__}: {error}"
    return Issue(pointer="", message=message, hint="this is a bug in graphflow; please report it", file=draft.file)
