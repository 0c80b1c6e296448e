"""No secret reaches a log, an event or an error, however deep it stands (spec 7)."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow import masking
from graphflow.errors import error_dict
from graphflow.masking import MASK, StreamMasker, is_secret_key, mask, mask_text
from tests.campaign import size

NAMES = (
    "authorization", "Authorization", "apiKey", "api_key", "API-KEY", "x-api-key", "OPENAI_API_KEY", "token", "accessToken",
    "access_token", "refresh_token", "refreshToken", "X-Auth-Token", "secret", "clientSecret", "client_secret", "password",
    "db_password", "DB.PASSWORD", "passwd", "cookie", "Set-Cookie", "private_key", "secretAccessKey", "AWS_SECRET_ACCESS_KEY",
)  # fmt: skip
HARMLESS = (
    "tokens",
    "max_tokens",
    "promptTokens",
    "completionTokens",
    "monkey",
    "keyboard",
    "secretary",
    "path",
    "name",
    "keys",
)

alphabet = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789_-."
secrets = st.text(alphabet, min_size=8, max_size=40).map(lambda s: f"Zq{s}9")
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)


def carriers(secret: str) -> st.SearchStrategy[Any]:
    """Everything that may hold a secret: by a field's name, in a pair, in a text, in JSON inside a text."""
    names = st.sampled_from(NAMES)
    texts = st.one_of(
        st.sampled_from(["Bearer {}", "bearer  {}", "GET /x HTTP/1.1\nAuthorization: Bearer {}", "Authorization: {}"]),
        names.map(lambda name: name + "={}"),
        names.map(lambda name: name + ": {}"),
        names.map(lambda name: f"failed with {name}='{{}}', sorry"),
        names.map(lambda name: f"https://host/path?x=1&{name}={{}}&y=2"),
        st.just("postgresql://user:{}@host/database"),
    ).map(lambda form: form.format(secret))
    one = st.one_of(
        names.map(lambda name: {name: secret}),
        names.map(lambda name: {name: [secret, {"deep": secret}]}),
        names.map(lambda name: [name, secret]),
        names.map(lambda name: (name.encode(), secret.encode())),
        names.map(lambda name: {"name": name, "value": secret}),
        names.map(lambda name: json.dumps({name: secret})),
        names.map(lambda name: json.dumps({name: f"{secret} and more of {secret}"})),
        names.map(lambda name: json.dumps({"body": json.dumps({name: secret})})),
        names.map(lambda name: json.dumps({"a": json.dumps({"b": json.dumps({name: secret})})})),
        texts,
        texts.map(str.encode),
    )
    return st.recursive(
        one,
        lambda inner: st.one_of(
            st.dictionaries(st.text(max_size=5), scalars, max_size=2).flatmap(
                lambda beside: inner.map(lambda held: {**beside, "held": held})
            ),
            st.tuples(scalars, inner, scalars).map(list),
            inner.map(lambda held: json.dumps(held) if _is_json(held) else [held]),
        ),
        max_leaves=4,
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


@given(secrets.flatmap(lambda secret: st.tuples(st.just(secret), carriers(secret))))
def test_no_secret_is_left_in_any_nesting_or_text(given_: tuple[str, Any]) -> None:
    secret, carrier = given_
    assert secret in repr(carrier), "the carrier holds it"
    assert secret not in repr(mask(carrier))


@given(
    st.recursive(
        scalars | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(HARMLESS), inner),
    )
)
def test_what_is_no_secret_stays(value: Any) -> None:
    assert mask(value) == value or "=" in repr(value) or ":" in repr(value)
    assert mask(mask(value)) == mask(value)


