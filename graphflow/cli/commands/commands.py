"""`graphflow commands`: every command with its arguments and options, for programs that build a menu or complete words."""

from __future__ import annotations

from typing import Any

import typer  # noqa: TC002 - typer reads the annotation

from graphflow.cli.command import command, root
from graphflow.cli.options import AsJson
from graphflow.cli.terminal.console import say_json, say_table


@command(root, "commands")
def commands(context: typer.Context, as_json: AsJson = False) -> None:
    """List every command; --json adds arguments, options and defaults."""
    found = list(_commands(context.find_root().command, ()))
    if as_json:
        say_json(found)
    else:
        say_table(("command", "does"), [(one["command"], one["help"].partition("\n")[0]) for one in found])


def _commands(made: Any, words: tuple[str, ...]) -> list[dict[str, Any]]:
    inner: dict[str, Any] = getattr(made, "commands", {})
    if inner:
        return [line for name, one in inner.items() for line in _commands(one, (*words, name))]
    parameters = [_parameter(one) for one in made.params if not getattr(one, "hidden", False)]
    return [{"command": " ".join(words), "help": (made.help or "").strip(), "parameters": parameters}]


def _parameter(one: Any) -> dict[str, Any]:
    default = one.default if isinstance(one.default, str | int | float | bool) else None
    out = {
        "name": one.opts[0],
        "also": [*one.opts[1:], *one.secondary_opts],
        "kind": one.param_type_name,
        "type": "flag" if getattr(one, "is_flag", False) else getattr(getattr(one, "type", None), "name", None),
        "takes": one.metavar,
        "help": getattr(one, "help", None),
        "required": one.required,
        "repeatable": one.multiple if one.param_type_name == "option" else one.nargs == -1,
        "default": default,
    }
    return {key: value for key, value in out.items() if value not in (None, [], "")}
