"""Checks of the state schema, the input schema and the budget (spec 2.1 rules 4 and 8, E9, E11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import RESERVED_NODES, Budget
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.json_schema import check_schema, compile_schema
from graphflow.graph.definition.types import declared_types, show, show_types
from graphflow.graph.expressions.parser import RESERVED
from graphflow.graph.validation.context import STATE_KEYWORDS, ValidationContext
from graphflow.graph.validation.model_prices import prices_hint, unpriced, with_subgraphs
from graphflow.suggestions import Suggestion, choose, meant, nearest

NAME = re.compile(r"[a-z_][a-zA-Z0-9_]*")

REDUCERS = ("replace", "append", "merge", "union", "sum", "min", "max", "messages")
LIST_REDUCERS = frozenset({"append", "messages", "union"})
"""Reducers that take a list and add its items."""

_TAKES = {
    "append": ("array",),
    "messages": ("array",),
    "union": ("array",),
    "merge": ("object",),
    "sum": ("number", "integer"),
    "min": ("number", "integer"),
    "max": ("number", "integer"),
}
"""Reducer → the JSON types of the keys that it is for."""

_MARKS = {"x-scope": ("thread", "run", "branch"), "x-expose": ("all", "state")}
_MARK_NAMES = (*_MARKS, "x-reducer", "x-tasks")


def check_name(context: ValidationContext, pointer: str, name: str, what: str) -> None:
    """A name that expressions can use: `[a-z_][a-zA-Z0-9_]*` and no word of CEL (E16)."""
    if name in RESERVED:
        context.issue(pointer, f"{name!r} can't name a {what}: it is a reserved word of CEL", "choose another name")
    elif NAME.fullmatch(name) is None:
        wanted = re.sub(r"[^a-zA-Z0-9_]+", "_", name).strip("_")
        wanted = wanted[:1].lower() + wanted[1:]
        hint = (
            f"write {wanted!r}"
            if NAME.fullmatch(wanted)
            else "start with a lowercase letter, then letters, digits or _"
        )
        context.issue(pointer, f"{show(name)} can't name a {what}: names match [a-z_][a-zA-Z0-9_]*", hint)


def check_state(context: ValidationContext) -> None:
    """The state schema: its form, and each key's schema, reducer, default and marks."""
    state = context.data.get("state")
    if not isinstance(state, Mapping):
        return  # absent, or the shape says so
    for key in state:
        if key not in STATE_KEYWORDS:
            hint = (
                "put state keys under `properties`" if isinstance(state[key], Mapping) else choose(key, STATE_KEYWORDS)
            )
            context.issue(at("state", key), f"{key!r} is not expected in `state`", hint, kind="shape")
    if state.get("type", "object") != "object":
        context.issue(
            "/state/type", f"the state is an object, not {show(state['type'])}", 'write "object"', kind="type"
        )
    properties = state.get("properties", {})
    if not isinstance(properties, Mapping):
        context.issue("/state/properties", f"expected an object, not {show(properties)}", "key → schema", kind="shape")
        return
    for key, schema in properties.items():
        check_name(context, at("state", "properties", key), key, "state key")
        _check_key(context, key, schema, state.get("$defs"))


def _check_key(context: ValidationContext, key: str, schema: Any, definitions: Any) -> None:
    pointer = at("state", "properties", key)
    if not isinstance(schema, Mapping):
        message = f"the schema of a state key is an object, not {show(schema)}"
        context.issue(pointer, message, 'as in {"type": "string", "default": ""}', kind="shape")
        return
    # A `$ref` of a key refers to the definitions that stand beside all keys.
    whole = schema if definitions is None else {**schema, "$defs": definitions}
    issues = check_schema(whole)
    context.take(pointer, issues)
    for mark in schema:
        if mark.startswith("x-") and mark not in _MARK_NAMES and (near := nearest(mark, _MARK_NAMES)):
            message = f"{mark!r} is not a keyword of a state key"
            context.issue(pointer + at(mark), message, Suggestion.of(mark, near), kind="shape")
    for mark, allowed in _MARKS.items():
        if mark in schema and schema[mark] not in allowed:
            hint = meant(str(schema[mark]), allowed)
            context.issue(pointer + at(mark), f"{mark} is one of {', '.join(allowed)}, not {show(schema[mark])}", hint)
    _check_tasks(context, pointer, schema)
    reduce = schema.get("x-reducer", "replace")
    _check_reducer(context, pointer, reduce, schema)
    if not issues and "default" in schema:
        _check_default(context, pointer, reduce, whole)