@given(secrets, st.sampled_from(NAMES), st.data())
def test_a_secret_that_comes_in_pieces_is_masked_in_each(secret: str, name: str, data: st.DataObject) -> None:
    forms = [
        f'{{"{name}": "{secret}", "x": 1}}',
        f"{name}={secret} and more",
        f"Bearer {secret}",
        f"the key is sk-{secret.replace('.', '-')}0123456789",
        f"postgresql://user:{secret}@host/database",
    ]
    text = data.draw(st.sampled_from(forms))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    masker = StreamMasker()
    pieces = [masker.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    said = "".join(pieces).replace(MASK, "")
    assert "Zq" not in said


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_secret_of_any_length_is_masked_to_its_end(size: int) -> None:
    text = '{"password": "' + "s" * 3000 + '", "user": "ann"}'
    masker = StreamMasker()
    said = "".join(masker.feed(text[at : at + size]) for at in range(0, len(text), size)).replace(MASK, "")
    assert said == '{"password": "", "user": "ann"}'


@given(secrets, st.sampled_from(NAMES))
def test_what_a_foreign_error_says_reaches_no_event_with_a_secret_in_it(secret: str, name: str) -> None:
    error = ConnectionError(f"401 for {{'headers': {{'{name}': '{secret}'}}}} at https://u:{secret}@host/")
    shown = error_dict(error, "node")
    assert shown["code"] == "node_error" and "401" in shown["message"] and secret not in repr(shown)


def test_pieces_without_a_secret_pass_as_they_are() -> None:
    masker = StreamMasker()
    pieces = ["max_tok", "ens=", "100", " and ", "", "on"]
    assert [masker.feed(piece) for piece in pieces] == pieces


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets_are_known_however_they_are_written(name: str) -> None:
    assert is_secret_key(name) and mask({name: "x"}) == {name: MASK} and mask({name: None}) == {name: None}


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_only_look_like_it_are_left(name: str) -> None:
    assert not is_secret_key(name) and mask({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("max_tokens=100 and 12 tokens: fine", "max_tokens=100 and 12 tokens: fine"),
        ("Authorization: Bearer abc.def", f"Authorization: {MASK}"),
        ("Authorization: ApiKey abc.def, realm=x\nHost: h", f"Authorization: {MASK}\nHost: h"),
        ("Cookie: a=1; session=abc", f"Cookie: {MASK}"),
        ("curl -H 'Authorization: Digest username=ann, nonce=1' url", f"curl -H 'Authorization: {MASK}' url"),
        (r'{"password": "a\"b", "user": "ann"}', f'{{"password": "{MASK}", "user": "ann"}}'),
        (r'{"a": "{\"password\": \"a\\\"b\", \"u\": 1}"}', rf'{{"a": "{{\"password\": \"{MASK}\", \"u\": 1}}"}}'),
        ('{"apiKeys": ["abc", "def"]}', f'{{"apiKeys": {MASK}'),
        ("graphflow serve --token abc --port 8080", f"graphflow serve --token {MASK} --port 8080"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END", f"-----BEGIN RSA PRIVATE KEY-----{MASK}-----END"),
        ('{"password": "two words", "user": "ann"}', f'{{"password": "{MASK}", "user": "ann"}}'),
        ("key sk-proj-0123456789abcdef was refused", f"key {MASK} was refused"),
        ("postgresql://ann:hunter2@db/x", f"postgresql://ann:{MASK}@db/x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", MASK),
    ],
)
def test_of_a_text_only_the_secret_goes(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "token" * 20_000,
        "token=" * 20_000,
        '"' * 100_000,
        "a-" * 50_000,
        "\\" * 100_000,
        "eyJ" * 30_000,
        "-eyJ" * 25_000,
        "--token " * 10_000,
        "-" * 100_000,
        "cookie: " * 10_000,
        "-----BEGIN PRIVATE KEY-----" * 4_000,
        "password='" * 10_000,
    ],
)
def test_no_text_makes_masking_slow(text: str) -> None:
    began = time.process_time()
    mask_text(text)
    assert time.process_time() - began < 5, "the time grows with the length, not with its square"


@pytest.mark.campaign
@pytest.mark.parametrize("pattern", [masking._SECRET_TEXT, masking._SECRET_BEGUN], ids=["whole", "begun"])
@settings(max_examples=size(10, long=2_000), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_the_masker_knows_for_a_secret_has_a_sign_of_one(
    pattern: re.Pattern[str], data: st.DataObject
) -> None:
    """Texts without a sign are not looked through."""
    text = data.draw(st.from_regex(pattern, alphabet=st.characters(codec="ascii")))
    assert masking._has_signs(text)
