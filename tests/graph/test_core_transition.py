"""The pure core: what each kind of tick makes of a machine, and what it commands. No loop, no clock, no store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from graphflow import MemoryCheckpointer, load_graph
from graphflow.errors import StateError
from graphflow.graph.core.commands import (
    Backoff,
    CancelNode,
    Command,
    Commit,
    Ended,
    Erred,
    Finished,
    Request,
    Resolve,
    RunNode,
    Started,
)
from graphflow.graph.core.machine import ROOT, Interrupt, Machine, Operation, next_nodes
from graphflow.graph.core.patches import apply_patch
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.plan_builder import build_plan
from graphflow.graph.core.ticks import (
    Answered,
    AnyTick,
    BackoffOver,
    Cancel,
    Deadline,
    Edited,
    Expired,
    Input,
    Moved,
    NodeAsked,
    NodeErrored,
    NodeSucceeded,
    OperationRecorded,
    Recovered,
    Resumed,
)
from graphflow.graph.core.transition import advance, full_path
from graphflow.graph.drawing.render import draw_text
from graphflow.graph.validation.validate import check_document
from graphflow.models.scripted.script import Script, ScriptTurn
from graphflow.nodes.kinds import NodeKinds
from graphflow.testing import FakeClock, FakeIds, ScriptedModel, collect

STATE = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "default": 0},
        "log": {"type": "array", "x-reducer": "append", "default": []},
        "once": {"type": "integer", "default": 0, "x-scope": "run"},
    },
}


class Graphs:
    """Subgraphs by key, as agents would give them."""

    def __init__(self, **documents: dict[str, Any]) -> None:
        self.documents = documents

    def document(self, key: str) -> Mapping[str, Any] | None:
        return self.documents.get(key)


def plan_of(nodes: dict[str, Any], graphs: Graphs | None = None, **fields: Any) -> Plan:
    """A plan whose `work` nodes are Python functions that nobody calls here."""
    kinds = NodeKinds(agents=graphs)
    kinds.node("work", lambda state: None)
    kinds.function("give", lambda: None)
    document = {"graphflow": "1", "start": next(iter(nodes)), "state": STATE, "nodes": nodes, **fields}
    return build_plan(check_document(document, kinds), kinds)


class Core:
    """A machine that is fed ticks one by one; ids and times count up."""

    def __init__(self, plan: Plan, machine: Machine | None = None) -> None:
        self.plan = plan
        self.machine = machine or Machine()
        self.count = 0
        self.commands: list[Command] = []
        self.commit: Commit

    def feed(self, cls: type[AnyTick], **fields: Any) -> list[Command]:
        """The commands of the tick, without its commit; what was stored must be what ran."""
        self.count += 1
        tick = cls(**{"id": f"tick-{self.count}", "at": self.count * 1000, **fields})
        before = self.machine
        expected = full_path(self.plan, before, tick)
        self.machine, (commit, *self.commands) = advance(self.plan, before, tick)
        assert expected == (self.machine, [commit, *self.commands])
        assert isinstance(commit, Commit)
        assert apply_patch(before, commit.patch) == self.machine == commit.machine
        self.commit = commit
        return self.commands

    def begin(self, **fields: Any) -> list[Command]:
        return self.feed(Input, **{"run_id": "run", "input": {}, "limits": dict(self.plan.limits), **fields})

    def ask(self, key: str = "ask:1", kind: str = "ask", **fields: Any) -> Interrupt:
        """Opens an interrupt from inside the root's node."""
        node = self.machine.root.node
        asked = Interrupt(id="", kind=kind, run_id="", node=node, frame=ROOT, key=key, digest="d", **fields)
        self.feed(NodeAsked, frame=ROOT, interrupt=asked)
        return list(self.machine.interrupts.values())[-1]

    def answer(self, interrupt: Interrupt, answer: Any, decision: str = "answered") -> list[Command]:
        return self.feed(Answered, interrupt_id=interrupt.id, answer=answer, decision=decision, by="ada")

    @property
    def state(self) -> Any:
        return self.machine.root.state


WORK: dict[str, Any] = {"use": "node:work"}
PAIR = {"a": {**WORK, "next": "b"}, "b": {**WORK, "next": "end"}}
ERROR = {"code": "node_error", "message": "broken", "retryable": False}
TIMEOUT = {"code": "timeout", "message": "late", "retryable": True}


def kinds_of(commands: list[Command]) -> list[str]:
    return [type(command).__name__ for command in commands]


# --- input


