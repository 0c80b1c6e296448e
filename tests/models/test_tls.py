"""TLS handshakes that fail: what no later try changes is no passing failure, and the error says what to change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from graphflow.models.chat_model import ChatModel
from graphflow.models.library.model import AnyLlmModel
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from tests.models.turns import OpenClient, hear

Way = Callable[[str, list[float]], ChatModel]


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    """The server's side of a certificate that no authority signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=36_500))
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (tmp_path / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM) + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


@asynccontextmanager
async def listening(context: ssl.SSLContext | None = None, said: bytes = b"") -> AsyncIterator[str]:
    """A server that sends `said` and closes."""

    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    # The server's own complaint about the handshake that fails is no failure of the test.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    finally:
        listener.close()


def native(url: str, pauses: list[float]) -> ChatModel:
    return OpenAICompatibleModel(provider(url), "m", limits=Limits(max_retries=2), sleep=at_once(pauses))


def library(url: str, pauses: list[float]) -> ChatModel:
    return AnyLlmModel(provider(url), "m", limits=Limits(max_retries=2), sleep=at_once(pauses))


def provider(url: str) -> Provider:
    return Provider(key="mine", profile=Profile(), base_url=url, api_key="k")


def at_once(pauses: list[float]) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    return sleep


@pytest.mark.parametrize("way", [native, library])
async def test_a_refused_certificate_is_final_and_says_what_to_set(way: Way, self_signed: ssl.SSLContext) -> None:
    pauses: list[float] = []
    async with listening(self_signed) as url:
        model = way(url, pauses)
        failure = (await hear(model)).failure
        await model.aclose()
    assert (failure.code, failure.retryable, pauses) == ("connection", False, [])
    assert "certificate was refused (self-signed certificate)" in failure.message
    assert "SSL_CERT_FILE" in failure.message and "check the base URL" not in failure.message


@pytest.mark.parametrize("way", [native, library])
async def test_a_port_that_speaks_no_tls_is_final_too(way: Way) -> None:
    pauses: list[float] = []
    async with listening(said=b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        model = way(url, pauses)
        failure = (await hear(model)).failure
        await model.aclose()
    assert (failure.code, failure.retryable, pauses) == ("connection", False, [])
    assert "http:// or https://" in failure.message


async def test_a_connection_that_nobody_takes_is_tried_again(open_client: OpenClient, pauses: list[float]) -> None:
    failure = (await hear(open_client("http://127.0.0.1:9/v1", limits=Limits(max_retries=1)))).failure
    assert (failure.code, failure.retryable, len(pauses)) == ("connection", True, 1)
    assert failure.message.endswith("check the base URL")
