"""`graphflow chat`: a conversation at the terminal, on one thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from graphflow.cli import exits
from graphflow.cli.commands import command, report, stop
from graphflow.cli.console import interactive, note, say
from graphflow.cli.run import Agent, Approve, Budget, figures_of

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from graphflow.cli.chat_commands import Chat
    from graphflow.events import Event


def register(app: typer.Typer) -> None:
    command(app, "chat")(chat)


async def chat(
    agent: Agent,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this thread.")] = None,
    approve: Approve = "ask",
    budget: Budget = None,
) -> int:
    """Talk with an agent; /help lists the commands, Ctrl-C stops a turn, twice leaves."""
    if not interactive():
        stop(exits.USAGE, "chat needs a terminal", hint=f'graphflow run {agent} "MSG" --thread ID')
    from graphflow.cli.approvals import policy_of
    from graphflow.cli.chat_commands import Chat, Leave
    from graphflow.cli.opening import agent_named, opened, thread_named

    policy, figures = policy_of(approve), figures_of(budget)
    async with opened() as app:
        loaded = agent_named(app, agent)
        thread_id = (await thread_named(app, thread)).id if thread else app.ids.new_id()
        talk = Chat(app, loaded, thread_id, policy, figures)
        say(f"{loaded.name} · thread {thread_id} · /help")
        try:
            await _converse(talk, _prompt(talk))
        except Leave:
            pass
        note(f"thread {talk.thread_id}; `graphflow chat {agent} --thread {talk.thread_id}` goes on")
    return exits.OK


def _prompt(talk: Chat) -> PromptSession[str]:
    """The input line, with a history that outlives the process."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    from graphflow.cli.chat_commands import COMMANDS

    folder = talk.app.settings.store.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    words = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
    return PromptSession(
        history=FileHistory(str(folder / ".chat_history")), completer=words, complete_while_typing=False
    )


async def _converse(talk: Chat, prompt: PromptSession[str]) -> None:
    """Lines until the person leaves."""
    from graphflow.errors import GraphflowError

    pressed = False
    if await talk.waits():
        await _turn(talk, None)
    while True:
        try:
            line = (await prompt.prompt_async("› ")).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if pressed:
                return
            pressed = True
            note("Ctrl-C once more leaves")
            continue
        pressed = False
        if not line:
            continue
        try:
            if line.startswith("/"):
                if (events := await talk.obey(line)) is not None:
                    await _turn(talk, events)
            else:
                await _turn(talk, talk.begin(line))
        except GraphflowError as error:
            report(error, talk.thread_id)


async def _turn(talk: Chat, events: AsyncIterator[Event] | None) -> None:
    """One turn; Ctrl-C ends it and comes back to the input line, a second one leaves."""
    import asyncio
    import signal

    from graphflow.cli.chat_commands import Leave

    loop = asyncio.get_running_loop()
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        task.cancel()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(talk.turn(events))
        loop.add_signal_handler(signal.SIGINT, pressed)
        try:
            await asyncio.wait([task])
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            # prompt_toolkit and the rest of the process see Ctrl-C as before.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if presses:
            note("stopped")
    if presses > 1:
        raise Leave
