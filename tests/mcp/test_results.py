"""What servers give back: texts, data, images, files, progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphflow.content import FilePart, ImagePart, TextPart
from graphflow.messages import ToolMessage
from graphflow.tools.mcp.results import result_of
from tests.mcp.folders import called, mcp_folder, opened, own_server, react


async def events_of(tmp_path: Path, tool: str) -> tuple[list[Any], ToolMessage]:
    agent = react("mcp:plain", approval="DISABLED")
    async with opened(mcp_folder(tmp_path, own_server("plain", str(tmp_path)), asker=agent)) as app:
        graph = await app.ready_graph("asker")
        events = [event async for event in graph.stream(called(f"plain__{tool}", text="x"), "t1")]
        values = (await graph.thread("t1").state()).values
    return events, next(m for m in values["messages"] if isinstance(m, ToolMessage))


async def test_images_and_resources_are_parts_and_links_are_sources(tmp_path: Path) -> None:
    events, message = await events_of(tmp_path, "mixed")
    assert isinstance(message.content, tuple)
    text, image, file = message.content
    assert isinstance(text, TextPart) and isinstance(image, ImagePart) and isinstance(file, FilePart)
    assert (image.media_type, file.media_type, file.name) == ("image/png", "application/pdf", "scan.pdf")
    assert [e.url for e in events if e.type == "source.snapshot"] == ["https://example.com/a"]


async def test_progress_of_a_server_is_progress_of_the_tool(tmp_path: Path) -> None:
    events, _ = await events_of(tmp_path, "steps")
    progress = [event.data for event in events if event.type == "tool.progress"]
    assert progress == [{"progress": n, "total": 2, "message": f"step {n}"} for n in (1, 2)]


async def test_a_server_that_asks_for_a_model_is_refused_clearly(tmp_path: Path) -> None:
    _, message = await events_of(tmp_path, "sample")
    assert "Sampling not supported" in message.text


def test_a_result_keeps_its_texts_data_and_what_is_not_known_in_it() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "resource", "resource": {"uri": "x:y", "text": "b"}},
        {"type": "hologram"},
        {"type": "image", "data": "not base64!", "mimeType": "image/png"},
    ]
    result = result_of({"content": blocks, "structuredContent": {"n": 1}})
    assert result.data == {"n": 1}
    assert result.text.splitlines()[:2] == ["a", "b"]
    assert "'hologram'" in result.text and "no base64" in result.text


def test_an_error_of_a_server_is_an_error_result_with_its_text() -> None:
    result = result_of({"content": [{"type": "text", "text": "no such city"}], "isError": True})
    assert result.error is not None
    assert (result.error.code, result.text) == ("EXECUTION_ERROR", "no such city")
