"""Several commands of graphflow in one process, one after the other: `python -m tests.cli.in_turn '[["agents"], …]'`.

Starting an interpreter costs most of what a command takes. Before each one a line says which it is.
"""

from __future__ import annotations

import json
import logging
import sys

from graphflow.cli.terminal.console import make_streams_usable
from tests.cli.processes import command_tree

BEGIN = "=== command"


def main(commands: list[list[str]]) -> None:
    make_streams_usable()
    for number, arguments in enumerate(commands):
        print(f"{BEGIN} {number}", flush=True)  # noqa: T201
        try:
            command_tree().main(args=arguments, prog_name="graphflow")
        except SystemExit:
            sys.stdout.flush()
            sys.stderr.flush()
        logging.getLogger().handlers.clear()  # each command sets logging up for its process


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
