"""Answers to open interrupts, checked before anything changes: they fail closed (spec 2.4, E13)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from graphflow.bounds import DEFAULTS, Bounds
from graphflow.capabilities import By, person_of
from graphflow.checkpoints import codec
from graphflow.errors import AnswerRefused, CodecError, LimitExceeded, check_size
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.machine import WAITS, Interrupt, Machine
from graphflow.graph.definition.json_schema import compile_schema
from graphflow.graph.definition.types import show
from graphflow.json_data import deeper_than
from graphflow.runtime.approvers import check_approver, known_ids, signed

INTERRUPT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.\d+")

DECISIONS: dict[str, tuple[str, ...]] = {
    "approval": ("approve", "edit", "reject", "respond", "terminate"),
    "breakpoint": ("continue", "skip", "cancel"),
    "outcome_unknown": ("retry", "skip", "result"),
}
MAX_DEPTH = 100
"""Levels of lists and objects in an answer; deeper values fit no form and exceed Python's recursion limit."""
_FIELDS = {
    "approval": ("decision", "arguments", "reason", "response"),
    "breakpoint": ("decision", "update"),
    "outcome_unknown": ("decision", "result"),
}
_NEEDS = {"edit": "arguments", "reject": "reason", "respond": "response", "result": "result"}
_TAKEN_BY = {"arguments": "edit", "response": "respond", "result": "result"}
"""Field → the only decision that acts on it."""


class Answer(msgspec.Struct, frozen=True):
    """A checked answer."""

    interrupt_id: str
    value: Any
    decision: str
    """One of the kind's words, else `answered`."""


def check_answers(machine: Machine, answers: Any, by: By = None, bounds: Bounds = DEFAULTS) -> list[Answer]:
    """The answers of a call, by interrupt id, or a bare one while exactly one interrupt is open.

    Raises:
        AnswerRefused: nothing is open, an unknown id, several open for a bare answer, a value that does not fit or is too large, or a person
            who may not decide.
    """
    return [check_answer(machine, key, value, by, bounds) for key, value in answers_by_id(machine, answers).items()]


def questions_of(machine: Machine) -> list[Interrupt]:
    """The open interrupts that a person can answer: not those that wait for a signal or a time."""
    return [interrupt for interrupt in machine.interrupts.values() if interrupt.kind not in WAITS]


def answers_by_id(machine: Machine, answers: Any) -> Mapping[str, Any]:
    """The answers of a call by interrupt id, not checked yet.

    Raises:
        AnswerRefused: it does not say for which of the open interrupts they are.
    """
    open_ = {interrupt.id: interrupt for interrupt in questions_of(machine)}
    if isinstance(answers, Mapping) and answers and all(isinstance(key, str) for key in answers):
        # Keys that look like ids are meant as ids even if none of them is open: the caller then learns that the
        # interrupt is unknown, not that an answer of this shape is invalid.
        if any(key in open_ or INTERRUPT_ID.fullmatch(key) for key in answers):
            # A call that takes several approvals asks again after each; the id of the first question means the call.
            now = {known: open_id for open_id, each in open_.items() for known in known_ids(each)}
            return {now.get(str(key), str(key)): value for key, value in answers.items()}
        # A question that takes any object would take `{mistyped id: answer}` too.
        if len(open_) == 1 and not _declares(next(iter(open_.values())), answers):
            raise _not_open(next(iter(answers)), open_, hint="; to answer with an object, name the id: {ID: {…}}")
    if len(open_) == 1:
        return {next(iter(open_)): answers}
    if not open_:
        raise AnswerRefused("the thread waits for no answer; nothing has changed", code="interrupt_not_found")
    raise AnswerRefused(
        f"{len(open_)} interrupts are open, so a bare answer does not say which of them it is for; answer by id: {', '.join(open_)}",
        code="answer_ambiguous",
        interrupts=list(open_),
    )


