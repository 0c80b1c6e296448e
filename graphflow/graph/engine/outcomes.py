"""What is said of a recorded operation whose outcome is in doubt: the question to a person, and a result without a stored form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.approval_mode import with_approvals
from graphflow.bounds import Bounds
from graphflow.errors import CodecError, NodeFailed, check_size, text_of
from graphflow.graph.core.machine import Operation
from graphflow.graph.engine.suspension import OutcomeUnknown

Deciders = Mapping[str, Any] | None
"""`{role?, approval?}` of the question by which people have approved a call: the same people decide what happens to it if it
is cut off; None: anybody does."""
OUTCOME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["decision"],
    "properties": {"decision": {"enum": ["retry", "skip", "result"]}, "result": {}},
}
"""What a person decides about a write whose outcome is unknown."""

AGAIN = object()
"""What an `OperationRecovery` says of a write that surely did nothing."""

_UNSTORABLE = "graphflow:unstorable"
"""Key of the recorded result that stands for one which can't be stored."""


def write_of(node: str, key: str, tool: str | None = None) -> str:
    """The write in words."""
    call = f" of tool {tool!r}" if tool else ""
    return f"the write {key!r}{call} of node {node!r}" if key else f"the write of node {node!r}"


def reuse_message(node: str, key: str, *, found: bool) -> str:
    """What a person is told about a write that the past has no result for."""
    why = "was done with other arguments, or nobody knows its result" if found else "is not among what was done"
    return f"Results of the past are reused, and the write {key!r} of node {node!r} {why}."


def outcome_question(
    operation: Operation, key: str, arguments: Any, deciders: Deciders, said: Mapping[str, Any]
) -> dict[str, Any]:
    """The question about a write: it shows the step or the call, as an approval does.

    Args:
        deciders: who is asked.
        said: more of the payload: its message.
    """
    asked: dict[str, Any] = {"kind": "outcome_unknown", "schema": OUTCOME_SCHEMA, "digest": operation.digest}
    payload: dict[str, Any] = {"operation": key, **said}
    if deciders is not None:
        asked["role"] = deciders.get("role")
        if "approval" in deciders:
            payload = with_approvals({**payload, "approval": deciders["approval"]}, ())
    if operation.kind != "tool":
        step = {"step": key} if operation.kind == "once" else {}
        return {**asked, "arguments": arguments, "payload": {**payload, **step}}
    # A call's arguments stand beside the tool that they are for: its digest covers both.
    call = {"tool_id": key, "tool_name": arguments["tool"], "arguments": arguments["arguments"]}
    return {**asked, **call, "payload": payload}


def effect_facts(visit: int, path: str, undo: str | None, arguments: Any, origin: str) -> dict[str, Any]:
    """The facts about a write that are needed after its node is gone: its place, its arguments, and its undo."""
    facts: dict[str, Any] = {"visit": visit}
    if path:
        facts["path"] = path
    if undo:
        facts["undo"] = undo
    if origin:
        facts["origin"] = origin
    if arguments is not None:
        facts["arguments"] = arguments
    return facts


def effect_at(past: Sequence[Any], rows: Mapping[str, Sequence[Any]]) -> tuple[str | None, list[dict[str, Any]]]:
    """Of the effects of an abandoned past the one at this path, node, visit and key, and those that have a record."""
    effect = next((name for name, row in rows.items() if row[:4] == past), None)
    names = ("path", "node", "visit", "key")
    return effect, [dict(zip(names, row, strict=False)) for row in rows.values() if len(row) > 4]


def cut_off(error: Exception, node: str, key: str) -> OutcomeUnknown:
    """The failure of a write that did not come to its end."""
    return OutcomeUnknown(
        f"{write_of(node, key)} was cut off ({text_of(error)}); whether it happened is unknown",
        code=getattr(error, "code", "timeout"),
        key=key,
    )


def unstorable(error: CodecError, what: str) -> NodeFailed:
    """The failure of a node whose code gives a value that can't be stored.

    Args:
        what: the value, such as `the result of step 'save' of node 'a'`.
    """
    why = error.message.partition("can't be stored: ")[2] or error.message
    return NodeFailed(f"{what} can't be stored: {why}", code=error.code)


def unstorable_step(error: CodecError, key: str, node: str, *, done: bool) -> NodeFailed:
    """The same of a step: of its result if it is `done`, else of its arguments."""
    place = f"step {key!r} of node {node!r}"
    return unstorable(error, f"the result of {place}" if done else f"what {place} has as `arguments`")


def lost_result(failure: NodeFailed) -> dict[str, str]:
    """What is recorded of a write that was done, for its result: done again it would be done twice."""
    return {_UNSTORABLE: failure.message}


def result_of(operation: Operation) -> Any:
    """The recorded result.

    Raises:
        NodeFailed: it could not be stored.
    """
    result = operation.result
    if isinstance(result, Mapping) and result.keys() == {_UNSTORABLE}:
        raise NodeFailed(
            f"{result[_UNSTORABLE]}. The write was done, and is not repeated: correct the step, then rewind to a checkpoint"
            " before the node with effects='rerun'",
            code="not_serializable",
        )
    return result


def bounded(done: Operation, node: str, key: str, bounds: Bounds) -> Any:
    """The recorded result, if it is no larger than a value may be.

    Raises:
        LimitExceeded: it is. Outputs of tools have a bound of their own.
        NodeFailed: see `result_of`.
    """
    result = result_of(done)
    if done.kind == "once":
        check_size(result, bounds, f"the result of step {key!r} of node {node!r}", "return less, or raise it")
    return result


def as_it_is(answer: Any) -> Any:
    return answer
