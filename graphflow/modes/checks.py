"""What the shape of an agent file can't say: names that must exist, ranges, a mode and its block (spec 1.1).

Every check reads plain data and yields errors with JSON pointers, so that it also works on a file
whose shape is wrong elsewhere: a person sees all errors of a file at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.validation.approval import approval_issues
from graphflow.models.fallback_names import fallback_issues
from graphflow.models.options import OPTION_NAMES, options_from_document
from graphflow.modes.definition import BLOCKS, GRAPH, mode_word
from graphflow.modes.registry import MODES
from graphflow.suggestions import choose
from graphflow.tools.wire_names import agent_key

# The largest whole number that every JSON reader keeps exact.
_MAX_INT = 2**53 - 1

_RANGES: Mapping[tuple[str, str], tuple[float, float, str]] = {
    ("options", "temperature"): (0, 2, "from 0 to 2"),
    # The least float above 0, as the range includes its ends.
    ("options", "topP"): (math.ulp(0.0), 1, "above 0 and at most 1"),
    ("options", "maxTokens"): (1, _MAX_INT, "at least 1"),
    ("options", "maxOutputTokens"): (1, _MAX_INT, "at least 1"),
    ("options", "timeoutMs"): (1, _MAX_INT, "at least 1 (milliseconds)"),
    ("budget", "maxRounds"): (1, _MAX_INT, "at least 1"),
    ("budget", "maxSteps"): (1, _MAX_INT, "at least 1"),
    ("budget", "maxModelCalls"): (1, _MAX_INT, "at least 1"),
    ("budget", "maxToolCalls"): (1, _MAX_INT, "at least 1"),
    ("budget", "maxTokens"): (1, _MAX_INT, "at least 1"),
    ("budget", "maxCostUsd"): (math.ulp(0.0), _MAX_INT, "above 0"),
    ("budget", "timeoutMs"): (1, _MAX_INT, "at least 1 (milliseconds)"),
    ("planExecute", "maxRoundsPerTask"): (1, _MAX_INT, "at least 1"),
    **{
        (block, field): (1, _MAX_INT, "at least 1")
        for block in ("react", "planExecute", "reactTeam")
        for field in ("maxRounds", "maxSteps")
    },
}
"""(part, field) → lowest value, highest value, the rule in words."""

_LEGACY = {
    "systemPrompt": "move it into the block of the mode",
    "deepThink": "use `mode` THINKING or `compute` instead",
}


def agent_issues(
    data: Mapping[str, Any],
    *,
    key: str | None = None,
    tools: Collection[str] | None = None,
    providers: Collection[str] | None = None,
    users: bool | None = None,
) -> Iterator[Issue]:
    """Errors in the agent fields, which both forms of a file may have (E23).

    Args:
        data: the file's data, of any shape.
        key: the file's name without its suffix; `None` for an agent that has no file.
        tools: the names of all registered tools; `None` skips that check.
        providers: the keys and aliases of all known providers; `None` skips that check.
        users: whether there are users, so that one can approve what another asked for; `None` skips that check.
    """
    yield from _key_issues(data.get("key"), key)
    yield from _provider_issues(data.get("providerKey"), providers)
    yield from _tool_issues(data.get("tools"), tools)
    yield from _team_issues(data, tools, providers)
    yield from approval_issues(data.get("approval"), data.get("tools"), tools, users)
    ranges = list(_range_issues(data))
    yield from ranges
    if not any(issue.pointer.startswith("/options/") for issue in ranges):
        issues = list(option_issues(data.get("options")))
        yield from issues
        if not issues and isinstance(options := data.get("options"), Mapping):
            yield from fallback_issues(options, data.get("providerKey"), data.get("model"), providers, "/options")
    for pointer, graph in _graphs_in_place(data.get("nodes")):
        for issue in agent_issues(graph, tools=tools, providers=providers, users=users):
            yield replace(issue, pointer=pointer + issue.pointer)


def _graphs_in_place(nodes: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The graphs that nodes and their bodies hold as documents, not by key, with their places; in data of any shape."""
    for name, node in nodes.items() if isinstance(nodes, Mapping) else ():
        if not isinstance(node, Mapping):
            continue
        branches = node.get("parallel")
        holders = {"": node, "/do": node.get("do")}
        for branch, body in branches.items() if isinstance(branches, Mapping) else ():
            place = f"/parallel/{escape(str(branch))}"
            holders |= {place: body, f"{place}/do": body.get("do") if isinstance(body, Mapping) else None}
        for place, holder in holders.items():
            if isinstance(holder, Mapping) and isinstance(graph := holder.get("graph"), Mapping):
                yield f"/nodes/{escape(str(name))}{place}/graph", graph


