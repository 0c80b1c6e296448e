"""Writes the generated pages of docs/ anew: `make docs`. Tests hold each page equal to its source."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from graphflow.errors import ERROR_CODES, RETRYABLE_CODES, ROUTABLE_CODES, TOOL_ERROR_CODES
from graphflow.events import EVENT_TYPES, LIVE_ONLY, TERMINAL, Event
from graphflow.settings import settings_markdown

HERE = Path(__file__).parent

# --- errors ------------------------------------------------------------------------------------------------------------

_ERRORS_HEAD = """# Error codes

Made from `graphflow/errors.py` by `make docs`; a test holds the two equal.

Every error has a stable `code`, a `message` that may change, `retryable`, and facts in `detail`. Over HTTP, in
`run.error` and in `node.error` it is `{code, message, node?, retryable, detail?}`. In Python it is a
`GraphflowError` with the same attributes; the tree of classes stands at the top of `graphflow/errors.py`.

*Retryable*: the same call may succeed later. *Routable*: a node's `error` routes and `retry.on` may name it, beside
`any`; there `provider_error` includes `stream_truncated`.
"""


def errors_markdown() -> str:
    """The text of docs/reference/errors.md: one heading for each code."""
    parts = [_ERRORS_HEAD]
    for code, meaning in ERROR_CODES.items():
        marks = [
            word for word, codes in (("Retryable", RETRYABLE_CODES), ("Routable", ROUTABLE_CODES)) if code in codes
        ]
        parts.append(f"## `{code}`\n\n{meaning}" + (f" *{', '.join(marks).capitalize()}.*" if marks else "") + "\n")
    codes = ", ".join(f"`{code}`" for code in sorted(TOOL_ERROR_CODES))
    parts.append(f"## Tool results\n\nA tool's result with status `error` has one of these codes: {codes}.\n")
    return "\n".join(parts)


# --- events ------------------------------------------------------------------------------------------------------------

_EVENTS_HEAD = """# Events

Made from `graphflow/events.py` by `make docs`; a test holds the two equal.

An event is made once, where it happens, in the shape that goes over the wire. Every event has `seq` (1.. within the
run), `type` and `timestamp` (epoch ms); optional fields without a value are left out. On a server-sent stream a frame is
`id: <life>-<seq>`, `event: message`, `data: <the event as one line of JSON>`.

Families, which a query may choose among by `events`: *contract* (what a chat shows), *graph* (nodes, checkpoints,
interrupts), *always* (sent whatever was chosen). *Live only* events are never stored: who joins later gets the block's
`*.snapshot` instead. Exactly one *terminal* event, or `run.waiting`, ends a stream.

Which event may follow which is stated once, in `graphflow/testing/stream_grammar.py`; every stream that the tests of this project
produce is held against it:

- `request.*`, `chat.start` and `run.start` come first, one terminal comes last. After `run.waiting` only `request.submit`,
  `interrupt.resolve`, `run.resume`, `run.cancel` or `run.error` may come.
- A block starts with its first piece. Within a node run, reasoning and content close each other, and input of a call closes both; several
  calls may be open at once. An id is never opened again. Snapshots close nothing.
- A result follows the end of its call's input, and a call has one result, whatever crash or wait lies between.
- Nothing is open at the end of its node run or task, at `run.waiting` and at a terminal.
- A task needs a plan and no other active task; while it is active every block bears its `taskId`.

