"""Write effects and time travel: reuse, rerun or undo, for all or for each (E6, E8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import AIMessage, Context, Graph, GraphflowError, ToolCall, ToolMessage, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import EffectsNeedChoice, StateError, ThreadWaiting
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.run_host import RunHost
from graphflow.tools.context import ToolContext
from tests.launching import crash, launch
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, CutOffWrite


class Post:
    """An outside world: mails that were sent, and calls that took them back."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        """(text, idempotency key)."""
        self.recalled: list[dict[str, Any]] = []
        self.breaks: list[BaseException] = []
        """What the next recalls raise."""
        self.slow: asyncio.Event | None = None
        """What a recall waits for before it does anything."""

    def tools(self) -> list[Any]:
        @tool(undo="tool:recall_mail")
        async def send_mail(text: str, ctx: ToolContext) -> dict[str, Any]:
            self.sent.append((text, ctx.idempotency_key))
            return {"number": len(self.sent)}

        @tool
        async def recall_mail(arguments: dict[str, Any], result: Any, idempotencyKey: str) -> str:  # noqa: N803 - the wire's name
            if self.slow is not None:
                await self.slow.wait()
            if self.breaks:
                raise self.breaks.pop(0)
            self.recalled.append({"arguments": arguments, "result": result, "idempotencyKey": idempotencyKey})
            return "recalled"

        return [send_mail, recall_mail]


@pytest.fixture
def post() -> Post:
    return Post()


def two_mails() -> Graph:
    """`draft` → `first` (a tool) → `second` (`ctx.step` in a node of its own) → `count`."""
    graph = Graph(Counter)

    @graph.node(next="first")
    async def draft(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    graph.add(
        "first", use="tool:send_mail", with_={"text": "mail ${state.n}"}, set={"log": "[out.text]"}, next="second"
    )

    @graph.node(next="count", undo="tool:recall_mail")
    async def second(state: Any, ctx: Any) -> dict[str, Any]:
        number = await ctx.step(
            "note", lambda: ctx.services["world"].append(state.n) or len(ctx.services["world"]), arguments={"n": 1}
        )
        return {"log": [f"note {number}"]}

    @graph.node
    async def count(state: Any) -> dict[str, Any]:
        return {"n": state.n * 10}

    return graph


def build(compile_graph: Compile, post: Post) -> tuple[CompiledGraph, list[int]]:
    app, world = compile_graph(two_mails(), tools=post.tools()), list[int]()
    app.host.services["world"] = world  # type: ignore[index] # a test's own service
    return app, world


async def at(app: CompiledGraph, node: str) -> str:
    """The checkpoint in which a node finished."""
    return next(r.id for r in await app.thread("t").history() if r.node == node and r.source == "node")


async def test_effects_behind_a_checkpoint_are_listed_with_what_they_were(compile_graph: Compile, post: Post) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    with pytest.raises(EffectsNeedChoice) as caught:
        await app.thread("t").rewind(await at(app, "draft"))
    listed = caught.value.detail["effects"]
    assert [(e["node"], e["visit"], e["key"], e["kind"], e["outcome"], e["undo"]) for e in listed] == [
        ("first", 1, "call", "tool", "done", "tool:recall_mail"),
        ("second", 1, "note", "once", "done", "tool:recall_mail"),
    ]
    assert caught.value.detail["choices"] == ["reuse", "rerun", "undo"]
    assert [e.key for e in await app.thread("t").effects(await at(app, "first"))] == ["note"]


async def test_rerun_does_them_again_under_new_idempotency_keys(compile_graph: Compile, post: Post) -> None:
    app, world = build(compile_graph, post)
    await app.run(thread_id="t")
    await app.resume("t", await at(app, "draft"), effects="rerun")
    assert world == [1, 1]
    assert [text for text, _ in post.sent] == ["mail 1", "mail 1"]
    assert len({key for _, key in post.sent}) == 2


async def test_reuse_gives_the_recorded_results_and_does_nothing(compile_graph: Compile, post: Post) -> None:
    app, world = build(compile_graph, post)
    done = await app.run(thread_id="t")
    again = await app.resume("t", await at(app, "draft"), effects="reuse")
    assert (again.state, world, len(post.sent)) == (done.state, [1], 1)
    assert [e.key for e in await app.thread("t").effects(await at(app, "draft"))] == ["call", "note"]
    once_more = await app.resume("t", await at(app, "draft"), effects="reuse")
    assert (once_more.state, world, len(post.sent)) == (done.state, [1], 1)


async def test_from_the_end_of_a_run_that_took_up_nothing_of_its_past_no_choice_is_needed(
    compile_graph: Compile, post: Post
) -> None:
    app, _ = build(compile_graph, post)
    thread = app.thread("t")
    await app.run(thread_id="t")
    start = (await thread.history())[-1].id
    await app.run(thread_id="t")
    # The writes of the second run lie behind the first one's start, and going on from there does not come to them.
    await app.resume("t", start, effects="reuse")
    head = (await thread.state()).checkpoint_id
    assert head is not None
    assert await thread.effects(head) == []
    await thread.edit({})
    await thread.rewind((await thread.state()).checkpoint_id or "")
    assert (await thread.state()).status == "idle"
    with pytest.raises(EffectsNeedChoice):
        await thread.rewind(start)


async def test_a_fork_reuses_results_of_the_thread_it_came_from(compile_graph: Compile, post: Post) -> None:
    app, world = build(compile_graph, post)
    done = await app.run(thread_id="t")
    fork = await app.thread("t").fork(await at(app, "draft"), effects="reuse")
    assert (await app.resume(fork.id)).state == done.state
    assert (world, len(post.sent)) == ([1], 1)


async def test_reuse_asks_where_the_arguments_are_others_and_takes_each_answer(
    compile_graph: Compile, post: Post
) -> None:
    app, world = build(compile_graph, post)
    await app.run(thread_id="t")
    for n, decision, sent, log in (
        (7, {"decision": "retry"}, 2, '{"number":2}'),
        (8, {"decision": "result", "result": {"status": "success", "text": "by hand"}}, 2, "by hand"),
    ):
        await app.thread("t").rewind(await at(app, "draft"), effects="reuse")
        await app.thread("t").edit({"n": n}, effects="reuse")
        waiting = await app.resume("t")
        assert [(i.kind, i.node) for i in waiting.interrupts] == [("outcome_unknown", "first")]
        asked = waiting.interrupts[0]
        assert (asked.tool_name, asked.arguments) == ("send_mail", {"text": f"mail {n}"}), "who answers sees the call"
        done = await app.answer("t", {waiting.interrupts[0].id: decision})
        assert (done.status, len(post.sent), done.state.log[0]) == ("completed", sent, log)
        assert world == [1]


async def test_reuse_after_its_source_was_deleted_asks(compile_graph: Compile, post: Post) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    fork = await app.thread("t").fork(await at(app, "draft"), effects="reuse")
    await app.thread("t").delete()
    waiting = await app.resume(fork.id)
    assert [i.kind for i in waiting.interrupts] == ["outcome_unknown"]
    assert len(post.sent) == 1


async def test_a_new_input_repeats_nothing_of_the_past(compile_graph: Compile, post: Post) -> None:
    app, world = build(compile_graph, post)
    await app.run(thread_id="t")
    await app.thread("t").rewind(await at(app, "draft"), effects="reuse")
    done = await app.run(thread_id="t")
    assert (done.status, len(post.sent), world) == ("completed", 2, [1, 2])


async def test_undo_takes_them_back_in_reverse_order_with_what_they_were(compile_graph: Compile, post: Post) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    effects = await app.thread("t").effects(await at(app, "draft"))
    await app.thread("t").rewind(await at(app, "draft"), effects="undo", by="ada")
    note, mail = post.recalled
    assert (note["arguments"], note["result"]) == ({"n": 1}, 1)
    assert (mail["arguments"], mail["result"]["data"]) == ({"text": "mail 1"}, {"number": 1})
    assert mail["idempotencyKey"] == post.sent[0][1]
    assert [e.undone for e in effects] == ["", ""]
    assert len(await app.thread("t").history()) == 3
    assert (await app.resume("t")).status == "completed"
    assert [text for text, _ in post.sent] == ["mail 1", "mail 1"]


async def test_a_slow_undo_keeps_its_thread_by_the_lease_of_the_store_s_owner(
    compile_graph: Compile, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    runs = app.host.need_runs()
    runs.registry.lease_ms, post.slow = 30, asyncio.Event()
    renew, renewed, lasting = runs.store.renew, post.slow, list[int]()

    async def noted(owner: str, *, lease_until: int) -> None:
        lasting.append(lease_until - app.host.clock.now_ms())
        await renew(owner, lease_until=lease_until)
        renewed.set()

    monkeypatch.setattr(runs.store, "renew", noted)
    async with asyncio.timeout(PATIENCE_S):
        await app.thread("t").rewind(await at(app, "draft"), effects="undo")
    assert len(post.recalled) == 2 and lasting and max(lasting) < 5_000  # the default is 15 s


async def test_a_choice_for_each_effect(compile_graph: Compile, post: Post) -> None:
    app, world = build(compile_graph, post)
    await app.run(thread_id="t")
    start = await at(app, "draft")
    mail, _ = await app.thread("t").effects(start)
    with pytest.raises(EffectsNeedChoice):
        await app.thread("t").rewind(start, effects={mail.id: "undo"})
    for wrong in ("redo", {mail.id: "redo"}, {"nobody": "undo", "*": "rerun"}):
        with pytest.raises(GraphflowError) as caught:
            await app.thread("t").rewind(start, effects=wrong)
        assert caught.value.code == "invalid_input"
    with pytest.raises(GraphflowError):
        await app.thread("t").fork(start, effects="undo")
    await app.thread("t").rewind(start, effects={mail.id: "undo", "*": "reuse"})
    await app.resume("t")
    assert (len(post.recalled), len(post.sent), world) == (1, 2, [1])


async def test_an_effect_without_undo_is_refused_before_anything_is_taken_back(
    compile_graph: Compile, post: Post
) -> None:
    graph = Graph(Counter)
    graph.add("mail", use="tool:send_mail", with_={"text": "a"}, next="plain")

    @graph.node
    async def plain(state: Any, ctx: Context) -> None:
        await ctx.step("x", lambda: 1)

    app = compile_graph(graph, tools=post.tools())
    await app.run(thread_id="t")
    start = (await app.thread("t").history())[-1].id
    with pytest.raises(EffectsNeedChoice) as caught:
        await app.thread("t").rewind(start, effects="undo")
    assert "'x'" in caught.value.message and post.recalled == []


async def test_a_failing_undo_stops_and_the_next_try_goes_on_where_it_stopped(
    compile_graph: Compile, post: Post
) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    start = await at(app, "draft")
    mail, note = await app.thread("t").effects(start)
    await app.thread("t").rewind(await at(app, "first"), effects="undo")  # takes back `note`
    assert len(post.recalled) == 1
    await app.resume("t")
    mail, note = await app.thread("t").effects(start)
    before = await app.thread("t").history()
    post.breaks = [ValueError("the post is closed")]
    with pytest.raises(GraphflowError) as caught:
        await app.thread("t").rewind(start, effects="undo")
    assert (caught.value.code, caught.value.detail["effect"]) == ("undo_failed", note.id)
    assert (caught.value.detail["undone"], caught.value.detail["left"]) == ([], [mail.id, note.id])
    assert await app.thread("t").history() == before
    await app.thread("t").rewind(start, effects="undo")
    assert len(post.recalled) == 3


async def test_an_undoing_happens_once_although_a_later_one_fails(compile_graph: Compile, post: Post) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    start = await at(app, "draft")
    recalls = iter([None, ValueError("closed")])

    class Twice(list[BaseException]):
        def __bool__(self) -> bool:
            self[:] = [e for e in [next(recalls, None)] if e is not None]
            return len(self) > 0

    post.breaks = Twice()
    with pytest.raises(GraphflowError) as caught:
        await app.thread("t").rewind(start, effects="undo")
    mail, note = await app.thread("t").effects(start)
    assert (caught.value.detail["effect"], caught.value.detail["undone"]) == (mail.id, [note.id])
    assert (mail.undone, note.undone) == ("", "done")
    post.breaks = []
    await app.thread("t").rewind(start, effects="undo")
    assert [r["arguments"] for r in post.recalled] == [{"n": 1}, {"text": "mail 1"}]


async def test_an_undoing_that_was_cut_off_is_never_repeated_unasked(compile_graph: Compile, post: Post) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    start = await at(app, "first")
    post.breaks = [TimeoutError("no answer")]
    with pytest.raises(GraphflowError) as caught:
        await app.thread("t").rewind(start, effects="undo")
    assert "unknown" in caught.value.message
    (note,) = await app.thread("t").effects(start)
    assert note.undone == "unknown"
    with pytest.raises(EffectsNeedChoice):
        await app.thread("t").rewind(start, effects="undo")
    assert post.recalled == []
    with pytest.raises(GraphflowError, match="'undone' is called 'assume_undone' now"):
        await app.thread("t").fork(start, effects={note.id: "undone"})
    fork = await app.thread("t").fork(start, effects={note.id: "assume_undone"})
    assert (await fork.state()).next == ["second"]
    await app.thread("t").rewind(start, effects={note.id: "undo"})
    assert len(post.recalled) == 1


async def test_undoing_a_run_that_waits_keeps_its_log_and_its_question(compile_graph: Compile, post: Post) -> None:
    graph = Graph(Counter)
    graph.add("mail", use="tool:send_mail", with_={"text": "a"}, next="ask")
    graph.ask("ask", "ok?", schema={"type": "string"}, set={"log": "[answer]"})
    app = compile_graph(graph, tools=post.tools())
    await app.run(thread_id="t")
    events = await app.thread("t").events()
    start = (await app.thread("t").history())[-1].id
    post.breaks = [ValueError("closed")]
    with pytest.raises(GraphflowError):
        await app.thread("t").rewind(start, effects="undo")
    assert await app.thread("t").events() == events
    assert (await app.answer("t", "yes")).status == "completed"
    await app.thread("t").rewind(start, effects="undo")
    assert len(post.recalled) == 1


async def test_a_write_before_a_question_in_its_node_needs_a_choice_when_the_question_is_asked_anew(
    compile_graph: Compile, post: Post
) -> None:
    graph, world = Graph(Counter), list[int]()

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.step("order", lambda: world.append(1))
        return {"n": await ctx.ask("how many?", schema={"type": "integer"})}

    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    thread = app.thread("t")
    for refused in (thread.rewind(waiting.checkpoint_id or ""), thread.edit({"log": ["x"]}), thread.fork()):
        with pytest.raises(EffectsNeedChoice):
            await refused
    await thread.edit({"n": 5}, as_node="work")  # the node does not run again
    await thread.rewind(waiting.checkpoint_id or "", effects="reuse")
    assert (await app.answer("t", 3)).state.n == 3
    assert world == [1]


async def test_a_write_of_a_model_s_call_is_undone_with_the_arguments_that_the_messages_hold(
    store: Checkpointer, post: Post
) -> None:
    from graphflow import load_graph
    from graphflow.messages import AIMessage, ToolCall

    call = ToolCall(id="call_1", name="send_mail", arguments='{"text": "hi"}')
    ai = AIMessage(content="", tool_calls=(call,))

    async def model(state: Any) -> dict[str, Any]:
        return {"messages": [ai]}

    document = {
        "graphflow": "1", "start": "model",
        "state": {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}},
        "nodes": {"model": {"use": "node:model", "next": "tools"}, "tools": {"use": "tools", "set": {"messages": "out.messages"}}},
    }  # fmt: skip
    app = load_graph(document, checkpointer=store, tools=post.tools(), nodes={"model": model})
    await app.run({"query": "mail"}, thread_id="t")
    start = (await app.thread("t").history())[1].id
    (mail,) = await app.thread("t").effects(start)
    assert (mail.key, mail.kind) == ("call_1", "tool")
    again = await app.resume("t", start, effects="reuse")
    assert (len(post.sent), again.state.messages[-1].content) == (1, '{"number":1}')
    await app.thread("t").rewind(start, effects="undo")
    assert post.recalled[0]["arguments"] == {"text": "hi"}


async def test_a_fork_and_a_rewind_read_no_lists_and_not_the_history(
    store: Checkpointer, compile_graph: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O(1) in the length of the thread (E8)."""
    graph = Graph(Counter)

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        if state.n == 3:
            await ctx.step("mail", lambda: None)
        return {"n": state.n + 1, "log": ["x"]}

    app = compile_graph(graph)
    for _ in range(60):
        await app.run(thread_id="t")
    rows = await app.thread("t").history(limit=8)
    read: list[str] = []
    for name in ("read_logs", "read_items", "read_records", "list_checkpoints", "read_effects"):
        asked = getattr(store, name)

        async def spy(*args: Any, asked: Any = asked, name: str = name, **options: Any) -> Any:
            found = await asked(*args, **options)
            read.extend([name] * len(found))
            return found

        monkeypatch.setattr(store, name, spy)
    await app.thread("t").rewind(rows[-1].id)
    fork = await app.thread("t").fork()
    assert set(read) <= {"list_checkpoints"}
    assert len(read) <= 2, "only a parent is looked up"
    monkeypatch.undo()
    assert (await fork.state()).values.n == 56


