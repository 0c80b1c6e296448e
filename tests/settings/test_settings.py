"""Settings: the order of their sources, and what a wrong one is told (spec 10)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphflow.errors import DefinitionError
from graphflow.models.profiles import Profile
from graphflow.settings import all_settings, load_settings, settings_markdown
from graphflow.settings.table import PROVIDER_FIELDS

ROOT = Path(__file__).parents[2]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def issues(folder: Path, **kwargs) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        load_settings(folder, **({"environ": {}} | kwargs))
    return [issue.render() for issue in caught.value.errors]


def test_defaults_hold_where_no_source_says_anything(tmp_path):
    settings = load_settings(tmp_path, environ={})
    assert settings.server.port == 8080
    assert settings.llm.timeout_s == 120
    assert settings.tools.hold_ms == 300_000
    assert settings.memory.chat_k == 20
    assert settings.agents.dir == tmp_path / "graphs"


def test_each_source_wins_over_the_next(tmp_path):
    """Flags, environment, .env, graphflow.local.toml, graphflow.toml."""
    folder = tmp_path
    environ: dict[str, str] = {}

    def port(**flags):
        return load_settings(folder, environ=environ, flags=flags).server.port

    write(folder, "graphflow.toml", "[settings.server]\nport = 1")
    assert port() == 1
    write(folder, "graphflow.local.toml", "[settings]\nserver.port = 2")
    assert port() == 2
    write(folder, ".env", "SERVER_PORT=3\n")
    assert port() == 3
    environ["SERVER_PORT"] = "4"
    assert port() == 4
    assert load_settings(folder, environ=environ, flags={"server.port": 5}).server.port == 5
    assert load_settings(folder, environ=environ, flags={"server.port": None}).server.port == 4


def test_the_ruled_name_wins_over_the_given_one(tmp_path):
    environ = {"GRAPHFLOW_LLM_TIMEOUT_S": "7", "LLM_TIMEOUT": "8"}
    assert load_settings(tmp_path, environ=environ).llm.timeout_s == 7


def test_an_empty_variable_counts_as_not_set(tmp_path):
    write(tmp_path, ".env", "LLM_BASE_URL=http://from-file/v1\n")
    settings = load_settings(tmp_path, environ={"SERVER_PORT": "", "LLM_BASE_URL": ""})
    assert settings.server.port == 8080
    assert settings.llm.base_url == "http://from-file/v1"


def test_every_setting_can_be_given_by_each_of_its_environment_names(tmp_path):
    """One rule: `llm.timeout_s` ↔ `GRAPHFLOW_LLM_TIMEOUT_S`, plus the given names."""
    sample = {"bool": "true", "int": "1234", "float": "1", "Path": "x", "tuple[str, ...]": "a,b"}
    for row in all_settings():
        section, _, name = row.name.partition(".")
        text = sample.get(getattr(row.kind, "__name__", "") or str(row.kind), "sync" if "sync" in str(row.kind) else "")
        text = text or next(word for word in ("AUTO", "debug", "off", "") if word in str(row.kind)) or "json"
        text = {"llm.max_retries": "3", "tools.mcp_servers": "{}"}.get(row.name, text)
        text = "a,b" if "tuple" in str(row.kind) else "1234" if str(row.kind) == "int | None" else text
        for variable in row.env_names:
            settings = load_settings(tmp_path, environ={variable: text})
            assert getattr(getattr(settings, section), name) is not None, variable


@pytest.mark.parametrize("variable", ["AGENT_EXTERNAL_DIR", "OPENAI_API_KEY", "MEMORY_CHAT_K", "GRAPHFLOW_LOG_LEVEL"])
def test_given_names_of_the_gateway_are_kept(variable):
    text = settings_markdown()
    assert f"`{variable}`" in text


def test_dotenv_reaches_what_looks_up_provider_keys(tmp_path):
    write(tmp_path, ".env", 'OPENAI_API_KEY="sk-from-file"\nDEEPSEEK_MODEL=v4\n')
    environ = load_settings(tmp_path, environ={"DEEPSEEK_MODEL": "v5"}).environ
    assert environ["OPENAI_API_KEY"] == "sk-from-file"
    assert environ["DEEPSEEK_MODEL"] == "v5"


def test_what_was_decided_stands_under_the_given_names_for_code_that_reads_an_environment(tmp_path):
    write(tmp_path, "graphflow.toml", "[settings.llm]\nbase_url = 'http://file/v1'\nmax_retries = 4")
    environ = {"GRAPHFLOW_LLM_BASE_URL": "http://ruled/v1", "LLM_BASE_URL": "http://given/v1"}
    found = load_settings(tmp_path, environ=environ).environ
    assert (found["LLM_BASE_URL"], found["LLM_MAX_RETRIES"]) == ("http://ruled/v1", "4")
    assert "LLM_MODEL_ID" not in found


def test_the_fields_of_a_provider_are_those_that_the_models_know():
    assert set(PROVIDER_FIELDS) == set(Profile.__struct_fields__)


def test_lists_are_words_between_commas_in_the_environment_and_lists_in_a_file(tmp_path):
    write(tmp_path, "graphflow.toml", '[tools]\nmodules = ["one", "two"]')
    assert load_settings(tmp_path, environ={}).tools.modules == ("one", "two")
    environ = {"GRAPHFLOW_TOOLS_MODULES": " three , four,"}
    assert load_settings(tmp_path, environ=environ).tools.modules == ("three", "four")


def test_relative_paths_start_at_the_folder_and_absolute_ones_stay(tmp_path):
    environ = {"AGENT_EXTERNAL_DIR": "here", "MEMORY_CHAT_DIR": "/var/chats"}
    settings = load_settings(tmp_path, environ=environ)
    assert settings.agents.dir == tmp_path / "here"
    assert settings.memory.chat_dir == Path("/var/chats")


def test_provider_tables_of_both_files_are_merged_field_by_field(tmp_path):
    write(tmp_path, "graphflow.toml", '[providers.mine]\nbase_url = "http://a/v1"\nmodel = "m"')
    write(tmp_path, "graphflow.local.toml", '[providers.mine]\nmodel = "n"')
    settings = load_settings(tmp_path, environ={})
    assert settings.providers == {"mine": {"base_url": "http://a/v1", "model": "n"}}


def test_all_errors_of_all_sources_come_at_once_each_with_place_value_and_rule(tmp_path):
    toml = "[settings.server]\nport = 70000\n[settings.llm]\ntimeout = 3\n[settings.memroy]\nx = 1\n[providers.p]\nmodle = 'm'"
    write(tmp_path, "graphflow.toml", toml)
    found = issues(tmp_path, environ={"LLM_MAX_RETRIES": "many", "AGENT_TOOLS_APPROVAL_MODE": "ASK"})
    text = "\n".join(found)
    assert len(found) == 6
    assert "graphflow.toml: server.port is 70000; setting server.port takes a whole number from 0 to 65535" in text
    assert "environment variable LLM_MAX_RETRIES is 'many'; setting llm.max_retries takes a whole number" in text
    assert "takes one of AUTO, REQUIRE_APPROVAL, DISABLED" in text
    assert "graphflow.toml: /settings/llm/timeout: unknown key 'timeout' (did you mean 'timeout_s'?)" in text
    assert "/settings/memroy: unknown key 'memroy' (did you mean 'memory'?)" in text
    assert "/providers/p/modle: unknown key 'modle' (did you mean 'model'?)" in text


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("graphflow.toml", b"[settings.server]\nport = 1" + b"0" * 5_000, "4300 digits"),
        ("graphflow.toml", b"a = " + b"[" * 50_000, "recursion"),
        ("graphflow.toml", b"[settings.server]\nhost = '\xe9'", "0xe9"),
        ("graphflow.toml", None, "Is a directory"),
        (".env", b"LLM_MODEL_ID=\xe9\n", "0xe9"),
    ],
    ids=["a number without end", "depth", "no UTF-8", "a folder", ".env of no UTF-8"],
)
def test_a_file_that_can_not_be_read_is_an_error_that_names_it(tmp_path, name, content, rule):
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(content)
    (issue,) = issues(tmp_path)
    assert issue.startswith(f"{name}: can't be read: ") and rule in issue


@pytest.mark.parametrize("text", ["~nobody-of-this-name/chats", "a\0b"])
def test_what_can_be_no_path_is_refused_as_any_wrong_value(tmp_path, text):
    (issue,) = issues(tmp_path, environ={"MEMORY_CHAT_DIR": text})
    assert "takes a path" in issue and "MEMORY_CHAT_DIR" in issue


def test_a_long_value_is_shown_by_its_beginning(tmp_path):
    (issue,) = issues(tmp_path, environ={"SERVER_PORT": "9" * 100_000})
    assert len(issue) < 400 and "a whole number from 0 to 65535" in issue


def test_a_file_that_is_no_toml_is_named_with_line_and_column(tmp_path):
    write(tmp_path, "graphflow.toml", "[settings]\nserver = = 1")
    (found,) = issues(tmp_path)
    assert found.startswith("graphflow.toml:2:10: is not TOML")


@pytest.mark.parametrize(
    ("toml", "rule"),
    [
        ("[settings]\nserver = 1", "it must be a table"),
        ("[settings.server]\nport = '8080x'", "a whole number"),
        ("[settings.server]\nport = 80.5", "a whole number"),
        ("[settings.server]\nport = true", "a whole number"),
        ("[settings.llm]\ntimeout_s = nan", "a number from 0.1 up (s)"),
        (f"[settings.llm]\ntimeout_s = 1{'0' * 400}", "a number from 0.1 up (s)"),
        (f"[settings.tools]\nhold_ms = 1{'0' * 400}", "a whole number from 0 up (ms)"),
        (f"[settings.tools]\nhold_ms = {2**53}", "a whole number from 0 up (ms)"),
        ("[settings.llm]\ninteraction_log_enabled = 'maybe'", "true or false"),
        ("[settings.tools]\nmodules = [1]", "a list of texts"),
        ("[settings.llm]\nbase_url = 5", "a text"),
        ("[server]\nport = 1", "settings stand in [settings.SECTION]"),
        ("[tools]\ndir = 'x'", "write it under [settings.tools]"),
        ("[mcp.files]\nargs = 'x'", "it must be of type list"),
    ],
)
def test_a_wrong_value_names_the_rule(tmp_path, toml, rule):
    write(tmp_path, "graphflow.toml", toml)
    (found,) = issues(tmp_path)
    assert rule in found


def test_a_secret_is_never_shown(tmp_path):
    write(tmp_path, "graphflow.toml", "[settings.llm]\napi_key = 12345678")
    (found,) = issues(tmp_path)
    assert "12345678" not in found
    settings = load_settings(tmp_path / "none", environ={"LLM_API_KEY": "sk-verysecret"})
    assert settings.llm.api_key == "sk-verysecret"
    assert "verysecret" not in repr(settings)


def test_headers_that_are_no_table_are_not_shown(tmp_path):
    write(tmp_path, "graphflow.toml", '[providers.mine]\nheaders = "Bearer hunter2"\n[mcp.x]\nenv = "KEY=hunter2"')
    found = issues(tmp_path)
    assert len(found) == 2 and "hunter2" not in "".join(found)


def test_an_unknown_graphflow_variable_is_a_warning_that_guesses_the_right_one(tmp_path):
    settings = load_settings(tmp_path, environ={"GRAPHFLOW_LLM_TIMEOUT": "3"})
    assert settings.warnings == (
        "environment variable GRAPHFLOW_LLM_TIMEOUT is not a setting; did you mean 'GRAPHFLOW_LLM_TIMEOUT_S'?",
    )


def test_an_unknown_flag_is_a_defect_of_the_caller(tmp_path):
    with pytest.raises(KeyError, match="did you mean 'server.port'"):
        load_settings(tmp_path, environ={}, flags={"server.prot": 1})


def test_loading_settings_loads_no_pydantic(tmp_path):
    """Rule E20: resuming and answering load no pydantic, and every command loads its settings."""
    code = "import sys; from graphflow.settings import load_settings; load_settings(); print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"


def test_the_docs_page_is_the_table():
    """Fix with `make docs`."""
    assert (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8") == settings_markdown()


@pytest.mark.parametrize("given", ["", " ", "a,", ","])
@pytest.mark.parametrize("door", ["flag", "environment", ".env", "graphflow.toml", "graphflow.toml list"])
def test_an_empty_token_is_an_error_and_does_not_open_the_server(tmp_path, door, given):
    """`--token "$UNSET"` must not mean "no token is needed"."""
    sources = {}
    match door:
        case "flag":
            sources = {"flags": {"server.tokens": given}}
        case "environment":
            sources = {"environ": {"GRAPHFLOW_TOKENS": given}}
        case ".env":
            write(tmp_path, ".env", f"GRAPHFLOW_TOKENS='{given}'\n")
        case "graphflow.toml":
            write(tmp_path, "graphflow.toml", f'[settings.server]\ntokens = "{given}"\n')
        case _:
            write(tmp_path, "graphflow.toml", f"[settings.server]\ntokens = {given.split(',')}\n")
    (issue,) = issues(tmp_path, **sources)
    assert "setting server.tokens takes a list of secrets, none of them empty or blank" in issue


def test_an_empty_encryption_key_is_an_error_and_does_not_turn_encryption_off(tmp_path):
    (issue,) = issues(tmp_path, environ={"GRAPHFLOW_STORE_KEYS": ""})
    assert "none of them empty" in issue
