"""Large bytes of messages are stored once, beside the messages, and live as long as a thread reaches them."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from graphflow import Context, MemoryCheckpointer, SqliteCheckpointer, load_graph, part_bytes, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.media.large_bytes import TakenBytes
from graphflow.checkpoints.rows import Keep
from graphflow.content import LARGE_BYTES, FilePart, ImagePart, TextPart, media_of
from graphflow.errors import NodeFailed, StoreError
from graphflow.json_data import encode_json
from graphflow.messages import AIMessage, HumanMessage, Message, ToolMessage
from graphflow.models.options import ChatOptions
from graphflow.models.scripted.model import ScriptedModel
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.tools.result import ToolResult

KEYS = ["test-1:" + "A" * 43 + "="]
PICTURE = random.Random(1).randbytes(100_000)
OTHER = random.Random(2).randbytes(100_000)
NAME = hashlib.sha256(PICTURE).hexdigest()
MESSAGES = {"type": "array", "x-reducer": "messages", "default": []}
STATE = {"type": "object", "properties": {"messages": MESSAGES, "kept": {}, "list": {"type": "array", "x-reducer": "append", "default": []}}}  # fmt: skip
ASKS = {"graphflow": "1", "start": "say", "state": STATE, "nodes": {
    "say": {"use": "node:say", "next": "ask"},
    "ask": {"use": "model", "set": {"messages": "out.messages"}, "next": "end"},
}}  # fmt: skip


class Eyes(ScriptedModel):
    """Answers, and remembers what bytes it was shown."""

    def __init__(self, script: Any = {"turns": [{"text": "A cat."}] * 50}) -> None:  # noqa: B006 - read only
        super().__init__(script)
        self.seen: list[list[bytes]] = []

    async def stream(self, messages: Any, tools: Any = (), options: Any = ChatOptions()) -> Any:
        self.seen.append(
            [part.data for m in messages if type(m.content) is not str for part in m.content if part.type != "text"]
        )
        async for delta in super().stream(messages, tools, options):
            yield delta


@pytest.fixture(params=["plain", "encrypted"])
def kept(request: pytest.FixtureRequest, store: Checkpointer) -> Checkpointer:
    """Each store, plain and encrypted: what is promised of bytes is kept by all of them."""
    return EncryptedCheckpointer(store, KEYS) if request.param == "encrypted" else store


def picture(data: bytes = PICTURE, message_id: str | None = None) -> HumanMessage:
    return HumanMessage(
        content=(TextPart(text="What is it?"), ImagePart(data=data, media_type="image/png")), id=message_id
    )


def says(*messages: Message, **more: Any) -> Callable[[Any], dict[str, Any]]:
    return lambda state: {"messages": list(messages), **more}


def opened(store: Checkpointer, say: Callable[..., Any], model: ScriptedModel | None = None) -> CompiledGraph:
    return load_graph(ASKS, nodes={"say": say}, checkpointer=store, model=model or Eyes())


async def lines_of(store: Checkpointer, thread_id: str) -> list[Mapping[str, Any]]:
    return [line async for line in store.export_thread(thread_id)]


async def weight(store: Checkpointer, thread_id: str) -> int:
    """Bytes of the thread's export, without base64."""
    return len(msgspec.json.encode(await lines_of(store, thread_id))) * 3 // 4


def part_of(state: Any, position: int = 0) -> Any:
    """The medium of the state's messages at this position among all of them."""
    return [part for message in state.values["messages"] for part in media_of(message.content)][position]


async def test_the_state_names_the_bytes_and_the_model_gets_them(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, says(picture()), model)
    result = await app.run({"query": "?"}, "t")
    assert result.status == "completed"
    part = part_of(await app.thread("t").state())
    assert (part.blob, part.media_type, part.size, part.data) == (NAME, "image/png", len(PICTURE), None)
    assert model.seen == [[PICTURE]]


async def test_ten_turns_with_the_same_picture_store_it_once(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, says(picture()), model)
    for _ in range(10):
        await app.run({"query": "?"}, "t")
    assert len(PICTURE) < await weight(kept, "t") < 1.4 * len(PICTURE)
    assert model.seen[-1] == [PICTURE] * 10


