"""What an agent may put into another agent's file: no tool whose capabilities it lacks, and no looser approval than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow.approval_mode import ApprovalRule
from graphflow.capabilities import missing
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import GraphDefinition
from graphflow.service.catalog.policies import tool_names
from graphflow.service.context import ServiceContext
from graphflow.tools.context import ToolContext
from graphflow.tools.running.approval import approval_rule

_STRICTNESS = {"DISABLED": 0, "AUTO": 1, "REQUIRE_APPROVAL": 2}


def excess(context: ServiceContext, made: CheckedDocument, ctx: ToolContext) -> str | None:
    """What the file would grant beyond what its writer and the starter of the run have, or None.

    Agents that the file refers to count as part of it: delegating to one is granting what it may do.
    """
    own = ctx.document
    if own is None:  # called by Python code, by no agent
        return None
    known = {word for name in tool_names(context, own) for word in _needs(context, name)}
    for document in _documents(made):
        if (place := _chosen_late(document)) is not None:
            return f"{place} is an expression, so nobody can know which tools it grants; list them"
        names = tool_names(context, document)
        for name in names:
            needs = _needs(context, name)
            if beyond := [word for word in needs if word not in known] or missing(needs, ctx.starter):
                return (
                    f"tool {name!r} needs the capability {beyond[0]!r}, which the agent that writes it, or who started the run,"
                    " does not have"
                )
        for name in (*names, "*"):
            theirs, mine = (approval_rule(name, each.approval, context.runner.approval) for each in (document, own))
            if _is_looser(theirs, mine):
                return (
                    f"approval of {name!r} would be looser than that of the agent that writes it: {_words(theirs)} instead of"
                    f" {_words(mine)}"
                )
    return None


def _needs(context: ServiceContext, name: str) -> tuple[str, ...]:
    return context.tools.capabilities(name)


def _documents(made: CheckedDocument) -> Iterator[GraphDefinition]:
    left, seen = [made], set()
    while left:
        each = left.pop()
        if each.digest not in seen:
            seen.add(each.digest)
            left += [*each.subgraphs.values(), *each.agents.values()]
            yield each.document


def _chosen_late(document: GraphDefinition) -> str | None:
    """A list of tools that is known only when its node runs."""
    for name, node in document.nodes.items():
        given = node.with_ if isinstance(node.with_, Mapping) else {}
        for field in ("tools", "keywords"):
            words = given.get(field)
            if isinstance(words, str) or any("${" in str(word) for word in words or ()):
                return f"`{field}` of node {name!r}"
    return None


def _is_looser(theirs: ApprovalRule, mine: ApprovalRule) -> bool:
    asks_less = _STRICTNESS[theirs.mode] < _STRICTNESS[mine.mode]
    return asks_less or theirs.count < mine.count or (mine.by == "other" and theirs.by != "other")


def _words(rule: ApprovalRule) -> str:
    return f"{rule.mode} by {rule.count} ({rule.by})" if rule.is_special else rule.mode
