"""Checks of everything that is written in expressions: names, types, and that results fit where they go."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from graphflow.errors import DefinitionError
from graphflow.graph.definition.document import NODE_FORMS, GraphRef, NodeDefinition
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.json_schema import check_sketch
from graphflow.graph.definition.regions import bodies_of, body_name, input_of, is_fan
from graphflow.graph.definition.types import Hole, declared_types, fits, show_types
from graphflow.graph.expressions.compiler import Expression, compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.parser import parse
from graphflow.graph.expressions.scopes import Places, ScopeMap, out_schema
from graphflow.graph.expressions.templates import compile_template
from graphflow.graph.validation.agreement import disagreement
from graphflow.graph.validation.context import ValidationContext, is_map_without
from graphflow.graph.validation.state import LIST_REDUCERS
from graphflow.suggestions import choose

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
        self.in_broken: set[str] = set()
        self.visits: list[tuple[str | None, str, str]] = []
        """(node whose frame it is, node that is counted, pointer) of every `visits.NODE`."""
        self.node: str | None = None
        """The node that is being checked; None for the document's own expressions."""

    def reads(self, refs: Iterable[tuple[str, ...]], pointer: str) -> None:
        for ref in refs:
            if ref[0] == "state" and len(ref) > 1:
                self.read.setdefault(ref[1], pointer)
            elif ref[0] == "visits" and len(ref) > 1:
                self.visits.append((self.node, ref[1], pointer))

    def names_in_broken(self, value: Any) -> None:
        """Notes the keys that a wrong expression or template names: a warning about them would only follow from its error."""
        self.in_broken.update(one or other for one, other in _STATE_KEY.findall(str(value)))


_STATE_KEY = re.compile(r"""\bstate\s*(?:\.\s*(\w+)|\[\s*\\?["']([^"'\\]+))""")


def check_expressions(context: ValidationContext, inputs: Mapping[str, Any]) -> StateUse:
    """Every expression of the document; what is read and written comes back.

    Args:
        context: the document.
        inputs: node, or body (`fan`, `fan[branch]`), that is a subgraph → that graph's input schema.
    """
    return _ExpressionRules(context, inputs).run()


