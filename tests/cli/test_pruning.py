"""`graphflow threads prune` and `rotate_keys`."""

from __future__ import annotations

import pytest

from graphflow.checkpoints.encryption.cipher import new_key
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import StoreError


@pytest.fixture
def told(cli):
    """Thread `t1` of two runs."""
    for question in ("the first secret", "the second secret"):
        done = cli("run", "demo_plain", question, "--thread", "t1")
        assert done.code == 0, done.err
    return "t1"


def _history(cli):
    return [row["id"] for row in cli("threads", "show", "t1", "--json").json["checkpoints"]]


def test_prune_keeps_the_newest_after_it_was_agreed_to(cli, told):
    before = _history(cli)
    would = cli("threads", "prune", "t1", "--newest", "2", "--dry-run", "--json").json
    assert (would[0]["checkpoints"], would[0]["kept"]) == (len(before) - 2, 2)
    refused = cli("threads", "prune", "t1", "--newest", "2")
    assert refused.code == 2 and "--yes" in refused.err
    assert _history(cli) == before
    done = cli("threads", "prune", "t1", "--newest", "2", "--yes")
    assert f"{len(before) - 2} checkpoints deleted, 2 kept" in done.out
    assert _history(cli) == before[-2:]
    assert len(cli("threads", "state", "t1", "messages").json) == 4
    assert cli("threads", "prune", "t1", "--newest", "1", "--compact", "--yes").code == 0
    assert len(cli("threads", "state", "t1", "messages").json) == 4


def test_a_compaction_that_can_not_return_the_space_is_told_after_what_was_pruned(cli, told, monkeypatch):
    async def held(store):
        raise StoreError("compact again when it has ended")

    monkeypatch.setattr(SqliteCheckpointer, "compact", held)
    done = cli("threads", "prune", "t1", "--newest", "1", "--compact", "--yes")
    assert done.code != 0 and "compact again" in done.err
    assert "1 kept" in done.out
    assert len(_history(cli)) == 1


def test_prune_of_all_threads_by_age(cli, told):
    assert cli("threads", "prune", "--all", "--days", "1", "--yes", "--json").json[0]["checkpoints"] == 0
    assert cli("threads", "prune", "--all", "--days", "0", "--yes").code == 0
    assert len(_history(cli)) == 1


@pytest.mark.parametrize("days", ["1e9", "inf"])
def test_prune_refuses_days_before_1970_by_the_name_of_the_option(cli, told, days):
    refused = cli("threads", "prune", "--all", "--days", days, "--dry-run")
    assert refused.code == 2 and "--days" in refused.err and "before 1970" in refused.err


def test_prune_says_what_is_missing(cli):
    assert "--newest N" in cli("threads", "prune", "t1").err
    assert "--all" in cli("threads", "prune", "--newest", "1").err


def test_rotation_encrypts_a_store_that_was_plain_and_turns_keys(cli, told, project, environment):
    made = cli("threads", "rotate-keys", "--new-key").out.strip()
    assert cli("threads", "rotate-keys").code == 2
    environment["GRAPHFLOW_STORE_KEYS"] = f"one:{made}"
    refused = cli("threads", "list")
    assert refused.code != 0 and "graphflow threads rotate-keys" in refused.err
    assert "encrypted under 'one'" in cli("threads", "rotate-keys").err
    assert cli("threads", "state", "t1", "messages").json[0]["content"] == "the first secret"
    environment["GRAPHFLOW_STORE_KEYS"] = f"two:{new_key()},one:{made}"
    assert "no longer needed: 'one'" in cli("threads", "rotate-keys").err
    assert made not in cli("doctor").out
    environment["GRAPHFLOW_STORE_KEYS"] = ""
    assert "store.keys" in cli("threads", "list").err
    assert "store.keys" in cli("doctor").out
