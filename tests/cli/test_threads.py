"""`graphflow threads`: a thread's past, and travelling in it without a server."""

from __future__ import annotations

import asyncio
import json

import pytest

from graphflow.runtime.runs import start
from graphflow.service.application import Application
from graphflow.settings import load_settings

QUESTION = "What time is it in Beijing? And list the files"


@pytest.fixture
def told(cli):
    """Thread `t1`: two tools were called, one of them a write."""
    done = cli("run", "demo_react", QUESTION, "--thread", "t1", "--approve", "all")
    assert done.code == 0, done.err
    return "t1"


def _checkpoints(cli, thread="t1", *flags):
    return cli("threads", "show", thread, "--json", *flags).json["checkpoints"]


def _at(cli, node, step):
    return next(row for row in _checkpoints(cli) if row["node"] == node and row["step"] == step)


def test_show_is_a_table_of_steps_with_times_and_tokens(cli, told, steady, snapshot):
    assert steady(cli("threads", "show", "t1").out) == snapshot


def test_every_finished_node_has_its_time(cli, told):
    timed = [(row["node"], row["step"]) for row in _checkpoints(cli) if "durationMs" in row]
    assert timed == [("reason", 1), ("tools", 2), ("reason", 3), ("tools", 4), ("reason", 5)]


def test_list_shows_status_agent_and_title(cli, told):
    row = cli("threads", "list", "--json").json[0]
    assert (row["threadId"], row["status"], row["agentKey"], row["title"]) == (
        "t1",
        "idle",
        "demo_react",
        QUESTION[:10],
    )


def test_diff_shows_what_changed_by_key(cli, told):
    first, last = _at(cli, "tools", 2)["id"], _at(cli, "reason", 5)["id"]
    changes = cli("threads", "diff", "t1", first[-8:], "head", "--json").json
    assert changes == cli("threads", "diff", "t1", first, last, "--json").json
    assert [change["op"] for change in changes["messages"]] == ["add"] * 3
    assert cli("threads", "diff", "t1", first, "head").out.startswith("+ messages/-")


def test_state_at_a_checkpoint(cli, told):
    earlier = cli("threads", "state", f"t1@{_at(cli, 'tools', 2)['id'][-8:]}", "messages").json
    assert len(earlier) == 3
    unknown = cli("threads", "state", "t1", "nope")
    assert unknown.code == 2 and "messages" in unknown.err


def test_rewind_over_a_write_needs_a_choice(cli, told):
    target = f"t1@{_at(cli, 'tools', 2)['id'][-8:]}"
    refused = cli("threads", "rewind", target)
    assert refused.code == 2 and "--effects reuse|rerun|undo" in refused.err
    assert len(_checkpoints(cli)) == len(_checkpoints(cli, "t1", "--all"))


def test_rewind_keeps_what_came_later_in_the_tree_and_resume_goes_on(cli, told):
    before = _checkpoints(cli)
    assert cli("threads", "rewind", f"t1@{before[2]['id'][-8:]}", "--effects", "rerun").code == 0
    done = cli("threads", "resume", "t1", "--approve", "all")
    assert done.code == 0 and "This is what `ls` gave" in done.out
    tree = {row["id"] for row in _checkpoints(cli, "t1", "--all")}
    assert {row["id"] for row in before} < tree


def test_dry_run_changes_nothing(cli, told):
    before = cli("threads", "show", "t1", "--json").out
    target = f"t1@{_at(cli, 'tools', 2)['id'][-8:]}"
    assert "would rewind" in cli("threads", "rewind", target, "--dry-run").err
    assert "would create" in cli("threads", "fork", target, "--dry-run").err
    assert "would delete" in cli("threads", "rm", "t1", "--dry-run").err
    assert cli("threads", "show", "t1", "--json").out == before


def test_a_fork_goes_on_with_other_words_and_leaves_the_first_untouched(cli, told):
    before = cli("threads", "state", "t1").out
    target = f"t1@{_at(cli, 'tools', 2)['id'][-8:]}"
    done = cli("threads", "fork", target, "--run", "What time is it in Paris?", "--id", "t2", "--effects", "rerun")
    assert done.code == 0 and "Paris" in done.out
    assert cli("threads", "state", "t1").out == before
    messages = cli("threads", "state", "t2", "messages").json
    assert [m["content"] for m in messages if m["role"] == "user"] == [QUESTION, "What time is it in Paris?"]


