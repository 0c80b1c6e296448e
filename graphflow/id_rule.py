"""The ids that threads and runs may be given: one rule for Python, the command line and HTTP.

It is asked where an id would come into being. What was stored under another id stays there to be read, resumed and deleted,
so a look-up judges an id only once nothing has it.
"""

from __future__ import annotations

import re
from typing import Any

from graphflow.errors import GraphflowError, ThreadNotFound
from graphflow.excerpts import excerpt_of
from graphflow.faces import http_name

# An id stands in URLs, command lines (`THREAD@CHECKPOINT`) and names of files, where `..` would leave a folder.
_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9._:-]{1,128}")
RULE = "1 to 128 characters of A-Z a-z 0-9 . _ : - without '..'"


def is_id(given: object) -> bool:
    return isinstance(given, str) and _ID.fullmatch(given) is not None


def may_exist(given: object) -> bool:
    """Whether an earlier version could have stored a thread under it."""
    return isinstance(given, str) and "\0" not in given and given.encode("utf-8", "ignore").decode() == given


def check_id(given: object, field: str = "thread_id") -> None:
    """Refuses an id that nothing new may get.

    Raises:
        GraphflowError: `invalid_input`, which names the field.
    """
    if not is_id(given):
        rule = not_an_id(given)
        raise GraphflowError(f"{field}: {rule}", code="invalid_input", fields={field: rule})


def unknown_id(given: str, field: str, message: str, code: str | None = None) -> ThreadNotFound:
    """The error for an id that nothing has: `message`, or the rule if nothing could have it."""
    if is_id(given):
        detail: dict[str, Any] = {http_name(field): given}
        return ThreadNotFound(message, code=code, **detail)
    rule = not_an_id(given)
    return ThreadNotFound(f"{field}: {rule}", code="invalid_input", fields={field: rule})


def not_an_id(given: object) -> str:
    """Why it is none."""
    return f"{excerpt_of(given, 160)} is not a valid id: {RULE}"