async def test_small_bytes_stay_where_they_are(kept: Checkpointer) -> None:
    app = opened(kept, says(picture(b"x" * (LARGE_BYTES - 1))))
    await app.run({"query": "?"}, "t")
    assert part_of(await app.thread("t").state()).data == b"x" * (LARGE_BYTES - 1)


WIRE = {"role": "user", "content": [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"}},
]}  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        WIRE,
        {"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mediaType": "image/png"}]},
        HumanMessage(content=(TextPart(text="?"), ImagePart(url=WIRE["content"][1]["image_url"]["url"]))),  # type: ignore[index]
        AIMessage(content=(TextPart(text="?"), ImagePart(data=PICTURE, media_type="image/png"))),
        ToolMessage(tool_call_id="c", content=(TextPart(text="?"), ImagePart(data=PICTURE, media_type="image/png"))),
    ],
    ids=["OpenAI's form", "our form", "a data URL", "an answer", "a tool's result"],
)  # fmt: skip
async def test_whatever_form_the_bytes_come_in_they_are_stored_once(given: Any) -> None:
    store = MemoryCheckpointer()
    app = opened(store, says(given, list=[picture()], kept={"deep": [(picture(),)]}))
    await app.run({"query": "?"}, "t")
    part = part_of(await app.thread("t").state())
    assert (part.blob, part.media_type, part.url) == (NAME, "image/png", None)
    assert await weight(store, "t") < 1.3 * len(PICTURE)
    values = (await app.thread("t").state()).values
    assert [values["list"][0].content[1].blob, values["kept"]["deep"][0][0].content[1].blob] == [NAME, NAME]


async def test_an_input_that_brings_messages_stores_their_bytes_once(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, _take, model)
    await app.run({"given": [WIRE]}, "t")
    assert await weight(kept, "t") < 1.3 * len(PICTURE)
    assert model.seen == [[PICTURE]]


def _take(state: Any, ctx: Context) -> dict[str, Any]:
    return {"messages": list(ctx.input["given"])}


async def test_no_view_shows_more_than_the_reference(kept: Checkpointer) -> None:
    app = opened(kept, says(picture()))
    await app.run({"query": "?"}, "t")
    thread = app.thread("t")
    views = [encode_json((await thread.state()).values), encode_json([e for e, _ in await thread.events()])]
    views += [
        encode_json((await thread.messages())[0]),
        encode_json((await thread.result()).state if hasattr(await thread.result(), "state") else {}),
    ]
    assert all(len(view) < 20_000 for view in views)
    assert NAME.encode() in views[0]


async def test_a_node_reads_the_bytes_of_a_part(kept: Checkpointer) -> None:
    found: list[bytes | None] = []

    async def say(state: Any, ctx: Context) -> dict[str, Any]:
        for message in state["messages"]:
            if type(message.content) is not str:
                found.append(await part_bytes(ctx, message.content[1]))
        return {"messages": [picture()]}

    app = opened(kept, say)
    await app.run({"query": "?"}, "t")
    await app.run({"query": "?"}, "t")
    assert found == [PICTURE]


async def test_a_model_that_code_opens_gets_the_bytes(kept: Checkpointer) -> None:
    model = Eyes()

    async def say(state: Any, ctx: Context) -> dict[str, Any]:
        if any(media_of(message.content) for message in state["messages"]):
            async for _ in ctx.open_model().stream(state["messages"]):
                pass
            await ctx.call_model(state["messages"])
        return {"messages": [picture()]}

    app = opened(kept, say, model)
    await app.run({"query": "?"}, "t")
    await app.run({"query": "?"}, "t")
    assert model.seen == [[PICTURE], [PICTURE], [PICTURE], [PICTURE] * 2]


# --- the life of bytes ---------------------------------------------------------------------------


async def test_a_fork_shares_the_bytes_and_keeps_them_when_its_source_is_deleted(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, says(picture()), model)
    result = await app.run({"query": "?"}, "t")
    fork = await app.thread("t").fork(result.checkpoint_id)
    await kept.delete_thread("t")
    model.seen.clear()
    await app.run({"query": "?"}, fork.id)
    assert model.seen == [[PICTURE, PICTURE]]
    assert await weight(kept, fork.id) < 1.4 * len(PICTURE)


