"""Going back to a message: answering it anew, or with other words; the branch that is left stays in the tree (E8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.capabilities import By
from graphflow.checkpoints.loading import load_thread
from graphflow.errors import GraphflowError
from graphflow.runtime.history.effects import CHOICES, Choices, effects_behind, resolve_choices
from graphflow.runtime.history.messages import Turn, before_turn, input_of_turn, turn_of
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.live_runs import PreparedRun
from graphflow.runtime.runs.resume import resume
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.start import check_request, start
from graphflow.runtime.travel.rewind_fork_edit import Travel


async def prepare_regenerated(
    host: RunHost,
    thread_id: str,
    message_id: str,
    effects: Choices = None,
    cancel: bool = False,
    by: By = None,
    audience: Audience = NOBODY,
    run_id: str | None = None,
) -> PreparedRun:
    """The run that answers the message of a turn anew; see `CompiledGraph.regenerate`."""
    store = (await host.open_runs()).store
    turn = await turn_of(store, thread_id, message_id)
    row = await store.thread(thread_id)
    # A thread that stands there already need not go back: its answer has not begun.
    if cancel or row is None or row.head != turn.checkpoint_id:
        await Travel(host, thread_id).rewind(turn.checkpoint_id, effects, cancel, by)
    return await resume(host, thread_id, audience=audience, by=by, run_id=run_id)


class EditedTurn(msgspec.Struct, frozen=True):
    """A message that is to be replaced."""

    turn: Turn
    input: Mapping[str, Any]
    """With which its run began."""


async def edited_turn(host: RunHost, thread_id: str, message_id: str, cancel: bool) -> EditedTurn:
    """The turn of a user's message, on a thread that can be moved.

    Raises:
        GraphflowError: `message_not_found`; `invalid_input` when it is not one that a user said.
        ThreadBusy: a run drives the thread, and is not to be cancelled.
    """
    store = (await host.open_runs()).store
    turn = await turn_of(store, thread_id, message_id)
    if turn.message_id != message_id:
        raise GraphflowError(
            f"message {message_id!r} is an answer; edit the message that it answers: {turn.message_id!r}",
            code="invalid_input",
        )
    await Travel(host, thread_id).check_free(cancel)
    return EditedTurn(turn, await input_of_turn(store, thread_id, turn))


async def prepare_edited(
    host: RunHost,
    request: RunRequest,
    edited: EditedTurn,
    cancel: bool = False,
    by: By = None,
    audience: Audience = NOBODY,
) -> PreparedRun:
    """The run of an input that stands where an earlier one stood; see `CompiledGraph.edit_message`.

    Raises:
        EffectsNeedChoice: `write` effects came after the message and have no choice; nothing has changed.
    """
    # Whatever is wrong with the new input is found before the thread goes back.
    check_request(host, request, audience)
    runs, thread_id = host.need_runs(), request.thread_id
    target = await before_turn(runs.store, thread_id, edited.turn)
    head = await load_thread(runs.store, thread_id, logs=False)
    assert head is not None
    # `reuse` is no choice here: new input follows, and repeats nothing of a past that was left.
    allowed = [word for word in CHOICES if word != "reuse"]
    resolve_choices(await effects_behind(runs.store, head, target), request.effects, "message edit", allowed)
    await Travel(host, thread_id).rewind_to(target, request.effects, cancel, by, starter=request.starter)
    # Made anew: its time must not lie before that of the rewind.
    return await start(host, check_request(host, msgspec.structs.replace(request, effects=None), audience))
