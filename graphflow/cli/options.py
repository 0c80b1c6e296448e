"""Options and arguments that several commands share."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import stop


def _person(name: str) -> str:
    # What a user of a token may be called, so that it can be the same person.
    if not re.fullmatch(r"[A-Za-z0-9_.@+-]{1,128}", name):
        stop(exits.USAGE, f"--as takes a name of letters, digits and _ . @ + -, at most 128, not {name!r}")
    return name


Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Agent key, or a .json file.")]
ThreadId = Annotated[
    str,
    typer.Argument(metavar="THREAD", help="Thread id; a unique prefix or suffix of 4 characters or more is enough."),
]
Place = Annotated[
    str,
    typer.Argument(metavar="THREAD[@CHECKPOINT]", help="Default checkpoint: the head. Unique id prefixes are enough."),
]
NewId = Annotated[str | None, typer.Option("--id", metavar="ID", help="Id of the new thread.")]
ContinueThread = Annotated[
    str | None, typer.Option(metavar="ID", help="Continue this thread, or begin one under this id.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsLines = Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen without changing anything.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Approve = Annotated[
    str, typer.Option("--approve", metavar="ask|deny|all|RULES.json", help="Who approves tool calls that need it.")
]
Budget = Annotated[
    list[str] | None, typer.Option("--budget", metavar="LIMIT=VALUE", help="maxModelCalls=5, maxTokens=…; repeatable.")
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Limit on the run's active time.")
]
Effects = Annotated[
    str | None,
    typer.Option(
        metavar="reuse|rerun|undo|ID=…",
        help="What to do with write effects after the checkpoint; per effect: ID=undo,*=rerun.",
    ),
]
As = Annotated[
    str,
    typer.Option("--as", metavar="NAME", callback=_person, help="Who asks or answers, for the record and approvals."),
]
"""Taken at its word: who may write the store may write any name into it (ADR 0042)."""
