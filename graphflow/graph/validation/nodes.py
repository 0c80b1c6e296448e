"""Checks of single nodes: their form, its other keys, and the names that they use (spec 2.1 rules 1 and 9, E19)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from graphflow.errors import ROUTABLE_CODES
from graphflow.graph.definition.document import NODE_FORMS, RESERVED_NODES, NodeDefinition
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.json_schema import check_schema
from graphflow.graph.definition.regions import agent_of
from graphflow.graph.definition.types import parse_duration_ms, show
from graphflow.graph.validation.context import ALL, ValidationContext
from graphflow.graph.validation.state import check_name
from graphflow.suggestions import Suggestion, choose, listed, nearest

_EVERY = frozenset({"set", "next", "error", "description"})
_KEYS_OF = {
    "use": _EVERY | {"with", "retry", "timeoutMs", "effects", "idempotent", "undo"},
    "graph": _EVERY | {"with", "retry", "timeoutMs", "stream"},
    "ask": _EVERY,
    "map": _EVERY | {"with", "as", "do", "max", "join", "retry", "timeoutMs"},
    "parallel": _EVERY | {"with", "join", "retry", "timeoutMs"},
}
"""Form → the other keys that a node of it takes (E19)."""

_KIND_WORDS = ("model", "tools", "tool", "agent", "fn", "node", "verify", "plan", "wait")
_KIND_NAMES = {"fn": "function", "node": "Python node"}
_CODE = re.compile(r"[(){}\[\];=<>\s\\/]|\.py\b|::|__|^(python|import|exec|eval|lambda|module|py)\b")


def check_nodes(context: ValidationContext) -> None:
    """Every node by itself."""
    if not context.nodes and "nodes" not in context.lost_top and isinstance(context.data.get("nodes"), dict):
        context.issue(
            "/nodes", "a graph has at least one node", 'as in {"answer": {"use": "model", "next": "end"}}', kind="shape"
        )
    for name, node in context.nodes.items():
        pointer = at("nodes", name)
        if name in RESERVED_NODES:
            context.issue(
                pointer, f"{name!r} can't name a node: it is where routes {_MEANING[name]}", "choose another name"
            )
        else:
            check_name(context, pointer, name, "node")
        if ALL not in context.lost.get(name, ()):
            _check_form(context, pointer, name, node)
            _check_limits(context, pointer, node)
            _check_codes(context, pointer, node)
            _check_ask(context, pointer, node)
            _check_use(context, pointer, name, node)
    _check_interrupts(context)


_MEANING = {"end": "end", "fail": "end in the error at hand"}


def _check_form(context: ValidationContext, pointer: str, name: str, node: NodeDefinition) -> None:
    if context.is_lost(name, *NODE_FORMS):
        return
    forms = [form for form in NODE_FORMS if getattr(node, form) is not None]
    if len(forms) != 1:
        found = f"this has {' and '.join(forms)}" if forms else "this has none"
        context.issue(
            pointer,
            f"a node has exactly one of {', '.join(NODE_FORMS)}; {found}",
            "keep one" if forms else None,
            kind="shape",
        )
        return
    form = forms[0]
    written = context.data["nodes"][name]
    for key in written:
        # Keys that no form takes are unknown keys, which the shape has reported.
        if key != form and key not in _KEYS_OF[form] and key not in NODE_FORMS and key in _ALL_KEYS:
            owners = [owner for owner, keys in _KEYS_OF.items() if key in keys]
            hint = f"it belongs to nodes with {' or '.join(owners)}; remove it"
            context.issue(pointer + at(key), f"a node with {form!r} takes no {key!r}", hint, kind="shape")


_ALL_KEYS = frozenset().union(*_KEYS_OF.values())


def _check_limits(context: ValidationContext, pointer: str, node: NodeDefinition) -> None:
    def above_zero(key: str, value: float | None, what: str) -> None:
        if value is not None and value <= 0:
            context.issue(f"{pointer}/{key}", f"{what} is above 0, not {value}", "leave it out for none", kind="type")

    above_zero("timeoutMs", node.timeout_ms, "a time limit in milliseconds")
    above_zero("max", node.max, "how many branches run at once")
    if (retry := node.retry) is None:
        return
    above_zero("retry/max", retry.max, "the number of attempts")
    for key, value in (("backoffMs", retry.backoff_ms), ("maxBackoffMs", retry.max_backoff_ms)):
        if value < 0:
            context.issue(
                f"{pointer}/retry/{key}", f"a delay in milliseconds is not below 0, as {value} is", kind="type"
            )
    if retry.factor < 1:
        context.issue(
            f"{pointer}/retry/factor",
            f"the factor of each further delay is at least 1, not {retry.factor}",
            kind="type",
        )
    if not 0 <= retry.jitter <= 1:
        context.issue(f"{pointer}/retry/jitter", f"jitter is a share from 0 to 1, not {retry.jitter}", kind="type")


def _check_codes(context: ValidationContext, pointer: str, node: NodeDefinition) -> None:
    """`on` lists codes of the closed list (E19)."""
    lists = [(f"{pointer}/error/{index}/on", route.on) for index, route in enumerate(node.error)]
    if node.retry is not None:
        lists.append((f"{pointer}/retry/on", node.retry.on))
    for place, codes in lists:
        if not codes:
            context.issue(place, "an empty list names no failure", "leave `on` out for its default", kind="shape")
        for index, code in enumerate(codes):
            if code not in ROUTABLE_CODES:
                context.issue(f"{place}/{index}", f"{show(code)} is not an error code", choose(code, ROUTABLE_CODES))
    for index, route in enumerate(node.error[:-1]):
        if "any" in route.on:
            after = f"{pointer}/error/{index + 1}"
            context.issue(
                after,
                "this route is never taken: the one before it takes any failure",
                "put it first",
                kind="graph",
                warning=True,
            )


def _check_ask(context: ValidationContext, pointer: str, node: NodeDefinition) -> None:
    ask = node.ask
    if ask is None:
        return
    context.take(f"{pointer}/ask/schema", check_schema(ask.schema))
    if not ask.message.strip():
        context.issue(f"{pointer}/ask/message", "the question is empty", "say what is asked", kind="type")
    if ask.hold_ms is not None and ask.hold_ms < 0:
        context.issue(
            f"{pointer}/ask/holdMs", f"a time in milliseconds must be at least 0, not {ask.hold_ms}", kind="type"
        )
    if ask.expires is not None:
        try:
            if parse_duration_ms(ask.expires) <= 0:
                context.issue(
                    f"{pointer}/ask/expires",
                    "a question that expires at once can't be answered",
                    "write P2D, PT15M, …",
                    kind="type",
                )
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            context.issue(f"{pointer}/ask/expires", message, hint or None, kind="type")
    elif ask.on_expire is not None:
        context.issue(
            f"{pointer}/ask/onExpire",
            "`onExpire` without `expires` is never taken",
            'add "expires": "P2D", or remove it',
            kind="shape",
        )


def _check_use(context: ValidationContext, pointer: str, name: str, node: NodeDefinition) -> None:
    if node.use is not None:
        kind = context.kinds.find(node.use)
        if kind is None and agent_of(node) is None:  # agents are looked up with all that they call
            _unknown_use(context, f"{pointer}/use", node.use)
        elif kind is not None:
            context.take(pointer, kind.check(name, node, context.document))
    if node.undo is not None and context.kinds.find(node.undo) is None:
        _unknown_use(context, f"{pointer}/undo", node.undo)
    elif node.undo is not None and node.undo.partition(":")[0] not in ("tool", "fn"):
        context.issue(
            f"{pointer}/undo", f"{node.undo!r} can't undo a write", "name a tool or function: tool:NAME or fn:NAME"
        )


def _unknown_use(context: ValidationContext, pointer: str, use: str) -> None:
    """A `use` that nothing is registered for; code and import paths get their own words (spec 2.1 rule 9)."""
    known = context.kinds.names()
    word, colon, name = use.partition(":")
    # Before any hint: the nearest registered name would suggest that code is allowed in another spelling.
    if looks_like_code(use, known):
        hint = 'register the function in Python (graphflow.toml lists the modules) and write its name: "fn:NAME" or "node:NAME"'
        context.issue(
            pointer, f"{show(use)} is Python code or an import path; a document only names what is registered", hint
        )
        return
    if colon and word in _KIND_WORDS:
        registered = [other for other in known if other.startswith(f"{word}:")]
        # By the name alone: the word before the colon would make every short name look near.
        near = nearest(name, (other.partition(":")[2] for other in registered))
        listing = listed(sorted(registered), none=_NONE_KNOWN.get(word, "none is registered"))
        more = listing if len(registered) > 1 else None
        hint = listing if near is None else Suggestion.of(use, f"{word}:{near}", more)
    else:
        hint = choose(use, known)
    what = (
        f"no {_KIND_NAMES.get(word, word)} is registered as {name!r}"
        if colon and word in _KIND_WORDS
        else f"no kind of node is registered as {show(use)}"
    )
    context.issue(pointer, what, hint)


_NONE_KNOWN = {
    "agent": "write the key of an agent, as in agent:researcher",
    "tool": "no tools are known here; register one in Python, or put a tool file into graphs/tools/",
    "fn": "no functions are registered; graphflow.toml lists the modules to import",
    "node": "no Python nodes are registered; graphflow.toml lists the modules to import",
}


def looks_like_code(use: str, known: Iterable[str]) -> bool:
    """Whether a name that is not registered was meant as Python: `os:system`, `fn:os.path.join`, `python:…`."""
    word, colon, name = use.partition(":")
    words = {*_KIND_WORDS, *(other.partition(":")[0] for other in known)}
    # A misspelt kind (`tol:bash`) is not code; a word that is near to none is most likely a module.
    if colon and word not in words and nearest(word, words) is None:
        return True
    if word in ("agent", "tool") and colon:
        return _CODE.search(name) is not None and not re.fullmatch(r"[^(){};=<>]*", name)
    text = name if colon else use
    return _CODE.search(text) is not None or ("." in text) or ":" in name


def _check_interrupts(context: ValidationContext) -> None:
    document = context.document
    if not context.nodes:
        return
    for key, names in (("interruptBefore", document.interrupt_before), ("interruptAfter", document.interrupt_after)):
        for index, name in enumerate(names):
            if name != "*" and name not in context.nodes:
                context.issue(at(key, index), f"no node is named {name!r}", choose(name, [*context.nodes, "*"]))
