"""A JSON string that is decoded while it is still arriving; pure."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r'["\\]')
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LOST = "\ufffd"


class JsonString:
    """Decodes one JSON string from after its opening quote on, in pieces of any size."""

    __slots__ = ("_escape", "_high", "closed")

    def __init__(self) -> None:
        self._escape = ""
        self._high = 0
        """The first half of a surrogate pair, waiting for its second."""
        self.closed = False

    def read(self, text: str, at: int) -> tuple[str, int]:
        """The decoded text so far, and where reading stopped: after the closing quote, or at the end of the text."""
        out = []
        while at < len(text) and not self.closed:
            if self._escape:
                piece, at = self._in_escape(text[at], at)
                out.append(piece)
                continue
            found = _SPECIAL.search(text, at)
            stop = len(text) if found is None else found.start()
            # Plain text or the end follows, so a waiting first half stays alone.
            if stop > at or text[stop] == '"':
                out.append(self._alone() + text[at:stop])
            if found is not None:
                self._escape, self.closed = ("\\", False) if text[stop] == "\\" else ("", True)
            at = stop + (found is not None)
        return "".join(out), at

    def end(self) -> str:
        """The rest when the text ends before the string does."""
        cut, self._escape = self._escape, ""
        return self._alone() or (_LOST if cut else "")

    def _alone(self) -> str:
        """The replacement for a first half without its second."""
        high, self._high = self._high, 0
        return _LOST if high else ""

    def _in_escape(self, char: str, at: int) -> tuple[str, int]:
        """Reads one more character of an escape: the text that it completes, and where to continue."""
        escape = self._escape + char
        if escape == "\\u" or (len(escape) > 2 and char in _HEX):
            self._escape = escape
            digits = escape[2:]
            # Given up as soon as the digits rule out a second half, so that text is not held longer than needed.
            before = "" if _may_be_low(digits) else self._alone()
            return before + (self._unit(int(digits, base=16)) if len(digits) == 4 else ""), at + 1
        self._escape = ""
        if len(escape) > 2:  # no hexadecimal digit: what came of the escape is text, and the character is read anew
            return self._alone() + escape[:-1], at
        return self._alone() + _ESCAPES.get(char, escape), at + 1

    def _unit(self, code: int) -> str:
        self._escape = ""
        if 0xD800 <= code < 0xDC00:
            before, self._high = self._alone(), code
            return before
        if 0xDC00 <= code < 0xE000:
            high, self._high = self._high, 0
            return chr(0x10000 + ((high - 0xD800) << 10) + code - 0xDC00) if high else _LOST
        return self._alone() + chr(code)


def _may_be_low(digits: str) -> bool:
    """Whether these first digits of an escape can begin the second half of a surrogate pair."""
    return digits[:1].lower() in ("", "d") and digits[1:2].lower() in ("", "c", "d", "e", "f")