async def test_a_thread_that_is_rewound_before_the_bytes_and_given_them_again_has_them(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, says(HumanMessage(content="hi")), model)
    before = (await app.run({"query": "?"}, "t")).checkpoint_id or ""
    app = opened(kept, says(picture()), model)
    await app.run({"query": "?"}, "t")
    await app.thread("t").rewind(before)
    model.seen.clear()
    await app.run({"query": "?"}, "t")
    assert model.seen == [[PICTURE]]


async def test_a_prune_leaves_what_the_state_names_and_takes_the_bytes_of_branches_that_go(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, says(picture()), model)
    before = (await app.run({"query": "?"}, "t")).checkpoint_id or ""
    app = opened(kept, says(picture(OTHER)), model)
    await app.run({"query": "?"}, "t")
    await app.thread("t").rewind(before)
    assert await weight(kept, "t") > 2 * len(PICTURE)
    await kept.prune("t", Keep(newest=1))
    assert await weight(kept, "t") < 1.4 * len(PICTURE)
    model.seen.clear()
    app = opened(kept, says(HumanMessage(content="and?")), model)
    await app.run({"query": "?"}, "t")
    assert model.seen == [[PICTURE]]


async def test_the_file_is_small_again_once_the_last_thread_that_reaches_the_bytes_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = SqliteCheckpointer(path)
    app = opened(store, says(picture(PICTURE * 10)))
    result = await app.run({"query": "?"}, "t")
    fork = await app.thread("t").fork(result.checkpoint_id)
    for thread_id, left in (("t", True), (fork.id, False)):
        await store.delete_thread(thread_id)
        await store.compact()
        assert (path.stat().st_size > 10 * len(PICTURE)) is left
    await store.close()


async def test_an_edited_message_keeps_the_bytes_of_its_input(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, _take, model)
    await app.run({"query": "What is it?", "given": [WIRE]}, "t")
    await app.run({"query": "And now?", "given": []}, "t")
    messages, _ = await app.thread("t").messages()
    await app.edit_message("t", messages[-1].message_id, "What is that?")
    assert model.seen == [[PICTURE], [PICTURE], [PICTURE]]


async def test_an_edit_that_brings_a_message_back_brings_its_bytes_back(kept: Checkpointer) -> None:
    model = Eyes()
    app = opened(kept, says(HumanMessage(content="hi")), model)
    before = (await app.run({"query": "?"}, "t")).checkpoint_id or ""
    app = opened(kept, says(picture()), model)
    await app.run({"query": "?"}, "t")
    state = await app.thread("t").state()
    (said,) = [message for message in state.values["messages"] if media_of(message.content)]
    shown = msgspec.json.decode(encode_json(said))
    for given in (said, shown):
        await app.thread("t").edit({"messages": [given]}, checkpoint_id=before)
        part = part_of(await app.thread("t").state())
        assert await app.thread("t").part_bytes(part) == PICTURE


async def test_bytes_that_an_input_named_are_known_to_the_next_process(tmp_path: Path) -> None:
    """The process ends between the record of the input and that of the node which makes messages of it."""
    path, model = tmp_path / "t.db", Eyes()

    def fails(state: Any, ctx: Context) -> None:
        raise NodeFailed("not yet", code="connection")

    first = SqliteCheckpointer(path)
    await opened(first, fails).run({"given": [WIRE]}, "t")
    await first.close()
    second = SqliteCheckpointer(path)
    await opened(second, _take, model).resume("t")
    assert model.seen == [[PICTURE]]
    await second.close()


# --- exports -------------------------------------------------------------------------------------


async def test_an_export_brings_the_bytes_along_to_any_store(kept: Checkpointer) -> None:
    app = opened(kept, says(picture()))
    await app.run({"query": "?"}, "t")
    lines = await lines_of(kept, "t")
    store, model = MemoryCheckpointer(), Eyes()
    await store.import_thread(_stream(lines))
    await opened(store, says(), model).run({"query": "?"}, "t")
    assert model.seen == [[PICTURE]]
    await kept.import_thread(_stream(lines), thread_id="copy")
    model = Eyes()
    await opened(kept, says(), model).run({"query": "?"}, "copy")
    assert model.seen == [[PICTURE]]


