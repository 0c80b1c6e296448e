"""`TodoWrite`: the rules of the list, what the model reads of it, and the plan that readers see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow.events import event_dict
from graphflow.testing.stream_grammar import StreamRules
from tests.tools.coding_folder import CodingFolder, code_of


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    return CodingFolder(tmp_path)


def todos(*items: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"summary": "Ship it", "todos": [{"content": text, "status": status} for text, status in items], **more}


LIST = todos(
    ("a", "pending"), ("b", "in_progress"), ("c", "completed"), ("d", "cancelled"), ("e", "pending"), ("f", "pending"),
    ("g", "pending"), ("h", "cancelled"), ("i", "cancelled"),
)  # fmt: skip


async def test_a_list_replaces_the_one_before_and_is_summed_up(folder: CodingFolder):
    await folder.call("TodoWrite", todos(("old", "pending")))
    done = await folder.call("TodoWrite", LIST)
    assert done["data"]["recap"] == "[4/9] In progress: b. Pending: a; e; f …. Cancelled: d; h …."
    assert [todo["id"] for todo in done["data"]["todos"]] == [f"t{n}" for n in range(1, 10)]
    counted = {name: done["stats"][name] for name in ("total", "pending", "in_progress", "completed", "cancelled")}
    assert counted == {"total": 9, "pending": 4, "in_progress": 1, "completed": 1, "cancelled": 3}
    assert all(icon in done["text"] for icon in ("[ ] a", "[▶] b", "[✓] c", "[~] d"))


async def test_an_empty_list_is_a_list(folder: CodingFolder):
    done = await folder.call("TodoWrite", todos())
    assert (done["status"], done["data"]["recap"]) == ("success", "[0/0] In progress: None.")


async def test_contents_are_trimmed_and_ids_of_the_input_ignored(folder: CodingFolder):
    given = {"summary": " Ship it ", "todos": [{"id": "x", "content": " a ", "status": "pending"}]}
    done = await folder.call("TodoWrite", given)
    assert done["data"]["todos"] == [{"id": "t1", "content": "a", "status": "pending"}]


@pytest.mark.parametrize(
    "wrong",
    [
        todos(("a", "in_progress"), ("b", "in_progress")),
        todos(("a", "doing")),
        todos(("a" * 61, "pending")),
        todos((" ", "pending")),
        todos(*[("a", "pending")] * 11),
        todos(*[("a", "pending")] * 10_000),
        todos(("a", "pending"), summary=" "),
        todos(("a", "pending"), summary=""),
        {"todos": []},
        {"summary": "x"},
        {"summary": "x", "todos": "a"},
        {"summary": "x", "todos": [{"content": "a"}]},
        {"summary": 1, "todos": []},
    ],
)
async def test_a_list_that_breaks_a_rule_leaves_the_one_before(folder: CodingFolder, wrong: dict[str, Any]):
    await folder.call("TodoWrite", todos(("old", "pending")))
    assert code_of(await folder.call("TodoWrite", wrong)) == "INVALID_PARAM"
    state = await folder.graph().thread("t").state()
    assert state.values["messages"][0].name == "TodoWrite"
    again = await folder.call("TodoWrite", todos(("a", "pending"), ("b", "in_progress"), ("c", "in_progress")))
    assert "stays: 1 tasks" in again["text"]


async def test_readers_see_the_list_as_a_plan_that_is_made_once_and_then_updated(folder: CodingFolder):
    seen = []
    for call in (todos(("a", "in_progress")), todos(("a", "completed"), ("b", "cancelled"))):
        rules = StreamRules()
        async for event in folder.graph().stream(
            {"calls": [{"name": "TodoWrite", "arguments": call}]}, "a-long-thread"
        ):
            rules.take(event)
            seen.append(event_dict(event))
    plans = [event for event in seen if event["type"].startswith("plan.")]
    assert [(plan["type"], plan["planId"], plan["chatId"]) for plan in plans] == [
        ("plan.create", "plan_a-long-threa", "a-long-thread"),
        ("plan.update", "plan_a-long-threa", "a-long-thread"),
    ]
    statuses = [[(step["taskId"], step["status"]) for step in plan["plan"]["steps"]] for plan in plans]
    assert statuses == [[("t1", "running")], [("t1", "completed"), ("t2", "canceled")]]
