"""`graphflow threads prune|rekey`: letting old checkpoints go, and sealing the store under another key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command, stop
from graphflow.cli.commands.threads_travel import DryRun, PlainJson
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import interactive, note, say, say_json

if TYPE_CHECKING:
    from graphflow.runtime.thread import Thread
    from graphflow.service.application import Application

DAY_MS = 86_400_000


def register(threads: typer.Typer) -> None:
    for name, function in (("prune", prune), ("rekey", rekey)):
        command(threads, name)(function)


async def prune(
    thread: Annotated[
        list[str] | None, typer.Argument(metavar="[THREAD]...", help="Ids; an end that fits one is enough.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every thread.")] = False,
    newest: Annotated[int | None, typer.Option(min=0, metavar="N", help="Keep the newest N checkpoints.")] = None,
    days: Annotated[float | None, typer.Option(min=0, metavar="D", help="Keep those of the last D days.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    as_json: PlainJson = False,
) -> None:
    """Let old checkpoints go, with all that only they needed. The head, open questions and fork points stay."""
    from graphflow.cli.startup import opened

    if newest is None and days is None:
        stop(exits.USAGE, "say what to keep: --newest N, --days D, or both (then either suffices)")
    if bool(thread) == everything:
        stop(exits.USAGE, "name threads, or --all")
    async with opened() as app:
        found = await _chosen(app, thread)
        since = None if days is None else app.clock.now_ms() - int(days * DAY_MS)
        if not dry_run and not yes and not await _agreed(found, newest, since):
            note("kept")
            return
        lines = [await _prune(each, newest, since, dry_run=dry_run) for each in found]
    if as_json:
        say_json(lines)
        return
    for line in lines:
        verb = "would go" if dry_run else "gone"
        say(
            f"thread {line['threadId']}: {line['checkpoints']} checkpoints {verb}, {line['kept']} kept;"
            f" {line['records']} records, {line['size']} bytes"
        )


async def _chosen(app: Application, given: list[str] | None) -> list[Thread]:
    from graphflow.cli.startup import thread_named

    if given:
        return [await thread_named(app, each) for each in given]
    await app.runs.ready()
    out, cursor = [], None
    while page := await app.store.threads(cursor=cursor, limit=200):
        out += [
            (await app.graph_of_thread(row.thread_id)).thread(row.thread_id) for row in page if row.head is not None
        ]
        cursor = page[-1].thread_id
    return out


async def _agreed(found: list[Thread], newest: int | None, since: int | None) -> bool:
    from graphflow.cli.terminal.prompts import read_line

    count = sum([(await each.prune(newest=newest, since=since, dry_run=True)).checkpoints for each in found])
    if not count:
        return True
    text = f"{count} checkpoints of {len(found)} threads"
    if not interactive():
        stop(exits.USAGE, f"pruning {text} needs --yes where nobody can be asked")
    return (await read_line(f"let {text} go? This can't be undone. [y/N] ")).lower() in ("y", "yes")


async def _prune(thread: Thread, newest: int | None, since: int | None, *, dry_run: bool) -> dict[str, Any]:
    import msgspec

    pruned = await thread.prune(newest=newest, since=since, dry_run=dry_run)
    return {"threadId": thread.id, **msgspec.structs.asdict(pruned)}


async def rekey(
    new_key: Annotated[bool, typer.Option("--new-key", help="Only print a fresh key; nothing is changed.")] = False,
) -> None:
    """Seal the whole store under the first of `store.keys`; also one that was made without keys. Can be cut off and repeated."""
    from graphflow.checkpoints.encryption.checkpointer import SealedCheckpointer
    from graphflow.checkpoints.encryption.cipher import new_key as make_key
    from graphflow.cli.startup import opened

    if new_key:
        say(make_key())
        return
    async with opened() as app:
        if not isinstance(app.store, SealedCheckpointer):
            stop(exits.USAGE, "there is nothing to seal with: set store.keys (or store.compression)")
        await app.store.rekey()
        names = ", ".join(repr(key.id) for key in app.store.seal.keys)
    note(f"the store is sealed under {names.split(', ')[0]}" if names else "the store is compressed")
    if "," in names:
        note(f"no longer needed: {names.partition(', ')[2]}")