`context.compact` is a word that clients know; nothing sends it yet.
"""

EVENT_MEANINGS = {
    "request.query": "A run's input, with the ids that were made for it.",
    "request.upload": "The facts of a file that came with a chat.",
    "request.submit": "An accepted answer.",
    "chat.start": "The chat is new; only in its first run.",
    "plan.create": "A plan was made.",
    "plan.update": "A task of the plan changed.",
    "run.start": "The run begins; before any byte of a model.",
    "run.complete": "The run ended well; `finishReason` says how.",
    "run.cancel": "The run was cancelled.",
    "run.error": "The run failed; its state is kept.",
    "run.waiting": "Nothing can go on without an answer; the response ends, the thread stays.",
    "run.resume": "The run goes on: after an answer, a crash, a rewind or a fork.",
    "task.start": "A task of the plan begins.",
    "task.complete": "The task is done.",
    "task.cancel": "The task was cancelled.",
    "task.fail": "The task failed.",
    "reasoning.start": "Reasoning begins, with its first delta.",
    "reasoning.delta": "One piece of reasoning, as it came from the model.",
    "reasoning.end": "The reasoning block is closed.",
    "reasoning.snapshot": "A whole reasoning block, in place of its start, deltas and end.",
    "content.start": "Text for the user begins, with its first delta.",
    "content.delta": "One piece of text, as it came from the model.",
    "content.end": "The text block is closed.",
    "content.snapshot": "A whole text block.",
    "tool.start": "The model calls a tool.",
    "tool.args": "One piece of the call's arguments.",
    "tool.end": "The arguments are whole.",
    "tool.result": "What the tool gave, as a string.",
    "tool.progress": "What a tool says while it runs.",
    "tool.snapshot": "A whole tool call, without its result.",
    "action.start": "The model triggers an action of the frontend.",
    "action.args": "One piece of the action's arguments.",
    "action.end": "The arguments are whole.",
    "action.param": "The arguments, parsed.",
    "action.result": "`OK`: an action never waits.",
    "action.snapshot": "A whole action.",
    "source.snapshot": "A source that a tool's result names.",
    "node.start": "A node begins an attempt; `path` says in which frame, absent at the root.",
    "node.end": "A node finished; `writes` lists the state keys that it wrote, never values.",
    "node.error": "An attempt failed; `willRetry` says whether another follows.",
    "node.progress": "What a node says while it runs (`ctx.emit`).",
    "checkpoint.create": "A checkpoint is durable.",
    "interrupt.request": "Somebody is asked; `schema` is the JSON Schema of the answer. Durable before it is sent.",
    "interrupt.resolve": "The interrupt is closed; `decision` says how.",
    "context.compact": "Older rounds were summarised in what the model is shown.",
    "stream.reset": "Drop everything after `keepSeq`; for a client that rejoins. No part of the log: no `seq`, no `id`.",
}
"""Wire name → what it says; every event has its line."""


def events_markdown() -> str:
    """The text of docs/reference/events.md: one heading for each event."""
    return "\n".join([_EVENTS_HEAD, *(_event_part(name, EVENT_TYPES[name]) for name in _sorted_events())])


def _sorted_events() -> list[str]:
    groups = list(dict.fromkeys(name.partition(".")[0] for name in EVENT_MEANINGS))
    return sorted(
        EVENT_TYPES, key=lambda name: (groups.index(name.partition(".")[0]), list(EVENT_MEANINGS).index(name))
    )


def _event_part(name: str, cls: type[Event]) -> str:
    marks: list[str] = [cls.family]
    marks += ["live only"] if issubclass(cls, LIVE_ONLY) else []
    marks += ["terminal"] if cls in TERMINAL else []
    common = {field.name for field in msgspec.structs.fields(Event)}
    fields = [field for field in msgspec.structs.fields(cls) if field.name not in common]
    rows = [f"| `{f.encode_name}` | {_type_words(f.type)} | {'yes' if f.required else 'no'} |" for f in fields]
    head = "| field | type | always there |\n| --- | --- | --- |\n"
    return (
        f"## `{name}`\n\n{EVENT_MEANINGS[name]} *{', '.join(marks).capitalize()}.*\n\n{head}" + "\n".join(rows) + "\n"
    )


_JSON_WORDS = {"str": "string", "int": "integer", "bool": "boolean", "Any": "any", "dict": "object", "list": "list"}


def _type_words(kind: object) -> str:
    """The field's JSON type in words: `list of strings`, `object`."""
    text = re.sub(r"typing\.|<class '(\w+)'>", lambda m: m[1] or "", str(kind))
    text = text.replace(" | None", "").split(" | ")[0]
    inner = re.fullmatch(r"list\[(\w+).*\]", text)
    if inner and inner[1] != "Any":
        return f"list of {_JSON_WORDS.get(inner[1], inner[1])}s"
    word = text.partition("[")[0]
    return _JSON_WORDS.get(word, word)


# --- all ---------------------------------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """File name → text of every generated page."""
    return {
        "reference/settings.md": settings_markdown(),
        "reference/errors.md": errors_markdown(),
        "reference/events.md": events_markdown(),
    }


def main() -> None:
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
