"""The grammar of a run's stream, rule by rule: what may stand in one, and the first event that may not (spec 3.3)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.errors import StreamBroken
from graphflow.events import EVENT_TYPES, Event, decode_event
from graphflow.testing.stream_grammar import StreamRules

IDS = {"reasoning": "reasoningId", "content": "contentId", "tool": "toolId", "action": "actionId"}
FIELDS: dict[str, dict[str, Any]] = {
    "request.query": {"requestId": "q", "chatId": "c", "message": "hi", "role": "user"},
    "request.upload": {"requestId": "u", "upload": {"name": "a.txt"}},
    "request.submit": {"requestId": "s", "chatId": "c", "runId": "r", "toolId": "t", "payload": {}},
    "chat.start": {"chatId": "c"},
    "run.start": {"runId": "r", "chatId": "c"},
    "run.resume": {"runId": "r", "chatId": "c", "checkpointId": "k"},
    "run.complete": {"runId": "r"},
    "run.cancel": {"runId": "r"},
    "run.error": {"runId": "r", "error": {"code": "internal"}},
    "plan.create": {"planId": "p", "chatId": "c", "plan": {}},
    "plan.update": {"planId": "p", "chatId": "c", "plan": {}},
    "source.snapshot": {"sourceId": "x"},
    "checkpoint.create": {"checkpointId": "k", "step": 1, "next": []},
}


def made(word: str) -> dict[str, Any]:
    """An event in short: `type`, `type id`, `type id field=value …`."""
    kind, *rest = word.split()
    family, _, part = kind.partition(".")
    out: dict[str, Any] = {"type": kind, **FIELDS.get(kind, {})}
    given = rest.pop(0) if rest and "=" not in rest[0] else None
    if family in IDS:
        out[IDS[family]] = given
        more: dict[str, dict[str, Any]] = {
            "start": {"runId": "r"}, "delta": {"delta": "d"}, "args": {"delta": "{"}, "result": {"result": "ok"},
            "param": {"param": {}}, "snapshot": {"text": "x"} if family in ("content", "reasoning") else {},
        }  # fmt: skip
        out |= more.get(part, {})
    elif family == "task":
        out |= {"taskId": given, **({"runId": "r"} if part == "start" else {}), "error": {}}
    elif kind == "run.waiting":
        out |= {"runId": "r", "interrupts": [{"interruptId": each} for each in (given or "").split(",") if each]}
    elif kind == "interrupt.request":
        out |= {"interruptId": given, "kind": "ask", "runId": "r", "node": "n", "payload": {}, "schema": {}}
    elif kind == "interrupt.resolve":
        out |= {"interruptId": given, "decision": "answered"}
    elif family == "node":
        out |= {"nodeRunId": given, "node": "n", "step": 1, "attempt": 1, "durationMs": 0, "error": {}, "data": 1}
        out["willRetry"] = False
    for each in rest:
        name, _, value = each.partition("=")
        out[name] = int(value) if name in ("seq", "timestamp", "chunkIndex", "keepSeq") else value
    return out


def stream(text: str) -> list[Event]:
    """Events, one each line or comma, after `run.start` unless it begins otherwise."""
    words = [word.strip() for word in text.replace("\n", ";").split(";") if word.strip()]
    if not words[0].startswith(("request.", "run.start", "chat.", "!")):
        words.insert(0, "run.start")
    counts: dict[str, int] = {}
    events = []
    for number, word in enumerate((word.removeprefix("!") for word in words), 1):
        data = {"seq": number, "timestamp": 1000 + number, **made(word)}
        if data["type"] == "tool.args" and "chunkIndex" not in data:
            counts[data["toolId"]] = counts.get(data["toolId"], -1) + 1
            data["chunkIndex"] = counts[data["toolId"]]
        events.append(decode_event(data))
    return events


def check(text: str, **options: Any) -> StreamRules:
    rules = StreamRules(**options)
    for event in stream(text):
        rules.take(event)
    return rules


TEXT = "content.start c1; content.delta c1; content.end c1"
CALL = "tool.start t1; tool.args t1; tool.end t1; tool.result t1"
RIGHT = {
    "the preamble of a new chat": "request.query; chat.start; run.start; run.complete",
    "an upload is a stream of its own": "request.upload",
    "an upload before a query": "request.upload; request.query; run.start; run.complete",
    "text": f"{TEXT}; run.complete",
    "reasoning, then text": f"reasoning.start r1; reasoning.delta r1; reasoning.end r1; {TEXT}; run.complete",
    "a call": f"{CALL}; run.complete",
    "a call without arguments": "tool.start t1; tool.end t1; tool.result t1; run.complete",
    "several calls are open at once, and end in any order":
        "tool.start t1; tool.start t2; tool.args t1; tool.args t2; tool.end t2; tool.end t1;"
        " tool.result t1; tool.result t2; run.complete",
    "an action": "action.start a1; action.args a1; action.end a1; action.param a1; action.result a1; run.complete",
    "an action whose arguments do not parse": "action.start a1; action.end a1; action.result a1; run.complete",
    "a snapshot closes nothing":
        "content.start c1; content.delta c1; reasoning.snapshot r1; tool.snapshot t1; content.delta c1; content.end c1;"
        " tool.result t1; run.complete",
    "a snapshot of a block that is open": "content.start c1; content.delta c1; content.snapshot c1; content.end c1; run.complete",
    "a source": "tool.start t1; tool.end t1; tool.result t1; source.snapshot; run.complete",
    "node runs side by side have texts of their own":
        "node.start 1.1; node.start 1.2; content.start c1 nodeRunId=1.1; content.delta c1; content.start c2 nodeRunId=1.2;"
        " content.delta c2; content.delta c1; content.end c1; node.end 1.1; content.end c2; node.end 1.2; run.complete",
    "a plan with a task":
        "plan.create; task.start 1; content.start c1 taskId=1; content.delta c1; content.end c1; task.complete 1;"
        " plan.update; task.start 2; task.fail 2; run.error",
    "the first plan.update makes a plan the active one": "plan.update planId=z; task.start 1; task.cancel 1; run.cancel",
    "a question and its answer":
        "node.start 1.1; interrupt.request i; run.waiting i; request.submit; interrupt.resolve i; run.resume; node.end 1.1;"
        " run.complete",
    "one of two answers":
        "interrupt.request i; interrupt.request j; run.waiting i,j; interrupt.resolve i; checkpoint.create; run.waiting j;"
        " interrupt.resolve j; run.resume; run.complete",
    "a run that waits is cancelled": "run.waiting; run.cancel",
    "a run that goes on from a checkpoint brings what began before it":
        "run.start; run.resume; node.end 9.9; tool.result t0; run.complete",
    "a person has ended the run, and its call says so": "tool.start t1; tool.end t1; tool.result t1; run.complete finishReason=rejected",
    "a failed run leaves a call without a result": "tool.start t1; tool.end t1; run.error",
}  # fmt: skip
WRONG = {
    "a model's byte before run.start": ("!content.start c1", "run.start has not come"),
    "run.start twice": ("run.start; run.start", "started already"),
    "a query twice": ("request.query; request.query", "comes once"),
    "chat.start after run.start": ("run.start; chat.start", "started already"),
    "a person has ended the run, and its call has no result": (
        "tool.start t1; tool.end t1; run.complete finishReason=rejected", "calls without a result: ['t1']"
    ),
    "two terminals": ("run.complete; run.error", "nothing comes after a terminal"),
    "text after the terminal": (f"run.cancel; {TEXT}", "nothing comes after a terminal"),
    "another run's terminal": ("run.complete runId=z", "names run 'z'"),
    "a number left out": ("run.complete seq=7", "its number follows 1"),
    "a time that falls": ("run.complete timestamp=5", "its time falls"),
    "a reset is no part of a log": ("stream.reset keepSeq=1", "not part of a run's log"),
    "a start without its first piece": ("content.start c1; run.complete", "first piece"),
    "a start that waits for its first piece": ("content.start c1; source.snapshot; content.delta c1", "first piece"),
    "an end without a piece": ("content.start c1; content.end c1", "without a piece"),
    "a piece without a start": ("content.delta c1", "no content has the id"),
    "an empty piece": ("content.start c1; content.delta c1 delta=", "empty piece"),
    "a piece after the end": (f"{TEXT}; content.delta c1", "is ended"),
    "an end twice": (f"{TEXT}; content.end c1", "is ended"),
    "an id opened again": (f"{TEXT}; content.start c1", "never opened again"),
    "a call's id opened again": (f"{CALL}; tool.start t1", "never opened again"),
    "an action under a call's id": (f"{CALL}; action.start t1", "never opened again"),
    "reasoning while content is open": ("content.start c1; content.delta c1; reasoning.start r1", "text blocks"),
    "content while reasoning is open": ("reasoning.start r1; reasoning.delta r1; content.start c1", "text blocks"),
    "a second content block while one is open": ("content.start c1; content.delta c1; content.start c2", "text blocks"),
    "a call while content is open": ("content.start c1; content.delta c1; tool.start t1", "text blocks"),
    "input of an open call while content is open":
        ("tool.start t1; content.start c1; content.delta c1; tool.args t1", "text blocks"),
    "an action's input while reasoning is open":
        ("action.start a1; reasoning.start r1; reasoning.delta r1; action.args a1", "text blocks"),
    "arguments for a closed call": ("tool.start t1; tool.end t1; tool.args t1", "is ended"),
    "arguments out of count": ("tool.start t1; tool.args t1 chunkIndex=1", "chunkIndex must be 0"),
    "a result for an unknown id": ("tool.result t1", "no tool has the id"),
    "a result before the input is closed": ("tool.start t1; tool.result t1", "must be closed"),
    "two results": (f"{CALL}; tool.result t1", "one result"),
    "an action's result for a tool": ("tool.start t1; tool.end t1; action.result t1", "no action has the id"),
    "action.param before action.end": ("action.start a1; action.param a1", "between action.end and action.result"),
    "action.param after the result": ("action.start a1; action.end a1; action.result a1; action.param a1", "comes once"),
    "run.complete while a call has no result": ("tool.start t1; tool.end t1; run.complete", "without a result"),
    "a terminal while a block is open": ("content.start c1; content.delta c1; run.error", "open at a terminal"),
    "run.waiting while a block is open": ("tool.start t1; run.waiting", "open at run.waiting"),
    "run.waiting that does not list what is open": ("interrupt.request i; run.waiting", "it lists []"),
    "text while the run waits": (f"run.waiting; {TEXT}", "the run waits"),
    "run.complete while the run waits": ("run.waiting; run.complete", "the run waits"),
    "a node's end while its block is open":
        ("node.start 1.1; content.start c1 nodeRunId=1.1; content.delta c1; node.end 1.1", "end of their node run"),
    "a node's end without a start": ("node.end 1.1", "not under way"),
    "a node's end twice": ("node.start 1.1; node.end 1.1; node.end 1.1", "not under way"),
    "a node run begun twice": ("node.start 1.1; node.end 1.1; node.start 1.1", "begun already"),
    "a block of a node run that is over": ("node.start 1.1; node.end 1.1; content.start c1 nodeRunId=1.1", "not under way"),
    "a task without a plan": ("task.start 1", "has no plan"),
    "a task of another run": ("plan.create; task.start 1 runId=z", "names run 'z'"),
    "two tasks at once": ("plan.create; task.start 1; task.start 2", "task '1' is active"),
    "a blank task": ("plan.create; task.start 1 taskId=", "must not be blank"),
    "the end of a task that is not active": ("plan.create; task.start 1; task.complete 2", "can't end"),
    "the end of a task when none is active": ("plan.create; task.fail 1", "none is active"),
    "the end of a task while a block is open":
        ("plan.create; task.start 1; content.start c1 taskId=1; content.delta c1; task.complete 1", "the end of a task"),
    "a plan of another chat": ("plan.create chatId=z", "names chat 'z'"),
    "an update of another plan": ("plan.create; plan.update planId=z", "not the active one"),
    "a new plan while a task is active": ("plan.create; task.start 1; plan.create planId=z", "end the task first"),
    "a terminal while a task is active": ("plan.create; task.start 1; run.cancel", "still active"),
    "a leaf event that names another task": ("plan.create; task.start 1; content.start c1 taskId=2", "names task '2'"),
    "a leaf event that names a task when none is active": ("content.start c1 taskId=1", "no task is active"),
    "a leaf event without the active task": ("plan.create; task.start 1; content.start c1", "must bear the active task"),
    "a source of another task": ("plan.create; task.start 1; source.snapshot taskId=2", "names task '2'"),
}  # fmt: skip


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_may_stand_in_a_stream(text: str) -> None:
    assert check(text).open_blocks == []


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_what_may_not_is_refused_with_the_rule(text: str, why: str) -> None:
    with pytest.raises(StreamBroken) as refused:
        check(text)
    assert why in refused.value.message
    assert refused.value.message.startswith(f"event {refused.value.detail['seq']} ")


def test_every_kind_of_event_has_its_place() -> None:
    """A new event must be thought of here: it is in one of the streams above, or needs no rule of its own."""
    shown = {event.type for text in RIGHT.values() for event in stream(text)}
    free = {"tool.progress", "node.progress", "node.error", "context.compact", "stream.reset", "action.snapshot"}
    assert set(EVENT_TYPES) == shown | free


def test_what_a_life_left_open_is_void_in_the_next_and_its_id_stays_used() -> None:
    rules = check("node.start 1.1; content.start c1; content.delta c1")
    assert rules.open_blocks == ["c1"]
    rules.begin_epoch()
    assert rules.open_blocks == []
    with pytest.raises(StreamBroken, match="never opened again"):
        rules.take(decode_event({"seq": 5, "timestamp": 9000, **made("content.start c1")}))


def test_a_rebuilt_stream_may_leave_numbers_out_but_never_goes_back() -> None:
    rules = check("run.start; content.snapshot c1 seq=7; run.complete seq=9", whole=False)
    assert rules.ended
    with pytest.raises(StreamBroken, match="its number follows"):
        check("run.start; content.snapshot c1 seq=1", whole=False)


def test_a_move_of_the_thread_outside_its_run_counts_in_numbers_only() -> None:
    rules = check("interrupt.request i; run.waiting i")
    for number, word in enumerate(
        ("interrupt.resolve i", "checkpoint.create", "interrupt.request j", "run.waiting j"), 4
    ):
        rules.pass_over(decode_event({"seq": number, "timestamp": 2000, **made(word)}))
    rules.take(decode_event({"seq": 8, "timestamp": 3000, **made("run.resume")}))
    with pytest.raises(StreamBroken, match=r"open are \['j'\]"):
        rules.take(decode_event({"seq": 9, "timestamp": 3000, **made("run.waiting i")}))
