"""One masker for logs, traces and errors: no secret leaves the process by accident."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

MASK = "***"

_KEYS = (
    r"(?:api[_\- ]?key|secret|password|passwd|passphrase|credential|cookie"
    r"|(?:private|secret|access|account|signing|encryption|subscription)[_-]?(?:access[_-]?)?key)s?"
)
_NAMES = rf"(?:authorization|token|{_KEYS})"  # `tokens` is a count, never a secret
_SECRET_KEY = re.compile(rf"(?:^|[_\-.\s]|(?<=[a-z0-9])){_NAMES}$", re.IGNORECASE)
_SCHEME = r"(?:Bearer|Basic|Digest|Token)\s+"
_QUOTE = r"(?:\\*[\"'])"
_PREFIXES = r"\b(?:sk|pk|rk|ms|ghp|gho|ghs|hf|glpat|xox[abprs]|github_pat)[-_]"
_SECRET = (
    # a header in plain text goes on to the end of its line, or to the quote that it stands in
    r"(?P<header>(?:authorization|cookie):\s*)(?!\\*[\"'])[^\n\"'\\]+"
    # a name, then (after a sign, or the comma of a list of headers) its value: up to the closing quote, a list or object to
    # the end of the line, else (with its scheme) a word; a quote behind a further backslash is part of the value
    rf"|(?P<pair>{_NAMES}(?:{_QUOTE}?\s*(?:=>|[=:])\s*|{_QUOTE}\s*,\s*(?:{_QUOTE}value{_QUOTE}\s*:\s*)?(?=b?{_QUOTE}|[\[{{])))"
    rf"(?:b?(?P<quote>\\*[\"'])(?:(?!(?<!\\)(?P=quote))[^\n])*|[\[{{][^\n]*|(?:{_SCHEME})?[^\s\"',;&}}\\]+)"
    rf"|(?P<flag>(?<![\w-])--[\w-]{{0,40}}?{_NAMES}\s+)[^\s\"'-][^\s\"']*"
    r"|(?P<scheme>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=\-]{6,}"
    r"|(?P<address>://[^\s/:@]*:)[^\s/@]+(?=@)"
    r"|(?P<armour>-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----)[\s\S]*?(?=-----END|\Z)"
    # only where a word begins, dashes in it included, and without going back: else a text of `-eyJ-eyJ…` costs its square
    r"|(?<![\w\-])eyJ[\w\-]{8,}+\.[\w\-]+(?:\.[\w\-]*)?"
    rf"|{_PREFIXES}[A-Za-z0-9_\-]{{12,}}"
    r"|\b(?:AKIA|AIza)[A-Za-z0-9_\-]{12,}"
)
_SECRET_TEXT = re.compile(_SECRET, re.IGNORECASE)
_SECRET_BEGUN = re.compile(
    # what may become a secret with the next piece counts as one already
    rf"{_SECRET}"
    r"|(?P<scheme_begun>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=\-]+\Z"
    r"|(?P<address_begun>://[^\s/:@]*:)(?!\d{1,5}\Z)[^\s/@]+\Z"
    rf"|(?<![\w\-])eyJ[\w\-.]++\Z|{_PREFIXES}[A-Za-z0-9_\-]+\Z|\b(?:AKIA|AIza)[A-Za-z0-9_\-]+\Z",
    re.IGNORECASE,
)
_SIGNS = (
    "authorization", "cookie", "token", "key", "secret", "pass", "credential", "bearer", "basic", "://", "-----begin", "eyj",
    "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ms-", "ms_", "ghp", "gho", "ghs", "hf-", "hf_", "glpat", "xox", "github_pat",
    "akia", "aiza",
)  # fmt: skip
"""Every secret contains one of these; searching for them is a hundred times faster than the pattern."""
_NAMED = ("name", "key", "header")
"""Fields that name the value in `{name, value}`."""


def is_secret_key(name: str) -> bool:
    """Whether a field of this name holds a secret (`apiKey`, `Authorization`, `db_password`, …)."""
    return _SECRET_KEY.search(name) is not None


def mask_text(text: str) -> str:
    """`text` with bearer values, key-like words, passwords in addresses and `token=…` pairs replaced by `***`.

    JSON inside the text counts too, also JSON inside its strings.
    """
    # Nearly every text is free of them, and this runs for each line of the log.
    return _SECRET_TEXT.sub(_masked, text) if _has_signs(text) else text


def mask_cut(text: str) -> str:
    """`mask_text` for the beginning of a longer text: what may be the head of a secret at its end is masked too."""
    return _SECRET_BEGUN.sub(_masked, text) if _has_signs(text) else text


def excerpt(text: str, characters: int) -> str:
    """At most this many characters of `text`, masked before the cut: a secret at the edge is never shown in half."""
    said = text[: characters + _CONTEXT]
    return (mask_text(said) if len(said) == len(text) else mask_cut(said))[:characters]


def _has_signs(text: str) -> bool:
    folded = text.casefold()
    return any(sign in folded for sign in _SIGNS)


def _masked(found: re.Match[str]) -> str:
    # The name stays readable; only the value is replaced.
    return found[0][: _begin(found) - found.start()] + MASK


def _begin(found: re.Match[str]) -> int:
    """The start of the secret in a match: after its named groups (name and sign, scheme, opening quote)."""
    return max(found.start(), *map(found.end, found.re.groupindex.values()))


class StreamMasker:
    """Masks a text that arrives in pieces, using the pieces before to recognize secrets.

    A possible secret (`sk-` and more) is masked from its beginning, so a harmless word that begins like one
    loses letters.
    """

    def __init__(self) -> None:
        self._before = ""

    def feed(self, piece: str) -> str:
        """The piece with its parts of secrets replaced."""
        text, at = self._before + piece, len(self._before)
        if not _has_signs(text):
            self._before = text[-_CONTEXT:]
            return piece
        out, last = "", None
        for last in _SECRET_BEGUN.finditer(text):
            begin, end = max(_begin(last), at), last.end()
            if end > begin:
                out += text[at:begin] + MASK
                at = end
        self._before = text[-_CONTEXT:] if last is None or last.end() < len(text) else _shortened(text[last.start() :])
        return out + text[at:]


# Bounds the work per piece: a stream of many small pieces must not be searched from its beginning each time.
_CONTEXT = 1024
"""Characters kept from earlier pieces to find the beginning of a secret."""


def _shortened(secret: str) -> str:
    """A shortened unfinished secret: its beginning, which shows its kind, and its end, which may close it."""
    return secret if len(secret) <= _CONTEXT else secret[: _CONTEXT // 2] + secret[-_CONTEXT // 2 :]


def mask(value: Any) -> Any:
    """A copy of `value` with secrets replaced, at any depth; other scalars pass through.

    A secret is recognized by its field's name, by a name next to it (`{"name": "Authorization", "value": …}`, or a pair of a
    list of headers), or by its form in a text.
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
        # Headers as pairs: the name is a value here, not a key.
        if len(items) == 2 and _is_secret_name(items[0]) and items[1] not in (None, ""):
            return [items[0], MASK]
        return [mask(item) for item in items]
    return value


