"""`graphflow chat`: a conversation at the terminal, on one thread, and its commands (`/rewind`, `/fork`, …)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphflow.capabilities import LOCAL
from graphflow.cli.command import command, report, report_defect, root
from graphflow.cli.options import Agent, Approve, As, Budget, ContinueThread
from graphflow.cli.startup import agent_named, checkpoint_named, opened, thread_named
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.argument_values import budget_of
from graphflow.cli.terminal.console import interactive, note, say, say_json, say_table, stop
from graphflow.cli.terminal.lines_file import write_lines
from graphflow.cli.terminal.question_text import Leave, is_question, question_line
from graphflow.cli.terminal.steps import path_taken, say_drawing, say_steps, step_dict
from graphflow.errors import GraphflowError, ThreadNotFound, ThreadWaiting
from graphflow.private_files import make_private_file, make_private_folder
from graphflow.suggestions import meant

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from graphflow.agents.loader import LoadedAgent
    from graphflow.cli.terminal.answer_policy import Policy
    from graphflow.events import Event
    from graphflow.graph.core.machine import Interrupt
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.thread import Thread
    from graphflow.service.application import Application

Events = AsyncIterator["Event"]

CHOICES = ("reuse", "rerun", "undo")
"""What to do with write effects that are rewound."""


def _choice(words: list[str]) -> tuple[str | None, list[str]]:
    """The effect choice among a command's words, and the other words."""
    return next((word for word in words if word in CHOICES), None), [word for word in words if word not in CHOICES]


