"""Approval of tool calls by a person (spec 8.5, E13): when to ask, what to ask, and how the answer is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.approval_mode import ApprovalRule, after_answer, people_in, with_approvals
from graphflow.graph.core.immutable import digest_of
from graphflow.graph.core.interrupts import nth_approval
from graphflow.runtime.approvers import ADMIN
from graphflow.tools.context import RunnerContext, Terminated
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed

ANYBODY = ApprovalRule()
DECISIONS = ("approve", "edit", "reject", "respond", "terminate")


@dataclass(frozen=True, kw_only=True)
class Approved:
    """Run the call with these arguments; they need checking again when `edited`."""

    arguments: dict[str, Any]
    edited: bool = False
    asked: bool = False
    """A person has decided."""
    by_rule: bool = False
    """A standing rule has decided."""


def approval_rule(tool: str, agent: str | Mapping[str, Any] | None, default: str) -> ApprovalRule:
    """How one tool is approved; the first of: its entry in the agent's map, the map's `*`, the agent's word, the default."""
    given = agent if agent is None or isinstance(agent, str) else agent.get(tool) or agent.get("*")
    if isinstance(given, ApprovalRule):
        return given
    return ApprovalRule(mode=given or default)  # type: ignore[arg-type] # one of the words; documents are checked


def approval_mode(tool: str, agent: str | Mapping[str, Any] | None, default: str) -> str:
    """The mode of one tool; see `approval_rule`."""
    return approval_rule(tool, agent, default).mode


def must_ask(tool: Tool, mode: str) -> bool:
    """Whether a person is asked: always, never, or (AUTO) when the tool has an approval hint.

    A tool that changes what agents may do is always asked about.
    """
    if tool.is_guarded:
        return True
    if mode == "AUTO":
        return tool.approval_hint is not None
    return mode == "REQUIRE_APPROVAL"


def answer_schema(tool: Tool) -> dict[str, Any]:
    """The schema of an approval's answer; flat when the tool's is, so that answering loads no library (E20).

    A flat schema can't say that `edit`, `reject` and `respond` need a further field;
    `runtime/runs/answer_checks.py` checks that.
    """
    parameters = dict(tool.parameters)
    # References like `#/$defs/X` count from the root of the answer's schema, so the definitions move there.
    definitions = {"$defs": parameters.pop("$defs")} if "$defs" in parameters else {}
    return {
        "type": "object",
        "required": ["decision"],
        "properties": {
            "decision": {"type": "string", "enum": list(DECISIONS)},
            "arguments": parameters,
            "reason": {"type": "string"},
            "response": {"type": "string"},
        },
        **definitions,
    }


def approval_key(key: str) -> str:
    """The key of the approval question for the call with operation `key`."""
    return f"approval:{key}"


def special_people(tool: Tool, rule: ApprovalRule) -> dict[str, Any] | None:
    """`{role?, approval?}` of a question that not just anybody answers."""
    role = {"role": ADMIN} if tool.is_guarded else {}
    people = {"approval": {"by": rule.by, "count": rule.count}} if rule.is_special else {}
    return {**role, **people} or None


async def ask_approval(
    tool: Tool,
    call_id: str,
    arguments: dict[str, Any],
    ctx: RunnerContext,
    *,
    key: str,
    rule: ApprovalRule = ANYBODY,
    agent_key: str | None = None,
) -> Approved | ToolResult:
    """The decision on one call: go on with these arguments, or the call's result.

    A call is approved as it was shown. Where the tool warns of something else by then (the file that it replaces is another
    one, or somebody has edited the arguments), it is asked about again.

    Args:
        tool: the tool.
        call_id: of the call, which the person is shown.
        arguments: the decision is valid for exactly these.
        ctx: asks.
        key: of the call's recorded operation.
        rule: who approves.
        agent_key: of the agent that makes the call.

    Raises:
        Terminated: the person ended the run.
    """
    edited, asked = False, key
    while True:
        warning = await _shown_warning(tool, arguments, ctx, agent_key, asked)
        decision = await _ask_people(tool, call_id, arguments, ctx, key=asked, rule=rule, warning=warning)
        if isinstance(decision, ToolResult):
            return decision
        edited, arguments = edited or decision.edited, decision.arguments
        # A call that has begun was approved, and may itself have changed what is warned of.
        now = None if ctx.recorded(key) else await _warning(tool, arguments, agent_key)
        if now is None or now == warning:
            return Approved(arguments=arguments, edited=edited, asked=True)
        asked += "!"