def _declares(interrupt: Interrupt, names: Iterable[str]) -> bool:
    """Whether the question itself names a field of this object."""
    if interrupt.kind in DECISIONS:
        return True
    declared: set[str] = set()
    level: list[Any] = [[interrupt.schema]]
    while level:
        inner = [value for part in level for value in (part.values() if isinstance(part, Mapping) else part)]
        for part in level:
            if isinstance(part, Mapping):
                for word in ("properties", "required"):
                    declared.update(name for name in part.get(word) or () if isinstance(name, str))
        level = [value for value in inner if isinstance(value, Mapping | list | tuple)]
    return not declared.isdisjoint(names)


def _not_open(interrupt_id: str, open_: Iterable[str], hint: str = "") -> AnswerRefused:
    return AnswerRefused(
        f"no interrupt {interrupt_id!r} is open on this thread; open: {', '.join(open_) or 'none'}{hint}",
        code="interrupt_not_found",
        interruptId=interrupt_id,
    )


def check_answer(machine: Machine, interrupt_id: str, value: Any, by: By = None, bounds: Bounds = DEFAULTS) -> Answer:
    """One answer for one id; see `check_answers`."""
    interrupt = machine.interrupts.get(interrupt_id)
    if interrupt is None:
        raise _not_open(interrupt_id, machine.interrupts)
    if interrupt.kind in WAITS:
        raise _invalid(interrupt, f"it waits for a {interrupt.kind}, not for an answer")
    check_approver(machine, interrupt, person_of(by))
    try:
        check_size(
            value, bounds, f"the answer to {interrupt_id!r}", "answer with less, or raise it; the question stays open"
        )
    except LimitExceeded as error:
        raise AnswerRefused(error.message, code=error.code, interruptId=interrupt_id, **error.detail) from None
    if deeper_than(value, MAX_DEPTH):
        raise _invalid(interrupt, f"it has more than {MAX_DEPTH} levels of lists and objects")
    if (allowed := DECISIONS.get(interrupt.kind)) is not None:
        _check_decision(interrupt, value, allowed)
    checker = compile_schema(interrupt.schema) if interrupt.schema else None
    if checker is not None and (issues := checker.errors(value)):
        text = "; ".join(f"{issue.pointer or 'answer'}: {issue.message}" for issue in issues[:5])
        raise _invalid(interrupt, text)
    try:  # before any answer of the call is taken: all of them are, or none
        codec.encode(value)
    except CodecError as error:
        raise _invalid(interrupt, str(error)) from error
    decision = value["decision"] if allowed is not None else "answered"
    taken = value if checker is None else checker.taken(value)
    return Answer(interrupt_id, signed(interrupt, taken, person_of(by)), decision)


def _check_decision(interrupt: Interrupt, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, Mapping):
        raise _invalid(interrupt, f"an answer is an object with `decision`, not {show(value)}")
    # Before the decision, which may be what is misspelt. An `argument` that is ignored would run the call unchanged.
    for name in value:
        if name not in (known := _FIELDS[interrupt.kind]):
            from graphflow.suggestions import choose

            raise _invalid(interrupt, f"{excerpt_of(name)} is no field of this answer; {choose(str(name), known)}")
    decision = value.get("decision")
    if decision not in allowed:
        from graphflow.suggestions import meant

        near = meant(decision, allowed) if isinstance(decision, str) else None
        rule = f"decision is {show(decision)}; it is one of {', '.join(allowed)}"
        raise _invalid(interrupt, f"{rule}; {near}" if near else rule)
    needed = _NEEDS.get(str(decision))
    if needed is not None and value.get(needed) in (None, ""):
        raise _invalid(interrupt, f"decision {decision!r} needs {needed!r}")
    if decision == "edit" and not isinstance(value["arguments"], Mapping):
        raise _invalid(interrupt, f"`arguments` is an object, not {show(value['arguments'])}")
    # A person who sends changed arguments with `approve` would see the call run without the change.
    for field, taker in _TAKEN_BY.items():
        if decision != taker and value.get(field) is not None:
            raise _invalid(interrupt, f"decision {decision!r} takes no {field!r}; decision {taker!r} does")


def _invalid(interrupt: Interrupt, text: str) -> AnswerRefused:
    return AnswerRefused(
        f"the answer to {interrupt.id!r} does not fit: {text}; the question stays open",
        code="answer_invalid",
        interruptId=interrupt.id,
    )
