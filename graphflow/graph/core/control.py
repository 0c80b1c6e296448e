"""Handlers of stopping, going on and time travel: cancel, recovered, resumed, edited, moved (E8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.approval_mode import people_in, with_approvals
from graphflow.capabilities import narrowed
from graphflow.errors import StateError
from graphflow.graph.core.commands import Backoff, CancelNode, Ended, Finished, Request, Resolve, RunNode, Started
from graphflow.graph.core.fan_out import all_awake
from graphflow.graph.core.immutable import digest_of, freeze
from graphflow.graph.core.machine import ROOT, Frame, Interrupt
from graphflow.graph.core.node_lifecycle import (
    branches,
    breaks,
    finish_frame,
    give_up,
    run,
    spent,
    succeed,
    wraps_up_again,
)
from graphflow.graph.core.routing import keep_partial
from graphflow.graph.core.ticks import Cancel, Edited, Moved, Recovered, Resumed
from graphflow.graph.core.unit_of_work import UnitOfWork, written
from graphflow.graph.definition.document import END
from graphflow.graph.definition.regions import survey


def on_cancel(work: UnitOfWork, tick: Cancel) -> None:
    work.source = "cancel"
    work.node = work.before.root.node if work.before.frames else ""
    stop(work, tick.partials)


def stop(work: UnitOfWork, partials: Mapping[int, Any]) -> None:
    """Stops every frame; recorded work is kept, and a resume goes on from there."""
    for frame in list(work.table.values()):
        if frame.status in ("ready", "waiting", "backoff"):
            work.count_unfinished(frame.number)
            work.cancel_interrupts(frame.number, "cancelled")
            if not work.node_of(frame).opens:
                keep_partial(work, frame.number, work.node_of(frame), partials.get(frame.number))
            work.change(frame.number, {"status": "ready"})
            work.commands.append(CancelNode(frame.number))
    all_awake(work)
    work.fields["status"] = "stopped"
    work.commands.append(Finished("cancel"))


def on_recovered(work: UnitOfWork, tick: Recovered) -> None:
    work.fields.pop("active_ms", None)  # the time between two epochs was not spent running
    if tick.error is not None:
        work.source = "failed"
        leaf = next((f for f in work.table.values() if f.status in ("ready", "backoff")), work.table[ROOT])
        give_up(work, leaf.number, {**tick.error, "node": leaf.node})
        return
    work.source, work.checkpoint = "recovered", False
    _go_on(work)


def on_resumed(work: UnitOfWork, tick: Resumed) -> None:
    work.source, work.checkpoint = "resumed", False
    work.go_on_as(tick.run_id)
    work.fields.pop("active_ms", None)
    work.fields |= {
        "status": "running",
        "error": None,
        # Limits are data of the run (E11): those that the resume does not name stay.
        "limits": {**work.limits, **tick.limits},
    }
    work.limits = work.fields["limits"]
    if tick.limits and work.before.wrapping:
        work.fields |= {"wrapping": False, "granted": {}}  # with a larger budget the run goes on as any other
    if tick.run_id != work.before.run_id:
        _ask_by(work, tick.starter)
    if work.before.status == "failed":
        work.fields["finish_reason"] = ""
    if tick.before is not None:
        work.fields["before"] = work.stops_before = tick.before
    if tick.after is not None:
        work.fields["after"] = work.stops_after = tick.after
    for frame in list(work.table.values()):
        if frame.status == "failed":
            # A failed node used up its attempts. Resuming is a new decision, and the node gets all of them again.
            work.change(frame.number, {"status": "ready", "attempt": 1})
    for interrupt in work.before.interrupts.values():
        # A question of the stopped run stays open under its id; only the run that it belongs to is new.
        if interrupt.run_id != tick.run_id:
            work.put_interrupt(interrupt.id, msgspec.structs.replace(interrupt, run_id=tick.run_id))
    _go_on(work)


def _ask_by(work: UnitOfWork, starter: dict[str, Any] | None) -> None:
    """What goes on by somebody's wish may do no more than both that person and who started it may."""
    if (both := narrowed(work.before.starter, starter)) != work.before.starter:
        work.fields["starter"] = both


def _go_on(work: UnitOfWork) -> None:
    """Starts what is ready: a node that had not finished begins again."""
    failed = next((frame.number for frame in work.before.frames.values() if frame.status == "failed"), -1)
    # Frames at their end come first: each frees the step that is reserved for it.
    for frame in sorted(work.table.values(), key=lambda frame: frame.node != END):
        if work.get("status") == "failed":
            break  # a node was refused, and the run has failed
        # An earlier turn of this loop may have closed it: a frame that ends can join its fan.
        if frame.number not in work.table:
            continue
        if frame.status == "ready" and frame.node == END:
            finish_frame(work, frame.number)
        elif frame.status == "ready":
            monitor = work.plan_of(frame).monitor
            # The steps are the run's: used up for one frame, they are for all. The one that failed says so again.
            if wraps_up_again(work, frame.number) or spent(work, failed if failed in work.table else frame.number):
                break
            if monitor is None or not breaks(work, frame.number, monitor):
                # `again`: the step was counted when the node first began.
                run(work, frame.number, again=True)
        elif frame.status == "backoff":
            work.commands.append(Backoff(frame.number, frame.until))


