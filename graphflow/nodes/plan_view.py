"""What the nodes of a plan show their models: the conversation with the plan and the turn of each step in its place.

The plan and the turns that ask for it are no part of the thread's messages, where only what was said to people is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from graphflow.graph.core.transcript import answer_open_calls
from graphflow.graph.engine.node_run import NodeRun
from graphflow.memory.window import last_runs
from graphflow.messages import AIMessage, HumanMessage, Message
from graphflow.nodes.message_pairing import paired
from graphflow.nodes.plan_prompts import task_prompt

CUT_OFF = "this call was not run: the work on its step has ended"


def request_of(messages: Sequence[Any]) -> str:
    """The person's last message."""
    return next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")


class PlanView:
    """The conversation of a run that follows a plan.

    Args:
        drafts: prompts and answers of the planning model, in order: `{asked, text}`.
        steps: of the plan.
        starts: how many messages there were when each step began.
    """

    def __init__(
        self,
        ctx: NodeRun,
        drafts: Sequence[Mapping[str, str]],
        steps: Sequence[Mapping[str, Any]] = (),
        starts: Sequence[int] = (),
    ) -> None:
        self._all: Sequence[Any] = ctx.state.get("messages", ())
        self._drafts, self._steps, self._starts = drafts, steps, starts
        self._runs = ctx.services.get("window_runs")

    def messages(self) -> list[Message]:
        """The messages for the model, without the system prompt and a last turn; every call has its result."""
        shown = self._all if self._runs is None else last_runs(self._all, self._runs)
        left_out = len(self._all) - len(shown)
        asked = max((i for i, m in enumerate(self._all) if isinstance(m, HumanMessage)), default=-1)
        out: list[Message] = []
        # One past the end: a step that has only begun has its prompt behind the last message.
        for position in range(left_out, len(self._all) + 1):
            # The plan's dialogue is kept out of the state, so it is put back right after the request.
            if position == asked + 1:
                out += self._plan()
            out += self._turns(position)
            if position < len(self._all):
                out.append(self._all[position])
        return paired([*out, *answer_open_calls(self._all, CUT_OFF)])

    def findings(self) -> list[str]:
        """The last text without a call of each step that has begun."""
        bounds = [*self._starts, len(self._all)]
        return [self._said_last(start, end) for start, end in pairwise(bounds)]

    def _said_last(self, start: int, end: int) -> str:
        said = (m for m in reversed(self._all[start:end]) if isinstance(m, AIMessage) and not m.tool_calls)
        return next((message.text for message in said if message.status is None), "")

    def _plan(self) -> list[Message]:
        return [
            message
            for draft in self._drafts
            for message in (HumanMessage(content=draft["asked"]), AIMessage(content=draft["text"]))
        ]

    def _turns(self, position: int) -> list[Message]:
        total = len(self._steps)
        return [
            HumanMessage(content=task_prompt(step, number, total))
            for number, (step, start) in enumerate(zip(self._steps, self._starts, strict=False), 1)
            if start == position
        ]
