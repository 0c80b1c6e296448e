"""A graph of plain Python functions: typed state, a loop with a condition, a reducer. No model is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from graphflow import Context, Graph, append


@dataclass
class Newton:
    """What the nodes read and write; every key has a type and a default."""

    number: float = 2.0
    guess: float = 1.0
    guesses: Annotated[list[float], append] = field(default_factory=list)


graph = Graph(Newton, name="square_root", budget={"maxSteps": 50}, result="state.guess")


@graph.node(next="improve")
async def start(state: Any, ctx: Context) -> dict[str, Any]:
    """A node takes the state and gives the keys that it changes."""
    return {"guess": state.number / 2}


@graph.node(
    next=[
        {"if": "state.guess * state.guess - state.number > 0.000001", "to": "improve"},
        {"to": "end"},
    ]
)
def improve(state: Any) -> dict[str, Any]:
    """One step; what it gives for `guesses` is appended, as the state says."""
    better = (state.guess + state.number / state.guess) / 2
    return {"guess": better, "guesses": [better]}


def main() -> None:
    app = graph.compile()
    result = app.run_sync({})
    print(result.status, f"{result.output:.6f}")
    for index, guess in enumerate(result.state["guesses"], 1):
        print(f"  {index}. {guess:.6f}")


if __name__ == "__main__":
    main()
