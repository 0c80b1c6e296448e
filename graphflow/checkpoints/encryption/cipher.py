"""Encryption: blobs encrypted (AES-256-GCM) and compressed (zstd) on their way to a store (spec 4.3).

Each begins with a format byte that no plain blob begins with. An encrypted one goes on with four bytes that
name its key, the nonce, and the ciphertext; it is bound to its place in the store, so that a row that is moved,
swapped with another or changed does not open. An entry of an append channel also has the record that wrote it in the
clear, since a reader of a log along a chain does not know which lineage an entry comes from; that record is bound too,
and has to lie on the chain.

`checkpointer.py` puts this before any store; only the extras `graphflow[encryption]` bring the two libraries.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import Place
from graphflow.errors import StoreError

RAW, COMPRESSED, ENCRYPTED, BOTH = 0xF8, 0xF9, 0xFA, 0xFB
"""Format bytes. No plain blob begins with one: they occur neither in UTF-8 nor at the start of the codec's blobs, of log
entries, or of a record's data, whose first byte counts units of 16 MiB. `RAW` is for a blob that begins so all the same."""
FORMATS = {
    RAW: "as it is",
    COMPRESSED: "zstd",
    ENCRYPTED: "key name (4 bytes), for log entries lineage (8) and ordinal (4) of the record, nonce (12), AES-256-GCM",
    BOTH: "the same around zstd",
}
KEY_BYTES = 32
NONCE_BYTES = 12
COMPRESSED_FROM = 200
"""Smaller blobs gain too little."""
LEVEL = 3
TITLE = b"seal:"
"""Begins an encrypted title, which has to be text: base64 follows."""

NO_CHAIN: Mapping[int, int] = {}

_origin = struct.Struct(">qI")
_place_encoder = msgspec.msgpack.Encoder()


class Key(NamedTuple):
    """One key; people name it by its id, blobs by its mark."""

    id: str
    mark: bytes
    cipher: Any
    """`AESGCM` of the key; the key itself is not kept."""


