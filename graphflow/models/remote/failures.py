"""What went wrong at a provider, as a `ModelError`: code, status, provider and a masked excerpt.

`retryable` says whether the same request may well succeed a little later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphflow.errors import ModelError
from graphflow.json_data import whole_characters
from graphflow.masking import MASK, mask_cut, mask_text
from graphflow.models.remote.loose_json import read_json
from graphflow.models.remote.retry import retry_after_s

EXCERPT_CHARACTERS = 500
_READ = 8 * 1024
"""Length of a provider's text that is looked at; bodies may be megabytes."""

_HINTS = {
    400: "the provider refused the request; compare the model's name and options with its documentation",
    401: "check the API key",
    402: "check the balance of the account",
    403: "check the API key and what it may use",
    404: "check the base URL and the model's name",
    407: "the proxy asks for credentials; write them into its URL",
    413: "the request is too large; send less",
    429: "slow down, or raise the quota",
}
# 408, 409 and 425 ask for a later try by their definition, 429 for a slower one; 501 and 505 never change.
_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_FINAL_STATUS = frozenset({501, 505})
# Providers report these also with statuses that look passing (a used-up quota is a 429), so the kind wins.
_FINAL_KINDS = (
    "invalid", "authentication", "permission", "not_found", "insufficient_quota", "insufficient_balance",
    "billing", "context_length", "unsupported", "content_filter", "usage_limit",
    "too_large",
)  # fmt: skip
_COME_BACK = re.compile(r"(?:try again|retry) in (\d[\w. ]{0,20})", re.IGNORECASE)
_DURATION = re.compile(r"([\d.]{1,16}) ?(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id")
_RATE_KINDS = ("rate_limit", "ratelimit", "too_many_requests", "throttl")


_LEARNED = 8
"""Keys that were replaced a while ago are in no answer any more."""
_RUN = 8
"""Characters of a secret in a row that are masked; fewer occur in ordinary words, and providers show the last four on purpose."""
_SCHEMES = frozenset({"basic", "bearer", "token"})
"""Words that may precede the secret in an `Authorization` header."""


class Masker:
    """Cuts texts of a provider to an excerpt without secrets."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        """`secrets` are values that this client sent (the key, header values)."""
        self._given = tuple(secrets)
        self._learned: tuple[str, ...] = ()
        self._know(self._given)

    def learn(self, secret: str) -> None:
        """Masks this value too from now on; of values that follow each other the newest few are known."""
        if secret not in self._learned:
            self._learned = (*self._learned[1 - _LEARNED :], secret)
            self._know((*self._given, *self._learned))

    def _know(self, secrets: Sequence[str]) -> None:
        self._secrets = _longest_first(secrets)
        # Words and addresses in a header are no secrets in part: every URL in an error would be masked.
        whole = [s for s in self._secrets if len(s) >= _RUN and "://" not in s and " " not in s]
        self._runs = frozenset(s[at : at + _RUN] for s in whole for at in range(len(s) - _RUN + 1))

    def __call__(self, text: str | bytes, *, cut: bool = False) -> str:
        """An excerpt of `text`; `cut` says that the provider's text went on, and may break off inside a secret."""
        said, cut = text[:_READ], cut or len(text) > _READ
        if isinstance(said, bytes):
            said = said.decode("utf-8", "replace")
        for secret in self._secrets:
            said = said.replace(secret, MASK)
        said = self._without_runs(said)
        if cut:
            said = self._without_head(said)
        said = " ".join(whole_characters(said).split())
        # Masked before the last cut, so that a secret at the edge isn't shown in half.
        return (mask_cut(said) if cut else mask_text(said))[:EXCERPT_CHARACTERS]

    def _without_runs(self, text: str) -> str:
        """`text` without longer pieces of a secret: a provider that quotes all but the end of a key shows the key."""
        if not self._runs:
            return text
        out: list[str] = []
        at = begin = 0
        while at <= len(text) - _RUN:
            if text[at : at + _RUN] not in self._runs:
                at += 1
                continue
            end = at + _RUN
            # Each further character that still belongs to a run.
            while end < len(text) and text[end - _RUN + 1 : end + 1] in self._runs:
                end += 1
            out += (text[begin:at], MASK)
            at = begin = end
        return "".join((*out, text[begin:]))

    def _without_head(self, text: str) -> str:
        """`text` without an end that begins one of the secrets: nothing would recognize it any more."""
        heads = (secret[:size] for secret in self._secrets for size in range(len(secret) - 1, 3, -1))
        longest = max((len(head) for head in heads if text.endswith(head)), default=0)
        return text[:-longest] + MASK if longest else text


def _longest_first(secrets: Sequence[str]) -> tuple[str, ...]:
    # A secret that contains another one is replaced whole. Very short ones occur in ordinary words.
    return tuple(sorted({s for s in _values(secrets) if len(s) >= 6}, key=len, reverse=True))


def _values(secrets: Sequence[str]) -> Iterator[str]:
    """Each secret as it is sent, and of `Bearer SECRET` the secret alone too: providers quote either."""
    for secret in map(str.strip, secrets):
        yield secret
        scheme, _, value = secret.partition(" ")
        if scheme.lower() in _SCHEMES:
            yield value.strip()


def failure(message: str, code: str, provider: str, *, retryable: bool | None = None, **detail: Any) -> ModelError:
    """A `ModelError` whose `detail` has `provider` and those of `detail` that are not None."""
    known = {k: v for k, v in detail.items() if v is not None}
    return ModelError(message, code=code, retryable=retryable, provider=provider, **known)


