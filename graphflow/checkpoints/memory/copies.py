"""Threads of the memory store as copies for an export, and back."""

from __future__ import annotations

import msgspec

from graphflow.checkpoints import errors, export
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.memory.rows import checked_facts, reach
from graphflow.checkpoints.memory.tables import Tables
from graphflow.checkpoints.rows import Lineage, Rewrite


def copy_thread(tables: Tables, thread_id: str) -> export.ThreadCopy:
    """Everything of the thread, for an export."""
    thread = tables.known(thread_id)
    tree = sorted(reach(thread).items(), key=lambda pair: pair[0].order)
    copy = export.ThreadCopy(
        thread=tables.row(thread),
        lineages=[
            Lineage(
                number=lineage.number,
                thread_id=thread.id,
                parent=None if lineage.parent is None else lineage.parent.number,
                cut=lineage.cut,
            )
            for lineage, _ in tree
        ],
        records=[
            # Open interrupts have rows of their own in a copy, and the ledger stays with its store.
            msgspec.structs.replace(record, opened=(), closed=(), spent=None)
            for lineage, upto in tree
            for record in lineage.found(0, upto)
        ],
        items=[item for lineage, upto in tree for item in lineage.loose(upto)],
        interrupts=tables.interrupts_of(thread_id),
        queue=tables.queue.copies(thread_id),
        runs=[run for run, owner in tables.runs.items() if owner == thread_id],
    )
    for digest in export.named_documents(copy):
        if digest in tables.documents:
            copy.documents.append(export.StoredDocument(digest=digest, data=tables.documents[digest]))
    return copy


def import_thread(tables: Tables, exported: export.ThreadCopy, thread_id: str | None, change: Rewrite | None) -> str:
    """Stores a copy; the thread's id. Whatever can be refused is refused before anything is stored."""
    copy = export.placed(exported, thread_id, tables.lineages.__contains__, change)
    row = copy.thread
    check_text(row.thread_id)
    facts = checked_facts(row.facts, row.facts)
    if row.thread_id in tables.threads:
        raise errors.exists(row.thread_id)
    thread = tables.add_thread(row.thread_id, facts, row.created_at)
    # Never below that of a deleted namesake, whose run may still try to commit.
    thread.fence = max(thread.fence, row.fence)
    for lineage in copy.lineages:
        tables.keep(thread, tables.begin(thread, lineage))
    for record in copy.records:
        tables.lineages[record.lineage].add(record)
    for item in copy.items:
        tables.lineages[item.lineage].keep_loose(item)
    thread.head, thread.ordinal = row.head, row.ordinal
    thread.lineage = None if row.lineage is None else tables.lineages[row.lineage]
    for interrupt in copy.interrupts:
        tables.interrupts[thread.id, interrupt.interrupt_id] = interrupt
    for queued in copy.queue:
        tables.queue.push(thread.id, queued)
    for run_id in copy.runs:
        tables.runs.setdefault(run_id, thread.id)
    for document in copy.documents:
        tables.documents.setdefault(document.digest, document.data)
    return thread.id
