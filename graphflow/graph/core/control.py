"""Handlers of stopping, going on and time travel: cancel, recovered, resumed, edited, moved (E8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.errors import StateError
from graphflow.graph.core.machine import (
    ROOT,
    Backoff,
    Cancel,
    CancelNode,
    Edited,
    Ended,
    Finished,
    Frame,
    Moved,
    Recovered,
    Request,
    Resolve,
    Resumed,
    Run,
    Started,
)
from graphflow.graph.core.node_lifecycle import breaks, keep_partial, leave, run, succeed
from graphflow.graph.core.unit_of_work import Step, written
from graphflow.graph.definition.document import END
from graphflow.graph.definition.regions import survey


def on_cancel(step: Step, tick: Cancel) -> None:
    step.source = "cancel"
    step.node = step.before.root.node if step.before.frames else ""
    stop(step, tick.partials)


def stop(step: Step, partials: Mapping[int, Any]) -> None:
    """Every branch ends; nothing that was recorded is lost, and a resume goes on from there."""
    for frame in list(step.table.values()):
        if frame.status in ("ready", "waiting", "backoff"):
            step.count_unfinished(frame.number)
            step.void(frame.number, "cancelled")
            if not step.node_of(frame).opens:
                keep_partial(step, frame.number, step.node_of(frame), partials.get(frame.number))
            step.change(frame.number, {"status": "ready"})
            step.commands.append(CancelNode(frame.number))
    step.fields["status"] = "stopped"
    step.commands.append(Finished("cancel"))


def on_recovered(step: Step, tick: Recovered) -> None:
    step.source, step.checkpoint = "recovered", False
    step.fields.pop("active_ms", None)  # the time between two lives was not spent running
    _go_on(step)


def on_resumed(step: Step, tick: Resumed) -> None:
    step.source, step.checkpoint = "resumed", False
    step.fields.pop("active_ms", None)
    step.fields |= {
        "status": "running",
        "run_id": tick.run_id,
        "error": None,
        "limits": {**step.limits, **tick.limits},
    }
    step.limits = step.fields["limits"]
    if tick.limits and step.before.wrapping:
        step.fields |= {"wrapping": False, "granted": {}}  # with a larger budget the run goes on as any other
    if step.before.status == "failed":
        step.fields["finish_reason"] = ""
    if tick.before is not None:
        step.fields["before"] = step.stops_before = tick.before
    if tick.after is not None:
        step.fields["after"] = step.stops_after = tick.after
    for frame in list(step.table.values()):
        if frame.status == "failed":
            step.change(frame.number, {"status": "ready", "attempt": 1})
    for interrupt in step.before.interrupts.values():
        if interrupt.run_id != tick.run_id:
            step.interrupts[interrupt.id] = msgspec.structs.replace(interrupt, run_id=tick.run_id)
    _go_on(step)


def _go_on(step: Step) -> None:
    """Starts what is ready: a node that had not finished begins again."""
    for frame in list(step.table.values()):
        if frame.number not in step.table:
            continue
        if frame.status == "ready" and frame.node == END:
            leave(step, frame.number)
        elif frame.status == "ready" and breaks(step, frame.number):
            pass
        elif frame.status == "ready":
            run(step, frame.number, again=True)
        elif frame.status == "backoff":
            step.commands.append(Backoff(frame.number, frame.until))


def on_edited(step: Step, tick: Edited) -> None:
    """State as if a node had written it (E8); the run rests until it is resumed."""
    step.source, step.frame_no, step.facts = "edit", tick.frame, tick.facts
    frame = step.table[tick.frame]
    plan = step.plan_of(frame)
    step.node = tick.as_node or frame.node
    if frame.join is not None and tick.as_node is None:
        paths = [other.path for other in step.table.values() if other.parent == tick.frame]
        shown = ", ".join(map(repr, paths[:8])) + (", …" if len(paths) > 8 else "")
        raise StateError(
            f"the branches of {frame.node!r} go on from the state as it was when they began; edit one of them by its path "
            f"({shown}), or give as_node, which ends them all",
            code="invalid_input",
            paths=paths,
        )
    step.resting = True
    values = written(plan.schema, frame, tick.values, replace=tick.replace)
    step.change(tick.frame, {}, values)
    if tick.as_node is not None:
        if tick.as_node not in (nodes := _nodes_of(step, frame)):
            where = (
                f"the body that {frame.path!r} runs" if frame.branch is not None else "this graph outside its branches"
            )
            raise StateError(
                f"{tick.as_node!r} is no node of {where}; nodes there: {', '.join(nodes)}", code="invalid_input"
            )
        step.collapse(tick.frame)
        step.void(tick.frame, "cancelled")
        step.change(tick.frame, {"node": tick.as_node, "status": "ready"})
        succeed(step, tick.frame, None, quiet=True)
        if step.moves:
            step.moves[0] = msgspec.structs.replace(step.moves[0], own=values)
    _forget(step, tick.reuse)
    same_run = tick.run_id == step.before.run_id
    step.fields["run_id"] = tick.run_id
    _ask_anew(step, tick.run_id, same_run=same_run)
    _rest(step)


def _nodes_of(step: Step, frame: Frame) -> list[str]:
    """The nodes that the frame can stand on: its body's in a branch, else those of the main flow."""
    nodes, parent = step.plan_of(frame).nodes, step.table.get(frame.parent)
    own: tuple[str, str] | None = None
    if frame.branch is not None and parent is not None and parent.graph == frame.graph:
        fan = nodes[parent.node].fan
        assert fan is not None
        own = (parent.node, fan.body(frame.branch.index).name)
    homes = survey(step.plan_of(frame).document).home
    return [name for name in nodes if ((home := homes.get(name)) and (home.fan, home.branch)) == own]


