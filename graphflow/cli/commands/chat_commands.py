"""A conversation's state and its commands (`/rewind`, `/fork`, …)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from graphflow.cli.terminal.answer_policy import Policy
from graphflow.cli.terminal.console import note, say, say_json, say_table
from graphflow.cli.terminal.plain_view import view_of
from graphflow.cli.terminal.turn_driver import TurnDriver

if TYPE_CHECKING:
    from graphflow.agents.loader import LoadedAgent
    from graphflow.events import Event
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.thread import Thread
    from graphflow.service.application import Application

Events = AsyncIterator["Event"]


CHOICES = ("reuse", "rerun", "undo")
"""What may become of write effects that are gone back over."""


class Leave(Exception):
    """The person leaves the conversation."""


def _choice(words: list[str]) -> tuple[str | None, list[str]]:
    """The choice among a command's words, and the others."""
    return next((word for word in words if word in CHOICES), None), [word for word in words if word not in CHOICES]


class Chat:
    """One conversation: the agent, the thread, and what the commands do to them."""

    def __init__(
        self, app: Application, agent: LoadedAgent, thread_id: str, policy: Policy, figures: dict[str, Any]
    ) -> None:
        self.app, self.agent, self.thread_id = app, agent, thread_id
        self.policy, self.figures = policy, figures
        self.graph: CompiledGraph = app.compiled(agent)

    @property
    def thread(self) -> Thread:
        return self.graph.thread(self.thread_id)

    # --- turns

    def begin(self, text: str) -> Events:
        """The events of a new turn."""
        return self.graph.stream({"query": text}, self.thread_id, budget=self.figures, title=text[:80])

    async def turn(self, events: Events | None) -> None:
        """Shows a turn to its end, questions included."""
        turn = TurnDriver(
            graph=self.graph,
            thread_id=self.thread_id,
            policy=self.policy,
            view=view_of(),
            stopped="stopped; /resume goes on",
        )
        await turn.drive(events)

    async def begun(self) -> bool:
        """Whether the thread exists yet."""
        await self.app.runs.ready()
        return await self.app.store.thread(self.thread_id) is not None

    async def waits(self) -> bool:
        """Whether the thread waits for an answer."""
        return await self.begun() and (await self.thread.state()).status == "waiting"

    # --- commands

    async def obey(self, line: str) -> Events | None:
        """Does what a `/command` says; the events of a turn when it begins one."""
        name, *words = line[1:].split()
        if name not in COMMANDS:
            note(f"there is no /{name}; there are {', '.join('/' + known for known in COMMANDS)}")
            return None
        if name in _NEED_THREAD and not await self.begun():
            note("this thread has no turn yet")
            return None
        return await COMMANDS[name](self, words)

    async def rewind(self, words: list[str]) -> None:
        """[CHECKPOINT|N] [reuse|rerun|undo]: go back to a checkpoint, or N turns; nothing said is lost."""
        effects, words = _choice(words)
        words = words or ["1"]
        checkpoint = await self._turns_back(int(words[0])) if words[0].isdecimal() and len(words[0]) < 4 else words[0]
        if checkpoint is None:
            self.thread_id = self.app.ids.new_id()
            say(f"before the first turn: a new thread {self.thread_id}")
            return
        from graphflow.cli.startup import checkpoint_named

        at = await checkpoint_named(self.thread, checkpoint)
        await self.thread.rewind(at.id, effects=effects)
        say(f"back at step {at.step} ({at.node or at.source}); /resume goes on from there, or say something else")

    async def _turns_back(self, count: int) -> str | None:
        """The checkpoint before the last `count` inputs; None before the first."""
        inputs = [row for row in await self.thread.history() if row.source == "input"]
        if count < 1 or count > len(inputs):
            return None
        return inputs[count - 1].parent

    async def fork(self, words: list[str]) -> None:
        """[CHECKPOINT] [reuse|rerun]: go on in a new thread that shares the past."""
        from graphflow.cli.startup import checkpoint_named

        effects, words = _choice(words)
        at = await checkpoint_named(self.thread, words[0] if words else "head")
        old, forked = self.thread_id, await self.thread.fork(at.id, effects=effects)
        self.thread_id = forked.id
        say(f"now on thread {forked.id}; {old} stays as it is")

    async def resume(self, words: list[str]) -> Events | None:
        """Go on with an unfinished run."""
        return None if await self.waits() else self.graph.stream_resume(self.thread_id, budget=self.figures)

    async def state(self, words: list[str]) -> None:
        """[KEY]: the state, or one key of it."""
        from graphflow.graph.core.immutable import thaw

        values = {key: thaw(value) for key, value in (await self.thread.state()).values.items()}
        say_json({key: values.get(key) for key in words} if words else values)

    async def draw(self, words: list[str]) -> None:
        """The graph, with the way that the thread took."""
        from graphflow.cli.commands.graph import path_taken
        from graphflow.graph.drawing.render import draw_text

        say(draw_text(self.agent.checked.document, await path_taken(self.thread) if await self.begun() else None))

    async def history(self, words: list[str]) -> None:
        """The thread's checkpoints."""
        from graphflow.cli.commands.threads import say_steps, step_dict

        head = (await self.thread.state()).checkpoint_id
        rows = (await self.thread.history(40))[::-1]
        say_steps([step_dict(row, {}, on_branch=row.id == head) for row in rows])

    async def tools(self, words: list[str]) -> None:
        """The agent's tools."""
        found = [self.app.tools.get(name) for name in self.agent.tools]
        rows = [
            (tool.name, tool.effects, (tool.description or "").split("\n")[0]) for tool in found if tool is not None
        ]
        if rows:
            say_table(("tool", "effects", "description"), rows)
        else:
            note("this agent has no tools")

    async def model(self, words: list[str]) -> None:
        """[NAME]: the model that answers; with a name, another one from the next turn on."""
        if words:
            self.agent = self.app.load({**self.agent.data, "key": self.agent.key, "model": words[0]})
            self.graph = self.app.compiled(self.agent)
        from graphflow.models.providers import resolve_provider

        chosen = resolve_provider(self.agent.provider_key, self.app.settings.environ, self.app.settings.providers)
        say(f"{chosen.key}: {self.agent.model or chosen.model}")

    async def save(self, words: list[str]) -> None:
        """[FILE]: write the thread as JSON Lines."""
        from pathlib import Path

        from graphflow.cli.commands.threads_storage import write_lines

        path = Path(words[0] if words else f"{self.thread_id}.jsonl")
        await write_lines(path, self.app.store.export_thread(self.thread_id))
        say(f"saved in {path}")

    async def help(self, words: list[str]) -> None:
        """This list."""
        for name, obey in COMMANDS.items():
            say(f"/{name:<8} {obey.__doc__}")

    async def quit(self, words: list[str]) -> None:
        """Leave; the thread stays."""
        raise Leave


COMMANDS: dict[str, Callable[[Chat, list[str]], Awaitable[Events | None]]] = {
    "rewind": Chat.rewind,
    "fork": Chat.fork,
    "resume": Chat.resume,
    "state": Chat.state,
    "graph": Chat.draw,
    "history": Chat.history,
    "tools": Chat.tools,
    "model": Chat.model,
    "save": Chat.save,
    "help": Chat.help,
    "quit": Chat.quit,
}
_NEED_THREAD = frozenset({"rewind", "fork", "resume", "state", "history", "save"})
