"""A file read and taken apart, before anything that it refers to is looked at.

Reading and checking are two steps because files refer to each other (subgraphs, `agent:` nodes):
the registry reads all of them first and checks each against the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphflow.authored_files import MAX_BYTES, too_large
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.definition.plain_data import without_schema
from graphflow.graph.definition.source import Source, decode_utf8, parse_source, read_source
from graphflow.graph.definition.struct_validation import check_shape
from graphflow.graph.definition.suggestion_checks import keep_working
from graphflow.graph.definition.types import show
from graphflow.modes.agent_calls import with_agent_calls
from graphflow.modes.checks import agent_issues, mode_issues
from graphflow.modes.definition import GRAPH, AgentDefinition, AgentFields, decode_definition, mode_word
from graphflow.modes.policies import Policies
from graphflow.modes.registry import MODES, compile_agent
from graphflow.suggestions import Suggestion, nearest

Origin = Path | str | bytes | Mapping[str, Any]
"""A path, a file's text (it begins with `{`) or bytes, or its data."""

GRAPH_KEYS = frozenset({"graphflow", "start", "nodes", "state", "input", "result", "invariants"})
"""Any of these makes a file an explicit graph."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The names that agent files may use; `None` skips a check."""

    tools: Collection[str] | None = None
    providers: Collection[str] | None = None
    """Provider keys, aliases included."""
    users: bool | None = None
    """Whether there are users, so that one can approve what another asked for."""
    document_bytes: int = MAX_BYTES
    """Largest file or text of an agent."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One agent as written, with the errors that can be found without other agents."""

    key: str
    mode: str
    """A mode's word, or `GRAPH`."""
    file: str | None
    source: Source | None
    """Positions in the text; `None` when there is no text."""
    raw: Mapping[str, Any]
    """The file's data."""
    data: Mapping[str, Any] | None
    """The explicit document; `None` when the file is too broken to build it."""
    definition: AgentDefinition | None = None
    policies: Policies | None = None
    errors: tuple[Issue, ...] = ()

    @property
    def unreadable(self) -> bool:
        """Whether the text is not JSON: somebody may still be writing it."""
        return any(issue.kind == "syntax" for issue in self.errors)

    @property
    def refers(self) -> bool:
        """Whether the document refers to other agents, so that their changes may affect it."""
        nodes = (self.data or {}).get("nodes")
        return isinstance(nodes, Mapping) and any(map(_refers, nodes.values()))

    def locate(self, issue: Issue) -> Issue:
        """The error with file, line and column, as far as they are known."""
        if issue.line is not None:
            return issue
        return replace(issue, file=self.file) if self.source is None else self.source.locate(issue)


def read_draft(origin: Origin, *, key: str | None = None, file: str | None = None, known: Known = Known()) -> Draft:
    """The draft of a file, a text or data; never raises, errors are in the draft.

    Args:
        origin: what to read.
        key: the agent's key where no file name gives one; default the `key` inside, else `agent`.
        file: the path of a text or its bytes.
        known: the names that the agent may use.
    """
    file = file or _file_of(origin)
    name = None if file is None else Path(file).name.removesuffix(".json")
    try:
        source, given = _open(origin, file, known.document_bytes)
    except DefinitionError as error:
        return _broken(key or name or "agent", file, error.errors)
    raw = without_schema(given)
    draft = _draft_of(raw, source, key, file, known)

    def tried(data: Mapping[str, Any]) -> Iterable[Issue]:
        return _draft_of(data, None, key, file, known).errors

    return replace(draft, errors=tuple(keep_working(raw, draft.errors, tried))) if draft.errors else draft


def _draft_of(raw: Mapping[str, Any], source: Source | None, key: str | None, file: str | None, known: Known) -> Draft:
    name = None if file is None else Path(file).name.removesuffix(".json")
    written = raw.get("key")
    draft = Draft(
        key=key or name or (written if isinstance(written, str) and written else "agent"),
        mode=GRAPH,
        file=file,
        source=source,
        raw=raw,
        data=None,
    )
    own = agent_issues(raw, key=key or name, tools=known.tools, providers=known.providers, users=known.users)
    common = (*(source.errors if source else ()), *own)
    return _as_mode(draft, common) if "mode" in raw else _as_graph(draft, common)


def unreadable_draft(file: str, reason: str) -> Draft:
    """The draft of a file that can't be read."""
    issue = Issue(pointer="", message=f"can't be read: {reason}", file=file, kind="syntax")
    return _broken(Path(file).name.removesuffix(".json"), file, (issue,))


def _broken(key: str, file: str | None, issues: tuple[Issue, ...]) -> Draft:
    return Draft(key=key, mode=GRAPH, file=file, source=None, raw={}, data=None, errors=issues)


def _file_of(origin: Origin) -> str | None:
    if isinstance(origin, Path):
        return str(origin)
    # No path begins with a brace, and every agent file does; a byte order mark may come first.
    if isinstance(origin, str) and not origin.lstrip("\ufeff \t\r\n").startswith("{"):
        return origin
    return None


