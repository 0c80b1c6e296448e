"""`Read`: numbered lines, pages, encodings, images, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphflow import Application
from graphflow.settings import load_settings
from graphflow.testing import ScriptedModel, app_client
from graphflow.testing.tool_envelope_conformance import assert_envelope
from tests.tools.coding_folder import CodingFolder, code_of

AGENT = {"mode": "REACT", "providerKey": "auto", "tools": ["Read"], "react": {"systemPrompt": "Work."}}
SCRIPT = [
    {"tool_calls": [{"name": "Read", "arguments": {"path": "notes.txt"}}]},
    {"text": "It says hello."},
]


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    return CodingFolder(tmp_path)


async def test_an_agent_that_lists_read_is_shown_a_file_of_its_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "coder.json").write_text(json.dumps(AGENT), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("hello\n", encoding="utf-8")
    model = ScriptedModel(SCRIPT)
    app = Application(load_settings(tmp_path, environ={}), models=lambda *_: model)
    async with app_client(app) as client:
        await client.post("/api/query", json={"agentKey": "coder", "message": "What does it say?"})
    seen = json.loads(model.requests[-1].messages[-1].text)
    assert_envelope(seen, tool="Read")
    assert seen["data"] == {"content": "   1 | hello"}


async def test_lines_have_the_numbers_of_grep_whatever_else_ends_lines_elsewhere(folder: CodingFolder):
    folder.put("a.txt", "one\x0btwo\u2028three\r\nfour\x85five\rsix\nlast")
    read = await folder.call("Read", {"path": "a.txt"})
    assert read["data"]["content"].split("\n") == [
        "   1 | one\x0btwo\u2028three",
        "   2 | four\x85five\rsix",
        "   3 | last",
    ]
    assert (read["stats"]["total_lines"], read["stats"]["lines_read"], read["status"]) == (3, 3, "success")


async def test_a_page_says_where_the_next_one_begins(folder: CodingFolder):
    folder.put("a.txt", "".join(f"line {n}\n" for n in range(1, 1001)))
    first = await folder.call("Read", {"path": "a.txt"})
    assert (first["status"], first["data"]["truncated"], first["stats"]["lines_read"]) == ("partial", True, 500)
    assert "start_line=501" in first["text"]
    last = await folder.call("Read", {"path": "a.txt", "start_line": 1000, "limit": 5})
    assert (last["status"], last["data"]) == ("success", {"content": "1000 | line 1000"})


async def test_an_empty_file_has_no_lines_and_no_second_one(folder: CodingFolder):
    folder.put("a.txt", "")
    empty = await folder.call("Read", {"path": "a.txt"})
    assert (empty["status"], empty["data"], empty["stats"]["lines_read"]) == ("success", {"content": ""}, 0)
    assert code_of(await folder.call("Read", {"path": "a.txt", "start_line": 2})) == "INVALID_PARAM"


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"limit": -1}, {"limit": 10**9}, {"limit": True}, {"limit": "5"}, {"start_line": 0}, {"start_line": 3},
     {"line": 1}, {"limit": None}, {"limit": 1.5}],
)  # fmt: skip
async def test_a_wrong_page_is_refused_and_the_valid_range_is_named(folder: CodingFolder, wrong: dict[str, object]):
    folder.put("a.txt", "one\ntwo\n")
    refused = await folder.call("Read", {"path": "a.txt", **wrong})
    assert code_of(refused) == "INVALID_PARAM"
    assert refused["context"]["params_input"] == {"path": "a.txt", **wrong}
    assert next(iter(wrong)) in refused["error"]["message"]


@pytest.mark.parametrize(
    "data",
    [
        b"a\0b",
        b"a" * 9000 + b"\0",
        b"\x7fELF\x02\x01\x01\0",
        b"SQLite format 3\0",
        b"\x1f\x8b\x08\0\0\0",
        b"PK\3\4\n\0",
    ],
)
async def test_what_has_a_nul_is_binary_wherever_it_is(folder: CodingFolder, data: bytes):
    folder.put("a.txt", data)
    refused = await folder.call("Read", {"path": "a.txt"})
    assert (code_of(refused), refused["data"]) == ("BINARY_FILE", {})


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        ("a.txt", b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        ("a", b"GIF89a\x01\0\x01\0", "image/gif"),
        ("a.webp", b"RIFF\x1a\0\0\0WEBPVP8L", "image/webp"),
    ],
)
async def test_an_image_is_shown_as_an_image_by_its_first_bytes(
    folder: CodingFolder, name: str, data: bytes, kind: str
):
    folder.put(name, data)
    shown = await folder.call("Read", {"path": name})
    assert (shown["status"], shown["data"]) == ("success", {"content": "", "media_type": kind})
    message = (await folder.graph().thread("t").state()).values["messages"][-1]
    assert [(part.type, getattr(part, "data", None)) for part in message.content][1:] == [("image", data)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
async def test_a_byte_order_mark_tells_the_encoding(folder: CodingFolder, encoding: str):
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    folder.put("a.txt", mark + "grüß\n".encode(encoding))
    read = await folder.call("Read", {"path": "a.txt"})
    assert (read["status"], read["data"]) == ("success", {"content": "   1 | grüß"})
    assert read["stats"]["encoding"].startswith(encoding[:6])


async def test_a_file_of_no_known_encoding_is_readable_and_said_to_be_not_editable(folder: CodingFolder):
    folder.put("a.txt", "文件\n".encode("gbk"))
    read = await folder.call("Read", {"path": "a.txt"})
    assert (read["status"], read["data"]["fallback_used"]) == ("partial", True)
    assert "not editable as text" in read["text"]


async def test_a_long_line_is_cut_between_characters_and_says_how_long_it_is(folder: CodingFolder):
    folder.put("a.txt", "ü" * 3000 + "\nnext\n")
    read = await folder.call("Read", {"path": "a.txt"})
    assert (read["status"], read["data"]["truncated"]) == ("partial", True)
    assert read["data"]["content"] == f"   1 | {'ü' * 2000} … [the line has 3000 characters]\n   2 | next"


async def test_a_file_that_is_too_large_is_refused_at_once_and_its_size_named(folder: CodingFolder):
    with folder.put("a.txt", "").open("r+b") as sparse:
        sparse.truncate(10 * 1024**3)
    refused = await folder.call("Read", {"path": "a.txt", "limit": 10})
    assert (code_of(refused), "10,737,418,240" in refused["error"]["message"]) == ("INVALID_PARAM", True)
