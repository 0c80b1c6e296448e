"""The errors that every store raises, in the same words, so that a caller sees no difference between stores."""

from __future__ import annotations

from graphflow.errors import (
    CheckpointNotFound,
    Fenced,
    GraphflowError,
    StoreError,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
)
from graphflow.excerpts import excerpt_of
from graphflow.id_rule import unknown_id


def busy(thread_id: str, lease_until: int, now: int) -> ThreadBusy:
    """Somebody else holds a living lease."""
    wait = max(1, lease_until - now)
    return ThreadBusy(
        f"thread {thread_id!r} is driven by another run: ask again in {wait} ms, or cancel that run",
        threadId=thread_id,
        retryAfterMs=wait,
    )


def exists(thread_id: str) -> ThreadExists:
    """A fork or an import would overwrite a thread."""
    return ThreadExists(
        f"a thread {thread_id!r} exists already: choose another id, or delete that thread first", threadId=thread_id
    )


def unknown_thread(thread_id: str) -> ThreadNotFound:
    message = f"no thread has the id {thread_id!r}; `app.threads()` lists those that exist"
    return unknown_id(thread_id, "thread_id", message)


def unknown_checkpoint(thread_id: str, checkpoint_id: str) -> CheckpointNotFound:
    return CheckpointNotFound(
        f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}: `list_checkpoints()` shows those that it has",
        threadId=thread_id,
        checkpointId=checkpoint_id,
    )


def not_a_text(text: str) -> StoreError:
    """An id or a name that not every store can keep."""
    return StoreError(
        f"{excerpt_of(text)} can't be an id or a name in a store: it has a NUL character or half of a surrogate pair; leave that out",
        code="invalid_input",
    )


def checkpoint_in_use(thread_id: str, checkpoint_id: str, why: str) -> GraphflowError:
    """A checkpoint that can't be taken out of the history; `why` names who needs it and the next step."""
    return GraphflowError(
        f"checkpoint {checkpoint_id!r} of thread {thread_id!r} stays: {why}",
        code="invalid_input",
        threadId=thread_id,
        checkpointId=checkpoint_id,
    )


def nothing_to_keep(thread_id: str, newest: int | None, since: int | None) -> GraphflowError:
    """A prune without a condition, or with one that makes no sense."""
    return GraphflowError(
        f"pruning thread {thread_id!r} with newest={newest!r} and since={since!r}: name at least one, and neither below 0;"
        " `delete_thread` removes the whole thread",
        code="invalid_input",
        threadId=thread_id,
    )


def pruned_parent(number: int, parent: int, cut: int) -> StoreError:
    return StoreError(
        f"lineage {number} would begin at record {cut} of lineage {parent}, which was pruned meanwhile:"
        " load the thread again and choose another checkpoint"
    )


def encrypted(place: str) -> StoreError:
    """A store whose blobs only `EncryptedCheckpointer` can read was opened without it."""
    return StoreError(
        f"the store {place!r} is encrypted: open it with its keys (setting `store.keys`) or, if it is only compressed,"
        " with `store.compression`; in Python with `EncryptedCheckpointer`"
    )


def fenced_gone(thread_id: str, fence: int) -> Fenced:
    return Fenced(f"thread {thread_id!r} was deleted while epoch {fence} of it was running", threadId=thread_id)


def fenced_epoch(thread_id: str, fence: int, current: int) -> Fenced:
    return Fenced(
        f"thread {thread_id!r} was taken over in epoch {current}: the run of epoch {fence} must stop",
        threadId=thread_id,
        fence=fence,
        current=current,
    )


def fenced_released(thread_id: str, fence: int) -> Fenced:
    return Fenced(
        f"thread {thread_id!r} was released in epoch {fence}: take it again before committing", threadId=thread_id
    )


def fenced_head(thread_id: str, expected: str | None, head: str | None) -> Fenced:
    return Fenced(
        f"the head of thread {thread_id!r} is {head!r}, not {expected!r}: load the thread again",
        threadId=thread_id,
        expected=expected,
        head=head,
    )


def fenced_earlier(thread_id: str, fence: int) -> Fenced:
    return Fenced(
        f"an earlier commit of epoch {fence} of thread {thread_id!r} failed, so later ones are discarded: load the thread again",
        threadId=thread_id,
    )


def wrong_lineage(thread_id: str, lineage: int, current: int | None) -> StoreError:
    return StoreError(
        f"a record of thread {thread_id!r} names lineage {lineage}, but its head is in lineage {current}:"
        " a new lineage is begun with `begins`"
    )


def wrong_ordinal(thread_id: str, ordinal: int, expected: int) -> StoreError:
    return StoreError(
        f"a record of thread {thread_id!r} has ordinal {ordinal}, but the next of its lineage is {expected}:"
        " ordinals have no gaps"
    )


def unknown_parent(number: int, parent: int) -> StoreError:
    return StoreError(f"lineage {number} names the parent {parent}, which the store does not have")


def number_taken(number: int) -> StoreError:
    return StoreError(f"lineage number {number} is taken already: draw another")


def item_taken(channel: str, ordinal: int) -> StoreError:
    return StoreError(
        f"entry {ordinal} of append channel {channel!r} exists already in its lineage: ordinals are never reused"
    )


def queue_gone(thread_id: str, position: int) -> Fenced:
    return Fenced(f"entry {position} of the queue of thread {thread_id!r} is gone: it was consumed or withdrawn")


def missing_items(channel: str, wanted: int, found: int) -> StoreError:
    return StoreError(
        f"the store is damaged: {wanted} entries of append channel {channel!r} should be there, {found} are;"
        " checkpoints before the gap can still be loaded"
    )


def missing_records(thread_id: str, wanted: int, found: int) -> StoreError:
    return StoreError(
        f"the store is damaged: {wanted} records of thread {thread_id!r} should be there, {found} are;"
        " checkpoints before the gap can still be loaded"
    )
