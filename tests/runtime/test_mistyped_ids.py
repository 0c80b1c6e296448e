"""An answer under a mistyped id is refused, whatever the open question would take (spec 2.4, E13)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import AnswerRefused, Context, Graph
from graphflow.graph.core.machine import Interrupt, Machine
from graphflow.runtime.runs.answer_checks import check_answers
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter

ID = "018bcfe5-6800-7000-8000-00000000000a.1"
OPEN_SCHEMAS: list[Any] = [
    {},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": ["object", "string"]},
    {"anyOf": [{"type": "string"}, {"type": "object", "patternProperties": {".*": {}}}]},
    {"not": {"type": "null"}},
]


def waiting(schema: Any) -> Machine:
    question = Interrupt(id=ID, kind="ask", run_id="r", key="", frame=0, node="ask", schema=schema)
    return Machine(interrupts={ID: question}, status="waiting")


@st.composite
def mistyped(draw: st.DrawFn) -> str:
    """The id with one letter changed, left out, doubled, or in another case, or with something around it."""
    at = draw(st.integers(0, len(ID) - 1))
    other = draw(st.sampled_from("0a-.xX é"))
    wrong = [ID[:at] + other + ID[at + 1 :], ID[:at] + ID[at + 1 :], ID[:at] + ID[at] + ID[at:], ID[:at], ID.upper()]
    wrong += [f" {ID}", f"{ID} ", ID.partition(".")[0], ID + "0", f"interrupt:{ID}"]
    return draw(st.sampled_from(wrong).filter(lambda made: made != ID))


@settings(deadline=None)
@given(key=mistyped(), schema=st.sampled_from(OPEN_SCHEMAS))
def test_no_mistyped_id_is_taken_for_an_answer(key: str, schema: Any) -> None:
    with pytest.raises(AnswerRefused) as refused:
        check_answers(waiting(schema), {key: "yes"})
    assert refused.value.code == "interrupt_not_found" and ID in refused.value.message


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({}, "yes"), ({}, 5), ({}, None), ({}, ["a"]), ({}, {}), ({}, {ID: {"any": "object"}}),
        ({"type": "object", "properties": {"name": {}}}, {"name": "x", "more": 1}),
        ({"type": "object", "required": ["name"]}, {"name": "x"}),
        ({"$ref": "#/$defs/form", "$defs": {"form": {"properties": {"name": {"type": "string"}}}}}, {"name": "x"}),
        ({"anyOf": [{"type": "string"}, {"properties": {"name": {}}}]}, {"name": "x"}),
    ],
)  # fmt: skip
def test_a_bare_answer_is_taken_where_nothing_else_can_be_meant(schema: Any, answer: Any) -> None:
    (checked,) = check_answers(waiting(schema), answer)
    assert checked.interrupt_id == ID


async def test_a_thread_whose_question_was_answered_under_a_mistyped_id_waits_on(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        return {"log": [str(await ctx.ask("go on?"))]}

    app = compile_graph(graph)
    (question,) = (await app.run({}, "t")).interrupts
    for wrong in ("nope", question.id[:-1], question.tool_id or "approval"):
        with pytest.raises(AnswerRefused) as refused:
            await app.answer("t", {wrong: {"decision": "approve"}})
        assert refused.value.code in ("interrupt_not_found", "answer_stale")
    assert (await app.thread("t").state()).status == "waiting"
    assert (await app.answer("t", {question.id: {"a": 1}})).status == "completed"


@pytest.mark.parametrize(
    ("kind", "value", "near"),
    [
        ("approval", {"decision": "approve", "argument": {}}, "'arguments'"),
        ("approval", {"decsion": "approve"}, "'decision'"),
        ("approval", {"decision": "aprove"}, "'approve'"),
        ("breakpoint", {"decision": "continue", "updates": {}}, "'update'"),
        ("breakpoint", {"decision": "continu"}, "'continue'"),
        ("outcome_unknown", {"decision": "result", "resutl": 1}, "'result'"),
    ],
)
def test_a_misspelt_field_or_word_of_a_decision_is_refused_with_the_near_one(kind: str, value: Any, near: str) -> None:
    question = Interrupt(id=ID, kind=kind, run_id="r", key="", frame=0, node="ask", schema={})
    with pytest.raises(AnswerRefused, match=f"did you mean {near}") as refused:
        check_answers(Machine(interrupts={ID: question}, status="waiting"), {ID: value})
    assert refused.value.code == "answer_invalid"
