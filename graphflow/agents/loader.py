"""From a file, a text or data to a `LoadedAgent` that can run, or to all its errors at once (spec 1.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from graphflow.agents.draft import Draft, Known, Origin, read_draft
from graphflow.authored_files import MAX_BYTES
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.json_pointer import unescape
from graphflow.graph.definition.kinds import Kinds
from graphflow.graph.validation.validate import check_document
from graphflow.memory.prompt_snapshot import SPEAKING
from graphflow.modes.definition import AgentDefinition
from graphflow.modes.policies import Policies
from graphflow.modes.registry import MODES


@dataclass(frozen=True, kw_only=True)
class LoadedAgent:
    """One version of an agent; immutable, so a run keeps the version that it started with."""

    key: str
    name: str
    icon: str | Mapping[str, Any] | None
    description: str
    mode: str
    """A mode's word, or `GRAPH` for a file with an explicit graph."""
    provider_key: str | None
    """`None`: the provider is chosen at run time (`auto`)."""
    model: str | None
    tools: tuple[str, ...]
    keywords: tuple[str, ...]
    checked: CheckedDocument
    definition: AgentDefinition | None
    """`None` for an explicit graph."""
    policies: Policies | None
    """`None` for an explicit graph."""
    file: str | None
    warnings: tuple[Issue, ...]

    @property
    def version(self) -> str:
        """The version hash (E23)."""
        return self.checked.digest

    @property
    def data(self) -> Mapping[str, Any]:
        """The explicit document as plain JSON data: what `graph show --json` prints, itself a valid file."""
        data: Mapping[str, Any] = self.checked.data
        return data

    @property
    def instructions(self) -> str | None:
        """The primary system prompt, as written."""
        if self.definition is not None:
            block = getattr(self.definition, MODES[self.definition.mode].block)
            if (written := getattr(block, "system_prompt", None)) is not None:
                return str(written)
        for node in self.checked.document.nodes.values():
            if node.use in SPEAKING and isinstance(node.with_, Mapping) and "systemPrompt" in node.with_:
                return str(node.with_["systemPrompt"])
        return None


def load_agent(
    origin: Origin,
    *,
    kinds: Kinds,
    tools: Collection[str] | None = None,
    providers: Collection[str] | None = None,
    users: bool | None = None,
    key: str | None = None,
    document_bytes: int = MAX_BYTES,
) -> LoadedAgent:
    """The agent of a path, a file's text (it begins with `{`) or its data.

    Args:
        origin: what to load.
        kinds: the registered node kinds; they also resolve subgraphs.
        tools: the names of all registered tools; `None` skips that check.
        providers: the keys and aliases of all known providers; `None` skips that check.
        users: whether there are users; `None` skips that check.
        key: the agent's key if there is no file name.
        document_bytes: largest file or text.

    Raises:
        DefinitionError: with all errors of the file, each with its place.
    """
    known = Known(tools=tools, providers=providers, users=users, document_bytes=document_bytes)
    return check_draft(read_draft(origin, key=key, known=known), kinds)


def check_draft(draft: Draft, kinds: Kinds) -> LoadedAgent:
    """The draft checked as a graph, against everything that it refers to.

    Raises:
        DefinitionError: with the draft's own errors and the graph's.
    """
    issues = list(draft.errors)
    checked = _check_graph(draft, kinds, issues)
    if checked is None or any(issue.severity == "error" for issue in issues):
        raise DefinitionError(sorted(issues, key=_place))
    return _loaded(draft, checked, tuple(sorted(issues, key=_place)))


def _check_graph(draft: Draft, kinds: Kinds, issues: list[Issue]) -> CheckedDocument | None:
    """The checked graph; its errors are added to `issues`, each place once."""
    if draft.data is None:
        return None
    explicit = draft.definition is None
    # The source has the places of an explicit graph; a compiled one has no text of its own.
    # One that got nodes for its calls of agents has none either.
    written = explicit and draft.source is not None and draft.data is draft.raw
    document = draft.source if written and draft.source is not None else draft.data
    checked: CheckedDocument | None = None
    try:
        checked = check_document(document, kinds, file=draft.file)
        found = checked.warnings
    except DefinitionError as error:
        found = error.errors
    places = {issue.pointer for issue in issues}
    reported = {(issue.pointer, issue.message) for issue in issues}
    for issue in found:
        issue = _at_its_tool(draft, issue)
        placed = draft.locate(issue) if explicit else _in_mode_file(draft, issue)
        if placed is not None and not _is_covered(issue, places, reported):
            issues.append(placed)
    return checked


def _is_covered(issue: Issue, places: set[str], reported: set[tuple[str, str]]) -> bool:
    """Whether the draft's own errors cover this issue: the agent's checks say more than one about the shape."""
    return (issue.pointer, issue.message) in reported or (issue.kind == "shape" and issue.pointer in places)


def _place(issue: Issue) -> tuple[int, int]:
    """Sort key by position in the text; errors without a position keep their order."""
    return issue.line or 0, issue.column or 0


def _at_its_tool(draft: Draft, issue: Issue) -> Issue:
    """An error of an agent at the tool that names it, where the file has no node of its own for it."""
    match issue.pointer.split("/"):
        case ["", "nodes", name, "use"]:
            node = (draft.data or {}).get("nodes", {}).get(unescape(name))
        case _:
            return issue
    tools = draft.raw.get("tools")
    if not isinstance(node, Mapping) or _stands_in(draft.raw, issue.pointer) or not isinstance(tools, list | tuple):
        return issue
    place = next((f"/tools/{index}" for index, tool in enumerate(tools) if tool == node.get("use")), issue.pointer)
    return replace(issue, pointer=place, file=None, line=None, column=None)


def _in_mode_file(draft: Draft, issue: Issue) -> Issue | None:
    """The error of a compiled graph at its place in the agent file; None for a warning about the mode's own graph."""
    place = MODES[draft.mode].written_at(issue.pointer) or issue.pointer
    if _stands_in(draft.raw, place):
        return draft.locate(replace(issue, pointer=place, file=None, line=None, column=None))
    # The file's author can't change the mode's own graph.
    if issue.severity == "warning":
        return None
    message = f"in the mode's graph, {issue.pointer}: {issue.message}"
    return draft.locate(replace(issue, pointer="/mode", message=message, file=None, line=None, column=None))


def _stands_in(data: Any, pointer: str) -> bool:
    for token in pointer.split("/")[1:]:
        name = unescape(token)
        if isinstance(data, Mapping) and name in data:
            data = data[name]
        elif isinstance(data, list) and name.isdecimal() and int(name) < len(data):
            data = data[int(name)]
        else:
            return False
    return bool(pointer)


def _loaded(draft: Draft, checked: CheckedDocument, warnings: tuple[Issue, ...]) -> LoadedAgent:
    document = checked.document
    return LoadedAgent(
        key=draft.key,
        name=document.name or draft.key,
        icon=document.icon,
        description=document.description or f"agent from {PurePath(draft.file).name if draft.file else 'memory'}",
        mode=draft.mode,
        provider_key=document.provider_key,
        model=document.model,
        tools=document.tools or (),
        keywords=document.keywords or (),
        checked=checked,
        definition=draft.definition,
        policies=draft.policies,
        file=draft.file,
        warnings=warnings,
    )
