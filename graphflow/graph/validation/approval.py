"""Who approves tool calls (spec 8.5): rules that name no tool, never ask, or that nobody could ever meet.

They are checked here for every document however it is loaded, a graph in a graph included; agent files are checked by the
same function before they are compiled, so that a broken file shows these errors with all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, get_args

from graphflow.approval_mode import ApprovalMode
from graphflow.errors import Issue
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.validation.context import ValidationContext
from graphflow.suggestions import choose

_MODES: tuple[str, ...] = get_args(ApprovalMode)


def check_approval(context: ValidationContext) -> None:
    written = context.data.get("approval")
    if written is None or "approval" in context.lost_top:
        return
    # Kinds say both by optional names: those of a test need not know any tools or people.
    tools = getattr(context.kinds, "tools", None) if isinstance(written, Mapping) else None
    names = None if tools is None else tools.declared()
    context.errors += [*_words(written), *approval_issues(written, context.data.get("tools"), names, _users(context))]


def _users(context: ValidationContext) -> bool | None:
    return getattr(context.kinds, "users", None)


def approval_issues(written: Any, own: Any, tools: Collection[str] | None, users: bool | None) -> Iterator[Issue]:
    """Errors in `approval` that its shape does not show.

    Args:
        written: the field, of any shape.
        own: the document's `tools`; they count as known, since their own error is reported in its place.
        tools: the names of all registered tools; None skips that check.
        users: whether there are users, so that one can approve what another asked for; None skips that check.
    """
    if not isinstance(written, Mapping):
        return
    listed = [name for name in own if isinstance(name, str)] if isinstance(own, list | tuple) else []
    known = {*listed, *(tools or ())}
    for name, rule in written.items():
        place = f"/approval/{escape(str(name))}"
        # A misspelt name would silently never ask, so it is an error.
        unknown = tools is not None and isinstance(name, str) and name not in {*known, "*"}
        # Asked again: `tools` may hold names that it does not list, as those of a server that is not connected yet.
        if unknown and tools is not None and name not in tools:
            yield _issue(place, f"no tool is named {name!r}", choose(name, [*known, "*"]), kind="reference")
        if isinstance(rule, Mapping):
            yield from _rule_issues(rule, place, users)


def _rule_issues(rule: Mapping[str, Any], place: str, users: bool | None) -> Iterator[Issue]:
    if rule.get("by") == "other" and users is False:
        hint = "name users in `server.tokens` (NAME@USER:SCOPES:SECRET), or leave `by` out"
        yield _issue(f"{place}/by", "by 'other' needs users, and no token names one", hint)
    if rule.get("mode") == "DISABLED" and (rule.get("by", "anyone") != "anyone" or rule.get("count", 1) != 1):
        yield _issue(f"{place}/mode", "mode 'DISABLED' asks nobody, so `by` and `count` say nothing", "leave them out")


def _words(written: Any) -> Iterator[Issue]:
    """Words that are no mode: an unknown one would never ask."""
    found = (
        {f"/approval/{escape(name)}": word for name, word in written.items()}
        if isinstance(written, Mapping)
        else {"/approval": written}
    )
    for place, word in found.items():
        if isinstance(word, str) and word not in _MODES:
            yield _issue(place, f"expected one of {', '.join(sorted(_MODES))}, not {word!r}", choose(word, _MODES))


def _issue(pointer: str, message: str, hint: str | None, *, kind: str = "property") -> Issue:
    return Issue(pointer=pointer, message=message, hint=hint, kind=kind)
