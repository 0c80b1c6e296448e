"""Handlers of `wait` nodes: a named signal or a time lets them go on (spec 2.4, E12, E17).

A signal that no node waits for yet is kept in the machine, in the order in which it came, until a `wait` of its name is
reached or new input begins another run. So it does not matter which of the two comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.graph.core.machine import Interrupt, NodeAsked, Resolve, Signalled
from graphflow.graph.core.node_lifecycle import succeed
from graphflow.graph.core.unit_of_work import UnitOfWork


def on_signalled(work: UnitOfWork, tick: Signalled) -> None:
    """The oldest `wait` of this name goes on; without one the signal is kept."""
    work.source = "signal"
    for interrupt in work.before.interrupts.values():
        if interrupt.kind == "signal" and signal_of(interrupt) == tick.name:
            wake(work, interrupt, signalled(tick.name, tick.payload, tick.at), "answered")
            return
    work.checkpoint = False
    work.node = work.before.root.node if work.before.frames else ""
    work.fields["signals"] = (*work.before.signals, (tick.name, tick.payload))


def take_kept(work: UnitOfWork, tick: NodeAsked) -> bool:
    """Whether a signal had come before its `wait`, which then asks nobody."""
    interrupt = tick.interrupt
    if interrupt.kind != "signal":
        return False
    name = signal_of(interrupt)
    kept = work.before.signals
    for index, (given, payload) in enumerate(kept):
        if given == name:
            work.source, work.node, work.frame_no = "signal", interrupt.node, interrupt.frame
            work.fields["signals"] = (*kept[:index], *kept[index + 1 :])
            succeed(work, interrupt.frame, signalled(name, payload, tick.at))
            return True
    return False


def wake(work: UnitOfWork, interrupt: Interrupt, out: Mapping[str, Any], decision: str) -> None:
    """The node that waited has succeeded with `out`."""
    work.node, work.frame_no = interrupt.node, interrupt.frame
    work.facts = {"interrupt": interrupt.id, "decision": decision}
    work.interrupts[interrupt.id] = None
    work.commands.append(Resolve(interrupt, decision, out))
    work.change(interrupt.frame, {"status": "ready"})
    succeed(work, interrupt.frame, out)


def signal_of(interrupt: Interrupt) -> str:
    return str(interrupt.payload["signal"])


def signalled(name: str, payload: Any, at: int) -> dict[str, Any]:
    """The `out` of a `wait` that a signal ended."""
    return {"by": "signal", "signal": name, "payload": payload, "at": at}