def new_key() -> str:
    """A fresh key as text, for the part after the colon in `store.keys`."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def parse_keys(texts: Iterable[str]) -> tuple[Key, ...]:
    """Keys from `ID:BASE64` texts, the one that writes first.

    Raises:
        StoreError: a text is not a key; it is named by its id or position, never shown.
    """
    keys = [_parse(position, text) for position, text in enumerate(texts, 1)]
    for number, key in enumerate(keys):
        if any(key.id == other.id or key.mark == other.mark for other in keys[:number]):
            raise StoreError(f"key {key.id!r} is given twice: each id and each key may appear only once")
    return tuple(keys)


def _parse(position: int, text: str) -> Key:
    name, colon, coded = text.strip().partition(":")
    if not colon or not name:
        raise StoreError(f"key {position} has no id: write ID:BASE64, for example {'2026-1:' + '…'!r}")
    try:
        secret = base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError):
        raise StoreError(
            f"key {name!r} is not base64: make one with `graphflow threads rotate-keys --new-key`"
        ) from None
    if len(secret) != KEY_BYTES:
        raise StoreError(f"key {name!r} has {len(secret)} bytes, {KEY_BYTES} are needed: make one with `new_key()`")
    # A hash, so that a blob names its key without revealing it; the prefix keeps it apart from other uses of the
    # secret.
    mark = hashlib.sha256(b"graphflow key\0" + secret).digest()[:4]
    return Key(name, mark, _aes()(secret))


class Cipher:
    """Encrypts and decrypts blobs.

    Args:
        keys: `ID:BASE64` each, 32 bytes; the first one writes, all of them read. None leaves blobs unencrypted.
        compression: compress blobs that gain by it, before they are encrypted.

    Raises:
        StoreError: a key is invalid, or a library is missing.
    """

    def __init__(self, keys: Sequence[str] = (), *, compression: bool = False) -> None:
        self.keys = parse_keys(keys)
        self.compression = compression
        self._by_mark = {key.mark: key for key in self.keys}
        self._compress: Callable[[bytes], bytes] | None = _zstd().compress if compression else None

    def __repr__(self) -> str:
        return f"Cipher(keys={[key.id for key in self.keys]}, compression={self.compression})"

    @property
    def writer(self) -> Key | None:
        """The key that new blobs are encrypted with."""
        return self.keys[0] if self.keys else None

    def encrypt(self, place: Place, blob: bytes) -> bytes:
        """The blob as the store keeps it in this place."""
        form = ENCRYPTED
        body = blob
        # Compressed first: ciphertext does not compress.
        if self._compress is not None and len(blob) >= COMPRESSED_FROM:
            body = self._compress(blob)
            if len(body) < len(blob):
                form = BOTH
            else:
                body = blob
        if self.keys:
            key = self.keys[0]
            # 96 random bits, the size that GCM is made for; a nonce must never repeat under one key.
            nonce = os.urandom(NONCE_BYTES)
            origin = _origin.pack(place.lineage, place.record) if place.kind == "item" else b""
            encrypted: bytes = key.cipher.encrypt(nonce, body, _bound(place))
            return b"".join((bytes((form,)), key.mark, origin, nonce, encrypted))
        if form == BOTH:
            return bytes((COMPRESSED,)) + body
        # A plain blob that begins like an encrypted one would be misread; `RAW` marks it.
        return bytes((RAW,)) + blob if blob[:1] >= b"\xf8" else blob

    def decrypt(self, place: Place, blob: bytes, chain: Mapping[int, int] = NO_CHAIN) -> bytes:
        """The blob as it was before `encrypt`.

        Args:
            chain: of a log entry whose place names no lineage: lineage → last record that it may come from.

        Raises:
            StoreError: it does not open: no key for it, moved or changed, or not encrypted although the store is.
        """
        form = blob[0] if blob else 0
        if form < RAW:
            # With keys, plain data is refused: otherwise anybody who can write to the store could plant it.
            if self.keys:
                raise _not_encrypted(place)
            return blob
        if form in (ENCRYPTED, BOTH):
            blob = self._decrypted(place, blob, chain)
        elif self.keys or form not in FORMATS:
            raise _not_encrypted(place)
        else:
            blob = blob[1:]
        return _decompressed(place, blob) if form in (COMPRESSED, BOTH) else blob

    def _decrypted(self, place: Place, blob: bytes, chain: Mapping[int, int]) -> bytes:
        key = self._by_mark.get(blob[1:5])
        if key is None:
            raise StoreError(
                f"{_name(place)} is encrypted with a key that is not among {_names(self.keys)}: add it to `store.keys`"
            )
        start = 5
        if place.kind == "item":
            start = 5 + _origin.size
            if len(blob) < start:
                raise _moved(place)
            lineage, record = _origin.unpack_from(blob, 5)
            # The lineage in the blob is not trusted: it has to lie on the chain that the caller reads.
            if chain.get(lineage, 0) < record and (lineage, record) != (place.lineage, place.record):
                raise _moved(place)
            place = Place("item", "", lineage, place.ordinal, place.frame, place.channel, record)
        end = start + NONCE_BYTES
        try:
            opened: bytes = key.cipher.decrypt(blob[start:end], blob[end:], _bound(place))
        except Exception as error:  # `InvalidTag`, or a ValueError for a blob that was cut off
            raise _moved(place) from error
        return opened

    def is_newest(self, blob: bytes) -> bool:
        """Whether the blob is encrypted as `encrypt` would do it today; False also where only doing it would tell."""
        if self.writer is None or blob[1:5] != self.writer.mark:
            return False
        if self._compress is None:
            return blob[0] == ENCRYPTED
        return blob[0] == BOTH or (blob[0] == ENCRYPTED and len(blob) < COMPRESSED_FROM)

    # --- titles and the like, which have to stay text; they pass as UTF-8 ---

    def encrypt_text(self, place: Place, text: bytes) -> bytes:
        return TITLE + base64.b64encode(self.encrypt(place, text)) if self.keys else text

    def decrypt_text(self, place: Place, text: bytes) -> bytes:
        if not self.keys:
            return text
        if not text.startswith(TITLE):
            raise _not_encrypted(place)
        try:
            blob = base64.b64decode(text[len(TITLE) :], validate=True)
        except ValueError as error:
            raise _moved(place) from error
        return self.decrypt(place, blob)


def _bound(place: Place) -> bytes:
    """What a blob is bound to.

    Raises:
        StoreError: `invalid_input` for a name that no store can keep.
    """
    parts = (place.kind, place.name, place.lineage, place.ordinal, place.frame, place.channel, place.record)
    try:
        return _place_encoder.encode(parts)
    except (
        UnicodeEncodeError
    ):  # lone surrogates; the store behind refuses the rest, and would refuse these in the same words
        raise errors.not_a_text(f"{place.name}{place.channel}") from None


def _name(place: Place) -> str:
    where = f" {place.name!r}" if place.name else ""
    if place.kind in ("record", "snapshot"):
        where += f" {place.ordinal} of lineage {place.lineage}"
    elif place.kind == "item":
        where += f" {place.ordinal} of append channel {place.channel!r}"
    return f"{place.kind}{where}"


def _names(keys: Sequence[Key]) -> str:
    return ", ".join(repr(key.id) for key in keys) or "the keys (there are none)"


def _moved(place: Place) -> StoreError:
    return StoreError(
        f"{_name(place)} does not open: it was changed, moved from another place, or is damaged; restore it from a backup"
    )


def _not_encrypted(place: Place) -> StoreError:
    return StoreError(
        f"{_name(place)} is not encrypted although the store is: somebody wrote past the cipher, or encryption was cut off;"
        " `graphflow threads rotate-keys` encrypts what is left"
    )


@cache
def _aes() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise _missing("encryption", "cryptography") from error
    return AESGCM


class _Zstd:
    """The library's compressors may not be shared by threads, so each has its own."""

    def __init__(self) -> None:
        self._own = threading.local()

    def compress(self, blob: bytes) -> bytes:
        return self._made("compress", _compressor)(blob)

    def decompress(self, blob: bytes) -> bytes:
        return self._made("decompress", _decompressor)(blob)

    def _made(self, name: str, make: Callable[[], Callable[[bytes], bytes]]) -> Callable[[bytes], bytes]:
        if not hasattr(self._own, name):
            setattr(self._own, name, make())
        own: Callable[[bytes], bytes] = getattr(self._own, name)
        return own


@cache
def _zstd() -> _Zstd:
    _compressor()  # is the library there?
    return _Zstd()


def _compressor() -> Callable[[bytes], bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return lambda blob: zstd.compress(blob, level=LEVEL)
    try:
        import zstandard
    except ImportError as error:
        raise _missing("compression", "zstandard") from error
    return zstandard.ZstdCompressor(level=LEVEL).compress


def _decompressor() -> Callable[[bytes], bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.decompress
    import zstandard

    return zstandard.ZstdDecompressor().decompress


def _decompressed(place: Place, blob: bytes) -> bytes:
    zstd = _zstd()
    try:
        return zstd.decompress(blob)
    except Exception as error:  # the libraries have an error class of their own each
        raise _moved(place) from error


def _missing(what: str, library: str) -> StoreError:
    return StoreError(
        f"{what} of the store needs {library!r}, which is not installed: pip install 'graphflow[encryption]'"
    )
