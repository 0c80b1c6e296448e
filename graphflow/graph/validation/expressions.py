"""Checks of everything that is written in expressions: names, types, and that results fit where they go."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from graphflow.errors import DefinitionError
from graphflow.graph.definition.document import NODE_FORMS, GraphRef, NodeDefinition
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.json_schema import check_sketch
from graphflow.graph.definition.regions import bodies_of, body_name, input_of, is_fan
from graphflow.graph.definition.suggestions import choose
from graphflow.graph.definition.types import Hole, declared_types, fits, show_types
from graphflow.graph.expressions.compiler import Expression, compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.templates import compile_template
from graphflow.graph.validation.context import ValidationContext
from graphflow.graph.validation.scopes import ScopeMap, fan_schema
from graphflow.graph.validation.state import LIST_REDUCERS

_NO_OUT = "only `set` and `next` of the node itself see its output; keep it in a state key"
_NO_ANSWER = "only `set` and `next` of an `ask` node see the answer; keep it in a state key"

_SHOWN = {
    "bool": "true or false", "int": "a whole number", "double": "a number with decimals", "string": "text", "list": "a list",
    "map": "an object", "null": "null",
}  # fmt: skip


class StateUse:
    """Which state keys are read and written, for warnings."""

    def __init__(self) -> None:
        self.read: dict[str, str] = {}
        """Key → pointer of the first place that reads it."""
        self.written: dict[str, str] = {}
        self.visits: list[tuple[str | None, str, str]] = []
        """(node whose frame it is, node that is counted, pointer) of every `visits.NODE`."""
        self.node: str | None = None
        """The node that is looked at; None for the document's own expressions."""

    def reads(self, refs: Iterable[tuple[str, ...]], pointer: str) -> None:
        for ref in refs:
            if ref[0] == "state" and len(ref) > 1:
                self.read.setdefault(ref[1], pointer)
            elif ref[0] == "visits" and len(ref) > 1:
                self.visits.append((self.node, ref[1], pointer))


def check_expressions(context: ValidationContext, inputs: Mapping[str, Any]) -> StateUse:
    """Every expression of the document; what is read and written comes back.

    Args:
        context: the document.
        inputs: node, or body (`fan`, `fan[branch]`), that is a subgraph → that graph's input schema.
    """
    usage = StateUse()
    places = ScopeMap(context)
    for name, node in context.nodes.items():
        here, usage.node = places.at(name), name
        outside = _outside(here)
        _check_with(context, name, node, outside, usage, inputs)
        _check_ask(context, name, node, outside, usage)
        inside = _inside(context, name, node, here)
        _check_set(context, name, node, inside, usage)
        _check_conditions(context, name, node, inside, usage)
        _check_items(context, name, node, outside, usage)
        _check_bodies(context, name, node, _outside(places.body_of(name)) if is_fan(node) else outside, usage, inputs)
    usage.node = None
    if context.document.result is not None:
        _compiled(context, "/result", context.document.result, _outside(places.document()), usage)
    _check_visits(context, usage)
    return usage


def _check_visits(context: ValidationContext, usage: StateUse) -> None:
    """Warnings: `visits` counts entries in one frame, and a body's frame never stands on nodes outside it (E10, E11)."""
    home = context.survey.home
    for node, counted, pointer in usage.visits:
        here, there = None if node is None else home.get(node), home.get(counted)
        if counted in context.nodes and here is not there:
            where = "the main flow" if here is None else f"the body of {body_name(here.fan, here.branch)!r}"
            message = (
                f"visits.{counted} is always 0 here: it counts entries in {where}, which never comes to {counted!r}"
            )
            context.issue(
                pointer,
                message,
                "count a node of the same body, or keep a count in the state",
                kind="graph",
                warning=True,
            )


def _outside(environment: Environment) -> Environment:
    """The variables of what is evaluated before the node has run."""
    return environment.without(out=_NO_OUT, answer=_NO_ANSWER)


def _inside(context: ValidationContext, name: str, node: NodeDefinition, environment: Environment) -> Environment:
    """The variables of `set` and `next`: the node's output and, after a question, the answer."""
    if node.ask is not None:
        return environment.having(out=node.ask.schema or None, answer=node.ask.schema or None)
    if context.is_lost(name, *NODE_FORMS):
        environment = environment.loosely("answer")  # it may have been meant as an `ask`
    return environment.without(answer=_NO_ANSWER).having(out=_out_schema(context, name, node))


