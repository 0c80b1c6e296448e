"""What encryption promises beyond the port: nothing readable in the file, bound rows, keys that rotate (spec 4.3)."""

from __future__ import annotations

import asyncio
import base64
import inspect
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.checkpoints.checkpointer import Checkpointer, EagerCommits, OwnerLiveness
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer, with_encryption
from graphflow.checkpoints.encryption.cipher import BOTH, ENCRYPTED, Cipher, new_key, parse_keys
from graphflow.checkpoints.encryption.note import read_note
from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.rows import OpenInterrupt, Place
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import StoreError
from graphflow.testing.checkpointer.suite import Driver, drive, facts, forked, lines_of, messages, refused, stream

OLD, NEW = "old:" + base64.b64encode(b"o" * 32).decode(), "new:" + base64.b64encode(b"n" * 32).decode()
PLACE = Place("record", "id", 7, 1)
SECRET = b"the launch code is 0000"


def encrypted(folder: Path, *keys: str, compression: bool = False) -> EncryptedCheckpointer:
    return EncryptedCheckpointer(SqliteCheckpointer(folder / "threads.db"), keys, compression=compression)


async def thread_with_secrets(store: Checkpointer) -> Driver:
    """A secret everywhere that users' words go."""
    driver = await drive(store)
    interrupt = OpenInterrupt(interrupt_id="i.1", thread_id="thread", run_id="r", kind="ask", node="n", data=SECRET)
    record = driver.record(SECRET, data=SECRET, snapshot=SECRET * 30, opened=(interrupt,))
    named = facts(title=SECRET.decode(), document="sha256:1")
    await driver.commit(record, facts=named)
    await driver.commit(driver.record(SECRET * 30, data=SECRET), facts=named, release=True)
    await store.put_document("sha256:1", SECRET)
    await store.enqueue("thread", SECRET, now=0)
    return driver


async def assert_readable(store: Checkpointer, driver: Driver) -> None:
    stored = await store.load("thread")
    assert stored is not None
    assert (stored.snapshot, [r.data for r in stored.records]) == (SECRET * 30, [SECRET])
    assert stored.thread.facts.title == SECRET.decode()
    assert await messages(store, "thread", count=2) == [SECRET, SECRET * 30]
    assert [i.data for i in await store.open_interrupts()] == [SECRET]
    assert await store.document("sha256:1") == SECRET
    assert (await store.queued("thread") or (0, b""))[1] == SECRET
    assert [r.data for r in await store.read_records("thread", lineage=driver.lineage, after=0, upto=9)] == [SECRET] * 2


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def execute(folder: Path, sql: str, *values: Any) -> list[Any]:
    db = sqlite3.connect(folder / "threads.db", isolation_level=None)
    try:
        return db.execute(sql, values).fetchall()
    finally:
        db.close()


# --- blobs -----------------------------------------------------------------------------------------


@given(blob=st.binary(max_size=500), keys=st.booleans(), compression=st.booleans())
def test_whatever_is_encrypted_opens_again(blob: bytes, keys: bool, compression: bool) -> None:
    cipher = Cipher([NEW] if keys else [], compression=compression)
    assert cipher.decrypt(PLACE, cipher.encrypt(PLACE, blob)) == blob


@given(blob=st.binary(max_size=300), flip=st.integers(min_value=0), compression=st.booleans())
def test_a_changed_byte_is_found(blob: bytes, flip: int, compression: bool) -> None:
    cipher = Cipher([NEW], compression=compression)
    data = bytearray(cipher.encrypt(PLACE, blob))
    data[flip % len(data)] ^= 1
    with pytest.raises(StoreError):
        cipher.decrypt(PLACE, bytes(data))


@pytest.mark.parametrize(
    "other",
    [
        Place("snapshot", "id", 7, 1),
        Place("record", "other", 7, 1),
        Place("record", "id", 8, 1),
        Place("record", "id", 7, 2),
    ],
)
def test_a_blob_opens_in_its_own_place_only(other: Place) -> None:
    cipher = Cipher([NEW])
    with pytest.raises(StoreError, match="moved"):
        cipher.decrypt(other, cipher.encrypt(PLACE, b"x"))


