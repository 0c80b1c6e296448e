"""One process's life: it opens the store, looks where the thread is, and goes on from there until it is over.

People answer as the scenario's seed says. Asked what became of a cut-off write, they look at the world first and tell
the truth, unless the seed makes them blind.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from graphflow.checkpoints.loading import load_thread
from graphflow.errors import GraphflowError
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import Interrupt
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.launch import launch_answer, launch_resume
from tests.crash.boundaries import Boundaries, install
from tests.crash.diary import Diary, read_diary
from tests.crash.scenarios import Scenario, World
from tests.launching import launch

MOVED = {"answer_stale", "thread_waiting", "nothing_to_resume"}
"""Refusals of who has looked at a thread that has gone on since."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How this seed's processes and people behave."""

    live: bool = False
    """The process holds questions open and is answered while it runs, as a server is."""
    leaves: float = 0.0
    """How likely a process ends at a question, so that the answer comes in a later life."""
    blind: bool = False
    """People say `retry` or `skip` to an unknown outcome without looking."""
    sync_disk: bool = False
    short_leases: bool = False
    """Leases of a few milliseconds, so that renewing them is a boundary too."""


async def live(
    scenario: Scenario,
    store: Any,
    habits: Habits,
    boundaries: Boundaries,
    diary: Diary,
    path: Path,
    draw: random.Random,
    hear_out: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Goes on until the run is over (True) or the process leaves at a question.

    A dead process's last commit may arrive after we have looked. Then going on or answering is refused, and we look
    again. Only a first input would be taken as a second one.

    Args:
        hear_out: waits until the dead have nothing more to say; None where they never speak.
    """
    World.diary, World.boundaries = diary, boundaries
    install(boundaries, diary, store)
    app = scenario.open(store)
    runs = app.host.runs
    assert runs is not None
    if habits.short_leases:
        runs.registry.lease_ms = 20
    came = True
    while True:
        status, questions, head = await look(app, store)
        if status == "new" and hear_out is not None:
            await hear_out()
            status, questions, head = await look(app, store)
        if status == "idle" or (status == "failed" and habits.blind):  # a call that was skipped may fail its node
            return True
        if status == "waiting" and not came and draw.random() < habits.leaves:
            return False
        came = False
        try:
            await drive(app, scenario, habits, status, questions, diary, path, draw)
        except GraphflowError as refusal:
            if refusal.code not in MOVED or (await look(app, store))[2] == head:
                raise
            diary.note("looks again", why=refusal.message)


async def look(app: CompiledGraph, store: Any) -> tuple[str, tuple[Interrupt, ...], str | None]:
    """Where the thread is: `new`, `running` (its process died), `waiting`, `idle`, `failed`; its questions, its head."""
    await store.setup()
    row = await store.thread(World.thread)
    if row is None or row.head is None:
        return "new", (), None
    loaded = await load_thread(store, World.thread)
    assert loaded is not None
    machine = loaded.machine
    return machine.status, tuple(machine.interrupts.values()), loaded.row.head


async def drive(
    app: CompiledGraph,
    scenario: Scenario,
    habits: Habits,
    status: str,
    questions: tuple[Interrupt, ...],
    diary: Diary,
    path: Path,
    draw: random.Random,
) -> None:
    """Starts, resumes or answers, and hears everything until the run pauses or is over."""
    diary.note("looks", status=status)
    if status == "waiting":
        some = draw.sample(questions, draw.randint(1, len(questions)))
        answers = {i.id: answer_to(i, habits, path, draw) for i in some}
        note_answers(diary, answers, some)
        if habits.live:
            await hear(await launch_answer(app.host, World.thread, answers), habits, diary, path, draw)
        else:
            await listen(app.stream_answer(World.thread, answers), diary)
    elif status == "new":
        options = scenario.options
        if habits.live:
            await hear(await launch(app, {"query": "go"}, World.thread, **options), habits, diary, path, draw)
        else:
            await listen(app.stream({"query": "go"}, World.thread, **options), diary)
    elif status == "running":
        if habits.live:
            await hear(await launch_resume(app.host, World.thread), habits, diary, path, draw)
        else:
            await listen(app.stream_resume(World.thread), diary)
    else:
        loaded = await load_thread(app.host.store, World.thread)  # type: ignore[arg-type]
        raise AssertionError(f"the thread is {status}: {loaded and loaded.machine.error}")


async def listen(stream: Any, diary: Diary) -> None:
    async with aclosing(stream) as events:
        async for event in events:
            diary.note("sent", event=event)


async def hear(run: Any, habits: Habits, diary: Diary, path: Path, draw: random.Random) -> None:
    """Follows a detached run and answers its questions while the process holds them."""
    open_ = dict(run.executor.machine.interrupts)
    events: AsyncIterator[Any] = run.log.follow(run.log.mark)
    async for event in events:
        diary.note("sent", event=event)
        if event.type == "interrupt.request":
            asked = run.executor.machine.interrupts.get(event.interrupt_id)
            open_ |= {} if asked is None else {asked.id: asked}  # one that is said again may be answered by now
        elif event.type == "interrupt.resolve":
            open_.pop(event.interrupt_id, None)
        elif event.type == "run.waiting":
            continue
        if open_ and run.executor.machine.status == "waiting" and not run.executor.ending:
            if draw.random() < habits.leaves:
                run.executor.release()
                open_.clear()
                continue
            asked = draw.choice(list(open_.values()))
            if asked.id not in run.executor.machine.interrupts:
                continue
            answer = answer_to(asked, habits, path, draw)
            note_answers(diary, {asked.id: answer}, [asked])
            run.executor.answer(
                asked.id, answer, answer.get("decision", "") if isinstance(answer, dict) else "answered"
            )
    await run.over.wait()
    if run.executor.error is not None:
        raise run.executor.error


def note_answers(diary: Diary, given: dict[str, Any], asked: list[Interrupt]) -> None:
    unknown = {i.id: keys_of(i) for i in asked if i.kind == "outcome_unknown"}
    diary.note("answers", given=given, kinds={i.id: i.kind for i in asked}, keys=unknown)


def answer_to(asked: Interrupt, habits: Habits, path: Path, draw: random.Random) -> Any:
    """A person's answer; the same for the same question in every life."""
    if asked.kind == "approval":
        return {"decision": "approve"}
    if asked.kind == "breakpoint":
        return {"decision": "continue"}
    if asked.kind == "outcome_unknown":
        return outcome(asked, habits, path, draw)
    sure = random.Random(str(asked.payload["message"]))
    return f"a{sure.randint(0, 9)}" if asked.schema["type"] == "string" else sure.randint(0, 99)


def outcome(asked: Interrupt, habits: Habits, path: Path, draw: random.Random) -> dict[str, Any]:
    """What became of a cut-off write, as the world shows."""
    if habits.blind:
        return {"decision": draw.choice(["retry", "skip"])}
    for line in read_diary(path):
        if line["kind"] == "effect" and line["key"] in keys_of(asked):
            return {"decision": "result", "result": line["result"]}
    return {"decision": "retry"}


def keys_of(asked: Interrupt) -> list[str]:
    """What the world calls the effect: by its idempotency key, or a function node's, which gets none, by its name."""
    return [asked.payload["idempotencyKey"], f"transfer {asked.node}"]


async def final(store: Any) -> dict[str, Any]:
    """What a finished run leaves, apart from ids and times."""
    loaded = await load_thread(store, World.thread)
    assert loaded is not None
    machine = loaded.machine
    state = thaw(machine.root.state)
    for message in state.get("messages", ()):
        message.pop("id", None) if isinstance(message, dict) else None
    left = {
        "status": machine.status,
        "reason": machine.finish_reason,
        "steps": machine.steps,
        "usage": {name: figure for name, figure in machine.usage.items() if name != "activeMs"},  # a kill takes time
        "state": state,
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(left, enc_hook=repr))
    for message in plain["state"].get("messages", ()):
        for part in message["content"] if isinstance(message["content"], list) else ():
            part.pop("stored", None)  # drawn at random
    return plain


def report(diary: Diary, error: BaseException) -> None:
    diary.note("error", text="".join(traceback.format_exception(error)))
