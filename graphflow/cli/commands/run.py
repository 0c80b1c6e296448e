"""`graphflow run`: one turn."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphflow.cli.command import command, stop
from graphflow.cli.terminal import exit_codes as exits


def register(app: typer.Typer) -> None:
    command(app, "run")(run)


Agent = Annotated[str, typer.Argument(metavar="AGENT", help="An agent's key, or a .json file.")]
Budget = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="FIGURE=VALUE", help="maxModelCalls=5, maxTokens=…; may be repeated."),
]
Approve = Annotated[
    str, typer.Option("--approve", metavar="ask|deny|all|RULES.json", help="Who approves tool calls that need it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on stdout.")]
AsLines = Annotated[bool, typer.Option("--jsonl", help="Every event as a line of JSON on stdout.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Active time that the run may take.")
]


async def run(
    agent: Agent,
    message: Annotated[str | None, typer.Argument(metavar="MSG", help="The input; - reads stdin.")] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this thread.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--input", metavar="K=V|@FILE", help="Further input fields; may be repeated.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="K=V|@FILE", help="State to set first; may be repeated.")
    ] = None,
    budget: Budget = None,
    approve: Approve = "ask",
    time_limit: Timeout = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> int:
    """Run one turn of an agent; on a pipe, stdout is the final text alone."""
    from graphflow.cli.argument_values import message_text, pairs
    from graphflow.cli.startup import agent_named, opened
    from graphflow.cli.terminal.answer_policy import policy_of
    from graphflow.cli.terminal.plain_view import view_of
    from graphflow.cli.terminal.turn_driver import TurnDriver, begin, code_of

    if thread == "":
        stop(exits.USAGE, "--thread is empty; it takes the id of a thread")
    fields = pairs(given or (), "--input")
    if (text := message_text(message)) is not None:
        fields["query"] = text
    presets, figures, policy = pairs(state or (), "--state"), figures_of(budget, time_limit), policy_of(approve)
    async with opened() as app:
        loaded = agent_named(app, agent)
        if loaded.mode != "GRAPH" and not fields.get("query"):
            stop(
                exits.USAGE,
                f"agent {agent!r} needs a message",
                hint=f'graphflow run {agent} "MSG"; with - it is read from stdin',
            )
        graph = app.compiled(loaded)
        thread_id = thread or app.ids.new_id()
        view = view_of(as_json=as_json, as_lines=as_lines, title=f"{graph.agent_key} · thread {thread_id}")
        turn = TurnDriver(graph=graph, thread_id=thread_id, policy=policy, view=view, presets=presets)
        title = text[:80] if text else None
        result = await turn.drive(begin(graph, fields, thread_id, presets, budget=figures, title=title))
        return code_of(result, policy)


def figures_of(budget: list[str] | None, timeout: float | None = None) -> dict[str, Any]:
    """The budget of the flags, as a request gives it; `--timeout` is its `timeoutMs`."""
    from graphflow.cli.argument_values import pairs

    figures = pairs(budget or (), "--budget")
    for name, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            stop(exits.USAGE, f"--budget {name} takes a number, not {value!r}")
    if timeout is not None:
        figures["timeoutMs"] = max(1, round(timeout * 1000))
    return figures