def _open(origin: Origin, file: str | None, max_bytes: int) -> tuple[Source | None, Mapping[str, Any]]:
    """Source and data; raises `DefinitionError` for anything but a JSON object."""
    if isinstance(origin, Mapping):
        return None, _object(origin, None)
    if isinstance(origin, bytes | str) and len(origin) > max_bytes:
        reason = f"can't be read: {too_large(len(origin), max_bytes)}"
        raise DefinitionError([Issue(pointer="", message=reason, file=file, kind="syntax")])
    if isinstance(origin, bytes):
        # Not strict: errors of the text are reported together with those of the agent, not instead of them.
        source = parse_source(decode_utf8(origin, file=file), file=file, strict=False)
    elif isinstance(origin, str) and _file_of(origin) is None:
        source = parse_source(origin, file=file, strict=False)
    else:
        source = read_source(origin, strict=False, max_bytes=max_bytes)
    return source, _object(source.data, source)


def _object(data: Any, source: Source | None) -> Mapping[str, Any]:
    if isinstance(data, Mapping) and all(isinstance(name, str) for name in data):
        return data
    issue = Issue(pointer="", message=f"an agent file is a JSON object, not {show(data)}", kind="shape")
    raise DefinitionError([issue if source is None else source.locate(issue)])


def field_issues(raw: Mapping[str, Any]) -> list[Issue]:
    """The errors of the agent fields of an explicit graph, whose own checker knows none of them."""
    return check_shape({name: raw[name] for name in _FIELD_NAMES if name in raw}, AgentFields)


def _as_graph(draft: Draft, common: tuple[Issue, ...]) -> Draft:
    """The draft of an explicit graph; the graph's compiler checks the graph later."""
    raw = draft.raw
    if not GRAPH_KEYS & raw.keys():
        found = [name for name, mode in MODES.items() if mode.block in raw]
        hint = f'add "mode": "{found[0]}"' if found else f"modes are {', '.join(MODES)}"
        # A misspelt `mode` or `graphflow` is what is wrong then, and the place to correct.
        for name in raw:
            if name not in _FIELD_NAMES and (near := nearest(name, ("mode", "graphflow"))) is not None:
                unknown = Issue(
                    pointer=f"/{escape(name)}", message=f"unknown key {name!r}", hint=Suggestion.of(name, near, hint)
                )
                return replace(draft, errors=_located(draft, [unknown, *common]))
        missing = Issue(pointer="", message="neither a mode nor a graph: `mode` is missing", hint=hint, kind="shape")
        return replace(draft, errors=_located(draft, [missing, *common, *mode_issues(raw)]))
    issues = _merged(common, field_issues(raw))
    return replace(draft, data=with_agent_calls(raw), errors=_located(draft, issues))


def _as_mode(draft: Draft, common: tuple[Issue, ...]) -> Draft:
    """The draft of a file with a mode; compiled if it has no errors."""
    raw, word = draft.raw, draft.raw["mode"]
    mode = mode_word(word) if isinstance(word, str) else GRAPH
    both = sorted(GRAPH_KEYS & raw.keys())
    own = [*_both_issues(both), *mode_issues(raw), *common]
    # Keys of both forms have their own error already; "unknown key" would only repeat it.
    shape = check_shape({name: value for name, value in raw.items() if name not in both}, AgentDefinition)
    issues = _merged(own, shape)
    draft = replace(draft, mode=mode, errors=_located(draft, issues))
    if any(issue.severity == "error" for issue in issues):
        return draft
    definition = decode_definition(raw)
    try:
        compiled = compile_agent(definition, raw)
    except DefinitionError as error:
        return replace(draft, definition=definition, errors=draft.errors + _located(draft, error.errors))
    return replace(
        draft,
        definition=definition,
        data=compiled.data,
        policies=compiled.policies,
        errors=draft.errors + _located(draft, compiled.warnings),
    )


def _both_issues(graph_keys: list[str]) -> Iterator[Issue]:
    for name in graph_keys:
        message = f"the file names a mode and also has {name!r} of an explicit graph"
        yield Issue(pointer=f"/{name}", message=message, hint="remove `mode` and its block, or the graph", kind="shape")


def _merged(own: Iterable[Issue], shape: Iterable[Issue]) -> list[Issue]:
    """Both lists, each place once: our own error wins over one about the shape, any error over a warning."""
    ours, shapes = list(own), list(shape)
    errors = {issue.pointer for issue in ours if issue.severity == "error"}
    news = [issue for issue in shapes if issue.pointer not in errors]
    wrong = {issue.pointer for issue in news}
    return [*(issue for issue in ours if issue.pointer not in wrong), *news]


def _located(draft: Draft, issues: Iterable[Issue]) -> tuple[Issue, ...]:
    return tuple(map(draft.locate, issues))


def _refers(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return False
    use, body = node.get("use"), node.get("do")
    names_agent = isinstance(use, str) and use.startswith("agent:")
    return names_agent or "graph" in node or (isinstance(body, Mapping) and "graph" in body)


_FIELD_NAMES = AgentFields.__struct_encode_fields__