def test_an_input_sets_defaults_and_starts_the_first_node() -> None:
    core = Core(plan_of(PAIR))
    assert core.begin() == [Started(ROOT, "a", 1, 1, 1, ""), RunNode(ROOT)]
    assert (core.machine.status, core.state.n, list(core.state.log)) == ("running", 0, [])
    assert (core.commit.source, core.commit.checkpoint, core.commit.node) == ("input", True, "a")


def test_a_second_input_keeps_the_state_but_for_keys_of_one_run_and_counts_anew() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT, updates={"n": 5, "once": 7, "log": ["x"]}, usage={"modelCalls": 1})
    core.feed(NodeSucceeded, frame=ROOT)
    core.begin(run_id="second", limits={})
    assert (core.state.n, core.state.once, list(core.state.log)) == (5, 0, ["x"])
    assert (core.machine.run_id, core.machine.steps, core.machine.usage, core.machine.active_ms) == ("second", 0, {}, 0)


def test_an_input_closes_the_questions_and_frames_of_a_stopped_run() -> None:
    core = Core(plan_of({"sub": {"graph": "inner", "next": "end"}}, Graphs(inner=inner_document())))
    core.begin()
    core.feed(Cancel)
    core.begin(run_id="second")
    assert sorted(core.machine.frames) == [ROOT, 2]
    assert core.machine.interrupts == {}


def test_an_input_with_messages_answers_open_calls_and_adds_the_query() -> None:
    messages = {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}
    core = Core(plan_of({"a": {**WORK, "next": "end"}}, state=messages))
    core.begin(input={"query": "hi"})
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "t", "arguments": "{}"}]}
    core.feed(NodeSucceeded, frame=ROOT, updates={"messages": [call]})
    core.begin(input={"query": "again"})
    assert [m.role for m in core.state.messages] == ["user", "assistant", "tool", "user"]


# --- succeeded


def test_a_success_writes_through_the_reducers_and_goes_on() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    commands = core.feed(NodeSucceeded, frame=ROOT, updates={"n": 1, "log": ["x", "y"]})
    assert commands == [Ended(ROOT, "a", ("n", "log")), Started(ROOT, "b", 1, 1, 2, ""), RunNode(ROOT)]
    assert (core.state.n, list(core.state.log), core.machine.steps) == (1, ["x", "y"], 1)


def test_the_last_success_completes_the_run() -> None:
    core = Core(plan_of({"a": {**WORK, "next": "end"}}))
    core.begin()
    assert core.feed(NodeSucceeded, frame=ROOT, usage={"toolCalls": 2}) == [
        Ended(ROOT, "a", ()), Finished("complete"),
    ]  # fmt: skip
    machine = core.machine
    assert (machine.status, machine.finish_reason, machine.root.node) == ("idle", "stop", "end")
    assert machine.usage == {"toolCalls": 2, "activeMs": 1000}


def test_set_expressions_see_the_state_before_the_node_and_its_output() -> None:
    core = Core(plan_of({"a": {"use": "fn:give", "set": {"n": "out + state.n", "log": "[state.n]"}, "next": "end"}}))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT, out=5)
    assert (core.state.n, list(core.state.log)) == (5, [0])


@pytest.mark.parametrize(("n", "to"), [(5, "b"), (1, "c"), (0, "end")])
def test_the_first_route_whose_condition_holds_after_the_node_is_taken(n: int, to: str) -> None:
    routes = [{"if": "state.n > 3", "to": "b"}, {"if": "state.n > 0", "to": "c"}, {"to": "end"}]
    core = Core(plan_of({"a": {**WORK, "next": routes}, "b": {**WORK, "next": "end"}, "c": {**WORK, "next": "end"}}))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT, updates={"n": n})
    assert core.machine.root.node == to
    assert core.commit.facts == {"route": [5, 1, 0].index(n)}


def test_goto_takes_a_declared_route_and_fails_on_any_other() -> None:
    chooser = {"a": {**WORK, "next": {"choose": ["b", "end"]}}, "b": {**WORK, "next": "end"}}
    for goto, to in (("b", "b"), ("end", "end")):
        core = Core(plan_of(chooser))
        core.begin()
        core.feed(NodeSucceeded, frame=ROOT, goto=goto)
        assert core.machine.root.node == to
    for wrong in ("a", None):
        core = Core(plan_of(chooser))
        core.begin()
        core.feed(NodeSucceeded, frame=ROOT, goto=wrong, updates={"n": 9})
        assert (core.machine.status, core.state.n) == ("failed", 0)


