"""Choosing a provider: the order of `auto`, keys, addresses, profiles of one's own."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.errors import ModelError
from graphflow.models.chat_model import complete
from graphflow.models.profiles import PROFILES
from graphflow.models.provider import ProviderNotReady
from graphflow.models.providers import (
    UnknownProvider,
    infer_provider,
    known_providers,
    limits_from,
    open_model,
    open_provider,
    resolve_provider,
)
from graphflow.models.remote.retry import Limits
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.server import serve_scripted
from tests.models.turns import ASK


def test_without_anything_set_auto_is_the_scripted_model() -> None:
    assert resolve_provider(env={}).key == "scripted"
    assert isinstance(open_provider(resolve_provider(env={}), env={}), ScriptedModel)


@pytest.mark.parametrize("key", [None, "", "auto", " AUTO "])
def test_no_key_and_auto_are_the_same(key: str | None) -> None:
    assert resolve_provider(key, {"DEEPSEEK_API_KEY": "k"}).key == "deepseek"


def test_a_base_url_wins_over_everything_else_in_auto() -> None:
    env = {
        "LLM_BASE_URL": "https://llm.example/v1",
        "LLM_PROVIDER": "deepseek",
        "LLM_MODEL_ID": "m",
        "DEEPSEEK_API_KEY": "d",
    }
    found = resolve_provider(env=env)
    assert (found.key, found.base_url, found.model, found.api_key) == ("custom", "https://llm.example/v1", "m", None)


def test_the_key_for_a_base_url_is_the_general_one_or_the_providers_or_openais() -> None:
    base = {"LLM_BASE_URL": "https://dashscope.aliyuncs.com/compatible-mode/v1", "OPENAI_API_KEY": "o"}
    assert resolve_provider(env={**base, "DASHSCOPE_API_KEY": "d", "LLM_API_KEY": "l"}).api_key == "l"
    assert resolve_provider(env={**base, "DASHSCOPE_API_KEY": "d"}).api_key == "d"
    assert resolve_provider(env=base).api_key == "o"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "bailian"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://my-team.openai.azure.com/openai/v1", "azure"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://open.bigmodel.cn/api/paas/v4/", "zhipu"),
        ("https://api.moonshot.ai/v1", "moonshot"),
        ("https://api.siliconflow.com/v1", "siliconflow"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://127.0.0.1:9000/v1", "local"),
        ("http://[::1]:9000/v1", "local"),
        ("https://notdeepseek.com/v1", "custom"),
        ("https://api.deepseek.com.evil.example/v1", "custom"),
        ("http://[broken", "custom"),
    ],
)
def test_the_kind_of_provider_follows_from_the_base_url(url: str, key: str) -> None:
    assert infer_provider(url) == key


def test_a_named_provider_wins_over_set_keys() -> None:
    found = resolve_provider(
        env={"LLM_PROVIDER": "kimi", "DEEPSEEK_API_KEY": "d", "KIMI_API_KEY": "k", "LLM_MODEL_ID": "m"}
    )
    assert (found.key, found.api_key, found.model, found.source) == ("moonshot", "k", "m", "LLM_PROVIDER")


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("BAILIAN_API_KEY", "bailian"),
        ("DASHSCOPE_API_KEY", "bailian"),
        ("SILICONFLOW_API_KEY", "siliconflow"),
        ("DEEPSEEK_API_KEY", "deepseek"),
        ("OPENAI_API_KEY", "openai"),
        ("ZHIPU_API_KEY", "zhipu"),
        ("GLM_API_KEY", "zhipu"),
        ("MOONSHOT_API_KEY", "moonshot"),
        ("MODELSCOPE_API_KEY", "modelscope"),
    ],
)
def test_the_one_key_that_is_set_chooses_its_provider(variable: str, key: str) -> None:
    found = resolve_provider(env={variable: "k", "OLLAMA_API_KEY": ""})
    assert (found.key, found.api_key, found.model) == (key, "k", PROFILES[key].model)


def test_several_keys_are_an_error_that_lists_them() -> None:
    with pytest.raises(ProviderNotReady) as caught:
        resolve_provider(env={"DEEPSEEK_API_KEY": "d", "GLM_API_KEY": "g", "ZHIPU_API_KEY": "z"})
    assert caught.value.detail["providers"] == ["deepseek", "zhipu"]
    assert "DEEPSEEK_API_KEY" in caught.value.message
    assert "LLM_PROVIDER" in caught.value.message


def test_the_general_key_alone_names_no_provider() -> None:
    assert resolve_provider(env={"LLM_API_KEY": "l"}).key == "scripted"


def test_the_general_key_wins_over_the_providers_own() -> None:
    assert resolve_provider("deepseek", {"LLM_API_KEY": "l", "DEEPSEEK_API_KEY": "d"}).api_key == "l"


def test_the_general_key_of_another_server_is_not_sent_to_a_named_provider() -> None:
    env = {"LLM_API_KEY": "l", "LLM_BASE_URL": "https://llm.example/v1", "DEEPSEEK_API_KEY": "d"}
    assert resolve_provider("deepseek", env).api_key == "d"


def test_a_providers_own_variables_set_address_and_model() -> None:
    env = {"OPENAI_BASE_URL": "https://proxy.example/v1", "OPENAI_MODEL": "gpt-x", "OPENAI_API_KEY": "o"}
    found = resolve_provider("openai", env)
    assert (found.base_url, found.model, found.api_key) == ("https://proxy.example/v1", "gpt-x", "o")


@pytest.mark.parametrize(
    ("alias", "key"), [("qwen", "bailian"), ("glm", "zhipu"), ("kimi", "moonshot"), ("OpenAI", "openai")]
)
def test_aliases_and_any_case_are_understood(alias: str, key: str) -> None:
    assert resolve_provider(alias, {}).key == key


def test_an_unknown_provider_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownProvider) as caught:
        resolve_provider("deepsek", {})
    assert isinstance(caught.value, ModelError)
    assert not caught.value.retryable
    assert "deepseek" in caught.value.detail["known"]
    assert "'deepsek'" in caught.value.message


def test_every_provider_of_the_specification_is_known() -> None:
    named = (
        "bailian qwen siliconflow deepseek openai zhipu glm moonshot kimi modelscope ollama vllm local auto scripted"
    )
    assert set(named.split()) <= set(known_providers())


def test_a_missing_key_is_an_error_that_names_the_variables() -> None:
    with pytest.raises(ProviderNotReady, match="BAILIAN_API_KEY, DASHSCOPE_API_KEY"):
        open_model("bailian", env={})


@pytest.mark.parametrize("key", ["ollama", "vllm", "local"])
def test_servers_of_ones_own_need_no_key(key: str) -> None:
    assert open_model(key, env={}).provider == key


def test_a_server_without_a_model_name_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(ProviderNotReady, match="LLM_MODEL_ID"):
        open_model(env={"LLM_BASE_URL": "https://llm.example/v1"})


def test_the_agents_model_wins_over_the_environments() -> None:
    env = {"LLM_BASE_URL": "https://llm.example/v1", "LLM_MODEL_ID": "m"}
    assert open_model(None, "mine", env).model == "mine"
    assert open_model(None, None, env).model == "m"


def test_an_address_without_a_scheme_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ProviderNotReady, match="http"):
        open_model(env={"LLM_BASE_URL": "llm.example/v1", "LLM_MODEL_ID": "m"})


# --- profiles of one's own -----------------------------------------------------------------------

MINE: dict[str, Any] = {
    "mine": {
        "base_url": "https://mine.example/v1",
        "api_key_env": "MY_KEY",
        "model": "m1",
        "finish_optional": True,
        "think_tags": True,
        "replay_reasoning": "tool_turns",
        "usage": "unasked",
        "headers": {"X-Token": "${MY_HEADER}", "X-Plain": "p"},
        "knobs": {"HIGH": {"effort": "max"}},
    }
}


def test_a_profile_of_ones_own_is_used_by_its_key() -> None:
    found = resolve_provider("mine", {"MY_KEY": "k", "MY_HEADER": "h"}, MINE)
    assert (found.base_url, found.model, found.api_key) == ("https://mine.example/v1", "m1", "k")
    assert found.headers == {"X-Token": "h", "X-Plain": "p"}
    assert found.profile.finish_optional
    assert found.profile.knobs.HIGH == {"effort": "max"}


def test_its_key_takes_part_in_auto() -> None:
    assert resolve_provider(None, {"MY_KEY": "k"}, MINE).key == "mine"


def test_it_needs_its_key() -> None:
    with pytest.raises(ProviderNotReady, match="MY_KEY"):
        open_model("mine", env={}, profiles=MINE)


def test_a_known_provider_may_be_changed_field_by_field() -> None:
    changed = resolve_provider(
        "deepseek", {}, {"deepseek": {"model": "deepseek-reasoner", "knobs": {"always": {"a": 1}}}}
    )
    assert changed.model == "deepseek-reasoner"
    assert changed.base_url == PROFILES["deepseek"].base_url
    assert changed.profile.knobs.always == {"a": 1}
    assert changed.profile.knobs.HIGH == PROFILES["deepseek"].knobs.HIGH


WRONG = [
    ({"base_url": "x", "modle": "m"}, "modle"),
    ({"model": "m"}, "base_url"),
    ({"base_url": "x", "usage": "never"}, "usage"),
    ({"base_url": "x", "knobs": {"models": "qwen("}}, "knobs.models 'qwen\\(' is not a regular expression"),
    ({"base_url": "x", "apiKey": "my-own-key-1"}, "api_key_env takes names of variables"),
    ({"base_url": "x", "fallback": ["mine"]}, "is the model itself"),
    ({"base_url": "x", "fallback": ["deepsek"]}, "no provider is named 'deepsek'"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG)
def test_a_wrong_profile_is_an_error_that_names_the_field(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ProviderNotReady, match=said):
        resolve_provider("mine", {}, {"mine": fields})


@pytest.mark.parametrize(("fields", "said"), WRONG)
def test_a_wrong_profile_fails_who_uses_it_and_nobody_else(fields: dict[str, Any], said: str) -> None:
    tables = {" Mine ": fields, "good": {"base_url": "http://h/v1", "model": "m"}}
    assert {"good", "mine"} <= set(known_providers(tables))
    assert resolve_provider("good", {}, tables).base_url == "http://h/v1"
    assert resolve_provider("auto", {"DEEPSEEK_API_KEY": "k"}, tables).key == "deepseek"
    with pytest.raises(ProviderNotReady, match=said):
        resolve_provider("mine", {}, tables)


def test_a_wrong_table_of_a_known_provider_is_not_passed_over() -> None:
    tables = {"deepseek": {"usage": "never"}}
    for asked in ("deepseek", "auto"):
        with pytest.raises(ProviderNotReady, match="usage"):
            resolve_provider(asked, {"DEEPSEEK_API_KEY": "k"}, tables)
    with pytest.raises(ProviderNotReady, match="usage"):
        resolve_provider("auto", {"LLM_BASE_URL": "https://api.deepseek.com"}, tables)


def test_a_key_where_the_name_of_its_variable_belongs_is_refused_and_not_told() -> None:
    with pytest.raises(ProviderNotReady, match="api_key_env takes names of variables") as caught:
        resolve_provider("mine", {}, {"mine": {"base_url": "http://x", "apiKey": "my-own-key-1"}})
    assert "my-own-key-1" not in str(caught.value)


def test_white_space_around_what_is_set_is_no_part_of_it_and_nothing_else_is_not_set() -> None:
    found = resolve_provider("mine", {"MY_KEY": " k\n", "MINE_BASE_URL": " http://here/v1 ", "MINE_MODEL": " "}, MINE)
    assert (found.api_key, found.base_url, found.model) == ("k", "http://here/v1", "m1")
    assert resolve_provider(env={"LLM_BASE_URL": " ", "DEEPSEEK_API_KEY": "\n"}).key == "scripted"


@pytest.mark.parametrize(
    "url",
    ["http://[::1/v1", "http://here:99999/v1", "http://here:port/v1", "https:///v1", "ftp://here/v1", "httpx://here"],
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ProviderNotReady, match="is not a URL; it must be http"):
        open_model(env={"LLM_BASE_URL": url, "LLM_MODEL_ID": "m"})


@pytest.mark.parametrize("odd", ["kéy-of-mine", "“key-of-mine”", "key-\nof-mine", "key-of-mine\u200b"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_told(odd: str) -> None:
    with pytest.raises(ProviderNotReady, match="copy it again into one of MINE_API_KEY, MY_KEY") as caught:
        open_model("mine", env={"MY_KEY": odd}, profiles=MINE)
    assert "of-mine" not in str(caught.value)


@pytest.mark.parametrize("headers", [{"X-Team": "日本"}, {"X Team": "a"}, {"X-Team": "a\nb"}])
def test_a_header_that_can_not_be_sent_is_refused_by_its_name(headers: dict[str, str]) -> None:
    with pytest.raises(ProviderNotReady, match=f"its header '{next(iter(headers))}' can't be sent"):
        open_model("mine", env={}, profiles={"mine": {"base_url": "http://x", "model": "m", "headers": headers}})


def test_no_key_shows_in_a_providers_repr() -> None:
    found = resolve_provider("mine", {"MY_KEY": "very-secret", "MY_HEADER": "also-secret"}, MINE)
    assert "secret" not in repr(found)
    assert "secret" not in repr(open_model("mine", env={"MY_KEY": "very-secret"}, profiles=MINE))


# --- limits --------------------------------------------------------------------------------------


def test_time_limit_and_retries_come_from_the_environment() -> None:
    limits = limits_from({"LLM_TIMEOUT": "90", "LLM_MAX_RETRIES": "0"})
    assert (limits.first_data_s, limits.idle_s, limits.total_s, limits.max_retries) == (90, 90, 600, 0)
    assert limits_from({"LLM_TIMEOUT": "900"}).total_s == 900
    assert limits_from({}) == Limits()


@pytest.mark.parametrize(
    "env",
    [
        {"LLM_TIMEOUT": "0"},
        {"LLM_TIMEOUT": "soon"},
        {"LLM_MAX_RETRIES": "-1"},
        {"LLM_MAX_RETRIES": "1.5"},
        {"LLM_TIMEOUT": "nan"},
    ],
)
def test_a_limit_that_is_no_number_of_its_range_is_an_error_that_names_the_variable(env: dict[str, str]) -> None:
    with pytest.raises(ProviderNotReady, match=next(iter(env))):
        limits_from(env)


async def test_any_openai_compatible_server_works_by_three_variables() -> None:
    async with serve_scripted() as server:
        model = open_model(env={"LLM_BASE_URL": server.url, "LLM_MODEL_ID": "m", "OPENAI_API_KEY": "k"})
        assert (await complete(model, ASK)).message.text.startswith("Hello")
        await model.aclose()
        assert server.requests[0].json["model"] == "m"
        assert server.requests[0].headers["authorization"] == "Bearer k"


async def test_the_scripted_provider_with_an_address_is_reached_over_http() -> None:
    async with serve_scripted() as server:
        model = open_model("scripted", env={"SCRIPTED_BASE_URL": server.url})
        assert (await complete(model, ASK)).message.content
        await model.aclose()
        assert len(server.requests) == 1
