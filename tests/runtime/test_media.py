"""What a model gets of references, images and files: parts where it takes them, else text and a warning, never nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphflow import MemoryCheckpointer, load_graph
from graphflow.content import AudioPart, FilePart, ImagePart, TextPart
from graphflow.errors import GraphflowError
from graphflow.events import NodeProgress
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.openai.request import wire_messages
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.replay.replay import Replay
from graphflow.models.tokens import estimate_message_tokens
from graphflow.testing import collect
from tests.models.raw_server import DONE, RawServer, delta, raw_server, stream

SEES, READS = ("openai", "gpt-4.1-mini"), ("zhipu", "glm-5.2")
"""A model that takes images and files, and one that takes text only, by the model data."""
PICTURE = {"type": "image", "name": "cat.png", "url": "https://x.test/cat.png"}
DOCUMENT = {"graphflow": "1", "start": "a", "nodes": {"a": {"use": "model", "next": "end"}},
            "state": {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}}  # fmt: skip


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server(stream(delta(content="A cat."), delta("stop"), DONE)) as server:
        yield server


async def ask(server: RawServer, model: tuple[str, str], *references: Any) -> tuple[Any, list[Any], Any]:
    """The content that the model got of the user's message, the warnings, and the run's error."""
    key, name = model
    opened = OpenAICompatibleModel(Provider(key=key, profile=Profile(), base_url=server.url), name)
    app = load_graph(DOCUMENT, checkpointer=MemoryCheckpointer(), model=opened)
    events = await collect(app.stream({"query": "What is it?", "references": list(references)}, "t"))
    await opened.aclose()
    warnings = [event.data["warning"] for event in events if isinstance(event, NodeProgress)]
    error = getattr(events[-1], "error", None)
    return (server.requests[-1].json["messages"][-1]["content"] if server.requests else None), warnings, error


async def test_a_reference_of_a_type_that_the_model_takes_is_a_part(server: RawServer) -> None:
    content, warnings, _ = await ask(server, SEES, PICTURE)
    assert content == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://x.test/cat.png"}},
    ]
    assert warnings == []


async def test_a_reference_that_the_model_does_not_take_is_listed_and_a_warning_says_so(server: RawServer) -> None:
    content, warnings, _ = await ask(server, READS, PICTURE)
    assert content == "What is it?\n\nReferences:\n- cat.png, image, https://x.test/cat.png"
    (warning,) = warnings
    assert (warning["code"], warning["name"], warning["model"]) == ("part_not_shown", "cat.png", "glm-5.2")
    assert "takes no image parts; it is listed as text" in warning["message"]


async def test_a_reference_that_must_be_a_part_fails_the_run_where_it_can_not_be_one(server: RawServer) -> None:
    _, _, error = await ask(server, READS, PICTURE | {"as": "part"})
    assert error["code"] == "validation" and "'cat.png' has `as: part`" in error["message"]
    assert not server.requests


async def test_a_model_of_which_nothing_is_known_gets_a_part_only_where_that_is_wanted(server: RawServer) -> None:
    content, warnings, _ = await ask(server, ("mine", "m"), PICTURE)
    assert content.endswith("- cat.png, image, https://x.test/cat.png") and len(warnings) == 1
    content, warnings, _ = await ask(server, ("mine", "m"), PICTURE | {"as": "part"})
    assert content[1]["type"] == "image_url" and warnings == []


async def test_what_is_no_medium_is_listed_without_a_warning(server: RawServer) -> None:
    content, warnings, _ = await ask(server, SEES, {"id": "page-1", "name": "Notes"}, "a page")
    assert (content, warnings) == ("What is it?\n\nReferences:\n- page-1, Notes\n- a page", [])


async def test_a_document_at_a_url_goes_to_no_provider_that_takes_bytes_only(server: RawServer) -> None:
    paper = {"type": "file", "name": "a.pdf", "mimeType": "application/pdf", "url": "https://x.test/a.pdf"}
    content, warnings, _ = await ask(server, SEES, paper)
    assert "- a.pdf, file, application/pdf, https://x.test/a.pdf" in content
    assert "takes the bytes of file parts and no URL: upload it" in warnings[0]["message"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "File:///etc/passwd", "gs://bucket/cat.png", "cat.png"])
async def test_a_url_that_is_not_of_the_web_goes_to_no_provider(server: RawServer, url: str) -> None:
    content, warnings, _ = await ask(server, SEES, PICTURE | {"url": url})
    assert content == f"What is it?\n\nReferences:\n- cat.png, image, {url}"
    assert "only https:, http: and data: URLs are sent; it is listed as text" in warnings[0]["message"]
    server.requests.clear()
    _, _, error = await ask(server, SEES, PICTURE | {"url": url, "as": "part"})
    assert error["code"] == "validation" and not server.requests


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(content=(ImagePart(url="file:///etc/passwd"),)),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]},
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "file:///etc/passwd"}}]},
    ],
)
async def test_a_message_with_a_url_that_is_not_of_the_web_is_refused(server: RawServer, message: Any) -> None:
    opened = OpenAICompatibleModel(Provider(key="openai", profile=Profile(), base_url=server.url), "gpt-4.1-mini")
    app = load_graph(DOCUMENT, checkpointer=MemoryCheckpointer(), model=opened)
    await collect(app.stream({"query": "hi"}, "t"))
    await opened.aclose()
    with pytest.raises(GraphflowError, match="'file:///etc/passwd', and only https:, http: and data: URLs are sent"):
        await app.thread("t").edit({"messages": [message]})


# --- parts of messages ---------------------------------------------------------------------------


def test_images_of_a_tool_result_follow_the_last_result_as_a_user_message() -> None:
    """Chat completions take texts in a tool result, and nothing else."""
    image = ImagePart(data=b"\x89PNG", media_type="image/png")
    calls = (ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))
    history: list[Message] = [
        HumanMessage(content="look"),
        AIMessage(tool_calls=calls),
        ToolMessage(tool_call_id="a", content=(TextPart(text="seen"), image)),
        ToolMessage(tool_call_id="b", content="nothing"),
        AIMessage(content=(TextPart(text="It is "), image, TextPart(text="a cat."))),
    ]
    sent = wire_messages(Replay("openai", "gpt-4.1"), history)
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert (sent[2]["content"], sent[5]["content"]) == ("seen", "It is a cat.")
    assert sent[4]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def test_token_counts_know_media() -> None:
    text = estimate_message_tokens([HumanMessage(content="look")])
    for part, least in (
        (ImagePart(url="https://x"), 700),
        (AudioPart(data=b"x" * 100_000), 900),
        (FilePart(url="x"), 700),
    ):
        assert estimate_message_tokens([HumanMessage(content=(TextPart(text="look"), part))]) > text + least


async def test_a_reference_that_must_be_a_part_is_known_by_its_ending(server: RawServer) -> None:
    url = "https://x.test/cat.png?size=2"
    content, _, _ = await ask(server, SEES, {"url": url, "as": "part"})
    assert content[1] == {"type": "image_url", "image_url": {"url": url}}


async def test_a_reference_of_no_known_type_that_must_be_a_part_is_an_error_that_says_what_is_missing(
    server: RawServer,
) -> None:
    _, _, error = await ask(server, SEES, {"url": "https://x.test/cat", "as": "part"})
    assert "give it a url and its mimeType" in str(error)
    assert not server.requests