async def _warning(tool: Tool, arguments: dict[str, Any], agent_key: str | None) -> str | None:
    """What the tool warns of now; off the event loop, since it may read files."""
    warn = tool.approval_warning
    return None if warn is None else await asyncio.to_thread(warn, arguments, agent_key)


async def _shown_warning(
    tool: Tool, arguments: dict[str, Any], ctx: RunnerContext, agent_key: str | None, key: str
) -> str | None:
    """What the person is shown of it, recorded: a node that is entered again has to know what was approved."""
    if tool.approval_warning is None:
        return None

    async def now() -> str | None:
        return await _warning(tool, arguments, agent_key)

    given = {"tool": tool.name, "arguments": arguments}
    shown: str | None = await ctx.step(f"warning:{key}", now, effects="none", kind="warning", arguments=given)
    return shown


async def _ask_people(
    tool: Tool,
    call_id: str,
    arguments: dict[str, Any],
    ctx: RunnerContext,
    *,
    key: str,
    rule: ApprovalRule,
    warning: str | None,
) -> Approved | ToolResult:
    """The decision of one person or several.

    Several are asked one after another; the first who does not approve decides. Arguments that one has edited are approved
    anew by all others. The commit of an answer opens the next question, which the node then finds.
    """
    message = " ".join(part for part in (f"Run {tool.name}?", tool.approval_hint, warning) if part is not None)
    payload: dict[str, Any] = {"message": message, "description": tool.spec.description, "effects": tool.effects}
    if warning is not None:
        payload["warning"] = warning
    if rule.is_special:
        payload = with_approvals({**payload, "approval": {"by": rule.by, "count": rule.count}}, ())
    edited, number = False, 0
    while True:
        number += 1
        answer: Mapping[str, Any] = await ctx.ask(
            payload["message"],
            kind="approval",
            key=nth_approval(approval_key(key), number),
            schema=answer_schema(tool),
            payload=payload,
            tool_id=call_id,
            tool_name=tool.name,
            arguments=arguments,
            hold_ms=tool.hold_ms,
            role=ADMIN if tool.is_guarded else None,
            # Without the description, which may change while a person decides.
            digest=digest_of([tool.name, arguments]),
        )
        decision = _decided(tool, arguments, answer)
        if isinstance(decision, ToolResult) or rule.count == 1:
            return decision
        payload = after_answer(payload, arguments, answer)
        if decision.edited:  # the earlier ones have approved something else
            edited, arguments = True, decision.arguments
        if len(people_in(payload)["approvals"]) >= rule.count:
            return Approved(arguments=arguments, edited=edited, asked=True)


def _decided(tool: Tool, arguments: dict[str, Any], answer: Mapping[str, Any]) -> Approved | ToolResult:
    match answer["decision"]:
        case "approve":
            return Approved(arguments=arguments, asked=True)
        case "edit":
            # The schema can't demand this; a call that a person wanted changed must not run unchanged.
            if not isinstance(answer.get("arguments"), Mapping):
                return failed("INVALID_PARAM", "the person chose to edit this call and gave no arguments", "Ask again.")
            return Approved(arguments=dict(answer["arguments"]), edited=True, asked=True)
        case "respond":
            # The person answers in the tool's place; an empty result would read as success without output.
            return ToolResult(text=str(answer.get("response") or "").strip() or "(an empty answer)")
        case "terminate":
            reason = answer.get("reason")
            raise Terminated(
                f"a person ended the run instead of approving {tool.name}" + (f": {reason}" if reason else "")
            )
    reason = str(answer.get("reason") or "").strip() or "no reason was given"
    return failed("REJECTED", f"a person rejected this call of {tool.name}: {reason}", "Do not repeat it unchanged.")
