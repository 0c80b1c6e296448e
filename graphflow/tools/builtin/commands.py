"""The commands that `bash` knows, and the options of each: a list of what is allowed, as lists of what is not have gaps.

Left out on purpose: whatever follows links on its own (`ls -L`, `ls -H`), never ends (`tail -f`, `free -s`), or
shows what other processes were started with (`top -c`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphflow.tools.builtin.command_line import CommandRefused, Word

# Bounded digits and ASCII only: the text is passed on to the program as it is.
_COUNT = re.compile(r"[+-]?[0-9]{1,12}[bkKMG]?B?", re.ASCII)
_OLD_COUNT = re.compile(r"[-+][0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command."""

    flags: str = ""
    """Letters that may follow one dash, also several together."""
    counted: str = ""
    """Letters that take a count."""
    long: frozenset[str] = frozenset()
    """Names that may follow two dashes; those with `=` take a count."""
    paths: bool = True
    always: tuple[str, ...] = ()
    """Arguments that are always given."""
    old_count: bool = False
    """`-5` and `+5` are counts."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMMANDS: dict[str, Command] = {
    "ls": Command(
        flags="1aAbBcCdfFghGiklmnNopqrRsStuUvxXZ",
        long=_names(
            "all almost-all author classify directory full-time group-directories-first human-readable inode no-group "
            "numeric-uid-gid recursive reverse si size"
        ),
    ),
    "pwd": Command(flags="LP", paths=False),
    "cat": Command(
        flags="AbeEnstTuv",
        long=_names("number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank"),
    ),
    "head": Command(
        flags="qvz", counted="nc", long=_names("lines= bytes= quiet silent verbose zero-terminated"), old_count=True
    ),
    "tail": Command(
        flags="qvz", counted="nc", long=_names("lines= bytes= quiet silent verbose zero-terminated"), old_count=True
    ),
    "top": Command(flags="bHi", counted="nw", paths=False, always=("-b", "-n", "1")),
    "free": Command(
        flags="bkmghltvw", long=_names("human total wide lohi si bytes kibi mebi gibi kilo mega giga"), paths=False
    ),
    "df": Command(flags="ahHiklPT", long=_names("all human-readable inodes local portability print-type si total")),
}


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command line with checked options."""

    name: str
    options: tuple[str, ...]
    operands: tuple[Word, ...]
    """The words that name paths."""


def read_command(words: Sequence[Word]) -> CommandLine:
    """The parts of a command line.

    Raises:
        CommandRefused: an unknown command or option, or an operand where there is none.
    """
    name = words[0].text
    command = COMMANDS.get(name)
    if command is None:
        raise CommandRefused(f"command not allowed: {name!r}; commands are {', '.join(COMMANDS)}", "PERMISSION_DENIED")
    options: list[str] = []
    operands: list[Word] = []
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        # Everything behind it is an operand, also what begins with a dash.
        if word.text == "--":
            operands += rest
            break
        if _is_option(command, word.text):
            options += _option(name, command, word.text, rest)
        else:
            operands.append(word)
    if operands and not command.paths:
        raise CommandRefused(f"{name} takes no {operands[0].text!r}; it takes options only")
    if name == "top":  # it is always run once, as text
        options = [option for option in options if option in {"-H", "-i"}]
    return CommandLine(name=name, options=(*command.always, *options), operands=tuple(operands))


def _is_option(command: Command, text: str) -> bool:
    if command.old_count and _OLD_COUNT.fullmatch(text):
        return True
    # A single dash means standard input, which is empty here.
    return text.startswith("-") and text != "-"


def _option(name: str, command: Command, text: str, rest: list[Word]) -> list[str]:
    if text.startswith("--"):
        word, equals, count = text[2:].partition("=")
        if word + equals in command.long and (not equals or _COUNT.fullmatch(count)):
            return [text]
        raise _unknown(name, text)
    if command.old_count and _OLD_COUNT.fullmatch(text):
        # `tail +5` means "from line 5", so the plus sign is kept.
        return ["-n", text.removeprefix("-")]
    letters = text[1:]
    for index, letter in enumerate(letters):
        if letter in command.counted:
            count = letters[index + 1 :] or (rest.pop(0).text if rest else "")
            if not _COUNT.fullmatch(count):
                raise CommandRefused(f"{name} -{letter} takes a count, not {count!r}")
            # The count ends the group: `-qn5` is `-q -n 5`.
            return [*([f"-{letters[:index]}"] if index else []), f"-{letter}", count]
        if letter not in command.flags:
            raise _unknown(name, f"-{letter}")
    return [text]


def _unknown(name: str, option: str) -> CommandRefused:
    command = COMMANDS[name]
    known = [
        *(f"-{letter}" for letter in command.flags + command.counted),
        *(f"--{word}" for word in sorted(command.long)),
    ]
    return CommandRefused(f"option not allowed: {name} {option}; options are {' '.join(known)}", "PERMISSION_DENIED")
