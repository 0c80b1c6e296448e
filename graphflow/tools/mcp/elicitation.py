"""Questions of servers to people: forms, and addresses to visit, as durable questions of the run.

A server of the protocol of 2026 gives its questions as a result and is called again with the answers; one of 2025 asks while a
call is open. Both forms of answer are made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from graphflow.tools.context import ToolContext
from graphflow.tools.input_needed import InputNeeded, ToolQuestion

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
CANCEL_S = 5.0
"""How long a cancelled call may take to tell its server."""


class CannotAsk(Exception):
    """The server asks for something that is no question to a person; the text says what."""


def question_of(server: str, params: Mapping[str, Any]) -> ToolQuestion:
    """The question of an `elicitation/create`: its form is the answer's schema, and `{"action": "decline"}` is an answer too."""
    message = f"{server}: {params.get('message', '')}"
    if params.get("mode") == "url":
        return ToolQuestion(message=f"{message} {params.get('url', '')}".strip(), schema={"anyOf": [_VISITED, _NO]})
    form = params.get("requestedSchema")
    form = {"type": "object", **form} if isinstance(form, Mapping) else {"type": "object"}
    return ToolQuestion(message=message, schema={"anyOf": [form, _NO]})


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
    questions: dict[str, ToolQuestion] = {}
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


Asked = tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]
"""A server's question, and where its response is waited for."""


class OpenCalls:
    """The calls of one connection that are open: who is asked when the server asks."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._open: list[asyncio.Future[Asked]] = []

    async def asked(self, params: dict[str, Any]) -> dict[str, Any]:
        """The response to a question of the server; comes from the SDK's task.

        Raises:
            CannotAsk: nobody knows which call asks, or it asks two questions at a time.
        """
        # The protocol does not say which call asks; the wrong person must not be shown another one's question.
        if len(self._open) != 1:
            raise CannotAsk(f"{len(self._open)} calls are open on this connection, so nobody knows which one asks")
        if self._open[0].done():
            raise CannotAsk("a question is open; ask the next one after its answer")
        loop = asyncio.get_running_loop()
        response: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._open[0].set_result((params, response))
        return await response

    async def run(self, sent: Coroutine[Any, Any, Any], ctx: ToolContext, *, repeatable: bool) -> Any:
        """The result of a call, while its questions are asked in the task of the node that makes it.

        Raises:
            ConnectionError: nobody waits for the answer here, and the call can't be made again after it.
        """
        loop = asyncio.get_running_loop()
        call = loop.create_task(sent)
        asked: asyncio.Future[Asked] = loop.create_future()
        self._open.append(asked)
        count = 0
        try:
            while True:
                await asyncio.wait({call, asked}, return_when=asyncio.FIRST_COMPLETED)
                if call.done():
                    return call.result()
                (params, response), count = asked.result(), count + 1
                if count > MOST_QUESTIONS:
                    raise ConnectionError(f"the server asks more than {MOST_QUESTIONS} questions in one call")
                answer = await self._answer(params, count, ctx, repeatable=repeatable)
                self._open.remove(asked)
                asked = loop.create_future()
                self._open.append(asked)
                if not response.done():
                    response.set_result(response_of(answer, params))
        finally:
            self._open.remove(asked)
            if not call.done():
                call.cancel()
                await asyncio.wait([call], timeout=CANCEL_S)

    async def _answer(self, params: Mapping[str, Any], number: int, ctx: ToolContext, *, repeatable: bool) -> Any:
        try:
            return await ctx.ask(question_of(self._server, params), number)
        except Exception:
            raise
        except BaseException as left:
            # The process lets go of the run. What only reads is asked again after the answer; a write has begun.
            if repeatable or isinstance(left, asyncio.CancelledError):
                raise
            raise ConnectionError("the server waits for an answer in a call that nobody keeps open") from None