async def test_a_node_that_writes_as_a_whole_is_reused_and_undone_like_any_other(store: Checkpointer) -> None:
    from graphflow import Goto, load_graph

    done, undone = list[str](), list[Any]()

    def pay(amount: int) -> dict[str, Any]:
        done.append(f"pay {amount}")
        return {"receipt": len(done)}

    def back(arguments: Any, result: Any, idempotencyKey: str) -> None:  # noqa: N803 - the wire's name
        undone.append((arguments, result))

    async def choose(state: Any) -> Goto:
        done.append("choose")
        return Goto("end", {"receipt": state.receipt + 1})

    document = {
        "graphflow": "1", "start": "pay",
        "state": {"type": "object", "properties": {"receipt": {"type": "integer", "default": 0}}},
        "nodes": {
            "pay": {"use": "fn:pay", "with": {"amount": 5}, "effects": "write", "undo": "fn:back",
                    "set": {"receipt": "out.receipt"}, "next": "choose"},
            "choose": {"use": "node:choose", "effects": "write", "next": {"choose": ["end"]}},
        },
    }  # fmt: skip
    app = load_graph(document, checkpointer=store, functions={"pay": pay, "back": back}, nodes={"choose": choose})
    first = await app.run({}, thread_id="t")
    start = (await app.thread("t").history())[-1].id
    again = await app.resume("t", start, effects="reuse")
    assert (again.state, again.status, done) == (first.state, "completed", ["pay 5", "choose"])
    pay_effect, choose_effect = await app.thread("t").effects(start)
    await app.thread("t").rewind(start, effects={pay_effect.id: "undo", choose_effect.id: "rerun"})
    assert undone == [({"amount": 5}, {"receipt": 1})]


