"""The text of a file and the bytes that it came from: encoding, byte order mark, and whether one gives back the other."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from graphflow.tools.workspace import FileRefused

HEAD_BYTES = 8_192
"""Bytes in which a NUL shows at once that a file is no text."""
# The mark of UTF-32 begins with that of UTF-16, so it comes first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, kw_only=True)
class FileText:
    """The text of a file, without its byte order mark."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    """The byte order mark."""
    exact: bool = True
    """Whether the text gives the bytes back; one that does not may be read, and not be edited."""

    def encoded(self, text: str) -> bytes:
        """Another text as bytes of the same encoding, with the same mark.

        Raises:
            FileRefused: `INVALID_PARAM`, the encoding has no bytes for a character.
        """
        try:
            # A mark at the beginning of the new text would be a second one.
            return self.mark + (text.removeprefix("\ufeff") if self.mark else text).encode(self.encoding)
        except UnicodeEncodeError as error:
            what = f"the character {text[error.start]!a}"
            raise FileRefused("INVALID_PARAM", f"{what} has no form in {self.encoding}, which the file is in") from None


NEW = FileText(text="")
"""What a new file is like."""


def text_of(data: bytes, encodings: Sequence[str] = ()) -> FileText | None:
    """The text of the bytes; None for those of a binary file.

    Args:
        data: all of the file.
        encodings: tried in this order for what is not UTF-8, each only where it gives the same bytes back.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            marked = _strict(data[len(mark) :], encoding)
            if marked is None:
                break  # the beginning of something else
            return None if "\0" in marked else FileText(text=marked, encoding=encoding, mark=mark)
    if b"\0" in data:
        return None
    for encoding in ("utf-8", *encodings):
        text = _strict(data, encoding)
        if text is not None and "\0" not in text:
            return FileText(text=text, encoding=encoding)
    return FileText(text=data.decode("utf-8", "replace"), exact=False)


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        text = data.decode(encoding)
        # UTF-8 has one form of each text; other encodings may have several, and edits must not choose another one.
        return text if encoding == "utf-8" or text.encode(encoding) == data else None
    except UnicodeError:
        return None
