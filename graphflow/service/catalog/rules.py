"""Standing rules about tool calls, kept in the store (spec 8.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import DefinitionError, GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.graph.definition.types import parse_duration_ms
from graphflow.graph.engine.ports import Clock, Ids
from graphflow.id_rule import is_id, unknown_id
from graphflow.suggestions import choose
from graphflow.tools.owned_names import server_of
from graphflow.tools.running.standing_rules import VERDICTS, StandingRule, condition_of

NOTE = "approval_rules"
"""Name of the store's note that holds them."""
FRESH_S = 1.0
"""Rules that another process makes take effect here within so many seconds."""
MAX_RULES = 1_000
Rules = Sequence[StandingRule]


class StandingRules:
    """The rules of a store; `standing` is what the tool runner asks.

    Args:
        store: gives the store, opened when it is first needed.
        clock: for expiry and freshness.
        ids: for new rules.
        tools, agents: the names that a rule may give.
        fingerprint: of a tool that others describe, None of any other.
    """

    def __init__(
        self,
        store: Callable[[], Checkpointer],
        clock: Clock,
        ids: Ids,
        tools: Callable[[], Collection[str]],
        agents: Callable[[], Iterable[str]],
        fingerprint: Callable[[str], Awaitable[str | None]] | None = None,
    ) -> None:
        self._fingerprint = fingerprint
        self._store, self._clock, self._ids, self._tools, self._agents = store, clock, ids, tools, agents
        self._known: Rules = ()
        self._read_at: float | None = None

    async def standing(self) -> Rules:
        """All rules that have not expired, oldest first."""
        if self._read_at is None or self._clock.monotonic() - self._read_at >= FRESH_S:
            await self._load()
        now = self._clock.now_ms()
        return [rule for rule in self._known if rule.expires_at is None or rule.expires_at > now]

    async def add(
        self,
        *,
        tool: str,
        decision: str,
        args: str | None = None,
        thread_id: str | None = None,
        agent_key: str | None = None,
        expires: str | None = None,
        reason: str | None = None,
        by: str = "local",
    ) -> StandingRule:
        """A new rule, the last of its scope.

        Args:
            tool: a tool's exact name, or `*`.
            decision: `allow`, `ask` or `deny`.
            args: a CEL condition over `args`.
            thread_id, agent_key: where it holds; with neither everywhere.
            expires: an ISO duration (`PT1H`) or date-time with its zone.
            reason: sent to the model with `deny`.
            by: who makes it.

        Raises:
            GraphflowError: `invalid_input`, naming the field.
        """
        now = self._clock.now_ms()
        rule = StandingRule(
            id=self._ids.new_id(),
            tool=tool if tool == "*" or tool in self._tools() else _known("tool", tool, self._tools()),
            fingerprint=await self._shown(tool, decision),
            decision=_decided(decision),  # type: ignore[arg-type] # one of the words
            args=_checked(args),
            thread_id=thread_id,
            agent_key=None if agent_key is None else _known("agentKey", agent_key, self._agents()),
            expires_at=None if expires is None else _moment(expires, now),
            reason=reason,
            created_at=now,
            created_by=by,
        )
        if thread_id is not None and agent_key is not None:
            raise _wrong("agentKey", "a rule holds for a thread or for an agent; give one of them")
        if thread_id is not None and not is_id(thread_id) and await self._store().thread(thread_id) is None:
            raise unknown_id(thread_id, "thread_id", "")
        await self._change(lambda rules: _with(rules, rule))
        return rule

    async def _shown(self, tool: str, decision: str) -> str | None:
        """What the tool's description is now: an `allow` holds for what its maker could see, and for no later one."""
        if decision != "allow" or self._fingerprint is None or not (server := server_of(tool)):
            return None
        found = await self._fingerprint(tool)
        if found is None:
            raise _wrong(
                "tool", f"the MCP server {server!r} does not offer {tool!r} now, so nobody can see what to allow"
            )
        return found

    async def remove(self, rule_id: str) -> bool:
        """Removes a rule; False when there is none of this id."""
        found = False

        def without(rules: Rules) -> Rules:
            nonlocal found
            found = found or any(rule.id == rule_id for rule in rules)
            return [rule for rule in rules if rule.id != rule_id]

        # `without` may run again on newer rules, from which another process has removed the rule: it was there all the same.
        await self._change(without)
        return found

    async def _load(self) -> bytes | None:
        note = await self._store().note(NOTE)
        self._known = () if note is None else msgspec.json.decode(note, type=list[StandingRule])
        self._read_at = self._clock.monotonic()
        return note

    async def _change(self, change: Callable[[Rules], Rules]) -> None:
        """Applies a change to the newest rules, again when another process was faster."""
        # Compare-and-swap on the note: rules of two processes must not overwrite each other.
        while True:
            note, now = await self._load(), self._clock.now_ms()
            # Expired rules go with the next change, so the note does not grow with them.
            rules = [rule for rule in change(self._known) if rule.expires_at is None or rule.expires_at > now]
            if rules == list(self._known):
                return
            if await self._store().swap_note(NOTE, msgspec.json.encode(rules), instead_of=note):
                self._known = rules
                return


def _with(rules: Rules, new: StandingRule) -> Rules:
    if any(rule.id == new.id for rule in rules):  # it was kept, and the store's answer was lost
        return rules
    if len(rules) >= MAX_RULES:
        raise _wrong("tool", f"there are {MAX_RULES} rules; remove some first")
    return [*rules, new]


def rule_dict(rule: StandingRule) -> dict[str, Any]:
    """A rule as people and their programs see it."""
    return {key: value for key, value in msgspec.to_builtins(rule).items() if value is not None}


def _known(field: str, given: str, names: Iterable[str]) -> str:
    # A misspelt `deny` would deny nothing.
    if given not in (known := list(names)):
        what = "tool, or '*' for any" if field == "tool" else "agent"
        raise _wrong(field, f"{excerpt_of(given)} is no {what}; {choose(given, known)}")
    return given


def _decided(decision: str) -> str:
    if decision not in VERDICTS:
        raise _wrong("decision", f"{excerpt_of(decision)} is not one of {', '.join(VERDICTS)}")
    return decision


def _checked(args: str | None) -> str | None:
    if args is None:
        return None
    try:
        found = condition_of(args)
    except DefinitionError as error:
        raise _wrong("args", f"{excerpt_of(args, 160)}: {error.errors[0].message}") from None
    if found.type not in ("bool", "dyn"):
        raise _wrong("args", f"{excerpt_of(args, 160)} gives {found.type}; a condition gives true or false")
    return args


def _wrong(field: str, message: str) -> GraphflowError:
    return GraphflowError(f"{field}: {message}", code="invalid_input", fields={field: message})


def _moment(expires: str, now: int) -> int:
    """Epoch ms of a duration from now, or of a date-time."""
    try:
        if expires.strip().upper().startswith("P"):
            at = now + parse_duration_ms(expires)
        else:
            moment = datetime.fromisoformat(expires)
            # Without a zone it would mean the server's, which its author may not know.
            if moment.tzinfo is None:
                raise _wrong("expires", f"{expires!r} has no zone; write 2026-01-31T12:00:00Z, or a duration: PT1H")
            at = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise _wrong("expires", f"{excerpt_of(expires)} is neither an ISO duration (PT1H) nor a date-time") from None
    if at <= now:
        raise _wrong("expires", f"{expires!r} is past")
    return at
