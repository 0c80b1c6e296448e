"""Documents that the drawing tests share."""

from __future__ import annotations

from typing import Any

from graphflow.graph.definition.document import GraphDefinition, decode_document


def document(start: str, /, **nodes: dict[str, Any]) -> GraphDefinition:
    return decode_document({"graphflow": "1", "start": start, "nodes": nodes})


def review() -> GraphDefinition:
    """Every kind of route: plain, conditional, back, to itself, error, expiry."""
    return document(
        "plan",
        plan={"use": "model", "next": "draft"},
        draft={"use": "model", "next": "critic"},
        critic={
            "use": "model",
            "next": [
                {"if": "state.ok", "to": "approve"},
                {"if": "state.score < 0.7", "to": "plan"},
                {"if": "visits.critic < 2", "to": "critic"},
                {"to": "end"},
            ],
            "error": [{"on": ["timeout", "rate_limit"], "to": "draft"}, {"to": "fail"}],
        },
        approve={
            "ask": {"message": "Send?", "onExpire": "fail"},
            "next": [{"if": "answer.decision == 'reject'", "to": "end"}, {"to": "send"}],
        },
        send={"use": "tool:send_mail", "description": "Sends the draft", "next": "end"},
    )


def react() -> GraphDefinition:
    """The loop of a ReAct agent."""
    return document(
        "reason",
        reason={
            "use": "model",
            "next": [
                {"if": "size(out.toolCalls) > 0 && visits.reason < limits.rounds", "to": "tools"},
                {"if": "size(out.toolCalls) > 0", "to": "answer"},
                {"to": "end"},
            ],
        },
        tools={"use": "tools", "next": "reason"},
        answer={"use": "model", "next": "end"},
    )


def chain(length: int, **extra: Any) -> GraphDefinition:
    names = [f"n{i}" for i in range(length)]
    follow = [*names[1:], "end"]
    return document(
        "n0", **{name: {"use": "model", "next": to} | extra for name, to in zip(names, follow, strict=True)}
    )


def fan(width: int) -> GraphDefinition:
    names = [f"n{i}" for i in range(width)]
    routes = [*({"if": f"state.k == {i}", "to": name} for i, name in enumerate(names)), {"to": "end"}]
    return document(
        "start", start={"use": "model", "next": routes}, **{n: {"use": "model", "next": "end"} for n in names}
    )


def branches() -> GraphDefinition:
    """Every kind of body: a map with a map inside, branches that wait, a subgraph, conditions that end a branch."""
    return document(
        "plan",
        plan={"use": "model", "next": "fan"},
        fan={"map": "state.parts", "as": "part", "do": "work", "max": 4, "join": {"wait": 2, "onError": "collect"}, "next": "both"},
        work={
            "use": "model",
            "next": [{"if": "visits.work < 3", "to": "work"}, {"if": "out.done", "to": "end"}, {"to": "inner"}],
            "error": [{"to": "sorry"}],
        },
        sorry={"use": "model", "next": "fail"},
        inner={"map": "state.names", "as": "name", "do": "deep", "next": "last"},
        deep={"use": "fn:look"},
        last={"use": "model"},
        both={
            "parallel": {"b": {"do": "second", "after": ["a"]}, "a": "first", "g": {"do": {"graph": "review"}}},
            "next": [{"if": "size(out) < 3", "to": "plan"}, {"to": "end"}],
            "error": [{"to": "fail"}],
        },
        first={"use": "model"},
        second={"ask": {"message": "Well?"}, "next": "end"},
    )  # fmt: skip
