"""`graphflow --help` and the reference of commands list them in one order."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphflow.cli.app import COMMANDS, GROUPS, app


def test_every_command_and_group_has_its_place_in_the_order() -> None:
    assert tuple(made.name for made in app.registered_commands) == COMMANDS
    assert tuple(made.typer_instance.info.name for made in app.registered_groups if made.typer_instance) == GROUPS


@pytest.mark.parametrize("first", ["doctor", "usage", "threads_inspect"])
def test_the_order_does_not_depend_on_which_command_is_imported_first(first: str) -> None:
    code = f"import graphflow.cli.commands.{first}; from graphflow.cli.app import app; print(*(c.name for c in app.registered_commands))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.split()) == COMMANDS
