"""The PostgreSQL store's schema: numbered migrations, and what is not ours."""

from __future__ import annotations

from pathlib import Path

from graphflow.checkpoints.postgres.driver import drive
from graphflow.checkpoints.postgres.pool import Pool, Target, Transaction
from graphflow.checkpoints.sql.migrations import Migrations, PostgresSchema, migrate_postgres, postgres_version
from graphflow.checkpoints.sql.statement import SharedStatement, Work, one
from graphflow.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"

OLDEST = 130000
"""The oldest PostgreSQL: 13 has `pg_xact_status`, by which a lost COMMIT is found out."""

_SERVER = SharedStatement("SELECT current_setting('server_version_num')::integer", "", "i")
_SCHEMA = PostgresSchema(
    SharedStatement("SELECT pg_advisory_xact_lock(hashtextextended('graphflow schema ' || '@', 0))"),
    SharedStatement(
        "SELECT to_regclass('@.schema_version') IS NOT NULL, to_regclass('@.threads') IS NOT NULL,"
        " to_regnamespace('@') IS NOT NULL",
        "",
        "bbb",
    ),
    "schema_version",
)


async def migrate(pool: Pool, target: Target) -> None:
    """Brings the schema up to date in one transaction; safe when several processes do it at once.

    Raises:
        StoreError: the schema belongs to something else, or a newer version made it.
    """
    migrations = Migrations(
        MIGRATIONS,
        f"the store {target.name}",
        f"the schema {target.schema} of {target.name} has tables of another program: choose another `schema`",
    )

    def version() -> Work[int | None]:
        server = (yield from one(_SERVER()))[0][0]
        if server < OLDEST:
            raise StoreError(f"the store {target.name} is on PostgreSQL {server // 10000}: it needs 13 or newer")
        return (yield from postgres_version(migrations, _SCHEMA))

    async def work(db: Transaction) -> None:
        await drive(db.run, migrate_postgres(migrations, _SCHEMA))

    if await pool.read(lambda db: drive(db.run, version())) != migrations.newest:
        await pool.write(work)
