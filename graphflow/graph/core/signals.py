"""Handlers of `wait` nodes: a named signal or a time lets them go on (spec 2.4, E12, E17).

A signal that no node waits for yet is kept in the machine, in the order in which it came, until a `wait` of its name is
reached or new input begins another run. So it does not matter which of the two comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.graph.core.machine import Interrupt, NodeAsked, Resolve, Signalled
from graphflow.graph.core.node_lifecycle import succeed
from graphflow.graph.core.unit_of_work import Step


def on_signalled(step: Step, tick: Signalled) -> None:
    """The oldest `wait` of this name goes on; without one the signal is kept."""
    step.source = "signal"
    for interrupt in step.before.interrupts.values():
        if interrupt.kind == "signal" and signal_of(interrupt) == tick.name:
            wake(step, interrupt, signalled(tick.name, tick.payload, tick.at), "answered")
            return
    step.checkpoint = False
    step.node = step.before.root.node if step.before.frames else ""
    step.fields["signals"] = (*step.before.signals, (tick.name, tick.payload))


def take_kept(step: Step, tick: NodeAsked) -> bool:
    """Whether a signal had come before its `wait`, which then asks nobody."""
    interrupt = tick.interrupt
    if interrupt.kind != "signal":
        return False
    name = signal_of(interrupt)
    kept = step.before.signals
    for index, (given, payload) in enumerate(kept):
        if given == name:
            step.source, step.node, step.frame_no = "signal", interrupt.node, interrupt.frame
            step.fields["signals"] = (*kept[:index], *kept[index + 1 :])
            succeed(step, interrupt.frame, signalled(name, payload, tick.at))
            return True
    return False


def wake(step: Step, interrupt: Interrupt, out: Mapping[str, Any], decision: str) -> None:
    """The node that waited has succeeded with `out`."""
    step.node, step.frame_no = interrupt.node, interrupt.frame
    step.facts = {"interrupt": interrupt.id, "decision": decision}
    step.interrupts[interrupt.id] = None
    step.commands.append(Resolve(interrupt, decision, out))
    step.change(interrupt.frame, {"status": "ready"})
    succeed(step, interrupt.frame, out)


def signal_of(interrupt: Interrupt) -> str:
    return str(interrupt.payload["signal"])


def signalled(name: str, payload: Any, at: int) -> dict[str, Any]:
    """The `out` of a `wait` that a signal ended."""
    return {"by": "signal", "signal": name, "payload": payload, "at": at}
