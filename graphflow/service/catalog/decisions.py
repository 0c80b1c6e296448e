"""Every decision about a thread's calls and questions, read back from its journal (spec 8.5)."""

from __future__ import annotations

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


async def decisions(context: ServiceContext, thread_id: str) -> list[dict[str, Any]]:
    """What people and standing rules decided on the thread's present branch, oldest first.

    Each is `{at, by, kind, decision, node, shown, ran?, interruptId? | ruleId?, toolId?, toolName?, reason?}`: who and
    when, what they were shown, and the arguments with which the call then ran. Pruned history is left out.

    Raises:
        ThreadNotFound: no such thread.
    """
    await context.runs.ready()
    await flush_live(context, thread_id)
    loaded = await load_thread(context.store, thread_id)
    if loaded is None:
        raise unknown_thread(thread_id)
    asked: dict[str, Interrupt] = {}
    found = []
    async for body in _bodies(context, thread_id, loaded.chain):
        # An answer names its question only by id; what was shown stands in the record that opened it.
        asked |= {key: interrupt for key, interrupt in body.patch.interrupts.items() if interrupt is not None}
        if body.source == "answer" and body.facts is not None:
            interrupt = asked.get(str(body.facts.get("interrupt")))
            if interrupt is not None and interrupt.kind not in WAITS:
                found.append(_by_person(body, interrupt))
        found += [_by_rule(body, operation) for operation in _operations(body) if operation.kind == "rule"]
    return found


async def _bodies(context: ServiceContext, thread_id: str, chain: Chain) -> AsyncIterator[RecordBody]:
    # Page by page: a long thread is never in memory as a whole.
    for lineage, last in chain:
        for after in range(0, last, PAGE):
            upto = min(after + PAGE, last)
            for record in await context.store.read_records(thread_id, lineage=lineage, after=after, upto=upto):
                yield decode_body(record.data, record.id)


def _operations(body: RecordBody) -> Iterator[Operation]:
    for change in body.patch.frames.values():
        if change is not None:
            yield from (operation for operation in (change.operations or {}).values() if operation is not None)


def _by_person(body: RecordBody, interrupt: Interrupt) -> dict[str, Any]:
    assert body.facts is not None
    answer = next((thaw(op.result) for op in _operations(body) if op.kind == "ask"), None)
    given = answer if isinstance(answer, dict) else {}
    decision = body.facts["decision"]
    arguments = thaw(interrupt.arguments)
    # After any other decision the call did not run.
    ran = {"approve": arguments, "edit": given.get("arguments")}.get(decision)
    out = {
        "at": body.at,
        "by": body.facts.get("by", "local"),
        "kind": interrupt.kind,
        "decision": decision,
        "node": interrupt.node,
        "interruptId": interrupt.id,
        "toolId": interrupt.tool_id,
        "toolName": interrupt.tool_name,
        "shown": {"payload": thaw(interrupt.payload), "arguments": arguments},
        "ran": ran if interrupt.kind == "approval" else None,
        "reason": given.get("reason") if interrupt.kind == "approval" else None,
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
        "ran": record["arguments"] if record["decision"] == "allow" else None,
        "reason": record["reason"],
    }
    return {key: value for key, value in out.items() if value is not None}
