"""The nodes of a plan: `plan` makes it, `task` works on its steps one after another, `summary` answers (spec 1.2).

The plan is told to readers by its state key's mark `x-tasks` (`graph/engine/plan_events.py`); nothing here sends an event of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.messages import AIMessage
from graphflow.nodes import plan_prompts
from graphflow.nodes.calls.agent_tools import with_agents
from graphflow.nodes.model import WITH_SCHEMA, ModelKind
from graphflow.nodes.plan_text import PlanError, only_step, parse_plan
from graphflow.nodes.plan_view import PlanView, request_of
from graphflow.nodes.turn import TurnFactory
from graphflow.tools.listing import list_tools, with_tools
from graphflow.tools.selection import offered_tools

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction
    from graphflow.tools.port import Tool

Ask = Callable[..., Awaitable[dict[str, Any]]]
"""Asks the model: further arguments of a `model` node, besides the shared ones → its `out`."""

_OF_MODEL = ("systemPrompt", "providerKey", "model", "compute", "showReasoning", "tools", "keywords")
_OWN = {
    "keywords": {"type": "array", "items": {"type": "string"}},
    "drafts": {"type": "array"},
    "plan": {"type": "object"},
    "starts": {"type": "array"},
}


def _with(*own: str, **more: Any) -> dict[str, Any]:
    properties = {name: {**WITH_SCHEMA["properties"], **_OWN}[name] for name in (*_OF_MODEL, *own)}
    return {"type": "object", "properties": {**properties, **more}, "additionalProperties": False}


class _PlanTurnKind(ModelKind):
    """Base of the plan's nodes: a model turn over the plan's view of the conversation."""

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        turns, registry = TurnFactory(document, self._tools), self._tools

        async def run(given: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            offered = offered_tools(registry, document, given)
            known = with_agents(registry, offered, ctx)
            listed = [tool for tool in map(known.get, offered) if tool is not None]

            async def turn(**arguments: Any) -> dict[str, Any]:
                own = {key: given[key] for key in ("providerKey", "model", "compute", "showReasoning") if key in given}
                own["systemPrompt"] = with_tools(given.get("systemPrompt", ""), listed)
                return await turns.turn({**own, **arguments}, ctx).run()

            return await self._run(given, ctx, turn, listed)

        return run

    async def _run(self, given: Mapping[str, Any], ctx: NodeRun, turn: Ask, offered: Sequence[Tool]) -> dict[str, Any]:
        raise NotImplementedError


class PlanKind(_PlanTurnKind):
    """`use: plan`: a turn whose text is the plan's JSON, which readers do not see.

    `out.plan` is `{planId, steps}` with the first step running, or `{}` when the text could not be read the first time:
    then `out.again` is true, and the node, entered again with the `drafts` so far, asks once more. A second text that
    can't be read makes a plan of one step, the request.
    """

    name = "plan"
    with_schema: Mapping[str, Any] | None = _with("drafts", maxTasks={"type": "integer"})

    async def _run(self, given: Mapping[str, Any], ctx: NodeRun, turn: Ask, offered: Sequence[Tool]) -> dict[str, Any]:
        drafts = given.get("drafts", ())
        request = request_of(ctx.state.get("messages", ()))
        asked = self._asks(given, request, drafts, offered)
        # As a candidate the plan's JSON is not shown, while the model's own reasoning is streamed.
        out = await turn(
            messages=PlanView(ctx, drafts).messages(),
            prompt=asked,
            tools=[],
            lastTurn=True,
            stream="candidate" if ctx.speaks else "hidden",
        )
        again, steps = False, list[dict[str, str]]()
        try:
            steps = parse_plan(out["text"])
        except PlanError:
            again = not drafts
            steps = [] if again else only_step(request)
        # The run's id keeps the plan's id the same on re-entry.
        plan = {"planId": f"plan_{ctx.run_id}", "steps": _begun(steps, 0)} if steps else {}
        return {**out, "plan": plan, "again": again, "drafts": [{"asked": asked, "text": out["text"]}]}

    def _asks(
        self, given: Mapping[str, Any], request: str, drafts: Sequence[Mapping[str, str]], offered: Sequence[Tool]
    ) -> str:
        if not drafts:
            tools = list_tools(offered) if offered else None
            return plan_prompts.plan_prompt(request, given.get("maxTasks") or 8, tools)
        try:
            # Parsed again for its error: the state keeps the text alone.
            parse_plan(drafts[-1]["text"])
        except PlanError as issue:
            return plan_prompts.repair_prompt(str(issue))
        return plan_prompts.repair_prompt("it was not taken")


class TaskKind(_PlanTurnKind):
    """`use: task`: a turn of the step that is running.

    A turn that calls tools leads to them and back here; one without calls is the step's result: `out.plan` has the next
    step running, and `out.more` says whether there is one. After `maxRounds` rounds of tools a last turn without tools is
    asked for the step's result. Of the steps, `maxTasks` are done at most; the rest is then cancelled.
    With `mustCall`, a turn that calls no tool is followed by one corrective turn, and that one fails without a call.
    """

    name = "task"
    with_schema: Mapping[str, Any] | None = _with(
        "drafts", "plan", "starts", "stream", "mustCall", maxTasks={"type": "integer"}, maxRounds={"type": "integer"}
    )

    async def _run(self, given: Mapping[str, Any], ctx: NodeRun, turn: Ask, offered: Sequence[Tool]) -> dict[str, Any]:
        steps, messages = given["plan"]["steps"], ctx.state.get("messages", ())
        # The position follows from the plan in the state, so a node entered again continues the same step.
        index = next((i for i, step in enumerate(steps) if step["status"] == "running"), len(steps) - 1)
        starts = list(given["starts"])[: index + 1]
        # `starts` only grows (its reducer appends), so only a new step adds its place.
        fresh = [len(messages)] if len(starts) <= index else []
        # Partial messages are not sent to the model, so they count as no turn.
        said = [m for m in messages[(starts + fresh)[-1] :] if isinstance(m, AIMessage) and m.status is None]
        last = sum(1 for m in said if m.tool_calls) >= given.get("maxRounds", 6)
        corrects = bool(given.get("mustCall") and said and not last)
        out = await turn(
            messages=PlanView(ctx, given["drafts"], steps, starts + fresh).messages(),
            **({"stream": given["stream"]} if "stream" in given else {}),
            **_policy(given, offered, last, corrects),
        )
        # A last turn has answered its calls with errors; they must not lead to the tools again.
        calls = () if last else out["toolCalls"]
        again = bool(given.get("mustCall") and not calls and not corrects and not last)
        if calls or again:
            return {**out, "toolCalls": calls, "plan": {}, "starts": fresh, "more": again}
        return {
            **out,
            "toolCalls": (),
            "starts": fresh,
            **_after(ctx, steps, index, given.get("maxTasks") or len(steps)),
        }


def _policy(given: Mapping[str, Any], offered: Sequence[Tool], last: bool, corrects: bool) -> dict[str, Any]:
    """The arguments about tools: what the turn may and must call."""
    if last:
        return {"tools": [], "lastTurn": True, "prompt": plan_prompts.NO_MORE_ROUNDS}
    asks: dict[str, Any] = {"tools": [tool.name for tool in offered]}
    if given.get("mustCall"):
        asks["toolChoice"] = "required"
    return {**asks, "mustCall": True, "prompt": plan_prompts.MUST_CALL} if corrects else asks


def _after(ctx: NodeRun, steps: Sequence[Mapping[str, Any]], index: int, most: int) -> dict[str, Any]:
    """The plan after the current step, and whether another step begins."""
    done = [{**thaw(step), "status": "completed"} if i == index else thaw(step) for i, step in enumerate(steps)]
    more = index + 1 < min(len(steps), most)
    if more:
        return {"plan": {"steps": _begun(done, index + 1)}, "more": True}
    # Steps are left over: the run ends by its limit, not by its plan.
    if index + 1 < len(steps):
        ctx.finish_reason = "max_rounds"
    return {"plan": {"steps": done[: index + 1] + _left(done[index + 1 :])}, "more": False}


def _begun(steps: Sequence[Mapping[str, Any]], index: int) -> list[dict[str, Any]]:
    return [{**step, "status": "running"} if i == index else dict(step) for i, step in enumerate(steps)]


def _left(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**thaw(step), "status": "canceled"} if step["status"] == "init" else thaw(step) for step in steps]


class SummaryKind(_PlanTurnKind):
    """`use: summary`: the answer to the request, from what the steps have found.

    `out.plan` settles unfinished steps: a running one has failed, those after it are cancelled.
    """

    name = "summary"
    with_schema: Mapping[str, Any] | None = _with("drafts", "plan", "starts", "stream", "output", failure={})

    async def _run(self, given: Mapping[str, Any], ctx: NodeRun, turn: Ask, offered: Sequence[Tool]) -> dict[str, Any]:
        steps, failure = given["plan"].get("steps", ()), given.get("failure")
        settled = [{**step, "status": "failed"} if step["status"] == "running" else step for step in _left(steps)]
        why = None if failure is None else str(failure.get("message") or failure.get("code"))
        view = PlanView(ctx, given["drafts"], steps, given["starts"])
        out: dict[str, Any] = await turn(
            messages=view.messages(),
            prompt=plan_prompts.summary_prompt(
                request_of(ctx.state.get("messages", ())), settled, view.findings(), why
            ),
            tools=[],
            lastTurn=True,
            **{key: given[key] for key in ("stream", "output") if key in given},
        )
        # An unchanged plan is not written: each write is an event for readers.
        return {**out, "plan": {} if settled == thaw(steps) else {"steps": settled}}
