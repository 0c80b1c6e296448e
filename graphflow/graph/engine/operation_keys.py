"""The keys that one attempt of a node gives its recorded operations (E5)."""

from __future__ import annotations

from graphflow.errors import NodeFailed


class OperationKeys:
    """Names operations so that an attempt that is entered again, and runs the same code, names them alike."""

    __slots__ = ("_counts", "_used", "calls")

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self.calls: set[str] = set()
        """Ids of the calls of models in this attempt."""

    def use(self, node: str, kind: str, name: str | None) -> str:
        """The key of an operation.

        Raises:
            NodeFailed: it was used in this attempt.
        """
        key = self.ordinal(kind) if name is None else name
        if key in self._used:
            raise NodeFailed(f"node {node!r} used the key {key!r} twice in one attempt; give each operation its own")
        self._used.add(key)
        return key

    def ordinal(self, kind: str) -> str:
        """The key of the next operation of this kind that is given none: the n-th of a kind is the same operation."""
        return f"{kind}:{self._count(kind)}"

    def of_call(self, call_id: str) -> str:
        """The key of a tool call: its id, and a number when calls before it had the same one."""
        count = self._count(f"call {call_id}")
        return call_id if count == 1 else f"{call_id}#{count}"

    def _count(self, what: str) -> int:
        self._counts[what] = count = self._counts.get(what, 0) + 1
        return count
