"""What must be true of a node's calls of models when its run is ended from outside, and when it is resumed."""

from __future__ import annotations

import asyncio
from collections import Counter

from graphflow.errors import GraphflowError
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.crash.cancellations import CALL_MANNERS, POINTS, WORDS, Case, MovedClock, Outside, open_case
from tests.crash.ending import AMONG_SIBLINGS, AROUND, PREEMPTING, ROUNDS, TURNS, WAYS, Ending
from tests.patience import PATIENCE_S

ENDINGS = [how for how in WAYS if how not in (*PREEMPTING, *AMONG_SIBLINGS)]
"""Ways to end a run that can be resumed."""


async def calls_broken_by(case: Case, store: object, thread: str) -> tuple[list[str], Counter[str]]:
    """Every promise about calls that does not hold for a case, and what the case was about."""
    out, clock = Outside(case.point, thread), MovedClock()
    app = open_case(case, out, store, clock)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await _broken(case, Ending(app, out, clock)), _seen(out)
    except TimeoutError:
        return ["it hangs"], Counter()
    except (GraphflowError, asyncio.CancelledError, AssertionError) as error:
        return [f"{type(error).__name__}: {error}"], Counter()
    finally:
        out.free()


def _seen(out: Outside) -> Counter[str]:
    return Counter(cut_off=(out.asked - out.answered).total(), again=sum(n > 1 for n in out.asked.values()))


async def _broken(case: Case, ending: Ending) -> list[str]:
    app, out = ending.app, ending.out
    act, expected = WAYS[case.how]
    seen = await act(ending)
    out.disturbed = False
    then = Counter(out.asked)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    broken = [] if seen == expected else [f"its caller sees {seen}, not {expected}"]
    if out.asked != then or out.asked["late"]:
        broken.append(f"a model was asked after the end: {dict(out.asked - then)}, late {out.asked['late']}")
    # What a process leaves at its last checkpoint is as after a crash: nobody counts the call that it cut off.
    lost = (out.asked - out.answered).total() if expected == "running" else 0
    broken += await _miscounted(app, out, lost)
    recorded = await _recorded(app, out.thread)
    broken += [f"{what} is on record and was not answered" for what in recorded - out.answered.keys()]
    if broken:
        return broken
    for _ in range(ROUNDS):
        result = await app.resume(out.thread, budget={"timeoutMs": 3_600_000_000})
        if result.status == "completed":
            break
    else:
        return [f"it never completes: {result.status} {result.error}"]
    for what in "ab":
        # After a failure the last call may have been the reason: it is made again (E5).
        most = 1 + (out.answered[what] > 1 and expected == "failed") + (then[what] and what not in recorded)
        if out.asked[what] > most:
            broken.append(f"{what} is on record ({sorted(recorded)}) and was asked {out.asked[what]} times")
    broken += await _miscounted(app, out, lost)
    return broken + await _shown_otherwise(app, out)


async def _recorded(app: CompiledGraph, thread: str) -> set[str]:
    """The calls of the unfinished node whose answers are on record."""
    machine = (await app.host.load(thread)).machine
    operations = [operation for frame in machine.frames.values() for operation in frame.operations.values()]
    texts = [
        operation.result.content for operation in operations if operation.kind == "model" and operation.state == "done"
    ]
    return {text.partition(" ")[0] for text in texts}


async def _miscounted(app: CompiledGraph, out: Outside, lost: int) -> list[str]:
    usage = (await app.host.load(out.thread)).machine.usage
    asked, answered = out.asked.total() - lost, out.answered.total()
    right = {"modelCalls": asked, "cutOffCalls": asked - answered, "promptTokens": 10 * answered}
    counted = {figure: usage.get(figure, 0) for figure in right}
    return [] if counted == right else [f"usage says {counted}, and it was {right}"]


async def _shown_otherwise(app: CompiledGraph, out: Outside) -> list[str]:
    """Readers have the text of a shown call as often as it was answered, and nothing of a hidden one."""
    events = [event for event, _ in await app.thread(out.thread).events()]
    texts = Counter(getattr(event, "text", "") for event in events if event.type == "content.snapshot")
    whole = {what: texts[f"{what} {''.join(WORDS)}"] for what in "ab"}
    return [] if whole["b"] == 0 and whole["a"] <= out.answered["a"] else [f"the log has {dict(texts)}"]


def call_cases() -> list[Case]:
    """Every case there is."""
    around = ("map", "parallel", "subgraph", "branch of a subgraph")
    return [
        Case(place, manner, point, how)
        for how in ENDINGS
        for place in (around if how == AROUND else ("root", *around))
        for manner in CALL_MANNERS
        for point in POINTS
    ]
