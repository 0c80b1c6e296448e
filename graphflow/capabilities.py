"""What tools may do to the world beside their own work, and who may have it done: capabilities, and the people of a run.

A call of a tool needs every capability that the tool declares twice over: the agent's file grants it by naming the tool, and
the run's starter has it. What a starter has is stored with the run and never grows (ADR 0037).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from graphflow.excerpts import excerpt_of
from graphflow.suggestions import choose

Capability = Literal["agents:write", "rules:write", "files:write", "net", "shell"]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
GUARDED: frozenset[str] = frozenset({"agents:write", "rules:write"})
"""They change what agents may do: only who has the scope `admin` has them, and a person with it is asked about each call."""
COMMON: tuple[Capability, ...] = tuple(word for word in CAPABILITIES if word not in GUARDED)
"""What every token has unless the settings say less."""

Starter = dict[str, Any]
"""Who asked for a run, as it is stored: `{by: [ids], can?: [capabilities]}`; without `can` all of them. A run without a
starter is that of the local person, who has all."""


LOCAL = "local"
"""Name of who runs Python or the command line on the store itself."""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Who starts a run or answers a question."""

    name: str = LOCAL
    """Recorded as who answered or edited; a token's name."""
    user: str | None = None
    """The user that a token is for. Two tokens of one user are the same person."""
    admin: bool = True
    """May decide about what changes what agents may do; of tokens those with the scope `admin`."""
    capabilities: tuple[str, ...] | None = None
    """What runs that they start may do; None: everything."""

    @property
    def id(self) -> str:
        """The same for the same person."""
        return self.name if self.user is None else self.user


By = str | Person | None
"""Who does something: a person, or the name of one who is as free as the local person; None is that person."""


def person_of(by: By) -> Person:
    """The person; a name or None is who runs Python on the store itself, and may do everything there."""
    if isinstance(by, Person):
        return by
    return Person() if by is None else Person(name=by)


def name_of(by: By) -> str | None:
    """The name that records have."""
    return by.name if isinstance(by, Person) else by


def starter_of(by: By) -> Starter | None:
    """What is stored of who starts a run; None for the local person."""
    person = person_of(by)
    can = None if person.capabilities is None else sorted(person.capabilities)
    if can is None and person.id == LOCAL:
        return None
    return {"by": [person.id], **({} if can is None else {"can": can})}


def asker_of(by: By) -> Starter:
    """The same of who has a run begun again; the local person is one of those who asked, too."""
    return starter_of(by) or {"by": [LOCAL]}


def askers(starter: Starter | None) -> tuple[str, ...]:
    """The ids of everybody who had a part in asking for the run."""
    return (LOCAL,) if starter is None else tuple(starter["by"])


def narrowed(starter: Starter | None, other: Starter | None) -> Starter | None:
    """Of a run that somebody else begins again (a fork, a rewind, a resume): both have asked, and it may do what both may."""
    if other is None or starter == other:
        return starter
    limits = [set(each["can"]) for each in (starter, other) if each is not None and "can" in each]
    by = list(dict.fromkeys((*askers(starter), *askers(other))))
    if by == [LOCAL] and not limits:
        return None
    return {"by": by, **({"can": sorted(set.intersection(*limits))} if limits else {})}


def missing(needed: Iterable[str], starter: Starter | None) -> list[str]:
    """The capabilities that the run's starter lacks."""
    if starter is None or "can" not in starter:
        return []
    return [word for word in needed if word not in starter["can"]]


def unknown_capability(words: Iterable[Any]) -> str | None:
    """What is wrong with a list of capabilities, or None."""
    for word in words:
        if word not in CAPABILITIES:
            return f"{excerpt_of(word)} is not a capability; {choose(str(word), CAPABILITIES)}"
    return None
