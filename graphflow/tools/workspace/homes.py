"""Which folder is the workspace of a thread: its user's own, or the folder of the one person whose machine it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphflow.private_files import make_private_folder
from graphflow.tools.workspace.files import Workspace
from graphflow.tools.workspace.protected import ProtectedFiles
from graphflow.tools.workspace.system import SYSTEM, System

NOBODY = "_local"
"""Folder of runs without a user where tokens name users; no user's folder is called so."""
LONGEST = 150
# Upper case is encoded too: some file systems take `Ann` and `ann` for one name.
_ODD = re.compile(rb"[^a-z0-9.@-]|^\.|^-|\.$")


def home_name(user: str) -> str:
    """The name of a user's folder: another one for every user, on any file system."""
    raw = user.encode("utf-8", "surrogatepass")
    name = _ODD.sub(lambda odd: b"%%%02x" % odd[0][0], raw).decode("ascii")
    if len(name) <= LONGEST and name:
        return name
    # `~` is in no encoded name, so a shortened one is never somebody else's whole one.
    return f"{name[: LONGEST - 70]}~{hashlib.sha256(raw).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """The workspace of a thread."""

    workspace: Workspace
    shared_server: bool
    """Whether the server has several users, so that they must be kept apart."""


class Workspaces:
    """The workspaces of one server.

    Args:
        folder: of the one person, where no token names a user.
        further: other folders that paths may lead into; relative ones begin in `folder`.
        users: the folder of the users' workspaces; None: everybody works in `folder`.
        protected: files of the server.
        user_of: the user of a thread.
        has_users: whether tokens name users.
    """

    def __init__(
        self,
        folder: Path,
        *,
        further: Sequence[Path] = (),
        users: Path | None = None,
        protected: ProtectedFiles | None = None,
        user_of: Callable[[str], Awaitable[str | None]] | None = None,
        has_users: bool = False,
        system: System = SYSTEM,
    ) -> None:
        self._folder, self._users, self._user_of = folder, users, user_of
        self._further = tuple(folder / path.expanduser() for path in further)
        self._protected, self._system = protected, system
        self.has_users = has_users

    async def of(self, thread_id: str) -> Assigned:
        """The workspace of a thread; a user's is made with the first use."""
        user = None if self._user_of is None else await self._user_of(thread_id)
        apart = self._users is not None and (user is not None or self.has_users)
        folder = self._folder
        if apart and self._users is not None:
            folder = self._users / (NOBODY if user is None else home_name(user))
            make_private_folder(folder)
        workspace = Workspace(folder, self._further, protected=self._protected, system=self._system)
        return Assigned(workspace=workspace, shared_server=apart)
