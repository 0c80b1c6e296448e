"""`graphflow usage` and `graphflow threads cost`."""

from __future__ import annotations

from tests.cli.processes import Command

PRICES = '[prices."scripted/*"]\nprompt = 1.0\ncompletion = 1.0\n'


def test_usage_is_told_as_a_table_and_as_json(cli: Command) -> None:
    assert cli("usage").out.strip() == "no usage recorded"
    assert cli("run", "demo_plain", "hi", "--thread", "t").code == 0
    unknown = cli("usage", "--by", "agentKey")
    assert "demo_plain" in unknown.out and "unknown" in unknown.out
    (cli.folder / "graphflow.toml").write_text(PRICES, encoding="utf-8")
    cli("run", "demo_plain", "hi", "--thread", "priced")
    told = cli("usage", "--json").json
    assert told["total"]["costUsd"] is None and told["total"]["knownCostUsd"] > 0
    assert told["lines"][0]["model"] == "scripted/scripted"
    table = cli("threads", "cost", "priced").out
    assert "USD" in table and "0.0" in table
