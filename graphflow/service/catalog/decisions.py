"""Every decision about a thread's calls and questions, read back from its journal (spec 8.5)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from graphflow.checkpoints.errors import unknown_thread
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.record_decoder import RecordBody, decode_body
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import WAITS, Interrupt, Operation
from graphflow.runtime.history.stored_events import PAGE, Chain
from graphflow.service.context import ServiceContext
from graphflow.service.live_threads import flush_live
from graphflow.tools.running.approval import approval_key
from graphflow.tools.running.approval_gate import rule_key
from graphflow.tools.running.frontend_forms import form_key


async def decisions(context: ServiceContext, thread_id: str) -> list[dict[str, Any]]:
    """What people and standing rules decided on the thread's present branch, oldest first.

    Each is `{at, by, kind, decision, node, shown, ran?, interruptId? | ruleId?, toolId?, toolName?, reason?}`: who and
    when, what they were shown, and, once the call was made, the arguments with which it ran. Pruned history is left out.

    Raises:
        ThreadNotFound: no such thread.
    """
    await context.runs.ready()
    await flush_live(context, thread_id)
    loaded = await load_thread(context.store, thread_id)
    if loaded is None:
        raise unknown_thread(thread_id)
    asked: dict[str, Interrupt] = {}
    found: list[dict[str, Any]] = []
    allowed = _Allowed()
    async for body in _bodies(context, thread_id, loaded.chain):
        # An answer names its question only by id; what was shown stands in the record that opened it.
        asked |= {key: interrupt for key, interrupt in body.patch.interrupts.items() if interrupt is not None}
        if body.source == "answer" and body.facts is not None:
            interrupt = asked.get(str(body.facts.get("interrupt")))
            if interrupt is not None and interrupt.kind not in WAITS:
                found.append(_by_person(body, interrupt))
                allowed.by_person(body, interrupt, found[-1])
        for frame, key, operation in _operations(body):
            if operation.kind == "rule":
                found.append(_by_rule(body, operation))
                allowed.by_rule(frame, key, found[-1])
            elif operation.kind == "tool":
                allowed.made(frame, key)
        for interrupt in body.patch.interrupts.values():
            if interrupt is not None and interrupt.kind == "frontend":
                allowed.made(interrupt.frame, interrupt.key.removeprefix(form_key("")))
        if body.source == "node":
            allowed.forget(body.frame)
    return found


class _Allowed:
    """Calls that somebody has allowed and that are still to be made: a second person or a rule may yet deny one."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, str, dict[str, Any], Any]] = []
        """Of each decision: frame, key of its question without the prefix, line of the list, arguments."""

    def by_person(self, body: RecordBody, interrupt: Interrupt, line: dict[str, Any]) -> None:
        if interrupt.kind != "approval":
            return
        key, decision = interrupt.key.removeprefix(approval_key("")), line["decision"]
        if decision not in ("approve", "edit"):
            # One who denies it decides for all.
            self._calls = [
                call for call in self._calls if call[0] != interrupt.frame or call[2]["toolId"] != line["toolId"]
            ]
            return
        arguments = _answer(body).get("arguments") if decision == "edit" else thaw(interrupt.arguments)
        self._calls.append((interrupt.frame, key, line, arguments))

    def by_rule(self, frame: int, key: str, line: dict[str, Any]) -> None:
        key = key.removeprefix(rule_key(""))
        if line["decision"] == "allow":
            self._calls.append((frame, key, line, line["shown"]["arguments"]))
        else:
            self._taken(frame, key)

    def made(self, frame: int, key: str) -> None:
        """The call was made, with what the last of them has allowed."""
        calls = self._taken(frame, key)
        for _, _, line, _ in calls:
            line["ran"] = calls[-1][3]

    def forget(self, frame: int) -> None:
        """The node has ended: what it has not called by then it will not call."""
        if self._calls:
            self._calls = [call for call in self._calls if call[0] != frame]

    def _taken(self, frame: int, key: str) -> list[tuple[int, str, dict[str, Any], Any]]:
        # Each warning and each further person has a question of its own, whose key begins with that of the call.
        of_call = re.compile(re.escape(key) + r"!*(/\d+)?") if self._calls else None
        taken = [
            call for call in self._calls if call[0] == frame and of_call is not None and of_call.fullmatch(call[1])
        ]
        self._calls = [call for call in self._calls if call not in taken]
        return taken


async def _bodies(context: ServiceContext, thread_id: str, chain: Chain) -> AsyncIterator[RecordBody]:
    # Page by page: a long thread is never in memory as a whole.
    for lineage, last in chain:
        for after in range(0, last, PAGE):
            upto = min(after + PAGE, last)
            for record in await context.store.read_records(thread_id, lineage=lineage, after=after, upto=upto):
                yield decode_body(record.data, record.id)


def _operations(body: RecordBody) -> Iterator[tuple[int, str, Operation]]:
    for frame, change in body.patch.frames.items():
        if change is not None:
            for key, operation in (change.operations or {}).items():
                if operation is not None:
                    yield frame, key, operation


def _answer(body: RecordBody) -> dict[str, Any]:
    given = next((thaw(operation.result) for _, _, operation in _operations(body) if operation.kind == "ask"), None)
    return given if isinstance(given, dict) else {}


def _by_person(body: RecordBody, interrupt: Interrupt) -> dict[str, Any]:
    assert body.facts is not None
    out = {
        "at": body.at,
        "by": body.facts.get("by", "local"),
        "kind": interrupt.kind,
        "decision": body.facts["decision"],
        "node": interrupt.node,
        "interruptId": interrupt.id,
        "toolId": interrupt.tool_id,
        "toolName": interrupt.tool_name,
        "shown": {"payload": thaw(interrupt.payload), "arguments": thaw(interrupt.arguments)},
        "reason": _answer(body).get("reason") if interrupt.kind == "approval" else None,
    }
    return {key: value for key, value in out.items() if value is not None}


def _by_rule(body: RecordBody, operation: Operation) -> dict[str, Any]:
    # The rule may be gone by now, so the record has what it said when it decided.
    record = thaw(operation.result)
    out = {
        "at": record["at"],
        "by": record["by"],
        "kind": "rule",
        "decision": record["decision"],
        "node": body.node,
        "ruleId": record["rule"],
        "toolName": record["tool"],
        "shown": {"arguments": record["arguments"]},
        "reason": record["reason"],
    }
    return {key: value for key, value in out.items() if value is not None}