def test_a_write_outside_the_schema_fails_the_node_and_changes_no_key() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    assert kinds_of(core.feed(NodeSucceeded, frame=ROOT, updates={"n": 1, "m": 2})) == ["Erred", "Finished"]
    assert core.machine.error is not None
    assert (core.machine.error["code"], core.state.n) == ("state_error", 0)


def test_a_round_that_the_limit_refuses_is_told_as_the_reason_of_the_end() -> None:
    looping = {"a": {**WORK, "next": [{"if": "visits.a < limits.rounds", "to": "a"}, {"to": "end"}]}}
    core = Core(plan_of(looping, budget={"maxRounds": 2}))
    core.begin()
    assert core.feed(NodeSucceeded, frame=ROOT)[-1] == RunNode(ROOT)
    assert core.machine.root.visit == 2
    assert core.feed(NodeSucceeded, frame=ROOT)[-1] == Finished("complete")
    assert core.machine.finish_reason == "max_rounds"


# --- failed


RETRY = {"max": 3, "on": ["node_error"], "backoffMs": 100, "factor": 3.0, "maxBackoffMs": 200, "jitter": 0.5}


@pytest.mark.parametrize(("jitter", "waits"), [(0.5, [100, 200]), (0.0, [50, 100]), (1.0, [150, 300])])
def test_a_backoff_grows_to_its_ceiling_and_takes_its_jitter_from_the_tick(jitter: float, waits: list[int]) -> None:
    core = Core(plan_of({"a": {**WORK, "retry": RETRY, "next": "end"}}))
    core.begin()
    for attempt, wait in enumerate(waits, 1):
        commands = core.feed(NodeErrored, frame=ROOT, error=ERROR, jitter=jitter)
        until = core.count * 1000 + wait
        assert commands == [Erred(ROOT, "a", ERROR, will_retry=True), Backoff(ROOT, until)]
        assert (core.commit.source, core.commit.checkpoint) == ("retry", False)
        assert core.feed(BackoffOver, frame=ROOT) == [Started(ROOT, "a", 1, attempt + 1, 1, ""), RunNode(ROOT)]
    assert kinds_of(core.feed(NodeErrored, frame=ROOT, error=ERROR)) == ["Erred", "Finished"]


def test_a_backoff_beyond_every_number_is_its_ceiling() -> None:
    """2 to the 1,100th is more than a float can be; the policy is legal all the same."""
    core = Core(plan_of({"a": {**WORK, "retry": {**RETRY, "max": 1200, "factor": 1e200, "jitter": 0}, "next": "end"}}))
    core.begin()
    for _ in range(4):
        *_, backoff = core.feed(NodeErrored, frame=ROOT, error=ERROR)
        core.feed(BackoffOver, frame=ROOT)
    assert backoff == Backoff(ROOT, (core.count - 1) * 1000 + 200)


@pytest.mark.parametrize(
    ("error", "final"), [(TIMEOUT, False), (ERROR, True)], ids=["an error it does not name", "a final failure"]
)
def test_what_a_retry_does_not_cover_ends_the_run(error: dict[str, Any], final: bool) -> None:
    core = Core(plan_of({"a": {**WORK, "retry": RETRY, "next": "end"}}))
    core.begin()
    assert core.feed(NodeErrored, frame=ROOT, error=error, final=final) == [
        Erred(ROOT, "a", error, will_retry=False), Finished("error"),
    ]  # fmt: skip
    assert (core.machine.status, core.machine.error, core.machine.root.status) == ("failed", error, "failed")


def test_a_retry_forgets_the_model_calls_that_no_other_operation_follows() -> None:
    core = Core(plan_of({"a": {**WORK, "retry": RETRY, "next": "end"}}))
    core.begin()
    for key, kind in (("m1", "model"), ("t1", "tool"), ("m2", "model"), ("m3", "model")):
        core.feed(OperationRecorded, frame=ROOT, key=key, operation=Operation(kind, ""))
    core.feed(NodeErrored, frame=ROOT, error=ERROR)
    assert list(core.machine.root.operations) == ["m1", "t1"]


def test_an_error_route_is_entered_with_the_error_in_scope() -> None:
    core = Core(plan_of({"a": {**WORK, "error": [{"on": ["timeout"], "to": "b"}], "next": "b"}, "b": PAIR["b"]}))
    core.begin()
    commands = core.feed(NodeErrored, frame=ROOT, error=TIMEOUT)
    assert commands == [
        Erred(ROOT, "a", TIMEOUT, will_retry=False), Started(ROOT, "b", 1, 1, 2, ""), RunNode(ROOT),
    ]  # fmt: skip
    assert core.machine.root.error == TIMEOUT
    core.feed(NodeSucceeded, frame=ROOT)
    assert (core.machine.status, core.machine.error) == ("idle", None)


