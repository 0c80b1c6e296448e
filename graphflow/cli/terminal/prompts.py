"""Questions to the person at the terminal. A question ends if another process answers it first."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.cli.terminal.argument_values import json_or_text
from graphflow.cli.terminal.console import dim, note, one_line_json, say, say_json
from graphflow.cli.terminal.question_text import question_line

if TYPE_CHECKING:
    from graphflow.graph.core.machine import Interrupt

LOOK_S = 0.5
"""Interval for checking whether the question is still open."""

StillOpen = Callable[[], Awaitable[bool]]


class AnsweredElsewhere(Exception):
    """The question was answered by another process meanwhile."""


class _LeaveOpen(Exception):
    """The person leaves the question open."""


async def ask_person(interrupt: Interrupt, still_open: StillOpen) -> Any:
    """The answer to one interrupt, in the shape that its kind takes; None leaves it open.

    Raises:
        AnsweredElsewhere: it is no longer open.
    """
    try:
        match interrupt.kind:
            case "approval":
                return await _approval(interrupt, still_open)
            case "breakpoint":
                say(f"\nstopped at node {interrupt.node}")
                return {"decision": await _choice({"c": "continue", "s": "skip", "x": "cancel"}, still_open)}
            case "outcome_unknown":
                return await _outcome(interrupt, still_open)
        return await _question(interrupt, still_open)
    # Ctrl-D at any prompt leaves the question open; it never decides anything.
    except (_LeaveOpen, EOFError):
        note("left open")
        return None


async def _approval(interrupt: Interrupt, still_open: StillOpen) -> dict[str, Any]:
    payload = interrupt.payload if isinstance(interrupt.payload, Mapping) else {}
    say(f"\n{payload.get('message') or f'Run {interrupt.tool_name}?'}")
    say(f"  {interrupt.tool_name} {one_line_json(interrupt.arguments)}")
    words = {"a": "approve", "e": "edit", "r": "reject", "s": "respond", "t": "terminate"}
    decision = await _choice(words, still_open)
    match decision:
        case "edit":
            return {"decision": decision, "arguments": await _edited(interrupt.arguments, still_open)}
        case "reject":
            return {"decision": decision, "reason": await _text("why: ", still_open)}
        case "respond":
            return {"decision": decision, "response": await _text("result to give instead: ", still_open)}
    return {"decision": decision}


async def _edited(arguments: Any, still_open: StillOpen) -> Any:
    """New arguments, asked one by one; an empty line keeps a value. Text stays text, anything else is read as JSON."""
    out = dict(arguments) if isinstance(arguments, Mapping) else {}
    for name, value in list(out.items()):
        shown = value if isinstance(value, str) else one_line_json(value)
        given = await read_line(f"  {name} [{shown}]: ", still_open)
        if given:
            # A text that looks like a number stays a text where it was one.
            out[name] = given if isinstance(value, str) else json_or_text(given)
    return out


async def _outcome(interrupt: Interrupt, still_open: StillOpen) -> dict[str, Any]:
    say(f"\nnode {interrupt.node}: unknown whether this happened")
    say(f"  {question_line(interrupt)}")
    decision = await _choice({"r": "retry", "s": "skip", "v": "result"}, still_open)
    if decision == "result":
        return {"decision": decision, "result": json_or_text(await _text("its result: ", still_open))}
    return {"decision": decision}


async def _question(interrupt: Interrupt, still_open: StillOpen) -> Any:
    payload = interrupt.payload if isinstance(interrupt.payload, Mapping) else {"message": interrupt.payload}
    say(f"\n{payload.get('message') or f'node {interrupt.node} asks'}")
    rest = {key: value for key, value in payload.items() if key not in ("message", "description", "effects") and value}
    if rest:
        say_json(rest)
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
        given = await read_line(f"  {name} ({rule}{'' if needed else ', optional'}): ", still_open)
        if not given and not needed:
            return None
        if given == ":leave":
            raise _LeaveOpen
        value = _typed(given, kind)
        if value is not None and (not enum or value in enum):
            return value
        note(f"  {name} must be {rule}; `:leave` leaves the question open")


def _typed(given: str, kind: Any) -> Any:
    # Words, since `json.decode("yes")` is an error and an empty line must not mean no.
    if kind == "boolean":
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(given.lower())
    if kind in ("integer", "number", "object", "array"):
        try:
            return msgspec.json.decode(given)
        except msgspec.DecodeError:
            return None
    if kind is None:
        return json_or_text(given) if given else None
    return given or None


async def _choice(words: Mapping[str, str], still_open: StillOpen) -> str:
    """One of the words, by its letter or in full; Enter alone takes none, so that nothing is approved by accident."""
    shown = "  ".join(f"[{letter}] {word}" for letter, word in words.items())
    while True:
        given = (await read_line(f"{shown}  [l] leave open: ", still_open)).lower()
        if given in ("l", "leave"):
            raise _LeaveOpen
        for letter, word in words.items():
            if given in (letter, word):
                return word


async def _text(prompt: str, still_open: StillOpen) -> str:
    while True:
        if given := await read_line(f"  {prompt}", still_open):
            return given


async def read_line(prompt: str, still_open: StillOpen | None = None) -> str:
    """A line from the terminal, without its end; the event loop runs meanwhile, so Ctrl-C still works.

    Raises:
        EOFError: the terminal has no more.
        AnsweredElsewhere: `still_open` says no.
    """
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    sys.stdout.write(prompt)
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
