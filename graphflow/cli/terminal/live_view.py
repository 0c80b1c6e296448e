"""A run on a terminal: finished nodes as lines, the running ones below them, redrawn as they stream."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphflow import events as ev
from graphflow.cli.terminal.console import fitted, one_line_json, rich_console, shortened, tokens_of
from graphflow.cli.terminal.failure_text import error_text
from graphflow.cli.terminal.plain_view import output_text, say_ending
from graphflow.cli.terminal.question_text import say_waiting
from graphflow.errors import CheckpointNotFound, ThreadNotFound
from graphflow.excerpts import count
from graphflow.messages import AIMessage
from graphflow.text_width import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text

    from graphflow.runtime.result import RunResult
    from graphflow.runtime.thread import Thread

TAIL = 160
"""Characters of running reasoning that are shown."""
TEXT_LINES = 12
"""Lines of running text that are redrawn; all of it is printed when its node ends."""


@dataclass
class _ShownCall:
    name: str
    arguments: str = ""


@dataclass
class _Node:
    name: str
    depth: int
    begun: float
    reasoning: str = ""
    text: str = ""
    calls: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """Finished lines under the node: text and style."""


class TerminalView:
    """Draws on stdout; `pause` leaves what is there and stops redrawing."""

    def __init__(self, title: str) -> None:
        self._console = rich_console()
        self._title = title
        self._live: Live | None = None
        self._nodes: dict[str, _Node] = {}
        self._blocks: dict[str, _Node] = {}
        self._calls: dict[str, _ShownCall] = {}
        self._asked: dict[str, str] = {}
        self._last_text = ""
        self._done = 0
        self._begun = time.monotonic()

    # --- the view

    async def begin(self, thread: Thread) -> None:
        # A call whose result comes now may have been announced in another view: only the thread knows its name.
        try:
            state = await thread.state()
        except (ThreadNotFound, CheckpointNotFound):
            return
        self._asked = {interrupt.id: interrupt.tool_name or interrupt.node for interrupt in state.interrupts}
        asked = [(interrupt.tool_id, interrupt.tool_name) for interrupt in state.interrupts]
        messages = [m for values in (state.values, *state.own_frames.values()) for m in values.get("messages") or ()]
        made = [(call.id, call.name) for m in messages if isinstance(m, AIMessage) for call in m.tool_calls]
        self._calls = {key: _ShownCall(name) for key, name in (*made, *asked) if key and name}

    def show(self, event: ev.Event) -> None:
        self._take_terminal()
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def pause(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def finish(self, result: RunResult) -> None:
        self.pause()
        # Nodes that wait for a person have no end event yet.
        for node in self._nodes.values():
            self._print_node(node, "•", "yellow", "")
        self._nodes.clear()
        text = output_text(result)
        # The last node has usually shown this text already.
        if result.status == "completed" and text.strip() and text.strip() != self._last_text.strip():
            self._print("")
            self._print(text)
        self._print(self._totals(result), style="dim")
        if result.status == "waiting":
            say_waiting(result.interrupts, result.thread_id)
        else:
            say_ending(result)

    def close(self) -> None:
        self.pause()

    # --- drawing

    def _take_terminal(self) -> None:
        if self._live is not None:
            return
        from rich.live import Live

        if self._title:
            self._print(self._title, style="bold")
            self._title = ""
        # `transient`: what is redrawn disappears when it stops; finished nodes are printed for good.
        self._live = Live(console=self._console, get_renderable=self._picture, refresh_per_second=12, transient=True)
        self._live.start()

    def _picture(self) -> RenderableType:
        from rich.console import Group

        # A copy: Rich draws from a thread of its own while events change the table.
        return Group(*(self._running(node) for node in list(self._nodes.values())))

    def _running(self, node: _Node) -> Text:
        from rich.text import Text

        seconds = time.monotonic() - node.begun
        indent = "  " * node.depth
        out = Text(f"{indent}● {node.name}  ", style="cyan")
        out.append(f"{seconds:.1f} s", style="dim")
        if node.reasoning:
            out.append(f"\n{indent}    {_tail(node.reasoning, TAIL)}", style="dim italic")
        for line, style in node.notes:
            out.append(f"\n{indent}    {line}", style=style)
        for call in node.calls:
            out.append(f"\n{indent}    {self._call_line(call)}", style="magenta")
        if node.text:
            for line in node.text.rstrip().splitlines()[-TEXT_LINES:]:
                out.append(f"\n{indent}    {line}", style="default")
        # One character for each: the styles keep their places.
        out.plain = visible(out.plain)
        return out

    def _print(self, text: str, *, style: str = "", cut: bool = False) -> None:
        """Lines above what is redrawn: wrapped at words, or cut at the terminal's edge."""
        options: dict[str, Any] = (
            {"no_wrap": True, "overflow": "ellipsis", "crop": True} if cut else {"soft_wrap": True}
        )
        shown = visible(text) if cut else fitted(text, sys.stdout)
        self._console.print(shown, style=style or None, markup=False, highlight=False, **options)

    def _print_node(self, node: _Node, mark: str, colour: str, facts: str) -> None:
        from rich.text import Text

        indent = "  " * node.depth
        head = Text(f"{indent}{mark} ", style=colour)
        head.append(visible(node.name), style="bold")
        head.append(f"  {facts}", style="dim")
        self._console.print(head)
        if node.reasoning:
            self._print(f"{indent}    {_tail(node.reasoning, TAIL)}", style="dim italic", cut=True)
        for line, style in node.notes:
            self._print(f"{indent}    {line}", style=style, cut=True)
        for call in node.calls:
            self._print(f"{indent}    {self._call_line(call)}", style="magenta", cut=True)
        for line in node.text.strip().splitlines():
            self._print(f"{indent}    {line}")

    def _call_line(self, call_id: str) -> str:
        call = self._calls[call_id]
        return f"⚙ {call.name} {shortened(call.arguments, TAIL)}"

    def _totals(self, result: RunResult) -> str:
        usage: dict[str, Any] = result.usage
        tokens = tokens_of(usage)
        facts = [
            result.status if result.finish_reason in (None, "stop") else f"{result.status} ({result.finish_reason})",
            count(self._done, "node"),
            count(usage.get("modelCalls", 0), "model call"),
            count(usage.get("toolCalls", 0), "tool call"),
            f"{tokens:,} tokens",
            f"{time.monotonic() - self._begun:.1f} s",
            f"thread {result.thread_id}",
        ]
        return "\n" + " · ".join(facts)

    # --- events

    def _on_node_start(self, event: ev.NodeStart) -> None:
        depth = 0 if not event.path else event.path.count("/") + 1
        self._nodes[event.node_run_id] = _Node(event.node, depth, time.monotonic())

    def _on_node_end(self, event: ev.NodeEnd) -> None:
        # A node that waited for an answer may have begun in another process.
        node = self._nodes.pop(event.node_run_id, None) or _Node(event.node, 0, 0.0)
        self._done += 1
        self._last_text = node.text or self._last_text
        tokens = tokens_of(event.usage)
        self._print_node(node, "✓", "green", f"{event.duration_ms} ms" + (f"  {tokens:,} tokens" if tokens else ""))

    def _on_node_error(self, event: ev.NodeError) -> None:
        node = self._nodes.pop(event.node_run_id, None) or _Node(event.node, 0, 0.0)
        again = "; trying again" if event.will_retry else ""
        node.notes.append((f"{shortened(error_text(event.error), 200)}{again}", "red"))
        self._print_node(node, "✗", "red", "")

    def _node_of(self, event: Any) -> _Node:
        # An event without a node run belongs to the one that began last.
        node = self._nodes.get(event.node_run_id or "") or next(reversed(self._nodes.values()), None)
        if node is None:
            node = self._nodes[""] = _Node("", 0, time.monotonic())
        return node

    def _on_reasoning_start(self, event: ev.ReasoningStart) -> None:
        self._blocks[event.reasoning_id] = self._node_of(event)

    def _on_reasoning(self, event: ev.ReasoningDelta) -> None:
        self._blocks[event.reasoning_id].reasoning += event.delta

    def _on_content_start(self, event: ev.ContentStart) -> None:
        self._blocks[event.content_id] = self._node_of(event)

    def _on_content(self, event: ev.ContentDelta) -> None:
        self._blocks[event.content_id].text += event.delta

    def _on_call_start(self, event: ev.ToolStart | ev.ActionStart) -> None:
        name = (event.tool_name or "tool") if isinstance(event, ev.ToolStart) else (event.action_name or "action")
        self._calls[_call_id(event)] = _ShownCall(name)
        self._node_of(event).calls.append(_call_id(event))

    def _on_call_args(self, event: ev.ToolArgs | ev.ActionArgs) -> None:
        self._calls[_call_id(event)].arguments += event.delta

    def _on_call_result(self, event: ev.ToolResultEvent | ev.ActionResult) -> None:
        call = self._calls.get(_call_id(event))
        name = "tool" if call is None else call.name
        text = event.result if isinstance(event.result, str) else one_line_json(event.result)
        node = next(reversed(self._nodes.values()), None)
        # Cut to a line: the whole result is in the state.
        line = f"⚙ {name} → {shortened(text, 2 * TAIL)}"
        if node is not None:
            node.notes.append((line, "magenta"))
        else:
            self._print(f"    {line}", style="magenta", cut=True)

    def _on_request(self, event: ev.InterruptRequest) -> None:
        what = event.tool_name or event.node
        self._asked[event.interrupt_id] = what
        self._print(
            f"⏸ {event.kind}: {what} {one_line_json(event.arguments) if event.arguments else ''}".rstrip(),
            style="yellow",
        )

    def _on_resolve(self, event: ev.InterruptResolve) -> None:
        what = self._asked.get(event.interrupt_id, "")
        self._print(f"▶ {event.decision} {what}".rstrip(), style="yellow")


def _call_id(event: Any) -> str:
    """The id of the call that an event of a tool or of an action belongs to."""
    return event.action_id if event.type.startswith("action.") else event.tool_id  # type: ignore[no-any-return]


def _tail(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else "…" + flat[-limit + 1 :]


_HANDLERS: dict[type[ev.Event], Any] = {
    ev.NodeStart: TerminalView._on_node_start,
    ev.NodeEnd: TerminalView._on_node_end,
    ev.NodeError: TerminalView._on_node_error,
    ev.ReasoningStart: TerminalView._on_reasoning_start,
    ev.ReasoningDelta: TerminalView._on_reasoning,
    ev.ContentStart: TerminalView._on_content_start,
    ev.ContentDelta: TerminalView._on_content,
    ev.ToolStart: TerminalView._on_call_start,
    ev.ToolArgs: TerminalView._on_call_args,
    ev.ToolResultEvent: TerminalView._on_call_result,
    ev.ActionStart: TerminalView._on_call_start,
    ev.ActionArgs: TerminalView._on_call_args,
    ev.ActionResult: TerminalView._on_call_result,
    ev.InterruptRequest: TerminalView._on_request,
    ev.InterruptResolve: TerminalView._on_resolve,
}
