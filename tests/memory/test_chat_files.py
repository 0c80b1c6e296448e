"""Chat files on a real disk: order of syncing, damage, names, encodings (spec 5.1)."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import GraphflowError
from graphflow.memory.chat_files import ChatFiles, file_stem


def record(run_id: str, status: str | None = None, text: str = "hi") -> dict[str, Any]:
    out: dict[str, Any] = {"chatId": "c", "runId": run_id, "transactionId": run_id, "updatedAt": 1}
    if status is not None:
        out["_status"] = status
    return {**out, "query": {"message": text}, "messages": [{"role": "user", "content": text}]}


def system(prompt: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "system", "content": prompt}], "tools": (), "stream": True}


def prompts(files: ChatFiles) -> list[str | None]:
    runs = files.read("c").runs
    return [run["system"]["messages"][0]["content"] if "system" in run else None for run in runs]


def run_ids(files: ChatFiles) -> list[str]:
    return [run["runId"] for run in files.read("c").runs]


# --- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "a new process each time"])
def test_system_stands_on_the_first_line_and_where_it_changed(tmp_path: Path, fresh: bool) -> None:
    files = ChatFiles(tmp_path)
    for number, prompt in enumerate("aabba"):
        files = ChatFiles(tmp_path) if fresh else files
        files.write("c", record(f"r{number}"), system(prompt))
    assert prompts(files) == ["a", None, "b", None, "a"]


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "a new process"])
def test_a_waiting_line_is_replaced_at_its_place_by_what_became_of_the_run(tmp_path: Path, fresh: bool) -> None:
    files = ChatFiles(tmp_path)
    files.write("c", record("r1"), system("a"))
    files.write("c", record("r2", "waiting"), system("b"))
    files.write("c", record("r3"), system("b"))
    files = ChatFiles(tmp_path) if fresh else files
    files.write("c", record("r2", text="answered"), system("b"))
    assert run_ids(files) == ["r1", "r2", "r3"]
    assert prompts(files) == ["a", "b", None]
    assert "_status" not in files.read("c").runs[1]
    assert files.read("c").runs[1]["query"]["message"] == "answered"


def test_the_same_line_twice_is_one_line(tmp_path: Path) -> None:
    for _ in range(2):
        ChatFiles(tmp_path).write("c", record("r1"), system("a"))
    assert run_ids(ChatFiles(tmp_path)) == ["r1"]


def test_a_line_is_synced_before_write_returns_and_a_new_file_s_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = _spied(monkeypatch, tmp_path)
    files = ChatFiles(tmp_path)
    files.write("c", record("r1"))
    assert happened == ["write", "sync file", "sync folder"]
    happened.clear()
    files.write("c", record("r2"))
    assert happened == ["write", "sync file"]


def test_a_replacement_is_synced_before_it_takes_the_place_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ChatFiles(tmp_path)
    files.write("c", record("r1", "waiting"))
    happened = _spied(monkeypatch, tmp_path)
    files.write("c", record("r1"))
    assert happened == ["sync file", "rename", "sync folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def _spied(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    happened: list[str] = []
    write, fsync, replace = os.write, os.fsync, Path.replace
    inode = folder.stat().st_ino

    def spied_write(file: int, data: Any) -> int:
        happened.append("write")
        return write(file, data)

    def spied_fsync(file: int) -> None:
        happened.append("sync folder" if os.fstat(file).st_ino == inode else "sync file")
        fsync(file)

    def spied_replace(self: Path, target: Any) -> Path:
        happened.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "write", spied_write)
    monkeypatch.setattr(os, "fsync", spied_fsync)
    monkeypatch.setattr(Path, "replace", spied_replace)
    return happened


def test_a_failed_write_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ChatFiles(tmp_path)
    files.write("c", record("r1"))
    whole = (tmp_path / "c.json").read_bytes()
    write, calls = os.write, []

    def full(file: int, data: Any) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(file, bytes(data)[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            files.write("c", record("r2"))
    assert (tmp_path / "c.json").read_bytes() == whole
    files.write("c", record("r2"))
    assert run_ids(files) == ["r1", "r2"]


def test_writers_of_two_processes_do_not_lose_each_other_s_lines(tmp_path: Path) -> None:
    """Two objects share nothing but the file, as two processes would; each replaces and appends."""
    start = threading.Barrier(2)

    def write(name: str) -> None:
        files = ChatFiles(tmp_path)
        start.wait()
        for number in range(20):
            files.write("c", record(f"{name}{number}", "waiting"))
            files.write("c", record(f"{name}{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = ChatFiles(tmp_path).read("c").runs
    assert sorted(run["runId"] for run in runs) == sorted(f"{name}{i}" for name in "ab" for i in range(20))
    assert not any("_status" in run for run in runs)


# --- damage --------------------------------------------------------------------------------------


def test_a_half_written_last_line_is_skipped_and_reported_and_the_others_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = ChatFiles(tmp_path)
    for number in range(3):
        files.write("c", record(f"r{number}"))
    path = tmp_path / "c.json"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    found = files.read("c")
    assert [run["runId"] for run in found.runs] == ["r0", "r1"]
    (damage,) = found.damaged
    assert (damage.line, damage.offset) == (3, data.rindex(b"\n", 0, -1) + 1)
    assert "a damaged line of the chat record was skipped" in caplog.text


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "a new process"])
def test_a_line_after_a_half_written_one_is_a_line_of_its_own(tmp_path: Path, fresh: bool) -> None:
    files = ChatFiles(tmp_path)
    for number in range(2):
        files.write("c", record(f"r{number}"), system("a"))
    path = tmp_path / "c.json"
    path.write_bytes(path.read_bytes()[:-5])
    files = ChatFiles(tmp_path) if fresh else files
    files.write("c", record("r2"), system("a"))
    found = files.read("c")
    assert [run["runId"] for run in found.runs] == ["r0", "r2"]
    assert [damage.line for damage in found.damaged] == [2]


def test_system_is_written_again_when_the_line_that_had_it_is_lost(tmp_path: Path) -> None:
    files = ChatFiles(tmp_path)
    files.write("c", record("r0"), system("a"))
    path = tmp_path / "c.json"
    path.write_bytes(path.read_bytes()[:-5])
    files.write("c", record("r1"), system("a"))
    assert prompts(files) == ["a"]


DEEP = b"[" * 50_000 + b"]" * 50_000


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense", b"[1]", b"null", b'{"runId": 1, "messages": []}', b'{"runId": "x"}', b"\xff\xfe", b"\x00", DEEP,
        b'{"runId": "x", "messages": [1]}', b'{"runId": "x", "messages": {}}', b'{"runId": "x", "messages": ' + DEEP + b"}",
        b'{"runId": "x", "messages": [], "system": ' + DEEP + b"}", b'{"_type": ' + DEEP + b"}",
    ],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_whatever_a_line_holds_the_others_load_and_stay_as_they_are(tmp_path: Path, line: bytes) -> None:
    files = ChatFiles(tmp_path)
    files.write("c", record("r1"))
    with (tmp_path / "c.json").open("ab") as file:
        file.write(line + b"\n\n")
    files.write("c", record("r2", "waiting"))
    files.write("c", record("r2"))
    found = files.read("c")
    assert [run["runId"] for run in found.runs] == ["r1", "r2"]
    assert [damage.line for damage in found.damaged] == [2]
    assert line in (tmp_path / "c.json").read_bytes().split(b"\n")


def test_lines_of_a_later_form_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"_type": "step", "runId": "r", "_seq": 1}\n', encoding="utf-8")
    found = ChatFiles(tmp_path).read("c")
    assert (found.runs, found.damaged) == ([], [])


def test_a_chat_without_a_file_has_no_lines(tmp_path: Path) -> None:
    found = ChatFiles(tmp_path / "none").read("c")
    assert (found.runs, found.damaged) == ([], [])


# --- names and encodings -------------------------------------------------------------------------


@given(st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True).filter(lambda text: ".." not in text))
def test_a_valid_chat_id_is_the_file_s_name(chat_id: str) -> None:
    assert file_stem(chat_id) == chat_id


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_no_id_leaves_the_folder_and_no_two_share_a_name(one: str, other: str) -> None:
    path = ChatFiles(Path("/chats")).path(one)
    assert path.parent == Path("/chats") == Path(os.path.normpath(path)).parent
    assert len(path.name.encode()) <= 255
    assert (file_stem(one) == file_stem(other)) == (one == other)


def test_an_odd_id_stays_readable(tmp_path: Path) -> None:
    assert file_stem("../etc/pass wd") == "..%2Fetc%2Fpass%20wd"
    long = ChatFiles(tmp_path)
    for end in "ab":
        long.write("x" * 400 + end, record(f"r{end}"))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("charset", ["UTF-8", "gbk", "ascii", "latin-1"])
def test_every_text_survives_every_charset(tmp_path: Path, charset: str) -> None:
    text = '你好 🦆 ÿ \n\r\u2028 "quoted" \\ end'
    files = ChatFiles(tmp_path, charset)
    files.write("c", record("r1", text=text))
    files.write("c", record("r2", text="plain"))
    assert [run["query"]["message"] for run in files.read("c").runs] == [text, "plain"]
    raw = (tmp_path / "c.json").read_bytes().decode(charset)
    assert json.loads(raw.split("\n")[0])["query"]["message"] == text


def test_utf_8_writes_other_scripts_as_they_are(tmp_path: Path) -> None:
    ChatFiles(tmp_path).write("c", record("r1", text="你好"))
    assert "你好" in (tmp_path / "c.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("charset", ["utf-16", "cp037", "nonsense", "utf-8-sig"])
def test_a_charset_that_can_t_hold_lines_is_refused_at_once(tmp_path: Path, charset: str) -> None:
    with pytest.raises(GraphflowError, match=f"memory.chat_charset is '{charset}'.*use UTF-8"):
        ChatFiles(tmp_path, charset)