def mode_issues(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Errors of `mode`, its block, and fields of formats that are no longer read.

    Args:
        data: the file's data, of any shape.
    """
    # Refused, not left out: without its prompt the agent would run and answer as if it had none.
    for name, instead in _LEGACY.items():
        if name in data:
            yield _issue(f"/{name}", f"a top-level {name!r} is the old format and is not read", instead)
    word = data.get("mode")
    if not isinstance(word, str):
        return  # missing or ill-typed: the shape says so
    mode = mode_word(word)
    if mode == GRAPH:
        yield _issue(
            "/mode",
            "'GRAPH' is not a mode that a file can name",
            "leave `mode` out and write `graphflow`, `start` and `nodes`",
        )
    elif mode not in BLOCKS:
        yield _issue("/mode", f"{word!r} is not a mode", choose(word, MODES), kind="reference")
    elif mode not in MODES:
        yield _issue("/mode", f"mode {mode} is not in this version; modes are {', '.join(sorted(MODES))}", None)
    else:
        yield from _block_issues(data, mode)
    yield from _unused_blocks(data, mode)
    for part in ("react", "planExecute", "reactTeam", "budget"):
        yield from _alias_issues(data, part)


def _block_issues(data: Mapping[str, Any], mode: str) -> Iterator[Issue]:
    name = BLOCKS[mode]
    block = data.get(name)
    if block is None:
        hint = _EXAMPLES.get(name, '{"systemPrompt": "…"}')
        yield _issue("/mode", f"mode {mode} needs its block {name!r}", f'add "{name}": {hint}')
    elif isinstance(block, Mapping):
        for field, prompt in block.items():
            if field.lower().endswith("systemprompt") and isinstance(prompt, str) and not prompt.strip():
                yield _issue(f"/{name}/{field}", "the system prompt is empty", "describe what the agent is for")


_EXAMPLES = {
    "planExecute": '{"planSystemPrompt": "…", "executeSystemPrompt": "…"}',
    "reactTeam": "{}; each of its agents has a prompt of its own",
}
"""Block → its smallest valid content, if that is not a system prompt."""


def _team_issues(
    data: Mapping[str, Any], tools: Collection[str] | None, providers: Collection[str] | None
) -> Iterator[Issue]:
    """Errors in the names that a team's stages use: tools, providers, and agents that replace a stage."""
    written = data.get("reactTeam")
    team = written if isinstance(written, Mapping) else {}
    for stage in _STAGES:
        own = team.get(stage)
        if not isinstance(own, Mapping):
            continue
        place = f"/reactTeam/{stage}"
        yield from _tool_issues(own.get("tools"), tools, place)
        yield from _provider_issues(own.get("providerKey"), providers, place)
        # The agent runs as a subgraph with its own settings, so these would have no effect.
        if own.get("agent") is not None and (more := sorted(own.keys() - {"agent"})):
            yield _issue(place, f"`agent` replaces this stage and has its own {', '.join(more)}", "keep `agent` alone")


_STAGES = ("thinking", "action", "observation", "final")


def _unused_blocks(data: Mapping[str, Any], mode: str) -> Iterator[Issue]:
    for other, name in BLOCKS.items():
        if name in data and other != mode:
            message = f"block {name!r} belongs to mode {other} and is not used by mode {mode}"
            yield _issue(f"/{name}", message, None, severity="warning")


def _alias_issues(data: Mapping[str, Any], part: str) -> Iterator[Issue]:
    block = data.get(part)
    if isinstance(block, Mapping) and "maxSteps" in block and "maxRounds" in block:
        yield _issue(
            f"/{part}/maxSteps", "'maxSteps' is an alias of 'maxRounds' and both are given", "keep one of them"
        )


ANY_AGENT = ("", "auto", "default")
"""What a request says instead of an agent's key: the first one by key."""


def _key_issues(written: Any, key: str | None) -> Iterator[Issue]:
    # No reference could name such an agent: `agent:KEY@VERSION` is split at these, and a path at its slashes.
    if key is not None and (bad := sorted({c for c in key if c in "@:/\\" or c.isspace() or not c.isprintable()})):
        yield _issue("", f"the agent's key {key!r} must not contain {', '.join(map(repr, bad))}", "rename the file")
    if key in ANY_AGENT:
        yield _issue(
            "", f"the agent's key {key!r} is taken: in a request it means the first agent by key", "rename the file"
        )
    # Two names for one agent would make `agent:KEY` ambiguous.
    if isinstance(written, str) and key is not None and written != key:
        yield _issue("/key", f"key {written!r} differs from the file's name {key!r}", "rename the file or remove `key`")


def _provider_issues(written: Any, providers: Collection[str] | None, place: str = "") -> Iterator[Issue]:
    if isinstance(written, str) and providers is not None and written not in providers:
        yield _issue(
            f"{place}/providerKey", f"no provider is named {written!r}", choose(written, providers), kind="reference"
        )


def _tool_issues(written: Any, tools: Collection[str] | None, place: str = "") -> Iterator[Issue]:
    if not isinstance(written, list | tuple):
        return
    for index, name in enumerate(written):
        if not isinstance(name, str):
            continue  # the shape says so
        if name in written[:index]:
            yield _issue(f"{place}/tools/{index}", f"tool {name!r} is listed twice", "remove one")
        # Agents are looked up with all that they call, when the graph is checked.
        if tools is not None and name not in tools and agent_key(name) is None:
            yield _issue(
                f"{place}/tools/{index}",
                f"no tool is named {name!r}",
                choose(name, tools, none="no tool is registered"),
                kind="reference",
            )
        elif (warning := getattr(tools, "warning", lambda name: None)(name)) is not None:
            yield replace(_issue(f"{place}/tools/{index}", warning, None, kind="reference"), severity="warning")


def _range_issues(data: Mapping[str, Any]) -> Iterator[Issue]:
    for (part, field), (low, high, words) in _RANGES.items():
        block = data.get(part)
        value = block.get(field) if isinstance(block, Mapping) else None
        # In Python `true` is also the number 1.
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # missing, or the shape says so
        if not low <= value <= high:
            rule = f"at most {high}" if value > high == _MAX_INT else words
            yield _issue(f"/{part}/{field}", f"{field} must be {rule}, not {value!r}", None, kind="type")


def option_issues(options: Any) -> Iterator[Issue]:
    """What no call could be made with: headers of ours, a form that can't be strict, a limit of 0."""
    if not isinstance(options, Mapping):
        return  # missing, or the shape says so
    if "maxTokens" in options and "maxOutputTokens" in options:
        yield _issue("/options/maxTokens", "`maxTokens` is the same as `maxOutputTokens`", "leave it out")
    issues = [
        _issue(f"/options/{escape(str(name))}", why, None, kind="type")
        for name, value in options.items()
        # Names that there are not are reported with the shape.
        if name in OPTION_NAMES and (why := _misfit({name: value})) is not None
    ]
    yield from issues
    if not issues and (why := _misfit({name: options[name] for name in options if name in OPTION_NAMES})) is not None:
        yield _issue("/options", why, None, kind="type")


def _misfit(options: Mapping[str, Any]) -> str | None:
    try:
        options_from_document(options)
    except ValueError as error:
        return str(error)
    return None


def _issue(pointer: str, message: str, hint: str | None, *, kind: str = "property", severity: str = "error") -> Issue:
    return Issue(pointer=pointer, message=message, hint=hint, kind=kind, severity=severity)