SHOWN_CHARS = 1_000
SHOWN_ITEMS = 100


def mask_excerpt(value: Any) -> Any:
    """`mask` for a line of a log: of each text at most 1,000 characters, of each list or object 100 entries, of all 1,000."""
    return mask(_shortened_value(value, [10 * SHOWN_ITEMS]))


def _shortened_value(value: Any, left: list[int]) -> Any:
    left[0] -= 1
    if isinstance(value, str):
        return value if len(value) <= SHOWN_CHARS else f"{excerpt(value, SHOWN_CHARS)}… ({len(value)} characters)"
    if not isinstance(value, Mapping | list | tuple):
        return value
    most = max(0, min(SHOWN_ITEMS, left[0]))
    if isinstance(value, Mapping):
        out = {_shortened_value(k, left): _shortened_value(v, left) for k, v in islice(value.items(), most)}
        return out if len(value) <= most else {**out, "…": f"{len(value) - most} more"}
    items = [_shortened_value(item, left) for item in islice(value, most)]
    return items if len(value) <= most else [*items, f"… {len(value) - most} more"]


def _is_secret(key: Any, value: Any, named: bool) -> bool:
    # An empty value shows that a secret is missing, which a reader of the log must see.
    if value in (None, ""):
        return False
    return is_secret_key(str(key)) or (named and key == "value")


def _is_secret_name(name: Any) -> bool:
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    return isinstance(name, str) and is_secret_key(name)


def _key(key: Any) -> Any:
    # A map may have secrets as its keys, from token to user for one.
    return mask_text(key) if isinstance(key, str) else key
