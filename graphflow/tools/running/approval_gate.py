"""Whether a call may run: a standing rule decides, else the agent's approval mode, which may ask a person (spec 8.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.tools.context import RunnerContext
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.running.approval import (
    Approved,
    approval_key,
    approval_mode,
    approval_rule,
    ask_approval,
    must_ask,
    special_people,
)
from graphflow.tools.running.policy import CallPolicy
from graphflow.tools.running.standing_rules import RuleSource, StandingRule, fitting_rule

_SCALARS = (str, int, float, bool)


class ApprovalGate:
    """Decides whether a call runs: by recorded decision, standing rule or a person's approval.

    A rule only replaces the approval prompt; every check of the tool itself still applies. A tool that changes what agents
    may do is always asked about, whatever the mode and the rules that allow it say.

    Args:
        mode: the approval mode for agents that say nothing.
        rules: the standing rules.
    """

    def __init__(self, mode: str, rules: RuleSource) -> None:
        self._mode, self._rules = mode, rules

    async def decide(
        self,
        tool: Tool,
        call_id: str,
        arguments: dict[str, Any],
        policy: CallPolicy,
        ctx: RunnerContext,
        *,
        key: str,
        taken: Mapping[str, Any] | None = None,
    ) -> Approved | ToolResult:
        """Go on with these arguments, or the call's result.

        Args:
            taken: the arguments as the tool takes them.

        Raises:
            Terminated: the person who was asked ended the run.
        """
        who = approval_rule(tool.name, policy.approval, self._mode)
        agent = policy.agent_key
        if ctx.recorded(approval_key(key)):  # a person was asked; an `allow` made since does not answer for them
            return await ask_approval(tool, call_id, arguments, ctx, key=key, rule=who, agent_key=agent)
        if ctx.recorded(rule_key(key)):
            return await _by_rule(None, tool, arguments, ctx, key)
        # Recorded decisions come first: rules may have changed since, and a re-entered node must decide as it did before.
        asks, rule = self._asks_by_itself(tool, policy), await self._rule(tool, arguments, policy, ctx, taken)
        # An `allow` without a question to skip leaves no record: nothing was decided.
        # An `allow` of one person does not stand for the two, or the other one, whom the agent wants.
        may_allow = asks and not tool.is_guarded and not who.is_special
        allows = rule is not None and rule.decision == "allow" and may_allow
        if rule is not None and (rule.decision == "deny" or allows):
            return await _by_rule(rule, tool, arguments, ctx, key)
        if asks or (rule is not None and rule.decision == "ask"):
            return await ask_approval(tool, call_id, arguments, ctx, key=key, rule=who, agent_key=agent)
        return Approved(arguments=arguments)

    async def denial(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        policy: CallPolicy,
        ctx: RunnerContext,
        *,
        key: str,
        taken: Mapping[str, Any],
    ) -> ToolResult | None:
        """The result of a call that people have approved, with arguments that they may have edited, and a rule denies."""
        if ctx.recorded(rule_key(key)):
            rule = None
        # A call that was made, or has begun, is taken back by no rule.
        elif (
            ctx.recorded(key)
            or (rule := await self._rule(tool, arguments, policy, ctx, taken)) is None
            or rule.decision != "deny"
        ):
            return None
        decided = await _by_rule(rule, tool, arguments, ctx, key)
        return decided if isinstance(decided, ToolResult) else None

    async def is_free(self, tool: Tool, arguments: Mapping[str, Any], policy: CallPolicy, ctx: RunnerContext) -> bool:
        """Whether the call needs no approval and no rule applies to it."""
        return not self._asks_by_itself(tool, policy) and await self._rule(tool, arguments, policy, ctx) is None

    def deciders(self, tool: Tool, policy: CallPolicy) -> dict[str, Any] | None:
        """Who decides about the call if it is cut off after people have approved it: the same; None: anybody."""
        return special_people(tool, approval_rule(tool.name, policy.approval, self._mode))

    def _asks_by_itself(self, tool: Tool, policy: CallPolicy) -> bool:
        """Whether the approval mode asks a person. Frontend tools are exempt: a person answers them anyway."""
        return (tool.kind != "frontend" or tool.is_guarded) and must_ask(
            tool, approval_mode(tool.name, policy.approval, self._mode)
        )

    async def _rule(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        policy: CallPolicy,
        ctx: RunnerContext,
        taken: Mapping[str, Any] | None = None,
    ) -> StandingRule | None:
        standing = await self._rules.standing()
        # The usual case: no thread or agent is looked at without rules.
        if not standing:
            return None
        if taken is not None:  # a tool in Python may take objects, which no condition can look into
            taken = {name: taken[name] if type(taken.get(name)) in _SCALARS else arguments[name] for name in arguments}
        return fitting_rule(
            standing,
            tool.name,
            arguments,
            thread_id=ctx.thread_id,
            agent_key=policy.agent_key,
            now_ms=ctx.now_ms(),
            taken=taken,
            fingerprint=tool.fingerprint,
        )


def rule_key(key: str) -> str:
    """The key of a standing rule's decision on the call with operation `key`."""
    return f"rule:{key}"


async def _by_rule(
    rule: StandingRule | None, tool: Tool, arguments: dict[str, Any], ctx: RunnerContext, key: str
) -> Approved | ToolResult:
    """A rule's decision, recorded: a re-entered node decides the same even if the rule has changed or gone."""

    async def decision() -> dict[str, Any]:
        assert rule is not None  # without a rule the decision is on record, and this is not called
        return {
            "decision": rule.decision,
            "rule": rule.id,
            "by": rule.created_by,
            "at": ctx.now_ms(),
            "reason": rule.reason,
            "tool": tool.name,
            "arguments": arguments,
        }

    # The rule is not in the digest: a changed rule must find the earlier decision, not a mismatch.
    record = await ctx.step(
        rule_key(key), decision, effects="none", kind="rule", arguments={"tool": tool.name, "arguments": arguments}
    )
    if record["decision"] == "allow":
        return Approved(arguments=arguments, by_rule=True)
    why = record["reason"] or "no reason was given"
    return failed("REJECTED", f"a standing rule denies this call of {tool.name}: {why}", "Do not repeat it.")
