"""Every public call refuses, before anything happens, an option that it does not have and a value of another kind.

The table is made from the calls themselves: a new option is in it from the day that it exists.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import graphflow
from graphflow import (
    Application,
    CompiledGraph,
    Context,
    Goto,
    Graph,
    GraphflowError,
    MemoryCheckpointer,
    PostgresCheckpointer,
    SqliteCheckpointer,
    Thread,
    ToolRegistry,
)
from graphflow.arguments import arguments_of, checked
from graphflow.errors import ArgumentRefused

CLASSES = (
    Application,
    CompiledGraph,
    Context,
    Goto,
    Graph,
    PostgresCheckpointer,
    SqliteCheckpointer,
    Thread,
    ToolRegistry,
)
UNCHECKED = {
    "CompiledGraph.__init__", "CompiledGraph.over", "Thread.__init__",  # made by graphflow alone
    "Context.content", "Context.reasoning", "Context.emit",  # one call per delta: they check their one argument
    "Context.idempotency_key", "Context.ask", "Context.step",  # overridden by the node run, whose calls are checked
    "Graph.function", "ToolRegistry.get", "ToolRegistry.require", "ToolRegistry.hint", "ToolRegistry.for_keywords",
    "ToolRegistry.specs", "ToolRegistry.overlaid", "ToolRegistry.declares", "ToolRegistry.of_server", "ToolRegistry.gone",
    "ToolRegistry.capabilities", "ToolRegistry.with_servers",
}  # fmt: skip
"""Calls without the check, each for a reason."""


class Wrong:
    """A value of no kind that any call takes."""

    def __repr__(self) -> str:
        return "<wrong>"


def calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public call of the package, by its name."""
    for name in ("load_graph", "tool", "function", "node", "relax_collector"):
        yield name, getattr(graphflow, name)
    for cls in CLASSES:
        members = {name: member for base in reversed(cls.__mro__) for name, member in vars(base).items()}
        for name, member in members.items():
            own = getattr(cls, name, member)
            call = getattr(own, "__func__", own)
            mine = name == "__init__" or not name.startswith("_")
            if mine and inspect.isfunction(call) and call.__module__.startswith("graphflow."):
                yield f"{cls.__name__}.{name}", call


def public() -> dict[str, Callable[..., Any]]:
    """Those with parameters that the application's base does not bring along."""
    return {
        name: call
        for name, call in calls()
        if len(inspect.signature(call).parameters) > (0 if "." not in name else 1)
        and not (name.startswith("Application.") and name != "Application.__init__")
        and not ("Checkpointer." in name and not name.endswith("__init__"))
    }


CHECKED = {name: call for name, call in public().items() if name not in UNCHECKED}
OPTIONS = [
    (name, option)
    for name, call in CHECKED.items()
    if (arguments := arguments_of(inspect.unwrap(call, stop=lambda one: arguments_of(one) is not None))) is not None
    for option in arguments.kinds()
    if arguments.kinds()[option]
]


def use(call: Callable[..., Any], called: str, /, **options: Any) -> None:
    """Calls it with these arguments only; an argument that is missing would be a `TypeError` of Python's own."""
    made = call(*([None] if "." in called else []), **options)
    if inspect.iscoroutine(made):
        made.close()


def test_every_public_call_checks_its_arguments() -> None:
    unchecked = {name for name, call in CHECKED.items() if not hasattr(call, "__arguments__")}
    assert {name for name in unchecked if not name.endswith("_sync")} == set()
    assert public().keys() >= UNCHECKED


@pytest.mark.parametrize("name", CHECKED)
def test_an_option_that_there_is_not_is_refused_with_the_near_name(name: str) -> None:
    arguments = arguments_of(inspect.unwrap(CHECKED[name], stop=lambda one: arguments_of(one) is not None))
    assert arguments is not None
    for option in arguments.kinds():
        if len(option) > 3 and option not in ("self", "args"):
            wrong = option[:-2] + option[-1]
            if wrong in arguments.kinds():  # `timeout_ms`
                continue
            with pytest.raises(TypeError, match=rf"\(\) has no option '{wrong}'; did you mean '\w+'") as refused:
                use(CHECKED[name], name, **{wrong: None})
            assert isinstance(refused.value, ArgumentRefused)
            assert refused.value.code == "invalid_input"


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=[f"{name}-{option}" for name, option in OPTIONS])
def test_a_value_of_another_kind_is_refused_with_place_value_rule_and_next_step(name: str, option: str) -> None:
    with pytest.raises(ArgumentRefused) as refused:
        use(CHECKED[name], name, **{option: Wrong()})
    called = name.removesuffix(".__init__").rpartition(".")[2]
    assert str(refused.value).startswith(f"{called}() got {option}=<wrong>, of type Wrong; {option} takes ")
    assert str(refused.value).partition(" takes ")[2].partition(": ")[2]