class Chat:
    """One conversation: the agent, the thread, and what the commands do to them."""

    def __init__(
        self, app: Application, agent: LoadedAgent, thread_id: str, policy: Policy, limits: dict[str, Any]
    ) -> None:
        self.app, self.agent, self.thread_id = app, agent, thread_id
        self.policy, self.limits = policy, limits
        # Once for the conversation: between two turns only `/model` changes what runs.
        self.graph: CompiledGraph = app.compiled(agent)

    @property
    def thread(self) -> Thread:
        return self.graph.thread(self.thread_id)

    # --- turns

    def begin(self, text: str) -> Events:
        """The events of a new turn."""
        from graphflow.service.runs.query import automatic_title

        return self.graph.stream(
            {"query": text}, self.thread_id, budget=self.limits, title=automatic_title(text) or None, by=self.policy.by
        )

    async def turn(self, events: Events | None) -> Events | None:
        """Shows a turn to its end, questions included."""
        from graphflow.cli.terminal.turn_driver import TurnDriver, view_of

        turn = TurnDriver(
            graph=self.graph,
            thread_id=self.thread_id,
            policy=self.policy,
            view=view_of(),
            stopped="stopped; /resume continues",
        )
        await turn.drive(events)
        return None

    async def survive(self, work: Awaitable[Events | None]) -> Events | None:
        """What the work gives; None after an error, which is printed: none of them ends the conversation."""
        try:
            return await work
        except Leave:
            raise
        except ThreadWaiting as error:
            if error.detail.get("writes"):
                note("not sent: the last run was cut off in the middle of a write; /resume asks what became of it")
                return None
            note("not sent: this thread waits for an answer")
            await self._say_open()
        except GraphflowError as error:
            report(error, self.thread_id)
        except typer.Exit:
            pass  # the command has printed why; only /quit leaves
        except Exception as error:  # noqa: BLE001 - a defect of one turn is no reason to lose the conversation
            report_defect(error)
        return None

    async def _say_open(self) -> tuple[Interrupt, ...]:
        """Prints the open questions, and what answers them."""
        open_ = (await self.thread.state()).interrupts
        for interrupt in open_:
            note(f"  {question_line(interrupt)}")
        if any(is_question(interrupt.kind) for interrupt in open_):
            note(
                "/resume asks; /approve, /reject WHY and /edit answer an approval; /rewind, or /fork from an earlier checkpoint, goes on without it"
            )
        elif open_:
            note("/resume continues when it is due; /rewind, or /fork from an earlier checkpoint, goes on without it")
        return open_

    async def begun(self) -> bool:
        """Whether the thread exists yet."""
        await self.app.runs.ready()
        return await self.app.store.thread(self.thread_id) is not None

    async def waits(self) -> bool:
        """Whether the thread waits for an answer."""
        return await self.begun() and (await self.thread.state()).status == "waiting"

    # --- commands

    async def obey(self, line: str) -> Events | None:
        """Runs a `/command`; the events of a turn if it starts one."""
        # `/` alone has no words.
        name, *words = line[1:].split() or [""]
        if name not in COMMANDS:
            note(f"unknown command /{name}; commands are {', '.join('/' + known for known in COMMANDS)}")
            if near := meant(name, COMMANDS):
                note(near)
            return None
        if name in _NEED_THREAD and not await self.begun():
            note("this thread has no turns yet")
            return None
        # An answer is text, in which two spaces are two.
        return await COMMANDS[name](self, [line[1:].strip()[len(name) :].strip()] if name in _TEXT else words)

    async def rewind(self, words: list[str]) -> None:
        """[CHECKPOINT|N] [reuse|rerun|undo]: go back to a checkpoint, or N turns; the history is kept."""
        effects, words = _choice(words)
        words = words or ["1"]
        # A short number counts turns. The end of an id may be digits only as well, but people copy eight of them.
        counted = words[0].isdecimal() and len(words[0]) < 4
        if counted and not int(words[0]):
            note("/rewind counts turns from 1")
            return
        checkpoint = await self._turns_back(int(words[0])) if counted else words[0]
        if checkpoint is None:
            # No checkpoint lies before the first input, so there is none to go back to; the old thread stays in the store.
            self.thread_id = self.app.ids.new_id()
            say(f"nothing comes before the first turn; this is a new thread, {self.thread_id}")
            return
        at = await checkpoint_named(self.thread, checkpoint)
        await self.thread.rewind(at.id, effects=effects, by=self.policy.by)
        say(f"back at step {at.step} ({at.node or at.source}); /resume continues from here, or send a new message")

    async def _turns_back(self, count: int) -> str | None:
        """The checkpoint before the last `count` inputs; None before the first."""
        # Newest first: the last turn is the first of them.
        inputs = [row for row in await self.thread.history() if row.source == "input"]
        return inputs[count - 1].parent if count <= len(inputs) else None

    async def fork(self, words: list[str]) -> None:
        """[CHECKPOINT] [reuse|rerun]: continue in a new thread that shares the history."""
        effects, words = _choice(words)
        at = await checkpoint_named(self.thread, words[0] if words else "head")
        old, forked = self.thread_id, await self.thread.fork(at.id, effects=effects, by=self.policy.by)
        self.thread_id = forked.id
        say(f"now on thread {forked.id}; {old} is unchanged")

    async def resume(self, words: list[str]) -> Events | None:
        """Continue an unfinished run, or answer what it asks."""
        from graphflow.cli.terminal.turn_driver import no_events

        # A thread that waits can't be resumed, only answered: a turn without events begins with its questions.
        if not await self.waits():
            return self.graph.stream_resume(self.thread_id, budget=self.limits, by=self.policy.by)
        self.policy.ask_again()
        return no_events()

    async def approve(self, words: list[str]) -> Events | None:
        """Run the call that waits for approval."""
        return await self._answer("/approve", words)

    async def reject(self, words: list[str]) -> Events | None:
        """[WHY]: do not run it; the model gets the reason."""
        return await self._answer("/reject", words)

    async def edit(self, words: list[str]) -> Events | None:
        """[JSON]: run it with other arguments."""
        return await self._answer("/edit", words)

    async def _answer(self, name: str, words: list[str]) -> Events | None:
        """Asks the open questions, the first of them with its answer typed already."""
        if not await self.waits():
            note(f"no question is open; {name} answers one")
            return None
        self.policy.typed = " ".join([name, *words]).strip()
        return await self.resume([])

    async def later(self, words: list[str]) -> None:
        """Leave the question open; the inbox keeps it."""
        if not await self._say_open():
            note("no question is open")

    async def state(self, words: list[str]) -> None:
        """[KEY]: the state, or one key."""
        from graphflow.graph.core.immutable import thaw

        values = {key: thaw(value) for key, value in (await self.thread.state()).values.items()}
        say_json({key: values.get(key) for key in words} if words else values)

    async def draw(self, words: list[str]) -> None:
        """The graph, with the path that the run took."""
        say_drawing(self.agent.checked.document, await path_taken(self.thread) if await self.begun() else None)

    async def history(self, words: list[str]) -> None:
        """The thread's checkpoints."""
        head = (await self.thread.state()).checkpoint_id
        rows = (await self.thread.history(40))[::-1]
        say_steps([step_dict(row, {}, is_head=row.id == head) for row in rows])

    async def tools(self, words: list[str]) -> None:
        """The agent's tools."""
        # A tool file may be gone since the agent was loaded.
        found = [self.app.tools.get(name) for name in self.agent.tools]
        rows = [
            (tool.name, tool.effects, (tool.description or "").split("\n")[0]) for tool in found if tool is not None
        ]
        if rows:
            say_table(("tool", "effects", "description"), rows)
        else:
            note("this agent has no tools")

    async def model(self, words: list[str]) -> None:
        """[NAME]: show the model, or use another one from the next turn on."""
        if words:
            # A copy under the same key: the registered agent, and with it every other thread, keeps its model.
            self.agent = self.app.load({**self.agent.data, "key": self.agent.key, "model": words[0]})
            self.graph = self.app.compiled(self.agent)
        from graphflow.models.providers import resolve_provider

        chosen = resolve_provider(self.agent.provider_key, self.app.settings.environ, self.app.settings.providers)
        say(f"{chosen.key}: {self.agent.model or chosen.model}")

    async def save(self, words: list[str]) -> None:
        """[FILE]: write the thread as JSON Lines."""
        path = Path(words[0] if words else f"{self.thread_id}.jsonl")
        await write_lines(path, self.app.store.export_thread(self.thread_id))
        say(f"saved to {path}")

    async def help(self, words: list[str]) -> None:
        """This list."""
        # The docstrings are the help, so neither can be forgotten when a command changes.
        for name, obey in COMMANDS.items():
            say(f"/{name:<8} {obey.__doc__}", indent=" " * 10)
        note("a line without / is a message; at a question: a letter, /later, /quit, or /help")

    async def quit(self, words: list[str]) -> None:
        """Quit; the thread is kept."""
        raise Leave


