"""What the nodes of a plan ask in words of their own, as the last user turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PLAN = """\
Make a plan for this request before anything is done about it:

<request>
{request}
</request>

Cut it into the fewest steps that lead to the result, at most {most}; a request that is simple is one step. Each step is \
done by itself, in this order, and sees the results of those before it. Do not carry anything out yet.

{tools}

Answer with one JSON object and nothing around it:
{{"steps": [{{"title": "a few words", "description": "what is to be done", "goal": "what is known or reached afterwards", \
"successCriteria": "how one sees that it is reached"}}]}}
Write all texts in the language of the request."""

_TOOLS = "These tools can be called while the steps are done:\n{tools}"
_NO_TOOLS = "No tools can be called while the steps are done."

_REPAIR = """\
That is no plan that can be read: {error}. Answer again, with the JSON object alone: {{"steps": [{{"title": "…", \
"description": "…", "goal": "…", "successCriteria": "…"}}]}}."""

_TASK = """\
Step {number} of {total}: {title}

What to do: {description}
Goal: {goal}
Done when: {criteria}

Do this step and no other; use what the steps before it have found. When it is done, say in a few sentences what it gave."""

NO_MORE_ROUNDS = (
    "No more tools can be called in this step. Say what it has given so far, and plainly what is missing or uncertain."
)
"""Asked when a step has used up its rounds."""

MUST_CALL = "Call one of the tools that this step needs before you answer."
"""Asked where `toolPolicy: REQUIRE` was not met (spec 1.3)."""

_SUMMARY = """\
{outcome}

{steps}

Now give the final answer to my request, from what the steps have found: the whole of it, in the language of my request, \
without telling how the work was divided. Say plainly what is missing or uncertain.

My request: {request}"""


def plan_prompt(request: str, most: int, tools: str | None) -> str:
    """Asks for a plan.

    Args:
        tools: the rendered list of the tools that steps may call; None: none may be called.
    """
    said = _NO_TOOLS if tools is None else _TOOLS.format(tools=tools)
    return _PLAN.format(request=request, most=most, tools=said)


def repair_prompt(issue: str) -> str:
    """Asks once more, after an answer that was no plan."""
    return _REPAIR.format(error=issue)


def task_prompt(step: Mapping[str, Any], number: int, total: int) -> str:
    """Asks for one step of a plan."""
    return _TASK.format(
        number=number,
        total=total,
        title=step["title"],
        description=step["description"],
        goal=step["goal"],
        criteria=step["successCriteria"],
    )


def summary_prompt(
    request: str, steps: Sequence[Mapping[str, Any]], findings: Sequence[str], failure: str | None
) -> str:
    """Asks for the answer, once the work on the plan is over.

    Args:
        findings: what each step said when it was done; shorter than `steps` where some were not begun.
    """
    words = {"completed": "done", "failed": "failed"}
    lines = []
    for number, step in enumerate(steps, 1):
        found = findings[number - 1] if number <= len(findings) else ""
        status = words.get(step["status"], "not done")
        lines.append(f"{number}. {step['title']} ({status})" + (f": {_cut(found)}" if found else ""))
    if failure is not None:
        outcome = f"The work on the plan has ended early: {failure}"
    elif all(step["status"] == "completed" for step in steps):
        outcome = "All steps of the plan are done."
    else:
        outcome = "As many steps of the plan are done as may be."
    return _SUMMARY.format(outcome=outcome, steps="\n".join(lines), request=request)


FINDING_CHARS = 1000


def _cut(text: str) -> str:
    """The whole of it stands in the conversation."""
    return text if len(text) <= FINDING_CHARS else text[:FINDING_CHARS] + " …"