class _ExpressionRules:
    """One pass over the expressions of a document."""

    def __init__(self, context: ValidationContext, inputs: Mapping[str, Any]) -> None:
        self.context, self.inputs = context, inputs
        self.use = StateUse()

    def run(self) -> StateUse:
        places = ScopeMap(self._places)
        for name, node in self.context.nodes.items():
            here, self.use.node = places.at(name), name
            outside, inside = _outside(here), self._inside(name, node, here)
            self._check_with(name, node, outside)
            self._check_ask(name, node, outside)
            self._check_set(name, node, inside)
            self._check_conditions(name, node, inside)
            self._check_items(name, node, outside)
            if is_fan(node):
                self._check_bodies(name, node, _outside(places.body_of(name)))
        self.use.node = None
        if self.context.document.result is not None:
            self._compiled("/result", self.context.document.result, _outside(places.document()))
        self._check_visits()
        return self.use

    def _check_with(self, name: str, node: NodeDefinition, environment: Environment) -> None:
        if is_fan(node):
            return  # it is the input of bodies
        place = at("nodes", name) if node.with_ is None else at("nodes", name, "with")
        sketch = {} if node.with_ is None else self._arguments(place, node.with_, environment)
        if sketch is not None and not self.context.is_lost(name, "with", "use", "graph"):
            self.context.take(place, check_sketch(sketch, self._with_schema(name, node)))

    def _with_schema(self, name: str, node: NodeDefinition) -> Any:
        if node.use is not None:
            kind = self.context.kinds.find(node.use)
            return None if kind is None else kind.with_schema
        return self.inputs.get(name) if node.graph is not None else None

    def _check_ask(self, name: str, node: NodeDefinition, environment: Environment) -> None:
        if node.ask is None:
            return
        if node.ask.show is not None:
            self._compiled(at("nodes", name, "ask", "show"), node.ask.show, environment)
        self._templated(at("nodes", name, "ask", "message"), node.ask.message, environment)

    def _check_set(self, name: str, node: NodeDefinition, environment: Environment) -> None:
        for key, source in node.set.items():
            pointer = at("nodes", name, "set", key)
            expression = self._compiled(pointer, source, environment)
            # Also for an expression with errors: the key is meant to be written, and a warning would say the opposite.
            self.use.written.setdefault(key, pointer)
            if key not in self.context.environment.state:
                if self.context.knows_state:
                    hint = choose(key, self.context.environment.state, none="declare it under `state.properties`")
                    self.context.issue(pointer, f"{key!r} is not a state key", hint)
            elif expression is not None and key in self.context.state:
                if self._check_fit(pointer, key, expression):
                    self._check_parts(pointer, key, expression, environment)

    def _check_parts(self, pointer: str, key: str, expression: Expression, environment: Environment) -> None:
        """What is declared of the value (an answer, a node's output, another key) can fit what the key takes of it."""
        schema = self.context.state[key]
        wanted = {name: part for name, part in schema.items() if name != "default"}
        match schema.get("x-reducer", "replace"):
            case "append" | "union":
                wanted = {"type": "array", "items": schema.get("items", True)}
            case "merge":
                wanted.pop("required", None)  # it is written piece by piece
            case "replace":
                pass
            case _:
                return  # a function decides, messages have forms of their own, and numbers have no parts
        why = disagreement(parse(expression.source).root, environment, wanted)
        if why is not None:
            message = f"key {key!r} takes no value of {expression.source!r}: it {why}"
            message = message.replace(": it its ", ": its ")
            self.context.issue(pointer, message, "change the schema of one of them", kind="type")

    def _check_fit(self, pointer: str, key: str, expression: Expression) -> bool:
        """The expression's type is one that the key and its reducer take."""
        schema = self.context.state[key]
        reduce = schema.get("x-reducer", "replace")
        if not isinstance(reduce, str):
            return False  # an error of its own
        given = _SHOWN.get(expression.type, expression.type)
        if reduce in LIST_REDUCERS:
            if not fits(expression.type, ["array"]):
                message = (
                    f"key {key!r} ({reduce}) takes a list and adds its items, and {expression.source!r} gives {given}"
                )
                self.context.issue(pointer, message, f'write "[{expression.source}]"', kind="type")
                return False
            return True
        if reduce.startswith("fn:"):
            return False  # the function decides what it takes
        names = declared_types(schema)
        if not fits(expression.type, names):
            message = f"key {key!r} takes {show_types(names)}, and {expression.source!r} gives {given}"
            self.context.issue(pointer, message, _fit_hint(expression, names), kind="type")
            return False
        return True

    def _check_conditions(self, name: str, node: NodeDefinition, environment: Environment) -> None:
        if not isinstance(node.next, tuple):
            return
        for index, route in enumerate(node.next):
            if route.when is None:
                continue
            pointer = at("nodes", name, "next", index, "if")
            expression = self._compiled(pointer, route.when, environment)
            if expression is not None and expression.type not in ("bool", "dyn"):
                given = _SHOWN.get(expression.type, expression.type)
                made = _comparison(expression)
                hint = None if made is None else f"compare it, as in {made!r}"
                self.context.issue(
                    pointer, f"a condition is true or false, and {route.when!r} gives {given}", hint, kind="type"
                )

    def _check_items(self, name: str, node: NodeDefinition, environment: Environment) -> None:
        """A map runs over a list."""
        if node.map is None:
            return
        pointer = at("nodes", name, "map")
        items = self._compiled(pointer, node.map, environment)
        if items is not None and items.type not in ("list", "dyn"):
            given = _SHOWN.get(items.type, items.type)
            self.context.issue(
                pointer, f"a map runs over a list, and {node.map!r} gives {given}", _LIST_HINT, kind="type"
            )

    def _check_bodies(self, name: str, node: NodeDefinition, environment: Environment) -> None:
        """The input of bodies that are subgraphs: `with`, else the item under its name."""
        for body in bodies_of(name, node):
            if not isinstance(body.do, GraphRef):
                continue
            own = body.do.with_ is not None
            shared = at("nodes", name, "with") if node.with_ is not None else body.pointer
            pointer = f"{body.pointer}/with" if own else shared
            sketch = self._arguments(pointer, input_of(node, body), environment)
            if sketch is not None:
                self.context.take(pointer, check_sketch(sketch, self.inputs.get(body_name(name, body.branch))))

    def _check_visits(self) -> None:
        """Warnings: `visits` counts entries in one frame, and that of a body never stands outside it (E10, E11)."""
        home = self.context.survey.home
        for node, counted, pointer in self.use.visits:
            here, there = None if node is None else home.get(node), home.get(counted)
            if counted in self.context.nodes and here is not there:
                where = "the main flow" if here is None else f"the body of {body_name(here.fan, here.branch)!r}"
                message = (
                    f"visits.{counted} is always 0 here: it counts entries in {where}, which never comes to {counted!r}"
                )
                hint = "count a node of the same body, or keep a count in the state"
                self.context.issue(pointer, message, hint, kind="graph", warning=True)

    def _inside(self, name: str, node: NodeDefinition, environment: Environment) -> Environment:
        """The variables of `set` and `next`: the node's output and, after a question, the answer."""
        if node.ask is not None:
            return environment.having(out=node.ask.schema or None, answer=node.ask.schema or None)
        if self.context.is_lost(name, *NODE_FORMS):
            environment = environment.loosely("answer")  # it may have been meant as an `ask`
        return environment.without(answer=_NO_ANSWER).having(out=out_schema(self._places, name, node))

    @functools.cached_property
    def _places(self) -> Places:
        context = self.context
        bodiless = frozenset(name for name in context.nodes if is_map_without(context, name, "do"))
        return Places(context.nodes, context.survey, context.environment, context.kinds, bodiless)

    def _compiled(self, pointer: str, source: str, environment: Environment) -> Expression | None:
        try:
            expression = compile_expression(source, environment)
        except DefinitionError as error:
            self.context.take(pointer, error.errors)
            self.use.names_in_broken(source)
            return None
        self.use.reads(expression.refs, pointer)
        return expression

    def _arguments(self, pointer: str, value: Any, environment: Environment) -> Mapping[str, Any] | None:
        """The sketch of an object of arguments; None where only a run can tell, and where it is not an object: an
        error.
        """
        sketch = self._templated(pointer, value, environment)
        if isinstance(sketch, Mapping):
            return sketch
        if not isinstance(sketch, Hole) or sketch.type not in ("dyn", "map"):
            given = _SHOWN.get(sketch.type, sketch.type) if isinstance(sketch, Hole) else repr(sketch)
            message = f"`with` is an object of arguments, not {given}"
            self.context.issue(pointer, message, 'as in {"name": "${…}"}', kind="type")
        return None

    def _templated(self, pointer: str, value: Any, environment: Environment) -> Any:
        """The template's sketch; a `Hole` for one that is wrong, so that nothing more is said about it."""
        try:
            template = compile_template(value, environment)
        except DefinitionError as error:
            self.context.take(pointer, error.errors)
            self.use.names_in_broken(value)
            return Hole("dyn", "")
        self.use.reads(template.refs, pointer)
        return template.sketch


