"""Ignore rules: they say what `git check-ignore` says."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from graphflow.tools.search.file_walk import Looked, files_below, is_looked_at
from graphflow.tools.search.ignore_rules import MAX_BYTES, IgnoreRules
from graphflow.tools.workspace import ProtectedFiles, Workspace
from tests.campaign import size

NAMES = ["a", "b", "ab", "keep", "é", "x.log", "a b", "[a]", "!a", "#a", "a\\b", "-", "a ", "B"]
PARTS = [
    "a", "b", "*", "**", "?", "keep", "x.log", "*.log", "[ab]", "[!a]", "ab", "a*", "*b", "é", "[a-z]", "\\a", "a\\ ", "!a",
    "#a", "[]a]", "[[:alpha:]]", "a ", "[a", "\\", "*a*b*", "??", "[^b]", "[z-a]", "a**", "**b", "[\\]a]", "[a-]",
    "[[:none:]]", "[a/b]", "??é",
]  # fmt: skip


def line(random: random.Random) -> str:
    text = "/".join(random.choice(PARTS) for _ in range(random.choice([1, 1, 1, 2, 2, 3])))
    text = random.choice(["", "", "", "", "/"]) + text + random.choice(["", "", "", "/"])
    return random.choice(["", "", "!"]) + text + random.choice([""] * 12 + [" ", "  ", "\\ ", "\r", "\t"])


def rules(random: random.Random, most: int) -> str:
    mark = random.choice(["", "", "\ufeff"])
    return mark + "\n".join(line(random) for _ in range(random.randint(1, most))) + random.choice(["", "\n"])


def tree(root: Path, random: random.Random) -> list[str]:
    """A repository with random files and rules; the paths of its files."""
    subprocess.run(["git", "init", "-q", root], check=True)
    folders, files = [""], []
    for count in range(30):
        path = f"{random.choice(folders)}/{random.choice(NAMES)}".lstrip("/")
        if (root / path).exists():
            continue
        if count < 7:
            (root / path).mkdir()
            folders.append(path)
        else:
            (root / path).touch()
            files.append(path)
    for folder in folders:
        if not folder or random.random() < 0.3:
            (root / folder / ".gitignore").write_text(rules(random, 5), encoding="utf-8")
    if random.random() < 0.3:
        (root / ".git/info/exclude").write_text(rules(random, 3), encoding="utf-8")
    return files


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(size(40, long=2_000)))
def test_random_rules_hide_what_git_hides(tmp_path: Path, seed: int):
    files = tree(tmp_path, random.Random(seed))
    asked = ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "-z", "--stdin", "--no-index"]
    answer = subprocess.run(asked, cwd=tmp_path, input="\0".join(files).encode(), capture_output=True, check=False)
    hidden = set(answer.stdout.decode().split("\0")[:-1])
    with Workspace(tmp_path, protected=ProtectedFiles(names=False)).walk() as walk:
        looked, ignore = Looked(), IgnoreRules(walk.read)
        assert set(files_below(walk, ignore, looked)) == set(files) - hidden
        assert {file for file in files if is_looked_at(file, walk, ignore, looked)} == set(files) - hidden


def shown(root: Path, start: str = ".") -> list[str]:
    with Workspace(root).walk(start) as walk:
        return list(files_below(walk, IgnoreRules(walk.read), Looked(hidden=True)))


def put(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def test_rules_count_without_a_repository_and_only_inside_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither what is above the root counts, nor what a person ignores everywhere."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    put(tmp_path, config__git__ignore="b\n", DOTgitignore="c\n")
    root = tmp_path / "root"
    put(root, a="", b="", c="", sub__a="", sub__d="", DOTgitignore="a\n", sub__DOTgitignore="!a\nd\n")
    assert shown(root) == [".gitignore", "b", "c", "sub/.gitignore", "sub/a"]
    # Rules above the folder that is searched count, as far as the root.
    put(root, sub__e="", DOTgitignore="e\n")
    assert shown(root, "sub") == ["sub/.gitignore", "sub/a"]


def test_excludes_of_a_repository_count_after_its_ignore_files(tmp_path: Path):
    put(tmp_path, a="", b="", DOTgitignore="!a\n", DOTgit__info__exclude="a\nb\n")
    assert shown(tmp_path) == [".gitignore", "a"]


def test_rules_that_are_a_link_or_huge_are_no_way_out(tmp_path: Path):
    root = tmp_path / "root"
    put(root, a="", b="", link__a="")
    (tmp_path / "rules").write_text("b\n", encoding="utf-8")
    (root / ".gitignore").symlink_to("../rules")
    (root / "link" / ".gitignore").write_bytes(b"\xff\n" * MAX_BYTES + b"a\n")
    assert shown(root) == ["a", "b", "link/.gitignore", "link/a"]
