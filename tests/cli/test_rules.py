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