COMMANDS: dict[str, Callable[[Chat, list[str]], Awaitable[Events | None]]] = {
    "rewind": Chat.rewind,
    "fork": Chat.fork,
    "resume": Chat.resume,
    "approve": Chat.approve,
    "reject": Chat.reject,
    "edit": Chat.edit,
    "later": Chat.later,
    "state": Chat.state,
    "graph": Chat.draw,
    "history": Chat.history,
    "tools": Chat.tools,
    "model": Chat.model,
    "save": Chat.save,
    "help": Chat.help,
    "quit": Chat.quit,
}
# A thread begins with its first message; before that these have nothing to read.
_NEED_THREAD = frozenset("rewind fork resume approve reject edit later state history save".split())
_TEXT = frozenset({"reject", "edit"})


@command(root, "chat")
async def chat(
    agent: Agent, thread: ContinueThread = None, approve: Approve = "ask", budget: Budget = None, by: As = LOCAL
) -> int:
    """Chat with an agent. /help lists the commands; Ctrl-C stops a turn, twice quits."""
    if not interactive():
        stop(exits.USAGE, "chat needs a terminal", hint=f'graphflow run {agent} "MSG" --thread ID')
    from graphflow.cli.terminal.answer_policy import policy_of

    # Read before the store is opened: wrong usage should cost nothing and touch nothing.
    if thread == "":
        stop(exits.USAGE, "--thread is empty; it takes a thread id")
    policy, limits = policy_of(approve, by), budget_of(budget)
    async with opened() as app:
        loaded = agent_named(app, agent)
        thread_id = app.ids.new_id() if thread is None else await _continued(app, thread)
        talk = Chat(app, loaded, thread_id, policy, limits)
        say(f"{loaded.name} · thread {thread_id} · /help")
        try:
            await _converse(talk, _prompt(talk))
        except Leave:
            pass
        note(f"thread {talk.thread_id}; `graphflow chat {agent} --thread {talk.thread_id}` continues")
    return exits.OK


