"""Write effects inside branches: listed by their path, reused, rerun or undone (E6, E8)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import CompiledGraph, Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import EffectsNeedChoice
from graphflow.messages import AIMessage, ToolCall
from tests.runtime.branches import STATE, document
from tests.runtime.test_effects import Post, post  # noqa: F401 - a fixture


class World:
    """A map in which every item sends a mail and makes a note, and item 1 asks in between."""

    def __init__(self, store: Checkpointer, post: Post) -> None:  # noqa: F811
        self.post, self.notes = post, list[tuple[int, str]]()

        async def note(state: Any, ctx: Context) -> dict[str, Any]:
            async def write() -> int:
                self.notes.append((state.mine, ctx.idempotency_key("note")))
                return len(self.notes)

            number = await ctx.step("note", write, arguments={"n": state.mine})
            answer = await ctx.ask("go on?", schema={"type": "integer"}) if state.mine == 1 else 0
            return {"results": [number], "total": answer}

        async def give(n: int) -> int:
            return n

        nodes = {
            "begin": {"use": "fn:give", "with": {"n": "${0}"}, "next": "fan"},
            "fan": {"map": "state.items", "as": "item", "do": "take", "max": 1, "next": "end"},
            "take": {"use": "fn:give", "with": {"n": "${item}"}, "set": {"mine": "out"}, "next": "mail"},
            "mail": {"use": "tool:send_mail", "with": {"text": "mail ${item}"}, "next": "note"},
            "note": {"use": "node:note", "undo": "tool:recall_mail", "next": "end"},
        }
        state = {"type": "object", "properties": {**STATE, "mine": {"type": "integer", "default": 0, "x-scope": "branch"}}}  # fmt: skip
        self.app: CompiledGraph = load_graph(
            document(nodes, state=state), checkpointer=store, functions={"give": give}, nodes={"note": note}, tools=post.tools()
        )  # fmt: skip

    async def finished(self) -> Any:
        waiting = await self.app.run({}, "t")
        assert [i.path for i in waiting.interrupts] == ["fan#1[1]"]
        return await self.app.answer("t", 5)

    async def begun(self) -> str:
        """The checkpoint before the map."""
        return next(row.id for row in await self.app.thread("t").history() if row.node == "begin")


@pytest.fixture
def world(store: Checkpointer, post: Post) -> World:  # noqa: F811
    return World(store, post)


async def test_effects_of_branches_are_told_apart_by_their_path_and_so_are_their_keys(world: World) -> None:
    await world.finished()
    with pytest.raises(EffectsNeedChoice) as caught:
        await world.app.thread("t").rewind(await world.begun())
    listed = [(e["path"], e["node"], e["key"]) for e in caught.value.detail["effects"]]
    assert listed == [(f"fan#1[{i}]", node, key) for i in range(3) for node, key in [("mail", "call"), ("note", "note")]]  # fmt: skip
    assert len({key for _, key in world.post.sent}) == len({key for _, key in world.notes}) == 3


async def test_reused_results_go_to_the_branch_that_they_were_made_in(world: World) -> None:
    done = await world.finished()
    assert list(done.state["results"]) == [1, 2, 3]
    again = await world.app.resume("t", await world.begun(), effects="reuse")
    assert again.status == "waiting"
    again = await world.app.answer("t", 5)
    assert (again.status, again.state) == ("completed", done.state)
    assert (len(world.post.sent), len(world.notes)) == (3, 3)


async def test_effects_of_a_branch_that_had_finished_are_not_behind_a_checkpoint_in_the_midst_of_the_map(
    world: World,
) -> None:
    await world.finished()
    row = next(row for row in await world.app.thread("t").history() if row.source == "ask")
    effects = await world.app.thread("t").effects(row.id)
    assert [(e.path, e.node) for e in effects] == [
        ("fan#1[1]", "note"),  # unfinished there: its node runs again
        ("fan#1[2]", "mail"),
        ("fan#1[2]", "note"),
    ]
    fork = await world.app.thread("t").fork(row.id, effects="rerun")
    result = await world.app.answer(fork.id, 6)
    assert (result.status, list(result.state["results"])) == ("completed", [1, 4, 5])
    assert [text for text, _ in world.post.sent] == ["mail 0", "mail 1", "mail 2", "mail 2"]
    keys = [key for _, key in (*world.post.sent, *world.notes)]
    assert len(set(keys)) == len(keys)


async def test_effects_of_branches_are_undone_newest_first_with_their_own_arguments(world: World) -> None:
    await world.finished()
    await world.app.thread("t").rewind(await world.begun(), effects="undo")
    told = [(r["arguments"], r["result"].get("data") if isinstance(r["result"], dict) else r["result"]) for r in world.post.recalled]  # fmt: skip
    assert told == [
        (given, result)
        for i in (2, 1, 0)
        for given, result in [({"n": i}, i + 1), ({"text": f"mail {i}"}, {"number": i + 1})]
    ]
    keys = [key for pair in zip(world.notes[::-1], world.post.sent[::-1], strict=True) for _, key in pair]
    assert [r["idempotencyKey"] for r in world.post.recalled] == keys


async def test_only_the_branch_that_is_edited_as_finished_keeps_its_effects_without_a_choice(world: World) -> None:
    await world.app.run({}, "t")
    thread = world.app.thread("t")
    with pytest.raises(EffectsNeedChoice) as caught:
        await thread.edit({"total": 1}, path="fan#1[1]")
    assert [(e["path"], e["key"]) for e in caught.value.detail["effects"]] == [("fan#1[1]", "note")]
    await thread.edit({"results": [9]}, "note", path="fan#1[1]")
    state = await thread.state()
    assert (state.status, list(state.values["results"])) == ("idle", [1, 9, 3])
    assert len(world.notes) == 3


async def test_a_call_of_the_same_id_in_every_branch_is_undone_with_the_arguments_of_its_own(
    store: Checkpointer,
    post: Post,  # noqa: F811
) -> None:
    async def ask_for(state: Any, ctx: Context) -> dict[str, Any]:
        call = ToolCall(id="call_1", name="send_mail", arguments=f'{{"text": "mail {state.mine}"}}')
        return {"messages": [AIMessage(content="", tool_calls=(call,))]}

    async def give(n: int) -> int:
        return n

    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "take", "next": "end"},
        "take": {"use": "fn:give", "with": {"n": "${item}"}, "set": {"mine": "out"}, "next": "think"},
        "think": {"use": "node:think", "next": "tools"},
        "tools": {"use": "tools", "set": {"messages": "out.messages"}, "next": "end"},
    }
    keys = {**STATE, "mine": {"type": "integer", "default": 0, "x-scope": "branch"}, "messages": {"type": "array", "x-reducer": "messages", "default": []}}  # fmt: skip
    app = load_graph(
        document(nodes, state={"type": "object", "properties": keys}),
        checkpointer=store, functions={"give": give}, nodes={"think": ask_for}, tools=post.tools(),
    )  # fmt: skip
    await app.run({}, "t")
    first = (await app.thread("t").history())[-1]
    await app.thread("t").rewind(first.id, effects="undo")
    sent = [text for text, _ in post.sent]
    assert sorted(sent) == ["mail 0", "mail 1", "mail 2"]
    assert sorted(recalled["arguments"]["text"] for recalled in post.recalled) == sorted(sent)
