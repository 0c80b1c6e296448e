"""The `stage` node: one of a team's four agents, with its own prompt and its own view of the shared context (spec 6.1).

What is said to people and every call with its result are in `messages`, in the order that providers demand; what the
agents say to each other are notes. Each stage is shown both, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import Issue
from graphflow.graph.core.transcript import answer_open_calls
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.memory.window import last_runs
from graphflow.messages import AIMessage, HumanMessage, Message
from graphflow.nodes.calls.agent_tools import with_agents
from graphflow.nodes.calls.turn_calls import TASK_DONE
from graphflow.nodes.message_pairing import NOT_RUN, paired
from graphflow.nodes.model import WITH_SCHEMA, ModelKind
from graphflow.nodes.plan_view import request_of
from graphflow.nodes.team_prompts import DEFAULTS, TURNS
from graphflow.nodes.turn import TurnFactory
from graphflow.tools.listing import with_tools
from graphflow.tools.selection import offered_tools

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction

SPEAKER = "team"
"""`name` of the user turns that prompt a stage; it marks them as not written by the person."""

STAGE_WITH: dict[str, Any] = {
    "type": "object",
    "required": ["stage", "notes"],
    "properties": {
        "stage": {"type": "string", "enum": list(DEFAULTS)},
        "notes": {"type": "array"},
        "keywords": {"type": "array", "items": {"type": "string"}},
        **{
            name: WITH_SCHEMA["properties"][name]
            for name in (
                "systemPrompt", "tools", "providerKey", "model", "compute", "showReasoning", "stream", "output",
                "toolChoice", "mustCall",
            )
        },
    },
    "additionalProperties": False,
}  # fmt: skip


class StageKind(ModelKind):
    """`use: stage`.

    `thinking` and `observation` call nothing; what they say is reasoning for readers, and a note for the team in
    `out.notes`. `action` calls tools, and what it says beside its calls is treated the same. `final` answers.
    `out.messages` is what joins the conversation.
    """

    name = "stage"
    with_schema: Mapping[str, Any] | None = STAGE_WITH

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        yield from super().check(name, node, document)
        if TASK_DONE not in self._tools:
            yield Issue(
                pointer="/use",
                message=f"a team ends its work by the tool {TASK_DONE!r}, and none is registered",
                hint="register the built-in tools",
                kind="reference",
            )

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        turns, registry = TurnFactory(document, self._tools), self._tools

        async def run(given: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            stage = given["stage"]
            names = (*offered_tools(registry, document, given), *([TASK_DONE] if stage == "action" else ()))
            listed = [tool for tool in map(with_agents(registry, names, ctx).get, names) if tool is not None]
            messages = ctx.state.get("messages", ())
            arguments = {
                **{key: given[key] for key in ("providerKey", "model", "compute", "showReasoning") if key in given},
                "systemPrompt": with_tools(given.get("systemPrompt") or DEFAULTS[stage], listed),
                "messages": [*view(ctx, given["notes"]), HumanMessage(content=_asks(given, messages), name=SPEAKER)],
                **_manner(given, ctx, list(dict.fromkeys(names))),
            }
            out = await turns.turn(arguments, ctx).run()
            if stage == "final":
                return {**out, "notes": []}
            # The position keeps the note's place: notes are stored apart from the conversation.
            note = {"stage": stage, "text": out["text"], "at": len(messages)}
            return {**out, "messages": _calls_only(out["messages"]), "notes": [note] if out["text"].strip() else []}

        return run


def _asks(given: Mapping[str, Any], messages: Sequence[Any]) -> str:
    """The turn that prompts the stage; it repeats the request, which may be far above by now."""
    stage = given["stage"]
    if stage == "action" and given.get("mustCall"):
        turn = TURNS["must"]
    else:
        turn = TURNS["again" if stage == "thinking" and given["notes"] else stage]
    return f"{turn}\n\nThe request: {request_of(messages)}"


def _manner(given: Mapping[str, Any], ctx: NodeRun, names: Sequence[str]) -> dict[str, Any]:
    """The arguments about the stage's tools and the target of its text."""
    stage = given["stage"]
    if stage == "final":
        own = {key: given[key] for key in ("stream", "output") if key in given}
        return {**own, "tools": [], "lastTurn": True}
    aside = {"stream": "reasoning" if ctx.speaks else "hidden"}
    if stage == "action":
        must = {key: given[key] for key in ("toolChoice", "mustCall") if key in given}
        return {**aside, **must, "tools": list(names)}
    return {**aside, "tools": [], "lastTurn": True}


def _calls_only(messages: Sequence[Message]) -> list[Message]:
    """The turn without its text, which is a note; next to calls it is kept as reasoning, as it was shown."""
    out: list[Message] = []
    for message in messages:
        if not isinstance(message, AIMessage):
            out.append(message)
        elif message.tool_calls:
            said = message.reasoning + message.text
            out.append(msgspec.structs.replace(message, content="", reasoning=said))
    return out


def view(ctx: NodeRun, notes: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The conversation with the notes inserted; every call has its result."""
    messages: Sequence[Any] = ctx.state.get("messages", ())
    runs = ctx.services.get("window_runs")
    shown = messages if runs is None else last_runs(messages, runs)
    first = len(messages) - len(shown)
    places: dict[int, list[Mapping[str, Any]]] = {}
    for note in notes:
        # An edit may have shortened the conversation since the note was made.
        places.setdefault(min(note["at"], len(messages)), []).append(note)
    out: list[Message] = []
    for position in range(first, len(messages) + 1):
        message = messages[position] if position < len(messages) else None
        for note in places.get(position, ()):
            text = f"[{note['stage']}]: {note['text']}"
            # The action's text belongs to the message with its calls, so the note goes there.
            if note["stage"] == "action" and isinstance(message, AIMessage) and message.tool_calls:
                message = msgspec.structs.replace(message, content=text)
            else:
                out.append(AIMessage(content=text))
        if message is not None:
            out.append(message)
    return paired([*out, *answer_open_calls(messages, NOT_RUN)])