def test_provider_error_covers_a_cut_off_stream_and_any_covers_all() -> None:
    cut = {"code": "stream_truncated", "message": "cut", "retryable": True}
    for code in ("provider_error", "any"):
        core = Core(plan_of({"a": {**WORK, "error": [{"on": [code], "to": "b"}], "next": "b"}, "b": PAIR["b"]}))
        core.begin()
        core.feed(NodeErrored, frame=ROOT, error=cut)
        assert core.machine.root.node == "b"


def test_a_used_up_budget_goes_to_then_once() -> None:
    looping = {"a": {**WORK, "next": [{"if": "state.n < 9", "to": "a"}, {"to": "wrap"}]}, "wrap": PAIR["b"]}
    core = Core(plan_of(looping, budget={"maxSteps": 2, "onExceeded": "wrap"}))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT)
    assert core.feed(NodeSucceeded, frame=ROOT)[-2:] == [Started(ROOT, "wrap", 1, 1, 3, ""), RunNode(ROOT)]
    assert (core.machine.wrapping, core.machine.finish_reason) == (True, "max_steps")
    used_up = {"code": "budget_exceeded", "message": "", "retryable": False}
    assert core.feed(NodeErrored, frame=ROOT, error=used_up)[-1] == Finished("error")


def test_a_used_up_budget_without_then_fails_before_the_next_node_begins() -> None:
    core = Core(plan_of(PAIR, budget={"maxSteps": 1}))
    core.begin()
    assert kinds_of(core.feed(NodeSucceeded, frame=ROOT)) == ["Ended", "Finished"]
    assert core.machine.error is not None
    assert (core.machine.error["code"], core.machine.error["detail"]["figure"]) == ("budget_exceeded", "steps")
    assert next_nodes(core.machine) == ["b"]


def test_the_partial_message_of_a_failure_is_kept_where_the_node_writes_messages() -> None:
    messages = {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}
    core = Core(plan_of({"a": {"use": "fn:give", "set": {"messages": "[out]"}, "next": "end"}}, state=messages))
    core.begin()
    core.feed(NodeErrored, frame=ROOT, error=ERROR, partial={"role": "assistant", "content": "half"})
    assert [m.content for m in core.state.messages] == ["half"]


# --- asked, answered, expired

ASKING = {"a": {"ask": {"message": "well?"}, "set": {"log": "[answer]"}, "next": "b"}, "b": PAIR["b"]}


def test_an_interrupt_bears_the_tick_that_opened_it_and_pauses_the_run() -> None:
    core = Core(plan_of(ASKING))
    core.begin()
    interrupt = core.ask(key="")
    assert core.commands == [Request(interrupt)]
    assert (interrupt.id, interrupt.run_id, interrupt.opened_at) == ("tick-2.1", "run", 2000)
    assert (core.machine.status, core.machine.root.status, core.commit.source) == ("waiting", "waiting", "ask")


def test_the_answer_of_an_ask_node_is_its_output() -> None:
    core = Core(plan_of(ASKING))
    core.begin()
    interrupt = core.ask(key="")
    assert core.answer(interrupt, "yes") == [
        Resolve(interrupt, "answered", "yes"), Ended(ROOT, "a", ("log",)), Started(ROOT, "b", 1, 1, 2, ""), RunNode(ROOT),
    ]  # fmt: skip
    assert (list(core.state.log), core.machine.interrupts, core.machine.status) == (["yes"], {}, "running")
    assert core.commit.facts is not None
    assert core.commit.facts["by"] == "ada"


@pytest.mark.parametrize("kind", ["ask", "approval", "frontend"])
def test_an_answer_inside_a_node_is_a_recorded_operation_and_the_node_goes_on(kind: str) -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    interrupt = core.ask("call", kind)
    answer = {"decision": "approve"}
    assert core.answer(interrupt, answer, "approve") == [Resolve(interrupt, "approve", answer), RunNode(ROOT)]
    assert core.machine.root.operations == {"call": Operation("ask", "d", "none", "done", answer)}


