"""From the text that a model wrote to the arguments of a call: tolerant parsing, and what earlier results there are.

Templates (`{{tool.field}}`) are in `templates.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from graphflow.json_data import deeper_than, values_in
from graphflow.masking import mask_cut, mask_text
from graphflow.messages import HumanMessage, ToolMessage
from graphflow.tools.result import ArgumentsRefused, ToolResult

MAX_DEPTH = 90
"""Levels of lists and objects in arguments and results: what is stored has 100 (`codec.MAX_DEPTH`), and records add to them."""
MAX_VALUES = 250_000
"""As many as a request body has by default."""
INLINE_CHARS = 64 * 1024
"""A text of so many has not enough values to count."""
_JSON_WORDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
}


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments behind a model's text.

    Empty text or `null` means no arguments; a JSON string that contains JSON is decoded again. Text that does not
    parse is never repaired: half a call must not run.

    Raises:
        ArgumentsRefused: the text is not JSON, or not an object; or it is nested too deeply, or has too many values.
    """
    value = _decode(text)
    # Some models encode their arguments twice.
    if isinstance(value, str):
        value = _decode(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ArgumentsRefused(
            [f"the arguments are {_JSON_WORDS[type(value)]}, {_excerpt(text)}; expected a JSON object"]
        )
    if deeper_than(value, MAX_DEPTH):
        raise ArgumentsRefused([f"the arguments are nested deeper than {MAX_DEPTH} levels; send flatter ones"])
    return value


def readable_arguments(text: str) -> dict[str, Any] | None:
    """The same, or None where they can't be read."""
    try:
        return parse_arguments(text)
    except ArgumentsRefused:
        return None


def _decode(text: str) -> Any:
    if not text.strip():
        return None
    try:
        if len(text) > INLINE_CHARS and values_in(text.encode(), MAX_VALUES) > MAX_VALUES:
            raise ArgumentsRefused([f"the arguments have more than {MAX_VALUES:,} values; send fewer"])
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentsRefused([f"the arguments are not valid JSON ({error}): {_excerpt(text)}"]) from None


_FAR = 65_536
"""Characters at each end of a text that are searched for secrets."""


def _excerpt(text: str, limit: int = 160) -> str:
    # Both ends: the end shows where the model stopped, the beginning what it meant. The middle of a long text is not searched.
    far = len(text) > 2 * _FAR
    masked = mask_cut(text[:_FAR]) + mask_text(text[-_FAR:]) if far else mask_text(text)
    return repr(masked if len(masked) <= limit else f"{masked[: limit - 60]}…{masked[-60:]}")


def result_value(result: ToolResult) -> Any:
    """The value of a result for templates: its data, else the content of its text."""
    return result.data or _read(result.text)


class LatestResults(Mapping[str, Any]):
    """Data of the latest result of each tool in this run, by tool name; error results do not count.

    Reads a run's messages back to its input, and only on first access: most calls contain no template.
    """

    def __init__(self, messages: Sequence[Any]) -> None:
        self._messages = messages

    @cached_property
    def _texts(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for index in range(len(self._messages) - 1, -1, -1):
            message = self._messages[index]
            # The run's own input: results of earlier runs are out of date.
            if isinstance(message, HumanMessage):
                break
            if isinstance(message, ToolMessage) and message.name and not message.error:
                # Walking backwards, the first is the latest; `whole`, as a template may name what was cut for the model.
                found.setdefault(message.name, message.whole or message.text)
        return found

    def __getitem__(self, name: str) -> Any:
        return _read(self._texts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _read(content: str) -> Mapping[str, Any]:
    """The JSON object that a text contains; any other text as `{text}`."""
    if content.startswith("{"):
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):  # text that only looks like JSON
            return {"text": content}
        if isinstance(value, dict):
            return _data_of(value)
    return {"text": content}


_ENVELOPE = frozenset({"status", "data", "text", "stats", "context"})


def _data_of(value: dict[str, Any]) -> Mapping[str, Any]:
    """The same value as `result_value`, for a result that the model got as a whole envelope."""
    if not value.keys() >= _ENVELOPE:
        return value
    data = value["data"]
    return data if isinstance(data, dict) and data else {"text": value["text"]}
