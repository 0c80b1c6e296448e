"""Questions to the person at the terminal. A question ends if another process answers it first."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.cli.terminal.argument_values import json_or_text
from graphflow.cli.terminal.console import dim, fitted, note, one_line_json, say, say_json
from graphflow.cli.terminal.question_text import Leave, question_line

if TYPE_CHECKING:
    from graphflow.graph.core.machine import Interrupt

LOOK_S = 0.5
"""Interval for checking whether the question is still open."""
CHOICES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "approval": (
        ("a", "approve", "run the call as it is"),
        ("e", "edit", "run it with other arguments: asked one by one, or given as a JSON object"),
        ("r", "reject", "do not run it; the model gets the reason"),
        ("s", "respond", "do not run it; the model gets your text as its result"),
        ("t", "terminate", "do not run it, and end the run"),
    ),
    "breakpoint": (
        ("c", "continue", "run the node"),
        ("s", "skip", "go on without running the node"),
        ("x", "cancel", "cancel the run"),
    ),
    "outcome_unknown": (
        ("r", "retry", "do it again"),
        ("s", "skip", "go on without it"),
        ("v", "result", "it has happened: give its result"),
    ),
}
"""Kind of interrupt → letter, decision and what it does."""
LATER = "leave the question open; `graphflow inbox list` shows it"
_WITH_TEXT = frozenset({"edit", "reject", "respond", "result"})
"""Decisions that take what follows them on the line."""
_DECISIONS = frozenset(word for kind in ("approval", "outcome_unknown") for _, word, _ in CHOICES[kind])
_SYNONYMS = {
    "approval": {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"},
    "breakpoint": {"y": "continue", "yes": "continue", "approve": "continue", "terminate": "cancel"},
}

StillOpen = Callable[[], Awaitable[bool]]


class AnsweredElsewhere(Exception):
    """The question was answered by another process meanwhile."""


class _LeaveOpen(Exception):
    """The person leaves the question open."""


class _Instead(Exception):
    """The person decides otherwise than began: by this line, such as `/reject too early` where a value was asked for."""

    def __init__(self, line: str) -> None:
        self.line = line


async def ask_person(interrupt: Interrupt, still_open: StillOpen, first: str | None = None) -> Any:
    """The answer to one interrupt, in the shape that its kind takes; None leaves it open.

    Args:
        first: what the person has typed for it already, such as `/reject too early`.

    Raises:
        AnsweredElsewhere: it is no longer open.
        Leave: the person quits.
    """
    try:
        match interrupt.kind:
            case "approval":
                return await _approval(interrupt, still_open, first)
            case "breakpoint":
                say(f"\nstopped at node {interrupt.node}")
                decision, _ = await _choice("breakpoint", still_open, first)
                return {"decision": decision}
            case "outcome_unknown":
                return await _outcome(interrupt, still_open, first)
        return await _question(interrupt, still_open, first)
    # Ctrl-D at any prompt leaves the question open; it never decides anything.
    except (_LeaveOpen, EOFError):
        note("left open")
        return None


async def _approval(interrupt: Interrupt, still_open: StillOpen, first: str | None) -> dict[str, Any]:
    payload = interrupt.payload if isinstance(interrupt.payload, Mapping) else {}
    say(f"\n{payload.get('message') or f'Run {interrupt.tool_name}?'}")
    say(f"  {interrupt.tool_name} {one_line_json(interrupt.arguments)}")
    while True:
        decision, rest = await _choice("approval", still_open, first)
        try:
            match decision:
                case "edit":
                    return {"decision": decision, "arguments": await _edited(interrupt.arguments, still_open, rest)}
                case "reject":
                    return {"decision": decision, "reason": rest or await _text("why:", still_open)}
                case "respond":
                    return {
                        "decision": decision,
                        "response": rest or await _text("result to give instead:", still_open),
                    }
            return {"decision": decision}
        except _Instead as other:
            first = other.line


async def _edited(arguments: Any, still_open: StillOpen, given: str) -> Any:
    """New arguments: as JSON, or asked one by one; an empty line keeps a value. Text stays text, anything else is JSON."""
    if given:
        if isinstance(value := json_or_text(given), dict):
            return value
        note("  edit takes a JSON object of arguments, or nothing to be asked for each")
    out = dict(arguments) if isinstance(arguments, Mapping) else {}
    for name, value in list(out.items()):
        shown = value if isinstance(value, str) else one_line_json(value)
        given = await _line(f"  {name} [{shown}]:", still_open, decides=True)
        if given.startswith("{") and isinstance(whole := json_or_text(given), dict) and whole.keys() <= out.keys():
            return {**out, **whole}
        if given:
            # A text that looks like a number stays a text where it was one.
            out[name] = given if isinstance(value, str) else json_or_text(given)
    return out


async def _outcome(interrupt: Interrupt, still_open: StillOpen, first: str | None) -> dict[str, Any]:
    say(f"\nnode {interrupt.node}: unknown whether this happened")
    say(f"  {question_line(interrupt)}")
    while True:
        decision, rest = await _choice("outcome_unknown", still_open, first)
        if decision != "result":
            return {"decision": decision}
        try:
            return {"decision": decision, "result": json_or_text(rest or await _text("its result:", still_open))}
        except _Instead as other:
            first = other.line


async def _question(interrupt: Interrupt, still_open: StillOpen, first: str | None) -> Any:
    payload = interrupt.payload if isinstance(interrupt.payload, Mapping) else {"message": interrupt.payload}
    say(f"\n{payload.get('message') or f'node {interrupt.node} asks'}")
    rest = {key: value for key, value in payload.items() if key not in ("message", "description", "effects") and value}
    if rest:
        say_json(rest)
    if first is not None:
        note(f"  {first} is not an answer to this question; type the answer")
    schema = interrupt.schema if isinstance(interrupt.schema, Mapping) else {}
    if schema.get("properties"):
        return await _fields(schema, still_open)
    return await _value("answer", schema, still_open)


async def _fields(schema: Mapping[str, Any], still_open: StillOpen) -> dict[str, Any]:
    out = {}
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        value = await _value(name, field, still_open, needed=name in required)
        if value is not None:
            out[name] = value
    return out


async def _value(name: str, schema: Mapping[str, Any], still_open: StillOpen, *, needed: bool = True) -> Any:
    enum, kind = schema.get("enum"), schema.get("type")
    rule = "/".join(map(str, enum)) if enum else "y/n" if kind == "boolean" else str(kind or "text")
    while True:
        given = await _line(f"  {name} ({rule}{'' if needed else ', optional'}):", still_open)
        if not given and not needed:
            return None
        value = _typed(given, kind)
        if value is not None and (not enum or value in enum):
            return value
        note(f"  {name} must be {rule}; /later leaves the question open")


def _typed(given: str, kind: Any) -> Any:
    # Words, since `json.decode("yes")` is an error and an empty line must not mean no.
    if kind == "boolean":
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(given.lower())
    if kind in ("integer", "number", "object", "array"):
        try:
            return msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            return None
    if kind is None:
        return json_or_text(given) if given else None
    return given or None


async def _choice(kind: str, still_open: StillOpen, first: str | None) -> tuple[str, str]:
    """A decision, by its letter or in full, and what was typed after it.

    Enter alone takes none, so that nothing is approved by accident. Anything else that is no decision is explained.
    """
    choices = CHOICES[kind]
    words = {letter: word for letter, word, _ in choices} | {word: word for _, word, _ in choices}
    words |= _SYNONYMS.get(kind, {})
    shown = "  ".join(f"[{letter}] {word}" for letter, word, _ in choices)
    while True:
        line = first if first is not None else await _line(f"{shown}  [l] leave open:", still_open, help=False)
        first, (word, _, rest) = None, line.removeprefix("/").partition(" ")
        if word.lower() in ("l", "leave", "later"):
            raise _LeaveOpen
        decision = words.get(word.lower())
        # A sentence that begins like a decision (`approve nothing yet`, `a file that …`) is none.
        if decision and (not rest or (word.lower() == decision and decision in _WITH_TEXT)):
            return decision, rest.strip()
        if line not in ("", "?", "h", "/help"):
            note(
                f"  {line!r} is not an answer to this question; a message can be sent when it is answered or left open"
            )
        for letter, known, meaning in (*choices, ("l", "leave open", LATER)):
            note(f"  [{letter}] {known:<10} {meaning}", indent=" " * 15)


async def _text(prompt: str, still_open: StillOpen) -> str:
    while True:
        if given := await _line(f"  {prompt}", still_open, decides=True):
            return given


def _command(line: str) -> str:
    """The word of a line `/word`, without its slash; empty for any other line."""
    return line[1:].strip().lower() if line.startswith("/") else ""


async def _line(prompt: str, still_open: StillOpen, *, help: bool = True, decides: bool = False) -> str:
    """A line that is no command: `/later`, `/quit` and `/help` do the same at every prompt.

    Args:
        decides: what is asked for belongs to a decision, and `/reject` and the like are another one.
    """
    while True:
        given = await read_line(prompt, still_open)
        match _command(given):
            case "later" | "leave":
                raise _LeaveOpen
            case "quit" | "exit":
                raise Leave
            case word if decides and word.partition(" ")[0] in _DECISIONS:
                raise _Instead(given)
            case "help" if help:
                note(
                    "  type the value and press Enter; /later leaves the question open, /quit leaves it open and quits"
                )
            case _ if given == ":leave":
                raise _LeaveOpen
            case _:
                return given


async def read_line(prompt: str, still_open: StillOpen | None = None) -> str:
    """A line from the terminal, without its end; the event loop runs meanwhile, so Ctrl-C still works.

    Raises:
        EOFError: the terminal has no more.
        AnsweredElsewhere: `still_open` says no.
    """
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    sys.stdout.write(fitted(prompt, sys.stdout) + " ")
    sys.stdout.flush()
    descriptor = sys.stdin.fileno()
    loop.add_reader(descriptor, ready.set)
    try:
        while not ready.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await ready.wait()
            except TimeoutError:
                if still_open is not None and not await still_open():
                    say(dim(" (answered elsewhere)"))
                    raise AnsweredElsewhere from None
    finally:
        loop.remove_reader(descriptor)
    # A terminal delivers whole lines, so one read is one line; sys.stdin's buffer would hide a second one from the loop.
    raw = os.read(descriptor, 65536)
    if not raw:
        say()
        raise EOFError
    return raw.decode(sys.stdin.encoding or "utf-8", "replace").strip()
