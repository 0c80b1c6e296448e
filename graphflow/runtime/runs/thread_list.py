"""The threads of a store, each with its status as it is now: the same for Python, the command line and HTTP (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError
from graphflow.runtime.runs.live_runs import LiveRuns
from graphflow.runtime.thread_about import about_of, matches, title_of
from graphflow.runtime.thread_status import STATUSES
from graphflow.suggestions import choose

PAGE = 100
LOOK_AT = 1_000
"""Threads that one request looks at: a filter that fits few of them must not read a whole store at once."""
NO_FILTER: Mapping[str, str] = MappingProxyType({})


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of a list of threads."""

    thread_id: str
    status: str
    """`idle`, `running`, `waiting`, `failed` or `stopped`: also of a run whose process died."""
    driven: bool
    """A live process owns the thread; a waiting thread too, while a process holds it for the answer."""
    agent_key: str | None
    title: str | None
    created_at: int
    """Epoch ms."""
    updated_at: int
    """Epoch ms."""
    metadata: dict[str, Any] = {}
    """What `Thread.update` has written."""


def thread_info(runs: LiveRuns, row: ThreadRow) -> ThreadInfo:
    """The line of a thread's row."""
    return ThreadInfo(
        thread_id=row.thread_id,
        status=runs.status_of(row),
        driven=runs.is_driven(row),
        agent_key=row.facts.agent_key,
        title=title_of(row),
        created_at=row.created_at,
        updated_at=row.facts.updated_at,
        metadata=about_of(row).metadata,
    )


async def threads_with(
    runs: LiveRuns,
    *,
    status: str | None = None,
    agent_key: str | None = None,
    user: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
    metadata: Mapping[str, str] = NO_FILTER,
    look_at: int | None = None,
) -> tuple[list[ThreadRow], str | None]:
    """Threads of this status as it is now, the most recently used first, and the cursor of the next page.

    Args:
        cursor: the thread after which they begin.
        limit: so many at most; None: all.
        metadata: keys that their metadata have, each with this value.
        look_at: threads that are looked at for one page, about: the page may be shorter than `limit` although more follow.
            None: as many as it takes.

    Raises:
        GraphflowError: `invalid_input` for a status that there is none of.
        ThreadNotFound: the thread of `cursor` is gone.
    """
    if status is not None and status not in STATUSES:
        raise GraphflowError(f"no thread has the status {status!r}; {choose(status, STATUSES)}", code="invalid_input")
    await runs.ready()
    # A process that died has left `running` in the store, so stopped threads are looked for among all.
    stored = None if status == "stopped" else status
    size = PAGE if limit is None or metadata else min(limit, PAGE)
    size = size if look_at is None else min(size, look_at)
    found: list[ThreadRow] = []
    while True:
        page = await runs.store.threads(cursor=cursor, limit=size, status=stored, agent_key=agent_key, user=user)
        for row in page:
            cursor = row.thread_id
            if status in (None, runs.status_of(row)) and (not metadata or matches(row, metadata)):
                found.append(row)
                if len(found) == limit:
                    return found, cursor if len(page) == size or row is not page[-1] else None
        if len(page) < size:
            return found, None
        if look_at is not None and (look_at := look_at - len(page)) <= 0:
            return found, cursor
