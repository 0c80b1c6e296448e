"""`use: wait`: the run rests until a time, a named signal, or whichever comes first (spec 2.3, 2.4).

    {"use": "wait", "with": {"signal": "paid", "for": "P2D"}, "set": {"paid": "out.by == 'signal'"}, "next": …}

`out` is `{by: "signal" | "timer", signal?, payload?, at}`. A time is looked at by the sweep of a server, and whenever the
thread is loaded or answered: without a server a thread that waits goes on when somebody resumes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from graphflow.errors import Issue, NodeFailed
from graphflow.excerpts import excerpt_of
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.definition.types import parse_duration_ms
from graphflow.graph.engine.node_run import NodeRun

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction

WAIT_WITH: dict[str, Any] = {
    "type": "object",
    "properties": {"signal": {"type": "string"}, "for": {"type": "string"}, "until": {"type": ["string", "integer"]}},
    "additionalProperties": False,
}


class WaitKind:
    """`use: wait`."""

    name = "wait"
    effects = "none"
    with_schema: Mapping[str, Any] | None = WAIT_WITH
    out_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "by": {"type": "string"},
            "signal": {"type": "string"},
            "payload": {},
            "at": {"type": "integer"},
        },
    }

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        given = node.with_ if isinstance(node.with_, Mapping) else {}
        if not {"signal", "for", "until"} & set(given):
            yield Issue(
                pointer="/with",
                message="a wait needs something to wait for",
                hint='as in {"signal": "paid"}, {"for": "PT15M"} or {"until": "2027-01-01T00:00:00Z"}; also signal and a time',
                kind="shape",
            )
        if "for" in given and "until" in given:
            yield Issue(
                pointer="/with", message="`for` and `until` both name the time", hint="keep one of them", kind="shape"
            )
        for key, read in (("for", parse_duration_ms), ("until", moment_ms)):
            value = given.get(key)
            if isinstance(value, str) and "${" not in value:
                try:
                    read(value)
                except ValueError as error:
                    yield Issue(pointer=f"/with/{key}", message=str(error), kind="type")

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> dict[str, Any]:
            return ctx.wait(signal=_signal(arguments, ctx), until=_until(arguments, ctx))

        return run


def _signal(arguments: Mapping[str, Any], ctx: NodeRun) -> str | None:
    signal = arguments.get("signal")
    if signal is None or (isinstance(signal, str) and signal):
        return signal
    raise NodeFailed(
        f"node {ctx.node!r} waits for the signal {excerpt_of(signal)}, which is not a name", code="validation"
    )


def _until(arguments: Mapping[str, Any], ctx: NodeRun) -> int | None:
    """The moment in epoch ms; None waits without limit."""
    duration, moment = arguments.get("for"), arguments.get("until")
    try:
        if duration is not None:
            return ctx.now() + parse_duration_ms(duration)
        return None if moment is None else moment_ms(moment)
    except (ValueError, TypeError) as error:
        raise NodeFailed(f"node {ctx.node!r} can't tell how long to wait: {error}", code="validation") from None


def moment_ms(value: Any) -> int:
    """Epoch ms of an ISO 8601 moment (UTC when it names no zone) or of a number of epoch ms.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, datetime):
        moment = value
    # `True` is an `int` to Python, and no moment.
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return int(value)
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"{excerpt_of(value)} is not an ISO 8601 date and time; write 2027-01-01T09:30:00Z"
            ) from None
    else:
        raise ValueError(
            f"{excerpt_of(value)} is not a date and time; write 2027-01-01T09:30:00Z, or epoch milliseconds"
        )
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