@pytest.mark.parametrize(
    "wrong",
    [{"values": {"n": "x"}}, {"values": {}, "as_node": "nope"}, {"values": {"n": 1}, "replace": ["log"]}],
    ids=["value", "node", "replace"],
)
async def test_an_edit_that_does_not_fit_is_refused_before_any_effect_is_taken_back(
    compile_graph: Compile, post: Post, wrong: dict[str, Any]
) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    before = await app.thread("t").history()
    early = await at(app, "draft")
    with pytest.raises(StateError):
        await app.thread("t").edit(**wrong, checkpoint_id=early, effects="undo")
    assert post.recalled == []
    assert await app.thread("t").history() == before
    assert [effect.undone for effect in await app.thread("t").effects(early)] == ["", ""]


async def test_choices_that_are_no_words_are_refused(compile_graph: Compile, post: Post) -> None:
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    with pytest.raises(GraphflowError, match="one word for all") as caught:
        await app.thread("t").rewind(await at(app, "draft"), effects=["undo"])  # type: ignore[arg-type] # the point
    assert caught.value.code == "invalid_input"


async def test_an_edit_of_the_head_passes_over_nothing_that_a_run_did_until_it_was_cancelled(
    compile_graph: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effects are asked about where a thread goes back; an edit with `cancel` goes on from wherever the run is stopped."""
    graph, did, begun, go, inside = Graph(Counter), list[str](), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @graph.node(next="rest")
    async def act(state: Any, ctx: Context) -> dict[str, Any]:
        begun.set()
        await go.wait()
        await ctx.step("mail", lambda: did.append("mail"))
        return {"n": 1}

    @graph.node
    async def rest(state: Any) -> None:
        inside.set()
        await asyncio.Event().wait()

    app = compile_graph(graph)
    live = await launch(app, {}, "t")
    await begun.wait()
    await live.executor.flush()
    load = RunHost.load

    async def looked(self: RunHost, *args: Any, **options: Any) -> Any:
        loaded = await load(self, *args, **options)
        go.set()
        await inside.wait()
        await live.executor.flush()
        return loaded

    with monkeypatch.context() as patch:
        patch.setattr(RunHost, "load", looked)  # the run writes once the edit has looked where it stands
        await app.thread("t").edit({"n": 7}, as_node="rest", cancel=True)
    state = await app.thread("t").state()
    assert (state.status, state.values.n, did) == ("idle", 7, ["mail"])


@pytest.mark.parametrize("how", ["crash", "lost connection"])
async def test_new_input_waits_until_it_is_known_what_became_of_a_write_that_was_cut_off(
    compile_graph: Compile, how: str
) -> None:
    write = CutOffWrite(loses_connection=how == "lost connection")
    app, did = compile_graph(write.graph), write.did
    live = await launch(app, {}, "t")
    await write.inside.wait()
    if how == "crash":
        await crash(live)
    await live.over.wait()
    before = await app.thread("t").history()
    with pytest.raises(ThreadWaiting, match="'pay' of node 'act'") as refused:
        await app.run({}, "t")
    assert refused.value.detail["writes"] == [{"node": "act", "path": "", "key": "pay"}]
    assert (await app.thread("t").history(), did) == (before, ["paid"])
    asked = await app.resume("t")
    assert [i.kind for i in asked.interrupts] == ["outcome_unknown"]
    assert (await app.answer("t", {"decision": "skip"})).status == "completed"
    assert did == ["paid"]
    assert (await app.run({}, "t")).state.n == 2


async def test_a_queued_input_waits_too_until_it_is_known_what_became_of_a_write_that_was_cut_off(
    compile_graph: Compile, store: Checkpointer
) -> None:
    write = CutOffWrite()
    app, did = compile_graph(write.graph), write.did
    live = await launch(app, {}, "t")
    await write.inside.wait()
    queued = asyncio.ensure_future(app.run({}, "t", on_busy="enqueue"))  # noqa: TID251 - awaited below
    async with asyncio.timeout(PATIENCE_S):
        while not await store.queue("t", kind="input"):
            await asyncio.sleep(0)
    await crash(live)
    # Its caller goes on with the run that was cut off, and that asks what became of the write.
    async with asyncio.timeout(PATIENCE_S):
        while not (asked := await store.open_interrupts(thread_id="t")):
            await asyncio.sleep(0)
    assert ([row.kind for row in asked], did, queued.done()) == (["outcome_unknown"], ["paid"], False)
    assert (await app.answer("t", {"decision": "skip"})).state.n == 1
    async with asyncio.timeout(PATIENCE_S):
        assert (await queued).state.n == 2
    assert did == ["paid", "paid"], "once by each run"


async def test_the_next_run_is_told_which_calls_of_a_cancelled_one_were_done_cut_off_or_never_begun(
    store: Checkpointer,
) -> None:
    inside = asyncio.Event()

    @tool
    async def pay(to: str) -> str:
        """Pays."""
        if to == "Bob":
            inside.set()
            await asyncio.Event().wait()
        return f"paid {to}"

    calls = [
        ToolCall(id=f"c{n}", name="pay", arguments=f'{{"to": "{to}"}}') for n, to in enumerate(("Ada", "Bob", "Cy"))
    ]
    nodes = {
        "begin": {"use": "node:begin", "next": [{"if": "visits.act == 0 && state.n == 1", "to": "act"}, {"to": "end"}]},
        "act": {"use": "tools", "set": {"messages": "out.messages"}},
    }
    state = {
        "n": {"type": "integer", "default": 0, "x-reducer": "sum"},
        "messages": {"type": "array", "default": [], "x-reducer": "messages"},
    }
    document = {"graphflow": "1", "start": "begin", "state": {"type": "object", "properties": state}, "nodes": nodes}

    def begin(state: Any) -> dict[str, Any]:
        return {"n": 1, "messages": [] if state.n else [AIMessage(content="", tool_calls=tuple(calls))]}

    app = load_graph(document, checkpointer=store, tools=[pay], nodes={"begin": begin})
    await launch(app, "go", "t")
    await inside.wait()
    await app.thread("t").cancel()
    done = await app.run("go on", "t")
    told = {m.tool_call_id: m.content for m in done.state.messages if isinstance(m, ToolMessage)}
    assert list(told) == ["c0", "c1", "c2"]
    assert "this call was run" in told["c0"]
    assert "unknown" in told["c1"]
    assert "was not run" in told["c2"]
