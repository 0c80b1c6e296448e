"""Numbered migrations, for every database of this package: from whatever version a store has to the newest one.

They run as work (see `statement.py`) in a transaction that no other process can enter, so that several may open a new store
at once: the version is read again in there, for another process may have been faster.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from graphflow.checkpoints.sql.statement import Query, SharedStatement, Work
from graphflow.errors import StoreError

_MARKS = (
    SharedStatement("PRAGMA user_version", "", "i"),
    SharedStatement("PRAGMA application_id", "", "i"),
    SharedStatement("SELECT count(*) FROM sqlite_master", "", "i"),
)


class Migrations(NamedTuple):
    """The migrations of one store."""

    folder: Path
    store: str
    """For messages: which store, without a password."""
    foreign: str
    """What to say of a database that holds something else."""

    @property
    def newest(self) -> int:
        return steps_of(self.folder)[-1][0]

    def after(self, version: int) -> list[Query]:
        """The statements that a store of this version lacks."""
        return [statement() for number, step in steps_of(self.folder) if number > version for statement in step]

    def check(self, version: int) -> int:
        """The version.

        Raises:
            StoreError: `store_version_unsupported` when it is none that this program knows.
        """
        if version > self.newest:
            raise StoreError(
                f"{self.store} has schema version {version}, this graphflow knows up to {self.newest}: update graphflow",
                code="store_version_unsupported",
            )
        return version


@functools.cache
def steps_of(folder: Path) -> list[tuple[int, list[SharedStatement]]]:
    """(number, statements) of each migration."""
    paths = sorted(folder.glob("[0-9]*.sql"))
    scripts = [(int(path.name.partition("_")[0]), path.read_text(encoding="utf-8")) for path in paths]
    return [(number, [SharedStatement(sql) for sql in _statements(script)]) for number, script in scripts]


def _statements(script: str) -> Iterator[str]:
    """The script's statements; a body between `$$` is one of them, and so is everything up to a `;` at a line's end."""
    statement, quoted = "", False
    for line in script.splitlines(keepends=True):
        code = line.partition("--")[0].rstrip()
        if not code and not statement:
            continue
        statement += code + "\n"
        quoted ^= code.count("$$") % 2 == 1
        if code.endswith(";") and not quoted:
            yield statement.rstrip(" ;\n")
            statement = ""


@functools.cache
def _statement(sql: str, columns: str = "") -> SharedStatement:
    """One object for each text: the drivers remember what they made of a statement."""
    return SharedStatement(sql, "", columns)


def sqlite_version(migrations: Migrations, application_id: int) -> Work[int]:
    """The schema version of a SQLite file, 0 for an empty one.

    Mark and tables must be of one moment, or a store that another process makes just now looks like somebody else's file.

    Raises:
        StoreError: the file belongs to something else, or a newer version made it.
    """
    [(version,)], [(mark,)], [(tables,)] = yield [statement() for statement in _MARKS]
    if mark == application_id:
        return migrations.check(version)
    if tables:
        raise StoreError(migrations.foreign)
    return 0


def migrate_sqlite(migrations: Migrations, application_id: int) -> Work[None]:
    """In a transaction that holds the file's write lock."""
    # Again, inside the lock: another process may have been faster.
    version = yield from sqlite_version(migrations, application_id)
    if version == migrations.newest:
        return
    marks = (f"PRAGMA application_id = {application_id}", f"PRAGMA user_version = {migrations.newest}")
    yield [*migrations.after(version), *[_statement(mark)() for mark in marks]]


class PostgresSchema(NamedTuple):
    """How a schema of a PostgreSQL database is found to be a store's."""

    lock: SharedStatement
    seen: SharedStatement
    """Whether the table of versions is there, whether tables of others are, whether the schema is."""
    versions: str
    """The table of versions."""


def postgres_version(migrations: Migrations, schema: PostgresSchema) -> Work[int | None]:
    """The version of a PostgreSQL schema; None for one that is empty or not there.

    Raises:
        StoreError: the schema belongs to something else, or a newer version made it.
    """
    [[(ours, theirs, _)]] = yield [schema.seen()]
    if ours:
        [versions] = yield [_statement(f"SELECT version FROM @.{schema.versions}", "i")()]  # noqa: S608 – a constant
        # `to_regclass` sees a table that another process has made just now, this transaction's snapshot not yet its row.
        return migrations.check(versions[0][0]) if versions else None
    if theirs:
        raise StoreError(migrations.foreign)
    return None


def migrate_postgres(migrations: Migrations, schema: PostgresSchema) -> Work[None]:
    """In a transaction; its lock lasts until the end."""
    # A lock of its own statement: what follows must see what the process before us has committed.
    yield [schema.lock()]
    version = yield from postgres_version(migrations, schema)
    if version == migrations.newest:
        return
    first: list[Query] = []
    if version is None:
        [[(_, _, there)]] = yield [schema.seen()]
        made = f"CREATE TABLE @.{schema.versions} (version integer NOT NULL)"
        filled = f"INSERT INTO @.{schema.versions} VALUES (0)"  # noqa: S608 – a constant
        first = [_statement(sql)() for sql in ([] if there else ["CREATE SCHEMA @"]) + [made, filled]]
    last = _statement(f"UPDATE @.{schema.versions} SET version = {migrations.newest}")  # noqa: S608 – constants
    yield [*first, *migrations.after(version or 0), last()]


def is_busy(error: BaseException) -> bool:
    """Whether another SQLite connection's lock was in the way for too long."""
    # SQLITE_BUSY and SQLITE_LOCKED, by number: a program with PostgreSQL alone does not load sqlite3.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (5, 6)
