"""The note by which a store says which keys its blobs need, so that wrong ones are refused when it is opened."""

from __future__ import annotations

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.cipher import Key, Seal
from graphflow.checkpoints.rows import SEAL, Place
from graphflow.errors import StoreError

_CHECK = b"graphflow"


class SealNote(msgspec.Struct, kw_only=True):
    """What a store says of its seal; nothing in it is secret."""

    version: int = 1
    keys: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Key id → a known word sealed with it, for telling a wrong key of the right id."""
    compression: bool = False
    unsealed: bool = False
    """`rekey` has begun to encrypt a store that was not, and has not finished."""


async def read_note(store: Checkpointer) -> SealNote | None:
    data = await store.note(SEAL)
    return None if data is None else parse_note(data)


def parse_note(data: bytes) -> SealNote:
    try:
        note = msgspec.json.decode(data, type=SealNote)
    except msgspec.MsgspecError as error:
        raise StoreError(f"the store's note of its seal is damaged: restore it from a backup ({error})") from error
    if note.version > 1:
        raise StoreError(
            f"the store's seal has version {note.version}, this graphflow knows 1: update it",
            code="store_version_unsupported",
        )
    return note


async def write_note(store: Checkpointer, note: SealNote) -> None:
    await store.put_note(SEAL, msgspec.json.encode(note))


def check_note(note: SealNote, seal: Seal) -> None:
    """Refuses keys that are not the store's.

    Raises:
        StoreError: says which key is missing or wrong, and the next step.
    """
    if note.unsealed:
        raise plain_rows("encrypting it was cut off")
    if seal.keys and not note.keys:
        raise plain_rows("the store was made without keys")
    check_keys(note, seal)


def check_keys(note: SealNote, seal: Seal) -> None:
    given = {key.id: key for key in seal.keys}
    if set(note.keys) - set(given):
        raise missing_keys(note, seal)
    for name, check in note.keys.items():
        key = given[name]
        try:
            same = Seal.open(seal, _check_place(key), check) == _CHECK and check[1:5] == key.mark
        except StoreError:
            same = False
        if not same:
            raise StoreError(
                f"key {name!r} is not the one of that id that sealed the store: look for the right one,"
                " or give yours an id of its own"
            )


def checked(key: Key, seal: Seal) -> bytes:
    return seal.seal(_check_place(key), _CHECK)


def _check_place(key: Key) -> Place:
    return Place("document", f"key {key.id}")


def missing_keys(note: SealNote, seal: Seal) -> StoreError:
    given = {key.id for key in seal.keys}
    missing = [name for name in note.keys if name not in given]
    return StoreError(
        f"the store is sealed with key {', '.join(map(repr, missing))}, which is not among those that were given"
        f" ({', '.join(sorted(map(repr, given))) or 'none'}): add it to `store.keys` as ID:BASE64"
    )


def plain_rows(why: str) -> StoreError:
    return StoreError(
        f"{why}, so it holds blobs that are not encrypted: `graphflow threads rekey` encrypts them"
        " (`SealedCheckpointer.rekey`), or open it without `store.keys`"
    )
