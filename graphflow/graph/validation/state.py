"""Checks of the state schema, the input schema and the budget (spec 2.1 rules 4 and 8, E9, E11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.graph.definition.document import RESERVED_NODES, Budget
from graphflow.graph.definition.json_schema import check_schema, compile_schema
from graphflow.graph.definition.suggestions import choose, meant, nearest
from graphflow.graph.definition.types import declared_types, show, show_types
from graphflow.graph.expressions.parser import RESERVED
from graphflow.graph.validation.context import STATE_KEYWORDS, Checking, at
from graphflow.graph.validation.model_prices import unpriced

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


def check_name(checking: Checking, pointer: str, name: str, what: str) -> None:
    """A name that expressions can use: `[a-z_][a-zA-Z0-9_]*` and no word of CEL (E16)."""
    if name in RESERVED:
        checking.fault(pointer, f"{name!r} can't name a {what}: CEL keeps the word for itself", "choose another name")
    elif NAME.fullmatch(name) is None:
        wanted = re.sub(r"[^a-zA-Z0-9_]+", "_", name).strip("_")
        wanted = wanted[:1].lower() + wanted[1:]
        hint = (
            f"write {wanted!r}"
            if NAME.fullmatch(wanted)
            else "begin with a small letter, go on with letters, digits or _"
        )
        checking.fault(pointer, f"{show(name)} can't name a {what}: names match [a-z_][a-zA-Z0-9_]*", hint)


def check_state(checking: Checking) -> None:
    """The state schema: its form, and each key's schema, reducer, default and marks."""
    state = checking.data.get("state")
    if not isinstance(state, Mapping):
        return  # absent, or the shape says so
    for key in state:
        if key not in STATE_KEYWORDS:
            hint = (
                "keys of the state stand under `properties`"
                if isinstance(state[key], Mapping)
                else choose(key, STATE_KEYWORDS)
            )
            checking.fault(at("state", key), f"{key!r} is not expected in `state`", hint, kind="shape")
    if state.get("type", "object") != "object":
        checking.fault(
            "/state/type", f"the state is an object, not {show(state['type'])}", 'write "object"', kind="type"
        )
    properties = state.get("properties", {})
    if not isinstance(properties, Mapping):
        checking.fault("/state/properties", f"expected an object, not {show(properties)}", "key → schema", kind="shape")
        return
    for key, schema in properties.items():
        check_name(checking, at("state", "properties", key), key, "state key")
        _check_key(checking, key, schema, state.get("$defs"))


def _check_key(checking: Checking, key: str, schema: Any, definitions: Any) -> None:
    pointer = at("state", "properties", key)
    if not isinstance(schema, Mapping):
        message = f"the schema of a state key is an object, not {show(schema)}"
        checking.fault(pointer, message, 'as in {"type": "string", "default": ""}', kind="shape")
        return
    whole = schema if definitions is None else {**schema, "$defs": definitions}
    faults = check_schema(whole)
    checking.take(pointer, faults)
    for mark in schema:
        if mark.startswith("x-") and mark not in _MARK_NAMES and (near := nearest(mark, _MARK_NAMES)):
            checking.fault(
                pointer + at(mark), f"{mark!r} is no mark of a state key", f"did you mean {near!r}?", kind="shape"
            )
    for mark, allowed in _MARKS.items():
        if mark in schema and schema[mark] not in allowed:
            hint = meant(str(schema[mark]), allowed)
            checking.fault(pointer + at(mark), f"{mark} is one of {', '.join(allowed)}, not {show(schema[mark])}", hint)
    _check_tasks(checking, pointer, schema)
    reduce = schema.get("x-reducer", "replace")
    _check_reducer(checking, pointer, reduce, schema)
    if not faults and "default" in schema:
        _check_default(checking, pointer, reduce, whole)


def _check_tasks(checking: Checking, pointer: str, schema: Mapping[str, Any]) -> None:
    """`x-tasks` names the nodes that work on the tasks of the plan that the key holds."""
    if "x-tasks" not in schema:
        return
    names, place = schema["x-tasks"], pointer + "/x-tasks"
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        checking.fault(place, f"x-tasks is a list of node names, not {show(names)}", 'as in ["execute", "tools"]')
        return
    for index, name in enumerate(names):
        if checking.nodes and name not in checking.nodes:
            checking.fault(f"{place}/{index}", f"no node is named {name!r}", choose(name, checking.nodes))


def _check_reducer(checking: Checking, pointer: str, reduce: Any, schema: Mapping[str, Any]) -> None:
    place = pointer + "/x-reducer"
    if isinstance(reduce, str) and reduce.startswith("fn:"):
        name = reduce[3:]
        if checking.kinds.reducer(name) is None:
            hint = (
                "register the function in Python and write its bare name: a document holds no import path"
                if not name.isidentifier()
                else "register it in Python before the graph is loaded"
            )
            checking.fault(place, f"no reducer is registered as {show(reduce)}", hint)
        return
    if reduce not in REDUCERS:
        checking.fault(place, f"{show(reduce)} is no reducer", choose(str(reduce), (*REDUCERS, "fn:NAME")))
        return
    takes, declared = _TAKES.get(reduce, ()), declared_types(schema)
    if takes and declared and not set(declared) - {"null"} <= set(takes):
        hint = f"give the key the type {takes[0]!r}, or another reducer"
        message = f"reducer {reduce!r} is for {show_types(takes)}, and the key's type is {show_types(declared)}"
        checking.fault(place, message, hint, kind="type")


def _check_default(checking: Checking, pointer: str, reduce: Any, schema: Mapping[str, Any]) -> None:
    default = schema["default"]
    if default is None and isinstance(reduce, str) and reduce in LIST_REDUCERS:
        return  # an empty log
    bare = {key: value for key, value in schema.items() if not key.startswith("x-")}
    checking.take(pointer + "/default", compile_schema(bare).faults(default))


def check_input(checking: Checking) -> None:
    """The input schema is a JSON Schema."""
    schema = checking.document.input
    if schema is not None:
        checking.take("/input", check_schema(schema))
        declared = declared_types(schema)
        if declared and "object" not in declared:
            checking.fault(
                "/input/type", f"the input is an object, not {show_types(declared)}", 'write "object"', kind="type"
            )


def check_budget(checking: Checking) -> None:
    """Every figure is above zero, `onExceeded` is a node, money has a price."""
    budget = checking.document.budget
    for field in msgspec.structs.fields(Budget):
        value = getattr(budget, field.name)
        if isinstance(value, int | float) and value <= 0:
            hint = "leave it out for no limit"
            checking.fault(at("budget", field.encode_name), f"a limit is above 0, not {value}", hint, kind="type")
    then = budget.on_exceeded
    if then is not None and checking.nodes and then not in checking.nodes:
        hint = "name a node that wraps up" if then in RESERVED_NODES else choose(then, checking.nodes)
        checking.fault("/budget/onExceeded", f"no node is named {then!r}", hint)
    if budget.max_cost_usd is not None and (missing := unpriced(checking.document, checking.kinds)):
        checking.fault(
            "/budget/maxCostUsd",
            f"maxCostUsd needs the price of every model, and that of {', '.join(missing)} is not known; an unknown price"
            " never counts as 0",
            'limit maxTokens or maxModelCalls instead, or write [prices."PROVIDER/MODEL"] into graphflow.toml',
            kind="property",
        )