def _check_tasks(context: ValidationContext, pointer: str, schema: Mapping[str, Any]) -> None:
    """`x-tasks` names the nodes that work on the tasks of the plan that the key holds."""
    if "x-tasks" not in schema:
        return
    names, place = schema["x-tasks"], pointer + "/x-tasks"
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        context.issue(place, f"x-tasks is a list of node names, not {show(names)}", 'as in ["execute", "tools"]')
        return
    for index, name in enumerate(names):
        if context.nodes and name not in context.nodes:
            context.issue(f"{place}/{index}", f"no node is named {name!r}", choose(name, context.nodes))


def _check_reducer(context: ValidationContext, pointer: str, reduce: Any, schema: Mapping[str, Any]) -> None:
    place = pointer + "/x-reducer"
    if isinstance(reduce, str) and reduce.startswith("fn:"):
        name = reduce[3:]
        if context.kinds.reducer(name) is None:
            hint = (
                "register the function in Python and write its bare name: a document holds no import path"
                if not name.isidentifier()
                else "register it in Python before the graph is loaded"
            )
            context.issue(place, f"no reducer is registered as {show(reduce)}", hint)
        return
    if reduce not in REDUCERS:
        context.issue(place, f"{show(reduce)} is not a reducer", choose(str(reduce), (*REDUCERS, "fn:NAME")))
        return
    takes, declared = _TAKES.get(reduce, ()), declared_types(schema)
    # Null is left aside: a nullable key begins without a value, and its first write gives one.
    if takes and declared and not set(declared) - {"null"} <= set(takes):
        hint = f"give the key the type {takes[0]!r}, or another reducer"
        message = f"reducer {reduce!r} is for {show_types(takes)}, and the key's type is {show_types(declared)}"
        context.issue(place, message, hint, kind="type")


def _check_default(context: ValidationContext, pointer: str, reduce: Any, schema: Mapping[str, Any]) -> None:
    default = schema["default"]
    if default is None and isinstance(reduce, str) and reduce in LIST_REDUCERS:
        return  # an empty log
    context.take(pointer + "/default", compile_schema(schema).errors(default))


def check_input(context: ValidationContext) -> None:
    """The input schema is a JSON Schema."""
    schema = context.document.input
    if schema is not None:
        context.take("/input", check_schema(schema))
        declared = declared_types(schema)
        if declared and "object" not in declared:
            context.issue(
                "/input/type", f"the input is an object, not {show_types(declared)}", 'write "object"', kind="type"
            )


def check_budget(context: ValidationContext, subgraphs: Mapping[str, CheckedDocument]) -> None:
    """Every limit is above zero, `onExceeded` is a node, and a cost limit has prices."""
    budget = context.document.budget
    for field in msgspec.structs.fields(Budget):
        value = getattr(budget, field.name)
        if isinstance(value, int | float) and value <= 0:
            hint = "leave it out for no limit"
            context.issue(at("budget", field.encode_name), f"a limit must be above 0, not {value}", hint, kind="type")
    then = budget.on_exceeded
    if then is not None and context.nodes and then not in context.nodes:
        hint = "name a node that wraps up" if then in RESERVED_NODES else choose(then, context.nodes)
        context.issue("/budget/onExceeded", f"no node is named {then!r}", hint)
    if budget.max_cost_usd is None:
        return
    if missing := unpriced(with_subgraphs(context.document, subgraphs), context.kinds):
        context.issue(
            "/budget/maxCostUsd",
            f"maxCostUsd needs the price of every model that may be asked, and that of {', '.join(missing)} is not known;"
            " an unknown price never counts as 0",
            prices_hint(missing),
            kind="property",
        )
