"""One process: one workload of one system. `measure.py` speaks to it over stdin and stdout, a JSON line at a time."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Place

Say = Callable[[dict[str, Any]], None]


def memory_kib(key: str) -> int:
    """A figure of this process's memory; 0 where the system has no `/proc`."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(key)), 0)


def forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pass


def version(distribution: str) -> str:
    import importlib.metadata  # here: its time is no system's

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(from source)"


def case_of(module: Any, name: str) -> Any:
    """The case of this name; of a system with several modules only the one that has it is loaded, as a program would."""
    for home, names in getattr(module, "HOMES", {}).items():
        if name in names:
            module = importlib.import_module(f"{module.__name__}.{home}")
    return getattr(module, "CASES", {}).get(name)


async def serve(case: Any, place: Place, repeat: int, say: Say) -> None:
    async with case(place) as timed:
        say({"ready": True})
        while (await asyncio.to_thread(sys.stdin.readline)).strip() == "run":
            gc.collect()
            forget_peak()
            before = memory_kib("VmRSS")
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(repeat):
                facts = await timed.run()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            grown = max(0, memory_kib("VmHWM") - before) / 1024
            facts = {**(facts or {}), **(timed.facts() if timed.facts else {})}
            say({"wall": wall / repeat, "cpu": cpu / repeat, "grown_mib": grown, **facts})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--params", default="{}")
    parser.add_argument("--store", default="")
    parser.add_argument("--url", default="")
    parser.add_argument("--psql", default="")
    parser.add_argument("--variant", default="")
    parser.add_argument("--phase", default="")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a system prints goes to stderr
    logging.disable(logging.WARNING)

    def say(words: dict[str, Any]) -> None:
        out.write(json.dumps(words) + "\n")
        out.flush()

    try:
        module = importlib.import_module(f"systems.{options.system}")
        if options.case == "versions":
            say({"versions": {name: version(name) for name in module.PACKAGES}})
        elif (case := case_of(module, options.case)) is None:
            say({"unsupported": True})
        else:
            place = Place(
                json.loads(options.params), options.store, options.variant, options.folder, options.phase, options.url,
                options.psql,
            )  # fmt: skip
            asyncio.run(serve(case, place, options.repeat, say))
    except BaseException as error:  # noqa: BLE001 – told to the parent, which goes on with the others
        traceback.print_exc()
        say({"error": f"{type(error).__name__}: {error}"[:300]})
    os._exit(0)  # do not wait for threads that a system leaves behind


if __name__ == "__main__":
    main()
