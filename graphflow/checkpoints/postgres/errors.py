"""What PostgreSQL's errors mean for who uses the store: worth another try, or what to do about it."""

from __future__ import annotations

from graphflow.checkpoints.postgres.pipeline import PostgresError
from graphflow.errors import StoreError

PASSING = {"40001", "40P01", "55P03", "57014"}
"""Serialization failure, deadlock, a lock or a statement that took too long: nothing was changed, the next try may pass."""

_MEANING = {
    "53100": "the disk of the database is full: make room, then resume the thread",
    "53200": "the database is out of memory: look at its log",
    "53300": "the database takes no more connections: raise `max_connections` or close other clients",
    "25006": "the database is read-only: a standby, or `default_transaction_read_only`; point the store at the primary",
    "28000": "the user may not log in: look at the URL and at `pg_hba.conf`",
    "28P01": "the password is wrong",
    "3D000": "there is no such database: create it first (`createdb`)",
    "42501": "the user lacks a right: it needs its own schema, or CREATE on the database for the first `setup`",
    "42P01": "a table is missing: the schema was changed by somebody else; restore it from a backup",
    "3F000": "the schema is missing: it was dropped while the store was open",
    "58030": "the database could not read or write its disk: look at its log",
    "54000": "a value is too large for PostgreSQL: 1 GB, for an id some 2,700 bytes",
    "40001": "others changed the same rows again and again",
    "40P01": "it was in a deadlock again and again",
}


def store_error(name: str, error: BaseException, doing: str) -> StoreError:
    """What went wrong, in words that say what to do; `doing` is a participle (`read`, `written`, `opened`).

    Args:
        name: the store without its password.
    """
    if isinstance(error, StoreError):
        return error
    start = f"the store {name} could not be {doing}"
    if not isinstance(error, PostgresError):
        return StoreError(f"{start}: {error} ({type(error).__name__})")
    if error.state == "23505":
        return StoreError(f"{start}: a row of this commit is there already; ordinals are never reused ({error})")
    if error.state.startswith("XX"):
        why = "the database is damaged: restore it from a backup; `pg_amcheck` says where"
    else:
        why = _MEANING.get(error.state, "the database refused it")
    return StoreError(f"{start}: {why} (SQLSTATE {error.state}: {error})")


def unreachable(name: str, error: BaseException, seconds: float) -> StoreError:
    """The connection was lost or refused for longer than the store's patience."""
    return StoreError(
        f"the store {name} can't be reached (for {seconds:.0f} s): start the database or correct the URL, then resume the"
        f" thread ({error})",
    )


def held_open(name: str, sessions: str) -> StoreError:
    """Other transactions may still read what a compaction would remove."""
    return StoreError(
        f"the store {name} was not compacted, and nothing else was changed: an older transaction is open on the database"
        f" server ({sessions or 'of a session that this user may not see'}); compact again when it has ended"
    )


def closed(name: str) -> StoreError:
    return StoreError(f"the store {name} is closed: open it again with a new PostgresCheckpointer")


def forked(name: str) -> StoreError:
    return StoreError(
        f"the store {name} was opened before this process was forked: make a new PostgresCheckpointer in the child"
    )
