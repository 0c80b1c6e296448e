"""The tools of servers that a run was begun with: recorded under their hash, so that it goes on with them after a restart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StoreError
from graphflow.tools.mcp.listing import McpTool

Lists = Mapping[str, tuple[McpTool, ...]]
"""Server → its tools."""
_decoder = msgspec.json.Decoder(dict[str, tuple[McpTool, ...]])


class RecordedTools:
    """What some servers offered at one moment.

    Args:
        lists: by server.
    """

    def __init__(self, lists: Lists) -> None:
        self.lists = dict(sorted(lists.items()))
        self._data = msgspec.json.encode(self.lists)
        self.digest = f"sha256:{hashlib.sha256(self._data).hexdigest()}"
        self._kept = False

    async def keep(self, store: Checkpointer) -> None:
        """Stores the lists under their hash; once, as the hash names the content."""
        if not self._kept:
            await store.put_document(self.digest, self._data)
            self._kept = True

    @classmethod
    async def stored(cls, store: Checkpointer, digest: str) -> RecordedTools:
        """The lists of a hash.

        Raises:
            StoreError: the store has none of this hash.
        """
        data = await store.document(digest)
        if data is None:
            raise StoreError(
                f"the store has no list of tools {digest}; the run can't go on with the tools that it has begun"
            )
        return cls(_decoder.decode(data))


def lists_of(servers: Iterable[str], offered: Mapping[str, tuple[McpTool, ...]]) -> RecordedTools | None:
    """What these servers offer; None for none of them."""
    named = {name: offered.get(name, ()) for name in servers}
    return RecordedTools(named) if named else None
