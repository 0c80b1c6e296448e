"""Who may decide about a tool call that waits for approval, or was cut off (spec 8.5): checked wherever an answer comes from.

The question itself says so: its role is `admin`, or its payload has `approval` (see `approval_mode`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.approval_mode import people_in
from graphflow.capabilities import Person, askers
from graphflow.errors import AnswerRefused
from graphflow.graph.core.machine import Interrupt, Machine

ADMIN = "admin"
"""Role of approvals that only a person with this scope decides about."""
DECIDED = ("approval", "outcome_unknown")
"""Kinds of questions about a call: whether it is made, and what happens to it after it was cut off."""


def rule_of(interrupt: Interrupt) -> Mapping[str, Any]:
    """Of a question about a call that not just anybody decides about; empty for any other question."""
    return people_in(interrupt.payload) if interrupt.kind in DECIDED else {}


def known_ids(interrupt: Interrupt) -> tuple[str, ...]:
    """The ids under which people know the question: its own, and those under which others have approved the same call.

    Under the id at which somebody has edited the arguments others have seen those before the edit.
    """
    rule = rule_of(interrupt)
    editor = rule.get("edited", {}).get("by")
    earlier = (str(given["interruptId"]) for given in rule.get("approvals", ()) if given["by"] != editor)
    return (interrupt.id, *earlier)


def check_approver(machine: Machine, interrupt: Interrupt, person: Person) -> None:
    """Raises AnswerRefused (`answer_forbidden`) when this person may not decide; the question stays open."""
    if interrupt.kind not in DECIDED:
        return
    rule = rule_of(interrupt)
    if interrupt.role == ADMIN and not person.admin:
        raise _refused(interrupt, person, "it changes what agents may do, which takes the scope `admin`")
    if rule.get("by") == "other" and person.id in askers(machine.starter):
        does = "approve it" if interrupt.kind == "approval" else "decide what happens to its calls"
        raise _refused(interrupt, person, f"who asked for the run can't {does}; another person has to")
    if any(given["by"] == person.id for given in rule.get("approvals", ())):
        done = "approved" if interrupt.kind == "approval" else "decided"
        raise _refused(interrupt, person, f"they have {done} already; it takes {rule['count']} different people")


def signed(interrupt: Interrupt, value: Any, person: Person) -> Any:
    """The answer; one of several has who gave it, and to which question."""
    return {**value, "by": person.id, "interruptId": interrupt.id} if rule_of(interrupt).get("count", 1) > 1 else value


def _refused(interrupt: Interrupt, person: Person, why: str) -> AnswerRefused:
    return AnswerRefused(
        f"{person.name!r} can't decide about {interrupt.id!r}: {why}; the question stays open",
        code="answer_forbidden",
        interruptId=interrupt.id,
    )
