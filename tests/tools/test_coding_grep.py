"""`Grep`: by ripgrep and by what stands in for it, which give the same answers."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphflow.tools.coding.grep import grep_tool
from graphflow.tools.search import ripgrep
from graphflow.tools.search.ripgrep import Ripgrep, find_ripgrep
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.sandbox import SYSTEM_FOLDERS, Sandboxes, reading_only
from tests.needs import need
from tests.patience import PATIENCE_S
from tests.tools.coding_folder import CodingFolder, code_of

NO_LANDLOCK = Sandboxes(bubblewrap=lambda: None, landlock=lambda: False)
ENGINES: dict[str, Callable[[], Ripgrep]] = {
    "wheel": Ripgrep,
    "system": lambda: Ripgrep(program=lambda: "/usr/bin/rg"),
    "not confined": lambda: Ripgrep(machine=NO_LANDLOCK),
    "python": lambda: Ripgrep(program=lambda: None),
}


class Searched(CodingFolder):
    """A folder whose files are the newer the later they are put, searched by one engine."""

    def __init__(self, base: Path, engine: str = "wheel") -> None:
        super().__init__(base)
        self.engine, self.moment = engine, 1_000
        if engine == "system":
            need(Path("/usr/bin/rg").exists(), "rg")
        self.use(ENGINES[engine]())

    def use(self, program: Ripgrep) -> None:
        tool = grep_tool(Workspaces(self.root), program)
        self.tools = [tool if each.name == "Grep" else each for each in self.tools]

    def put(self, name: str, data: bytes | str) -> Path:
        path = super().put(name, data)
        self.moment += 1
        os.utime(path, (self.moment, self.moment))
        return path

    async def grep(self, pattern: str, **arguments: object) -> dict[str, Any]:
        envelope = await self.call("Grep", {"pattern": pattern, **arguments})
        if envelope["status"] != "error" and self.engine == "python":
            assert (envelope["status"], envelope["data"].pop("fallback_used")) == ("partial", True)
            assert envelope["data"].pop("fallback_reason") == "rg_not_found"
        return envelope

    async def lines(self, pattern: str, **arguments: object) -> list[str]:
        envelope = await self.grep(pattern, **arguments)
        assert envelope["status"] != "error", envelope
        return [f"{match['file']}:{match['line']}:{match['text']}" for match in envelope["data"]["matches"]]


@pytest.fixture(params=ENGINES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Searched:
    return Searched(tmp_path, request.param)


async def test_lines_of_the_newest_file_come_first(folder: Searched):
    folder.put("b.py", "foo\nbar Foo\n")
    folder.put("sub/a.py", "x\r\nFOO\r\nlast foo")
    assert await folder.lines("foo") == ["sub/a.py:2:FOO", "sub/a.py:3:last foo", "b.py:1:foo", "b.py:2:bar Foo"]
    assert await folder.lines("foo", case_sensitive=True) == ["sub/a.py:3:last foo", "b.py:1:foo"]
    assert await folder.lines("^foo$") == ["sub/a.py:2:FOO", "b.py:1:foo"]
    assert await folder.lines("foo", path="sub") == ["sub/a.py:2:FOO", "sub/a.py:3:last foo"]
    assert await folder.lines("foo", path="b.py") == ["b.py:1:foo", "b.py:2:bar Foo"]
    found = await folder.grep("foo")
    assert found["stats"] == found["stats"] | {"matched_files": 2, "matched_lines": 4}
    assert found["context"]["sorted_by"] == "mtime_desc"
    nothing = await folder.grep("nothing")
    assert (nothing["data"], nothing["stats"]["matched_lines"]) == ({"matches": []}, 0)


async def test_files_of_one_moment_are_sorted_by_their_paths(folder: Searched):
    for name in ("b/x", "a", "b-", "b"):
        path = folder.put(name if name != "b" else "c", "foo\n")
        os.utime(path, (5, 5))
    first, again = await folder.grep("foo"), await folder.grep("foo")
    assert [match["file"] for match in first["data"]["matches"]] == ["a", "b-", "b/x", "c"]
    assert (first["data"], first["text"]) == (again["data"], again["text"])


async def test_hidden_ignored_and_binary_files_are_left_out(folder: Searched):
    for name in (
        "a",
        ".hidden",
        "sub/x.log",
        "sub/keep.log",
        "node_modules/b",
        ".git/c",
        "excluded",
        ".env",
        "graphflow.toml",
    ):
        folder.put(name, "foo\n")
    folder.put("early", b"\0foo\n")
    folder.put("late", b"foo\n" + b"bar\n" * 100_000 + b"\0\n")
    folder.put(".gitignore", "*.log\n")
    folder.put("sub/.gitignore", "!keep.log\n")
    folder.put(".git/info/exclude", "excluded\n")
    assert await folder.lines("foo") == ["sub/keep.log:1:foo", "a:1:foo"]
    assert await folder.lines("foo", include_hidden=True) == ["sub/keep.log:1:foo", ".hidden:1:foo", "a:1:foo"]
    every = {line.partition(":")[0] for line in await folder.lines("foo", include_hidden=True, include_ignored=True)}
    assert every == {"a", ".hidden", "sub/x.log", "sub/keep.log", "node_modules/b", ".git/c", "excluded"}
    assert await folder.lines("foo", path="sub") == ["sub/keep.log:1:foo"]


async def test_a_pattern_of_names_is_for_any_folder_and_one_of_paths_for_the_start(folder: Searched):
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "x.log"):
        folder.put(name, "foo\n")
    folder.put(".gitignore", "*.log\n")
    assert await folder.lines("foo", include="*.py") == ["src/deep/c.py:1:foo", "src/b.py:1:foo", "a.py:1:foo"]
    assert await folder.lines("foo", include="*.{ts,log}") == ["src/d.ts:1:foo"]
    assert await folder.lines("foo", include="src/*") == ["src/d.ts:1:foo", "src/b.py:1:foo"]
    assert await folder.lines("foo", include="deep/**", path="src") == ["src/deep/c.py:1:foo"]
    assert await folder.lines("foo", include="*.log") == []
    assert code_of(await folder.grep("foo", include="../*")) == "ACCESS_DENIED"
    assert code_of(await folder.grep("foo", include="[")) == "INVALID_PARAM"


async def test_other_encodings_and_odd_names_are_read_rightly(folder: Searched):
    folder.put("utf16le", "\ufefffoo é\r\nnext\n".encode("utf-16-le"))
    folder.put("utf16be", "\ufefffoo é\nnext\n".encode("utf-16-be"))
    folder.put("bom", "\ufefffoo é\n".encode())
    folder.put("latin", b"foo \xe9\n")
    folder.put("new\n:12:line", "foo é\n")
    folder.put("odd", "foo é\n").rename(folder.root / "caf\udce9")
    shown = await folder.lines("^foo")
    assert shown == ["caf\\xe9:1:foo é", "new\n:12:line:1:foo é", "latin:1:foo \ufffd", "bom:1:foo é", "utf16be:1:foo é",
                     "utf16le:1:foo é"]  # fmt: skip
    assert len(await folder.lines("O É$", case_sensitive=False)) == 5


async def test_context_is_beside_each_line_and_counts_as_none(folder: Searched):
    folder.put("a", "one\ntwo\nfoo\nfour\nfoo\n")
    found = await folder.grep("foo", context_lines=2)
    assert found["data"]["matches"] == [
        {"file": "a", "line": 3, "text": "foo", "before": ["one", "two"], "after": ["four", "foo"]},
        {"file": "a", "line": 5, "text": "foo", "before": ["foo", "four"], "after": []},
    ]
    assert "a-1- one\na-2- two\na:3: foo\na-4- four\na-5- foo\n--" in found["text"]


async def test_files_and_counts_are_shown_instead_of_lines(folder: Searched):
    folder.put("a", "foo\nfoo\n")
    folder.put("b", "foo\n" * 300)
    files = await folder.grep("foo", output_mode="files")
    assert files["data"] == {"matches": [], "files": ["b", "a"]}
    if folder.engine == "not confined":
        # A count of lines could tell what is in a file outside.
        assert (await folder.grep("foo", output_mode="count"))["data"]["fallback_reason"] == "rg_not_confined"
        return
    counts = await folder.grep("foo", output_mode="count")
    assert counts["data"]["counts"] == [{"file": "b", "count": 300}, {"file": "a", "count": 2}]
    assert counts["stats"]["matched_lines"] == 302


async def test_the_first_hundred_lines_are_shown_and_the_rest_is_said(folder: Searched):
    folder.put("old", "foo\n")
    folder.put("new", "foo\n" * 100_000)
    found = await folder.grep("foo")
    assert (found["status"], found["data"]["truncated"], len(found["data"]["matches"])) == ("partial", True, 100)
    assert {match["file"] for match in found["data"]["matches"]} == {"new"}
    assert "At least" in found["text"] and "Truncated" in found["text"]
    folder.put("new", "foo\n" * 99)
    assert "truncated" not in (await folder.grep("foo"))["data"]


async def test_a_line_of_megabytes_is_cut(folder: Searched):
    folder.put("a", "x" * 10_000_000 + "foo\nfoo\n")
    found = await folder.grep("foo")
    assert [len(match["text"]) < 600 for match in found["data"]["matches"]] == [True, True]
    assert "[the line has 10,000,003 characters]" in found["data"]["matches"][0]["text"]


@pytest.mark.parametrize("pattern", ["--pre=./x.sh", "-f/etc/passwd", "--help", "-", "--", "-e"])
async def test_what_looks_like_an_option_is_searched_as_text(folder: Searched, pattern: str):
    script = folder.put("x.sh", f"#!/bin/sh\ntouch {folder.root}/RAN\n")
    script.chmod(0o755)
    folder.put("a", f"see {pattern} here\n")
    assert f"a:1:see {pattern} here" in await folder.lines(pattern)
    assert not (folder.root / "RAN").exists()


@pytest.mark.parametrize("pattern", ["(a+)+$", "(x*)*y", "((a|a)*)*b", "(a|aa)+$", "(" * 100 + "a" + ")*" * 100])
async def test_no_expression_takes_long(folder: Searched, pattern: str):
    folder.put("a", "a" * 5_000 + "!\n" + "x" * 5_000 + "\n")
    assert code_of(await folder.grep(pattern)) in ("success", "partial", "INVALID_PARAM")


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "a{2", "a{1001}", "(?=a)", "(?<!a)b", r"\1", r"\n", "a\nb", "a\0b", "", r"\Z", r"\p{Nope}", r"[a&&b]", "[[a]]",
     "*a", r"\Qa\E", "(?x)a", r"\<a", "a" * 10_000, "\\", r"\u00e9", "[z-a]"],
)  # fmt: skip
async def test_what_the_engines_do_not_read_alike_is_refused_by_both(folder: Searched, pattern: str):
    folder.put("a", "a\n")
    refused = await folder.grep(pattern)
    assert code_of(refused) == "INVALID_PARAM"
    assert "pattern" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (r"^\d$", "5٣"), (r"^\w$", "5aéß中_٣ⓐ"), (r"^\s$", " \t\u00a0\u3000"), (r"^\S$", "5aéß中_٣-ⓐ·"), (r"^[\S]$", "5aéß中_٣-ⓐ·"),
        (r"^[^\w\s]$", "-·"), (r"^\p{Han}$", "中"), (r"^\p{Ll}$", "aéß"), (r"^[[:alpha:]]$", "a"), ("^[À-ÿ]$", "éß"),
        ("^É$", "é"), ("^A$", "a"), ("^ẞ$", "ß"), ("^.$", "5aéß中_٣-ⓐ· \t\u00a0\u3000"), (r"\x{4e2d}", "中"), (r"^\W$", "- \t\u00a0\u3000·"),
    ],
)  # fmt: skip
async def test_characters_are_of_the_same_classes_in_both(folder: Searched, pattern: str, fits: str):
    characters = "5aéß中_٣-ⓐ· \t\u00a0\u3000"
    folder.put("a", "".join(f"{each}\n" for each in characters))
    assert {line.split(":", 2)[2] for line in await folder.lines(pattern)} == set(fits)


async def test_a_text_is_taken_literally(folder: Searched):
    folder.put("a", "a.b(c)\naxb(c)\n[\\d\n")
    assert await folder.lines("a.b(C)", literal=True) == ["a:1:a.b(c)"]
    assert await folder.lines("[\\d", literal=True) == ["a:3:[\\d"]


async def test_links_pipes_and_what_is_outside_are_not_searched(folder: Searched):
    folder.put("a", "nobody here\n")
    (folder.root / "link").symlink_to(folder.secret)
    (folder.root / "out").symlink_to(folder.out)
    (folder.root / "loop").symlink_to(".")
    os.mkfifo(folder.root / "pipe")
    assert await folder.lines("nobody") == ["a:1:nobody here"]
    for path in ("link", "out", "out/secret", "../out", str(folder.out)):
        assert code_of(await folder.grep("nobody", path=path)) == "ACCESS_DENIED"
    assert code_of(await folder.grep("nobody", path="pipe")) == "INVALID_PARAM"


async def test_a_hard_link_to_a_protected_file_is_not_searched(folder: Searched):
    folder.put(".env", "KEY=nobody\n")
    os.link(folder.root / ".env", folder.root / "plain")
    assert await folder.lines("nobody") == []


@pytest.mark.parametrize(
    "wrong",
    [{"context_lines": 51}, {"context_lines": -1}, {"context_lines": "3"}, {"output_mode": "lines"}, {"literal": 1},
     {"case_sensitive": "no"}, {"path": 5}, {"limit": 5}, {"path": ""}, {"include": ""}],
)  # fmt: skip
async def test_wrong_arguments_are_refused(tmp_path: Path, wrong: dict[str, object]):
    assert code_of(await Searched(tmp_path).grep("a", **wrong)) == "INVALID_PARAM"


def test_the_program_of_the_wheel_is_the_one_that_runs():
    need(find_ripgrep(), "rg")
    assert find_ripgrep() != "/usr/bin/rg"


async def test_ripgrep_reads_the_folder_that_is_searched_and_nothing_else(tmp_path: Path):
    """A program in its place tries to read the secret, the root and what is above the folder."""
    need(Sandboxes().landlock(), "Landlock")
    folder = Searched(tmp_path)
    folder.put("sub/a", "foo\n")
    folder.put("b", "foo\n")
    script = tmp_path / "rg"
    tried = " ".join(map(str, (folder.secret, folder.root / "b", "/etc/hostname", "../b", "a")))
    script.write_text(f"#!/bin/sh\nexec cat {tried} >&2\n", encoding="utf-8")
    script.chmod(0o755)
    said: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ripgrep._Records, "complain", lambda _, block: said.append(block))
        patch.setattr(ripgrep, "reading_only", with_a_shell)
        folder.use(Ripgrep(program=lambda: str(script)))
        assert (await folder.grep("foo", path="sub"))["data"]["fallback_reason"] == "rg_failed"
    assert b"".join(said).count(b"Permission denied") == 4
    assert b"foo" in b"".join(said)


def with_a_shell(argv: Sequence[str], readable: Sequence[str], machine: Sandboxes) -> tuple[tuple[str, ...], bool]:
    """`/bin/sh` needs what a system's own ripgrep needs."""
    return reading_only(argv, [*readable, *SYSTEM_FOLDERS], machine)


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 1", "rg_failed"), ("kill -9 $$", "rg_failed"), ("echo broken >&2; exit 2", "rg_failed")],
)
async def test_a_ripgrep_that_fails_is_stood_in_for(tmp_path: Path, script: str, reason: str):
    folder = Searched(tmp_path)
    folder.put("a", "foo\n")
    program = tmp_path / "rg"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    folder.use(Ripgrep(program=lambda: str(program), machine=NO_LANDLOCK))
    found = await folder.grep("foo")
    assert (found["status"], found["data"]["fallback_reason"]) == ("partial", reason)
    assert found["data"]["matches"] == [{"file": "a", "line": 1, "text": "foo"}]