def test_with_one_of_two_questions_answered_the_node_goes_on_and_the_other_stays() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    first, second = core.ask("x"), core.ask("y")
    core.answer(first, 1)
    assert list(core.machine.interrupts) == [second.id]
    core.feed(NodeSucceeded, frame=ROOT)
    assert core.machine.interrupts == {}
    assert Resolve(second, "cancelled") in core.commands


def test_terminate_completes_the_run_as_rejected_and_closes_everything() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    first, second = core.ask("x", "approval"), core.ask("y", "approval")
    commands = core.answer(first, {"decision": "terminate"}, "terminate")
    assert commands[-1] == Finished("complete")
    assert Resolve(second, "cancelled") in commands
    assert (core.machine.status, core.machine.finish_reason, core.machine.interrupts) == ("idle", "rejected", {})


@pytest.mark.parametrize(
    ("decision", "kept"),
    [
        ("skip", Operation("tool", "d", "write", "done", None)),
        ("result", Operation("tool", "d", "write", "done", "it went out")),
        ("retry", None),
    ],
)
def test_an_unknown_outcome_is_settled_by_its_answer(decision: str, kept: Operation | None) -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    core.feed(OperationRecorded, frame=ROOT, key="mail", operation=Operation("tool", "d", "write", "intent"))
    interrupt = core.ask("unknown:mail", "outcome_unknown")
    assert core.answer(interrupt, {"decision": decision, "result": "it went out"}, decision)[-1] == RunNode(ROOT)
    assert core.machine.root.operations == ({} if kept is None else {"mail": kept})


def broken_at(node: str, when: str = "before") -> Core:
    core = Core(plan_of(PAIR))
    core.begin(**{when: (node,)})
    if node != "a" or when == "after":
        core.feed(NodeSucceeded, frame=ROOT, updates={"n": 1})
    return core


def test_a_breakpoint_stands_before_the_node_and_continue_begins_it() -> None:
    core = broken_at("b")
    (interrupt,) = core.machine.interrupts.values()
    assert (interrupt.kind, interrupt.payload) == ("breakpoint", {"when": "before", "next": "b"})
    answer = {"decision": "continue", "update": {"n": 7}}
    assert core.answer(interrupt, answer, "continue")[1:] == [Started(ROOT, "b", 1, 1, 2, ""), RunNode(ROOT)]
    assert core.state.n == 7


def test_a_breakpoint_after_the_last_node_stands_at_the_end() -> None:
    core = broken_at("b", "after")
    core.feed(NodeSucceeded, frame=ROOT)
    (interrupt,) = core.machine.interrupts.values()
    assert (core.machine.status, core.machine.root.node) == ("waiting", "end")
    assert core.answer(interrupt, {"decision": "continue"}, "continue")[-1] == Finished("complete")


def test_skip_passes_a_node_that_neither_writes_nor_ends() -> None:
    core = Core(plan_of({"a": {"use": "fn:give", "set": {"n": "out"}, "next": "b"}, "b": PAIR["b"]}))
    core.begin(before=("a",))
    (interrupt,) = core.machine.interrupts.values()
    commands = core.answer(interrupt, {"decision": "skip"}, "skip")
    assert kinds_of(commands) == ["Resolve", "Started", "RunNode"]
    assert (core.machine.root.node, core.state.n, core.machine.steps) == ("b", 0, 0)


def test_cancel_at_a_breakpoint_stops_the_run_there() -> None:
    core = broken_at("b")
    (interrupt,) = core.machine.interrupts.values()
    assert core.answer(interrupt, {"decision": "cancel"}, "cancel")[-1] == Finished("cancel")
    assert (core.machine.status, next_nodes(core.machine)) == ("stopped", ["b"])


def test_an_expired_question_takes_its_own_route() -> None:
    plan = plan_of({"a": {"ask": {"message": "?", "expires": "PT1H", "onExpire": "b"}, "next": "end"}, "b": PAIR["b"]})
    core = Core(plan)
    core.begin()
    interrupt = core.ask(key="", on_expire="b")
    commands = core.feed(Expired, interrupt_id=interrupt.id)
    assert kinds_of(commands) == ["Resolve", "Ended", "Started", "RunNode"]
    assert commands[0] == Resolve(interrupt, "expired")
    assert core.machine.root.error is not None
    assert (core.machine.root.node, core.machine.root.error["code"]) == ("b", "timeout")


