"""`graphflow rules`: the list says in which order rules are tried."""

from __future__ import annotations


def test_rules_are_listed_in_the_order_in_which_a_call_is_checked(cli):
    for scope in ([], ["--agent", "demo_react"], ["--thread", "t1"]):
        assert cli("rules", "add", "ask", "bash", *scope).code == 0
    listed = cli("rules", "list", "--json").json
    assert [(rule.get("threadId"), rule.get("agentKey")) for rule in listed] == [
        ("t1", None),
        (None, "demo_react"),
        (None, None),
    ]


def test_a_rule_for_a_misspelt_tool_or_agent_is_refused_with_the_near_name(cli):
    tool = cli("rules", "add", "deny", "bahs")
    assert tool.code == 2 and "did you mean 'bash'?" in tool.err
    agent = cli("rules", "add", "deny", "*", "--agent", "demo_raect")
    assert agent.code == 2 and "did you mean 'demo_react'?" in agent.err
    assert cli("rules", "list", "--json").json == []