async def _stream(lines: list[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    for line in lines:
        yield line


def _entries(lines: list[Any]) -> list[dict[str, Any]]:
    return [item for line in lines if line["kind"] == "record" for item in line["row"]["items"]]


async def test_an_import_refuses_bytes_that_are_not_those_of_their_hash_and_references_to_none() -> None:
    store = MemoryCheckpointer()
    await opened(store, says(picture())).run({"query": "?"}, "t")
    whole = msgspec.json.encode(await lines_of(store, "t"))
    lines = msgspec.json.decode(whole)
    (entry,) = [item for item in _entries(lines) if item["channel"] == "bytes"]
    data = bytearray(base64.b64decode(entry["data"]))
    data[-1] ^= 1
    entry["data"] = base64.b64encode(data).decode()
    with pytest.raises(StoreError, match="their hash is another"):
        await MemoryCheckpointer().import_thread(_stream(lines))
    lines = msgspec.json.decode(whole)
    for line in lines:
        if line["kind"] == "record":
            line["row"]["items"] = [item for item in line["row"]["items"] if item["channel"] != "bytes"]
    with pytest.raises(StoreError, match="entry 0 of 'bytes' .* is missing"):
        await MemoryCheckpointer().import_thread(_stream(lines))


# --- whose the bytes are -------------------------------------------------------------------------


async def test_a_hash_alone_opens_nothing_of_another_thread(kept: Checkpointer) -> None:
    app = opened(kept, says(picture()))
    await app.run({"query": "?"}, "t")
    stored = part_of(await app.thread("t").state())
    model, found = Eyes(), list[Any]()

    async def say(state: Any, ctx: Context) -> dict[str, Any]:
        found.append(await part_bytes(ctx, stored))
        wire = {"role": "user", "content": [msgspec.to_builtins(stored)]}
        return {"messages": [HumanMessage(content=(TextPart(text="?"), stored)), wire]}

    mine = opened(kept, say, model)
    await mine.run({"query": "?"}, "mine")
    assert found == [None]
    assert model.seen == [[]]
    assert part_of(await mine.thread("mine").state()).stored is None
    # Bytes of one's own under that hash are one's own.
    mine = opened(kept, says(picture()), model)
    await mine.run({"query": "?"}, "mine")
    assert part_of(await mine.thread("mine").state(), 2).stored not in (None, stored.stored)
    assert PICTURE in model.seen[-1]


async def test_an_encrypted_store_does_not_tell_that_two_threads_hold_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = EncryptedCheckpointer(SqliteCheckpointer(path), KEYS)
    app = opened(store, says(picture()))
    for thread_id in ("a", "b"):
        await app.run({"query": "?"}, thread_id)
    await store.rotate_keys()
    assert part_of(await app.thread("a").state()).stored != part_of(await app.thread("b").state()).stored
    await store.close()
    data = path.read_bytes()
    for words in (PICTURE[:32], PICTURE[500:532], NAME.encode(), bytes.fromhex(NAME)):
        assert words not in data


async def test_a_key_rotation_holds_few_large_bytes_at_once(
    open_store: Callable[[], Checkpointer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphflow.checkpoints.sql.rewriting.PAGE_BYTES", 250_000)
    store = open_store()
    parts = [ImagePart(data=random.Random(n).randbytes(100_000)) for n in range(7)]
    await opened(store, says(*[HumanMessage(content=(part,)) for part in parts])).run({"query": "?"}, "t")
    sizes = list[int]()
    after: str | None = None

    def change(place: Any, blob: bytes) -> bytes:
        sizes[-1] += len(blob)
        return blob

    while after is not None or not sizes:
        sizes.append(0)
        after = await store.rewrite(change, after=after)
    assert max(sizes) <= 250_000 and sum(sizes) > 700_000


# --- what was stored before ----------------------------------------------------------------------


async def test_bytes_that_stand_in_old_messages_are_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    store, model = MemoryCheckpointer(), Eyes()
    with monkeypatch.context() as old:
        old.setattr("graphflow.checkpoints.media.large_bytes.LARGE_BYTES", 1 << 40)
        await opened(store, says(picture())).run({"query": "?"}, "t")
    app = opened(store, says(picture()), model)
    await app.run({"query": "?"}, "t")
    assert model.seen == [[PICTURE, PICTURE]]
    state = await app.thread("t").state()
    assert (part_of(state).data, part_of(state, 1).blob) == (PICTURE, NAME)


async def test_a_file_part_keeps_its_name(kept: Checkpointer) -> None:
    part = FilePart(data=PICTURE, media_type="application/pdf", name="a.pdf")
    app = opened(kept, says(HumanMessage(content=(TextPart(text="?"), part))))
    await app.run({"query": "?"}, "t")
    found = part_of(await app.thread("t").state())
    assert (found.name, found.media_type, found.size, found.blob) == ("a.pdf", "application/pdf", len(PICTURE), NAME)


# --- what tools give -----------------------------------------------------------------------------

CALLS = {"graphflow": "1", "start": "ask", "state": {"type": "object", "properties": {"messages": MESSAGES}}, "tools": ["look"], "budget": {"maxSteps": 9}, "nodes": {
    "ask": {"use": "model", "set": {"messages": "out.messages"}, "next": [{"if": "size(out.toolCalls) > 0", "to": "look"}, {"to": "end"}]},
    "look": {"use": "tools", "set": {"messages": "out.messages"}, "next": "ask"},
}}  # fmt: skip
SHOT = ImagePart(data=PICTURE, media_type="image/png", name="shot.png")


LOOKS = {"turns": [{"tool_calls": [{"name": "look", "arguments": {}}]}, {"text": "A cat."}]}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (SHOT, "[image: shot.png]"),
        (["Here:", SHOT, TextPart(text="as it was")], "Here:\nas it was"),
        (ToolResult(text="Here.", parts=(SHOT,)), "Here."),
        (ToolResult(data={"n": 1}, parts=(SHOT,)), '{"n":1}'),
    ],
    ids=["a part", "a list", "a result", "data"],
)
@pytest.mark.parametrize("effects", ["read", "write"])
async def test_the_model_sees_what_a_tool_shows_and_the_thread_stores_it_once(
    effects: Literal["read", "write"], given: Any, text: str
) -> None:
    store, model = MemoryCheckpointer(), Eyes(LOOKS)
    look = tool(name="look", description="Looks.", effects=effects)(lambda: given)
    app = load_graph(CALLS, tools=[look], checkpointer=store, model=model)
    await app.run({"query": "?"}, "t")
    assert model.seen == [[], [PICTURE]]
    state = await app.thread("t").state()
    (message,) = [message for message in state.values["messages"] if isinstance(message, ToolMessage)]
    assert (message.text, part_of(state).blob, part_of(state).name) == (text, NAME, "shot.png")
    assert await weight(store, "t") < 1.3 * len(PICTURE)


async def test_a_tool_that_gives_a_wrong_part_is_told_so() -> None:
    store, model = MemoryCheckpointer(), Eyes(LOOKS)
    look = tool(name="look", description="Looks.", effects="read")(lambda: ImagePart(data="text"))  # type: ignore[arg-type]
    app = load_graph(CALLS, tools=[look], checkpointer=store, model=model)
    await app.run({"query": "?"}, "t")
    (message,) = [m for m in (await app.thread("t").state()).values["messages"] if isinstance(m, ToolMessage)]
    assert message.error and "the data of ImagePart must be bytes" in message.text


def test_nothing_is_looked_for_in_the_store_where_a_value_has_no_media() -> None:
    """What a thread has stored is found by a walk through all of its frames: tens of thousands, if it has such a fan."""

    def never() -> dict[str, int]:
        raise AssertionError("looked for")

    answer = {"items": [{"role": "user", "content": [{"type": "text", "text": "x" * 100_000}]}] * 3}
    taken = TakenBytes(never)
    assert taken.value(answer) is answer and not taken.items