def test_an_expired_question_without_a_route_is_a_timeout_of_its_node() -> None:
    asking = {"ask": {"message": "?", "expires": "PT1H"}, "error": [{"on": ["timeout"], "to": "b"}], "next": "end"}
    core = Core(plan_of({"a": asking, "b": PAIR["b"]}))
    core.begin()
    commands = core.feed(Expired, interrupt_id=core.ask(key="").id)
    assert [c.node for c in commands if isinstance(c, Erred)] == ["a"]
    assert (core.machine.root.node, core.machine.status) == ("b", "running")


# --- recorded, recovered, resumed


def test_a_recorded_operation_is_no_checkpoint_and_goes_with_its_node() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    assert core.feed(OperationRecorded, frame=ROOT, key="k", operation=Operation("once", ""), usage={"tokens": 3}) == []
    assert (core.commit.checkpoint, core.machine.usage) == (False, {"tokens": 3})
    core.feed(NodeSucceeded, frame=ROOT)
    assert core.machine.root.operations == {}


def test_a_new_life_begins_the_unfinished_node_again_and_counts_no_time_between() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT)
    core.feed(OperationRecorded, frame=ROOT, key="k", operation=Operation("once", ""))
    active = core.machine.active_ms
    assert core.feed(Recovered, at=10_000_000) == [Started(ROOT, "b", 1, 1, 2, ""), RunNode(ROOT)]
    assert (core.machine.active_ms, list(core.machine.root.operations)) == (active, ["k"])
    assert (core.commit.checkpoint, core.machine.run_id) == (False, "run")


def test_a_new_life_waits_for_a_backoff_that_is_not_over() -> None:
    core = Core(plan_of({"a": {**WORK, "retry": RETRY, "next": "end"}}))
    core.begin()
    core.feed(NodeErrored, frame=ROOT, error=ERROR, jitter=0.5)
    assert core.feed(Recovered) == [Backoff(ROOT, 2100)]
    assert core.machine.root.attempt == 2


def test_a_failed_run_is_resumed_at_the_failed_node_with_larger_limits() -> None:
    core = Core(plan_of(PAIR, budget={"maxSteps": 1}))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT)
    assert core.feed(Resumed, run_id="second", limits={"steps": 5}) == [Started(ROOT, "b", 1, 1, 1, ""), RunNode(ROOT)]
    machine = core.machine
    assert (machine.status, machine.run_id, machine.limits, machine.error) == ("running", "second", {"steps": 5}, None)


# --- edited, moved


def test_an_edit_reduces_its_values_and_rests() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    core.feed(NodeSucceeded, frame=ROOT, updates={"log": ["x"]})
    assert core.feed(Edited, same_run=False, values={"log": ["y"], "n": 9}) == []
    assert (core.machine.status, list(core.state.log), core.state.n) == ("stopped", ["x", "y"], 9)
    core.feed(Edited, same_run=False, values={"log": ["only"]}, replace=("log",))
    assert list(core.state.log) == ["only"]


def test_an_edit_as_a_node_moves_the_cursor_where_that_node_leads() -> None:
    core = Core(plan_of({"a": {"use": "fn:give", "set": {"n": "out"}, "next": "b"}, "b": PAIR["b"]}))
    core.begin()
    core.feed(Edited, same_run=False, values={"n": 3}, as_node="a")
    assert (core.machine.status, next_nodes(core.machine), core.state.n) == ("stopped", ["b"], 3)
    core.feed(Edited, same_run=False, values={}, as_node="b")
    assert (core.machine.status, next_nodes(core.machine)) == ("idle", [])


@pytest.mark.parametrize(("values", "node"), [({"n": "x"}, None), ({"zzz": 1}, None), ({}, "nowhere")])
def test_an_edit_that_does_not_fit_is_refused(values: dict[str, Any], node: str | None) -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    before = core.machine
    with pytest.raises(StateError):
        core.feed(Edited, same_run=False, values=values, as_node=node)
    assert core.machine is before


@pytest.mark.parametrize("source", ["rewind", "fork"])
def test_a_rewind_or_fork_issues_questions_anew_and_forgets_operations(source: str) -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    core.feed(OperationRecorded, frame=ROOT, key="k", operation=Operation("once", ""))
    old = core.ask("x")
    commands = core.feed(Moved, source=source)
    (new,) = core.machine.interrupts.values()
    assert commands == [Resolve(old, "reissued"), Request(new)]
    assert (new.reissue_of, new.run_id, new.id != old.id) == (old.id, core.commit.id, True)
    assert (core.machine.status, core.machine.root.operations, core.commit.source) == ("waiting", {}, source)


