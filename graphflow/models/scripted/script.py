"""What the scripted model says, as data: recorded turns and rules (JSON).

A script is an object

    {"turns": [TURN, …], "rules": [RULE, …], "lists": {NAME: {VALUE: [alias, …]}}, "otherwise": TURN}

or only a list, whose items with `match` are rules and the others turns. `turns` are played in order: the
turn with index *n* answers a request whose messages hold *n* assistant messages. When they are used up,
the rules whose `match` is found in the last user message answer; else `otherwise`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from graphflow.authored_files import read_authored
from graphflow.models.deltas import Usage

Text = str | dict[str, str]
"""A text, or one per language: `{"en": …, "zh": …}`. `{name}` stands for a variable of the rule."""


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of a recorded turn."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    """An object, or the raw text of the arguments (to play broken ones)."""
    id: str | None = None


class ScriptedError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error instead of a turn, or in its midst when something was said before."""

    status: int = 500
    message: str = "scripted error"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Of the HTTP answer, e.g. `retry-after`."""
    code: str | None = None


class ScriptTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recorded turn. Its parts are played in the order of these fields."""

    reasoning: Text = ""
    text: Text = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    finish: str | None = None
    """Finish reason on the wire; default `tool_calls` with calls, else `stop`."""
    usage: Usage | None = None
    """Default: estimated."""
    error: ScriptedError | None = None
    hang: bool = False
    """After its deltas the stream stays open and silent."""
    cut: int | None = None
    """The connection is cut after this many deltas."""
    piece: int | None = None
    """Characters per delta; default: about a word."""
    delay_ms: int | None = None
    """Pause before each delta; default: the model's."""


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call of a rule; left out when the tool is not offered."""

    tool: str
    arguments: dict[str, str] = msgspec.field(default_factory=dict)
    """Texts with `{variables}`; arguments that come out empty, or that the tool does not know, are left out."""


class ScriptChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sets variables when its pattern is found in the last user message."""

    match: str
    set: dict[str, str]


class ScriptRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to answer messages of one sort: by tools, step after step, then in words; or by a recorded turn.

    A message that several rules with steps match is answered by all of them, one after another.
    """

    match: str
    """Pattern searched in the last user message, case ignored; its named groups become variables."""
    turn: ScriptTurn | None = None
    """The recorded turn that answers; the other fields are then unused."""
    each: str | None = None
    """Name of a list: the steps are done for each of its values that the message names, `{item}`."""
    pattern: str | None = None
    """Where the message names no value of the list: pattern whose first group is the item (case matters)."""
    default: Text = ""
    """`{item}` when the message names none."""
    choose: tuple[ScriptChoice, ...] = ()
    """The first that matches sets its variables."""
    steps: tuple[ScriptStep, ...] = ()
    reasoning: Text = ""
    line: Text = ""
    """What is said of each item's last result, with the fields of that result as variables; an item whose
    result lacks one of them is quoted as it is."""
    answer: Text = "{results}"
    """The last turn's text for this rule; `{results}` are the lines."""
    untold: Text = ""
    """The text when no tool was called, for none is offered."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole script."""

    turns: tuple[ScriptTurn, ...] = ()
    rules: tuple[ScriptRule, ...] = ()
    lists: dict[str, dict[str, tuple[str, ...]]] = msgspec.field(default_factory=dict)
    days: dict[str, int] = msgspec.field(default_factory=dict)
    """Word → days from today. `{date}` is that day, counted from the date in the latest result; before any
    result it is the word itself."""
    otherwise: ScriptTurn = ScriptTurn(text="{topic}")


class ScriptError(ValueError):
    """A script that can't be played; the text names file, place and rule."""


def load_script(path: str | Path) -> Script:
    """The script in a JSON file.

    Raises:
        ScriptError: it can't be read, or breaks a rule of its form.
    """
    try:
        data = read_authored(path)
    except OSError as error:
        raise ScriptError(f"script {str(path)!r} can't be read: {error}") from error
    return parse_script(data, name=str(path))


def parse_script(data: bytes | Mapping[str, Any] | Sequence[Any], *, name: str = "script") -> Script:
    """The script in JSON bytes or plain data.

    Raises:
        ScriptError: it breaks a rule of its form.
    """
    try:
        raw: Any = msgspec.json.decode(data) if isinstance(data, bytes) else data
        # A bare list mixes rules and turns; only rules have `match`.
        if isinstance(raw, Sequence) and not isinstance(raw, str):
            rules = [item for item in raw if isinstance(item, Mapping) and "match" in item]
            raw = {"rules": rules, "turns": [item for item in raw if item not in rules]}
        script = msgspec.convert(raw, Script)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScriptError(
            f'{name}: {error}; a script is {{"turns": [{{"text": …}}, …], "rules": […], "otherwise": {{"text": …}}}}, or a '
            "list of turns and rules"
        ) from error
    for position, rule in enumerate(script.rules):
        _check_rule(script, rule, f"{name}: rules[{position}]")
    return script


def _check_rule(script: Script, rule: ScriptRule, place: str) -> None:
    # Compiled when the script is loaded: a wrong pattern would otherwise fail in the middle of a conversation.
    for pattern in (rule.match, rule.pattern or "", *(choice.match for choice in rule.choose)):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ScriptError(f"{place}: pattern {pattern!r} is not a regular expression: {error}") from error
    if rule.each is not None and rule.each not in script.lists:
        raise ScriptError(f"{place}: each is {rule.each!r}; lists are {', '.join(script.lists) or 'none'}")


@cache
def default_script() -> Script:
    """The embedded script, which plays the demo agents."""
    return load_script(Path(__file__).parent / "scripts" / "default.json")
