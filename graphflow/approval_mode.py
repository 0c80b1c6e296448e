"""How tool calls are approved: the modes of settings, agent files and the tool runner, and approval by several people (spec 8.5).

Several people are asked one after another, each by a question of its own. The payload of a question says who has approved
so far: `approval: {by, count, approvals: [{by, interruptId}], edited?: {by, arguments}}`. If the call is cut off, the same
people decide what happens to it: `proposed: {decision, result?}` is what those in `approvals` want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

# At the bottom of the package: settings may import nothing above them, and the runner must not load the settings.
ApprovalMode = Literal["AUTO", "REQUIRE_APPROVAL", "DISABLED"]
"""`AUTO` asks about tools that have an approval hint, `REQUIRE_APPROVAL` about each, `DISABLED` about none."""


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How calls of a tool are approved: when, by whom, and by how many."""

    mode: ApprovalMode = "REQUIRE_APPROVAL"
    """When a person is asked. Default: always."""
    by: Literal["anyone", "other"] = "anyone"
    """`other`: not by who asked for the run."""
    count: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    """So many different people approve; one who rejects is enough to reject."""

    @property
    def is_special(self) -> bool:
        """Whether not just anybody alone approves."""
        return self.by == "other" or self.count > 1


def people_in(payload: Any) -> Mapping[str, Any]:
    """What a question about a call says of the people who approve it; empty where anybody alone does."""
    people = payload.get("approval") if isinstance(payload, Mapping) else None
    return people if isinstance(people, Mapping) else {}


def with_approvals(
    payload: Mapping[str, Any],
    given: Sequence[Mapping[str, str]],
    edited: Mapping[str, Any] | None = None,
    proposed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The payload of the question for the next person.

    Args:
        payload: of any of the questions.
        given: who has approved, and under which question.
        edited: who has edited the arguments, and as they were asked about first.
        proposed: the decision about a call that was cut off.
    """
    people = people_in(payload)
    now = {"by": people["by"], "count": people["count"], "approvals": list(given)}
    message = str(payload["message"]).removesuffix(_counted(people)) + _counted(now)
    more = {key: value for key, value in (("edited", edited), ("proposed", proposed)) if value is not None}
    return {**payload, "message": message, "approval": {**now, **more}}


def after_answer(payload: Mapping[str, Any], arguments: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The payload once one person has approved, or has edited the arguments, which the others approve anew.

    Args:
        arguments: as this person was shown them.
    """
    people = people_in(payload)
    given, edited = people["approvals"], people.get("edited")
    one = {"by": str(answer["by"]), "interruptId": str(answer["interruptId"])}
    if answer["decision"] == "edit":
        given, edited = (), {"by": one["by"], "arguments": arguments if edited is None else edited["arguments"]}
    return with_approvals(payload, [*(each for each in given if each["by"] != one["by"]), one], edited)


def proposal(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer wants to happen to a call that was cut off."""
    return {name: answer[name] for name in ("decision", "result") if name in answer}


def after_proposal(payload: Mapping[str, Any], answer: Mapping[str, Any], *, agrees: bool) -> dict[str, Any]:
    """The payload once one person has decided about a call that was cut off.

    Args:
        agrees: with those before, so that this person is one more of them; else all begin anew with this decision.
    """
    given = people_in(payload)["approvals"] if agrees else ()
    one = {"by": str(answer["by"]), "interruptId": str(answer["interruptId"])}
    return with_approvals(payload, [*given, one], proposed=proposal(answer))


def _counted(people: Mapping[str, Any]) -> str:
    if people["count"] == 1 or "approvals" not in people:
        return ""
    return f" ({len(people['approvals'])} of {people['count']} approvals)"
