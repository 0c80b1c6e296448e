"""The caller of a request, and the threads that it may see (spec 3.5).

A thread of another user is as if it did not exist: the refusal is the one that an unknown id gets.
"""

from __future__ import annotations

from graphflow.capabilities import Person
from graphflow.checkpoints.errors import unknown_thread
from graphflow.id_rule import is_id
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import find_run
from graphflow.service.requests import unknown_chat, unknown_run


class Caller(Person, frozen=True, kw_only=True):
    """Who asks for something. One with a `user` sees the threads of this user alone."""

    @property
    def sees_code(self) -> bool:
        """Sees where in the server's Python code a node failed."""
        return self.admin


LOCAL = Caller()
"""Who asks where no tokens are set."""


async def sees(context: ServiceContext, caller: Caller, thread_id: str) -> bool:
    """Whether the caller may see the thread: for a caller of one user, whether it exists and is this user's.

    A thread that does not exist must not pass here and be refused later: whatever is looked at in between, such as the
    body, would then tell it from one of another user.
    """
    if caller.user is None:
        return True
    await context.runs.ready()
    row = await context.store.thread(thread_id)
    return row is not None and row.facts.user == caller.user


async def check_thread(context: ServiceContext, caller: Caller, thread_id: str) -> None:
    """Raises ThreadNotFound when the thread does not exist or is another user's."""
    if not await sees(context, caller, thread_id):
        raise unknown_thread(thread_id)


async def check_filter(context: ServiceContext, thread_id: str | None, user: str | None) -> None:
    """Refuses the id of no thread in a filter; one that only nobody has yet finds nothing."""
    if thread_id is not None and not is_id(thread_id):
        row = await context.store.thread(thread_id)
        if row is None or user not in (None, row.facts.user):
            raise unknown_thread(thread_id)


async def check_chat(context: ServiceContext, caller: Caller, chat_id: str) -> None:
    """The same in the words of chats."""
    if not await sees(context, caller, chat_id):
        raise unknown_chat(chat_id)


async def check_run(context: ServiceContext, caller: Caller, run_id: str) -> None:
    """Raises ThreadNotFound when there is no such run, or only in another user's thread."""
    if caller.user is None:
        return
    await context.runs.ready()
    # A run that has begun but not committed is known to this process only.
    live = next((live for live in context.runs.by_thread.values() if live.run_id == run_id), None)
    thread_id = live.thread_id if live is not None else await find_run(context, run_id)
    if thread_id is None or not await sees(context, caller, thread_id):
        raise unknown_run(run_id)


async def claim(context: ServiceContext, caller: Caller, chat_id: str) -> None:
    """Makes the thread the caller's if there was none.

    Raises:
        ThreadNotFound: it is another user's, or became so just now.
    """
    if caller.user is None:
        return
    if await context.store.assign(chat_id, caller.user, now=context.clock.now_ms()) != caller.user:
        raise unknown_chat(chat_id)
