"""`graphflow threads rename|rm|export|import|prune|rotate-keys`: what the store keeps of threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command
from graphflow.cli.options import AsJson, DryRun, NewId, ThreadId, Yes
from graphflow.cli.startup import ANOTHER_ID, opened, opened_thread, thread_named, threads_in_store
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import interactive, note, one_line_json, put, say, say_json, stop
from graphflow.cli.terminal.lines_file import read_lines, write_lines
from graphflow.excerpts import count
from graphflow.faces import spoken

if TYPE_CHECKING:
    from graphflow.runtime.thread import Thread
    from graphflow.service.application import Application

DAY_MS = 86_400_000


def register(threads: typer.Typer) -> None:
    for name, function in (
        ("prune", prune),
        ("rotate-keys", rotate_keys),
        ("rename", rename),
        ("rm", remove),
        ("export", export),
        ("import", import_),
    ):
        command(threads, name)(function)


async def rename(
    thread: ThreadId,
    title: Annotated[
        str,
        typer.Argument(
            metavar="TITLE", help="1 to 200 printable characters; an empty one gives the automatic title back."
        ),
    ],
) -> None:
    """Set the title of a thread, as `threads update --title` does."""
    async with opened_thread(thread) as (_, found):
        line = await found.update(title=title or None)
    note(f"thread {found.id} is now {line.title or ''!r}")


async def remove(
    thread: Annotated[
        list[str],
        typer.Argument(metavar="THREAD", help="Ids; unique prefixes or suffixes of 4 characters or more are enough."),
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete threads and everything that no other thread shares. Cannot be undone; `export` keeps a copy."""
    async with opened() as app:
        for each in [await thread_named(app, given) for given in thread]:
            what = f"thread {each.id} with {count(len(await each.tree()), 'checkpoint')}"
            if dry_run:
                note(f"would delete {what}")
            elif not yes and not await _confirmed(f"delete {what}?", f"deleting thread {each.id}"):
                note("kept")
            else:
                row = await app.runs.take(each.id, create=False)  # refuses a thread that another process drives
                await app.store.release(each.id, row.fence)
                await each.delete()
                # Transcript and search index lie outside the store.
                await app.chat_record.delete(each.id)
                await app.conversations.delete(each.id)
                note(f"deleted thread {each.id}")


async def _confirmed(question: str, action: str) -> bool:
    """Whether the person at the terminal says yes."""
    if not interactive():
        stop(exits.USAGE, f"{action} needs --yes without a terminal")
    from graphflow.cli.terminal.prompts import read_line

    return (await read_line(f"{question} [y/N]")).lower() in ("y", "yes")


async def export(
    thread: ThreadId, file: Annotated[str | None, typer.Argument(metavar="FILE", help="Default: stdout.")] = None
) -> None:
    """Write a thread as JSON Lines, lossless; any store can import it."""
    async with opened_thread(thread) as (app, found):
        lines = app.store.export_thread(found.id)
        if file is None or file == "-":
            async for line in lines:
                put(one_line_json(line))
            return
        await write_lines(Path(file), lines)
    note(f"thread {found.id} is in {file}")


async def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote; - reads stdin.")],
    new_id: NewId = None,
) -> None:
    """Import an exported thread. Prints its id."""
    from graphflow.checkpoints.imports.readable import checked_copy
    from graphflow.errors import StoreError, ThreadExists

    lines = [line async for line in read_lines(file)]
    try:
        # Before the store is asked: what is wrong with the file, of whatever kind, is wrong usage and no failure of the store.
        await checked_copy(_each(lines))
    except StoreError as error:
        stop(
            exits.USAGE,
            spoken(error.message, "cli"),
            hint="import reads what `graphflow threads export` wrote, unchanged",
        )
    async with opened() as app:
        await app.runs.ready()
        try:
            say(await app.store.import_thread(_each(lines), thread_id=new_id))
        except ThreadExists as error:
            stop(exits.USAGE, spoken(error.message, "cli"), hint=ANOTHER_ID)


