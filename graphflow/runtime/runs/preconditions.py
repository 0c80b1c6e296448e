"""What is checked before a run starts; nothing has changed when one of these raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from graphflow.bounds import Bounds
from graphflow.errors import GraphflowError, LimitExceeded, StateError, ThreadWaiting
from graphflow.excerpts import count, excerpt_of
from graphflow.graph.core.immutable import ListView
from graphflow.graph.core.interrupts import signal_of
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.plan import Plan, is_known, nodes_at
from graphflow.graph.definition.budget import limits_of
from graphflow.graph.definition.document import Budget
from graphflow.graph.definition.types import show
from graphflow.suggestions import choose

UNFINISHED = ("running", "waiting")
"""Statuses of a run that can be cancelled; `running` without a driver is one whose process died."""


def checked_input(plan: Plan, given: Any) -> Any:
    """The input as the document's schema takes it (E9).

    Raises:
        GraphflowError: `invalid_input`, it does not fit.
    """
    checker = plan.input_checker
    issues = checker.errors(given)
    if issues:
        first = "; ".join(f"{issue.pointer or 'input'}: {issue.message}" for issue in issues[:5])
        raise GraphflowError(
            f"the input does not fit the graph's input schema: {first}",
            code="invalid_input",
            errors=[issue.as_dict() for issue in issues],
        )
    if isinstance(given, Mapping) and given.get("references"):
        check_references(given["references"], plan.input_schema)
    return checker.taken(given)


def check_state(plan: Plan, machine: Machine) -> None:
    """Raises `state_incompatible` when a stored key does not fit the version that a new run begins under (E23)."""
    if not machine.frames:
        return
    check_declared(plan, machine)
    # State that was written under this very version fits it.
    if machine.document == plan.digest:
        return
    from graphflow.graph.core.migration import becomes_log, misfit

    state = machine.root.state
    for key, channel in plan.schema.channels.items():
        if key not in state:
            continue
        if becomes_log(channel, state[key]):
            why = f"state key {key!r} is stored as one value, and this version adds entries to it (x-reducer {channel.reduce!r})"
        elif key in plan.run_keys and not (isinstance(state[key], ListView) and not channel.is_log):
            continue  # it begins anew with every input
        elif state[key] is None and channel.default is None:
            continue  # nobody has written it
        elif (found := misfit(channel, state[key])) is not None:
            why = found
        else:
            continue
        raise StateError(
            f"{why}; move the thread with `graphflow threads migrate`, or begin a new one",
            code="state_incompatible",
            key=key,
        )


def check_declared(plan: Plan, machine: Machine) -> None:
    """Raises `state_incompatible` when a stored state does not fit the class that declares it (E22)."""
    for frame in machine.frames.values():
        rules = plan.graphs[frame.graph].schema.rules if frame.graph in plan.graphs else None
        if rules is not None:
            rules.check(frame.state)


def check_outcomes(thread_id: str, machine: Machine) -> None:
    """Raises `thread_waiting` for a run that ended in the middle of a `write`: new input would leave it undecided (E9).

    A cancelled run is not checked: the caller who cancelled it has decided.
    """
    if machine.status not in ("running", "failed"):
        return
    writes = [
        {"node": frame.node, "path": frame.path, "key": key}
        for frame in machine.frames.values()
        for key, operation in frame.operations.items()
        if operation.effects == "write" and operation.state != "done" and not operation.idempotent
    ]
    if writes:
        named = ", ".join(f"{write['key']!r} of node {write['node']!r}" for write in writes)
        raise ThreadWaiting(
            f"the run of thread {thread_id!r} was cut off during {named}, and whether that happened is unknown; "
            "resume the thread, which asks what became of it, or pass on_waiting='cancel' to leave it undecided",
            interrupts=[],
            writes=writes,
        )


def waits_for_answers(thread_id: str, questions: Iterable[tuple[str, str, str]]) -> ThreadWaiting:
    """The refusal of new input while questions are open.

    Args:
        questions: (id, kind, node) of each.
    """
    open_ = [{"interruptId": name, "kind": kind, "node": node} for name, kind, node in questions]
    return ThreadWaiting(
        f"thread {thread_id!r} waits for {count(len(open_), 'answer')}; answer first, or pass on_waiting='cancel'",
        interrupts=open_,
    )


def check_unfinished(machine: Machine) -> None:
    """Raises `nothing_to_resume` for a thread that rests or waits for people."""
    if machine.status == "idle":
        raise GraphflowError("the thread has no unfinished run; send new input instead", code="nothing_to_resume")
    if machine.status == "waiting":
        names = ", ".join(machine.interrupts)
        raise GraphflowError(f"the thread waits for an answer to {names}; answer it instead", code="thread_waiting")


def check_breakpoints(plan: Plan, before: Iterable[str], after: Iterable[str]) -> None:
    """Raises `invalid_input` for the name or path (`sub/inner`) of no node: nothing would ever stop there."""
    for field, names in (("interrupt_before", before), ("interrupt_after", after)):
        # A text is iterable too: each letter would be taken for a node.
        if isinstance(names, str):
            raise _wrong(field, f"a list of node names: [{names!r}]")
        for name in names:
            if not is_known(plan, name):
                place, slash, _ = name.rpartition("/")
                if not (nodes := nodes_at(plan, place)):
                    raise _wrong(field, f"{name!r} leads nowhere: no node {place!r} opens a graph")
                known = [f"{place}{slash}{node}" for node in (*nodes, "*")]
                raise _wrong(field, f"no node is named {name!r}; {choose(name, known)}")


MOST = (1 << 63) - 1
LIMITS = tuple(field.encode_name for field in msgspec.structs.fields(Budget) if field.name != "on_exceeded")


def budget_limits(budget: Mapping[str, Any] | None) -> dict[str, Any]:
    """A request's budget (`maxSteps`, …) by the names of `limits`; anything else is refused."""
    if not budget:
        return {}
    if not isinstance(budget, Mapping):
        raise _wrong("budget", f'limits by name, as {{"maxSteps": 20}}, not {show(budget)}')
    if unknown := [name for name in budget if name not in LIMITS]:
        raise _wrong("budget", f"{excerpt_of(unknown[0])} is not a limit; {choose(unknown[0], LIMITS)}")
    given: dict[str, Any] = {}
    for name, value in budget.items():
        if value is None:
            continue
        is_cost = name == "maxCostUsd"
        if isinstance(value, bool) or not isinstance(value, int | float) or not (is_cost or value == value // 1):
            raise _wrong(
                "budget", f"{name} is {show(value)}; it is a {'' if is_cost else 'whole '}number, or None for no limit"
            )
        if not 0 <= value <= MOST:  # NaN fails this comparison too
            raise _wrong(
                "budget", f"{name} is {show(value)}; a limit is a number from 0 to {MOST:,}; leave it out for none"
            )
        given[name] = value if is_cost else int(value)  # `20.0` is 20, as in every schema
    return limits_of(msgspec.convert(given, Budget))


_REFERENCE_FIELDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "id": ("text or a whole number", (str, int)),
    **dict.fromkeys(("url", "name", "type", "mimeType", "sha256"), ("text", (str,))),
    "sizeBytes": ("a whole number", (int,)),
}