async def _continued(app: Application, given: str) -> str:
    """The thread's id; as with `run`, one that nothing has begins a thread."""
    try:
        return (await thread_named(app, given)).id
    except ThreadNotFound as error:
        if error.code != "thread_not_found" or await app.store.thread(given) is not None:
            raise
        note(f"thread {given!r} does not exist yet; it begins with your first message")
        return given


def _prompt(talk: Chat) -> PromptSession[str]:
    """The input line, with a history that outlives the process."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    class Kept(FileHistory):
        """A line that can't be kept, or a history that can't be read, is no reason to end the conversation."""

        def load_history_strings(self) -> list[str]:
            with contextlib.suppress(OSError):
                return list(super().load_history_strings())
            return []

        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError, UnicodeError):
                super().store_string(string)

    folder = talk.app.settings.store.path.parent
    make_private_folder(folder)
    history = folder / ".chat_history"
    with contextlib.suppress(OSError):
        make_private_file(history)
    # On Tab only: a menu that opens while somebody types covers what the agent said.
    words = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
    return PromptSession(history=Kept(str(history)), completer=words, complete_while_typing=False)


class _Interrupts:
    """Ctrl-C while a conversation runs: it ends a turn, and is remembered between turns.

    A plain signal handler, not the loop's: prompt_toolkit puts back what it finds after each line, and only that.
    """

    def __init__(self, prompt: PromptSession[str]) -> None:
        import asyncio
        import signal

        self._prompt = prompt
        self.presses = 0
        self.turn: asyncio.Task[Events | None] | None = None
        loop = asyncio.get_running_loop()
        self._before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(self._pressed))

    def _pressed(self) -> None:
        self.presses += 1
        if self.turn is not None:
            self.turn.cancel()
        else:
            self.wake()

    def wake(self) -> None:
        """Ends the input line for a press that came before the line could read keys."""
        line = self._prompt.app
        if self.presses and line.future is not None and not line.future.done():
            line.exit(exception=KeyboardInterrupt)

    def restore(self) -> None:
        import signal

        signal.signal(signal.SIGINT, self._before)


async def _converse(talk: Chat, prompt: PromptSession[str]) -> None:
    """Lines until the person leaves."""
    interrupts = _Interrupts(prompt)
    try:
        if await talk.waits():
            await _turn(talk, None, interrupts)
        while (line := await _next_line(prompt, interrupts)) is not None:
            events = await talk.survive(talk.obey(line)) if line.startswith("/") else talk.begin(line)
            if events is not None:
                await _turn(talk, events, interrupts)
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
            note("press Ctrl-C again to quit")
            continue
        # Only two presses in a row leave; any line in between starts over.
        warned = False
        if line:
            return line


async def _turn(talk: Chat, events: Events | None, interrupts: _Interrupts) -> None:
    """One turn; Ctrl-C ends it and comes back to the input line, a second one leaves."""
    import asyncio

    interrupts.presses = 0
    async with asyncio.TaskGroup() as group:
        # A task of its own, so that Ctrl-C has something to cancel.
        interrupts.turn = group.create_task(talk.survive(talk.turn(events)))
        try:
            # Waited for, not awaited: the cancel of a turn must not become the cancel of the conversation.
            await asyncio.wait([interrupts.turn])
        finally:
            interrupts.turn = None
    presses, interrupts.presses = interrupts.presses, 0
    # The second press came while the turn was still stopping.
    if presses > 1 or talk.policy.quit:
        raise Leave
