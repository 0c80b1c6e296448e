"""`doctor --online` calls the models whose keys are set, and explains what a refusal means."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture
def refusing() -> Iterator[str]:
    """The base URL of a server that knows no key."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = b'{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}'
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def calls(done):
    return [finding for finding in done.json if finding["what"] == "call"]


def test_a_key_that_is_refused_is_explained_and_never_shown(cli, environment, refusing):
    environment |= {"LLM_BASE_URL": refusing, "LLM_MODEL_ID": "m", "LLM_API_KEY": "sk-secret-1234567890"}
    done = cli("doctor", "--online", "--json")
    [call] = calls(done)
    assert (done.code, call["state"]) == (1, "error")
    for part in ("401", "does not accept this API key", "LLM_API_KEY", refusing):
        assert part in call["text"]
    assert "sk-secret" not in done.out + done.err


def test_a_model_that_answers_is_reported(cli, environment, held_model):
    [call] = calls(cli("doctor", "--online", "--json"))
    assert call["state"] == "ok"
    assert "answered after" in call["text"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"LLM_BASE_URL": "foo"}, "'foo' is not a URL"),
        ({"LLM_BASE_URL": "ftp://127.0.0.1/v1"}, "not a URL"),
        ({"LLM_BASE_URL": "file:///srv/model"}, "not a URL"),
        ({"LLM_BASE_URL": "http://127.0.0.1:99999/v1"}, "not a URL"),
        ({"LLM_BASE_URL": "http:///v1"}, "not a URL"),
        ({"DEEPSEEK_API_KEY": "k", "DEEPSEEK_BASE_URL": "deepseek"}, "'deepseek' is not a URL"),
        ({"OPENAI_BASE_URL": "ws://127.0.0.1/v1"}, "not a URL"),
        ({"LLM_PROVIDER": "openai"}, "OPENAI_API_KEY"),
        ({"GRAPHFLOW_SERVER_HOST": "no such host"}, "server.host"),
        ({"GRAPHFLOW_SERVER_HOST": "192.0.2.7"}, "server.host"),
        ({"GRAPHFLOW_SERVER_PORT": "99999"}, "from 0 to 65535"),
        ({"GRAPHFLOW_SERVER_ALLOWED_HOSTS": "https://x/y"}, "server.allowed_hosts"),
        ({"GRAPHFLOW_SERVER_CORS_ORIGINS": "app.example.com"}, "server.cors_origins"),
        ({"GRAPHFLOW_STORE_URL": "mysql://u:secret@h/d"}, "store.url"),
        ({"GRAPHFLOW_UPLOADS_DIR": "graphflow.toml"}, "uploads.dir"),
        ({"GRAPHFLOW_UPLOADS_DIR": "graphflow.toml/below"}, "uploads.dir"),
        ({"GRAPHFLOW_AGENTS_DIR": "graphflow.toml"}, "agents.dir"),
        ({"GRAPHFLOW_TRACE_DIR": "graphflow.toml"}, "trace.dir"),
        ({"GRAPHFLOW_MEMORY_CHAT_DIR": "graphflow.toml"}, "memory.chat_dir"),
        ({"GRAPHFLOW_STORE_PATH": "graphflow.toml/threads.db"}, "store.path"),
        ({"GRAPHFLOW_STORE_PATH": "graphs"}, "store.path"),
        ({"GRAPHFLOW_WEBHOOKS_SECRETS": "whsec_="}, "webhooks.secrets"),
    ],
)
def test_an_address_or_folder_that_cannot_work_is_an_error_that_names_its_setting(
    cli, environment, project, given, named
):
    (project / "graphflow.toml").touch()
    environment |= given
    done = cli("doctor", "--json")
    wrong = [finding["text"] for finding in done.json if finding["state"] == "error"]
    assert done.code == 1 and any(named in text for text in wrong), (wrong, done.out)
    assert "secret" not in " ".join(wrong).replace("webhooks.secrets", "").replace("a secret is", "")
    doubtful = [f for f in done.json if f["what"] == "model" and f["state"] == "ok" and "BASE_URL" in str(given)]
    assert not any(value in finding["text"] for value in given.values() for finding in doubtful)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"LLM_PROVIDER": "openai", "OPENAI_API_KEY": "a", "LLM_API_KEY": "b"}, "LLM_API_KEY"),
        ({"LLM_PROVIDER": "openai", "OPENAI_API_KEY": "a"}, "OPENAI_API_KEY"),
        ({"LLM_PROVIDER": "bailian", "BAILIAN_API_KEY": "a", "DASHSCOPE_API_KEY": "b"}, "BAILIAN_API_KEY"),
    ],
)
def test_a_refused_key_is_named_by_the_variable_that_has_it(cli, environment, refusing, given, named):
    provider = given["LLM_PROVIDER"].upper()
    environment |= given | {f"{provider}_BASE_URL": refusing, "LLM_MODEL_ID": "m"}
    found = calls(cli("doctor", "--online", "--json"))
    assert any(f"The key is from {named}." in call["text"] for call in found), found