def _outside(environment: Environment) -> Environment:
    """The variables of what is evaluated before the node has run."""
    return environment.without(out=_NO_OUT, answer=_NO_ANSWER)


def _fit_hint(expression: Expression, names: tuple[str, ...]) -> str:
    if expression.type == "null":
        return f'let the key be null: "type": ["{names[0]}", "null"]'
    wrapped = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}.get(names[0])
    if wrapped is not None and expression.type in ("int", "double", "string", "bool"):
        return f"convert it: {wrapped}({expression.source})"
    return "change the expression or the key's type"


def _comparison(expression: Expression) -> str | None:
    tail = {"int": "> 0", "uint": "> 0u", "double": "> 0.0", "string": "!= ''"}.get(expression.type)
    if tail is None:
        return f"size({expression.source}) > 0" if expression.type in ("list", "map", "bytes") else None
    # What binds less than a comparison would be torn apart by it.
    shown = f"({expression.source})" if "?" in expression.source else expression.source
    return f"{shown} {tail}"


_LIST_HINT = "name a state key of type array, or write a list: [state.a, state.b]"


def check_state_use(context: ValidationContext, usage: StateUse) -> None:
    """Warnings: keys that are read and never written, written and never read, or neither.

    Python nodes (`node:NAME`) read and write what they like, so with one of them nothing is certain.
    """
    if any((node.use or "").startswith("node:") for node in context.nodes.values()):
        return
    # What could not be read may read or write any key.
    if context.lost or context.lost_top:
        return
    # Without `result` and messages the state itself is the output (E9): every key is read.
    whole_state_shown = context.document.result is None and "messages" not in context.state
    for key, schema in context.state.items():
        # Models read the messages, and each input writes them.
        if key == "messages" or key in usage.in_broken:
            continue
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
