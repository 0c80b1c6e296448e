"""Runs every case of graphflow and of the yardsticks once, in small, in this process: whether the benchmarks still run.

python benchmarks/check.py               # `run.py --tiny` does the same with the peers, in processes of their own
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import tempfile
from dataclasses import replace
from pathlib import Path

from environments import OURS
from harness import Place
from run import Databases, fits
from worker import case_of
from workloads import WORKLOADS, Workload, tiny


async def once(workload: Workload, place: Place, system: str) -> None:
    """One run of one system's case; raises what the case raises.

    Raises:
        LookupError: the system has no such case.
    """
    case = case_of(importlib.import_module(f"systems.{system}"), workload.case)
    if case is None:
        raise LookupError(f"systems/{system} has no case {workload.case!r}, which {workload.name!r} asks of it")
    for phase in ("pause", "resume") if workload.group == "cold" else ("",):
        async with case(replace(place, phase=phase)) as timed:
            await timed.run()
            if timed.facts is not None:
                timed.facts()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="workloads: names or patterns with *, by commas")
    options = parser.parse_args()
    chosen = [tiny(workload) for workload in WORKLOADS if fits(workload.name, options.only)]
    databases = Databases(None, {"fsync": "off"}) if any(workload.store == "postgres" for workload in chosen) else None
    count = 0
    try:
        for workload in chosen:
            for named in workload.systems:
                system, _, variant = named.partition(":")
                if system not in OURS:
                    continue
                url = databases.take() if databases and workload.store == "postgres" else ""
                with tempfile.TemporaryDirectory() as folder:
                    psql = databases.psql if databases else ""
                    place = Place(workload.params, workload.store, variant, Path(folder), "", url, psql)
                    asyncio.run(once(workload, place, system))
                count += 1
    finally:
        if databases is not None:
            databases.close()
    print(f"{count} cases of {len(chosen)} workloads ran")


if __name__ == "__main__":
    main()
