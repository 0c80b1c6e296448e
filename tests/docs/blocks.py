"""Finds and runs the blocks of a Markdown page that are marked to run.

A fenced block after the line `<!-- run -->` runs. A `python` block is a program; a block after `<!-- output -->` right behind
it must equal what it prints. A `console` block holds commands after `$ `, each followed by what it prints; without any, only
its exit code counts. A block with `title="PATH"` is written to that file first, so that later blocks may use it.
In what is expected, `...` stands for anything, over several lines if it stands alone.
Blocks of one page run in order in one folder, so a later one may use what an earlier one left.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.forked import python
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>run|output) -->\n)?```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    info: str
    body: str
    mark: str = ""
    """`run`, `output` or nothing."""
    place: str
    """`README.md:12`."""


@dataclass(frozen=True, kw_only=True)
class Command:
    text: str
    expected: str


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            info=m["info"].strip(),
            body=m["body"],
            mark=m["mark"] or "",
            place=f"{path.name}:{text.count(chr(10), 0, m.start()) + 1}",
        )
        for m in _FENCE.finditer(text)
    ]


def is_runnable(block: Block) -> bool:
    return block.mark == "run"


def file_of(block: Block) -> str | None:
    """The file that the block is, by its title."""
    found = re.search(r'title="([^"]+)"', block.info)
    return found[1] if found else None


def commands_of(block: Block) -> list[Command]:
    """`$ ` begins a command, `> ` goes on with it, anything else is what it prints."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif found and line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        elif found:
            found[-1][1].append(line)
        else:
            raise AssertionError(f"{block.place}: the block begins with {line!r}, not with a command after '$ '")
    return [Command(text="\n".join(lines), expected="\n".join(output).strip()) for lines, output in found]


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def working_copy(folder: Path) -> Path:
    """A folder with the demo agents and examples, as a clone has them, and nothing else."""
    for name in ("graphs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "checkpoints").mkdir()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The environment of a user who activated the virtual environment."""
    scripts = Path(sys.executable).parent
    first = str(scripts)
    if shutil.which("graphflow", path=first) is None:  # the package is on the path, but not installed
        shim = folder / ".bin" / "graphflow"
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m graphflow "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
        first = f"{shim.parent}{os.pathsep}{first}"
    more = {
        "PATH": f"{first}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }
    return os.environ | more


def assert_page_is_true(path: Path, folder: Path, *, forked: bool = False) -> None:
    """Runs the page's blocks in `folder`; raises `AssertionError` with the place of the first that is not as written.

    Args:
        forked: programs and plain commands of graphflow are forks of a process that has it imported, not new ones.
    """
    blocks = blocks_of(path)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if file := file_of(block):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(block.body, encoding="utf-8")
        if block.mark != "run":
            continue
        if block.info.startswith("python"):
            expected = following.body if following and following.mark == "output" else ""
            program = ["-c", block.body]
            done = _forked(program, folder) if forked else _started([sys.executable, *program], folder)
            _check(done, block.body, expected, block.place)
        else:
            assert block.info == "console", f"{block.place}: only python and console blocks run"
            for command in commands_of(block):
                arguments = plain_arguments(command.text) if forked else None
                done = (
                    _started(["bash", "-euo", "pipefail", "-c", command.text], folder)
                    if arguments is None
                    else _forked(["-m", "graphflow", *arguments], folder)
                )
                _check(done, command.text, command.expected, block.place)


def plain_arguments(text: str) -> list[str] | None:
    """The arguments of a command that is `graphflow …` and asks nothing else of the shell."""
    text = text.replace("\\\n", "")
    return shlex.split(text)[1:] if _PLAIN.fullmatch(text) else None


_PLAIN = re.compile(r"""graphflow(?: +(?:[\w./:=@,+-]+|'[^']*'|"[^"$`\\!]*"))+ *""")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def _started(command: list[str], folder: Path) -> Done:
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _forked(arguments: list[str], folder: Path) -> Done:
    process = python(*arguments, cwd=folder, env=environment(folder), pipes=("stdout", "stderr"))
    limit = threading.Timer(PATIENCE_S, process.kill)
    limit.start()
    try:
        out, err = process.communicate()
    finally:
        limit.cancel()
    return Done(process.wait(), out, err)


def _check(done: Done, text: str, expected: str, place: str) -> None:
    told = f"{place}: {text}\n--- printed\n{done.out}--- errors\n{done.err}"
    assert done.code == 0, f"exit code {done.code}\n{told}"
    assert not expected or matches(expected, done.out), f"--- expected\n{expected}\n{told}"
