"""`graphflow models`, and what `doctor` says of models."""

from __future__ import annotations

import json

import pytest

from graphflow.models.model_data import model_data


def test_models_are_listed_with_windows_prices_and_ends_of_life(cli):
    done = cli("models", "list", "--provider", "kimi")
    assert done.code == 0
    assert "moonshot/kimi-k2.6" in done.out and "262,144" in done.out and "deepseek/" not in done.out
    rows = cli("models", "list", "--json").json
    assert rows["models"]["deepseek/deepseek-chat"]["end_of_life"] == "2026-07-24"


def test_one_model_is_shown_with_its_page(cli):
    done = cli("models", "show", "kimi/kimi-k2.6")
    assert (done.code, done.out.splitlines()[0]) == (0, "moonshot/kimi-k2.6")
    assert "source: https://" in done.out
    assert cli("models", "show", "moonshot/kimi-k2.6", "--json").json["context_window"] == 262_144
    missing = cli("models", "show", "deepseek/deepseek-flahs")
    assert missing.code == 2 and "deepseek/deepseek-flash" in missing.err


def test_a_provider_in_the_place_of_a_model_is_answered_with_its_models(cli):
    told = cli("models", "show", "deepseek")
    assert told.code == 2
    assert "'deepseek' is a provider; name one of its models: deepseek/deepseek-chat, " in " ".join(told.err.split())
    assert "anthropic/" not in told.err
    near = cli("models", "show", "deepseek/deepseek-flesh")
    assert "did you mean 'deepseek/deepseek-flash'?" in " ".join(near.err.split()) and "anthropic/" not in near.err


def test_a_file_that_is_no_model_data_is_refused_with_what_to_give(cli):
    missing, other = cli("models", "refresh", "none.json"), cli("models", "refresh", "graphs/demo_plain.json")
    assert "none.json: can't be read: No such file or directory (check the path)" in " ".join(missing.err.split())
    assert "(give a file of the form that `graphflow models list --json` prints)" in " ".join(other.err.split())


def test_a_refreshed_file_is_used_from_then_on(cli, tmp_path):
    given = tmp_path / "new.json"
    row = {"checked": "2027-01-01", "source": "https://example.org"}
    given.write_text(json.dumps({"updated": "2027-01-01", "models": {"mine/m": row}}), encoding="utf-8")
    done = cli("models", "refresh", str(given))
    assert done.code == 0 and "1 new, 0 changed, as of 2027-01-01" in done.out
    assert cli("models", "show", "mine/m").code == 0
    given.write_text(json.dumps({"updated": "2020-01-01", "models": {"mine/m": row}}), encoding="utf-8")
    older = cli("models", "refresh", str(given))
    assert older.code == 2 and "is known already" in older.err
    given.write_text("[]", encoding="utf-8")
    assert cli("models", "refresh", str(given)).code != 0
    assert cli("models", "show", "mine/m").code == 0, "what was refused changed nothing"


@pytest.mark.parametrize(
    "variables",
    [
        {"MOONSHOT_API_KEY": "k", "MOONSHOT_MODEL": "kimi-k2-0905-preview"},
        {"LLM_PROVIDER": "deepseek", "LLM_MODEL_ID": "deepseek-chat", "DEEPSEEK_API_KEY": "k"},
    ],
)
def test_doctor_warns_of_a_retired_model(cli, environment, variables):
    environment |= variables
    said = [f["text"] for f in cli("doctor", "--json").json if f["what"] == "models" and f["state"] == "warning"]
    assert any("was retired on 2026-" in text for text in said)


def test_doctor_warns_of_a_retired_model_that_an_agent_names(cli, tmp_path, environment):
    environment["DEEPSEEK_API_KEY"] = "k"
    folder = tmp_path / "graphs"
    folder.mkdir(exist_ok=True)
    agent = {"key": "old", "mode": "PLAIN", "providerKey": "deepseek", "model": "deepseek-reasoner"}
    (folder / "old.json").write_text(json.dumps(agent), encoding="utf-8")
    environment["GRAPHFLOW_AGENTS_DIR"] = str(folder)
    said = [f["text"] for f in cli("doctor", "--json").json if f["what"] == "models"]
    assert any("deepseek/deepseek-reasoner" in text for text in said)


def test_doctor_warns_of_old_data(cli, monkeypatch):
    from datetime import timedelta

    import msgspec

    import graphflow.models.model_data as module

    old = msgspec.structs.replace(model_data(), updated=model_data().updated - timedelta(days=4_000))
    monkeypatch.setattr(module, "_built_in", lambda: old)
    said = [f["text"] for f in cli("doctor", "--json").json if f["what"] == "models" and f["state"] == "warning"]
    assert any("days old" in text and "models refresh" in text for text in said)
