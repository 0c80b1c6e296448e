"""The commands that look: graph, agents, validate, schema, new, doctor, scripted-model, help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

BROKEN = """{
  "graphflow": "1",
  "state": {"type": "object", "properties": {"draft": {"type": "string", "default": ""}}},
  "start": "write",
  "nodes": {
    "write": {"use": "modle", "next": "chek"},
    "check": {"ask": {"message": "ok?", "schema": {"type": "boolean"}}, "next": [{"if": "state.darft", "to": "end"}]}
  }
}
"""


@pytest.mark.parametrize(
    "agent",
    ["demo_plain", "demo_thinking", "demo_plain_tooling", "demo_thinking_tooling", "demo_react", "demo_review"],
)
def test_a_graph_as_text(cli, agent, snapshot):
    assert cli("graph", "show", agent).out == snapshot


def test_a_graph_as_mermaid_svg_and_document(cli, project):
    assert cli("graph", "show", "demo_react", "--mermaid").out.startswith("flowchart TD\n")
    assert cli("graph", "show", "demo_react", "--svg").out.startswith("<svg")
    document = cli("graph", "show", "demo_react", "--json")
    (project / "graphs" / "ejected.json").write_text(document.out)
    assert cli("validate", "graphs/ejected.json").code == 0
    assert cli("graph", "show", "ejected").out == cli("graph", "show", "demo_react").out
    assert cli("graph", "show", "demo_react", "--svg", "--json").code == 2


def test_a_graph_with_the_way_that_a_thread_took(cli, snapshot):
    cli("run", "demo_react", "What time is it in Beijing? And list the files", "--thread", "t1")
    assert cli("graph", "show", "demo_react", "--thread", "t1").out == snapshot


def test_agents_are_listed_with_refused_ones(cli, project, snapshot):
    assert cli("agents", "list").code == 0
    (project / "graphs" / "broken.json").write_text("{\n")
    done = cli("agents", "list")
    assert done.code == 2 and "broken.json:2:1" in done.err
    assert done.out == snapshot
    assert [agent["key"] for agent in cli("agents", "list", "--json").json][-1] == "broken"


def test_an_agent_is_shown_with_its_graph(cli):
    shown = cli("agents", "show", "demo_react")
    assert "REACT" in shown.out and "You are a careful assistant" in shown.out and "reason  model" in shown.out
    assert cli("agents", "show", "demo_react", "--json").json["graph"]["start"] == "reason"


def test_validate_names_place_value_and_fix_of_every_error_at_once(cli, project, snapshot):
    (project / "graphs" / "broken.json").write_text(BROKEN)
    done = cli("validate", "graphs/broken.json")
    assert done.code == 2
    assert done.out + done.err == snapshot
    assert cli("validate").code == 2 and cli("validate", "graphs").code == 2


def test_validate_as_json_is_pure(cli, project):
    (project / "broken.json").write_text(BROKEN)
    done = cli("validate", "broken.json", "--json")
    assert done.code == 2 and done.err == "" and not done.json["valid"]
    assert {"pointer", "message", "file", "line", "column"} <= set(done.json["errors"][0])


def test_validate_of_good_files(cli, project):
    number = sum(file.is_file() for file in (project / "graphs").rglob("*"))
    assert cli("validate").err == f"{number} files checked: 0 errors\n"
    missing = cli("validate", "nowhere.json")
    assert missing.code == 2 and "nowhere.json" in missing.err


def test_validate_tells_what_is_wrong_with_tool_files_and_viewports(cli, project):
    for name in ("tools/bad.action", "viewports/bad.qlc"):
        (project / "graphs" / name).write_text("{\n")
    done = cli("validate")
    assert done.code == 2 and "graphs/tools/bad.action:2:1" in done.out and "graphs/viewports/bad.qlc:2:1" in done.out
    one = cli("validate", "graphs/tools/bad.action")
    assert one.code == 2 and one.err == "1 file checked: 1 error\n" and "bad.qlc" not in one.out
    assert cli("validate", "graphs/viewports/leave_form.html").code == 0


def test_the_schema_accepts_the_demo_agents(cli, project):
    import jsonschema_rs

    schema = cli("schema", "agent").json
    check = jsonschema_rs.validator_for(schema)
    for name in ("demo_plain", "demo_review"):
        assert check.is_valid(msgspec.json.decode((project / "graphs" / f"{name}.json").read_bytes()))
    assert not check.is_valid({"mode": "PLAIN", "horses": 3})
    assert set(cli("schema").json) == {"agent", "graph", "nodes"}
    assert cli("schema", "horse").code == 2


@pytest.mark.parametrize("mode", ["PLAIN", "REACT", "GRAPH"])
def test_a_new_agent_runs_with_the_scripted_model(cli, project, mode):
    assert cli("new", "mine", "--mode", mode).out == "graphs/mine.json\n"
    assert (project / "graphs" / ".graphflow.schema.json").is_file()
    assert cli("validate").code == 0
    assert cli("run", "mine", "hello").code == (4 if mode == "GRAPH" else 0)


def test_new_writes_no_file_that_the_loader_would_refuse(cli, project, environment):
    environment["GRAPHFLOW_BOUNDS_DOCUMENT_BYTES"] = "100"
    refused = cli("new", "mine")
    assert refused.code == 5 and "bounds.document_bytes" in refused.err
    assert not (project / "graphs" / "mine.json").exists()


def test_new_never_writes_over_a_file_by_itself(cli):
    assert cli("new", "demo_plain").code == 2
    assert cli("new", "../out").code == 2
    assert cli("new", "x", "--mode", "HORSE").code == 2


def test_doctor_never_shows_a_key(cli, environment):
    environment["OPENAI_API_KEY"] = "sk-secret-of-this-test"
    done = cli("doctor")
    assert "OPENAI_API_KEY" in done.out and "sk-secret" not in done.out + done.err
    assert {"Python", "store", "port", "keys", "model", "agents"} <= {
        line["what"] for line in cli("doctor", "--json").json
    }


def test_doctor_says_what_is_wrong(cli, project, environment):
    (project / "graphflow.toml").write_text("[settings.server]\nport = 'many'\n")
    done = cli("doctor")
    assert done.code == 1 and "port" in done.out


def test_the_scripted_model_is_served_over_http(project: Path, environment: dict[str, str]):
    command = [sys.executable, "-m", "graphflow", "scripted-model", "--port", "0"]
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip().removeprefix("LLM_BASE_URL=")
        body = {"model": "x", "messages": [{"role": "user", "content": "hello"}]}
        answer = httpx.post(f"{url}/chat/completions", json=body).json()
        server.terminate()
    assert answer["choices"][0]["message"]["content"].startswith("Hello!")


def test_serve_refuses_other_machines_without_a_token(cli):
    done = cli("serve", "--host", "0.0.0.0")
    assert done.code == 2 and "--token" in done.err


@pytest.mark.parametrize("given", [("--token", ""), ("--token", " "), ("--token", "a", "--token", ""), ("--host", "")])
def test_serve_refuses_an_empty_option_by_its_name(cli, given):
    """The text said that "the flag for server.tokens is ***"."""
    done = cli("serve", "--port", "0", *given)
    assert done.code == 2 and f"{given[0]} is empty" in done.err and "server.tokens" not in done.err


def test_help_loads_nothing_heavy(cli):
    code = (
        "import sys; from graphflow.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'networkx', 'httpx', 'fastapi', 'structlog', 'aiosqlite', 'rich', 'prompt_toolkit', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cli.folder, env=cli.environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_every_command_has_help(cli):
    for words in ([], ["threads"], ["inbox"], ["graph"], ["agents"], ["run"], ["threads", "fork"], ["inbox", "answer"]):
        assert cli(*words, "--help").code == 0