def test_a_fork_can_be_edited_first(cli, project):
    cli("run", "demo_review", "graphs", "--thread", "t1")
    (project / "state.json").write_text('{"draft": "A text of my own."}')
    assert cli("threads", "fork", "t1", "--edit", "state.json", "--id", "t2").out == "t2\n"
    assert cli("threads", "state", "t2", "draft").json == "A text of my own."
    assert cli("threads", "state", "t1", "draft").json != "A text of my own."


def test_a_fork_whose_edit_is_refused_is_not_left_behind(cli):
    cli("run", "demo_review", "graphs", "--thread", "t1")
    done = cli("threads", "fork", "t1", "--edit", '{"draft": 5}')
    assert done.code == 2 and "'draft' takes string" in done.err
    assert [row["threadId"] for row in cli("threads", "list", "--json").json] == ["t1"]


def test_an_id_that_is_taken_is_wrong_usage_for_forks_and_replays(cli, told):
    for command in ("threads fork", "replay"):
        done = cli(*command.split(), "t1", "--id", "t1", "--effects", "rerun")
        assert done.code == 2 and "exists already" in done.err and "--id NEW" in done.err, done


def test_a_status_that_no_thread_can_have_is_wrong_usage(cli, told):
    done = cli("threads", "list", "--status", "done")
    assert done.code == 2 and "idle, running, waiting, failed, stopped" in done.err
    assert [row["threadId"] for row in cli("threads", "list", "--status", "idle", "--json").json] == ["t1"]


@pytest.mark.parametrize("content", ["", "[]\n", '{"kind": "other"}\n', "no json\n"])
def test_what_is_no_exported_thread_is_wrong_usage(cli, content):
    done = cli("threads", "import", "-", input=content)
    assert done.code == 2 and "graphflow threads export" in done.err


def test_a_fork_that_waits_can_be_answered_on_its_own(cli):
    cli("run", "demo_react", QUESTION, "--thread", "t1")
    cli("threads", "fork", "t1", "--id", "t2")
    waiting = {row["threadId"]: row["interruptId"] for row in cli("inbox", "--json").json}
    assert set(waiting) == {"t1", "t2"}
    assert cli("inbox", "answer", waiting["t2"], "--reject", "not here").code == 0
    assert [row["threadId"] for row in cli("inbox", "--json").json] == ["t1"]


def test_cancel_closes_the_question(cli):
    cli("run", "demo_react", QUESTION, "--thread", "t1")
    assert cli("threads", "cancel", "t1", "--json").json == {"threadId": "t1", "cancelled": True}
    assert cli("inbox", "--json").json == []
    assert "nothing to cancel" in cli("threads", "cancel", "t1").err


def test_export_and_import_are_loss_free(cli, told, project):
    assert cli("threads", "export", "t1", "t1.jsonl").code == 0
    taken = cli("threads", "import", "t1.jsonl")
    assert taken.code == 2 and "--id" in taken.err
    assert cli("threads", "import", "t1.jsonl", "--id", "copy").out == "copy\n"
    assert cli("threads", "state", "copy").out == cli("threads", "state", "t1").out
    assert len(_checkpoints(cli, "copy")) == len(_checkpoints(cli))


def test_a_text_with_line_breaks_of_other_alphabets_is_imported_whole(cli, told, project):
    cli("threads", "export", "t1", "t1.jsonl")
    first, *others = (project / "t1.jsonl").read_text(encoding="utf-8").split("\n")
    head = json.loads(first)
    head["thread"]["facts"]["title"] = title = "one\u2028two\x85three"
    (project / "t1.jsonl").write_text("\n".join([json.dumps(head, ensure_ascii=False), *others]), encoding="utf-8")
    assert cli("threads", "import", "t1.jsonl", "--id", "copy").out == "copy\n"
    assert title in [row["title"] for row in cli("threads", "list", "--json").json]


def test_an_import_of_something_else_names_the_line(cli, project):
    (project / "x.jsonl").write_text('{"kind": "graphflow-thread"\n')
    done = cli("threads", "import", "x.jsonl")
    assert done.code == 2 and "x.jsonl:1" in done.err


def test_an_import_of_a_line_without_end_of_nesting_names_the_line(cli, told, project):
    cli("threads", "export", "t1", "t1.jsonl")
    head = (project / "t1.jsonl").read_text().splitlines()[0]
    for number, lines in ((1, ["[" * 100_000]), (2, [head, '{"a":' * 100_000])):
        (project / "deep.jsonl").write_text("\n".join(lines) + "\n")
        done = cli("threads", "import", "deep.jsonl", "--id", "deep")
        assert done.code == 2 and f"deep.jsonl:{number}: not valid JSON: it is nested too deeply" in done.err


