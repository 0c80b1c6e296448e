"""One masker for logs, traces and errors: no secret leaves the process by accident."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

MASK = "***"

_SECRET_KEY = re.compile(
    r"(?:^|[_\-.\s]|(?<=[a-z0-9]))(?:authorization|token|(?:api[_\-]?key|secret|password|passwd|passphrase|credential|cookie|"
    r"(?:private|secret|access|signing)[_\-]?(?:access[_\-]?)?key)s?)$",  # `tokens` is a count, never a secret
    re.IGNORECASE,
)
_NAMES = (
    r"(?:authorization|api[_-]?key|token|secret|password|passwd|passphrase|credential|cookie"
    r"|(?:private|secret|access|signing)[_-]?(?:access[_-]?)?key)"
)
_SCHEME = r"(?:Bearer|Basic|Digest|Token)\s+"
_QUOTE = r"(?:\\*[\"'])"
_SECRET_TEXT = re.compile(
    # a name, then (after a sign, or the comma of a list of headers) its value: up to the closing quote, a list or object to the end of the line, else (with its scheme) a word
    rf"(?P<pair>{_NAMES}(?:{_QUOTE}?\s*(?:=>|[=:])\s*|{_QUOTE}\s*,\s*(?:{_QUOTE}value{_QUOTE}\s*:\s*)?(?={_QUOTE}|[\[{{])))"
    rf"(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote))[^\n])*|[\[{{][^\n]*|(?:{_SCHEME})?[^\s\"',;&}}\\]+)"
    r"|(?P<scheme>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=\-]{6,}"
    r"|(?P<address>://[^\s/:@]*:)[^\s/@]+(?=@)"
    r"|\beyJ[\w\-]{8,}\.[\w\-]+(?:\.[\w\-]*)?"
    r"|\b(?:sk|pk|rk|ms|ghp|gho|ghs|hf|glpat|xox[abprs]|github_pat)[-_][A-Za-z0-9_\-]{12,}"
    r"|\b(?:AKIA|AIza)[A-Za-z0-9_\-]{12,}",
    re.IGNORECASE,
)
_NAMED = ("name", "key", "header")
"""Fields that say in `{name, value}` what the value is."""


def is_secret_key(name: str) -> bool:
    """Whether a field of this name holds a secret (`apiKey`, `Authorization`, `db_password`, …)."""
    return _SECRET_KEY.search(name) is not None


def mask_text(text: str) -> str:
    """`text` with bearer values, key-like words, passwords in addresses and `token=…` pairs replaced by `***`.

    JSON inside the text counts too, also JSON inside its strings.
    """
    return _SECRET_TEXT.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    return (found["pair"] or found["scheme"] or found["address"] or "") + (found["quote"] or "") + MASK


class StreamMasker:
    """Masks a text that comes in pieces: what a piece holds of a secret is told by the pieces before it.

    Of a secret without a name beside it (`sk-…`) the first characters pass, until it is known for what it is.
    """

    def __init__(self) -> None:
        self._before = ""

    def feed(self, piece: str) -> str:
        """The piece, with its share of secrets replaced."""
        text, start = self._before + piece, len(self._before)
        self._before = text[-_CONTEXT:]
        out, at = "", start
        for found in _SECRET_TEXT.finditer(text):
            prefix = found["pair"] or found["scheme"] or found["address"] or ""
            begin, end = max(found.start() + len(prefix), at), found.end()
            if end > at:
                out += text[at:begin] + MASK
                at = end
        return out + text[at:]


_CONTEXT = 1024
"""Characters that are looked back for the beginning of a secret."""


def mask(value: Any) -> Any:
    """A copy of `value` with secrets replaced, at any depth; other scalars pass through.

    A secret is told by its field's name, by the name beside it (`{"name": "Authorization", "value": …}`, or a pair of a
    list of headers), or by how it looks in a text.
    """
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, bytes | bytearray):
        return mask_text(bytes(value).decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        named = any(_is_secret_name(value.get(field)) for field in _NAMED)
        return {_key(k): MASK if _is_secret(k, v, named) else mask(v) for k, v in value.items()}
    if isinstance(value, Sequence | AbstractSet):
        items = list(value)
        if len(items) == 2 and _is_secret_name(items[0]) and items[1] not in (None, ""):
            return [items[0], MASK]
        return [mask(item) for item in items]
    return value


def _is_secret(key: Any, value: Any, named: bool) -> bool:
    if value in (None, ""):
        return False
    return is_secret_key(str(key)) or (named and key == "value")


def _is_secret_name(name: Any) -> bool:
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    return isinstance(name, str) and is_secret_key(name)


def _key(key: Any) -> Any:
    return mask_text(key) if isinstance(key, str) else key
