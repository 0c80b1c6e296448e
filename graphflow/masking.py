"""One masker for logs, traces and errors: no secret leaves the process by accident."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"

_SECRET_KEY = re.compile(
    r"(?:^|[_\-.]|(?<=[a-z]))(?:authorization|token|(?:api[_\-]?key|secret|password|passwd|credential|cookie|"
    r"private[_\-]?key)s?)$",  # `tokens` is a count, never a secret
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"(?P<scheme>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=\-]{6,}"
    r"|\b(?:sk|pk|rk|ms|ghp|gho|xox[abp])[-_][A-Za-z0-9_\-]{12,}"
    r"|(?P<pair>\b(?:api[_-]?key|access[_-]?token|refresh[_-]?token|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&}]{3,}",
    re.IGNORECASE,
)


def is_secret_key(name: str) -> bool:
    """Whether a field of this name holds a secret (`apiKey`, `Authorization`, `db_password`, …)."""
    return _SECRET_KEY.search(name) is not None


def mask_text(text: str) -> str:
    """`text` with bearer values, key-like words and `token=…` pairs replaced by `***`."""
    return _SECRET_TEXT.sub(lambda m: (m["scheme"] or m["pair"] or "") + MASK, text)


def mask(value: Any) -> Any:
    """A copy of `value` with secrets replaced, at any depth; scalars pass through."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {k: MASK if is_secret_key(str(k)) and v not in (None, "") else mask(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [mask(v) for v in value]
    return value