@pytest.mark.parametrize("option", ["--budget", "--approve"])
def test_a_file_without_end_of_nesting_is_wrong_usage(cli, project, option):
    (project / "deep.json").write_text("[" * 100_000)
    given = "deep.json" if option == "--approve" else "@deep.json"
    done = cli("run", "demo_react", "hi", option, given)
    assert done.code == 2 and option in done.err and len(done.err) < 2000


def test_rename_follows_the_rule_of_titles_and_gives_the_automatic_one_back(cli, told):
    automatic = cli("threads", "list", "--json").json[0]["title"]
    assert cli("threads", "rename", "t1", "Mine").code == 0
    for wrong in ("x" * 201, "two\nlines", " "):
        refused = cli("threads", "rename", "t1", wrong)
        assert refused.code == 2 and "title: must be 1 to 200 printable characters" in refused.err
    assert cli("threads", "list", "--json").json[0]["title"] == "Mine"
    assert cli("threads", "rename", "t1", "").code == 0
    assert cli("threads", "list", "--json").json[0]["title"] == automatic


def test_rename_and_rm(cli, told):
    cli("threads", "rename", "t1", "A better name")
    assert cli("threads", "list", "--json").json[0]["title"] == "A better name"
    refused = cli("threads", "rm", "t1")
    assert refused.code == 2 and "--yes" in refused.err
    assert cli("threads", "rm", "t1", "--yes").code == 0
    assert cli("threads", "list", "--json").json == []


def test_rm_asks_on_a_terminal(cli, terminal, told):
    asked = terminal("threads", "rm", "t1")
    asked.sees(r"delete thread t1 with \d+ checkpoints\?")
    asked.enters("n")
    asked.sees("kept")
    assert asked.ends() == 0
    assert len(cli("threads", "list", "--json").json) == 1


def test_ids_may_be_given_by_their_end_unless_several_fit(cli):
    cli("run", "demo_plain", "hello", "--thread", "long-tail-one")
    cli("run", "demo_plain", "hello", "--thread", "other-tail-one")
    assert cli("threads", "show", "long", "--json").json["threadId"] == "long-tail-one"
    both = cli("threads", "show", "tail-one")
    assert both.code == 2 and "matches 2 threads" in both.err


def test_what_does_not_exist_is_named(cli, told):
    assert cli("threads", "show", "nobody").code == 2
    unknown = cli("threads", "rewind", "t1@ffffffff")
    assert unknown.code == 2 and "ffffffff" in unknown.err and "threads show" in unknown.err
    assert "THREAD@CHECKPOINT" in cli("threads", "rewind", "t1").err
    assert cli("threads", "resume", "t1").code == 2


def test_resume_of_a_waiting_thread_shows_its_question(cli):
    cli("run", "demo_react", QUESTION, "--thread", "t1")
    done = cli("threads", "resume", "t1")
    assert done.code == 4 and "inbox answer" in done.err
    assert cli("threads", "resume", "t1", "--approve", "all").code == 0


def test_reuse_does_nothing_of_the_past_again(cli, told):
    before = _checkpoints(cli)
    done = cli("threads", "resume", f"t1@{_at(cli, 'tools', 2)['id'][-8:]}", "--effects", "reuse", "--approve", "all")
    assert done.code == 0 and "This is what `ls` gave" in done.out
    assert {row["id"] for row in before} < {row["id"] for row in _checkpoints(cli, "t1", "--all")}


def test_a_choice_for_one_effect_is_by_the_id_that_the_refusal_lists(cli, told):
    target = f"t1@{_at(cli, 'tools', 2)['id'][-8:]}"
    refused = cli("threads", "rewind", target)
    listed = next(line.split()[0] for line in refused.err.splitlines() if "tools#" in line)
    assert cli("threads", "rewind", target, "--effects", f"{listed}=rerun").code == 0
    wrong = cli("threads", "rewind", target, "--effects", f"{listed}=redo")
    assert wrong.code == 2 and "redo" in wrong.err


