"""Random documents that the compiler accepts: `map`, `parallel` and `graph` nested, routes, loops, failures, budgets.

A document is built from a tree of small specs, so that hypothesis shrinks it by leaving steps, branches and items out.
Every key but the slots has a reducer or is the branch's own; slots go to one branch of those that run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from graphflow.graph.definition.regions import predecessors
from tests.graph.documents import FakeKind

STATE: dict[str, Any] = {
    "items": {"type": "array", "default": []},
    "total": {"type": "integer", "x-reducer": "sum", "default": 0},
    "log": {"type": "array", "x-reducer": "append", "default": []},
    "seen": {"type": "array", "x-reducer": "union", "default": []},
    "notes": {"type": "object", "x-reducer": "merge", "default": {}},
    "best": {"type": ["integer", "null"], "x-reducer": "max", "default": None},
    "least": {"type": ["integer", "null"], "x-reducer": "min", "default": None},
    "mixed": {"type": "integer", "x-reducer": "fn:mix", "default": 1},
    "scratch": {"type": "string", "x-scope": "branch", "default": ""},
    "slot_a": {"type": "string", "default": ""},
    "slot_b": {"type": "string", "default": ""},
}

SLOTS = ("slot_a", "slot_b")

WRITES = {
    "total": "out.n", "log": "[out.text]", "seen": "[out.n]", "notes": "out.entry", "best": "out.n", "least": "out.n",
    "mixed": "out.n", "scratch": "out.text", "slot_a": "out.text", "slot_b": "out.text",
}  # fmt: skip


def mix(old: int, new: int) -> int:
    """A reducer to which order matters."""
    return (old * 31 + new) % 1_000_003


REDUCERS: dict[str, Callable[[Any, Any], Any]] = {"mix": mix}


class RandomKinds:
    """What random documents name: `work`, `node:choose`, the reducer `mix`, and the document's named graphs."""

    def __init__(self, graphs: Mapping[str, Any] | None = None) -> None:
        self.graphs = dict(graphs or {})
        self.kinds = {"work": FakeKind("work"), "node:choose": FakeKind("node")}

    def find(self, use: str) -> FakeKind | None:
        return self.kinds.get(use)

    def names(self) -> list[str]:
        return list(self.kinds)

    def graph(self, key: str) -> Mapping[str, Any] | None:
        return self.graphs.get(key)

    def reducer(self, name: str) -> Callable[[Any, Any], Any] | None:
        return REDUCERS.get(name)


