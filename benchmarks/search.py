"""What `LS`, `Glob` and `Grep` cost beside the plain operation, in interleaved rounds; prints the medians and their ratios.

Of what runs in this process the CPU time counts, of programs the time on the clock.

python benchmarks/search.py                 100,000 files; --files 5000 for a quick look
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from graphflow.tools.coding import grep as grep_module
from graphflow.tools.coding.glob import MAX_VISITED
from graphflow.tools.result import ToolResult
from graphflow.tools.search.file_walk import Looked, files_below
from graphflow.tools.search.ignore_rules import IgnoreRules
from graphflow.tools.search.patterns import compiled_glob, name_of_glob
from graphflow.tools.search.ripgrep import Ripgrep, find_ripgrep
from graphflow.tools.workspace import Workspace

ROUNDS = 7
ENTRIES = 20_000


def tree(root: Path, files: int) -> None:
    """Files of some lines, a hundred in each folder; one of 5,000 holds the word that is searched."""
    for number in range(files):
        folder = root / f"part{number // 2_000}" / f"module{number // 100}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        word = "needle" if number % 5_000 == 7 else "hay"
        (folder / f"file{number}.py").write_text(f"import os\n\n\ndef call():\n    return '{word}'\n" * 4)


def scan(root: Path) -> int:
    """The plain walk: what is there, and which of it are folders."""
    count, left = 0, [str(root)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
    return count


def walk(root: Path) -> int:
    with Workspace(root).walk(max_entries=MAX_VISITED, max_s=600) as found:
        looked = Looked(pattern=compiled_glob("**/nothing.py"), name=name_of_glob("**/nothing.py"))
        return len(list(files_below(found, IgnoreRules(found.read), looked)))


def listed(root: Path) -> int:
    with Workspace(root).walk(max_entries=MAX_VISITED, max_s=600) as found:
        count, left = 0, [""]
        while left:
            folder = left.pop()
            listing = found.listing(folder)
            assert listing is not None
            count += len(listing.files) + len(listing.folders)
            left += [f"{folder}/{name}" if folder else name for name in listing.folders]
        return count


def rg(root: Path, *words: str) -> int:
    return subprocess.run([str(find_ripgrep()), *words], cwd=root, stdout=subprocess.DEVNULL, check=False).returncode


def grep(root: Path) -> ToolResult:
    found = grep_module._Search(workspace=Workspace(root), arguments={"pattern": "needle"}, ripgrep=Ripgrep()).result()
    assert "stopped" not in found.text, found.text
    return found


def compare(
    name: str, ours: Callable[[], object], plain: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS * 2 + 2):
        begin = clock()
        (ours, plain)[turn % 2]()
        if turn > 1:  # the first of each warms the caches
            times[turn % 2].append(clock() - begin)
    mine, other = map(statistics.median, times)
    print(f"{name}: {mine * 1000:.0f} ms, plain {other * 1000:.0f} ms, ratio {mine / other:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    grep_module.MAX_S = 600.0  # a search that is cut short would look fast
    folder = Path(tempfile.mkdtemp(prefix="graphflow-search-"))
    try:
        large, small = folder / "large", folder / "small"
        files = parser.parse_args().files
        tree(large, files)
        tree(small, min(files, ENTRIES))
        compare("Glob beside os.scandir", lambda: walk(small), lambda: scan(small), time.process_time)
        compare("LS of every folder beside os.scandir", lambda: listed(small), lambda: scan(small), time.process_time)
        for part in small.glob("part*"):
            (part / ".gitignore").write_text("*.log\nbuild/\n/module*7/\n")
        compare(
            "Glob with ignore files beside rg --files",
            lambda: walk(small),
            lambda: rg(small, "--files", "--no-require-git"),
        )
        compare("Grep beside rg", lambda: grep(large), lambda: rg(large, "needle"))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
