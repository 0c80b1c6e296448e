"""`graphflow threads migrate`: unfinished threads go over to the newest version, or it is said what stands against it."""

from __future__ import annotations

import json

import pytest


def document(ask: str = "approve", after: str = "end", kind: str = "string", **state: object) -> dict[str, object]:
    return {
        "graphflow": "1",
        "start": ask,
        "state": {
            "type": "object",
            "properties": {"word": {"type": kind, "default": "x" if kind == "string" else 0}, **state},
        },
        "nodes": {ask: {"ask": {"message": "ok?", "schema": {"type": "boolean"}}, "next": after}},
    }


@pytest.fixture
def publish(project):
    def write(**changes):
        (project / "graphs" / "review.json").write_text(json.dumps(document(**changes)), encoding="utf-8")

    return write


@pytest.fixture
def waiting(cli, publish):
    """Threads `t1` and `t2` of `review` wait for their answer."""
    publish()
    for thread in ("t1", "t2"):
        assert cli("run", "review", "go", "--thread", thread, "--approve", "deny").code == 4
    return ["t1", "t2"]


def test_a_dry_run_shows_the_plan_and_changes_nothing(cli, publish, waiting):
    publish(ask="confirm", extra={"type": "integer", "default": 1})
    before = cli("threads", "show", "t1", "--json").json
    done = cli("threads", "migrate", "t1", "--to", "review", "--map", "approve=confirm", "--dry-run")
    assert done.code == 0, done.err
    assert [line.split(maxsplit=1)[0] for line in done.out.splitlines()] == ["thread", "node", "question", "new"]
    assert "approve → confirm" in done.out
    assert "nothing has changed" in done.err
    assert cli("threads", "show", "t1", "--json").json == before


def test_a_key_that_is_gone_is_said_to_keep_its_value(cli, publish):
    publish(extra={"type": "integer", "default": 7})
    assert cli("run", "review", "go", "--thread", "t1", "--approve", "deny").code == 4
    publish(after="end", other={"type": "integer", "default": 1})
    done = cli("threads", "migrate", "t1", "--to", "review")
    assert done.code == 0, done.err
    assert "dropped    extra: its value stays in the state, read-only" in done.out
    assert cli("threads", "state", "t1", "extra").out.strip() == "7"


def test_all_moves_every_unfinished_thread_and_says_which_were_refused(cli, publish, waiting):
    publish(ask="confirm")
    refused = cli("threads", "migrate", "--all", "--to", "review")
    assert refused.code == 2
    assert refused.out.count("the new version has no node 'approve'") == 2
    assert "0 of 2 threads migrated, 2 refused; nothing has changed" in refused.err
    done = cli("threads", "migrate", "--all", "--to", "review", "--map", "approve=confirm", "--json")
    assert done.code == 0, done.err
    assert sorted(report["threadId"] for report in done.json) == waiting
    assert all(report["checkpointId"] for report in done.json)
    (asked, _) = cli("inbox", "list", "--json").json
    assert asked["node"] == "confirm"
    again = cli("threads", "migrate", "--all", "--to", "review")
    assert (again.code, again.err.strip()) == (0, "no unfinished thread runs an older version")
    assert cli("threads", "show", "t1", "--json").json["checkpoints"][-1]["source"] == "migrate"


def test_every_problem_of_a_thread_is_said(cli, publish, waiting):
    publish(ask="confirm", kind="integer")
    done = cli("threads", "migrate", "t1", "--to", "review", "--json")
    assert done.code == 2
    assert [problem["where"] for problem in done.json["problems"]] == ["node approve", "state word"]
    done = cli(
        "threads", "migrate", "t1", "--to", "review", "--map", "approve=confirm", "--map", "nope=confirm", "--json"
    )
    assert [problem["where"] for problem in done.json["problems"]] == ["map nope", "state word"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t1",), "--to KEY is missing"),
        (("--to", "review"), "name one THREAD, or give --all"),
        (("t1", "--all", "--to", "review"), "name one THREAD, or give --all"),
        (("t1", "--to", "review", "--map", "approve"), "--map 'approve' does not name two nodes"),
        (("t1", "--to", "reviw"), "reviw"),
        (("t9999", "--to", "review"), "no thread has the id 't9999'"),
    ],
)
def test_wrong_usage_names_what_is_missing(cli, publish, arguments, words):
    publish()
    done = cli("threads", "migrate", *arguments)
    assert done.code == 2
    assert words in done.err
