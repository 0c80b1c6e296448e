"""What was used, by day, agent and model, from the store's ledger: over all threads and processes (spec 1.3)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from graphflow.checkpoints.rows import SPENT_FIGURES, Spent
from graphflow.checkpoints.usage import FIGURES, PICO_USD
from graphflow.service.context import ServiceContext
from graphflow.service.requests import bad_argument

AXES = ("day", "agentKey", "model")
_EPOCH = dt.date(1970, 1, 1)


async def usage(
    context: ServiceContext,
    *,
    since: str | None = None,
    until: str | None = None,
    agent_key: str | None = None,
    by: tuple[str, ...] = AXES,
) -> dict[str, Any]:
    """The total of the days asked for, and its lines.

    Args:
        since, until: days (UTC) as `2026-11-22`, both included.
        by: the subset of `AXES` by which lines are grouped.

    Raises:
        GraphflowError: `invalid_input` for an invalid day or an unknown axis.
    """
    if unknown := [axis for axis in by if axis not in AXES]:
        raise bad_argument("by", f"{unknown[0]!r} is unknown; usage is reported by {', '.join(AXES)}")
    await context.runs.ready()
    rows = await context.store.spent(since=_day("since", since), until=_day("until", until), agent_key=agent_key)
    return {"total": line_dict(added(rows)), "lines": _lines(rows, by)}


def _day(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return (dt.date.fromisoformat(text) - _EPOCH).days
    except ValueError:
        raise bad_argument(name, f"{text!r} is not a date; write it as 2026-11-22") from None


def _lines(rows: list[Spent], by: tuple[str, ...]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Spent]] = {}
    for row in rows:
        place = {"day": (_EPOCH + dt.timedelta(row.day)).isoformat(), "agentKey": row.agent_key, "model": row.model}
        groups.setdefault(tuple(place[axis] for axis in by), []).append(row)
    return [dict(zip(by, key, strict=True)) | line_dict(added(group)) for key, group in sorted(groups.items())]


def added(rows: list[Spent]) -> Spent:
    """All lines in one."""
    return Spent(day=0, **{figure: sum(getattr(row, figure) for row in rows) for figure in SPENT_FIGURES})


def line_dict(row: Spent) -> dict[str, Any]:
    """A line in the names of the wire. A `costUsd` of None is not known in full; `knownCostUsd` is the part that is."""
    fields = msgspec.structs.asdict(row)
    cost_usd = row.cost / PICO_USD
    return {name: fields[field] for name, field in FIGURES.items()} | {
        "costUsd": None if row.unpriced else cost_usd,
        "knownCostUsd": cost_usd,
        "uncountedCalls": row.uncounted,
        "unpricedCalls": row.unpriced,
    }
