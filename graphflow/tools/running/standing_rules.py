"""Standing rules: decisions about tool calls that a person made once, for all calls that fit (spec 8.5).

A rule applies to one thread, one agent, or everywhere. A `deny` that matches always decides. Otherwise the first match
does; rules of the thread are tried before rules of the agent, and those before general ones; within each group the oldest
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec

from graphflow.errors import DefinitionError, ExpressionFailed
from graphflow.graph.expressions.compiler import Expression, compile_expression
from graphflow.graph.expressions.environment import Environment

Verdict = Literal["allow", "ask", "deny"]
VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")
_ARGS = Environment(names=frozenset({"args"})).without(
    **dict.fromkeys(
        ("state", "input", "out", "answer", "visits", "limits", "usage", "error"), "a rule sees the call's `args` only"
    )
)


class StandingRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One rule: the decision for calls of `tool` whose arguments match."""

    id: str
    tool: str
    """A tool's exact name; `*` is any tool."""
    decision: Verdict
    args: str | None = None
    """A CEL condition over `args`, the call's arguments; None fits all."""
    thread_id: str | None = None
    agent_key: str | None = None
    """A rule with neither a thread nor an agent applies everywhere."""
    expires_at: int | None = None
    """Epoch ms; None never."""
    fingerprint: str | None = None
    """Of an `allow`: the tool's when the rule was made; the rule is skipped for a tool that is described otherwise now."""
    reason: str | None = None
    """Shown to the model with `deny`."""
    created_at: int
    """Epoch ms."""
    created_by: str
    """Name of the token that made it, or `local`."""


class RuleSource(Protocol):
    """Where standing rules are kept."""

    async def standing(self) -> Sequence[StandingRule]:
        """All rules, oldest first."""


class NoRules:
    """The empty rule source."""

    async def standing(self) -> Sequence[StandingRule]:
        return ()


# Rules are tried on every call, and compiling CEL costs far more than evaluating it.
@lru_cache(maxsize=256)
def condition_of(args: str) -> Expression:
    """The compiled condition.

    Raises:
        DefinitionError: it is not valid CEL, or uses names other than `args`.
    """
    return compile_expression(args, _ARGS)


def fitting_rule(
    rules: Iterable[StandingRule],
    tool: str,
    arguments: Mapping[str, Any],
    *,
    thread_id: str,
    agent_key: str | None,
    now_ms: int,
    taken: Mapping[str, Any] | None = None,
    fingerprint: str | None = None,
) -> StandingRule | None:
    """The rule that decides about a call: a `deny` that matches, else the first one that does; None if none matches.

    Args:
        taken: the arguments as the tool takes them, converted. A tool takes `"2"` for 2, and a rule about 2 must see it so: a
            `deny` and an `ask` hold if they match either, an `allow` only if it matches both.
        fingerprint: the tool's.

    If a condition can't be evaluated for these arguments, an `allow` is skipped, and a `deny` becomes an `ask` that no
    `allow` overrides.
    """
    first: StandingRule | None = None
    unsure: StandingRule | None = None
    for rule in in_order(rules, thread_id=thread_id, agent_key=agent_key):
        if rule.tool not in (tool, "*") or (rule.expires_at is not None and rule.expires_at <= now_ms):
            continue
        if first is not None and rule.decision != "deny":
            continue
        if rule.fingerprint is not None and rule.fingerprint != fingerprint:
            continue
        fits = _fits(rule, arguments)
        if taken is not None and rule.args is not None and fits is not (rule.decision != "allow"):
            fits = _of_both(rule, fits, _fits(rule, taken))
        if fits and rule.decision == "deny":
            return rule
        if fits:
            first = rule
        elif fits is None and rule.decision != "allow":
            unsure = unsure or msgspec.structs.replace(rule, decision="ask")
    return unsure or first


def in_order(rules: Iterable[StandingRule], *, thread_id: str, agent_key: str | None) -> list[StandingRule]:
    """The rules that apply to this agent on this thread, in the order in which they are tried."""
    listed = list(rules)
    of_thread = [rule for rule in listed if rule.thread_id == thread_id]
    of_agent = [r for r in listed if r.thread_id is None and r.agent_key is not None and r.agent_key == agent_key]
    return [*of_thread, *of_agent, *(rule for rule in listed if rule.thread_id is None and rule.agent_key is None)]


def _of_both(rule: StandingRule, given: bool | None, taken: bool | None) -> bool | None:
    if rule.decision == "allow":
        return given and taken
    return True if True in (given, taken) else None if None in (given, taken) else False


def _fits(rule: StandingRule, arguments: Mapping[str, Any]) -> bool | None:
    """Whether the rule's condition is true; None when it can't be evaluated."""
    if rule.args is None:
        return True
    try:
        value = condition_of(rule.args).evaluate({"args": arguments})
    except (ExpressionFailed, DefinitionError):
        return None
    # A condition that gives no boolean is a mistake, and a mistake must never allow.
    return value if isinstance(value, bool) else None
