"""Opening a SQLite store: connections, numbered migrations, and what its errors mean."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import ENCRYPTION_NOTE
from graphflow.checkpoints.sql.lists import READ_NOTE, document
from graphflow.checkpoints.sql.migrations import Migrations, is_busy, migrate_sqlite, sqlite_version
from graphflow.checkpoints.sqlite.driver import drive, rows_of
from graphflow.errors import StoreError
from graphflow.private_files import make_private_file, make_private_folder

APPLICATION_ID = 0x67666C77
"""`gflw` in the file's header: told apart from other people's databases."""

PAGE_SIZE = 8192
"""Set when the file is made: rows of a kilobyte fill such pages well."""

WAL_PAGES = 1000
"""8 MiB of log between the checkpoints of SQLite: the batch that trips one waits for some 10 ms."""

FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What a statement raises: the second where SQLite's words for an error hold bytes of a damaged file."""

MIGRATIONS = Path(__file__).parent / "migrations"


def open_writer(
    path: Path, *, synchronous: str, busy_timeout_s: float, encrypted: bool = False
) -> sqlite3.Connection:  # fmt: skip
    """The writing connection, with the schema up to date.

    Args:
        encrypted: the caller can read encrypted blobs.

    Raises:
        StoreError: `store_version_unsupported` when a newer version made the file; `store_failed` when it can't be opened, or is
            encrypted and the caller can't read that.
    """
    db: sqlite3.Connection | None = None
    try:
        make_private_folder(path.parent)
        # SQLite gives the log and the shared memory beside it the same mode.
        make_private_file(path)
        db = _connect(path, busy_timeout_s)
        # The page size can be set only before the first page is written, so this comes before everything else.
        db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        _patiently(lambda: stored_version(db, path), busy_timeout_s)  # before anything of a foreign file is changed
        # WAL: readers see the last commit and never wait for the writer, who appends to the log instead of rewriting
        # pages.
        _patiently(lambda: _use_wal(db), busy_timeout_s)
        # With FULL the log is synced at every COMMIT; NORMAL syncs only when it is folded in, and may lose the last
        # commits.
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        # A single huge transaction must not leave its log behind as a file of that size for ever.
        db.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * PAGE_SIZE}")
        migrate(db, path)
        if not encrypted and rows_of(db, READ_NOTE(ENCRYPTION_NOTE)):
            raise errors.encrypted(str(path))
    except (*FAULTS, OSError) as error:
        if db is not None:
            db.close()
        raise store_error(path, error, "opened") from error
    except StoreError:
        if db is not None:
            db.close()
        raise
    return db


def open_reader(path: Path, *, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection that can't write, with the schema read, so that the first load need not.

    Raises:
        StoreError: `store_failed` when the file can't be opened.
    """
    db: sqlite3.Connection | None = None
    try:
        db = _connect(path, busy_timeout_s)
        db.execute("PRAGMA query_only = ON")
        # SQLite reads the schema with the first statement: here, rather than in the first load.
        db.execute("SELECT 1 FROM threads LIMIT 1").fetchone()
    except FAULTS as error:
        if db is not None:
            db.close()
        raise store_error(path, error, "opened") from error
    return db


def has_document(path: Path, digest: str, *, busy_timeout_s: float) -> bool:
    """Whether the file holds a document, read at once by a connection of its own; False where that can't be read."""
    if not path.is_file():  # connecting would make it
        return False
    with closing(_connect(path, busy_timeout_s)) as db:
        try:
            db.execute("PRAGMA query_only = ON")
            return bool(drive(db, document(digest)))
        except FAULTS:  # no store, or a damaged one: opening it reports that
            return False


def compact_file(path: Path, *, busy_timeout_s: float) -> None:
    """Rewrites the file without the pages that nothing uses any more.

    Raises:
        StoreError: it could not be rewritten, and is as it was; or another connection reads the old pages for longer than
            the timeout, and the file keeps its size until the next compaction.
    """
    with closing(_connect(path, busy_timeout_s)) as db:
        try:
            db.execute("VACUUM")
            # The rewritten pages are in the log so far; the file gets shorter when they are folded in.
            held = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except FAULTS as error:
            raise store_error(path, error, "compacted") from error
    if held:
        raise StoreError(
            f"the file of the store {path} keeps its size: another connection has a transaction open on it;"
            " compact again when it has ended"
        )


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    # Each connection stays with one thread, but is closed from wherever the store is.
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)