@pytest.mark.parametrize("name", [name for name, option in OPTIONS if option == "limit"])
@pytest.mark.parametrize(
    ("limit", "rule"), [(0, "at least 1"), (-1, "at least 1"), (True, "a whole number"), (1.5, "a whole number"), (1 << 70, "at most 9")]
)  # fmt: skip
def test_a_page_has_a_length_that_it_can_have(name: str, limit: Any, rule: str) -> None:
    """A page of no lines asked the store again and again without an end, and a very long one made SQLite's own error."""
    with pytest.raises(GraphflowError) as refused:
        use(CHECKED[name], name, limit=limit)
    assert refused.value.code == "invalid_input"
    assert f"got limit={limit}" in str(refused.value) and rule in str(refused.value)


def test_every_option_with_a_plain_type_is_in_the_table() -> None:
    named = {option for _, option in OPTIONS}
    assert {
        "thread_id", "hold_ms", "budget", "interrupt_before", "checkpointer", "model", "tools", "functions", "limit", "by",
        "max_concurrency", "inputs", "url", "path", "on_busy", "name", "timeout_s", "schema", "dry_run",
    } <= named  # fmt: skip


# --- what the messages say


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda app: app.run_sync({}, thread_id=5), "run_sync() got thread_id=5, of type int; thread_id takes text or None: write thread_id='5'"),
        (lambda app: app.run_sync({}, hold_ms="5"), "run_sync() got hold_ms='5', of type str; hold_ms takes a whole number or None: write hold_ms=5"),
        (lambda app: app.batch_sync("hi"), "batch_sync() got inputs='hi', of type str; inputs takes a list: write inputs=['hi']"),
        (lambda app: app.run_sync({}, interrupt_before="a"), "run_sync() got interrupt_before='a', of type str; interrupt_before takes a list of texts: write interrupt_before=['a']"),
        (lambda app: app.threads_sync(limit=True), "threads_sync() got limit=True, of type bool; limit takes a whole number: give one, or leave it out"),
        (lambda app: app.stream_sync({}, run_id=7), "stream_sync() got run_id=7, of type int; run_id takes text: write run_id='7'"),
        (lambda app: app.recover_sync(max_concurrency=0), "recover_sync() got max_concurrency=0; it must be at least 1"),
        (lambda app: app.recovering(interval_s=0), "recovering() got interval_s=0; it must be above 0"),
        (lambda app: app.run_sync({}, hold_ms=-1), "run_sync() got hold_ms=-1; it must be at least 0"),
        (lambda app: app.thread("t").edit_sync({}, replace="n"), "edit_sync() got replace='n', of type str; replace takes a list: write replace=['n']"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_to_write(use: Callable[[CompiledGraph], Any], message: str) -> None:
    app = graph().compile(checkpointer=MemoryCheckpointer())
    with pytest.raises(GraphflowError) as refused:
        use(app)
    assert (str(refused.value), refused.value.code) == (message, "invalid_input")


load: Any = graphflow.load_graph


def graph() -> Any:  # what it is given here is wrong on purpose
    made = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})

    @made.node(next="end")
    async def a(state: Any) -> dict[str, int]:
        return {"n": 1}

    return made


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: load({}, model="gpt-6-luna"), '{"providerKey": "openai", "model": "gpt-6-luna"}'),
        (lambda: graph().compile(model="gpt-6-luna"), '{"providerKey": "openai", "model": "gpt-6-luna"}'),
        (lambda: graph().compile(checkpointer="threads.db"), "give an object such as SqliteCheckpointer('threads.db')"),
        (lambda: graph().compile(checkpointer=SqliteCheckpointer), "takes a checkpointer or None"),
        (
            lambda: graph().compile(tools=["bash"]),
            "tools[0] is 'bash', of type str; give a `@tool` function or a `Tool`",
        ),
        (lambda: load({}, functions={"f": 1}), "functions['f'] is 1, of type int"),
        (lambda: graph().compile(validate="no"), "write True or False"),
    ],
)
def test_what_makes_a_graph_run_is_checked_when_it_is_given(use: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentRefused) as refused:
        use()
    assert message in str(refused.value)


def test_no_secret_of_a_wrong_value_is_shown() -> None:
    with pytest.raises(ArgumentRefused) as refused:
        PostgresCheckpointer(url=["postgresql://me:hunter22@host/db"])  # type: ignore[arg-type]
    assert "hunter22" not in str(refused.value)


def test_a_right_call_is_made_and_keeps_its_signature() -> None:
    @checked
    def made(a: str, *, b: int | None = None, **rest: Any) -> Any:
        return a, b, rest

    assert made("x", b=None, c=1) == ("x", None, {"c": 1})
    assert str(inspect.signature(made)) == "(a: 'str', *, b: 'int | None' = None, **rest: 'Any') -> 'Any'"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        made()  # type: ignore[call-arg]
