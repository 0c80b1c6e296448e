"""A naive interpreter of documents, for `all` joins: plain recursion, branches one after the other in branch order.

It shares no code with the engine but the document, its regions and single expressions, so that property tests can
hold the engine against it. Nodes do what a behaviour says: a pure function of a `Call`.

What it does not know: limits, interrupts other than answered `ask` nodes, `any | N`, time, and messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphflow.errors import ExpressionFailed
from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import END, FAIL, Choose, NodeDefinition
from graphflow.graph.definition.regions import Region, bodies_of, branch_order, input_of, predecessors, regions
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.templates import compile_template
from tests.graph.documents import graph_key

# --- what nodes do


@dataclass(frozen=True, kw_only=True)
class Call:
    """Everything that a node's behaviour may depend on; `state` is plain data."""

    node: str
    path: str
    """Of the frame: `""`, `fan#1[2]`, `fan#1[2]/sub#1`, …"""
    visit: int = 1
    attempt: int = 1
    state: Mapping[str, Any] = field(default_factory=dict)
    arguments: Any = None
    choices: tuple[str, ...] = ()
    """The routes among which a Python node chooses."""


@dataclass(frozen=True, kw_only=True)
class Gave:
    out: Any = None
    goto: str | None = None


class Failure(Exception):
    """A node's failure."""

    def __init__(self, code: str = "node_error", message: str = "") -> None:
        super().__init__(message or code)
        self.code, self.message = code, message or code


Behaviour = Callable[[Call], Gave]


def number_of(call: Call) -> int:
    """A number that any difference in the call changes."""
    data = [call.node, call.path, call.visit, thaw(call.state), thaw(call.arguments)]
    text = json.dumps(data, sort_keys=True, default=str)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def work(call: Call) -> Gave:
    """The behaviour of random documents: fails while `arguments.fail` says so, else gives a bit of everything.

    Raises:
        Failure: in attempts up to `arguments.fail`.
    """
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    if call.attempt <= arguments.get("fail", 0):
        raise Failure(message=f"{call.node} fails")
    number = number_of(call)
    out = {
        "n": number % 10,
        "flag": number % 3 == 0,
        "text": f"{call.path}/{call.node}#{call.visit}:{number % 1000}",
        "entry": {f"k{number % 4}": number % 7},
    }
    return Gave(out=out, goto=call.choices[number % len(call.choices)] if call.choices else None)


def answer(call: Call) -> Any:
    """What a person says to an `ask` node of a random document."""
    return {"text": f"{call.path}/{call.node}#{call.visit}?"}


# --- what a run gave


@dataclass(frozen=True)
class Record:
    """One attempt of one node that ended."""

    node: str
    visit: int
    attempt: int
    ended: str
    """`done` or `failed`."""


@dataclass
class Outcome:
    """How a run ended."""

    status: str = "complete"
    """`complete` or `error`."""
    state: dict[str, Any] = field(default_factory=dict)
    """Of the root frame; after an unhandled failure, without what unfinished branches wrote."""
    error: dict[str, Any] | None = None
    """`code` and `message` of an unhandled failure."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """Frame path → what ran in it, in order. A frame that is opened a second time has another path."""
    exact: bool = True
    """Whether `records` hold for every interleaving: not where a failed branch cancels others, which may have come
    further or less far."""


def interpret(
    checked: CheckedDocument,
    behaviour: Behaviour = work,
    *,
    given: Any = None,
    reducers: Mapping[str, Callable[[Any, Any], Any]] | None = None,
) -> Outcome:
    """What a run of the document comes to.

    Args:
        given: the run's input.
        reducers: name → the function behind `fn:NAME`.
    """
    run = _Run(behaviour, reducers or {})
    frame = _Frame(checked, "", _defaults(checked), given or {}, {})
    try:
        run.follow(frame, checked.document.start)
    except _Lost as lost:
        run.outcome.status, run.outcome.error = "error", lost.error
    run.outcome.state = run.state_of(frame)
    return run.outcome


# --- frames


class _Lost(Exception):
    """A failure that nothing in the frame takes."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


Write = tuple[str, Any]


@dataclass
class _Frame:
    graph: CheckedDocument
    path: str
    base: dict[str, Any]
    """What it saw at its opening."""
    input: Any
    names: dict[str, Any]
    """`as` name → item."""
    seen: list[Write] = field(default_factory=list)
    """Writes of the branches that it came after."""
    own: list[Write] = field(default_factory=list)
    visits: dict[str, int] = field(default_factory=dict)
    error: dict[str, Any] | None = None