def _out_schema(context: ValidationContext, name: str, node: NodeDefinition, depth: int = 0) -> Any:
    """The schema of the node's output; a kind may tell it for this very node (`out_schema_of`)."""
    if is_fan(node):
        return fan_schema(context, name, node, functools.partial(_out_schema, context), depth)
    if node.ask is not None:
        return node.ask.schema or None
    kind = context.kinds.find(node.use) if node.use is not None else None
    if kind is None:
        return None
    of_node = getattr(kind, "out_schema_of", None)
    return kind.out_schema if of_node is None else of_node(node)


def _compiled(
    context: ValidationContext, pointer: str, source: str, environment: Environment, usage: StateUse
) -> Expression | None:
    try:
        expression = compile_expression(source, environment)
    except DefinitionError as error:
        context.take(pointer, error.errors)
        return None
    usage.reads(expression.refs, pointer)
    return expression


def _check_set(
    context: ValidationContext, name: str, node: NodeDefinition, environment: Environment, usage: StateUse
) -> None:
    for key, source in node.set.items():
        pointer = at("nodes", name, "set", key)
        expression = _compiled(context, pointer, source, environment, usage)
        usage.written.setdefault(key, pointer)
        if key not in context.environment.state:
            if context.knows_state:
                hint = choose(key, context.environment.state, none="declare it under `state.properties`")
                context.issue(pointer, f"{key!r} is not a state key", hint)
        elif expression is not None and key in context.state:
            _check_fit(context, pointer, key, expression)


def _check_fit(context: ValidationContext, pointer: str, key: str, expression: Expression) -> None:
    """The expression's type is one that the key and its reducer take."""
    schema = context.state[key]
    reduce = schema.get("x-reducer", "replace")
    if not isinstance(reduce, str):
        return  # an error of its own
    given = _SHOWN.get(expression.type, expression.type)
    if reduce in LIST_REDUCERS:
        if not fits(expression.type, ["array"]):
            message = f"key {key!r} ({reduce}) takes a list and adds its items, and {expression.source!r} gives {given}"
            context.issue(pointer, message, f'write "[{expression.source}]"', kind="type")
        return
    if reduce.startswith("fn:"):
        return  # the function decides what it takes
    names = declared_types(schema)
    if not fits(expression.type, names):
        message = f"key {key!r} takes {show_types(names)}, and {expression.source!r} gives {given}"
        context.issue(pointer, message, _fit_hint(expression, names), kind="type")


def _fit_hint(expression: Expression, names: tuple[str, ...]) -> str:
    if expression.type == "null":
        return f'let the key be null: "type": ["{names[0]}", "null"]'
    wrapped = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}.get(names[0])
    if wrapped is not None and expression.type in ("int", "double", "string", "bool"):
        return f"convert it: {wrapped}({expression.source})"
    return "change the expression or the key's type"


def _check_conditions(
    context: ValidationContext, name: str, node: NodeDefinition, environment: Environment, usage: StateUse
) -> None:
    if not isinstance(node.next, tuple):
        return
    for index, route in enumerate(node.next):
        if route.when is None:
            continue
        pointer = at("nodes", name, "next", index, "if")
        expression = _compiled(context, pointer, route.when, environment, usage)
        if expression is not None and expression.type not in ("bool", "dyn"):
            given = _SHOWN.get(expression.type, expression.type)
            hint = f"compare it, as in {_comparison(expression)!r}"
            context.issue(pointer, f"a condition is true or false, and {route.when!r} gives {given}", hint, kind="type")


def _comparison(expression: Expression) -> str:
    by_type = {"int": "> 0", "double": "> 0.0", "string": "!= ''", "list": None, "map": None}
    tail = by_type.get(expression.type, "== true")
    return f"size({expression.source}) > 0" if tail is None else f"{expression.source} {tail}"


def _check_items(
    context: ValidationContext, name: str, node: NodeDefinition, environment: Environment, usage: StateUse
) -> None:
    """A map runs over a list."""
    if node.map is None:
        return
    pointer = at("nodes", name, "map")
    items = _compiled(context, pointer, node.map, environment, usage)
    if items is not None and items.type not in ("list", "dyn"):
        given = _SHOWN.get(items.type, items.type)
        context.issue(pointer, f"a map runs over a list, and {node.map!r} gives {given}", _LIST_HINT, kind="type")


_LIST_HINT = "name a state key of type array, or write a list: [state.a, state.b]"