def check_references(references: Any, schema: Mapping[str, Any]) -> None:
    """The `references` of an input: files and pages, as the message of the user will have them.

    Raises:
        GraphflowError: `invalid_input`, naming the entry.
    """
    if "references" in (schema.get("properties") or {}):
        return  # the document says itself what they are
    wanted = 'as in [{"url": "https://example.org/a.pdf"}] or [{"id": "UPLOAD"}]'
    if not isinstance(references, list | tuple):
        raise _wrong("references", f"a list of files and pages, {wanted}, not {show(references)}")
    for place, reference in enumerate(references):
        at = f"references[{place}]"
        if isinstance(reference, str):
            continue
        if not isinstance(reference, Mapping):
            raise _wrong("references", f"{at} is {show(reference)}; it is text or an object, {wanted}")
        for name, (words, kinds) in _REFERENCE_FIELDS.items():
            value = reference.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise _wrong("references", f"{at}.{name} is {show(value)}; it is {words}, {wanted}")
        if reference.get("id") is None and reference.get("url") is None:
            raise _wrong("references", f"{at} is {show(reference)}; it needs an `id` or a `url`, {wanted}")


def _wrong(field: str, rule: str) -> GraphflowError:
    return GraphflowError(f"{field}: {rule}", code="invalid_input", fields={field: rule})


def overdue_in(machine: Machine, now: int) -> list[str]:
    """Ids of the open interrupts that have expired by `now` (epoch ms)."""
    return [i.id for i in machine.interrupts.values() if i.expires_at is not None and i.expires_at <= now]


def is_awaited(machine: Machine, name: str) -> bool:
    """Whether a `wait` node waits for this signal now."""
    return any(i.kind == "signal" and signal_of(i) == name for i in machine.interrupts.values())


def check_signal(machine: Machine, name: str, bounds: Bounds) -> None:
    """Whether the run may take the signal, or keep it.

    Raises:
        GraphflowError: `nothing_to_resume` when no unfinished run could ever wait for it.
        LimitExceeded: the run keeps as many as it may, and nothing waits for this one.
    """
    if machine.status == "idle":
        raise GraphflowError(
            f"the thread has no unfinished run that could wait for the signal {name!r}", code="nothing_to_resume"
        )
    if len(machine.signals) >= bounds.signals and not is_awaited(machine, name):
        raise LimitExceeded(
            "signals", bounds.signals, f"nothing waits for the signal {name!r} and the run keeps {len(machine.signals)} already",
            "send it once the run waits for it, or raise it",
        )  # fmt: skip