def test_blame_names_who_wrote_a_value(cli, told):
    line = cli("threads", "blame", "t1", "state.messages[1]").out
    assert "node reason" in line and "model " in line
    found = cli("threads", "blame", "t1", "state.messages[0].content", "--json").json
    assert (found["source"], found["value"]) == ("input", QUESTION)
    wrong = cli("threads", "blame", "t1", "state.nothing")
    assert wrong.code == 2 and "messages" in wrong.err


def test_why_shows_each_condition_and_what_it_saw(cli, told):
    target = f"t1@{_at(cli, 'reason', 1)['id'][-8:]}"
    shown = cli("why", target).out
    assert "reason#1 → tools" in shown and "✓" in shown and "list of" in shown
    assert cli("threads", "why", target, "--json").json["decisions"][0]["how"] == "condition"


def test_replay_runs_again_from_a_node_on_a_thread_of_its_own(cli, told):
    before = cli("threads", "show", "t1", "--json").out
    done = cli("replay", "t1", "--until", "reason#3", "--id", "t2")
    assert done.code == 0 and "thread t2" in done.err
    assert cli("threads", "show", "t1", "--json").out == before
    assert len(_checkpoints(cli, "t2")) == len(_checkpoints(cli)) + 1
    refused = cli("replay", "t1", "--until", "tools#2")
    assert refused.code == 2 and "--effects" in refused.err
    assert cli("replay", "t1", "--until", "nowhere").code == 2


def test_cost_adds_up_by_run_node_and_model(cli, told):
    told_ = cli("threads", "cost", "t1", "--json").json
    assert told_["total"]["modelCalls"] == 3
    assert told_["nodes"]["reason"]["modelCalls"] == 3
    assert list(told_["models"].values()) == [told_["nodes"]["reason"]]


def test_diff_reaches_another_thread(cli, told):
    cli("threads", "fork", "t1", "--id", "t2", "--edit", '{"messages": []}')
    assert cli("threads", "diff", "t1", "head", "t2@head", "--json").json == {}


BROKEN = """
from graphflow import node


def parse(text):
    raise ValueError(f"no number in {text!r}")


@node
def work(state):
    return {"n": parse("seven")}
"""


def test_a_thread_whose_python_node_failed_shows_where(cli, project):
    (project / "broken_nodes.py").write_text(BROKEN, encoding="utf-8")
    (project / "graphflow.toml").write_text('[tools]\nmodules = ["broken_nodes"]\n', encoding="utf-8")
    document = {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "start": "work",
    }
    document["nodes"] = {"work": {"use": "node:work", "next": "end"}}
    (project / "graphs" / "broken.json").write_text(json.dumps(document), encoding="utf-8")
    assert cli("run", "broken", "go", "--thread", "b").code == 1
    trace = ["broken_nodes.py:11 in work", "broken_nodes.py:6 in parse", "ValueError: no number in 'seven'"]
    assert cli("why", "b", "--json").json["trace"] == trace
    assert cli("threads", "show", "b", "--json").json["trace"] == trace
    shown = cli("threads", "show", "b")
    for line in trace:
        assert line in cli("why", "b").out
        assert line in shown.out + shown.err


def test_an_id_that_no_door_takes_is_refused_and_an_older_thread_under_one_stays_in_reach(cli, project, monkeypatch):
    for refused in (
        ("run", "demo_plain", "x", "--thread", "a@b"),
        ("threads", "show", "a b"),
        ("inbox", "list", "--thread", "a/b"),
    ):
        made = cli(*refused)
        assert made.code == 2 and "is not a valid id: 1 to 128 characters" in made.err
    monkeypatch.setattr(start, "is_id", lambda _: True)
    asyncio.run(_stored(project, "a@b", "a b"))
    last = cli("threads", "show", "a@b", "--json").json["checkpoints"][-1]["id"]
    assert cli("threads", "state", f"a@b@{last[-8:]}").code == 0
    assert cli("threads", "rewind", f"a@b@{last[-8:]}").code == 0
    assert cli("threads", "fork", "a@b", "--id", "c").code == 0
    refused = cli("threads", "fork", "a@b", "--id", "a b c")
    assert refused.code == 2 and "is not a valid id" in refused.err
    for thread in ("a@b", "a b"):
        assert cli("threads", "rm", thread, "--yes").code == 0
    assert [line["threadId"] for line in cli("threads", "list", "--json").json] == ["c"]


async def _stored(project, *threads):
    async with Application(load_settings(project)) as app:
        for thread in threads:
            await app.graph("demo_plain").run({"query": "x"}, thread)
