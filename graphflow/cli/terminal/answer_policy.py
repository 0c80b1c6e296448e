"""Answers the questions of a run: by the person at the terminal, a fixed decision, or a rules file; or leaves them open."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from graphflow.authored_files import read_authored
from graphflow.capabilities import LOCAL
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import interactive, one_line_json, stop
from graphflow.cli.terminal.question_text import Leave, is_question
from graphflow.runtime.approvers import ADMIN, rule_of

if TYPE_CHECKING:
    from graphflow.graph.core.machine import Interrupt

Decision = Literal["approve", "deny", "ask"]
Answers = dict[str, Any]
StillOpen = Callable[[tuple["Interrupt", ...]], Awaitable[bool]]

ANSWERED_ELSEWHERE: Answers = {}
"""Another process answered while this one asked."""

_WORDS: dict[str, Decision] = {"all": "approve", "approve": "approve", "deny": "deny", "reject": "deny", "ask": "ask"}


class AnswerRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a rules file: the decision for calls of `tool` whose arguments match. The first match wins."""

    tool: str = "*"
    """A tool's name, or a pattern with `*`."""
    arguments: dict[str, str] = msgspec.field(default_factory=dict)
    """Argument → regular expression that must match the whole value."""
    decision: Decision
    reason: str | None = None
    """Sent to the model with `deny`."""

    def fits(self, interrupt: Interrupt) -> bool:
        given = interrupt.arguments if isinstance(interrupt.arguments, Mapping) else {}
        return fnmatch.fnmatchcase(interrupt.tool_name or "", self.tool) and all(
            name in given and re.fullmatch(pattern, _text(given[name])) for name, pattern in self.arguments.items()
        )


class Policy:
    """The policy of `--approve`. Rules decide approvals only; any other question needs a person."""

    def __init__(self, rules: tuple[AnswerRule, ...] = (), *, person: bool | None = None, by: str = LOCAL) -> None:
        self.rules = rules
        self.by = by
        """Who answers, and asks for runs."""
        self.denied = False
        """Whether a rule has denied a call."""
        self.quit = False
        """Whether the person has quit at a question."""
        self.typed: str | None = None
        """What the person has typed for the next question before it is shown: `/approve`."""
        self._left: set[str] = set()
        self.asks_again = interactive() if person is None else person

    async def answers(self, interrupts: tuple[Interrupt, ...], still_open: StillOpen) -> Answers | None:
        """Answers to all of them; None leaves the thread waiting; `ANSWERED_ELSEWHERE` if another process was faster."""
        answers: Answers = {}
        questions = [interrupt for interrupt in interrupts if is_question(interrupt.kind)]
        # A thread that waits for a signal or a time only: there is nobody to ask.
        if not questions:
            return None
        for interrupt in questions:
            if (value := self._by_rule(interrupt)) is None and self.asks_again and interrupt.id not in self._left:
                from graphflow.cli.terminal.prompts import AnsweredElsewhere, ask_person

                typed, self.typed = self.typed, None
                try:
                    value = await ask_person(interrupt, lambda: still_open(interrupts), typed)
                except AnsweredElsewhere:
                    return ANSWERED_ELSEWHERE
                except Leave:
                    self.quit = True
            if value is not None:
                answers[interrupt.id] = value
                continue
            # Left open: not asked again when the run goes on with the answers to the others.
            self._left.add(interrupt.id)
            if self.quit:
                break
        return answers or None

    def ask_again(self) -> None:
        """Asks from now on also what was left open."""
        self._left.clear()

    def _by_rule(self, interrupt: Interrupt) -> dict[str, Any] | None:
        # A rule decides about a tool call; other questions have no tool and need a person.
        if interrupt.kind != "approval":
            return None
        # What changes what agents may do takes a person each time; a rule may only refuse it.
        rule = next((rule for rule in self.rules if rule.fits(interrupt)), None)
        if rule is None or rule.decision == "ask":
            return None
        if rule.decision == "approve":
            return None if interrupt.role == ADMIN or rule_of(interrupt) else {"decision": "approve"}
        self.denied = True
        return {"decision": "reject", "reason": rule.reason or "denied by the rules of this run (--approve)"}


def policy_of(word: str, by: str = LOCAL) -> Policy:
    """The policy of `--approve ask|deny|all|rules.json` for the person of `--as`."""
    # The words win over a file of that name; `./ask` names the file.
    if word in ("ask", "deny", "all"):
        return Policy((AnswerRule(decision=_WORDS[word]),), by=by)
    if not Path(word).exists():
        stop(exits.USAGE, f"--approve takes ask, deny, all, or a rules file, not {word!r}")
    return Policy(_rules(Path(word)), by=by)


def _rules(path: Path) -> tuple[AnswerRule, ...]:
    """A list of rules, or an object tool → `all`, `deny` or `ask`."""
    try:
        data = msgspec.json.decode(read_authored(path))
        if isinstance(data, dict):
            data = [{"tool": tool, "decision": _WORDS.get(str(word), word)} for tool, word in data.items()]
        rules = msgspec.convert(data, tuple[AnswerRule, ...])
        for rule in rules:
            for pattern in rule.arguments.values():
                # Now, not at the first call: a broken pattern must not end a run in its middle.
                re.compile(pattern)
    except (OSError, msgspec.DecodeError, RecursionError, re.error) as error:
        stop(
            exits.USAGE,
            f"--approve {str(path)!r}: {error}",
            hint='rules are [{"tool": "bash", "arguments": {"command": "ls.*"}, "decision": "approve"}] or {"bash": "deny", "*": "ask"}',
        )
    return rules


def _text(value: Any) -> str:
    return value if isinstance(value, str) else one_line_json(value)
