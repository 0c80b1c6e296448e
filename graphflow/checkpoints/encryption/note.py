"""The note in which a store names the keys that its blobs need, so that wrong ones are refused when it is opened."""

from __future__ import annotations

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.cipher import Cipher, Key
from graphflow.checkpoints.rows import ENCRYPTION_NOTE, Place
from graphflow.errors import StoreError

_CHECK = b"graphflow"


class EncryptionNote(msgspec.Struct, kw_only=True):
    """What a store records about its encryption; nothing in it is secret."""

    version: int = 1
    keys: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Key id → a known word encrypted with it, to detect a wrong key under the right id."""
    compression: bool = False
    unencrypted: bool = msgspec.field(name="unsealed", default=False)
    """`rotate_keys` has begun to encrypt a store that was not, and has not finished."""


async def read_note(store: Checkpointer) -> EncryptionNote | None:
    data = await store.note(ENCRYPTION_NOTE)
    return None if data is None else parse_note(data)


def parse_note(data: bytes) -> EncryptionNote:
    try:
        note = msgspec.json.decode(data, type=EncryptionNote)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"the store's note on its encryption is damaged: restore it from a backup ({error})"
        ) from error
    if note.version > 1:
        raise StoreError(
            f"the store's encryption has version {note.version}, this graphflow knows 1: update it",
            code="store_version_unsupported",
        )
    return note


async def write_note(store: Checkpointer, note: EncryptionNote) -> None:
    await store.put_note(ENCRYPTION_NOTE, msgspec.json.encode(note))


def check_note(note: EncryptionNote, cipher: Cipher) -> None:
    """Refuses keys that are not the store's.

    Raises:
        StoreError: says which key is missing or wrong, and the next step.
    """
    # Such a store holds both kinds of blobs: with or without keys, some could not be read.
    if note.unencrypted:
        raise plain_rows("encrypting it was cut off")
    if cipher.keys and not note.keys:
        raise plain_rows("the store was made without keys")
    check_keys(note, cipher)


def check_keys(note: EncryptionNote, cipher: Cipher) -> None:
    given = {key.id: key for key in cipher.keys}
    if set(note.keys) - set(given):
        raise missing_keys(note, cipher)
    for name, check in note.keys.items():
        key = given[name]
        try:
            # `decrypt` picks the key by the blob's mark, which may be another of the given keys.
            same = Cipher.decrypt(cipher, _check_place(key), check) == _CHECK and check[1:5] == key.mark
        except StoreError:
            same = False
        if not same:
            raise StoreError(
                f"key {name!r} is not the one of that id that encrypted the store: look for the right one,"
                " or give yours an id of its own"
            )


def checked(key: Key, cipher: Cipher) -> bytes:
    return cipher.encrypt(_check_place(key), _CHECK)


def _check_place(key: Key) -> Place:
    return Place("document", f"key {key.id}")


def missing_keys(note: EncryptionNote, cipher: Cipher) -> StoreError:
    given = {key.id for key in cipher.keys}
    missing = [name for name in note.keys if name not in given]
    return StoreError(
        f"the store is encrypted with key {', '.join(map(repr, missing))}, which is not among those that were given"
        f" ({', '.join(sorted(map(repr, given))) or 'none'}): add it to `store.keys` as ID:BASE64"
    )


def plain_rows(why: str) -> StoreError:
    return StoreError(
        f"{why}, so it holds blobs that are not encrypted: `graphflow threads rotate-keys` encrypts them"
        " (`EncryptedCheckpointer.rotate_keys`), or open it without `store.keys`"
    )
