"""What people have written about a thread: a title in the place of the automatic one, and metadata (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from graphflow.checkpoints.errors import unknown_thread
from graphflow.errors import GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import thaw
from graphflow.json_data import plain

if TYPE_CHECKING:
    from graphflow.checkpoints.checkpointer import Checkpointer
    from graphflow.checkpoints.rows import ThreadRow

LONGEST_TITLE = 200
"""Code points."""
LONGEST_KEY = 64
"""Code points."""
MOST_KEYS = 64
MOST_BYTES = 8192
"""Of all metadata of a thread, as JSON."""
DEEPEST = 8
"""Nesting of a value."""


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is written about a thread."""

    title: str | None = None
    metadata: dict[str, Any] = {}

    @property
    def stored(self) -> str | None:
        """As `ThreadFacts.about`."""
        return msgspec.json.encode(self, order="sorted").decode() if self.title or self.metadata else None


class AboutThread(TypedDict, total=False):
    """What `Thread.update` may change."""

    title: str | None
    metadata: Mapping[str, Any] | None


NOTHING = About()


def about_of(row: ThreadRow) -> About:
    text = row.facts.about
    return NOTHING if text is None else msgspec.json.decode(text, type=About)


def title_of(row: ThreadRow) -> str | None:
    """The title that a person gave, else the automatic one."""
    return about_of(row).title or row.facts.title


def changed_about(about: About, changes: Mapping[str, Any]) -> About:
    """With the changes: `title`, None for the automatic one; `metadata`, whose keys are merged, and removed by None.

    Raises:
        GraphflowError: `invalid_input` for what is no title and no metadata, or too much of it.
    """
    title, metadata = about.title, about.metadata
    if "title" in changes:
        title = checked_title(changes["title"])
    if "metadata" in changes:
        given = changes["metadata"]
        if given is not None and not isinstance(given, Mapping):
            raise _refused("metadata", f"must be an object, not {excerpt_of(given)}")
        merged = {} if given is None else {**metadata, **_metadata(given)}
        metadata = {key: value for key, value in merged.items() if value is not None}
    out = About(title=title, metadata=metadata)
    if len(metadata) > MOST_KEYS:
        raise _refused("metadata", f"would have {len(metadata)} keys; {MOST_KEYS} are allowed: remove some with null")
    if (size := len(msgspec.json.encode(metadata))) > MOST_BYTES:
        raise _refused("metadata", f"would have {size} bytes as JSON; {MOST_BYTES} are allowed")
    return out


def checked_title(title: Any) -> str | None:
    """The title that a person gives, None for the automatic one.

    Raises:
        GraphflowError: `invalid_input`.
    """
    if title is None:
        return None
    if not isinstance(title, str) or not title.strip() or len(title) > LONGEST_TITLE or not title.isprintable():
        raise _refused(
            "title", f"must be 1 to {LONGEST_TITLE} printable characters; null gives the automatic title back"
        )
    return title.strip()


def _metadata(given: Mapping[Any, Any]) -> dict[str, Any]:
    for key in given:
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
            raise _refused(
                "metadata", f"the key {excerpt_of(key, 100)} must be 1 to {LONGEST_KEY} printable characters"
            )
    try:
        out: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(thaw(dict(given)), enc_hook=plain))
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise _refused("metadata", f"is not JSON: {error}") from None
    for key, value in out.items():
        if _depth(value) > DEEPEST:
            raise _refused("metadata", f"{key!r} is nested deeper than {DEEPEST} levels")
    return out


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def matches(row: ThreadRow, wanted: Mapping[str, str]) -> bool:
    """Whether each of these keys of the metadata has this value: a text, or the JSON of a number, a boolean, …"""
    metadata = about_of(row).metadata
    return all(key in metadata and _text(metadata[key]) == value for key, value in wanted.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def write_about(store: Checkpointer, thread_id: str, changes: Mapping[str, Any], *, now: int) -> ThreadRow:
    """The thread's row with the changes made; of changes to different keys at once none is lost.

    Raises:
        ThreadNotFound: no such thread.
        GraphflowError: `invalid_input`; nothing has changed.
    """
    while True:
        row = await store.thread(thread_id)
        if row is None:
            raise unknown_thread(thread_id)
        about = changed_about(about_of(row), changes).stored
        if about == row.facts.about:
            return row
        # Somebody else may have written in between: then the changes are made to what stands there now.
        if await store.describe(thread_id, about, instead_of=row.facts.about, now=now):
            return (await store.thread(thread_id)) or row


def _refused(field: str, rule: str) -> GraphflowError:
    return GraphflowError(f"{field}: {rule}", code="invalid_input", fields={field: rule})
