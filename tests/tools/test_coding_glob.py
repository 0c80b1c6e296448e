"""`Glob`: which files fit a pattern, which are left out, and where it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.coding_folder import CodingFolder, code_of


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    folder = CodingFolder(tmp_path)
    for name in (
        "a.py",
        "src/b.py",
        "src/deep/c.py",
        "src/deep/d.ts",
        "src/e.tsx",
        ".hidden/f.py",
        "node_modules/g.py",
    ):
        folder.put(name, "")
    return folder


async def found(folder: CodingFolder, pattern: str, **arguments: object) -> list[str]:
    envelope = await folder.call("Glob", {"pattern": pattern, **arguments})
    assert envelope["status"] != "error", envelope
    paths: list[str] = envelope["data"]["paths"]
    return paths


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", ["a.py"]),
        ("./*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/**", ["src/b.py", "src/e.tsx", "src/deep/c.py", "src/deep/d.ts"]),
        ("src/**/*.{ts,tsx}", ["src/e.tsx", "src/deep/d.ts"]),
        ("src/*/?.py", ["src/deep/c.py"]),
        ("**/deep/*", ["src/deep/c.py", "src/deep/d.ts"]),
        ("[ab].py", ["a.py"]),
        ("[!a].py", []),
        ("src", []),
        ("SRC/*.py", []),
    ],
)
async def test_a_pattern_finds_the_files_that_it_fits(folder: CodingFolder, pattern: str, paths: list[str]):
    assert await found(folder, pattern) == paths


async def test_a_pattern_begins_in_the_folder_that_is_searched(folder: CodingFolder):
    assert await found(folder, "*.py", path="src") == ["src/b.py"]
    assert await found(folder, "deep/*.py", path=str(folder.root / "src")) == ["src/deep/c.py"]
    envelope = await folder.call("Glob", {"pattern": "./././b.py", "path": "src"})
    assert envelope["context"] | {"path_resolved": "src", "pattern_normalized": "b.py"} == envelope["context"]
    assert envelope["stats"]["matched"] == 1


async def test_hidden_and_ignored_files_are_found_when_asked_for(folder: CodingFolder):
    folder.put(".gitignore", "deep/\n")
    assert await found(folder, "**/*.py") == ["a.py", "src/b.py"]
    assert await found(folder, "**/*.py", include_hidden=True) == ["a.py", ".hidden/f.py", "src/b.py"]
    assert await found(folder, "**/*.py", include_ignored=True) == [
        "a.py",
        "node_modules/g.py",
        "src/b.py",
        "src/deep/c.py",
    ]
    # A folder that is named is searched.
    assert await found(folder, "*.py", path="src/deep") == ["src/deep/c.py"]


async def test_links_are_neither_listed_nor_followed(folder: CodingFolder):
    (folder.root / "link.py").symlink_to("a.py")
    (folder.root / "loop").symlink_to(".")
    (folder.root / "out").symlink_to(folder.out)
    assert await found(folder, "**/*.py") == ["a.py", "src/b.py", "src/deep/c.py"]
    assert await found(folder, "**/secret") == []


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("../**", "ACCESS_DENIED"), ("/etc/*", "ACCESS_DENIED"), ("**/../..", "ACCESS_DENIED"), ("a/../b", "ACCESS_DENIED"),
        ("{a,..}/x", "ACCESS_DENIED"), ("{/etc,x}/*", "ACCESS_DENIED"), ("{a,b}" * 30, "INVALID_PARAM"),
        ("{" * 1_000_000, "INVALID_PARAM"), ("[", "INVALID_PARAM"), ("", "INVALID_PARAM"), ("   ", "INVALID_PARAM"),
        ("a\0b", "INVALID_PARAM"), ("x\\", "INVALID_PARAM"), (5, "INVALID_PARAM"),
    ],
)  # fmt: skip
async def test_a_pattern_that_leads_out_or_is_none_is_refused(folder: CodingFolder, pattern: object, code: str):
    assert code_of(await folder.call("Glob", {"pattern": pattern})) == code


async def test_more_than_the_limit_is_said(folder: CodingFolder):
    cut = await folder.call("Glob", {"pattern": "**/*.py", "limit": 2})
    assert (cut["status"], cut["data"]) == ("partial", {"paths": ["a.py", "src/b.py"], "truncated": True})
    whole = await folder.call("Glob", {"pattern": "**/*.py", "limit": 3})
    assert (whole["status"], len(whole["data"]["paths"])) == ("success", 3)


async def test_a_search_that_reaches_its_limits_says_which(folder: CodingFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphflow.tools.coding.glob.MAX_VISITED", 6)
    some = await folder.call("Glob", {"pattern": "*.py"})
    assert (some["status"], some["data"]["aborted_reason"], some["data"]["paths"]) == (
        "partial",
        "count_limit",
        ["a.py"],
    )
    assert code_of(await folder.call("Glob", {"pattern": "*.none"})) == "INTERNAL_ERROR"
    monkeypatch.setattr("graphflow.tools.coding.glob.MAX_S", -1)
    assert code_of(await folder.call("Glob", {"pattern": "*.py"})) == "TIMEOUT"


async def test_two_calls_give_the_same_bytes(folder: CodingFolder):
    first, again = [await folder.call("Glob", {"pattern": "**"}) for _ in range(2)]
    assert (first["data"], first["text"]) == (again["data"], again["text"])
