"""The `verify` node: a second pass that checks and corrects the candidate, streamed as it arrives (spec 1.3, E14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import BudgetExceeded, ModelError
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.messages import AIMessage, Message
from graphflow.nodes.model import WITH_SCHEMA, ModelKind
from graphflow.nodes.prompts import BEST_ANSWER, CHECK
from graphflow.nodes.turn import CUT_OFF, ModelTurn, TurnFactory

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction

VERIFY_WITH: dict[str, Any] = {
    "type": "object",
    "required": ["candidate"],
    "properties": {
        "candidate": {"type": ["object", "null"]},
        "overBudget": {"type": "boolean"},
        **{
            name: WITH_SCHEMA["properties"][name]
            for name in ("messages", "systemPrompt", "providerKey", "model", "compute", "output", "showReasoning")
        },
    },
    "additionalProperties": False,
}


class VerifyKind(ModelKind):
    """`use: verify`.

    - With a candidate, the model is asked to check it and to write it anew; the pass is a model call like any other.
    - A pass that gives nothing, fails, or has no model call left: the candidate itself is sent, as one delta. What a
      pass had said before it failed stays, as a partial message of its own.
    - `overBudget` with a candidate: it is sent at once. Without one (`null`) this is the mode's last node: it is asked
      for the best answer that the conversation allows.
    - A blank candidate: nothing is asked, nothing is sent.
    """

    name = "verify"
    with_schema: Mapping[str, Any] | None = VERIFY_WITH

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        turns = TurnFactory(document, self._tools)

        def turn(given: Mapping[str, Any], ctx: NodeRun, prompt: str) -> ModelTurn:
            own = {key: value for key, value in given.items() if key not in ("candidate", "overBudget")}
            own.setdefault("messages", ctx.state.get("messages", ()))
            return turns.turn({**own, "prompt": prompt, "tools": [], "lastTurn": True}, ctx)

        async def run(given: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            candidate = given["candidate"]
            # A limit ended the loop before there was an answer to verify.
            if candidate is None:
                return await turn(given, ctx, BEST_ANSWER).run()
            draft = candidate["text"]
            if not draft.strip():
                return _out(ctx, [AIMessage()], candidate)
            if given.get("overBudget"):
                return await _fall_back(ctx, [], candidate)
            return await _second_pass(ctx, turn(given, ctx, CHECK.replace("{draft}", draft)), candidate)

        return run


async def _second_pass(ctx: NodeRun, turn: ModelTurn, candidate: Mapping[str, Any]) -> dict[str, Any]:
    try:
        out = await turn.run()
    # The candidate is a good answer: a failed check must not cost the reader the answer.
    except (ModelError, BudgetExceeded) as error:
        if isinstance(error, BudgetExceeded):
            ctx.finish_reason = "budget"
        # The failed pass may have an open block; the candidate must not continue it.
        ctx.close_blocks()
        # What readers saw of the failed pass stays in the history, as a message of its own.
        partial = turn.partial("error")
        return await _fall_back(ctx, [] if partial is None else [partial], candidate)
    if out["text"].strip():
        return out
    return await _fall_back(ctx, out["messages"], candidate)


async def _fall_back(ctx: NodeRun, messages: list[Message], candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Sends the candidate after the text already sent; white space before it joins its message."""
    text = candidate["text"]
    await ctx.content(text)
    ctx.partial = None
    last = messages[-1] if messages else None
    # The pass ended well but blank; its white space is in the same block as the candidate.
    if isinstance(last, AIMessage) and last.status is None:
        last = msgspec.structs.replace(last, content=last.text + text)
        return _out(ctx, [*messages[:-1], last], candidate)
    return _out(ctx, [*messages, AIMessage(content=text)], candidate)


def _out(ctx: NodeRun, messages: list[Message], candidate: Mapping[str, Any]) -> dict[str, Any]:
    """The node's output when the candidate is the answer."""
    reason = candidate["finishReason"]
    # A reason set before (a spent budget) says more about the run.
    if reason in CUT_OFF and ctx.finish_reason is None:
        ctx.finish_reason = reason
    message = messages[-1]
    return {
        "text": message.text,
        "message": message,
        "messages": messages,
        "usage": dict(ctx.usage or {}),
        "finishReason": reason,
    }