def test_a_log_entry_opens_in_chains_with_its_lineage_only() -> None:
    cipher = Cipher([NEW])
    blob = cipher.encrypt(Place("item", "", 7, 3, 0, "messages", 5), b"x")
    assert cipher.decrypt(Place("item", "", 0, 3, 0, "messages"), blob, {6: 9, 7: 5}) == b"x"
    for place, chain in (
        (Place("item", "", 0, 3, 0, "messages"), {6: 9, 8: 9}),
        (Place("item", "", 0, 3, 0, "messages"), {7: 4}),
        (Place("item", "", 0, 4, 0, "messages"), {7: 5}),
        (Place("item", "", 0, 3, 1, "messages"), {7: 5}),
        (Place("item", "", 0, 3, 0, "notes"), {7: 5}),
    ):
        with pytest.raises(StoreError, match="moved"):
            cipher.decrypt(place, blob, chain)


def test_the_same_blob_never_looks_the_same_twice() -> None:
    cipher = Cipher([NEW])
    assert len({cipher.encrypt(PLACE, b"x") for _ in range(100)}) == 100


def test_compression_makes_texts_small_and_leaves_noise_as_it_is() -> None:
    cipher = Cipher(compression=True)
    assert len(cipher.encrypt(PLACE, b"words and words " * 100)) < 100
    noise = os.urandom(1000)
    assert len(cipher.encrypt(PLACE, noise)) <= 1001
    assert cipher.encrypt(PLACE, b"short") == b"short"
    assert len(Cipher([NEW]).encrypt(PLACE, b"")) == 33


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["no colon"], "key 1 has no id"),
        ([NEW, ":AAAA"], "key 2 has no id"),
        (["short:AAAA"], "'short' has 3 bytes, 32"),
        (["odd:not base64!"], "'odd' is not base64"),
        ([NEW, NEW], "'new' is given twice"),
        ([NEW, "same:" + NEW[4:]], "'same' is given twice"),
    ],
)
def test_a_wrong_key_is_refused_by_its_name_and_never_shown(keys: list[str], words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        parse_keys(keys)
    for key in keys:
        secret = key.partition(":")[2]
        assert len(secret) < 10 or secret not in str(caught.value)


def test_a_new_key_is_a_key() -> None:
    assert parse_keys([f"a:{new_key()}", f"b:{new_key()}"])[0].id == "a"


def test_nothing_that_is_printed_shows_a_key() -> None:
    store = EncryptedCheckpointer(MemoryCheckpointer(), [NEW])
    assert NEW[4:] not in repr(store) + repr(store.cipher) + repr(store.cipher.keys)
    assert repr(store.cipher) == "Cipher(keys=['new'], compression=False)"


def test_a_missing_library_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphflow.checkpoints.encryption import cipher as encryption

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    encryption._aes.cache_clear()
    encryption._zstd.cache_clear()
    try:
        with pytest.raises(StoreError, match=r"'cryptography', .* pip install 'graphflow\[encryption\]'"):
            Cipher([NEW])
        if sys.version_info < (3, 14):
            with pytest.raises(StoreError, match="'zstandard'"):
                Cipher(compression=True)
    finally:
        encryption._aes.cache_clear()
        encryption._zstd.cache_clear()


# --- a store ---------------------------------------------------------------------------------------


async def test_no_word_of_a_user_is_in_the_file(tmp_path: Path) -> None:
    store = encrypted(tmp_path, NEW, compression=True)
    driver = await thread_with_secrets(store)
    await assert_readable(store, driver)
    assert SECRET not in everything(tmp_path)  # also not in the log beside the file
    await store.close()
    assert SECRET not in everything(tmp_path)
    again = encrypted(tmp_path, NEW)  # compressed blobs are read whatever the setting says today
    await assert_readable(again, driver)
    await again.close()


async def test_an_encrypted_store_tells_who_opens_it_with_the_wrong_keys_what_to_do(tmp_path: Path) -> None:
    store = encrypted(tmp_path, OLD)
    await thread_with_secrets(store)
    await store.close()
    for opened, words in (
        (SqliteCheckpointer(tmp_path / "threads.db"), "is encrypted: open it with its keys"),
        (encrypted(tmp_path, compression=True), "encrypted with key 'old', .* (none)"),
        (encrypted(tmp_path, NEW), "encrypted with key 'old', .* ('new')"),
        (encrypted(tmp_path, "old:" + NEW[4:]), "'old' is not the one of that id"),
    ):
        with pytest.raises(StoreError) as caught:
            await opened.setup()
        for word in words.split(" .* "):
            assert word in caught.value.message
        await refused(StoreError, opened.load("thread"))
        await opened.close()


async def test_a_plain_store_is_not_opened_with_keys_until_it_is_encrypted(tmp_path: Path) -> None:
    plain = SqliteCheckpointer(tmp_path / "threads.db")
    driver = await thread_with_secrets(plain)
    await plain.close()
    store = encrypted(tmp_path, NEW)
    error = await refused(StoreError, store.setup())
    assert "graphflow threads rotate-keys" in error.message
    await store.rotate_keys()
    await assert_readable(store, driver)
    await store.close()
    execute(tmp_path, "VACUUM")
    assert SECRET not in everything(tmp_path)
    again = encrypted(tmp_path, NEW)
    await assert_readable(again, driver)
    await again.close()


class Crossing(MemoryCheckpointer):
    """A store that two look into before either of them writes."""

    def __init__(self) -> None:
        super().__init__()
        self._looked = 0
        self._both = asyncio.Event()

    async def note(self, name: str) -> bytes | None:
        found = await super().note(name)
        self._looked += 1
        if self._looked == 2:
            self._both.set()
        await self._both.wait()
        return found


async def test_of_two_that_open_an_empty_store_with_other_keys_at_once_one_is_refused() -> None:
    store = Crossing()
    first, second = EncryptedCheckpointer(store, [OLD]), EncryptedCheckpointer(store, [NEW])
    outcomes = await asyncio.gather(first.setup(), second.setup(), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "StoreError"]
    note = await read_note(store)
    assert note is not None
    assert list(note.keys) == [("old", "new")[outcomes.index(None)]]


async def test_a_title_that_only_looks_encrypted_is_encrypted_with_the_rest(tmp_path: Path) -> None:
    plain = SqliteCheckpointer(tmp_path / "threads.db")
    titles = {"a": "seal: the deal", "b": "seal:" + base64.b64encode(b"\xfa" * 50).decode(), "c": "seal:"}
    for name, title in titles.items():
        driver = await drive(plain, name)
        await driver.commit(driver.record(), facts=facts(title=title))
    await plain.close()
    store = encrypted(tmp_path, NEW)
    await store.rotate_keys()
    await store.rotate_keys()
    assert {row.thread_id: row.facts.title for row in await store.threads()} == titles
    await store.close()


async def test_keys_rotate_the_newest_writes_and_old_ones_read(tmp_path: Path) -> None:
    store = encrypted(tmp_path, OLD)
    driver = await thread_with_secrets(store)
    await store.close()
    both = encrypted(tmp_path, NEW, OLD)
    await assert_readable(both, driver)
    fork = await forked(both, driver, 2)
    await fork.add(b"under the new key")
    await both.close()
    with pytest.raises(StoreError, match="'old'"):
        await encrypted(tmp_path, NEW).setup()
    with pytest.raises(StoreError, match="'new'"):
        await encrypted(tmp_path, OLD).setup()
    both = encrypted(tmp_path, NEW, OLD)
    await both.rotate_keys()
    await both.rotate_keys()  # the second time there is nothing to do
    await both.close()
    only = encrypted(tmp_path, NEW)
    await assert_readable(only, driver)
    assert (await messages(only, "fork", count=3))[2] == b"under the new key"
    note = await read_note(only.store)
    assert note is not None
    assert list(note.keys) == ["new"]
    await only.close()


async def test_a_rotation_compresses_as_it_is_set_today_under_the_same_key_too(tmp_path: Path) -> None:
    driver = None
    for compression, form in ((False, ENCRYPTED), (True, BOTH), (False, ENCRYPTED)):
        store = encrypted(tmp_path, NEW, compression=compression)
        driver = driver or await thread_with_secrets(store)
        await store.rotate_keys()
        await assert_readable(store, driver)
        await store.close()
        assert execute(tmp_path, "SELECT data FROM snapshots")[0][0][0] == form


async def test_a_rotation_that_was_cut_off_is_finished_by_the_next(tmp_path: Path) -> None:
    plain = SqliteCheckpointer(tmp_path / "threads.db")
    driver = await thread_with_secrets(plain)
    await plain.close()
    store = encrypted(tmp_path, NEW)
    rewrite, calls = store.store.rewrite, 0

    async def cut_off(*arguments: Any, **options: Any) -> str | None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StoreError("the power is gone")
        return await rewrite(*arguments, **options)

    store.store.rewrite = cut_off  # type: ignore[method-assign]
    await refused(StoreError, store.rotate_keys())
    await store.close()
    half = encrypted(tmp_path, NEW)
    error = await refused(StoreError, half.setup())
    assert "cut off" in error.message
    await half.rotate_keys()
    await assert_readable(half, driver)
    await half.close()


@pytest.mark.parametrize(
    ("swap", "read"),
    [
        (
            "UPDATE records SET data = (SELECT data FROM records LIMIT 1) WHERE record = (SELECT max(record) FROM records)",
            "load",
        ),
        (
            "UPDATE items SET data = (SELECT data FROM items LIMIT 1) WHERE item = (SELECT max(item) FROM items)",
            "read_items",
        ),
        ("UPDATE snapshots SET data = (SELECT data FROM records ORDER BY record LIMIT 1)", "load"),
        ("UPDATE records SET data = x'00'", "load"),
        ("UPDATE records SET data = x'fa'", "load"),
        ("UPDATE threads SET title = 'by somebody else'", "load"),
        ("UPDATE threads SET title = 'seal:by somebody else'", "load"),
        ("UPDATE interrupts SET data = (SELECT data FROM documents WHERE digest LIKE 'sha%')", "open_interrupts"),
        ("UPDATE inputs SET body = x'00'", "queued"),
    ],
)
async def test_rows_that_were_changed_or_swapped_are_refused(tmp_path: Path, swap: str, read: str) -> None:
    store = encrypted(tmp_path, NEW)
    driver = await thread_with_secrets(store)
    stored = await store.load("thread")
    assert stored is not None
    await store.close()
    execute(tmp_path, swap)
    store = encrypted(tmp_path, NEW)
    reads: dict[str, Any] = {
        "load": lambda: store.load("thread"),
        "read_items": lambda: store.read_items(stored.chain, 0, "messages", 2),
        "open_interrupts": store.open_interrupts,
        "queued": lambda: store.queued("thread"),
    }
    await refused(StoreError, reads[read]())
    assert driver.ids
    await store.close()


async def test_entries_of_a_branch_that_was_left_can_not_be_put_into_the_present_one(tmp_path: Path) -> None:
    store = encrypted(tmp_path, NEW)
    driver = await drive(store)
    await driver.add(b"0")
    await driver.add(b"old 1")
    old = driver.lineage
    driver.begin(old, 1, counts={(0, "messages"): 1})
    await driver.add(b"new 1")
    await store.close()
    execute(
        tmp_path,
        "UPDATE items SET data = (SELECT data FROM items ORDER BY item LIMIT 1 OFFSET 1)"
        " WHERE item = (SELECT max(item) FROM items)",
    )
    store = encrypted(tmp_path, NEW)
    assert (await refused(StoreError, messages(store, "thread", count=2))).code == "store_failed"
    await store.close()


async def test_an_export_is_readable_by_any_store(tmp_path: Path) -> None:
    store = encrypted(tmp_path, NEW, compression=True)
    driver = await thread_with_secrets(store)
    lines = await lines_of(store, "thread")
    plain = MemoryCheckpointer()
    await plain.import_thread(stream(lines))
    await assert_readable(plain, driver)
    await store.delete_thread("thread")
    await store.import_thread(stream(await lines_of(plain, "thread")))
    await assert_readable(store, driver)
    await store.close()
    assert SECRET not in everything(tmp_path)


async def test_compression_may_be_turned_on_for_a_store_that_has_threads(tmp_path: Path) -> None:
    plain = SqliteCheckpointer(tmp_path / "threads.db")
    driver = await thread_with_secrets(plain)
    await plain.close()
    store = encrypted(tmp_path, compression=True)
    await assert_readable(store, driver)
    await store.close()
    error = await refused(StoreError, SqliteCheckpointer(tmp_path / "threads.db").setup())
    assert "store.compression" in error.message


def test_a_store_is_only_encrypted_where_it_is_asked_for() -> None:
    plain = MemoryCheckpointer()
    assert with_encryption(plain) is plain
    assert isinstance(with_encryption(plain, [NEW]), EncryptedCheckpointer)
    assert isinstance(with_encryption(plain, compression=True), EncryptedCheckpointer)


def test_an_encrypted_store_has_every_method_of_the_port_in_its_form() -> None:
    """What is not written out would pass the store behind, blobs unencrypted."""
    methods: dict[str, Any] = {}
    for port in (Checkpointer, EagerCommits, OwnerLiveness):
        methods.update(inspect.getmembers(port, inspect.isfunction))
    for name, method in methods.items():
        if not name.startswith("_"):
            own = inspect.signature(EncryptedCheckpointer.__dict__[name])
            assert list(own.parameters) == list(inspect.signature(method).parameters), name


async def test_what_a_store_has_beyond_the_port_is_reached_through_encryption(tmp_path: Path) -> None:
    store = encrypted(tmp_path, NEW)
    assert store.path == tmp_path / "threads.db"
    assert not store.is_dead("somebody")
    assert not hasattr(store, "nothing_of_that_name")
    await store.close()


async def test_an_encrypted_store_that_nobody_opened_can_not_be_committed_to(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not open"):
        Driver(encrypted(tmp_path, NEW), "thread", 1, None).commit()
