"""`graphflow new`: an example agent; it runs with the scripted model, without a key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from graphflow.authored_files import too_large
from graphflow.cli.command import command, root
from graphflow.cli.startup import settings_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, stop
from graphflow.excerpts import excerpt_of
from graphflow.json_data import plain

SCHEMA_FILE = ".graphflow.schema.json"
"""Stored with the agents; files that start with a dot are not loaded."""

# Texts, not documents: people open these files to learn the format, triple quotes for long texts included.
PLAIN = """\
{
  "name": "%(name)s",
  "description": "Answers in one model call.",
  "mode": "PLAIN",
  "providerKey": "auto",
  "plain": {
    "systemPrompt": \"\"\"
You are a helpful assistant. Answer briefly, in the language of the question.
\"\"\"
  }
}
"""
REACT = """\
{
  "name": "%(name)s",
  "description": "Works with tools, one call at a time; shell commands wait for approval.",
  "mode": "REACT",
  "providerKey": "auto",
  "tools": ["city_datetime", "mock_city_weather", "bash"],
  "approval": {"bash": "REQUIRE_APPROVAL", "*": "AUTO"},
  "react": {
    "systemPrompt": \"\"\"
You are a careful assistant who works with tools.
Call one tool at a time, look at its result, then go on or answer.
\"\"\",
    "maxRounds": 6
  }
}
"""
GRAPH = """\
{
  "graphflow": "1",
  "name": "%(name)s",
  "description": "Drafts a text and asks a person before it is done.",
  "providerKey": "auto",
  "state": {
    "type": "object",
    "properties": {
      "messages": {"type": "array", "default": [], "x-reducer": "messages"},
      "draft": {"type": "string", "default": "", "x-scope": "run"}
    }
  },
  "result": "state.draft",
  "budget": {"maxSteps": 12},
  "start": "write",
  "nodes": {
    "write": {
      "use": "model",
      "with": {"systemPrompt": "You write short, clear texts.", "messages": "${state.messages}"},
      "set": {"draft": "out.text", "messages": "[out.message]"},
      "next": "approve"
    },
    "approve": {
      "ask": {"message": "Publish this text?", "show": "{'draft': state.draft}", "schema": {"type": "boolean"}},
      "next": [{"if": "answer == true", "to": "end"}, {"to": "write"}]
    }
  }
}
"""
TEMPLATES = {"PLAIN": PLAIN, "REACT": REACT, "GRAPH": GRAPH}
TRY = {"PLAIN": "Hello!", "REACT": "What will the weather be in Beijing tomorrow?", "GRAPH": "A line about graphs"}


@command(root, "new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Key of the agent, and name of its file.")],
    mode: Annotated[str, typer.Option(metavar="|".join(TEMPLATES), help="Template.")] = "REACT",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Create an example agent, and the JSON Schema for your editor."""
    from graphflow.tools.builtin.agent_file import AGENT_ID

    key, word = name.removesuffix(".json"), mode.strip().upper().replace("-", "_")
    if not AGENT_ID.fullmatch(key):
        stop(exits.USAGE, f"{excerpt_of(name, 100)} is not a valid key: use 1 to 64 letters, digits, _ and -")
    if word not in TEMPLATES:
        stop(exits.USAGE, f"unknown --mode {mode!r}; modes are {', '.join(TEMPLATES)}")
    settings = settings_of()
    folder = Path(settings.agents.dir)
    file = folder / f"{key}.json"
    if file.exists() and not force:
        stop(exits.USAGE, f"{_shown(file)} exists", hint="choose another name, or overwrite it with --force")
    # A key has no character that JSON would escape, so its title may stand in the text as it is.
    content = (TEMPLATES[word] % {"name": _title(key)}).encode()
    if len(content) > settings.bounds.document_bytes:
        stop(exits.LIMIT, f"{_shown(file)} was not written: {too_large(len(content), settings.bounds.document_bytes)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        # Written anew each time: it describes the version that is installed now.
        _write_schema(folder / SCHEMA_FILE)
    except OSError as error:
        stop(exits.FAILED, f"{_shown(file)} cannot be written: {error.strerror}", hint="`graphflow doctor`")
    say(_shown(file))
    note(f'next: `graphflow run {key} "{TRY[word]}"`; {SCHEMA_FILE} is the JSON Schema for your editor')


def _write_schema(path: Path) -> None:
    import msgspec

    from graphflow.modes.definition import agent_schema

    path.write_bytes(msgspec.json.format(msgspec.json.encode(agent_schema(), enc_hook=plain), indent=2) + b"\n")


def _title(key: str) -> str:
    words = re.split(r"[_-]+", key)
    return " ".join(words).strip().capitalize()


def _shown(path: Path) -> str:
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