def test_a_rewind_to_a_backoff_rests_with_the_attempts_counted_anew() -> None:
    core = Core(plan_of({"a": {**WORK, "retry": RETRY, "next": "end"}}))
    core.begin()
    core.feed(NodeErrored, frame=ROOT, error=ERROR)
    core.feed(Moved, source="rewind")
    assert (core.machine.status, core.machine.root.attempt, next_nodes(core.machine)) == ("stopped", 1, ["a"])


# --- cancel, deadline


def test_a_cancel_stops_at_the_last_checkpoint_and_closes_questions() -> None:
    core = Core(plan_of(PAIR))
    core.begin()
    interrupt = core.ask("x")
    commands = core.feed(Cancel)
    assert commands == [Resolve(interrupt, "cancelled"), CancelNode(ROOT), Finished("cancel")]
    assert (core.machine.status, core.machine.interrupts, next_nodes(core.machine)) == ("stopped", {}, ["a"])


def test_a_deadline_ends_the_running_node_as_a_used_up_budget() -> None:
    core = Core(plan_of(PAIR, budget={"timeoutMs": 500}))
    core.begin()
    commands = core.feed(Deadline)
    assert kinds_of(commands) == ["Erred", "Finished"]  # whoever obeys `Erred` ends the task of the node
    assert core.machine.error is not None
    assert (core.machine.error["code"], core.machine.error["detail"]["figure"]) == ("budget_exceeded", "timeoutMs")


def test_active_time_counts_while_running_and_not_while_waiting() -> None:
    core = Core(plan_of(PAIR))
    core.begin(at=1_000)
    core.feed(OperationRecorded, at=1_500, frame=ROOT, key="k", operation=Operation("once", ""))
    interrupt = core.ask("x")
    active = core.machine.active_ms
    core.feed(Answered, at=9_000_000, interrupt_id=interrupt.id, answer=1, decision="answered")
    assert (active, core.machine.active_ms) == (2_000, 2_000)


# --- subgraphs


def inner_document(**node: Any) -> dict[str, Any]:
    work = {**WORK, "next": "end", **node}
    return {"graphflow": "1", "start": "w", "state": STATE, "result": "state.n", "nodes": {"w": work}}


def nested(**node: Any) -> Core:
    outer = {"sub": {"graph": "inner", "set": {"n": "out"}, "next": "b", **node}, "b": PAIR["b"]}
    core = Core(plan_of(outer, Graphs(inner=inner_document())))
    core.begin()
    return core


def test_a_subgraph_opens_a_frame_with_its_own_state_and_path() -> None:
    core = nested()
    assert kinds_of(core.commands) == ["Started", "Started", "RunNode"]
    child = core.machine.frames[1]
    assert (core.machine.root.status, child.path, child.parent, child.state.n) == ("open", "sub#1", ROOT, 0)
    assert next_nodes(core.machine) == ["sub#1/w"]


def test_a_finished_subgraph_gives_its_output_to_its_node() -> None:
    core = nested()
    commands = core.feed(NodeSucceeded, frame=1, updates={"n": 8})
    assert kinds_of(commands) == ["Ended", "Ended", "Started", "RunNode"]
    assert (sorted(core.machine.frames), core.state.n, core.machine.root.node) == ([ROOT], 8, "b")


def test_a_failure_inside_a_subgraph_takes_the_innermost_route_that_names_it() -> None:
    core = nested(error=[{"on": ["timeout"], "to": "b"}])
    core.feed(NodeErrored, frame=1, error=TIMEOUT)
    assert (sorted(core.machine.frames), core.machine.root.node) == ([ROOT], "b")
    core = nested(error=[{"on": ["timeout"], "to": "b"}])
    assert core.feed(NodeErrored, frame=1, error=ERROR)[-1] == Finished("error")
    assert (core.machine.status, core.machine.frames[1].status) == ("failed", "failed")


def test_frame_numbers_are_never_used_again() -> None:
    looping = {
        "sub": {
            "graph": "inner",
            "set": {"n": "state.n + 1"},
            "next": [{"if": "state.n < 3", "to": "sub"}, {"to": "end"}],
        }
    }
    core = Core(plan_of(looping, Graphs(inner=inner_document()), budget={"maxSteps": 50}))
    core.begin()
    seen = []
    while core.machine.status == "running":
        seen.append(max(core.machine.frames))
        core.feed(NodeSucceeded, frame=seen[-1])
    assert seen == [1, 2, 3]


# --- purity


