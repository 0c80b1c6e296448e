"""Texts of refusals at the command line name what was typed, in the words of the command line."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("given", ["", "a/b"])
def test_what_is_no_id_is_named_without_an_option_that_nobody_gave(cli, project, given):
    refused = cli("threads", "show", given)
    assert refused.code == 2
    assert f"{given!r} is not a valid id" in refused.err and "--thread" not in refused.err


def test_the_id_of_a_fork_is_named_by_its_option(cli, project):
    cli("run", "demo_plain", "hi", "--thread", "t1")
    refused = cli("threads", "fork", "t1", "--id", "a/b")
    assert refused.code == 2 and "--id: 'a/b' is not a valid id" in refused.err and "--thread" not in refused.err


def test_a_short_part_of_an_id_is_refused_by_the_rule(cli, project):
    cli("run", "demo_plain", "hi", "--thread", "sd0")
    refused = cli("threads", "show", "sd")
    assert (
        refused.code == 2
        and "no thread has the id 'sd', and a prefix or suffix has 4 characters at least" in refused.err
    )
    assert cli("threads", "show", "sd0").code == 0


def test_where_there_is_no_file_to_fix_no_file_is_to_be_checked(cli, project):
    refused = cli("test", "/nope")
    assert refused.code == 2 and "graphflow validate" not in refused.err


def test_a_value_for_the_state_is_refused_as_a_value(cli, project):
    (project / "graphs" / "n.json").write_text(
        '{"graphflow": "1", "state": {"type": "object", "properties": {"n": {"type": "integer"}}}, "start": "a",'
        ' "nodes": {"a": {"ask": {"message": "?"}, "next": "end"}}}'
    )
    refused = cli("run", "n", "--state", "n=abc")
    assert refused.code == 2 and "change the node" not in refused.err


def test_cancelling_says_what_becomes_of_run_and_thread(cli, project):
    (project / "graphs" / "n.json").write_text(
        '{"graphflow": "1", "start": "a", "nodes": {"a": {"ask": {"message": "?"}, "next": "end"}}}'
    )
    cli("run", "n", "--thread", "t1")
    assert "the run of thread t1 is cancelled; the thread is stopped" in cli("threads", "cancel", "t1").err


@pytest.mark.parametrize("damage", ["cut", "twice", "record", "kind"])
def test_a_damaged_import_is_wrong_usage_whatever_the_damage(cli, project, damage):
    cli("run", "demo_plain", "hi", "--thread", "t1")
    lines = cli("threads", "export", "t1").out.splitlines()
    at = next(number for number, line in enumerate(lines) if '"record"' in line)
    damaged = {
        "cut": lines[:-1],
        "twice": [*lines[:at], lines[at], *lines[at:]],
        "record": [*lines[:at], lines[at].replace('"data":"', '"data":"AAAA'), *lines[at + 1 :]],
        "kind": [lines[0], lines[1].replace('"kind":"', '"kind":"un'), *lines[2:]],
    }[damage]
    assert damaged != lines
    (project / "d.jsonl").write_text("\n".join(damaged) + "\n")
    refused = cli("threads", "import", "d.jsonl", "--id", "t2")
    assert refused.code == 2 and "graphflow doctor" not in refused.err
    assert cli("threads", "show", "t2").code == 2
