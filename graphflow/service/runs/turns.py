"""Messages of a thread by their ids: pages of them, answering one anew, putting other words in its place (spec 3.2)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from graphflow.capabilities import starter_of
from graphflow.events import ChatStart
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.history.effects import Choices
from graphflow.runtime.launch import launch_edited, launch_regenerated
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.travel.turns import edited_turn
from graphflow.service import uploads
from graphflow.service.access import LOCAL, Caller
from graphflow.service.context import ServiceContext
from graphflow.service.live_threads import flush_live
from graphflow.service.requests import bad_argument, check_choices
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.query import agent_of, automatic_title, input_of
from graphflow.service.runs.resume import started
from graphflow.service.runs.sweep import expire_overdue
from graphflow.service.threads import struct_dict, thread_of


async def messages(
    context: ServiceContext, thread_id: str, *, cursor: str | None = None, limit: int = 50
) -> tuple[list[dict[str, Any]], str | None]:
    """Messages of the present branch, newest first, and the cursor of the next page; see `Thread.messages`."""
    found, following = await (await thread_of(context, thread_id)).messages(limit, cursor=cursor)
    lines = [struct_dict(message) for message in found]
    return [{key: value for key, value in line.items() if key != "references" or value} for line in lines], following


async def regenerate(
    context: ServiceContext,
    thread_id: str,
    message_id: str,
    *,
    effects: Choices = None,
    cancel: bool = False,
    hold_ms: int | None = None,
    run_id: str | None = None,
    caller: Caller = LOCAL,
) -> StartedRun:
    """Answers a message anew, as the run `run_id`; see `CompiledGraph.regenerate`."""
    context.refuse_when_stopping()
    hold = context.settings.tools.hold_ms if hold_ms is None else hold_ms
    async with context.thread_lock(thread_id):
        graph = await _at_rest(context, thread_id)
        run = await launch_regenerated(
            graph.host,
            thread_id,
            message_id,
            effects=effects,
            cancel=cancel,
            by=caller,
            hold_ms=hold,
            run_id=run_id,
        )
    return started(run)


async def edit_message(
    context: ServiceContext,
    thread_id: str,
    message_id: str,
    request: RunRequest,
    *,
    cancel: bool = False,
    caller: Caller = LOCAL,
) -> StartedRun:
    """Puts what `request.query` says in the place of a user's message, and answers it; see `CompiledGraph.edit_message`.

    What it leaves open (references, params, scene) stays as it was.
    """
    said = request.query
    if said is None or not said.message.strip():
        raise bad_argument("message", "must not be blank")
    check_choices(context.settings.agents.per_request, request)
    context.refuse_when_stopping()
    hold_ms = context.settings.tools.hold_ms if request.hold_ms is None else request.hold_ms
    async with context.thread_lock(thread_id):
        await _at_rest(context, thread_id)
        # New input runs under the newest version, like any other.
        graph = await context.ready_graph(agent_of(context, None, await context.store.thread(thread_id)))
        edited = await edited_turn(graph.host, thread_id, message_id, cancel)
        before, run_id = edited.input, request.run_id or context.ids.new_id()
        references = said.references
        if references:
            references = await uploads.resolved(context, thread_id, references)
        said = replace(
            said,
            chat_id=thread_id,
            request_id=said.request_id or run_id,
            message_id=run_id,
            role=before.get("role") or said.role,
            references=before.get("references") or None if references is None else references,
            params=before.get("params") or None if said.params is None else said.params,
            scene=before.get("scene") if said.scene is None else said.scene,
        )
        name = automatic_title(said.message)
        wanted = replace(
            request,
            thread_id=thread_id,
            run_id=run_id,
            query=said,
            input={**before, **input_of(said, graph.host.documents)},
            params=said.params,
            agent_key=graph.host.agent_key,
            durability=context.settings.store.durability,
            title=name,
            hold_ms=hold_ms,
            starter=starter_of(caller),
        )
        preamble = (said, ChatStart(chat_id=thread_id, chat_name=name))
        run = await launch_edited(graph.host, wanted, edited, cancel=cancel, by=caller, preamble=preamble)
    return StartedRun(run=run, run_id=run.run_id, chat_id=thread_id, request_id=said.request_id)


async def _at_rest(context: ServiceContext, thread_id: str) -> CompiledGraph:
    """The thread's graph, once what is over is over and what was said so far is durable.

    Raises:
        ThreadNotFound: no such thread.
    """
    await expire_overdue(context, thread_id)
    await context.runs.settled(thread_id)
    await flush_live(context, thread_id)
    return await context.graph_of_thread(thread_id)
