"""The PostgreSQL store's schema: numbered migrations, and what is not ours."""

from __future__ import annotations

from pathlib import Path

from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.pool import Pool, Target, Transaction
from graphflow.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"

OLDEST = 130000
"""The oldest PostgreSQL: 13 has `pg_xact_status`, by which a lost COMMIT is found out."""

_SEEN = Statement(
    "SELECT current_setting('server_version_num')::integer, to_regclass('@.schema_version') IS NOT NULL,"
    " to_regclass('@.threads') IS NOT NULL, to_regnamespace('@') IS NOT NULL",
    "",
    "ibbb",
)
_VERSION = Statement("SELECT version FROM @.schema_version", "", "i")
_SET_VERSION = Statement("UPDATE @.schema_version SET version = $1", "i")
_LOCK = Statement("SELECT pg_advisory_xact_lock(hashtextextended('graphflow schema ' || '@', 0))")
_CREATE = Statement("CREATE SCHEMA @")


async def migrate(pool: Pool, target: Target) -> None:
    """Brings the schema up to date in one transaction; safe when several processes do it at once.

    Raises:
        StoreError: the schema belongs to something else, or a newer version made it.
    """
    newest = _number(_steps()[-1])
    if await pool.read(lambda db: _version(db, target, newest)) == newest:
        return

    async def work(db: Transaction) -> None:
        await db.run(_LOCK())
        version = await _version(db, target, newest)  # again: another process may have been faster
        if version == newest:
            return
        if not (await db.rows(_SEEN()))[0][3]:
            await db.run(_CREATE())
        for step in _steps():
            if _number(step) > (version or 0):
                await db.run(*[Statement(sql)() for sql in _statements(step.read_text(encoding="utf-8"))])
        await db.run(_SET_VERSION(newest))

    await pool.write(work)


async def _version(db: Transaction, target: Target, newest: int) -> int | None:
    server, ours, theirs, _ = (await db.rows(_SEEN()))[0]
    if server < OLDEST:
        raise StoreError(f"the store {target.name} is on PostgreSQL {server // 10000}: it needs 13 or newer")
    if not ours:
        if theirs:
            raise StoreError(
                f"the schema {target.schema} of {target.name} has tables of another program: choose another `schema`"
            )
        return None
    version = int((await db.rows(_VERSION()))[0][0])
    if version > newest:
        raise StoreError(
            f"the store {target.name} has schema version {version}, this graphflow knows up to {newest}: update graphflow",
            code="store_version_unsupported",
        )
    return version


def _steps() -> list[Path]:
    return sorted(MIGRATIONS.glob("[0-9]*.sql"))


def _number(step: Path) -> int:
    return int(step.name.partition("_")[0])


def _statements(script: str) -> list[str]:
    """The script's statements; a body between `$$` is one of them, and so is everything up to a `;` at a line's end."""
    out: list[str] = []
    statement, quoted = "", False
    for line in script.splitlines(keepends=True):
        code = line.partition("--")[0].rstrip()
        if not code and not statement:
            continue
        statement += code + "\n"
        quoted ^= code.count("$$") % 2 == 1
        if code.endswith(";") and not quoted:
            out.append(statement.rstrip(" ;\n"))
            statement = ""
    return out
