"""Routing: chooses what follows a node, by routes, `Goto`, error routes and retries. It moves no cursor.

Everything that moves the cursor is in `node_lifecycle.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from graphflow.errors import ExpressionFailed, NodeFailed
from graphflow.graph.core.budget import is_spent
from graphflow.graph.core.commands import Backoff, Erred
from graphflow.graph.core.immutable import State
from graphflow.graph.core.machine import Frame, Operation
from graphflow.graph.core.plan import NUMBERS, PlanNode
from graphflow.graph.core.route_trace import PendingMove, looked_at
from graphflow.graph.core.unit_of_work import UnitOfWork, Written, written
from graphflow.graph.definition.document import END, FAIL, Retry

_VISIT = re.compile(r"#\d+")


def stops(work: UnitOfWork, always: Collection[str], asked: Collection[str], frame: Frame, name: str) -> bool:
    """Whether a breakpoint of the document, or one of the run, names the node: inside subgraphs by path, `sub/inner`.

    Args:
        always: of the document that the frame runs.
        asked: of the run.
    """
    if name in always or "*" in always:
        return True
    if not asked:
        return False
    if not frame.graph and (name in asked or "*" in asked):
        return True
    if not frame.path or not has_paths(asked):
        return False
    return any(f"{place}/{name}" in asked or f"{place}/*" in asked for place in _places(work, frame))


def has_paths(names: Collection[str]) -> bool:
    """Whether any of these names a node by path."""
    return any("/" in name for name in names)


def _places(work: UnitOfWork, frame: Frame) -> Iterator[str]:
    """The ways to name where a frame is: by the nodes that open graphs, or by its path, with its numbers or without."""
    yield frame.path
    yield _VISIT.sub("", frame.path)
    yield NUMBERS.sub("", frame.path)
    openers: list[str] = []
    while frame.parent in work.table:
        parent = work.table[frame.parent]
        # A branch that runs nodes of the same graph opens none.
        if frame.branch is None or frame.branch.own is None:
            openers.append(parent.node)
        frame = parent
    yield "/".join(reversed(openers))


def own_writes(
    work: UnitOfWork,
    frame: Frame,
    node: PlanNode,
    out: Any,
    updates: Mapping[str, Any] | None,
    answer: Any,
    joined: Written | None,
) -> Written | None:
    """What the node itself wrote, without its branches' writes; `set` expressions see the state before the node."""
    if node.sets:
        scope = work.scope_at(frame, out=out, answer=answer)
        computed = {key: expression.evaluate(scope) for key, expression in node.sets}
        updates = {**computed, **updates} if updates else computed
    if not updates:
        return None
    schema = work.plan_of(frame).schema
    if joined is None:
        return written(schema, frame, updates)
    # The join comes first, so that the node's own `set` reduces onto what its branches wrote.
    return written(schema, msgspec.structs.replace(frame, state=joined.state), updates)


def choose_route(
    work: UnitOfWork,
    frame: Frame,
    node: PlanNode,
    state: State,
    out: Any,
    goto: str | None,
    answer: Any,
    own: Written | None,
    joined: Written | None,
) -> PendingMove:
    """Where the routes lead: the first whose condition holds in the state after the node."""
    if node.choose is not None:
        if goto not in node.choose:
            allowed = ", ".join(node.choose)
            raise NodeFailed(
                f"node {node.name!r} must return Goto of one of {allowed}, not {goto!r}", code="node_error"
            )
        return PendingMove(frame, goto, None, own, joined)
    if goto is not None:
        if goto not in {route.to for route in node.routes}:
            allowed = ", ".join(route.to for route in node.routes)
            raise NodeFailed(f"node {node.name!r} returned Goto({goto!r}), which is not one of its routes: {allowed}")
        return PendingMove(frame, goto, None, own, joined)
    routes = node.routes
    first = routes[0]
    if first.when is None:
        return PendingMove(frame, first.to, None, own, joined)
    scope = work.scope_at(frame, out=out, answer=answer, state=state)
    for index, route in enumerate(routes):  # noqa: B007 - the loop's last index is the route that was taken
        if route.when is None:
            break
        value = route.when.evaluate(scope)
        # No truthiness: a condition that is not a boolean is an error of the document, never a route (E16).
        if value is not True and value is not False:
            raise ExpressionFailed(f"the condition {route.when.source!r} gave {value!r}, not true or false")
        if value:
            break
        # A route that compares rounds and is not taken because they are used up explains the end of the run (spec
        # 1.2).
        rounds = scope["limits"].get("rounds") if route.rounds_of else None
        if rounds is not None and any(frame.visits.get(name, 0) >= rounds for name in route.rounds_of):
            work.fields["finish_reason"] = "max_rounds"
    work.facts = {**(work.facts or {}), "route": index}
    tell = work.moves or (route.to in (END, FAIL) and frame.parent >= 0)  # else the machine still holds it all
    return PendingMove(frame, route.to, index, own, joined, looked_at(node, scope) if tell else None)


def matches(codes: Iterable[str], code: str) -> bool:
    """Whether an `on` list names this code; `provider_error` includes `stream_truncated` (E19)."""
    return code in codes or "any" in codes or (code == "stream_truncated" and "provider_error" in codes)


def retries(frame: Frame, node: PlanNode, error: Mapping[str, Any]) -> bool:
    """Whether the node's policy gives it another attempt after this failure."""
    retry = node.retry
    return retry is not None and frame.attempt < retry.max and matches(retry.on, error["code"]) and not is_spent(error)


def error_route(node: PlanNode, error: Mapping[str, Any]) -> str | None:
    """Where the node's error routes lead with this failure."""
    if is_spent(error):
        return None
    return next((target for codes, target in node.errors if matches(codes, error["code"])), None)


def _delay_ms(retry: Retry, attempt: int) -> float:
    """The delay after this attempt, before jitter."""
    try:
        return float(min(retry.backoff_ms * retry.factor ** (attempt - 1), retry.max_backoff_ms))
    except OverflowError:  # a float overflow is larger than any ceiling
        return retry.max_backoff_ms


def schedule_retry(work: UnitOfWork, number: int, node: PlanNode, error: dict[str, Any], jitter: float) -> None:
    work.close_children(number)
    frame, retry = work.table[number], node.retry
    assert retry is not None
    # The random draw comes with the tick, so that a replay computes the same time (E17).
    until = work.tick.at + int(_delay_ms(retry, frame.attempt) * (1 + retry.jitter * (2 * jitter - 1)))
    work.source, work.checkpoint = "retry", False
    # A retry after a failure forgets the model calls that no other operation follows (E5).
    kept = list(frame.operations.items())
    dropped: dict[str, Operation | None] = {}
    while kept and kept[-1][1].kind == "model":
        dropped[kept.pop()[0]] = None
    work.change(number, {"attempt": frame.attempt + 1, "status": "backoff", "until": until}, operations=dropped or None)
    work.commands.append(Erred(number, node.name, error, will_retry=True))
    work.commands.append(Backoff(number, until))


def keep_partial(work: UnitOfWork, number: int, node: PlanNode, partial: Any) -> None:
    """The text that was streamed before a failure stays in the history (E15)."""
    if partial is not None and any(key == "messages" for key, _ in node.sets):
        work.write(number, {"messages": [partial]})