async def _each(lines: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for line in lines:
        yield line


async def prune(
    thread: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[THREAD]...", help="Ids; unique prefixes or suffixes of 4 characters or more are enough."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every thread.")] = False,
    newest: Annotated[int | None, typer.Option(min=0, metavar="N", help="Keep the newest N checkpoints.")] = None,
    days: Annotated[float | None, typer.Option(min=0, metavar="D", help="Keep those of the last D days.")] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Return the freed disk space to the operating system; use it while no run is at work."
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old checkpoints and the data that only they used. The head, open questions and fork points stay."""
    if newest is None and days is None:
        stop(exits.USAGE, "say what to keep: --newest N, --days D, or both (a checkpoint that fits either is kept)")
    if bool(thread) == everything:
        stop(exits.USAGE, "name one or more threads, or give --all")
    async with opened() as app:
        found = await _chosen(app, thread)
        # One moment for the question and for the deletion: what was agreed to is what goes.
        now = app.clock.now_ms()
        if days is not None and not days * DAY_MS <= now:
            stop(exits.USAGE, f"--days {days:g} begins before 1970: give at most {now // DAY_MS}")
        since = None if days is None else now - int(days * DAY_MS)
        if not dry_run and not yes and not await _may_prune(found, newest, since):
            note("kept")
            return
        lines = [await _prune(each, newest, since, dry_run=dry_run) for each in found]
        # Before the space is returned, which may be refused: what was deleted is deleted.
        _say_pruned(lines, dry_run=dry_run, as_json=as_json)
        if compact and not dry_run:
            await app.store.compact()


def _say_pruned(lines: list[dict[str, Any]], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        say_json(lines)
        return
    for line in lines:
        verb = "would be deleted" if dry_run else "deleted"
        say(
            f"thread {line['threadId']}: {count(line['checkpoints'], 'checkpoint')} {verb}, {line['kept']} kept;"
            f" {count(line['records'], 'record')}, {line['size']} bytes"
        )


async def _chosen(app: Application, given: list[str] | None) -> list[Thread]:
    if given:
        return [await thread_named(app, each) for each in given]
    return [
        (await app.graph_of_thread(row.thread_id)).thread(row.thread_id)
        async for row in threads_in_store(app)
        if row.head is not None
    ]


async def _may_prune(found: list[Thread], newest: int | None, since: int | None) -> bool:
    # Counted by a dry run; where nothing would go, there is nothing to ask.
    total = sum([(await each.prune(newest=newest, since=since, dry_run=True)).checkpoints for each in found])
    what = f"{count(total, 'checkpoint')} of {count(len(found), 'thread')}"
    return not total or await _confirmed(f"delete {what}? This cannot be undone.", f"pruning {what}")


async def _prune(thread: Thread, newest: int | None, since: int | None, *, dry_run: bool) -> dict[str, Any]:
    import msgspec

    pruned = await thread.prune(newest=newest, since=since, dry_run=dry_run)
    return {"threadId": thread.id, **msgspec.structs.asdict(pruned)}


async def rotate_keys(
    new_key: Annotated[bool, typer.Option("--new-key", help="Only print a fresh key; nothing is changed.")] = False,
) -> None:
    """Encrypt the whole store under the first of `store.keys`, including a store that was plain. Safe to interrupt and repeat."""
    from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
    from graphflow.checkpoints.encryption.cipher import new_key as make_key

    if new_key:
        put(make_key())
        return
    async with opened() as app:
        if not isinstance(app.store, EncryptedCheckpointer):
            stop(exits.USAGE, "there is nothing to encrypt with: set store.keys (or store.compression)")
        await app.store.rotate_keys()
        # The ids of the keys, never the keys.
        names = ", ".join(repr(key.id) for key in app.store.cipher.keys)
    note(f"the store is encrypted under {names.split(', ')[0]}" if names else "the store is compressed")
    if "," in names:
        note(f"no longer needed: {names.partition(', ')[2]}")