def _defaults(checked: CheckedDocument) -> dict[str, Any]:
    properties = checked.document.state.get("properties", {})
    lists = ("append", "union", "messages")
    return {key: schema.get("default") or [] if schema.get("x-reducer") in lists else schema.get("default") for key, schema in properties.items()}  # fmt: skip


class _Run:
    def __init__(self, behaviour: Behaviour, reducers: Mapping[str, Callable[[Any, Any], Any]]) -> None:
        self.behaviour, self.reducers = behaviour, reducers
        self.outcome = Outcome()

    # state

    def state_of(self, frame: _Frame) -> dict[str, Any]:
        return self.reduced(frame, frame.base, [*frame.seen, *frame.own])

    def reduced(self, frame: _Frame, state: Mapping[str, Any], writes: Sequence[Write]) -> dict[str, Any]:
        out = dict(state)
        for key, value in writes:
            out[key] = self.reduce(frame.graph.document.state["properties"][key].get("x-reducer"), out[key], value)
        return out

    def reduce(self, reducer: str | None, old: Any, value: Any) -> Any:
        match reducer:
            case None | "replace":
                return value
            case "append":
                return [*old, *value]
            case "union":
                return [
                    *old,
                    *(item for place, item in enumerate(value) if item not in old and item not in value[:place]),
                ]
            case "merge":
                return {**(old or {}), **value}
            case "sum":
                return (old or 0) + value
            case "min":
                return value if old is None else min(old, value)
            case "max":
                return value if old is None else max(old, value)
        return self.reducers[reducer.removeprefix("fn:")](old, value)

    def scope(self, frame: _Frame, **more: Any) -> dict[str, Any]:
        visits = {name: frame.visits.get(name, 0) for name in frame.graph.document.nodes}
        state = self.state_of(frame)
        return {**frame.names, "state": state, "input": frame.input, "visits": visits, "error": frame.error, **more}

    # a frame's way

    def follow(self, frame: _Frame, name: str) -> Any:
        """Runs the frame from a node to its end; gives the `out` of the node that ended it."""
        out: Any = None
        error: dict[str, Any] | None = None
        while name != END:
            if name == FAIL:
                raise _Lost(error or frame.error or {"code": "node_error", "message": "the route led to `fail`"})
            frame.error = error
            frame.visits[name] = frame.visits.get(name, 0) + 1
            node = frame.graph.document.nodes[name]
            try:
                out, name, error = *self.attempts(frame, name, node), None
            except _Lost as lost:
                out, error = None, lost.error
                route = next((r.to for r in node.error if error["code"] in r.on or "any" in r.on), None)
                if route is None:
                    raise
                name = route
        return out

    def attempts(self, frame: _Frame, name: str, node: NodeDefinition) -> tuple[Any, str]:
        attempt = 1
        while True:
            try:
                done = self.attempt(frame, name, node, attempt)
            except (Failure, ExpressionFailed, _Lost) as failure:
                error = (
                    failure.error if isinstance(failure, _Lost) else {"code": failure.code, "message": failure.message}
                )
                self.record(frame, name, attempt, "failed")
                again = (
                    node.retry is not None and attempt < node.retry.max and {error["code"], "any"} & set(node.retry.on)
                )
                if not again:
                    raise _Lost(error) from None
                attempt += 1
            else:
                self.record(frame, name, attempt, "done")
                return done

    def record(self, frame: _Frame, name: str, attempt: int, ended: str) -> None:
        self.outcome.records.setdefault(frame.path, []).append(Record(name, frame.visits[name], attempt, ended))

    def attempt(self, frame: _Frame, name: str, node: NodeDefinition, attempt: int) -> tuple[Any, str]:
        out, goto, joined = self.perform(frame, name, node, attempt)
        environment = Environment.of(frame.graph.document)
        before = self.scope(frame, out=out, answer=out)
        writes = [
            *joined,
            *((key, compile_expression(e, environment, check=False).evaluate(before)) for key, e in node.set.items()),
        ]
        state = self.reduced(frame, self.state_of(frame), writes)
        target = self.target(node, environment, {**before, "state": state}, goto)
        frame.own += thaw(writes)
        return out, target

    def target(self, node: NodeDefinition, environment: Environment, scope: Mapping[str, Any], goto: str | None) -> str:
        if isinstance(node.next, Choose):
            assert goto in node.next.choose
            return goto
        if not isinstance(node.next, tuple):
            return node.next or END
        for route in node.next:
            if route.when is None or compile_expression(route.when, environment, check=False).evaluate(scope):
                return route.to
        raise AssertionError("the last route has no condition")

    # the forms

    def perform(
        self, frame: _Frame, name: str, node: NodeDefinition, attempt: int
    ) -> tuple[Any, str | None, list[Write]]:
        if node.map is not None or node.parallel is not None:
            out, joined = self.fan(frame, name, node)
            return out, None, joined
        environment = Environment.of(frame.graph.document)
        arguments = thaw(compile_template(node.with_, environment, check=False).evaluate(self.scope(frame))) if node.with_ is not None else {}  # fmt: skip
        if node.graph is not None:
            key = node.graph if isinstance(node.graph, str) else name
            return self.subgraph(frame, key, f"{name}#{frame.visits[name]}", arguments), None, []
        call = Call(
            node=name, path=frame.path, visit=frame.visits[name], attempt=attempt, state=self.state_of(frame), arguments=arguments,
            choices=node.next.choose if isinstance(node.next, Choose) else (),
        )  # fmt: skip
        if node.ask is not None:
            return answer(call), None, []
        gave = self.behaviour(call)
        return gave.out, gave.goto, []

    def subgraph(self, frame: _Frame, key: str, step: str, arguments: Any) -> Any:
        graph = frame.graph.subgraphs[key]
        child = _Frame(graph, below(frame.path, step), _defaults(graph), arguments, {})
        self.follow(child, graph.document.start)
        if graph.document.result is None:
            return self.state_of(child)
        return thaw(
            compile_expression(graph.document.result, Environment.of(graph.document), check=False).evaluate(
                self.scope(child)
            )
        )

    def fan(self, frame: _Frame, name: str, node: NodeDefinition) -> tuple[Any, list[Write]]:
        """Runs all branches; gives the fan's `out` and what its branches wrote, in branch order."""
        found = regions(frame.graph.document)[name]
        wait, on_error = ("all", "fail") if node.join is None else (node.join.wait, node.join.on_error)
        assert wait == "all", "the reference interpreter knows `all` only"
        if node.map is not None:
            environment = Environment.of(frame.graph.document)
            items = list(compile_expression(node.map, environment, check=False).evaluate(self.scope(frame)))
            runs = [(str(i), found[""], {str(node.as_): thaw(item)}) for i, item in enumerate(items)]
            after: dict[str, tuple[str, ...]] = {label: () for label, _, _ in runs}
        else:
            runs = [(branch, region, {}) for branch, region in found.items()]
            after = {branch: region.after for branch, region in found.items()}
        places = {label: index for index, (label, _, _) in enumerate(runs)}
        by_label = {label: (region, names) for label, region, names in runs}
        before = predecessors(after)
        writes: dict[str, list[Write]] = {}
        results: dict[str, dict[str, Any]] = {}
        order = branch_order(after) if node.parallel is not None else list(after)
        for label in order:
            region, names = by_label[label]
            seen = [write for other in order if other in before[label] for write in writes.get(other, [])]
            try:
                out, wrote = self.branch(frame, f"{name}#{frame.visits[name]}[{label}]", region, names, seen)
            except _Lost as lost:
                if on_error == "fail":
                    self.outcome.exact = self.outcome.exact and len(runs) == 1
                    raise
                if on_error == "collect":
                    results[label] = {"index": places[label], "status": "failed", "error": lost.error}
            else:
                results[label] = {"index": places[label], "status": "done", "out": out}
                writes[label] = wrote
        joined = [write for label in order for write in writes.get(label, [])]
        if node.map is not None:
            return [results[label] for label in places if label in results], joined
        return {label: results[label] for label in places if label in results}, joined

    def branch(
        self, frame: _Frame, step: str, region: Region, names: Mapping[str, Any], seen: list[Write]
    ) -> tuple[Any, list[Write]]:
        if region.graph is not None:
            fan = frame.graph.document.nodes[region.fan]
            body = next(body for body in bodies_of(region.fan, fan) if body.branch == region.branch)
            template = compile_template(input_of(fan, body), Environment.of(frame.graph.document), check=False)
            given = thaw(template.evaluate({**self.scope(frame), **names}))
            return self.subgraph(frame, str(graph_key(region)), step, given), []
        opened = self.state_of(frame)
        branch = _Frame(
            frame.graph, below(frame.path, step), opened, frame.input, {**frame.names, **names}, seen=list(seen)
        )
        out = self.follow(branch, str(region.entry))
        schemas = frame.graph.document.state.get("properties", {})
        return out, [(key, value) for key, value in branch.own if schemas[key].get("x-scope") != "branch"]


def below(path: str, step: str) -> str:
    return f"{path}/{step}" if path else step
