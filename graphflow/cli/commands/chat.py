"""`graphflow chat`: a conversation at the terminal, on one thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from graphflow.cli.command import command, report, stop
from graphflow.cli.commands.run import Agent, Approve, Budget, figures_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import interactive, note, say

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from graphflow.cli.commands.chat_commands import Chat
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
    from graphflow.cli.commands.chat_commands import Chat, Leave
    from graphflow.cli.startup import agent_named, opened, thread_named
    from graphflow.cli.terminal.answer_policy import policy_of

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

    from graphflow.cli.commands.chat_commands import COMMANDS

    folder = talk.app.settings.store.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    words = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
    return PromptSession(
        history=FileHistory(str(folder / ".chat_history")), completer=words, complete_while_typing=False
    )


class _Interrupts:
    """Ctrl-C while a conversation runs: it ends a turn, and is remembered between turns.

    A plain signal handler, not the loop's: prompt_toolkit puts back what it finds after each line, and only that.
    """

    def __init__(self, prompt: PromptSession[str]) -> None:
        import asyncio
        import signal

        self._prompt = prompt
        self.presses = 0
        self.turn: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(self._pressed))

    def _pressed(self) -> None:
        self.presses += 1
        if self.turn is not None:
            self.turn.cancel()
        else:
            self.wake()

    def wake(self) -> None:
        """Ends the input line for a press that came before it could read keys."""
        line = self._prompt.app
        if self.presses and line.future is not None and not line.future.done():
            line.exit(exception=KeyboardInterrupt)

    def restore(self) -> None:
        import signal

        signal.signal(signal.SIGINT, self._before)


async def _converse(talk: Chat, prompt: PromptSession[str]) -> None:
    """Lines until the person leaves."""
    from graphflow.errors import GraphflowError

    interrupts = _Interrupts(prompt)
    try:
        if await talk.waits():
            await _turn(talk, None, interrupts)
        while (line := await _next_line(prompt, interrupts)) is not None:
            try:
                events = await talk.obey(line) if line.startswith("/") else talk.begin(line)
                if events is not None:
                    await _turn(talk, events, interrupts)
            except GraphflowError as error:
                report(error, talk.thread_id)
            except typer.Exit:
                pass  # a command that could not be done has said so; only /quit leaves
    finally:
        interrupts.restore()


async def _next_line(prompt: PromptSession[str], interrupts: _Interrupts) -> str | None:
    """The next line that says something; None when the person leaves: Ctrl-D, or Ctrl-C twice."""
    warned = False
    while True:
        try:
            line = (await prompt.prompt_async("› ", pre_run=interrupts.wake)).strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            interrupts.presses = 0
            if warned:
                return None
            warned = True
            note("Ctrl-C once more leaves")
            continue
        warned = False
        if line:
            return line


async def _turn(talk: Chat, events: AsyncIterator[Event] | None, interrupts: _Interrupts) -> None:
    """One turn; Ctrl-C ends it and comes back to the input line, a second one leaves."""
    import asyncio

    from graphflow.cli.commands.chat_commands import Leave

    interrupts.presses = 0
    async with asyncio.TaskGroup() as group:
        interrupts.turn = group.create_task(talk.turn(events))
        try:
            await asyncio.wait([interrupts.turn])
        finally:
            interrupts.turn = None
    presses, interrupts.presses = interrupts.presses, 0
    if presses > 1:
        raise Leave