def story() -> tuple[Plan, list[tuple[Machine, AnyTick]]]:
    """Machines and the ticks that they met, over every kind of tick that a small run can see."""
    core = Core(
        plan_of({"a": {**WORK, "retry": RETRY, "next": "q"}, "q": {**ASKING["a"], "next": "b"}, "b": PAIR["b"]})
    )
    met: list[tuple[Machine, AnyTick]] = []
    steps: list[tuple[type[AnyTick], dict[str, Any]]] = [
        (Input, {"run_id": "run", "input": {}, "limits": {}, "after": ("b",)}),
        (OperationRecorded, {"frame": ROOT, "key": "k", "operation": Operation("once", "")}),
        (NodeErrored, {"frame": ROOT, "error": ERROR, "jitter": 0.3}),
        (BackoffOver, {"frame": ROOT}),
        (NodeSucceeded, {"frame": ROOT, "updates": {"n": 1, "log": ["x"]}, "usage": {"modelCalls": 1}}),
        (NodeAsked, {"frame": ROOT, "interrupt": Interrupt(id="", kind="ask", run_id="", node="q", frame=ROOT, key="")}),
        (Moved, {"source": "rewind"}),
        (Answered, {"interrupt_id": "tick-7.1", "answer": "yes", "decision": "answered"}),
        (Cancel, {}),
        (Resumed, {"run_id": "third", "limits": {"steps": 9}}),
        (Recovered, {}),
        (NodeSucceeded, {"frame": ROOT, "updates": {"log": ["y"]}}),
        (Edited, {"same_run": False, "values": {"log": ["z"]}, "replace": ("log",)}),
    ]  # fmt: skip
    for cls, fields in steps:
        before = core.machine
        core.feed(cls, **fields)
        met.append((before, cls(**{"id": f"tick-{core.count}", "at": core.count * 1000, **fields})))
    return core.plan, met


def test_advance_gives_equal_results_for_equal_arguments() -> None:
    plan, met = story()
    for machine, tick in met:
        first, again = (advance(plan, machine, tick) for _ in range(2))
        assert first == again


def test_advance_changes_none_of_its_arguments() -> None:
    plan, met = story()
    for machine, tick in met:
        before = repr((machine, tick))
        advance(plan, machine, tick)
        assert repr((machine, tick)) == before


# --- whole pictures


REVIEW = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"draft": {"type": "string", "default": ""}}},
    "budget": {"maxSteps": 10, "maxRounds": 2, "onExceeded": "publish"},
    "start": "write",
    "nodes": {
        "write": {"use": "model", "with": {"prompt": "One line about ${input.query}"}, "set": {"draft": "out.text"},
                  "retry": {"max": 2, "on": ["provider_error"]}, "next": "approve"},
        "approve": {"ask": {"message": "Publish it?", "show": "state.draft", "schema": {"type": "boolean"}},
                    "next": [{"if": "answer == true", "to": "publish"}, {"if": "visits.write < limits.rounds", "to": "write"},
                             {"to": "publish"}]},
        "publish": {"use": "fn:publish", "with": {"text": "${state.draft}"}, "error": [{"on": ["any"], "to": "end"}],
                    "next": "end"},
    },
}  # fmt: skip


def review(**options: Any) -> Any:
    return load_graph(
        REVIEW, functions={"publish": lambda text: f"published: {text}"}, ids=FakeIds(), clock=FakeClock(), **options
    )


def test_a_compiled_document_and_its_drawing(snapshot: SnapshotAssertion) -> None:
    plan = review().plan
    nodes = {
        name: {
            "form": node.form,
            "kind": node.kind,
            "counted": node.counted,
            "set": [key for key, _ in node.sets],
            "routes": [(route.to, route.when.source if route.when else None, route.rounds_of) for route in node.routes],
            "errors": [(sorted(codes), to) for codes, to in node.errors],
        }
        for name, node in plan.nodes.items()
    }
    assert {"limits": plan.limits, "onExceeded": plan.on_exceeded, "nodes": nodes} == snapshot
    assert draw_text(plan.document) == snapshot


async def test_the_events_of_a_run_with_a_question(snapshot: SnapshotAssertion) -> None:
    script = Script(turns=(ScriptTurn(reasoning="Short.", text="Graphs are honest."),))
    app = review(checkpointer=MemoryCheckpointer(), model=ScriptedModel(script))
    events = await collect(app.stream({"query": "graphs"}, thread_id="thread"))
    events += await collect(app.stream_answer("thread", True))
    assert "\n".join(msgspec.json.encode(e).decode() for e in events if not e.type.endswith(".delta")) == snapshot
