"""An open question in words: what is asked, and the commands that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphflow.cli.terminal.console import local_time, note, one_line_json
from graphflow.runtime.approvers import rule_of

if TYPE_CHECKING:
    from graphflow.graph.core.machine import Interrupt


class Leave(Exception):
    """The person wants to quit; what is asked stays open."""


def is_question(kind: str) -> bool:
    """Whether a person can answer it; a `wait` node waits for a signal or a time."""
    return kind not in ("signal", "timer")


def say_waiting(interrupts: tuple[Interrupt, ...], thread_id: str) -> None:
    """Prints to stderr what waits, and the command that answers each."""
    people = any(is_question(interrupt.kind) for interrupt in interrupts)
    note(f"thread {thread_id} waits" + (" for a person:" if people else ":"))
    for interrupt in interrupts:
        note(f"  {question_line(interrupt)}")
        note_answers(interrupt)


def question_line(interrupt: Interrupt) -> str:
    """The question on one line, with all of a call's arguments: who answers has to see what will run."""
    payload = interrupt.payload if isinstance(interrupt.payload, Mapping) else {}
    if (what := interrupt.tool_name or payload.get("operation")) is not None:
        given = "" if interrupt.arguments is None else f" {one_line_json(interrupt.arguments)}"
        warning = f": {payload['warning']}" if payload.get("warning") else ""
        return f"{interrupt.kind}: {what}{given} (node {interrupt.node}){warning}{_decided(interrupt)}"
    if not is_question(interrupt.kind):
        until = "" if interrupt.expires_at is None else f" until {local_time(interrupt.expires_at)}"
        return f"{interrupt.kind} {payload.get('signal', '')}".rstrip() + f"{until} (node {interrupt.node})"
    message = payload.get("message") or f"{interrupt.kind} at node {interrupt.node}"
    return f"{interrupt.kind}: {message} (node {interrupt.node})"


def _decided(interrupt: Interrupt) -> str:
    """Who has decided so far where it takes several people, and what, if it is for the others to agree with."""
    rule = rule_of(interrupt)
    if not rule.get("approvals"):
        return ""
    names = ", ".join(str(given["by"]) for given in rule["approvals"])
    proposed = rule.get("proposed", {})
    wants = f" {proposed['decision']}" if proposed else ""
    value = f" {one_line_json(proposed['result'])}" if "result" in proposed else ""
    return f" ({len(rule['approvals'])} of {rule['count']}: {names}{wants}{value})"


def answer_command(interrupt: Interrupt) -> str:
    """A command to copy that answers it; for an `ask` with an example that fits its schema."""
    base = f"graphflow inbox answer {interrupt.id}"
    person = " --as NAME" if rule_of(interrupt) else ""  # not just anybody decides about it
    match interrupt.kind:
        case "approval" | "breakpoint":
            return f"{base} --approve{person}"
        case "outcome_unknown":
            decision = rule_of(interrupt).get("proposed") or {"decision": "retry"}
            return f"{base} --answer {_quoted(decision)}{person}"
    return f"{base} --answer {_quoted(example(interrupt.schema))}"


def _quoted(value: Any) -> str:
    """JSON as one word of a shell command."""
    # Single quotes keep the shell out of the JSON; a quote inside has to leave and enter them again.
    return "'" + one_line_json(value).replace("'", "'\\''") + "'"


_OTHERS = {
    "breakpoint": """--answer '{"decision":"skip"}', --answer '{"decision":"cancel"}'""",
    "outcome_unknown": """--answer '{"decision":"skip"}', --answer '{"decision":"result","result":…}'""",
}


def answer_lines(interrupt: Interrupt) -> str:
    """The command, and the alternatives below it."""
    if interrupt.kind == "signal":
        return '    a signal continues it: POST /api/threads/THREAD/signal {"name": …, "payload": …}'
    if interrupt.kind == "timer":
        return "    a server continues it when due; without one, `graphflow threads resume THREAD` does"
    others = _OTHERS.get(interrupt.kind)
    if interrupt.kind == "approval":
        # The call's own arguments are the form that an edit starts from.
        others = f"--edit {_quoted(interrupt.arguments)} with other values, --reject WHY, --respond TEXT, --terminate"
    return f"    {answer_command(interrupt)}" + (f"\n      or {others}" if others else "")


def note_answers(interrupt: Interrupt) -> None:
    """Prints the lines to stderr; a command to copy is never wrapped."""
    for line in answer_lines(interrupt).split("\n"):
        note(line, whole=line.lstrip().startswith("graphflow "))


def example(schema: Any) -> Any:
    """An example value of a flat schema, for a person to edit."""
    if not isinstance(schema, Mapping):
        return "…"
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list | tuple) else kind
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        # The required fields are enough for an answer; without any, all of them make the better example.
        wanted = schema.get("required") or properties
        return {name: example(properties.get(name, {})) for name in wanted}
    return {"boolean": True, "integer": 1, "number": 1.0, "array": [], "null": None}.get(str(kind), "…")
