"""Questions of servers to people: forms, and addresses to visit, as durable questions of the run.

A server of the protocol of 2026 gives its questions as a result and is called again with the answers; one of 2025 asks while a
call is open. Both forms of answer are made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from graphflow.tools.context import ToolContext
from graphflow.tools.input_needed import InputNeeded, Question

_NO: dict[str, Any] = {
    "type": "object",
    "properties": {"action": {"enum": ["decline", "cancel"]}},
    "required": ["action"],
    "additionalProperties": False,
}
_VISITED: dict[str, Any] = {
    "type": "object",
    "properties": {"action": {"const": "accept"}},
    "required": ["action"],
    "additionalProperties": False,
}
MOST_QUESTIONS = 20
"""That one call may ask."""


class CannotAsk(Exception):
    """The server asks for something that is no question to a person; the text says what."""


def question_of(server: str, params: Mapping[str, Any]) -> Question:
    """The question of an `elicitation/create`: its form is the answer's schema, and `{"action": "decline"}` is an answer too."""
    message = f"{server}: {params.get('message', '')}"
    if params.get("mode") == "url":
        return Question(message=f"{message} {params.get('url', '')}".strip(), schema={"anyOf": [_VISITED, _NO]})
    form = params.get("requestedSchema")
    form = {"type": "object", **form} if isinstance(form, Mapping) else {"type": "object"}
    return Question(message=message, schema={"anyOf": [form, _NO]})


def response_of(answer: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """A person's answer as the protocol has it."""
    given = dict(answer) if isinstance(answer, Mapping) else {}
    if set(given) == {"action"} and given["action"] in ("decline", "cancel"):
        return given
    return {"action": "accept"} if params.get("mode") == "url" else {"action": "accept", "content": given}


def needed(server: str, raw: Mapping[str, Any]) -> InputNeeded:
    """What a result of the protocol of 2026 asks for.

    Raises:
        CannotAsk: it asks for a model or for roots.
    """
    questions: dict[str, Question] = {}
    requests = raw.get("inputRequests") or {}
    for key, request in requests.items():
        if request.get("method") != "elicitation/create":
            raise CannotAsk(f"{request.get('method')} is not supported")
        questions[key] = question_of(server, request.get("params") or {})
    return InputNeeded(questions=questions, memo={"requests": requests, "state": raw.get("requestState")})


def responses(memo: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers to the questions of `needed`, for the next call."""
    requests = memo.get("requests") or {}
    return {key: response_of(answers.get(key), request.get("params") or {}) for key, request in requests.items()}


class OpenCalls:
    """The calls of one connection that are open: who is asked when the server asks."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._open: list[asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]]] = []

    async def asked(self, params: dict[str, Any]) -> dict[str, Any]:
        """The response to a question of the server; comes from the SDK's task.

        Raises:
            CannotAsk: nobody knows which call asks.
        """
        # The protocol does not say which call asks; the wrong person must not be shown another one's question.
        if len(self._open) != 1:
            raise CannotAsk(f"{len(self._open)} calls are open on this connection, so nobody knows which one asks")
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[0].put_nowait((params, future))
        return await future

    async def run(self, sent: Awaitable[Any], ctx: ToolContext, *, repeatable: bool) -> Any:
        """The result of a call, while its questions are asked in the task of the node that makes it.

        Raises:
            ConnectionError: nobody waits for the answer here, and the call can't be made again after it.
        """
        asked: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = asyncio.Queue()
        self._open.append(asked)
        call = asyncio.ensure_future(sent)  # noqa: TID251 - ended below
        count = 0
        try:
            while True:
                question = asyncio.ensure_future(asked.get())  # noqa: TID251 - ended below
                try:
                    await asyncio.wait({call, question}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not question.done():
                        question.cancel()
                if call.done():
                    return call.result()
                params, future = question.result()
                count += 1
                try:
                    answer = await ctx.ask(question_of(self._server, params), count)
                except Exception:
                    raise
                except BaseException as left:
                    # The process lets go of the run. What only reads is asked again after the answer; a write has begun.
                    if repeatable or isinstance(left, asyncio.CancelledError):
                        raise
                    raise ConnectionError("the server waits for an answer in a call that nobody keeps open") from None
                if not future.done():
                    future.set_result(response_of(answer, params))
        finally:
            self._open.remove(asked)
            if not call.done():
                call.cancel()
                await asyncio.wait([call], timeout=5.0)