def test_nothing_is_called_unasked(cli, environment, refusing):
    environment |= {"LLM_BASE_URL": refusing, "LLM_MODEL_ID": "m", "LLM_API_KEY": "sk-secret-1234567890"}
    assert calls(cli("doctor", "--json")) == []


def test_every_command_is_listed_with_its_parameters(cli):
    listed = {line["command"]: line for line in cli("commands", "--json").json}
    assert {"run", "chat", "threads list", "graph show", "doctor"} <= listed.keys()
    options = {parameter["name"]: parameter for parameter in listed["run"]["parameters"]}
    assert options["--effects"]["help"] and options["agent"]["required"]
    assert options["--budget"]["repeatable"] and options["--json"]["type"] == "flag"
    assert "threads list" in cli("commands").out


def test_run_takes_choices_for_a_rollback_alone(cli):
    assert cli("run", "demo_plain", "hi", "--effects", "reuse").code == 2
    assert cli("run", "demo_plain", "hi", "--on-busy", "never").code == 2
    assert cli("run", "demo_react", "list the files", "--thread", "t").code == 4
    done = cli(
        "run",
        "demo_react",
        "What time is it in Beijing?",
        "--thread",
        "t",
        "--on-busy",
        "rollback",
        "--effects",
        "rerun",
    )
    assert done.code == 0, done.err


def test_a_provider_table_that_is_wrong_fails_who_uses_it_and_nobody_else(cli, environment, project):
    environment["LLM_PROVIDER"] = "scripted"
    (project / "graphflow.toml").write_text('[providers.mine]\nmodel = "m"\n', encoding="utf-8")
    said = "provider 'mine' can't be used: [providers.mine] has no base_url; add it"
    assert cli("run", "demo_plain", "hi").code == 0
    told = cli("validate")
    assert told.code == 0 and f"warning: graphflow.toml: /providers/mine: {said}" in " ".join(told.out.split())
    findings = json.loads(cli("doctor", "--json").out)
    assert [found["state"] for found in findings if found["text"] == said] == ["warning"]
    assert [found for found in findings if found["what"] in ("server", "agents") and found["state"] == "error"] == []
    agent = {"key": "mine", "mode": "PLAIN", "providerKey": "mine", "plain": {"systemPrompt": "Be brief."}}
    (project / "graphs" / "mine.json").write_text(json.dumps(agent), encoding="utf-8")
    findings = json.loads(cli("doctor", "--json").out)
    assert [found["state"] for found in findings if found["text"] == said] == ["error"]
    failed = cli("run", "mine", "hi")
    assert failed.code != 0 and said in " ".join(failed.err.split())


def test_another_folder_is_checked_with_the_prices_of_the_settings(cli, project):
    (project / "graphflow.toml").write_text('[prices."scripted/*"]\nprompt = 1\ncompletion = 1\n', encoding="utf-8")
    agent = {
        "key": "thrifty", "mode": "PLAIN", "providerKey": "scripted", "budget": {"maxCostUsd": 1},
        "plain": {"systemPrompt": "Be brief."},
    }  # fmt: skip
    (project / "more").mkdir()
    (project / "more" / "thrifty.json").write_text(json.dumps(agent), encoding="utf-8")
    told = cli("validate", "more")
    assert (told.code, told.err.strip()) == (0, "1 file checked: 0 errors"), told.out


def test_a_fallback_that_has_no_key_or_is_retired_is_reported(cli, environment, project):
    (project / "graphflow.toml").write_text(
        '[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\nfallback = ["openai", "deepseek/deepseek-chat"]\n',
        encoding="utf-8",
    )
    environment |= {"LLM_PROVIDER": "mine", "MINE_MODEL": "m", "DEEPSEEK_API_KEY": "k"}
    found = [(f["state"], f["text"]) for f in cli("doctor", "--json").json]
    assert any(state == "error" and "'openai'" in text and "OPENAI_API_KEY" in text for state, text in found), found
    assert any(state == "warning" and "deepseek-chat" in text and "retired" in text for state, text in found), found
