"""No longer piece of our own key stands in an error, however much of it a provider quotes."""

from __future__ import annotations

import random
import string

import pytest

from graphflow.models.remote.failures import Masker
from tests.models.raw_server import body, raw_server
from tests.models.turns import OpenClient, hear

KEY = "vX9-qL2mZ7rT4wN8kB3hJ6dF5gC1pY0s"
RUN = 8


def pieces(text: str) -> set[str]:
    """The pieces of the key that stand in a text."""
    return {KEY[at : at + RUN] for at in range(len(KEY) - RUN + 1)} & {
        text[at : at + RUN] for at in range(len(text) - RUN + 1)
    }


@pytest.mark.parametrize(
    "quoted", [KEY[4:], KEY[:-4], KEY[:12] + "…" + KEY[-12:], KEY + KEY, KEY[2:10], "x" + KEY[1:31]]
)
async def test_a_key_that_is_quoted_in_part_is_masked(open_client: OpenClient, quoted: str) -> None:
    """All but the first or the last four characters were told: 28 of 32."""
    answer = body(401, b'{"error": {"message": "Incorrect API key: %s."}}' % quoted.encode())
    async with raw_server(answer) as server:
        failure = (await hear(open_client(server.url, api_key=KEY))).failure
    assert not pieces(f"{failure.message} {failure.detail}")
    assert "Incorrect API key: ***" in failure.message


def test_any_text_made_of_pieces_of_the_key_loses_them_and_nothing_else() -> None:
    draw = random.Random(7)
    for _ in range(500):
        words = []
        for _ in range(draw.randrange(1, 6)):
            begin = draw.randrange(len(KEY))
            words.append(KEY[begin : begin + draw.randrange(1, 33)])
            words.append("".join(draw.choices(string.ascii_lowercase, k=draw.randrange(1, 6))))
        said = Masker([KEY])(" ".join(words))
        assert not pieces(said)
        for word in words:
            assert word in said or len(word) >= RUN


def test_what_a_key_shares_with_a_word_stays() -> None:
    assert Masker([KEY])("model vX9-qL2 is unknown") == "model vX9-qL2 is unknown"
    headers = Masker(["https://team.example.org/app", KEY])
    assert headers("see https://docs.example.org") == "see https://docs.example.org"
