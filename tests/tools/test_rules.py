"""Standing rules: which one decides about a call, and what a decision leaves behind (spec 8.5)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.errors import DefinitionError
from graphflow.tools.port import ToolResult, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import CallPolicy, ToolRunner
from graphflow.tools.running.standing_rules import StandingRule, condition_of, fitting_rule, in_order
from tests.tools.fakes import NOON_IN_SHANGHAI_MS, FakeContext, Waiting, call

NOW = NOON_IN_SHANGHAI_MS
runs: list[str] = []


@tool
async def send(to: str) -> dict[str, Any]:
    """Sends something."""
    runs.append(to)
    return {"sent": to}


@pytest.fixture(autouse=True)
def _no_runs():
    runs.clear()


def rule(decision: str, id: str = "r", tool: str = "send", **fields: Any) -> StandingRule:
    fields = {"created_at": 0, "created_by": "local", **fields}
    return StandingRule(id=id, tool=tool, decision=decision, **fields)  # type: ignore[arg-type]


def decided(rules: list[StandingRule], to: Any = "a", *, thread: str = "t", agent: str | None = "k") -> Any:
    arguments = {} if to is None else {"to": to}
    found = fitting_rule(rules, "send", arguments, thread_id=thread, agent_key=agent, now_ms=NOW)
    return None if found is None else (found.id, found.decision)


# --- which rule


def test_the_first_that_fits_decides_unless_one_denies():
    rules = [rule("ask", "2", tool="*"), rule("allow", "3"), rule("deny", "1", args="args.to == 'b'")]
    assert decided(rules) == ("2", "ask")
    assert decided(rules, "b") == ("1", "deny")
    assert decided([rule("allow", tool="other")]) is None


def test_a_threads_rules_are_asked_before_an_agents_and_those_before_the_ones_for_all():
    rules = [rule("ask", "all"), rule("ask", "agent", agent_key="k"), rule("allow", "thread", thread_id="t")]
    assert [one.id for one in in_order(rules, thread_id="t", agent_key="k")] == ["thread", "agent", "all"]
    assert decided(rules) == ("thread", "allow")
    assert decided(rules, thread="u") == ("agent", "ask")
    assert decided(rules, thread="u", agent="l") == ("all", "ask")
    assert decided([rule("deny", agent_key="k")], agent=None) is None


@pytest.mark.parametrize("scope", [{}, {"agent_key": "k"}, {"thread_id": "t"}])
def test_a_deny_wins_over_every_scope_and_age(scope: dict[str, str]):
    others = [rule("allow", "1", thread_id="t"), rule("ask", "2", agent_key="k"), rule("allow", "3")]
    for place in range(4):
        rules = others.copy()
        rules.insert(place, rule("deny", "no", **scope))
        assert decided(rules) == ("no", "deny")


def test_a_deny_that_can_not_be_evaluated_asks_whatever_else_allows():
    broken = rule("deny", "no", args="args.gone == 1")
    assert decided([rule("allow", "yes", thread_id="t"), broken]) == ("no", "ask")
    assert decided([broken, rule("deny", "sure", tool="*")]) == ("sure", "deny")


def test_a_rule_ends_when_it_expires():
    assert decided([rule("allow", expires_at=NOW + 1)]) == ("r", "allow")
    assert decided([rule("allow", expires_at=NOW)]) is None


@pytest.mark.parametrize(
    ("args", "to", "fits"),
    [
        ("args.to == 'a'", "a", True),
        ("args.to == 'a'", "b", False),
        ("args.to.startsWith('a') && size(args.to) < 3", "ab", True),
        ("has(args.to)", None, False),
        ("!has(args.to)", None, True),
        ("args.to in ['a', 'b']", "b", True),
    ],
)
def test_a_condition_is_cel_over_the_calls_arguments(args: str, to: Any, fits: bool):
    assert (decided([rule("allow", args=args)], to) is not None) is fits


@pytest.mark.parametrize("args", ["args.to == 'a'", "args.to.startsWith('a')", "args.to"])
def test_a_condition_that_can_not_be_told_lets_nothing_through(args: str):
    given = None if "==" in args or "(" in args else 5
    assert decided([rule("allow", args=args)], given) is None
    assert decided([rule("deny", args=args)], given) == ("r", "ask")


@pytest.mark.parametrize("args", ["state.x == 1", "args.", "now()", ""])
def test_a_condition_that_is_none_is_refused(args: str):
    with pytest.raises(DefinitionError):
        condition_of(args)


# --- what comes of it


class Kept:
    """Rules that a test sets."""

    def __init__(self, *rules: StandingRule) -> None:
        self.rules = list(rules)

    async def standing(self) -> list[StandingRule]:
        return self.rules


async def run(*rules: StandingRule, approval: str = "REQUIRE_APPROVAL") -> tuple[ToolResult, FakeContext]:
    ctx = FakeContext()
    runner = ToolRunner(ToolRegistry([send]), rules=Kept(*rules))
    return await runner.run(call("send", {"to": "a"}), ctx, policy=CallPolicy(approval=approval, agent_key="k")), ctx


async def test_allow_takes_the_place_of_asking_and_is_recorded():
    result, ctx = await run(rule("allow", created_by="ops"))
    assert (result.ok, runs, ctx.asked) == (True, ["a"], [])
    record = ctx.records["rule:call-1"]
    assert record["value"] == {
        "decision": "allow",
        "rule": "r",
        "by": "ops",
        "at": NOW,
        "reason": None,
        "tool": "send",
        "arguments": {"to": "a"},
    }
    assert record["kind"] == "rule"


async def test_deny_gives_the_model_the_reason_and_runs_nothing():
    result, ctx = await run(rule("deny", reason="not at night"), approval="DISABLED")
    assert result.error is not None
    assert result.error.code == "REJECTED"
    assert "not at night" in ctx.events[0][2]
    assert runs == []


async def test_ask_asks_also_where_nobody_would_be_asked():
    with pytest.raises(Waiting):
        await run(rule("ask"), approval="DISABLED")
    assert runs == []


async def test_allow_does_not_widen_what_the_agent_or_the_tool_refuses():
    runner = ToolRunner(ToolRegistry([send]), rules=Kept(rule("allow", tool="*")))
    for policy, name, arguments in (
        (CallPolicy(tools=("other",)), "send", {"to": "a"}),
        (CallPolicy(disallow=True), "send", {"to": "a"}),
        (CallPolicy(), "send", {}),
        (CallPolicy(), "bash", {"command": "rm -r x"}),
    ):
        assert not (await runner.run(call(name, arguments), FakeContext(), policy=policy)).ok
    assert runs == []


async def test_a_rule_that_comes_while_a_person_is_asked_does_not_answer_for_them():
    kept, policy = Kept(), CallPolicy(approval="REQUIRE_APPROVAL")
    runner, ctx = ToolRunner(ToolRegistry([send]), rules=kept), FakeContext()
    with pytest.raises(Waiting):
        await runner.run(call("send", {"to": "a"}), ctx, policy=policy)
    kept.rules = [rule("allow")]
    again = ctx.entered_again({"approval:call-1": {"decision": "reject", "reason": "no"}})
    assert not (await runner.run(call("send", {"to": "a"}), again, policy=policy)).ok
    assert runs == []


async def test_a_deny_holds_for_what_a_person_approves_and_may_have_edited():
    no_b = rule("deny", args="args.to == 'b'", reason="never b")
    for decision in (
        {"decision": "edit", "arguments": {"to": "b"}},
        {"decision": "edit", "arguments": {"to": "{{calls.before.to}}"}},
    ):
        runner, ctx = ToolRunner(ToolRegistry([send]), rules=Kept(no_b)), FakeContext({"approval:call-1": decision})
        given: dict[str, Any] = {
            "policy": CallPolicy(approval="REQUIRE_APPROVAL"),
            "results": {"calls": {"before": {"to": "b"}}},
        }
        result = await runner.run(call("send", {"to": "a"}), ctx, **given)
        assert result.error is not None and result.error.code in ("REJECTED", "INVALID_PARAM")
    assert runs == []


@tool
async def order(amount: int) -> dict[str, Any]:
    """Orders so many."""
    runs.append(str(amount))
    return {"ordered": amount}


@pytest.mark.parametrize("amount", [2, 2.0, "2", " 2 "])
async def test_a_rule_sees_an_argument_as_the_tool_takes_it(amount: Any):
    for one, done in ((rule("deny", tool="order", args="args.amount == 2"), False), (rule("ask", tool="order"), False)):
        runner = ToolRunner(ToolRegistry([order]), rules=Kept(one))
        if one.decision == "ask":
            edited = FakeContext({"approval:call-1": {"decision": "edit", "arguments": {"amount": amount}}})
            runner = ToolRunner(
                ToolRegistry([order]), rules=Kept(one, rule("deny", "d", tool="order", args="args.amount == 2"))
            )
            result = await runner.run(call("order", {"amount": 1}), edited)
        else:
            result = await runner.run(call("order", {"amount": amount}), FakeContext())
        assert result.ok is done
    assert runs == []


async def test_an_allow_fits_only_what_fits_as_it_was_written_and_as_it_is_taken():
    only_text = rule("allow", tool="order", args="args.amount != 2")
    runner = ToolRunner(ToolRegistry([order]), rules=Kept(only_text))
    with pytest.raises(Waiting):
        await runner.run(call("order", {"amount": "2"}), FakeContext(), policy=CallPolicy(approval="REQUIRE_APPROVAL"))


@pytest.mark.parametrize("called_before", [True, False])
async def test_a_deny_that_comes_while_a_person_is_asked_holds_unless_the_call_was_made(called_before: bool):
    kept, policy = Kept(), CallPolicy(approval="REQUIRE_APPROVAL")
    runner, ctx = ToolRunner(ToolRegistry([send]), rules=kept), FakeContext()
    with pytest.raises(Waiting):
        await runner.run(call("send", {"to": "a"}), ctx, policy=policy)
    ctx = ctx.entered_again({"approval:call-1": {"decision": "approve"}})
    if called_before:
        assert (await runner.run(call("send", {"to": "a"}), ctx, policy=policy)).ok
        ctx = ctx.entered_again()
    kept.rules = [rule("deny")]
    for _ in range(2):  # the decision is on record, and stays when the rule goes
        result = await runner.run(call("send", {"to": "a"}), ctx, policy=policy)
        assert result.ok is called_before
        ctx, kept.rules = ctx.entered_again(), []
    assert runs == ["a"] * called_before


async def test_a_recorded_decision_of_a_rule_stays_when_the_rule_goes():
    kept, policy = Kept(rule("allow")), CallPolicy(approval="REQUIRE_APPROVAL")
    runner, ctx = ToolRunner(ToolRegistry([send]), rules=kept), FakeContext()
    await runner.run(call("send", {"to": "a"}), ctx, policy=policy)
    kept.rules = []
    again = ctx.entered_again()
    assert (await runner.run(call("send", {"to": "a"}), again, policy=policy)).ok
    assert (runs, again.asked) == (["a"], [])


async def test_calls_that_a_rule_has_a_say_in_do_not_run_beside_others():
    looks = send.changed(name="looks", effects="read")
    runner = ToolRunner(ToolRegistry([looks]), rules=Kept(rule("ask", tool="looks", args="args.to == 'b'")))
    ctx = FakeContext()
    with pytest.raises(Waiting):
        await runner.run_all([call("looks", {"to": "a"}, "1"), call("looks", {"to": "b"}, "2")], ctx, parallel=True)
    assert runs == ["a"]
