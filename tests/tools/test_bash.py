"""`bash`: a few commands that look around, and every way out of its folders that we know of."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.testing.tool_envelope_conformance import assert_envelope
from graphflow.tools.builtin import BashPolicy, builtin_tools
from graphflow.tools.builtin.bash import MAX_COMMAND, MAX_PATHS, run_command
from graphflow.tools.builtin.command_line import CommandRefused, Word, split_words
from graphflow.tools.builtin.paths import expand
from graphflow.tools.builtin.process import run_program
from graphflow.tools.envelope import completed, to_envelope
from graphflow.tools.port import ToolResult
from graphflow.tools.workspace import Workspace
from tests.needs import need
from tests.patience import PATIENCE_S
from tests.tools.fakes import tool_context

SECRET = "what nobody may see"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A working directory with neighbours that it must not see."""
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    (home / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (home / "b.txt").write_text("bee\n", encoding="utf-8")
    (home / "two words.md").write_text("spaced\n", encoding="utf-8")
    (home / "-f").write_text("dashed\n", encoding="utf-8")
    (home / ".hidden.txt").write_text("hidden\n", encoding="utf-8")
    (home / "docs" / "deep.txt").write_text("deep\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text(SECRET, encoding="utf-8")
    (tmp_path / "home-sibling").mkdir()
    (tmp_path / "home-sibling" / "s.txt").write_text(SECRET, encoding="utf-8")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "ok.txt").write_text("shared\n", encoding="utf-8")
    (home / "link-out").symlink_to(tmp_path / "secret.txt")
    (home / "dir-out").symlink_to(tmp_path)
    (home / "link-in").symlink_to(home / "a.txt")
    (home / "loop").symlink_to(home / "loop")
    return home


async def bash(house: Path, command: str, **options: object) -> ToolResult:
    result = completed(await run_command(command, BashPolicy(working_directory=house, **options)), {"command": command})  # type: ignore[arg-type]
    assert_envelope(to_envelope(result))
    return result


@pytest.mark.parametrize(
    ("command", "stdout"),
    [
        ("cat a.txt", "one\ntwo\nthree\n"),
        ("head -n 1 a.txt", "one\n"),
        ("head -n1 a.txt", "one\n"),
        ("head -1 a.txt", "one\n"),
        ("tail -n 1 a.txt", "three\n"),
        ("tail -n +3 a.txt", "three\n"),
        ("tail --lines=1 a.txt", "three\n"),
        ("head -qn 1 a.txt b.txt", "one\nbee\n"),
        ("cat ./docs/../b.txt", "bee\n"),
        ("cat 'two words.md'", "spaced\n"),
        ('cat "two words.md"', "spaced\n"),
        ("cat two\\ words.md", "spaced\n"),
        ("cat -- -f", "dashed\n"),
        ("cat link-in", "one\ntwo\nthree\n"),
        ("ls docs", "deep.txt\n"),
        ("ls *.txt", "a.txt\nb.txt\n"),
        ("ls .hid*", ".hidden.txt\n"),
        ("cat docs/d*.txt", "deep\n"),
        ("cat [ab].txt", "one\ntwo\nthree\nbee\n"),
        ("cat b.txt -", "bee\n"),
    ],
)
async def test_commands_look_around_in_the_working_directory(house: Path, command: str, stdout: str):
    result = await bash(house, command)
    assert (result.data["stdout"], result.data["ok"], result.data["exitCode"]) == (stdout, True, 0)


async def test_the_result_has_the_fields_that_clients_know(house: Path):
    result = await bash(house, "ls docs")
    assert result.data == {
        "tool": "bash",
        "command": "ls docs",
        "allowedCommands": ["ls", "pwd", "cat", "head", "tail", "top", "free", "df"],
        "normalizedCommand": "ls -- docs",
        "workingDirectory": str(house),
        "allowedRoots": [str(house)],
        "ok": True,
        "timedOut": False,
        "exitCode": 0,
        "stdout": "deep.txt\n",
        "stderr": "",
    }


async def test_pwd_is_the_working_directory(house: Path):
    assert (await bash(house, "pwd")).data["stdout"] == f"{house}\n"


@pytest.mark.parametrize("command", ["top", "top -b -n 5", "free -m", "df -h"])
async def test_commands_about_the_machine_run_once(house: Path, command: str):
    need(shutil.which(command.partition(" ")[0]), command)
    data = (await bash(house, command)).data
    assert (data["exitCode"], data["timedOut"]) == (0, False)


ESCAPES = [
    "cat ../secret.txt",
    "cat ../home-sibling/s.txt",
    "cat docs/../../secret.txt",
    "cat {tmp}/secret.txt",
    "cat {tmp}/home-sibling/s.txt",
    "cat /etc/passwd",
    "cat //etc/passwd",
    "cat link-out",
    "cat ./link-out",
    "cat dir-out/secret.txt",
    "ls dir-out",
    "ls ..",
    "ls /",
    "ls ~root",
    "cat link-*",
    "cat link-ou?",
    "cat *-out",
    "cat dir-out/*.txt",
    "cat ../*.txt",
    "cat */secret.txt",
    "cat */../../secret.txt",
    "cat /*",
    "cat {tmp}/sec*",
    "head -n 1 link-out",
    "tail link-out",
    "tail -f a.txt ../secret.txt",
    "df ..",
    "cat a.txt; cat ../secret.txt",
    "cat a.txt;cat link-out",
    "cat a.txt && cat ../secret.txt",
    "cat a.txt & cat ../secret.txt",
    "cat a.txt || cat ../secret.txt",
    "cat a.txt | cat ../secret.txt",
    "cat $(echo ../secret.txt)",
    'cat "$(echo ../secret.txt)"',
    "cat `echo ../secret.txt`",
    'cat "`echo ../secret.txt`"',
    "cat $HOME/../secret.txt",
    'cat "$PWD/../secret.txt"',
    "cat a.txt\ncat ../secret.txt",
    "cat a.txt\rcat ../secret.txt",
    "cat 'a.txt\ncat ../secret.txt'",
    "cat a.txt\0../secret.txt",
    "cat < ../secret.txt",
    "cat a.txt > ../written.txt",
    "(cat ../secret.txt)",
    "cat <(cat ../secret.txt)",
    "/bin/cat ../secret.txt",
    "./cat a.txt",
    "CAT ../secret.txt",
    "rm a.txt",
    "sh -c 'cat ../secret.txt'",
    "bash",
    "X=1 cat ../secret.txt",
    "cat '../secret.txt'",
    'cat ".."/secret.txt',
    "cat .\\./secret.txt",
    "ls -L link-out",
    "ls -lL",
    "ls --dereference",
    "ls --deref",
    "ls -RH dir-out",
    "tail -f a.txt",
    "tail --follow=name a.txt",
    "tail -n ../secret.txt a.txt",
    "head --lines=../secret.txt a.txt",
    "head -c",
    "top -c",
    "top ../secret.txt",
    "free -s 1",
    "pwd ../secret.txt",
    "df --output=source",
    "cat --help",
    "cat 'unclosed",
    "cat a.txt\\",
    "cat \ud800",
    "",
    "   ",
]


@pytest.mark.parametrize("command", ESCAPES)
async def test_no_command_leads_out(house: Path, command: str):
    result = await bash(house, command.replace("{tmp}", str(house.parent)))
    assert result.error is not None, result.data
    assert result.error.code in {"ACCESS_DENIED", "PERMISSION_DENIED", "INVALID_PARAM", "NOT_FOUND"}
    assert SECRET not in str(to_envelope(result))
    assert not (house.parent / "written.txt").exists()
    assert (house / "a.txt").exists()


async def test_listing_everything_shows_no_file_behind_a_link(house: Path):
    result = await bash(house, "ls -laR")
    assert result.data["ok"]
    assert "home-sibling" not in result.data["stdout"]


async def test_a_refusal_says_what_is_allowed(house: Path):
    assert "commands are ls, pwd, cat" in (await bash(house, "rm x")).text
    assert "pipes can't be used" in (await bash(house, "ls | cat")).text
    assert "options are -A" in (await bash(house, "cat --help")).text
    assert f"Allowed are {house}" in (await bash(house, "ls /")).text
    assert "missing argument" in (await bash(house, "")).text
    assert "nothing matches '*.zip'" in (await bash(house, "ls *.zip")).text


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("rm x", "PERMISSION_DENIED"),
        ("cat --help", "PERMISSION_DENIED"),
        ("pwd 'not allowed'", "INVALID_PARAM"),
        ("head -n 'not allowed'", "INVALID_PARAM"),
        ("ls | cat", "INVALID_PARAM"),
    ],
)
async def test_the_code_of_a_refusal_does_not_depend_on_words_of_the_command(house: Path, command: str, code: str):
    error = (await bash(house, command)).error
    assert error is not None
    assert error.code == code