@dataclass(frozen=True)
class RandomDocument:
    document: dict[str, Any]
    graphs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The subgraphs that it names."""

    @property
    def kinds(self) -> RandomKinds:
        return RandomKinds(self.graphs)


# --- specs


@dataclass(frozen=True)
class Work:
    writes: frozenset[str] = frozenset()
    fails: int = 0
    attempts: int = 1
    handler: str = ""
    """Where an error route leads: `""` for none, `next`, `end`, `fail`."""


@dataclass(frozen=True)
class Pick:
    """Goes to the next step or past it, by a condition on the state or as Python chooses."""

    by: str
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Loop:
    """Goes back some steps until it was visited often enough."""

    times: int
    back: int


@dataclass(frozen=True)
class Ask:
    pass


@dataclass(frozen=True)
class Sub:
    flow: tuple[Any, ...]
    named: bool = False
    handler: str = ""


@dataclass(frozen=True)
class Map:
    flow: tuple[Any, ...]
    items: str
    max: int | None = None
    on_error: str = "fail"
    graph: bool = False
    handler: str = ""
    counts: bool = False


@dataclass(frozen=True)
class Parallel:
    flows: tuple[tuple[Any, ...], ...]
    ranks: tuple[int, ...] = ()
    """A branch may come after those of a smaller rank."""
    after: frozenset[tuple[int, int]] = frozenset()
    graph: frozenset[int] = frozenset()
    """Branches that are subgraphs."""
    on_error: str = "fail"
    handler: str = ""
    counts: bool = False


# --- strategies

_HANDLERS = st.sampled_from(["", "", "next", "end", "fail"])
_ON_ERROR = st.sampled_from(["fail", "fail", "collect", "skip"])
_KEYS = st.frozensets(st.sampled_from(sorted(WRITES)), max_size=4)
_ITEMS = st.sampled_from(["[]", "[7]", "[1, 2]", "[3, 4, 5]", "state.items", "state.items"])


def _steps(depth: int, asks: bool) -> st.SearchStrategy[Any]:
    plain: list[st.SearchStrategy[Any]] = [
        st.builds(Work, _KEYS),
        st.builds(Work, _KEYS, st.integers(0, 2), st.integers(1, 2), _HANDLERS),
        st.builds(Pick, st.sampled_from(["if", "out", "choose"]), _KEYS),
        st.builds(Loop, st.integers(2, 3), st.integers(0, 2)),
    ]
    if asks:
        plain.append(st.just(Ask()))
    if depth <= 0:
        return st.one_of(plain)
    flow = flows(depth - 1, asks)
    return st.one_of(
        *plain,
        st.builds(Sub, flow, st.booleans(), _HANDLERS),
        st.builds(Map, flow, _ITEMS, st.sampled_from([None, 2, 1]), _ON_ERROR, st.booleans(), _HANDLERS, st.booleans()),
        _parallels(flow),
        _parallels(flow),
    )


@st.composite
def _parallels(draw: st.DrawFn, flow: st.SearchStrategy[tuple[Any, ...]]) -> Parallel:
    flows = tuple(draw(st.lists(flow, min_size=1, max_size=3)))
    count = len(flows)
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    return Parallel(
        flows,
        tuple(draw(st.permutations(range(count)))),
        draw(st.frozensets(pairs, max_size=3)),
        draw(st.frozensets(st.integers(0, count - 1), max_size=1)),
        draw(_ON_ERROR),
        draw(_HANDLERS),
        draw(st.booleans()),
    )


def flows(depth: int, asks: bool = False) -> st.SearchStrategy[tuple[Any, ...]]:
    """What one frame runs: a few steps."""
    return st.deferred(lambda: st.lists(_steps(depth, asks), min_size=1, max_size=4 if depth else 3).map(tuple))


@st.composite
def random_documents(draw: st.DrawFn, *, depth: int = 2, asks: bool = False) -> RandomDocument:
    """A document that `check_document(it.document, it.kinds)` accepts.

    Args:
        depth: how deep fans and subgraphs may lie in each other.
        asks: whether it may ask people (`reference.answer` says what they answer).
    """
    flow = draw(flows(depth, asks))
    items = draw(st.lists(st.integers(0, 9), max_size=3))
    graphs: dict[str, dict[str, Any]] = {}
    document = _Builder(graphs, items).document(flow, wraps=draw(st.booleans()))
    return RandomDocument(document, graphs)


# --- from specs to documents


class _Builder:
    """Builds one document; subgraphs have builders of their own, which share `graphs`."""

    def __init__(self, graphs: dict[str, dict[str, Any]], items: Sequence[int]) -> None:
        self._graphs, self._items = graphs, list(items)
        self._nodes: dict[str, dict[str, Any]] = {}
        self._fans = 0

    def document(self, flow: Sequence[Any], *, wraps: bool = False, result: bool = False) -> dict[str, Any]:
        start = self._flow(flow, frozenset(SLOTS), ())
        state = {**STATE, "items": {"type": "array", "default": self._items}}
        budget: dict[str, Any] = {"maxSteps": 1_000_000}
        if wraps:
            self._nodes["wrap_up"] = {"use": "work", "set": {"log": "[out.text]"}}
            budget["onExceeded"] = "wrap_up"
        out = {"graphflow": "1", "start": start, "state": {"type": "object", "properties": state}, "budget": budget}
        if result:
            out["result"] = "{'total': state.total, 'log': state.log}"
        return {**out, "nodes": self._nodes}

    def _flow(self, flow: Sequence[Any], slots: frozenset[str], names: tuple[str, ...]) -> str:
        own = [self._name(step) for step in flow]
        for name in own:
            self._nodes[name] = {}
        ways = [*own, "end", "end"]
        for place, (name, step) in enumerate(zip(own, flow, strict=True)):
            node = self._node(name, step, place, ways, slots, names)
            self._nodes[name] = {key: value for key, value in node.items() if value is not None}
        return own[0]

    def _name(self, step: Any) -> str:
        self._fans += 1
        return f"{type(step).__name__.lower()}{self._fans}"

    def _node(
        self, name: str, step: Any, place: int, ways: Sequence[str], slots: frozenset[str], names: tuple[str, ...]
    ) -> dict[str, Any]:
        following = ways[place + 1]
        match step:
            case Work():
                retry = (
                    {"max": step.attempts, "on": ["any"], "backoffMs": 0, "jitter": 0} if step.attempts > 1 else None
                )
                return {
                    "use": "work", "with": self._arguments(step.fails, names), "set": _sets(step.writes, slots),
                    "next": following, "retry": retry, "error": _error(step.handler, following),
                }  # fmt: skip
            case Pick(by="choose"):
                choices = list(dict.fromkeys([ways[place + 2], following]))
                return {"use": "node:choose", "next": {"choose": choices}}
            case Pick():
                condition = "state.total % 2 == 0" if step.by == "if" else "out.flag"
                return {
                    "use": "work", "with": self._arguments(0, names), "set": _sets(step.writes, slots),
                    "next": [{"if": condition, "to": ways[place + 2]}, {"to": following}],
                }  # fmt: skip
            case Loop():
                back = ways[max(0, place - step.back)]
                return {"use": "work", "set": {"log": "[out.text]"}, "next": [{"if": f"visits.{name} < {step.times}", "to": back}, {"to": following}]}  # fmt: skip
            case Ask():
                schema = {"type": "object", "properties": {"text": {"type": "string"}}}
                return {
                    "ask": {"message": f"{name}?", "schema": schema},
                    "set": {"log": "[answer.text]"},
                    "next": following,
                }
            case Sub():
                with_ = {"total": "${state.total}"}
                return {
                    "graph": self._subgraph(step.flow, name if step.named else None), "with": with_,
                    "set": {"total": "out.total", "log": "out.log"}, "next": following, "error": _error(step.handler, following),
                }  # fmt: skip
            case Map():
                return self._map(step, following, slots, names)
        assert isinstance(step, Parallel)
        return self._parallel(step, following, slots, names)

    def _arguments(self, fails: int, names: Sequence[str]) -> dict[str, Any]:
        given: dict[str, Any] = {"total": "${state.total}", **{name: f"${{{name}}}" for name in names}}
        return {**given, "fail": fails} if fails else given

    def _subgraph(self, flow: Sequence[Any], key: str | None) -> Any:
        document = _Builder(self._graphs, self._items).document(flow, result=True)
        if key is None:
            return document
        key = f"{key}_{len(self._graphs)}"
        self._graphs[key] = document
        return key

    def _map(self, step: Map, following: str, slots: frozenset[str], names: tuple[str, ...]) -> dict[str, Any]:
        item = f"item{len(names)}"
        inside = slots if step.max == 1 else frozenset[str]()
        do: Any = (
            {"graph": self._subgraph(step.flow, None)} if step.graph else self._flow(step.flow, inside, (*names, item))
        )
        return {
            "map": step.items, "as": item, "do": do, "max": step.max, "join": _join(step.on_error),
            "set": {"total": "size(out)", "log": "out.map(o, o.status)"} if step.counts else None,
            "next": following, "error": _error(step.handler, following),
        }  # fmt: skip

    def _parallel(
        self, step: Parallel, following: str, slots: frozenset[str], names: tuple[str, ...]
    ) -> dict[str, Any]:
        labels = [f"b{index}" for index in range(len(step.flows))]
        after = {
            label: [labels[j] for j in range(len(labels)) if (i, j) in step.after and step.ranks[j] < step.ranks[i]]
            for i, label in enumerate(labels)
        }
        owned = _owners(slots, after)
        branches: dict[str, Any] = {}
        for index, (label, flow) in enumerate(zip(labels, step.flows, strict=True)):
            do: Any = self._flow(flow, owned[label], names) if index not in step.graph else None
            if do is None:
                do = {"graph": self._subgraph(flow, None), "with": {"total": "${state.total}"}}
            plain = isinstance(do, str) and not after[label]
            branches[label] = do if plain else {"do": do, **({"after": after[label]} if after[label] else {})}
        return {
            "parallel": branches, "join": _join(step.on_error), "next": following,
            "set": {"total": "size(out)"} if step.counts else None, "error": _error(step.handler, following),
        }  # fmt: skip


def _owners(slots: frozenset[str], after: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """Who may write which slot: one branch, and one that comes after it."""
    before, labels = predecessors(after), list(after)
    out: dict[str, set[str]] = {label: set() for label in labels}
    for place, slot in enumerate(sorted(slots)):
        owner = labels[place % len(labels)]
        out[owner].add(slot)
        heir = next((label for label in labels if owner in before[label]), None)
        if heir is not None:
            out[heir].add(slot)
    return {label: frozenset(owned) for label, owned in out.items()}


def _sets(writes: frozenset[str], slots: frozenset[str]) -> dict[str, str] | None:
    return {key: WRITES[key] for key in sorted(writes) if key not in SLOTS or key in slots} or None


def _join(on_error: str) -> dict[str, Any] | None:
    return None if on_error == "fail" else {"onError": on_error}


def _error(handler: str, following: str) -> list[dict[str, Any]] | None:
    return [{"to": following if handler == "next" else handler}] if handler else None