def _check_bodies(
    context: ValidationContext,
    name: str,
    node: NodeDefinition,
    environment: Environment,
    usage: StateUse,
    inputs: Mapping[str, Any],
) -> None:
    """The input of bodies that are subgraphs: `with`, else the item under its name."""
    for body in bodies_of(name, node):
        if not isinstance(body.do, GraphRef):
            continue
        own = body.do.with_ is not None
        pointer = (
            f"{body.pointer}/with" if own else at("nodes", name, "with") if node.with_ is not None else body.pointer
        )
        given = input_of(node, body)
        _check_input(context, pointer, given, inputs.get(body_name(name, body.branch)), environment, usage)


def _check_input(
    context: ValidationContext, pointer: str, given: Any, schema: Any, environment: Environment, usage: StateUse
) -> None:
    sketch = _templated(context, pointer, given, environment, usage)
    if isinstance(sketch, Hole) and sketch.type in ("dyn", "map"):
        return
    if not isinstance(sketch, Mapping):
        _no_arguments(context, pointer, sketch)
        return
    context.take(pointer, check_sketch(sketch, schema))


def _no_arguments(context: ValidationContext, pointer: str, sketch: Any) -> None:
    given = _SHOWN.get(sketch.type, sketch.type) if isinstance(sketch, Hole) else repr(sketch)
    context.issue(pointer, f"`with` is an object of arguments, not {given}", 'as in {"name": "${…}"}', kind="type")


def _check_ask(
    context: ValidationContext, name: str, node: NodeDefinition, environment: Environment, usage: StateUse
) -> None:
    if node.ask is None:
        return
    if node.ask.show is not None:
        _compiled(context, at("nodes", name, "ask", "show"), node.ask.show, environment, usage)
    _templated(context, at("nodes", name, "ask", "message"), node.ask.message, environment, usage)


def _templated(context: ValidationContext, pointer: str, value: Any, environment: Environment, usage: StateUse) -> Any:
    """The template's sketch; a `Hole` for one that is wrong, so that nothing more is said about it."""
    try:
        template = compile_template(value, environment)
    except DefinitionError as error:
        context.take(pointer, error.errors)
        return Hole("dyn", "")
    usage.reads(template.refs, pointer)
    return template.sketch


def _check_with(
    context: ValidationContext,
    name: str,
    node: NodeDefinition,
    environment: Environment,
    usage: StateUse,
    inputs: Mapping[str, Any],
) -> None:
    if is_fan(node):
        return  # it is the input of bodies
    pointer = at("nodes", name, "with")
    sketch = _templated(context, pointer, node.with_, environment, usage) if node.with_ is not None else {}
    if isinstance(sketch, Hole) and sketch.type in ("dyn", "map"):
        return
    if not isinstance(sketch, Mapping):
        _no_arguments(context, pointer, sketch)
        return
    if context.is_lost(name, "with", "use", "graph"):
        return
    for issue in check_sketch(sketch, _with_schema(context, name, node, inputs)):
        place = pointer if node.with_ is not None else at("nodes", name)
        context.errors.append(replace(issue, pointer=place + issue.pointer))


def _with_schema(context: ValidationContext, name: str, node: NodeDefinition, inputs: Mapping[str, Any]) -> Any:
    if node.use is not None:
        kind = context.kinds.find(node.use)
        return None if kind is None else kind.with_schema
    return inputs.get(name) if node.graph is not None else None


def check_state_use(context: ValidationContext, usage: StateUse) -> None:
    """Warnings: keys that are read and never written, written and never read, or neither.

    Python nodes (`node:NAME`) read and write what they like, so with one of them nothing is certain.
    """
    if any((node.use or "").startswith("node:") for node in context.nodes.values()):
        return
    if context.lost or context.lost_top:
        return
    whole_state_shown = context.document.result is None and "messages" not in context.state
    for key, schema in context.state.items():
        if key == "messages":
            continue  # models read it, and each input writes it
        pointer = at("state", "properties", key)
        read, written = usage.read.get(key), usage.written.get(key)
        if read is not None and written is None and schema.get("default") is None:
            message = f"state key {key!r} is read (at {read}) and never written, so it is always null"
            context.issue(pointer, message, "give it a default, or let a node `set` it", kind="graph", warning=True)
        elif written is not None and read is None and not whole_state_shown and schema.get("x-expose") != "state":
            message = f"state key {key!r} is written (at {written}) and never read"
            context.issue(pointer, message, "read it, or remove it", kind="graph", warning=True)
        elif read is None and written is None and not whole_state_shown:
            message = f"state key {key!r} is neither read nor written"
            context.issue(pointer, message, "remove it", kind="graph", warning=True)