async def test_what_a_ripgrep_found_before_an_error_is_kept(tmp_path: Path):
    folder = Searched(tmp_path)
    folder.put("a", "foo\n")
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\n{find_ripgrep()} "$@"\necho b: denied >&2\nexit 2\n', encoding="utf-8")
    program.chmod(0o755)
    folder.use(Ripgrep(program=lambda: str(program), machine=NO_LANDLOCK))
    found = await folder.grep("foo")
    assert (found["status"], [match["file"] for match in found["data"]["matches"]]) == ("partial", ["a"])
    assert "1 file could not be read" in found["text"]


async def test_a_search_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path):
    folder = Searched(tmp_path)
    folder.put("a", "foo\n")
    program, pids = tmp_path / "rg", tmp_path / "pids"
    program.write_text(f"#!/bin/sh\nsleep {PATIENCE_S} & echo $! $$ > {pids}\nwait\n", encoding="utf-8")
    program.chmod(0o755)
    ticks = iter([0.0, 0.0])

    def clock() -> float:
        # The limit is reached once the program has started its child.
        while not (pids.exists() and pids.read_text(encoding="utf-8").strip()) and next(ticks, None) is None:
            time.sleep(0.001)
        return 0.0 if not pids.exists() else 1_000.0

    folder.use(Ripgrep(program=lambda: str(program), machine=NO_LANDLOCK, clock=clock))
    stopped = await folder.grep("foo")
    assert (stopped["status"], stopped["data"]) == ("partial", {"matches": [], "truncated": True})
    assert "stopped" in stopped["text"]
    for pid in pids.read_text(encoding="utf-8").split():
        status = Path(f"/proc/{pid}/stat")
        assert not status.exists() or status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"


