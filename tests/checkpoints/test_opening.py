"""The store that the settings name, and that nobody sees its password."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.open_store import open_store
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.cli.commands.doctor import _store
from graphflow.errors import StoreError
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.postgres import Schemas


def test_the_store_is_a_file_unless_a_url_is_given(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={}).store
    assert isinstance(open_store(settings), SqliteCheckpointer)
    for name in ("GRAPHFLOW_CHECKPOINTS", "GRAPHFLOW_STORE_URL"):
        settings = load_settings(tmp_path, environ={name: "postgresql://ann:s3cret@host/app"}).store
        store = open_store(settings)
        assert isinstance(store, PostgresCheckpointer)
        assert "s3cret" not in repr(store) + repr(settings)
    environ = {"GRAPHFLOW_CHECKPOINTS": "postgresql:///app", "GRAPHFLOW_STORE_KEYS": "k:" + "A" * 43 + "="}
    encrypted = open_store(load_settings(tmp_path, environ=environ).store)
    assert isinstance(encrypted, EncryptedCheckpointer)
    assert isinstance(encrypted.store, PostgresCheckpointer)


@pytest.mark.parametrize("url", ["mysql://ann:s3cret@host/app", "postgresql://ann:s3cret%zz@host/app", "s3cret"])
def test_a_url_that_is_no_postgresql_is_refused_without_being_repeated(tmp_path: Path, url: str) -> None:
    settings = load_settings(tmp_path, environ={"GRAPHFLOW_CHECKPOINTS": url}).store
    with pytest.raises(StoreError, match=r"store\.url") as caught:
        open_store(settings)
    assert "s3cret" not in str(caught.value)


async def test_doctor_looks_into_the_database_and_shows_no_password(
    tmp_path: Path, schemas: Schemas, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = schemas.url.replace("postgres@", "postgres:s3cret@")
    environ = {"GRAPHFLOW_CHECKPOINTS": url, "GRAPHFLOW_STORE_DB_SCHEMA": schema}
    assert await _store(load_settings(tmp_path, environ=environ)) == (
        "store", "ok", f"{schema} in PostgreSQL: 0 threads, 0 open questions"
    )  # fmt: skip
    environ["GRAPHFLOW_CHECKPOINTS"] = "postgresql://ann:s3cret@127.0.0.1:1/app"
    what, state, text = await _store(load_settings(tmp_path, environ=environ))
    assert (what, state) == ("store", "error")
    assert "could not be opened" in text
    assert "s3cret" not in text + caplog.text


async def test_an_application_runs_on_it(tmp_path: Path, schemas: Schemas, schema: str) -> None:
    environ = {"GRAPHFLOW_CHECKPOINTS": schemas.url, "GRAPHFLOW_STORE_DB_SCHEMA": schema}
    async with Application(load_settings(tmp_path, environ=environ)) as app:
        assert isinstance(app.store, PostgresCheckpointer)
        await app.store.put_document("sha256:x", b"{}")
    assert schemas.run(f"SELECT count(*) FROM {schema}.documents") == [(1,)]
    assert not (tmp_path / "checkpoints").exists()
