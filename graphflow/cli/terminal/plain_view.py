"""Views of a run without a screen: its final text, one JSON value, or every event as a line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from graphflow.cli.terminal.console import note, one_line_json, put, say_json
from graphflow.cli.terminal.failure_text import say_failure, shown_error
from graphflow.cli.terminal.question_text import answer_command, say_waiting
from graphflow.events import Event, encode_event

if TYPE_CHECKING:
    from graphflow.runtime.result import RunResult
    from graphflow.runtime.thread import Thread


class TurnView(Protocol):
    """Shows a run."""

    async def begin(self, thread: Thread) -> None:
        """Before the first event, which may go on with what an earlier turn or process has begun."""

    def show(self, event: Event) -> None:
        """One event, as it arrives."""

    def pause(self) -> None:
        """Frees the terminal for a question; the next event takes it back."""

    def finish(self, result: RunResult) -> None:
        """The run has ended or waits."""

    def close(self) -> None:
        """Gives the terminal back, whatever happened."""


class TextView:
    """For a pipe: the final text alone on stdout."""

    async def begin(self, thread: Thread) -> None: ...

    def show(self, event: Event) -> None: ...

    def pause(self) -> None: ...

    def finish(self, result: RunResult) -> None:
        # A run that failed or waits has no result; what it said so far must not be taken for one.
        if result.status == "completed":
            put(output_text(result))
        say_ending(result)

    def close(self) -> None: ...


class JsonView(TextView):
    """The result as one JSON value on stdout."""

    def finish(self, result: RunResult) -> None:
        say_json(result_dict(result))
        say_ending(result)


class LinesView(TextView):
    """Every event as one line of JSON, as it comes."""

    def show(self, event: Event) -> None:
        sys.stdout.write(encode_event(event).decode() + "\n")
        # A reader of the pipe follows the run as it goes; without this it would get blocks of 8 KiB.
        sys.stdout.flush()

    def finish(self, result: RunResult) -> None:
        say_ending(result)


def output_text(result: RunResult) -> str:
    """The output itself, or its JSON if it is not text."""
    output = result.output
    return "" if output is None else output if isinstance(output, str) else one_line_json(output)


def result_dict(result: RunResult) -> dict[str, Any]:
    """The result in the names of the wire."""
    out: dict[str, Any] = {
        "status": result.status,
        "threadId": result.thread_id,
        "runId": result.run_id,
        "checkpointId": result.checkpoint_id,
        "output": result.output,
        "finishReason": result.finish_reason,
        "usage": result.usage,
        "error": None if result.error is None else shown_error(result.error),
        "interrupts": [
            {
                "interruptId": interrupt.id,
                "kind": interrupt.kind,
                "node": interrupt.node,
                "toolName": interrupt.tool_name,
                "arguments": interrupt.arguments,
                "payload": interrupt.payload,
                "schema": interrupt.schema,
                "answerWith": answer_command(interrupt),
            }
            for interrupt in result.interrupts
        ],
    }
    return {key: value for key, value in out.items() if value is not None}


def say_ending(result: RunResult) -> None:
    """Prints to stderr what a run that did not complete needs next."""
    match result.status:
        case "waiting":
            say_waiting(result.interrupts, result.thread_id)
        case "failed":
            say_failure(result.error, result.thread_id, lead="graphflow: ")
        case "cancelled" | "stopped":
            note(f"thread {result.thread_id} is stopped; `graphflow threads resume {result.thread_id}` continues")
