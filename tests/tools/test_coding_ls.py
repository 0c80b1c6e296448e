"""`LS`: order, pages, what is left out, and folders that change or are huge."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from graphflow.tools.workspace.system import System
from tests.tools.coding_folder import CodingFolder, code_of


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    return CodingFolder(tmp_path)


async def listed(folder: CodingFolder, **arguments: object) -> list[str]:
    envelope = await folder.call("LS", arguments)
    assert envelope["status"] != "error", envelope
    marks = {"dir": "/", "link": "@", "file": ""}
    return [entry["path"] + marks[entry["type"]] for entry in envelope["data"]["entries"]]


async def test_folders_come_first_and_then_names_whatever_their_case(folder: CodingFolder):
    for name in ("b.txt", "A.txt", "a.txt", "Z/x", "y/x", ".env.example", ".hidden", "node_modules/x", ".git/config"):
        folder.put(name, "")
    (folder.root / "link").symlink_to("nowhere")
    assert await listed(folder) == ["y/", "Z/", "A.txt", "a.txt", "b.txt", "link@"]
    everything = ["y/", "Z/", ".git/", "node_modules/", ".env.example", ".hidden", "A.txt", "a.txt", "b.txt", "link@"]
    assert sorted(await listed(folder, include_hidden=True)) == sorted(everything)
    assert await listed(folder, path="Z") == ["Z/x"]


async def test_the_files_of_the_server_are_in_no_listing(folder: CodingFolder):
    for name in (".env", ".env.local", "graphflow.toml", "GraphFlow.toml.bak", "a.txt"):
        folder.put(name, "KEY=1")
    (folder.root / "hard").hardlink_to(folder.root / "a.txt")
    assert await listed(folder, include_hidden=True) == ["a.txt", "GraphFlow.toml.bak", "hard"]


async def test_patterns_leave_names_out(folder: CodingFolder):
    for name in ("a.log", "b.txt", "logs/x", "c.tmp"):
        folder.put(name, "")
    assert await listed(folder, ignore=["*.{log,tmp}", "logs"]) == ["b.txt"]
    assert code_of(await folder.call("LS", {"ignore": ["["]})) == "INVALID_PARAM"


async def test_pages_follow_one_another_and_one_past_the_end_is_empty(folder: CodingFolder):
    for number in range(7):
        folder.put(f"f{number}" if number % 2 else f"d{number}/x", "")
    pages = [await folder.call("LS", {"offset": offset, "limit": 3}) for offset in (0, 3, 6, 7, 10**9)]
    paths = [[entry["path"] for entry in page["data"]["entries"]] for page in pages]
    assert paths == [["d0", "d2", "d4"], ["d6", "f1", "f3"], ["f5"], [], []]
    assert [page["status"] for page in pages] == ["partial", "partial", "success", "success", "success"]
    assert "offset=3" in pages[0]["text"]
    assert pages[0]["stats"] == pages[0]["stats"] | {
        "total_entries": 7,
        "dirs": 4,
        "files": 3,
        "links": 0,
        "returned": 3,
    }


async def test_a_huge_folder_is_listed_in_the_same_order_each_time(
    folder: CodingFolder, monkeypatch: pytest.MonkeyPatch
):
    for number in range(3_000):
        (folder.root / f"{number:05}").touch()
    first, again = [await folder.call("LS", {"limit": 200, "offset": 1_900}) for _ in range(2)]
    assert first["data"] == again["data"]
    assert (first["status"], first["stats"]["total_entries"]) == ("partial", 3_000)
    assert first["data"]["entries"][0] == {"path": "01900", "type": "file"}
    monkeypatch.setattr("graphflow.tools.coding.ls.MAX_LISTED", 2_000)
    stopped = await folder.call("LS", {})
    assert (stopped["status"], stopped["stats"]["total_entries"]) == ("partial", 2_000)
    assert "stopped after 2,000 entries" in stopped["text"]


async def test_an_entry_that_disappears_and_one_of_an_odd_kind_harm_nothing(tmp_path: Path):
    class Vanishing(System):
        def entries(self, folder: int):
            (root / "gone").unlink(missing_ok=True)
            return super().entries(folder)

    folder = CodingFolder(tmp_path, system=Vanishing())
    root = folder.root
    folder.put("gone", "")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(str(root / "plug"))
    (root / "link").symlink_to("broken")
    (root / "caf\udce9\n").mkdir()
    assert await listed(folder) == ["caf\\xe9\n/", "link@", "pipe", "plug"]


async def test_a_file_is_no_folder(folder: CodingFolder):
    folder.put("a.txt", "")
    assert code_of(await folder.call("LS", {"path": "a.txt"})) == "INVALID_PARAM"
    assert code_of(await folder.call("LS", {"path": "a.txt/"})) == "INVALID_PARAM"


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"limit": 201}, {"limit": "5"}, {"limit": True}, {"offset": -1}, {"ignore": "*.log"}, {"ignore": [1]},
     {"include_hidden": 1}, {"depth": 2}],
)  # fmt: skip
async def test_wrong_arguments_are_refused(folder: CodingFolder, wrong: dict[str, object]):
    refused = await folder.call("LS", wrong)
    assert (code_of(refused), refused["context"]["params_input"]) == ("INVALID_PARAM", wrong)
