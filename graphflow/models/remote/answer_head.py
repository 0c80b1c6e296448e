"""What a provider says of an answer as a whole: which model served it, and under which id. Read once, when the turn is over."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MOST_EVENTS = 4
"""Events at the beginning that are looked at: some services send one with an empty name first."""


class _Served(msgspec.Struct):
    model: str | None = None


class _Head(msgspec.Struct):
    model: str | None = None
    """Chat completions."""
    modelVersion: str | None = None  # noqa: N815 - Gemini's own spelling
    responseId: str | None = None  # noqa: N815
    message: _Served | str | None = None
    """The first event of a Messages stream."""
    response: _Served | None = None
    """The first event of a Responses stream."""


def read_head(beginning: Sequence[bytes]) -> tuple[str | None, str | None]:
    """`(model, id)` by the first events, or by the body; None for what they do not say."""
    model = answer_id = None
    for data in beginning:
        try:
            head = msgspec.json.decode(data, type=_Head)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        inner = [part.model for part in (head.message, head.response) if isinstance(part, _Served)]
        model = model or head.model or head.modelVersion or next(filter(None, inner), None)
        answer_id = answer_id or head.responseId
    return model, answer_id
