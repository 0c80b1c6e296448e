"""`graphflow threads rename|rm|export|import`: threads as things that are kept."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from graphflow.cli.command import command, stop
from graphflow.cli.commands.threads import ThreadId
from graphflow.cli.commands.threads_travel import DryRun
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import interactive, note, one_line_json, say


def register(threads: typer.Typer) -> None:
    from graphflow.cli.commands import threads_pruning as pruning

    pruning.register(threads)
    for name, function in (("rename", rename), ("rm", remove), ("export", export), ("import", import_)):
        command(threads, name)(function)


async def rename(
    thread: ThreadId, title: Annotated[str, typer.Argument(metavar="TITLE", help="Shown in lists.")]
) -> None:
    """Give a thread a title."""
    import msgspec

    from graphflow.cli.startup import opened, thread_named

    async with opened() as app:
        found = await thread_named(app, thread)
        row = await app.runs.take(found.id, create=False)
        facts = msgspec.structs.replace(row.facts, title=title)
        await app.store.commit(found.id, row.fence, row.head, (), facts=facts, release=True)
    note(f"thread {found.id} is now {title!r}")


async def remove(
    thread: Annotated[list[str], typer.Argument(metavar="THREAD", help="Ids; an end that fits one is enough.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Delete threads with all that no other thread shares. Can't be undone; `export` keeps a copy."""
    from graphflow.cli.startup import opened, thread_named
    from graphflow.cli.terminal.prompts import read_line

    async with opened() as app:
        found = [await thread_named(app, given) for given in thread]
        for each in found:
            count = len(await each.tree())
            if dry_run:
                note(f"would delete thread {each.id} with {count} checkpoints")
                continue
            if not yes:
                if not interactive():
                    stop(exits.USAGE, f"deleting thread {each.id} needs --yes where nobody can be asked")
                given = await read_line(f"delete thread {each.id} with {count} checkpoints? [y/N] ")
                if given.lower() not in ("y", "yes"):
                    note("kept")
                    continue
            row = await app.runs.take(each.id, create=False)  # refuses a thread that another process drives
            await app.store.release(each.id, row.fence)
            await each.delete()
            await app.chat_record.delete(each.id)
            await app.conversations.delete(each.id)
            note(f"deleted thread {each.id}")


async def export(
    thread: ThreadId,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Default: stdout.")] = None,
) -> None:
    """Write a thread as JSON Lines, loss-free; any store can import it."""
    from graphflow.cli.startup import opened, thread_named

    async with opened() as app:
        found = await thread_named(app, thread)
        lines = app.store.export_thread(found.id)
        if file is None or file == "-":
            async for line in lines:
                say(one_line_json(line))
            return
        await write_lines(Path(file), lines)
    note(f"thread {found.id} is in {file}")


async def write_lines(path: Path, lines: AsyncIterator[Any]) -> None:
    """The whole file or none of it."""
    half = path.with_name(f".{path.name}.part")
    try:
        with half.open("w", encoding="utf-8") as out:
            async for line in lines:
                out.write(one_line_json(line) + "\n")
        half.replace(path)
    except OSError as error:
        stop(exits.FAILED, f"{str(path)!r} can't be written: {error.strerror}")
    finally:
        half.unlink(missing_ok=True)


async def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote; - reads stdin.")],
    new_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Store it under this id.")] = None,
) -> None:
    """Store an exported thread. Prints its id."""
    from graphflow.cli.startup import opened
    from graphflow.errors import ThreadBusy

    async with opened() as app:
        await app.runs.ready()
        try:
            say(await app.store.import_thread(_lines(file), thread_id=new_id))
        except ThreadBusy as error:  # the store's word for an id that is taken
            stop(exits.USAGE, error.message, hint="--id NEW stores it under another id")


def _content(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return stop(exits.USAGE, f"{file!r} can't be read: {getattr(error, 'strerror', None) or error}")


async def _lines(file: str) -> AsyncIterator[dict[str, Any]]:
    import msgspec

    from graphflow.checkpoints.export import FORMAT

    hint = "import takes what `graphflow threads export` wrote"
    lines = _content(file).removesuffix("\n").split("\n")  # a text may have other line breaks
    if lines == [""]:
        stop(exits.USAGE, f"{file} is empty", hint=hint)
    for number, line in enumerate(lines, 1):
        try:
            value = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            stop(exits.USAGE, f"{file}:{number}: no JSON: {error}", hint=hint)
        if number == 1 and not (isinstance(value, dict) and value.get("kind") == FORMAT):
            stop(exits.USAGE, f"{file}:1: this is no exported thread", hint=hint)
        yield value