async def test_further_folders_can_be_allowed(house: Path):
    shared = house.parent / "shared"
    result = await bash(house, f"cat {shared}/ok.txt ../shared/o*", allowed_paths=(shared,))
    assert result.data["stdout"] == "shared\nshared\n"
    assert result.data["allowedRoots"] == [str(house), str(shared)]
    assert (await bash(house, "cat ../secret.txt", allowed_paths=(shared,))).error is not None
    assert (await bash(house, "cat ../shared/ok.txt", allowed_paths=("../shared",))).data["ok"]


async def test_a_failing_command_is_a_partial_result_with_its_words(house: Path):
    result = await bash(house, "cat nothing.txt")
    assert (result.status, result.data["ok"], result.data["exitCode"]) == ("partial", False, 1)
    assert "nothing.txt" in result.data["stderr"]
    assert "exit code 1" in result.text


async def test_output_is_cut_and_says_so(house: Path):
    (house / "long.txt").write_text("é" * 5_000, encoding="utf-8")
    result = await bash(house, "cat long.txt")
    assert result.data["stdout"] == "é" * 2_000
    assert (result.status, result.data["truncated"], result.data["ok"]) == ("partial", True, True)
    assert "cut after 2000 characters" in result.text
    (house / "exact.txt").write_text("é" * 2_000, encoding="utf-8")
    assert (await bash(house, "cat exact.txt")).status == "success"