def _patiently(step: Callable[[], object], busy_timeout_s: float) -> None:
    """Tries again while processes that open the file at once are in each other's way; SQLite does not always wait itself."""
    until = time.monotonic() + busy_timeout_s
    while True:
        try:
            step()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


def _use_wal(db: sqlite3.Connection) -> None:
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"the store's file system has no shared memory for a write-ahead log (mode {mode!r}): use a local disk"
        )


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Brings the schema up to date in one transaction; safe when several processes do it at once.

    Raises:
        StoreError: the file belongs to something else, or a newer version made it.
    """
    migrations = _migrations(path)
    if stored_version(db, path) == migrations.newest:
        return
    # IMMEDIATE takes the write lock now. A transaction that reads first and writes later could not be upgraded and
    # would fail.
    db.execute("BEGIN IMMEDIATE")
    try:
        drive(db, migrate_sqlite(migrations, APPLICATION_ID))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has ended it already
            db.execute("ROLLBACK")
        raise


def stored_version(db: sqlite3.Connection, path: Path) -> int:
    """The file's schema version, 0 for an empty file.

    Raises:
        StoreError: the file belongs to something else, or a newer version made it.
    """
    db.execute("BEGIN")
    try:
        return drive(db, sqlite_version(_migrations(path), APPLICATION_ID))
    finally:
        db.execute("ROLLBACK")


def _migrations(path: Path) -> Migrations:
    foreign = f"{str(path)!r} is a SQLite database of another program: choose another file for the store"
    return Migrations(MIGRATIONS, f"the store {str(path)!r}", foreign)


def store_error(path: Path, error: BaseException, doing: str) -> StoreError:
    """What went wrong, in words that say what to do; `doing` is a participle (`read`, `written`, `opened`)."""
    start = f"the store {str(path)!r} could not be {doing}"
    if path.is_dir():
        return StoreError(f"{start}: it is a folder; name a file in it, such as {str(path / 'graphflow.db')!r}")
    if isinstance(error, FileExistsError | NotADirectoryError):
        return StoreError(f"{start}: a file stands where its folder should be; choose another place, or move that file")
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"{start}: a row of this commit is there already; ordinals are never reused ({error})")
    if isinstance(error, UnicodeDecodeError):
        kind: int | None = sqlite3.SQLITE_CORRUPT
    elif isinstance(error, OSError):
        kind = _OF_ERRNO.get(error.errno or 0)
    else:
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    why = _REASONS.get(kind)
    reason = f"{type(error).__name__}: {error}"
    return StoreError(f"{start}: {reason}" if why is None else f"{start}: {why} ({reason})")


_LOCKED = "another process kept it locked for longer than the busy timeout: raise `busy_timeout_s` or end that process"
_REASONS: dict[int | None, str] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: "the disk is full: make room, then resume the thread",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make it writable for this user",
    sqlite3.SQLITE_CANTOPEN: "the file can't be opened: the folder must exist and be writable for this user",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database: choose another file, or restore it from a backup",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup; `PRAGMA integrity_check` says where",
    sqlite3.SQLITE_IOERR: "the disk reported an error: look at the system's log",
}
"""SQLite's error code (its lower byte, the kind) → what it means and the next step."""
_OF_ERRNO = {
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
    errno.EACCES: sqlite3.SQLITE_READONLY,
    errno.EPERM: sqlite3.SQLITE_READONLY,
    errno.EROFS: sqlite3.SQLITE_READONLY,
}
"""The same for what the owners' folder beside the file can meet."""