def on_edited(work: UnitOfWork, tick: Edited) -> None:
    """State as if a node had written it (E8); the run rests until it is resumed."""
    work.source, work.frame_no, work.facts = "edit", tick.frame, tick.facts
    frame = work.table[tick.frame]
    plan = work.plan_of(frame)
    work.node = tick.as_node or frame.node
    if frame.join is not None and tick.as_node is None:
        paths = [other.path for other in work.table.values() if other.parent == tick.frame]
        shown = ", ".join(map(repr, paths[:8])) + (", …" if len(paths) > 8 else "")
        raise StateError(
            f"the branches of {frame.node!r} go on from the state as it was when they began; edit one of them by its path "
            f"({shown}), or give as_node, which ends them all",
            code="invalid_input",
            paths=paths,
        )
    work.resting = True
    _ask_by(work, tick.starter)
    values = written(plan.schema, frame, tick.values, replace=tick.replace)
    work.change(tick.frame, {}, values)
    if tick.as_node is not None:
        if tick.as_node not in (nodes := _nodes_of(work, frame)):
            where = (
                f"the body that {frame.path!r} runs" if frame.branch is not None else "this graph outside its branches"
            )
            raise StateError(
                f"{tick.as_node!r} is not a node of {where}; nodes there: {', '.join(nodes)}",
                code="invalid_input",
                nodes=list(nodes),
            )
        branches.leave(work, tick.frame)
        work.close_children(tick.frame)
        work.cancel_interrupts(tick.frame, "cancelled")
        branches.woken(work, tick.frame, node=tick.as_node)
        succeed(work, tick.frame, None, quiet=True)
        if work.moves:
            work.moves[0] = msgspec.structs.replace(work.moves[0], own=values)
    _forget(work, tick.reuse)
    work.fields["run_id"] = work.before.run_id if tick.same_run else tick.id
    _ask_anew(work, same_run=tick.same_run)
    _rest(work)


def _nodes_of(work: UnitOfWork, frame: Frame) -> list[str]:
    """The nodes that the frame can stand on: its body's in a branch, else those of the main flow."""
    nodes, parent = work.plan_of(frame).nodes, work.table.get(frame.parent)
    own: tuple[str, str] | None = None
    if frame.branch is not None and parent is not None and parent.graph == frame.graph:
        fan = nodes[parent.node].fan
        assert fan is not None
        own = (parent.node, fan.body(frame.branch.index).name)
    homes = survey(work.plan_of(frame).document).home
    return [name for name in nodes if ((home := homes.get(name)) and (home.fan, home.branch)) == own]


def on_moved(work: UnitOfWork, tick: Moved) -> None:
    """A rewind or fork: unfinished frames run again, open interrupts are issued anew (E8)."""
    work.source, work.facts = tick.source, tick.facts
    work.node = work.before.root.node if work.before.frames else ""
    work.fields["run_id"] = tick.id
    _ask_by(work, tick.starter)
    work.fields.pop("active_ms", None)
    _forget(work, tick.reuse)
    for frame in list(work.table.values()):
        if frame.status in ("backoff", "failed"):
            work.change(frame.number, {"status": "ready", "attempt": 1})
    _ask_anew(work, same_run=False)
    _rest(work)


def _forget(work: UnitOfWork, reuse: dict[str, Any]) -> None:
    """Drops recorded operations: nodes that run again inherit nothing from the past except `reuse` (E8)."""
    if reuse or work.before.reuse:
        work.fields["reuse"] = reuse
    for frame in list(work.table.values()):
        if frame.operations:
            work.change(frame.number, {"operations": {}})


def _ask_anew(work: UnitOfWork, *, same_run: bool) -> None:
    """Issues every open interrupt anew, under an id of the new checkpoint: an old answer is stale (E8)."""
    for interrupt in list(work.open_interrupts().values()):
        again = msgspec.structs.replace(
            _from_the_start(interrupt),
            id=work.new_interrupt_id(),
            run_id=work.fields["run_id"],
            reissue_of=interrupt.id,
            opened_at=work.tick.at,
            node_run_id=interrupt.node_run_id if same_run else "",
        )
        work.put_interrupt(interrupt.id, None)
        work.put_interrupt(again.id, again)
        work.commands.append(Resolve(interrupt, "reissued"))
        work.commands.append(Request(again))


def _from_the_start(interrupt: Interrupt) -> Interrupt:
    """The question as the first of several people was asked it: the answers of the others stay behind, too (E8)."""
    people = people_in(interrupt.payload) if interrupt.kind in ("approval", "outcome_unknown") else {}
    if not people.get("approvals"):
        return interrupt
    if interrupt.kind == "outcome_unknown":  # its questions have one key, and one call
        return msgspec.structs.replace(interrupt, payload=freeze(with_approvals(interrupt.payload, ())))
    arguments = people["edited"]["arguments"] if "edited" in people else interrupt.arguments
    return msgspec.structs.replace(
        interrupt,
        key=interrupt.key.rpartition("/")[0],
        payload=freeze(with_approvals(interrupt.payload, ())),
        arguments=arguments,
        digest=digest_of([interrupt.tool_name, arguments]),
    )


def _rest(work: UnitOfWork) -> None:
    """Leaves the thread waiting, stopped or idle: after a change from outside nothing runs by itself."""
    if work.fields.get("status") == "failed":
        failure = work.get("error") or {}
        raise StateError(f"the edit can't be routed on: {failure.get('message')}")
    # The shared code paths emit run commands. A thread at rest performs none; only what closes or reissues questions
    # remains.
    work.commands = [c for c in work.commands if not isinstance(c, RunNode | Started | Finished | CancelNode | Ended)]
    root = work.table.get(ROOT)
    if root is None or root.node in (END, ""):
        status = "idle"
    elif work.open_interrupts() and not any(f.status in ("ready", "backoff") for f in work.table.values()):
        status = "waiting"
    else:
        status = "stopped"
    work.fields |= {"status": status, "error": None}