async def test_a_file_of_any_bytes_is_readable(house: Path):
    (house / "bytes").write_bytes(b"\xff\xfe\x00ok")
    assert "ok" in (await bash(house, "cat bytes")).data["stdout"]


async def test_a_file_that_would_block_is_refused_at_once(house: Path):
    os.mkfifo(house / "pipe")
    for command in ("cat pipe", "head pipe", "tail -n 1 pipe", "cat a.txt pipe"):
        result = await bash(house, command, timeout_s=60)
        assert result.error is not None
        assert (result.error.code, "not a regular file" in result.text) == ("INVALID_PARAM", True)


async def test_a_command_is_stopped_at_the_limit(house: Path):
    result = await bash(house, "tail -n +99 a.txt", timeout_s=0)
    assert result.error is not None
    assert result.error.code == "TIMEOUT"
    assert (result.data["timedOut"], result.data["exitCode"]) == (True, -1)
    partly = await bash(house, "cat a.txt b.txt", timeout_s=0)
    assert (partly.status, partly.data["stdout"], partly.data["timedOut"]) == ("partial", "one\ntwo\nthree\n", True)


async def test_a_command_inherits_no_secret(house: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    ended = await run_program(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"],
        cwd=house,
        env={"A": "1"},
        timeout_s=20,
        max_chars=2_000,
    )
    assert "OPENAI_API_KEY" not in ended.stdout
    assert "'A'" in ended.stdout


async def wait_gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (
            Path(f"/proc/{pid}").exists()
            and "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1][:3]
        ):
            await asyncio.sleep(0)


CHILD = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print(p.pid, flush=True); time.sleep(60)"


async def test_the_whole_process_group_ends_at_the_limit(house: Path):
    need(Path("/proc/self").exists(), "/proc")
    ended = await run_program([sys.executable, "-c", CHILD], cwd=house, env={}, timeout_s=1.5, max_chars=100)
    assert ended.timed_out
    await wait_gone(int(ended.stdout))


async def test_a_cancelled_command_leaves_no_process(house: Path):
    need(Path("/proc/self").exists(), "/proc")
    script = f"import os; open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'ready'); {CHILD}"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            run_program([sys.executable, "-c", script], cwd=house, env={}, timeout_s=60, max_chars=100)
        )
        async with asyncio.timeout(PATIENCE_S):
            while not (house / "ready").exists():
                await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    await wait_gone(int((house / "ready").read_text(encoding="utf-8")))


async def test_a_working_directory_that_does_not_exist_is_an_error(tmp_path: Path):
    result = await bash(tmp_path / "gone", "ls")
    assert result.error is not None
    assert result.error.code == "NOT_FOUND"


async def test_the_tool_runs_under_its_policy(house: Path):
    tool = next(each for each in builtin_tools(bash=BashPolicy(working_directory=house)) if each.name == "bash")
    result = await tool.call({"command": "head -n 1 a.txt"}, tool_context())
    assert result.data["stdout"] == "one\n"
    assert tool.approval_hint is None


@given(st.text("ab*'\"\\ \t;|&$`<>()\n-./", max_size=20))
def test_a_command_line_is_split_or_refused_and_keeps_no_shell_syntax_outside_quotes(line: str):
    try:
        words = split_words(line)
    except CommandRefused:
        return
    assert "\n" not in line
    if not set("'\"\\") & set(line):
        assert [word.text for word in words] == line.split()
        assert not set(";|&$`<>()") & set(line)
        assert all(word.wild == ("*" in word.text) for word in words)


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_word_may_be_long_without_being_copied_for_each_character(quote: str):
    (word,) = split_words(quote + "a" * 2_000_000 + quote)
    assert len(word.text) == 2_000_000


async def test_a_command_has_a_longest_length_and_a_highest_number_of_paths(house: Path):
    long = await bash(house, "ls " + "a" * MAX_COMMAND)
    assert long.error is not None
    assert (long.error.code, f"the limit is {MAX_COMMAND}" in long.text) == ("INVALID_PARAM", True)
    many = await bash(house, "ls" + " ." * (MAX_PATHS + 1), timeout_s=60)
    assert many.error is not None
    assert (many.error.code, f"more than {MAX_PATHS} paths" in many.text) == ("INVALID_PARAM", True)


async def test_the_time_of_a_command_includes_looking_its_paths_up(house: Path, monkeypatch: pytest.MonkeyPatch):
    looked_up: list[str] = []

    def noted(word: Word, workspace: Workspace) -> list[str]:
        looked_up.append(word.text)
        return expand(word, workspace)

    monkeypatch.setattr("graphflow.tools.builtin.bash.expand", noted)
    result = await bash(house, "ls a.txt b.txt docs", timeout_s=0)
    assert result.data["timedOut"]
    assert looked_up == ["a.txt"]
