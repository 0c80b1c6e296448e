"""`graphflow inbox`: open questions of all threads, and answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command, group, list_by_default
from graphflow.cli.options import As, AsJson, AsLines
from graphflow.cli.startup import PAGE, opened, thread_named
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import json_object, json_or_text, json_value
from graphflow.cli.terminal.console import local_time, note, say_json, say_table, stop

if TYPE_CHECKING:
    from graphflow.checkpoints.rows import OpenInterrupt
    from graphflow.graph.core.machine import Interrupt
    from graphflow.service.application import Application

inbox = group("inbox", "Open questions of all threads.")


@command(inbox, "list")
async def list_inbox(
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Only this thread.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only this owner.")] = None,
    role: Annotated[str | None, typer.Option(help="Only this role.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's threads.")] = None,
    as_json: AsJson = False,
) -> None:
    """List open questions, oldest first."""
    from graphflow.cli.terminal.question_text import note_answers, question_line

    async with opened() as app:
        thread = (await thread_named(app, thread)).id if thread else None
        rows = await _open(app, thread_id=thread, owner=owner, role=role, agent_key=agent)
        waiting = [(row, _interrupt(row)) for row in rows]
    if as_json:
        say_json([_row_dict(row, interrupt) for row, interrupt in waiting])
        return
    if not waiting:
        note("no open questions")
        return
    cells = [
        (row.interrupt_id, row.agent_key or "-", local_time(row.opened_at), question_line(interrupt))
        for row, interrupt in waiting
    ]
    say_table(("id", "agent", "since", "question"), cells)
    # One example: commands for all of them would be longer than the list.
    note("to answer, for example:")
    note_answers(waiting[0][1])


list_by_default(inbox, list_inbox)


@command(inbox, "answer")
async def answer(
    interrupt_id: Annotated[str, typer.Argument(metavar="ID", help="From `inbox list`; a unique suffix is enough.")],
    approve: Annotated[bool, typer.Option("--approve", help="Run the call as it is, or continue.")] = False,
    edit: Annotated[
        str | None, typer.Option("--edit", metavar="JSON|@FILE", help="Run it with these arguments.")
    ] = None,
    reject: Annotated[str | None, typer.Option("--reject", metavar="WHY", help="Do not run it.")] = None,
    respond: Annotated[str | None, typer.Option("--respond", metavar="TEXT", help="Return this as its result.")] = None,
    terminate: Annotated[bool, typer.Option("--terminate", help="Do not run it and end the run.")] = False,
    value: Annotated[str | None, typer.Option("--answer", metavar="JSON|@FILE", help="Any other answer.")] = None,
    then: Annotated[
        str, typer.Option("--then", metavar="ask|deny|all|RULES.json", help="Who approves later calls.")
    ] = "ask",
    by: As = LOCAL,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Answer one question. The thread continues in this process."""
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.turn_driver import drive_turn

    # Before the store is opened and the answer is given: a broken rules file must not come up after the call ran.
    policy = policy_of(then, by)
    async with opened() as app:
        row = await _found(app, interrupt_id)
        given = _answer_value(
            _interrupt(row),
            approve=approve,
            edit=edit,
            reject=reject,
            respond=respond,
            terminate=terminate,
            value=value,
        )
        graph = await app.graph_of_thread(row.thread_id)
        # By the id of the row, which may have been given in part.
        events = graph.stream_answer(row.thread_id, {row.interrupt_id: given}, by=by)
        return await drive_turn(graph, row.thread_id, events, policy, as_json=as_json, as_lines=as_lines)


async def _open(app: Application, **filters: Any) -> list[OpenInterrupt]:
    """Every open question."""
    from graphflow.cli.terminal.question_text import is_question

    await app.runs.ready()
    rows: list[OpenInterrupt] = []
    cursor = None
    while True:
        page = await app.store.open_interrupts(cursor=cursor, limit=PAGE, **filters)
        # The size of the page decides whether another follows, so it is measured before anything is left out.
        rows += [row for row in page if is_question(row.kind)]
        if len(page) < PAGE:
            return rows
        cursor = page[-1].cursor


async def _found(app: Application, given: str) -> OpenInterrupt:
    from graphflow.runtime.approvers import known_ids

    open_ = await _open(app)
    # One id may be the beginning of another (`….1` and `….10`): a full id means itself, and after the first of several
    # approvals the id of the first question means the call.
    rows = [row for row in open_ if row.interrupt_id == given]
    rows = rows or [row for row in open_ if given in known_ids(_interrupt(row))]
    rows = rows or [row for row in open_ if row.interrupt_id.startswith(given) or row.interrupt_id.endswith(given)]
    if len(rows) == 1:
        return rows[0]
    text = f"{given!r} matches {len(rows)} open questions; give more of the id"
    if not rows:
        text = f"no open question has the id {given!r}: it was answered, closed or reissued, or never existed; nothing has changed"
    return stop(exits.USAGE, text, hint="`graphflow inbox list`")


def _interrupt(row: OpenInterrupt) -> Interrupt:
    """The interrupt of a row, in full."""
    from graphflow.checkpoints import codec
    from graphflow.checkpoints.record_decoder import decode_interrupt

    return decode_interrupt(codec.decode(row.data))


def _answer_value(
    interrupt: Interrupt,
    *,
    approve: bool,
    edit: str | None,
    reject: str | None,
    respond: str | None,
    terminate: bool,
    value: str | None,
) -> Any:
    from graphflow.cli.terminal.question_text import answer_command, question_line

    chosen = [approve, edit is not None, reject is not None, respond is not None, terminate, value is not None]
    if sum(chosen) != 1:
        stop(
            exits.USAGE,
            f"give exactly one of --approve, --edit, --reject, --respond, --terminate, --answer for: {question_line(interrupt)}",
            hint=answer_command(interrupt),
        )
    if value is not None:
        # Most answers are a word, which needs no quotes of JSON inside the quotes of the shell.
        return json_value(value, "--answer") if value.startswith("@") else json_or_text(value)
    if interrupt.kind == "breakpoint" and (approve or terminate):
        # The two that people try first; a breakpoint has other words for them.
        return {"decision": "continue" if approve else "cancel"}
    if interrupt.kind != "approval":
        stop(exits.USAGE, f"not an approval: {question_line(interrupt)}", hint=answer_command(interrupt))
    if edit is not None:
        return {"decision": "edit", "arguments": json_object(edit, "--edit")}
    if reject is not None:
        return {"decision": "reject", "reason": reject}
    if respond is not None:
        return {"decision": "respond", "response": respond}
    return {"decision": "approve" if approve else "terminate"}


def _row_dict(row: OpenInterrupt, interrupt: Interrupt) -> dict[str, Any]:
    return {
        "interruptId": row.interrupt_id,
        "threadId": row.thread_id,
        "runId": row.run_id,
        "agentKey": row.agent_key,
        "kind": row.kind,
        "node": row.node,
        "owner": row.owner,
        "role": row.role,
        "openedAt": row.opened_at,
        "expiresAt": row.due_at,
        "toolName": interrupt.tool_name,
        "arguments": interrupt.arguments,
        "payload": interrupt.payload,
        "schema": interrupt.schema,
    }
