"""Texts that every store can keep: ids and names are refused where one could not, titles are cleaned."""

from __future__ import annotations

from graphflow.checkpoints import errors


def check_text(*texts: str | None) -> None:
    """Refuses an id or a name that one of the stores could not keep.

    The same in every store: PostgreSQL has no NUL in its texts and neither database has lone surrogates, so a thread that
    began in memory or in SQLite could not move otherwise.

    Raises:
        StoreError: `invalid_input`.
    """
    for text in texts:
        # Most ids are ASCII, which costs no copy of the text; this is called for every row.
        if text and ("\0" in text or not (text.isascii() or _is_whole(text))):
            raise errors.not_a_text(text)


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_title(title: str | None) -> str | None:
    """The title without NUL, and with `?` for each lone surrogate."""
    # Cleaned and not refused: a title is cut from what a person wrote, and a run must not fail for it.
    return title and title.encode("utf-8", "replace").decode().replace("\0", "")
