"""Parse → check: a document against every rule of the format, all errors at once (spec 2.3).

`core/plan_builder.py` builds what runs from the result. Each module of this package checks its own part, so that an
error in one part never hides those of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphflow.errors import DefinitionError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import (
    DEFAULT_INPUT_SCHEMA,
)
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.kinds import Kinds
from graphflow.graph.definition.old_words import Found, renewed
from graphflow.graph.definition.plain_data import plain_data, without_schema
from graphflow.graph.definition.source import Source
from graphflow.graph.definition.suggestion_checks import keep_working
from graphflow.graph.definition.versions import agents_in, graphs_in, versioned
from graphflow.graph.validation.approval import check_approval
from graphflow.graph.validation.branches import check_regions
from graphflow.graph.validation.context import ValidationContext, open_context
from graphflow.graph.validation.expressions import check_expressions, check_state_use
from graphflow.graph.validation.invariants import check_invariants
from graphflow.graph.validation.nodes import check_nodes
from graphflow.graph.validation.routes import check_routes, show_cycle
from graphflow.graph.validation.state import check_budget, check_input, check_state
from graphflow.suggestions import choose

MAX_NESTING = 100
"""Graphs in graphs; the same holds for branches in branches (`branches.py`)."""


def check_document(source: Source | Mapping[str, Any], kinds: Kinds, *, file: str | None = None) -> CheckedDocument:
    """The document behind a source or plain data, with its subgraphs.

    Args:
        source: a parsed text, so that errors have line and column, or just data.
        kinds: what is registered here.
        file: the name for errors; default the source's own.

    Raises:
        DefinitionError: with every error of the document, in the order of their places.
    """
    return _Compiler(kinds, file).check(source, (), whole=True)


class _Compiler:
    """One call of `check_document`: graphs that several nodes name are checked once."""

    def __init__(self, kinds: Kinds, file: str | None, *, tries: bool = True) -> None:
        self._kinds, self._file, self._tries = kinds, file, tries
        self._known: dict[str, CheckedDocument | DefinitionError] = {}
        self._agents: dict[str, str] = {}
        """Each agent that an `agent:` node names here or in a graph below, and the pointer of that node."""

    def check(
        self, source: Source | Mapping[str, Any], above: tuple[str, ...], *, whole: bool = False
    ) -> CheckedDocument:
        """The checked document.

        Args:
            above: the keys of the graphs that it is part of.
            whole: it is no part of another one, so it has all agents that can be reached from it.
        """
        given = source.data if isinstance(source, Source) else source
        data, issues = plain_data(given)
        if isinstance(source, Source):
            issues = [*source.errors, *issues]
        if not isinstance(data, Mapping):
            raise DefinitionError(self._placed(source, issues or [_no_object(given)]))
        # Checked by its new words, so that one old word is one error and not all that an unknown key leads to.
        data, outdated = renewed(without_schema(data))
        context = open_context(data, self._kinds)
        context.errors[:0] = issues
        subgraphs = self._subgraphs(context, above)
        self._agents |= {key: at("nodes", name, "use") for name, key in agents_in(context.nodes)}
        agents = self._reached(context) if whole else {}
        self._rules(context, subgraphs)
        if self._tries and context.errors:
            context.errors[:] = keep_working(data, context.errors, self._tried)
        found = [*map(_old_word, outdated), *_as_written(context.errors, outdated)] if outdated else context.errors
        placed = self._placed(source, found)
        if any(issue.severity == "error" for issue in placed):
            raise DefinitionError(placed)
        return versioned(data, self._kinds, subgraphs, agents, warnings=placed)

    def _tried(self, data: Mapping[str, Any]) -> Iterable[Issue]:
        """The issues of a version of the document that a suggestion leads to."""
        trial = _Compiler(self._kinds, None, tries=False)
        trial._known = self._known
        try:
            return trial.check(data, (), whole=True).warnings
        except DefinitionError as error:
            return error.errors

    def _rules(self, context: ValidationContext, subgraphs: Mapping[str, CheckedDocument]) -> None:
        check_state(context)
        check_input(context)
        check_budget(context, subgraphs)
        check_approval(context)
        check_nodes(context)
        check_routes(context)
        check_regions(context)
        inputs = {place: sub.document.input or DEFAULT_INPUT_SCHEMA for place, sub in _by_place(context, subgraphs)}
        check_state_use(context, check_expressions(context, inputs))
        check_invariants(context, subgraphs)

    # --- graphs that it refers to

    def _subgraphs(self, context: ValidationContext, above: tuple[str, ...]) -> dict[str, CheckedDocument]:
        out: dict[str, CheckedDocument] = {}
        for place, pointer, graph in graphs_in(context.nodes):
            if isinstance(graph, str):
                found = self._named(context, pointer, graph, above)
            else:
                found = self._in_place(context, pointer, graph, above)
            key = graph if isinstance(graph, str) else place
            if found is not None and out.setdefault(key, found) is not found:
                message = f"node {place!r} has a graph in place, and another node names a graph {key!r}"
                context.issue(pointer, message, "rename the node")
        return out

    def _reached(self, context: ValidationContext) -> dict[str, CheckedDocument]:
        """Every agent that can be reached through `agent:` nodes; they may form cycles, so each is looked at once."""
        out: dict[str, CheckedDocument] = {}
        waiting, looked_at = dict(self._agents), set[str]()
        while waiting:
            key, pointer = waiting.popitem()
            data = self._kinds.graph(key)
            if data is None:
                context.issue(pointer, *_absent(key, self._kinds, "agent"))
                continue
            inner = self._nested(tries=False)
            looked_at.add(key)
            try:
                out[key] = inner.check(data, (key,))
            except DefinitionError as error:
                context.errors += _within("agent", key, pointer, error)
            waiting |= {other: pointer for other in inner._agents if other not in looked_at}
        return out

    def _named(
        self, context: ValidationContext, pointer: str, key: str, above: tuple[str, ...]
    ) -> CheckedDocument | None:
        # Before the look-up: a graph that contains itself would be loaded for ever.
        if key in above:
            cycle = [*above[above.index(key) :]]
            context.issue(
                pointer,
                f"graph {key!r} is part of itself: {show_cycle(cycle)}",
                "a graph can't contain itself",
                kind="graph",
            )
            return None
        if len(above) >= MAX_NESTING:
            message = f"graph {key!r} is nested more than {MAX_NESTING} graphs deep"
            context.issue(pointer, message, "let one graph hold what several only pass on", kind="graph")
            return None
        data = self._kinds.graph(key)
        if data is None:
            context.issue(pointer, *_absent(key, self._kinds))
            return None
        found = self._known.get(key)
        if found is None:
            inner = self._nested(tries=self._tries)
            try:
                found = inner.check(data, (*above, key))
            except DefinitionError as error:
                found = error
            self._agents = {**dict.fromkeys(inner._agents, pointer), **self._agents}
            # Errors are kept too: a broken graph is checked once, and reported at every node that names it.
            self._known[key] = found
        if isinstance(found, DefinitionError):
            context.errors += _within("graph", key, pointer, found)
            return None
        return found

    def _in_place(
        self, context: ValidationContext, pointer: str, data: Mapping[str, Any], above: tuple[str, ...]
    ) -> CheckedDocument | None:
        inner = self._nested(tries=False)
        try:
            return inner.check(data, above)
        except DefinitionError as error:
            context.take(pointer, error.errors)
            return None
        finally:
            self._agents = {**dict.fromkeys(inner._agents, pointer), **self._agents}

    def _nested(self, *, tries: bool) -> _Compiler:
        """The compiler of a graph inside this one: it shares what is known, and leaves places to the outer one.

        Suggestions for a graph in place are tried in the document around it, those for a graph of its own in that graph.
        """
        inner = _Compiler(self._kinds, None, tries=tries)
        inner._known = self._known
        return inner

    # --- identities and places

    def _placed(self, source: Any, issues: Iterable[Issue]) -> list[Issue]:
        """Each error once, with its place, in the order of the text."""
        once = list(dict.fromkeys(replace(issue, file=issue.file or self._file) for issue in issues))
        if not isinstance(source, Source):
            return once
        return sorted(map(source.locate, once), key=lambda issue: (issue.line or 0, issue.column or 0))


def _old_word(found: tuple[tuple[str, ...], str, str]) -> Issue:
    steps, old, new = found
    is_key = steps[-1] == old
    message = (
        f"unknown key {old!r}: it is called {new!r} now" if is_key else f"{steps[-1]} {old!r} is called {new!r} now"
    )
    return Issue(pointer=at(*steps), message=message, hint=f"write {new!r}")


def _as_written(issues: Iterable[Issue], outdated: Found) -> Iterator[Issue]:
    """Errors below a key that was read by its new name, at the place where the old one stands."""
    written = {at(*steps[:-1], new): at(*steps) for steps, _, new in outdated}
    for issue in issues:
        for new, old in written.items():
            if issue.pointer == new or issue.pointer.startswith(f"{new}/"):
                issue = replace(issue, pointer=old + issue.pointer.removeprefix(new))
                break
        yield issue


def _no_object(data: Any) -> Issue:
    return Issue(
        pointer="",
        message=f"a document is a JSON object, not {excerpt_of(data, 60)}",
        hint='begin with {"graphflow": "1"',
    )


def _by_place(
    context: ValidationContext, subgraphs: Mapping[str, CheckedDocument]
) -> Iterator[tuple[str, CheckedDocument]]:
    for place, _, graph in graphs_in(context.nodes):
        key = graph if isinstance(graph, str) else place
        if key in subgraphs:
            yield place, subgraphs[key]


def _within(what: str, key: str, pointer: str, error: DefinitionError) -> Iterator[Issue]:
    """The errors of another document, at the node that names it."""
    for issue in error.errors:
        message = f"in {what} {key!r}, {issue.pointer or 'at its top'}: {issue.message}"
        yield replace(issue, pointer=pointer, message=message, file=None, line=None, column=None)


def _absent(key: str, kinds: Kinds, what: str = "graph") -> tuple[str, str]:
    """Why a graph or agent can't be taken, and the next step."""
    name, _, version = key.partition("@")
    known = _keys(kinds)
    if name not in known:
        none = f"{'an agent' if what == 'agent' else 'a graph'}'s key is its file name under graphs/, without .json"
        return f"no {what} is named {key!r}", choose(key, known, none=none)
    # A broken document has no version at all.
    if version and kinds.graph(name) is not None:
        return f"{what} {name!r} has no version {version!r}", f"write {name!r} for its newest version"
    return (
        f"{what} {name!r} has errors of its own",
        "correct that document first; its errors are reported under its name",
    )


def _keys(kinds: Kinds) -> list[str]:
    """Keys of graphs, for hints, from kinds that list them (`graph_keys`)."""
    keys = getattr(kinds, "graph_keys", None)
    return list(keys()) if keys is not None else []
