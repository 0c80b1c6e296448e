"""Keys that a function gives: how often it is called, what a refusal of a key does, and what is told of its failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphflow import Application
from graphflow.errors import GraphflowError
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.provider import ProviderNotReady
from graphflow.models.providers import open_model
from graphflow.models.remote.api_keys import ApiKeys
from graphflow.models.remote.failures import Masker
from graphflow.settings import load_settings
from tests.models.raw_server import DONE, STOP, Answer, Connection, RawServer, body, delta, raw_server, stream
from tests.models.turns import ASK, hear

FINE = stream(delta(content="well"), STOP, DONE)


def opened(server: RawServer, function: Any, **table: Any) -> ChatModel:
    mine = {"base_url": server.url, "api_key_function": function, **table}
    return open_model("mine", "m", {"LLM_MAX_RETRIES": "0", "LLM_API_KEY": "not-this-one"}, {"mine": mine})


def keys_sent(server: RawServer, header: str = "authorization") -> list[str]:
    return [request.headers[header].removeprefix("Bearer ") for request in server.requests]


class Tokens:
    """Gives `token-1`, `token-2`, …; with an end, if it has one."""

    def __init__(self, end: float | None = None) -> None:
        self.calls, self.end = 0, end

    def plain(self) -> Any:
        self.calls += 1
        token = f"token-{self.calls}-of-the-tests"
        return token if self.end is None else (token, self.end)

    async def asynchronous(self) -> Any:
        await asyncio.sleep(0)
        return self.plain()


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
@pytest.mark.parametrize(
    ("protocol", "header"), [("openai", "authorization"), ("anthropic", "x-api-key"), ("gemini", "x-goog-api-key")]
)
async def test_the_key_is_sent_as_the_protocol_says_and_asked_for_with_each_request(
    kind: str, protocol: str, header: str
) -> None:
    tokens = Tokens()
    async with raw_server(body(400, b"{}")) as server:
        model = opened(server, getattr(tokens, kind), protocol=protocol)
        await hear(model)
        await hear(model)
        await model.aclose()
        assert keys_sent(server, header) == ["token-1-of-the-tests", "token-2-of-the-tests"]


async def test_a_key_with_an_end_is_kept_until_shortly_before_it() -> None:
    now, tokens = [1_000.0], Tokens(end=2_000.0)
    keys = ApiKeys(tokens.plain, "tokens", "mine", Masker(), clock=lambda: now[0])
    for at, calls in ((1_000, 1), (1_900, 1), (1_941, 2)):
        now[0] = at
        await keys.present()
        assert tokens.calls == calls


async def test_a_token_object_of_azure_is_understood() -> None:
    @dataclass
    class AccessToken:
        token: str
        expires_on: int

    given: list[AccessToken] = []

    def credential() -> AccessToken:
        given.append(AccessToken("entra-token-1", 4_000_000_000))
        return given[-1]

    async with raw_server(FINE) as server:
        model = opened(server, credential)
        await complete(model, ASK)
        await complete(model, ASK)
        await model.aclose()
        assert keys_sent(server) == ["entra-token-1"] * 2 and len(given) == 1


async def test_requests_at_the_same_time_share_one_call() -> None:
    tokens, gate = Tokens(), asyncio.Event()

    async def slow() -> str:
        await gate.wait()
        return str(tokens.plain())

    keys = ApiKeys(slow, "slow", "mine", Masker())
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(keys.present()) for _ in range(10)]
        await asyncio.sleep(0)
        gate.set()
    assert {task.result() for task in waiting} == {"token-1-of-the-tests"} and tokens.calls == 1


async def test_a_request_that_is_cancelled_leaves_the_key_to_the_others() -> None:
    begun, gate, calls = asyncio.Event(), asyncio.Event(), []

    async def slow() -> str:
        calls.append(1)
        begun.set()
        await gate.wait()
        return "the-key-of-the-tests"

    keys = ApiKeys(slow, "slow", "mine", Masker())
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(keys.present()), group.create_task(keys.present())
        await begun.wait()
        first.cancel()
        gate.set()
    assert first.cancelled() and second.result() == "the-key-of-the-tests" and len(calls) == 2


def rejecting(*refused: str) -> Answer:
    async def answer(connection: Connection) -> None:
        key = connection.request.headers["authorization"].removeprefix("Bearer ")
        said = json.dumps({"error": {"message": f"the token {key} is over"}}).encode()
        await (body(401, said) if key in refused else FINE)(connection)

    return answer


async def test_a_refused_key_is_replaced_once_for_all_requests_that_used_it() -> None:
    tokens = Tokens(end=4_000_000_000)
    async with raw_server(rejecting("token-1-of-the-tests")) as server:
        model = opened(server, tokens.plain)
        async with asyncio.TaskGroup() as group:
            turns = [group.create_task(complete(model, ASK)) for _ in range(4)]
        await model.aclose()
        assert [turn.result().message.text for turn in turns] == ["well"] * 4
        assert tokens.calls == 2 and len(server.requests) == 8


async def test_a_second_refusal_is_the_error_and_shows_neither_key() -> None:
    tokens = Tokens()
    async with raw_server(rejecting("token-1-of-the-tests", "token-2-of-the-tests")) as server:
        model = opened(server, tokens.plain)
        failure = (await hear(model)).failure
        await model.aclose()
        assert len(server.requests) == 2
    assert failure.detail["status"] == 401 and "-of-the-tests" not in failure.message + repr(failure.detail)


def raises(error: Exception) -> Callable[[], str]:
    def function() -> str:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "said", "retryable"),
    [
        (raises(RuntimeError("no identity; password=hunter22secret")), "failed: RuntimeError: no identity", False),
        (raises(ConnectionError("token service is down")), "failed: ConnectionError: token service is down", True),
        (lambda: "", "gave an empty text, which is no key", False),
        (lambda: None, "gave a value of type NoneType", False),
        (lambda: {"access_token": "secret-token-1"}, "gave a value of type dict", False),
        (lambda: ("secret-token-1", "tomorrow"), "gave a value of type tuple", False),
        (lambda: "secret-token-1\nx", "gave a value of type str", False),
    ],
)
async def test_a_function_that_fails_is_named_and_no_secret_is_shown(
    function: Callable[[], Any], said: str, retryable: bool
) -> None:
    async with raw_server(FINE) as server:
        model = opened(server, function)
        failure = (await hear(model)).failure
        await model.aclose()
        assert not server.requests
    assert said in failure.message and "its key function" in failure.message
    assert (failure.detail["kind"], failure.retryable) == ("authentication", retryable)
    assert not any(secret in failure.message for secret in ("secret-token-1", "hunter22secret"))


async def test_a_settings_file_names_a_function_of_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_own_keys.py").write_text("async def token():\n    return 'key-of-the-function'\n", encoding="utf-8")
    async with raw_server(FINE) as server:
        toml = f'[providers.mine]\nbase_url = "{server.url}"\nmodel = "m"\napi_key_function = "my_own_keys:token"\n'
        (tmp_path / "graphflow.toml").write_text(toml, encoding="utf-8")
        async with Application(load_settings(tmp_path, environ={})) as app:
            await complete(app.models("mine", None), ASK)
        assert keys_sent(server) == ["key-of-the-function"]
    assert "key-of-the-function" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my_keys", "names no function; write MODULE:NAME"),
        ("my_other_keys:tokn", "has no 'tokn'; did you mean 'token'?"),
        ("my_other_keys:NUMBER", "has another thing under 'NUMBER'"),
        ("no_such_module_here:token", "can't be imported: ModuleNotFoundError"),
        ("my_broken_keys:token", "can't be imported: RuntimeError: no"),
    ],
)
def test_a_function_that_there_is_not_is_refused_when_the_settings_are_loaded(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "my_other_keys.py").write_text("NUMBER = 7\ndef token(): return 'k'\n", encoding="utf-8")
    (tmp_path / "my_broken_keys.py").write_text("raise RuntimeError('no')\n", encoding="utf-8")
    toml = f'[providers.mine]\nbase_url = "http://h/v1"\napi_key_function = "{name}"\n'
    (tmp_path / "graphflow.toml").write_text(toml, encoding="utf-8")
    with pytest.raises(GraphflowError) as caught:
        Application(load_settings(tmp_path, environ={}))
    assert "api_key_function" in caught.value.message and said in caught.value.message


def test_a_provider_with_a_function_needs_no_key_and_has_one_in_no_text() -> None:
    assert "token" not in repr(open_model("openai", "m", {}, {"openai": {"api_key_function": lambda: "token"}}))
    with pytest.raises(ProviderNotReady):
        open_model("openai", "m", {}, {})


async def test_a_key_of_the_call_is_for_its_model_alone() -> None:
    async with raw_server(body(503, b"{}")) as server, raw_server(FINE) as other:
        tables: dict[str, dict[str, Any]] = {
            "mine": {"base_url": server.url, "fallback": ["two"]},
            "two": {"base_url": other.url, "model": "n"},
        }
        for given in ("a-key-in-python", lambda: "a-key-in-python"):
            model = open_model("mine", "m", {"LLM_MAX_RETRIES": "0"}, tables, api_key=given)
            assert (await complete(model, ASK)).message.text == "well"
            await model.aclose()
        assert keys_sent(server) == ["a-key-in-python"] * 2
        assert not any("authorization" in request.headers for request in other.requests)
