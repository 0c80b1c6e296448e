"""Files and folders that only the server's own user may open: the store, chat records, uploads, logs and traces."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_private_folder(folder: Path) -> None:
    """Makes a folder and the missing ones above it, all with mode 0700; those that exist keep theirs."""
    if folder.is_dir():
        return
    # `Path.mkdir` gives its mode to the last folder only.
    if folder.parent != folder:
        make_private_folder(folder.parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise


def make_private_file(path: Path) -> None:
    """Makes an empty file with mode 0600 unless the path exists.

    A descriptor of the file itself is never open here: closing one would give up the locks that SQLite holds on the file in
    this process. See https://www.sqlite.org/howtocorrupt.html, section 2.2.
    """
    if path.exists():
        return
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    try:
        # Another process may have been faster: its file stays.
        with suppress(FileExistsError):
            os.link(part, path)
    except OSError:  # a file system without hard links
        if not path.exists():
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