def on_moved(step: Step, tick: Moved) -> None:
    """A rewind or fork: unfinished frames run again, open interrupts are issued anew (E8)."""
    step.source, step.facts = tick.source, tick.facts
    step.node = step.before.root.node if step.before.frames else ""
    step.fields["run_id"] = tick.run_id
    step.fields.pop("active_ms", None)
    _forget(step, tick.reuse)
    for frame in list(step.table.values()):
        if frame.status in ("backoff", "failed"):
            step.change(frame.number, {"status": "ready", "attempt": 1})
    _ask_anew(step, tick.run_id, same_run=False)
    _rest(step)


def _forget(step: Step, reuse: dict[str, Any]) -> None:
    """What nodes that run again had recorded is not inherited; of their past only `reuse` is taken up (E8)."""
    if reuse or step.before.reuse:
        step.fields["reuse"] = reuse
    for frame in list(step.table.values()):
        if frame.operations:
            step.change(frame.number, {"operations": {}})


def _ask_anew(step: Step, run_id: str, *, same_run: bool) -> None:
    """Issues every open interrupt anew: its id bears the checkpoint that opens it, so an old answer is stale (E8)."""
    for interrupt in list(step.open_interrupts().values()):
        again = msgspec.structs.replace(
            interrupt,
            id=step.new_interrupt_id(),
            run_id=run_id,
            reissue_of=interrupt.id,
            opened_at=step.tick.at,
            node_run_id=interrupt.node_run_id if same_run else "",
        )
        step.interrupts[interrupt.id] = None
        step.interrupts[again.id] = again
        step.commands.append(Resolve(interrupt, "reissued"))
        step.commands.append(Request(again))


def _rest(step: Step) -> None:
    """After a change from outside nothing runs by itself: the thread waits, is stopped, or is idle."""
    if step.fields.get("status") == "failed":
        failure = step.get("error") or {}
        raise StateError(f"the edit can't be routed on: {failure.get('message')}")
    step.commands = [c for c in step.commands if not isinstance(c, Run | Started | Finished | CancelNode | Ended)]
    root = step.table.get(ROOT)
    if root is None or root.node in (END, ""):
        status = "idle"
    elif step.open_interrupts() and not any(f.status in ("ready", "backoff") for f in step.table.values()):
        status = "waiting"
    else:
        status = "stopped"
    step.fields |= {"status": status, "error": None}
