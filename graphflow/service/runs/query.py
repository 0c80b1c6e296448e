"""A query becomes a run that no connection drives (E18)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from graphflow.capabilities import starter_of
from graphflow.checkpoints.rows import OpenInterrupt, ThreadRow
from graphflow.errors import AgentNotFound, AnswerRefused, ThreadBusy
from graphflow.events import ChatStart, Event, RequestQuery, RequestSubmit
from graphflow.graph.core.machine import WAITS
from graphflow.id_rule import check_id
from graphflow.modes.checks import ANY_AGENT
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.documents import Documents
from graphflow.runtime.launch import launch, launch_answer
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.answer_checks import questions_of
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.runtime.runs.preconditions import waits_for_answers
from graphflow.service import uploads
from graphflow.service.access import LOCAL, Caller, claim
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import QueuedInput
from graphflow.service.requests import bad_argument, check_choices, unknown_chat
from graphflow.service.runs import input_queue
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.submit import answer_live

AUTOMATIC_TITLE = 10
"""Code points of the title that a thread gets from its first message."""


async def query(context: ServiceContext, request: RunRequest, *, caller: Caller = LOCAL) -> StartedRun | QueuedInput:
    """Starts a run, or answers the question that the thread waits with when `on_waiting` is `answer`.

    With `on_busy: enqueue` the input of a thread that is busy is accepted for later: it is durable when this returns.

    Args:
        request: what `request.query` says decides about the input; a `hold_ms` of None means `tools.hold_ms`.
        caller: whose thread a new one is; a thread of another user is not found.

    Raises:
        GraphflowError: `invalid_input`, `agent_not_found`, `thread_not_found`, `thread_busy`, `thread_waiting`, …; nothing has changed.
    """
    said = request.query
    if said is None or not said.message.strip():
        raise bad_argument("message", "must not be blank")
    if request.model or request.options or request.variables:
        check_choices(context.settings.agents.per_request, request)
    context.refuse_when_stopping()
    runs = context.runs
    await runs.ready()
    chat_id = request.thread_id or context.ids.new_id()
    run_id = request.run_id or context.ids.new_id()
    hold_ms = context.settings.tools.hold_ms if request.hold_ms is None else request.hold_ms
    async with context.thread_lock(chat_id):
        is_new = not request.thread_id  # then neither the store nor the folder of uploads can know the id
        row = None if is_new else await context.store.thread(chat_id)
        if caller.user is not None and row is not None and row.facts.user != caller.user:
            # The same error as for an unknown id: a refusal must not reveal that the thread exists.
            raise unknown_chat(chat_id)
        if row is None and not is_new:
            check_id(chat_id, "chatId")
        key = agent_of(context, request.agent_key, row)
        # Not always awaited: without servers a query takes no further step.
        graph = context.graph(key) if context.mcp is None else await context.ready_graph(key)
        if not graph.host.documents.built:
            await graph.host.documents.build()
        if caller.user is not None:
            # Before anything is launched, so that two users with the same new id can't both get it.
            await claim(context, caller, chat_id)
        references = await uploads.resolved(context, chat_id, said.references) if said.references else said.references
        said = replace(
            said, chat_id=chat_id, request_id=said.request_id or run_id, references=references, message_id=run_id
        )
        starter = starter_of(caller)
        request = replace(
            request, thread_id=chat_id, run_id=run_id, hold_ms=hold_ms, query=said, starter=starter, by=caller.name
        )
        live = await context.runs.settled(chat_id) if chat_id in runs.by_thread else None
        if live is not None and live.executor.machine.status == "waiting":
            if request.on_waiting == "cancel":
                live.executor.cancel()
                await live.over.wait()
            else:
                return await _answer_live_question(request, said, live, caller)
        elif live is None and request.on_waiting == "answer" and row is not None and row.facts.status == "waiting":
            return await _answer_question(context, said, graph, hold_ms, caller)
        uploaded = [] if is_new else await uploads.announced(context, chat_id, run_id)
        return await _launch(context, request, graph, [*uploaded, said])


def agent_of(context: ServiceContext, wanted: str | None, row: ThreadRow | None) -> str:
    """The key of the agent that a query means."""
    if wanted is None and row is not None and row.facts.agent_key is not None:
        return row.facts.agent_key
    if wanted is not None and wanted.strip() not in ANY_AGENT:
        return wanted
    agents = context.agents.list()
    if not agents:
        raise AgentNotFound(f"there are no agents; put one into {context.agents.folder}")
    return agents[0].key


async def _launch(
    context: ServiceContext, request: RunRequest, graph: CompiledGraph, preamble: list[Event]
) -> StartedRun | QueuedInput:
    said = request.query
    assert said is not None
    given = input_of(said, graph.host.documents)
    name = automatic_title(said.message)
    wanted = replace(
        request,
        input=given,
        agent_key=graph.host.agent_key,
        durability=context.settings.store.durability,
        # `enqueue` is tried as `reject` first: the service's own queue takes over below.
        on_busy="reject" if request.on_busy == "enqueue" else request.on_busy,
        title=name,
    )
    preamble.append(ChatStart(chat_id=said.chat_id, chat_name=name))
    try:
        run = await launch(graph.host, wanted, preamble=preamble)
    except ThreadBusy:
        if request.on_busy != "enqueue":
            input_queue.drain_soon(context, said.chat_id)  # what it is busy with may be an input that nobody has begun
            raise
        return await input_queue.add(context, wanted)
    return StartedRun(run=run, run_id=run.run_id, chat_id=said.chat_id, request_id=said.request_id)


def automatic_title(message: str) -> str:
    """The first ten code points of the message, white space collapsed; without what is not printable."""
    start = " ".join(message.split(maxsplit=AUTOMATIC_TITLE))[:AUTOMATIC_TITLE]
    return "".join(c for c in start.encode("utf-8", "replace").decode() if c.isprintable())


def input_of(said: RequestQuery, documents: Documents) -> dict[str, Any]:
    """The input of the newest version (spec 3.1).

    What the request does not give is left out where a closed schema has no place for it; what it gives never is,
    so that nothing is dropped in silence.
    """
    given: dict[str, Any] = {
        "query": said.message,
        "role": said.role,
        "references": list(said.references or ()),
        "params": dict(said.params or {}),
        "scene": said.scene,
    }
    schema = documents.newest().input_schema
    if schema.get("additionalProperties") is not False:
        return given
    known = schema.get("properties", {})
    optional = {"role": said.role == "user", **{key: not given[key] for key in ("references", "params", "scene")}}
    return {key: value for key, value in given.items() if key in known or not optional.get(key, False)}


# --- `onWaiting: answer` -------------------------------------------------------------------------


async def _answer_live_question(request: RunRequest, said: RequestQuery, live: LiveRun, caller: Caller) -> StartedRun:
    interrupts = questions_of(live.executor.machine)
    if request.on_waiting != "answer":
        raise waits_for_answers(live.thread_id, ((i.id, i.kind, i.node) for i in interrupts))
    interrupt_id = _only_ask([(i.id, i.kind) for i in interrupts])
    after = live.executor.seq
    submit = _as_submit(said, live.run_id, interrupt_id)
    answer_live(live, interrupt_id, said.message, submit, caller)
    return StartedRun(run=live, run_id=live.run_id, chat_id=live.thread_id, request_id=submit.request_id, after=after)


async def _answer_question(
    context: ServiceContext, said: RequestQuery, graph: CompiledGraph, hold_ms: int, caller: Caller
) -> StartedRun:
    rows: list[OpenInterrupt] = await context.store.open_interrupts(thread_id=said.chat_id)
    interrupt_id = _only_ask([(row.interrupt_id, row.kind) for row in rows if row.kind not in WAITS])
    submit = _as_submit(said, rows[0].run_id, interrupt_id)
    answers = {interrupt_id: said.message}
    run = await launch_answer(graph.host, said.chat_id, answers, by=caller, preamble=(submit,), hold_ms=hold_ms)
    # The requester's stream begins after what earlier epochs have sent.
    after = run.log.mark if run.log is not None else 0
    return StartedRun(run=run, run_id=submit.run_id, chat_id=said.chat_id, request_id=submit.request_id, after=after)


def _only_ask(open_: list[tuple[str, str]]) -> str:
    if len(open_) != 1 or open_[0][1] != "ask":
        raise AnswerRefused(
            f"on_waiting='answer' needs exactly one open `ask`; open are {', '.join(kind for _, kind in open_) or 'none'}",
            code="answer_ambiguous",
        )
    return open_[0][0]


def _as_submit(said: RequestQuery, run_id: str, interrupt_id: str) -> RequestSubmit:
    """After `run.waiting` only a submit may come (spec 3.3), so the text is recorded as one."""
    return RequestSubmit(
        request_id=said.request_id, chat_id=said.chat_id, run_id=run_id, tool_id=interrupt_id, payload=said.message
    )