async def test_lines_that_change_before_they_are_shown_are_left_out(tmp_path: Path):
    folder = Searched(tmp_path)
    path = folder.put("a", "foo 1\nfoo 2\n")
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\n{find_ripgrep()} "$@"\nprintf "foo 1\\nbar 2\\n" > {path}\n', encoding="utf-8")
    program.chmod(0o755)
    folder.use(Ripgrep(program=lambda: str(program), machine=NO_LANDLOCK))
    found = await folder.grep("foo")
    assert (found["status"], [match["text"] for match in found["data"]["matches"]]) == ("partial", ["foo 1"])
    assert "1 line was changed" in found["text"]


async def test_nothing_is_shown_of_a_folder_that_becomes_a_link_while_it_is_searched(tmp_path: Path):
    """Without Landlock ripgrep reads the file outside, whose line is then not found inside."""
    folder = Searched(tmp_path)
    folder.put("sub/secret", "other\n")
    program = tmp_path / "rg"
    swap = f"mv {folder.root}/sub {tmp_path}/aside; cp -r {folder.out} {folder.root}/sub"
    back = f"rm -r {folder.root}/sub; ln -s {folder.out} {folder.root}/sub"
    program.write_text(f'#!/bin/sh\n{swap}\n{find_ripgrep()} "$@"\n{back}\n', encoding="utf-8")
    program.chmod(0o755)
    folder.use(Ripgrep(program=lambda: str(program), machine=NO_LANDLOCK))
    for mode in ("content", "files"):
        found = await folder.grep("nobody", output_mode=mode)
        assert not any(found["data"].values()) or found["data"] == {"matches": [], "truncated": True}
        assert found["stats"]["matched_lines"] == 0
        (folder.root / "sub").unlink()
        (tmp_path / "aside").rename(folder.root / "sub")


def test_neither_engine_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from graphflow.tools.coding.grep import _Search
    from graphflow.tools.workspace import Workspace

    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    found = _Search(
        workspace=Workspace(tmp_path), arguments={"pattern": "a"}, ripgrep=replace(Ripgrep(), program=lambda: None)
    ).result()
    assert found.error is not None and found.error.code == "EXECUTION_ERROR"
    assert "graphflow[search]" in found.text
    assert stat.S_ISDIR(tmp_path.stat().st_mode)