def http_failure(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, mask: Masker, *, where: str = ""
) -> ModelError:
    """The error for an HTTP status that is not a success; `where` names the address for the text."""
    said = _said(body)
    excerpt = mask(said.text or body)
    kind = mask(said.kind) or None
    should = headers.get("x-should-retry", "").lower()
    retryable = _status_retryable(status) and (status >= 500 or not _matches(said.kind, _FINAL_KINDS))
    # The header is the server's own word about this very request, so it wins over our table.
    if should in ("true", "false"):
        retryable = should == "true"
    hint = _HINTS.get(status, "")
    if 300 <= status < 400:
        hint = f"it redirects to {mask(headers.get('location', '?'))}; set that as base URL"
    text = f"provider {provider!r} answered {status}{' at ' + where if where else ''}"
    text += f": {excerpt}" if excerpt else " without a word"
    asked = retry_after_s(headers)
    if asked is None and status == 429:
        asked = _reset_s(headers) or said.delay_s
    return failure(
        f"{text}; {hint}" if hint else text,
        "rate_limit" if status == 429 else "provider_error",
        provider,
        retryable=retryable,
        status=status,
        excerpt=excerpt,
        kind=kind,
        retry_after_s=asked,
        request_id=request_id(headers, mask),
    )


def request_id(headers: Mapping[str, str], mask: Masker) -> str | None:
    """What the provider's support asks for."""
    return next((mask(headers[name]) for name in _REQUEST_IDS if headers.get(name)), None)


def _come_back_s(text: str) -> float | None:
    """Seconds that an error's text asks to wait: "Please try again in 1m2.5s"."""
    found = _COME_BACK.search(text[:_READ])
    return None if found is None else _duration_s(found[1])


def _reset_s(headers: Mapping[str, str]) -> float | None:
    """Seconds until the limit that is used up is reset, by OpenAI's headers (`1m2.5s`)."""
    times = [
        seconds
        for kind in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{kind}", "").strip().lstrip("-") == "0"
        and (seconds := _duration_s(headers.get(f"x-ratelimit-reset-{kind}", ""))) is not None
    ]
    return max(times, default=None)


def _duration_s(text: str) -> float | None:
    try:
        parts = [float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text)]
    except ValueError:
        return None
    return sum(parts) if parts else None


def in_band_failure(provider: str, payload: Any, mask: Masker, *, progress: str, status: int = 200) -> ModelError:
    """The error that a provider put into a stream or body that began as a success."""
    said = _said_in(payload)
    excerpt = mask(said.text or _text(payload))
    rate = said.status == 429 or _matches(said.kind, _RATE_KINDS)
    final = _matches(said.kind, _FINAL_KINDS) or (said.status is not None and not _status_retryable(said.status))
    return failure(
        f"provider {provider!r} reported an error {progress}: {excerpt}",
        "rate_limit" if rate else "provider_error",
        provider,
        retryable=rate or not final,
        status=said.status or status,
        excerpt=excerpt,
        kind=mask(said.kind) or None,
        retry_after_s=said.delay_s if rate else None,
    )


class _Said:
    """What an error body says: its text, its kind (code and type), the status it names."""

    __slots__ = ("delay_s", "kind", "status", "text")

    def __init__(self, text: str, kind: str = "", status: int | None = None, delay_s: float | None = None) -> None:
        self.text = text
        self.delay_s = _come_back_s(text) if delay_s is None else delay_s
        """Seconds until it asks to be asked again."""
        self.kind = kind
        self.status = status


def _said(body: bytes) -> _Said:
    try:
        return _said_in(read_json(body))
    except (ValueError, RecursionError):
        return _Said("")


def _said_in(payload: Any, *, passed_on: bool = True) -> _Said:
    # Gemini's compatible endpoint wraps its errors in a list.
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if not isinstance(payload, dict):
        return _Said(payload if isinstance(payload, str) else "")
    inner = payload.get("error") or payload
    if isinstance(inner, str):
        return _Said(inner, *_kind(payload))
    if not isinstance(inner, dict):
        return _Said(_text(inner))
    text = _text(inner.get("message") or inner.get("msg") or inner.get("detail") or "")
    kind, status = _kind(inner)
    if passed_on and (upstream := _upstream(inner)) is not None:
        text, kind = ": ".join(filter(None, (text, upstream.text))), f"{kind} {upstream.kind}".strip()
    return _Said(text, kind, status, _delay_s(inner))


def _upstream(error: Mapping[str, Any]) -> _Said | None:
    """What the service behind a gateway said: of its own OpenRouter says no more than "Provider returned error"."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str) and raw.strip():
        try:
            return _said_in(read_json(raw.encode("utf-8", "replace")), passed_on=False)
        except (ValueError, RecursionError):
            return _Said(raw[:_READ])
    return _said_in(raw, passed_on=False) if isinstance(raw, dict) else None


def _delay_s(error: Mapping[str, Any]) -> float | None:
    """Seconds that Google's `RetryInfo` asks to wait."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            return _duration_s(delay)
    return None


def _kind(data: Mapping[str, Any]) -> tuple[str, int | None]:
    words = [_text(data[k]) for k in ("code", "type", "status") if data.get(k) not in (None, "")]
    # A status inside the body: the HTTP status of an in-band error is 200 and says nothing.
    numbers = (int(w) for w in words if w.isascii() and w.isdigit() and len(w) == 3 and w[0] in "45")
    return " ".join(words), next(numbers, None)


def _text(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:  # nested as deep as a decoder allows, which is deeper than Python's own texts go
        return ""


def _status_retryable(status: int) -> bool:
    return status in _RETRYABLE_STATUS or (status >= 500 and status not in _FINAL_STATUS)


def _matches(kind: str, words: Sequence[str]) -> bool:
    kind = kind.lower()
    return any(word in kind for word in words)
