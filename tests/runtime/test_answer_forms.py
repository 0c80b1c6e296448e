"""`ctx.ask(schema=…)` and `ctx.call_model(schema=…)`: a schema is checked before anything acts, and a class gives its objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field, field_validator

from graphflow import Context, Graph, MemoryCheckpointer
from graphflow.errors import AnswerRefused
from graphflow.models.scripted.model import ScriptedModel
from tests.runtime.conftest import Compile


class Verdict(BaseModel):
    ok: bool
    score: int = Field(ge=0, le=10)
    why: str = "no reason"

    @field_validator("why")
    @classmethod
    def said(cls, why: str) -> str:
        if why == "because":
            raise ValueError("say more")
        return why.strip()


@dataclass
class Part:
    name: str


@dataclass
class Order:
    parts: list[Part]
    note: str | None = None


class Draft(TypedDict):
    title: str
    words: int


RIGHT: list[tuple[type[Any], dict[str, Any], Any]] = [
    (Verdict, {"ok": True, "score": 3, "why": " good "}, Verdict(ok=True, score=3, why="good")),
    (Order, {"parts": [{"name": "a"}]}, Order([Part("a")])),
    (Draft, {"title": "x", "words": 2}, {"title": "x", "words": 2}),
]
WRONG: list[tuple[type[Any], dict[str, Any]]] = [
    (Verdict, {"ok": True, "score": 11}),
    (Verdict, {"ok": True}),
    (Order, {"parts": [{"name": 5}]}),
    (Draft, {"title": "x"}),
]
BROKEN: list[tuple[Any, str]] = [
    ({"type": "intger"}, "did you mean 'integer'?"),
    ({"type": "object", "propertys": {}}, "'propertys' is not a JSON Schema keyword"),
    ({"type": "object", "properties": {"a": {"type": 5}}}, "/properties/a/type"),
    ({"type": "object", "oneOf": 5}, "not a valid JSON Schema"),
    (5, "schema=5; give a JSON Schema, or a pydantic model, dataclass or TypedDict"),
    ("integer", "schema='integer'; give a JSON Schema"),
    (object, "give a JSON Schema"),
]


class Seen:
    """A graph of one node that calls its work, and what the work got."""

    def __init__(self, work: Callable[[Context], Any]) -> None:
        self.got: list[Any] = []
        self.graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})

        @self.graph.node(next="end")
        async def work_(state: Any, ctx: Context) -> dict[str, int]:
            self.got.append(await work(ctx))
            return {"n": 1}


def asks(schema: Any) -> Seen:
    return Seen(lambda ctx: ctx.ask("Well?", schema=schema))


def calls(schema: Any) -> Seen:
    return Seen(lambda ctx: ctx.call_model("Well?", schema=schema))


def model(*texts: str) -> ScriptedModel:
    return ScriptedModel({"turns": [{"text": text} for text in texts]})


# --- a class gives its objects


@pytest.mark.parametrize(("cls", "answer", "expected"), RIGHT)
async def test_an_answer_is_an_object_of_the_class(
    compile_graph: Compile, cls: type[Any], answer: dict[str, Any], expected: Any
) -> None:
    seen = asks(cls)
    app = compile_graph(seen.graph)
    waiting = await app.run({}, "t")
    assert waiting.interrupts[0].schema["type"] == "object"
    assert (await app.answer("t", {waiting.interrupts[0].id: answer})).status == "completed"
    assert seen.got == [expected]
    assert type(seen.got[0]) is type(expected)


@pytest.mark.parametrize(("cls", "answer"), WRONG)
async def test_an_answer_that_does_not_fit_the_class_is_refused_and_the_question_stays(
    compile_graph: Compile, cls: type[Any], answer: dict[str, Any]
) -> None:
    app = compile_graph(asks(cls).graph)
    waiting = await app.run({}, "t")
    with pytest.raises(AnswerRefused) as refused:
        await app.answer("t", {waiting.interrupts[0].id: answer})
    assert refused.value.code == "answer_invalid"
    assert (await app.thread("t").state()).status == "waiting"


async def test_an_answer_that_only_a_validator_refuses_fails_the_node(compile_graph: Compile) -> None:
    app = compile_graph(asks(Verdict).graph)
    waiting = await app.run({}, "t")
    done = await app.answer("t", {waiting.interrupts[0].id: {"ok": True, "score": 1, "why": "because"}})
    assert done.error is not None
    assert (done.error["code"], "say more" in done.error["message"]) == ("validation", True)


@pytest.mark.parametrize(("cls", "answer", "expected"), RIGHT)
async def test_a_model_gives_an_object_of_the_class_also_when_its_answer_is_on_record(
    compile_graph: Compile, cls: type[Any], answer: dict[str, Any], expected: Any
) -> None:
    async def work(ctx: Context) -> Any:
        found = await ctx.call_model("Well?", schema=cls)
        await ctx.ask("Go on?")
        return found

    seen, played = Seen(work), model(json.dumps(answer))
    app = compile_graph(seen.graph, model=played)
    await app.run({}, "t")
    assert (await app.answer("t", "yes")).status == "completed"
    assert seen.got == [expected]
    assert type(seen.got[0]) is type(expected)
    assert len(played.requests) == 1


@pytest.mark.parametrize(("cls", "answer"), WRONG)
async def test_a_models_answer_that_does_not_fit_the_class_fails_the_node(
    cls: type[Any], answer: dict[str, Any]
) -> None:
    done = await calls(cls).graph.compile(model=model(json.dumps(answer))).run({})
    assert done.error is not None
    assert done.error["code"] == "validation"


# --- what is wrong is found before anything acts


@pytest.mark.parametrize(("schema", "message"), BROKEN)
async def test_a_question_with_a_broken_schema_is_never_asked(
    compile_graph: Compile, schema: Any, message: str
) -> None:
    app = compile_graph(asks(schema).graph)
    done = await app.run({}, "t")
    assert (done.status, done.interrupts) == ("failed", ())
    assert done.error is not None
    assert (done.error["code"], message in done.error["message"]) == ("validation", True), done.error["message"]


@pytest.mark.parametrize(("schema", "message"), [*BROKEN, ({"type": "array"}, "a schema of type 'array'")])
async def test_no_model_is_called_with_a_broken_schema(schema: Any, message: str) -> None:
    played = model("{}")
    done = await calls(schema).graph.compile(model=played).run({})
    assert done.error is not None
    assert (done.error["code"], message in done.error["message"]) == ("validation", True), done.error["message"]
    assert not played.requests


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda ctx: ctx.ask(5), "ask() got message=5, of type int; message takes text: write message='5'"),
        (lambda ctx: ctx.ask("a", schma={}), "ask() has no option 'schma'; did you mean 'schema'?"),
        (lambda ctx: ctx.ask("a", hold_ms="5"), "ask() got hold_ms='5'"),
        (lambda ctx: ctx.ask("a", hold_ms=-5), "ask() got hold_ms=-5; it must be at least 0"),
        (lambda ctx: ctx.ask("a", expires="soon"), "'soon' is not an ISO 8601 duration"),
        (lambda ctx: ctx.ask("a", role=5), "ask() got role=5"),
        (lambda ctx: ctx.step("a", lambda: 1, effect="read"), "step() has no option 'effect'; did you mean 'effects'?"),
        (lambda ctx: ctx.step("a", 5), "step() got fn=5, of type int; fn takes a function"),
        (lambda ctx: ctx.call_model("a", shema={}), "call_model() has no option 'shema'; did you mean 'schema'?"),
        (lambda ctx: ctx.call_model("a", model=5), "call_model() got model=5"),
        (lambda ctx: ctx.call_model("a", tools=["nope"]), "'nope'"),
    ],
)
async def test_a_wrong_call_of_the_context_fails_the_node_and_does_nothing(
    work: Callable[[Any], Any], message: str
) -> None:
    played = model("fine")
    app = Seen(work).graph.compile(checkpointer=MemoryCheckpointer(), model=played)
    done = await app.run({}, "t")
    assert (done.status, done.interrupts, len(played.requests)) == ("failed", (), 0)
    assert done.error is not None
    assert message in done.error["message"]
