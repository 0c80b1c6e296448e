"""Which version of a document a thread runs: the newest for new runs, its own for what it has begun (E23)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.bounds import DEFAULTS, Bounds
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import GraphflowError, StoreError
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.plan_builder import build_plan
from graphflow.graph.definition.document import NodeDefinition
from graphflow.graph.definition.kinds import Kinds, NodeFunction
from graphflow.graph.validation.model_prices import prices_hint, unpriced

if TYPE_CHECKING:
    from graphflow.graph.definition.checked_document import CheckedDocument


INLINE_NODES = 200
"""A larger document takes longer to build than a run may keep the event loop."""


class Documents:
    """The newest version of one document, and older ones by their hash."""

    def __init__(
        self,
        checked: CheckedDocument | Callable[[], CheckedDocument],
        kinds: Kinds,
        store: Checkpointer | None,
        bounds: Bounds = DEFAULTS,
    ) -> None:
        self._source = checked
        self._kinds, self._store = kinds, store
        self.bounds = bounds
        self._newest: Plan | None = None
        self.built = False
        """Whether `newest` has nothing left to do."""
        self._checked: CheckedDocument | None = None
        self._plans: dict[str, Plan] = {}
        self._kept: set[str] = set()

    def newest(self) -> Plan:
        if self._newest is None:
            self._newest = build_plan(self.checked(), self._kinds, bounds=self.bounds)
            self._plans[self._newest.digest] = self._newest
            self.built = True
        return self._newest

    async def build(self) -> None:
        """Builds the newest version, so that `newest` has it; a large one in a thread."""
        if not self.built and len(self.checked().document.nodes) > INLINE_NODES:
            await asyncio.to_thread(self.newest)

    def checked(self) -> CheckedDocument:
        """The document with its warnings; checks it first if that has not happened."""
        if self._checked is None:
            self._checked = self._source() if callable(self._source) else self._source
        return self._checked

    def check_priced(self, plan: Plan, figures: Mapping[str, Any]) -> None:
        """Rejects a request's cost limit if a price is unknown, as loading does for a document's (E11)."""
        if "costUsd" not in figures:
            return
        if missing := unpriced([plan.document, *(inner.document for inner in plan.graphs.values())], self._kinds):
            raise GraphflowError(
                f"the budget has maxCostUsd, and the price of {', '.join(missing)} is not known, which never counts as 0;"
                f" {prices_hint(missing)}",
                code="invalid_input",
            )

    async def keep(self, plan: Plan) -> None:
        """Stores the newest document under its hash, so that its threads can always resume under it."""
        # The hash names the content, so one write per process is enough.
        if self._store is not None and plan.digest not in self._kept:
            await self._store.put_document(plan.digest, msgspec.json.encode(_packed(self.checked())))
            self._kept.add(plan.digest)

    async def of(self, machine: Machine, pinned: str | None) -> Plan:
        """The plan of a checkpoint: that of the version it was made under, whatever the thread runs now.

        Args:
            pinned: the thread's version, for checkpoints before its first input.
        """
        return await self.pinned(machine.document or pinned)

    async def pinned(self, digest: str | None) -> Plan:
        """The plan of a version that a thread has begun; validated when it was stored (E20)."""
        if digest is None or (self._newest is not None and digest == self._newest.digest):
            return self.newest()
        plan = self._plans.get(digest)
        if plan is None:
            if self._store is None:
                raise StoreError(f"without a checkpointer there is no document {digest}")
            checked = await stored_document(self._store, digest)
            build = partial(build_plan, checked, self._kinds, bounds=self.bounds)
            large = len(checked.document.nodes) > INLINE_NODES
            plan = self._plans[digest] = await asyncio.to_thread(build) if large else build()
        return plan

    def function(self, use: str, plan: Plan) -> NodeFunction | None:
        """What runs `use`, outside any node; None when nothing of this name is registered here."""
        kind = self._kinds.find(use)
        return None if kind is None else kind.build(use, NodeDefinition(use=use), plan.document)


async def stored_document(store: Checkpointer, digest: str | None) -> CheckedDocument:
    """A document that the store keeps, without checking it again (E20).

    Raises:
        StoreError: the store has none of this hash.
    """
    data = await store.document(digest) if digest is not None else None
    if data is None:
        raise StoreError(
            f"the store has no document {digest}; the thread can't go on without the version it was begun with"
        )
    return _unpacked(msgspec.json.decode(data), digest or "")


def _packed(checked: CheckedDocument) -> dict[str, Any]:
    out: dict[str, Any] = {"document": checked.data}
    if checked.subgraphs:
        out["graphs"] = {key: {"digest": sub.digest, **_packed(sub)} for key, sub in checked.subgraphs.items()}
    if checked.agents:
        out["agents"] = {key: {"digest": sub.digest, **_packed(sub)} for key, sub in checked.agents.items()}
    return out


def _unpacked(data: dict[str, Any], digest: str) -> CheckedDocument:
    from graphflow.graph.definition.checked_document import CheckedDocument
    from graphflow.graph.definition.document import decode_document
    from graphflow.graph.definition.old_words import renewed

    return CheckedDocument(
        # A stored document may use keys that were renamed since; its version stays that of the stored text.
        document=decode_document(dict(renewed(data["document"])[0])),
        data=data["document"],
        digest=digest,
        warnings=(),
        subgraphs={key: _unpacked(sub, sub["digest"]) for key, sub in data.get("graphs", {}).items()},
        agents={key: _unpacked(sub, sub["digest"]) for key, sub in data.get("agents", {}).items()},
    )
