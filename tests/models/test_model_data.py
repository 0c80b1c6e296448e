"""What is known of models: every fact has its day and its page, no default is retired, and newer facts can be added."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import DefinitionError
from graphflow.models.deltas import Usage
from graphflow.models.model_data import BUILT_IN, lifetime_text, listed_prices, model_data, read_model_data
from graphflow.models.prices import Prices
from graphflow.models.profiles import PROFILES

DATA = model_data()
OWN_MACHINE = {"ollama", "lmstudio", "llamacpp", "vllm", "local", "scripted"}


@pytest.mark.parametrize("name", DATA.models)
def test_each_row_names_a_known_provider_its_day_and_its_page(name: str) -> None:
    facts = DATA.models[name]
    assert name.partition("/")[0] in PROFILES
    assert date(2026, 1, 1) <= facts.checked <= DATA.updated
    assert re.match(r"https://\S+$", facts.source)
    assert facts.price is None or facts.price.misfit() is None
    assert facts.replacement is None or facts.end_of_life is not None


@pytest.mark.parametrize("key", sorted(PROFILES.keys() - OWN_MACHINE - {"azure"}))
def test_the_default_model_of_a_provider_is_known_and_served(key: str) -> None:
    """`deepseek-chat` and `kimi-k2-0905-preview` were defaults after they had been retired."""
    facts = DATA.find(key, PROFILES[key].model)
    assert facts is not None and not facts.is_retired(DATA.updated)
    assert lifetime_text(key, facts, DATA.updated) is None, "a default must outlive the version by some months"


@pytest.mark.parametrize("name", ["deepseek/deepseek-chat", "moonshot/kimi-k2-0905-preview"])
def test_a_retired_model_says_since_when_and_what_replaces_it(name: str) -> None:
    facts = DATA.models[name]
    text = lifetime_text(name, facts, date(2026, 11, 23))
    assert text is not None and "was retired on 2026-" in text and f"use {facts.replacement!r}" in text
    assert facts.replacement is not None and name.partition("/")[0] + "/" + facts.replacement in DATA.models


def test_a_model_that_will_be_retired_soon_says_so() -> None:
    facts = DATA.models["openai/gpt-4.1-mini"]
    assert lifetime_text("m", facts, date(2026, 1, 1)) is None
    assert "will be retired on 2027-01-14" in (lifetime_text("m", facts, date(2026, 11, 23)) or "")


# --- prices


def test_the_settings_price_wins_over_the_providers_word_and_that_over_the_list_price() -> None:
    usage = Usage(prompt_tokens=1_000_000)
    said = Usage(prompt_tokens=1_000_000, cost_usd=0.25)
    listed, own = Prices({}, listed_prices()), Prices({"deepseek/*": {"prompt": 9, "completion": 9}}, listed_prices())
    assert listed.cost_usd("deepseek", "deepseek-flash", usage) == 0.3
    assert listed.cost_usd("deepseek", "deepseek-flash", said) == 0.25
    assert own.cost_usd("deepseek", "deepseek-flash", said) == 9
    assert listed.cost_usd("deepseek", "nobody-knows", usage) is None


def test_tokens_written_to_the_cache_and_long_prompts_have_prices_of_their_own() -> None:
    prices = Prices({}, listed_prices())
    usage = Usage(prompt_tokens=100_000, cached_tokens=50_000, cache_write_tokens=40_000, completion_tokens=1_000)
    short = prices.cost_usd("anthropic", "claude-haiku-5-5", usage)
    assert short == pytest.approx((10_000 * 0.1 + 50_000 * 0.01 + 40_000 * 0.125 + 1_000 * 0.5) / 1e6)
    long = prices.cost_usd("anthropic", "claude-haiku-5-5", Usage(prompt_tokens=100_001))
    assert long == pytest.approx(100_001 * 0.5 / 1e6)


# --- refreshed files


def row(**more: Any) -> dict[str, Any]:
    return {"checked": "2027-01-01", "source": "https://example.org", **more}


def written(folder: Path, updated: str, **models: Any) -> Path:
    path = folder / "models.json"
    path.write_text(json.dumps({"updated": updated, "models": models}), encoding="utf-8")
    return path


def test_newer_facts_add_rows_and_replace_those_they_have(tmp_path: Path) -> None:
    path = written(
        tmp_path, "2027-01-02", **{"mine/m": row(), "deepseek/deepseek-flash": row(end_of_life="2027-01-01")}
    )
    data = model_data(path)
    assert data.updated == date(2027, 1, 2) and data.find("mine", "m") is not None
    assert data.models["deepseek/deepseek-flash"].is_retired(date(2027, 1, 2))
    assert data.find("deepseek", "deepseek-chat") is not None


def test_a_file_that_is_older_than_the_version_adds_what_the_version_does_not_know(tmp_path: Path) -> None:
    path = written(tmp_path, "2020-01-01", **{"mine/m": row(), "deepseek/deepseek-flash": row(tools=False)})
    data = model_data(path)
    assert data.find("mine", "m") is not None and data.updated == DATA.updated
    assert data.models["deepseek/deepseek-flash"].tools


@pytest.mark.parametrize(
    ("models", "named"),
    [
        ({"no-provider": row()}, "PROVIDER/MODEL"),
        ({"a/b": row(price={"prompt": -1, "completion": 0})}, "from 0 up"),
        ({"a/b": row(price={"prompt": 1, "completion": 0, "above_tokens": 5})}, "stand together"),
        ({"a/b": row(windoww=1)}, "windoww"),
        ({"a/b": {"source": "https://example.org"}}, "checked"),
    ],
)
def test_a_file_with_errors_is_refused_by_its_row(tmp_path: Path, models: dict[str, Any], named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        read_model_data(written(tmp_path, "2027-01-01", **models))


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"[" * 5000, b'{"updated": "soon", "models": {}}'])
def test_what_is_no_model_data_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(content)
    with pytest.raises(DefinitionError, match="is no model data"):
        read_model_data(path)


def test_the_built_in_file_is_a_refresh_file() -> None:
    assert read_model_data(BUILT_IN).models == DATA.models
