"""Tools over real HTTP: actions, forms that wait, viewports, and files that change meanwhile (spec 8.1, 3.1, 3.3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from graphflow.models.options import ChatOptions
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.tools.port import ToolResult, tool
from tests.patience import PATIENCE_S
from tests.server.conftest import Process, ask, frames, serving, take, upstream
from tests.service.clients import Client
from tests.service.conftest import make_application

FORM = {
    "type": "object",
    "properties": {"kind": {"type": "string"}},
    "required": ["kind"],
}
SCRIPT = {
    "turns": [
        {"tool_calls": [{"name": "leave_form", "arguments": {"kind": "sick"}, "id": "f1"}]},
        {"text": "Thank you."},
    ]
}
AGENT = {
    "mode": "REACT",
    "providerKey": "auto",
    "tools": ["leave_form"],
    "react": {"systemPrompt": "Work."},
}


def write(file: Path, data: Any) -> None:
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")


def write_form(folder: Path, **fields: Any) -> None:
    entry = {"type": "function", "name": "leave_form", "description": "Ask for a leave.", "parameters": FORM, **fields}
    write(folder / "graphs" / "tools" / "Leave.html", {"tools": [entry]})
    write(folder / "graphs" / "viewports" / "Leave.html", "<form>Ferien</form>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "graphs" / "former.json", AGENT)
    write_form(tmp_path)
    return tmp_path


def application(folder: Path, **options: Any) -> Application:
    return make_application(folder, script=SCRIPT, **options)


def submit_body(run_id: str, payload: Any, **fields: Any) -> dict[str, Any]:
    return {"chatId": "c", "runId": run_id, "toolId": "f1", "payload": payload, **fields}


async def submit(client: httpx.AsyncClient, run_id: str, payload: Any, **fields: Any) -> dict[str, Any]:
    answer = (await client.post("/api/submit", json=submit_body(run_id, payload, **fields))).json()
    assert answer["code"] == 0
    data: dict[str, Any] = answer["data"]
    return data


async def until(stream: AsyncIterator[tuple[str | None, dict[str, Any]]], kind: str, seen: Client) -> dict[str, Any]:
    """Reads on to the event of this type."""
    async for sse_id, event in stream:
        seen.take(sse_id, event)
        if event["type"] == kind:
            return event
    raise AssertionError(f"the stream ended without {kind}")


def kinds_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def result_of(events: list[dict[str, Any]]) -> str:
    (found,) = [event["result"] for event in events if event["type"] == "tool.result"]
    return str(found)


# --- forms ------------------------------------------------------------------------------------------------------------


async def test_a_payload_that_does_not_fit_the_forms_schema_is_refused_and_the_form_waits_on(folder: Path):
    days = {"type": "object", "required": ["days"], "properties": {"days": {"type": "integer"}}}
    write_form(folder, holdMs=0, payload=days)
    async with serving(application(folder)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        (asked,) = [event for event in seen.events if event["type"] == "interrupt.request"]
        assert asked["schema"] == days
        for wrong in ({}, None, {"days": "two"}, "two days"):
            refused = await submit(client, asked["runId"], wrong)
            assert (refused["accepted"], refused["status"]) == (False, "invalid")
            assert "the question stays open" in refused["detail"]
        write_form(folder, holdMs=0, payload={"type": "object", "required": ["never"]})
        assert (await submit(client, asked["runId"], {"days": 2}))["accepted"], "it is held against what was asked for"
        rest = await take(client, "GET", f"/api/runs/{asked['runId']}/events")
        assert result_of(rest.events) == '{"days":2}'
        (line,) = [line for line in (await client.get("/api/tools")).json()["data"] if line["name"] == "leave_form"]
        assert "payload" in line


async def test_a_form_names_its_viewport_waits_on_the_stream_and_its_payload_is_the_result(folder: Path):
    async with serving(application(folder)) as (client, server):
        seen = Client()
        body = {"message": "hi", "agentKey": "former", "chatId": "c"}
        async with client.stream("POST", "/api/query", json=body) as response:
            stream = frames(response)
            asked = await until(stream, "interrupt.request", seen)
            start = next(event for event in seen.events if event["type"] == "tool.start")
            assert (start["toolType"], start["toolApi"], start["toolId"]) == ("html", "leave", "f1")
            assert (asked["kind"], asked["toolId"], asked["arguments"]) == ("frontend", "f1", {"kind": "sick"})
            assert asked["payload"]["viewportKey"] == "leave"
            assert "tool.end" in kinds_of(seen.events), "the arguments are whole before anybody is asked"
            async with httpx.AsyncClient(base_url=server.url) as second:
                shown = (await second.get("/api/viewport", params={"viewportKey": start["toolApi"]})).json()
                assert shown["data"] == {"html": "<form>Ferien</form>"}
                told = await submit(second, asked["runId"], {"days": 3}, viewId="v", requestId="r2")
            assert told == {
                "requestId": "r2", "accepted": True, "status": "accepted", "runId": asked["runId"], "toolId": "f1",
            }  # fmt: skip
            await until(stream, "run.complete", seen)
        after = kinds_of(seen.events)[kinds_of(seen.events).index("interrupt.request") + 1 :]
        order = [kind for kind in after if kind in ("request.submit", "interrupt.resolve", "tool.result")]
        assert order == ["request.submit", "interrupt.resolve", "tool.result"]
        assert result_of(seen.events) == '{"days":3}'
        history = (await client.get("/api/chat", params={"chatId": "c"})).json()["data"]["events"]
        kept = [kind for kind in kinds_of(history) if kind in ("tool.snapshot", "request.submit", "tool.result")]
        assert kept == ["tool.snapshot", "request.submit", "tool.result"]
        snapshot = next(event for event in history if event["type"] == "tool.snapshot")
        assert (snapshot["toolType"], snapshot["toolApi"]) == ("html", "leave")
        assert result_of(history) == '{"days":3}'


@pytest.mark.parametrize(
    ("payload", "text"), [({}, "{}"), (None, "{}"), ("", "{}"), ("só", "só"), ([1], "[1]"), (False, "false")]
)
async def test_any_payload_is_a_result_of_text(folder: Path, payload: Any, text: str):
    write_form(folder, holdMs=0)
    async with serving(application(folder)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        assert (await submit(client, seen.events[-1]["runId"], payload))["accepted"]
        rest = await take(client, "GET", f"/api/runs/{seen.events[-1]['runId']}/events")
        assert result_of(rest.events) == text


async def test_when_its_hold_is_over_the_stream_ends_waiting_and_any_later_submit_goes_on(folder: Path):
    write_form(folder, holdMs=1)
    async with serving(application(folder)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        assert kinds_of(seen.events)[-1] == "run.waiting"
        assert seen.events[-1]["interrupts"][0]["kind"] == "frontend"
        run_id = seen.events[-1]["runId"]
        assert (await submit(client, run_id, {"days": 1}))["accepted"]
        rest = await take(client, "GET", f"/api/runs/{run_id}/events", headers={"Last-Event-ID": seen.last_id or ""})
        first = [
            k
            for k in kinds_of(rest.events)
            if k in ("request.submit", "run.resume", "interrupt.resolve", "tool.result")
        ]
        assert first[0] == "request.submit"
        assert first[-1] == "tool.result"
        assert kinds_of(rest.events)[-1] == "run.complete"
        again = await submit(client, run_id, {"days": 2})
        assert (again["accepted"], again["status"]) == (False, "stale")
        unknown = await submit(client, "no-such-run", {"days": 2})
        assert (unknown["accepted"], unknown["status"]) == (False, "unmatched")


@pytest.mark.parametrize("file", ["same", "changed", "removed"])
async def test_a_form_outlives_its_server_and_whatever_becomes_of_its_file(folder: Path, file: str):
    write_form(folder, holdMs=1)
    async with serving(application(folder)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        run_id = seen.events[-1]["runId"]
    if file == "changed":
        write_form(folder, description="Other words.", parameters={"type": "object", "required": ["never"]})
    elif file == "removed":
        (folder / "graphs" / "tools" / "Leave.html").unlink()
    async with serving(application(folder)) as (client, _):
        assert (await submit(client, run_id, {"days": 9}))["accepted"]
        rest = await take(client, "GET", f"/api/runs/{run_id}/events")
        assert result_of(rest.events) == '{"days":9}'
        # With its file gone the agent's next turn has no such tool; the answer itself is not lost.
        assert kinds_of(rest.events)[-1] == ("run.error" if file == "removed" else "run.complete")


async def test_leaving_the_stream_leaves_the_form_open(folder: Path):
    async with serving(application(folder)) as (client, _):
        seen = Client()
        body = {"message": "hi", "agentKey": "former", "chatId": "c"}
        async with client.stream("POST", "/api/query", json=body) as response:
            run_id = (await until(frames(response), "interrupt.request", seen))["runId"]
        assert (await submit(client, run_id, {"days": 4}))["accepted"]
        rest = await take(client, "GET", f"/api/runs/{run_id}/events", headers={"Last-Event-ID": seen.last_id or ""})
        assert result_of(rest.events) == '{"days":4}'
        assert kinds_of(rest.events)[-1] == "run.complete"


async def test_cancelling_closes_the_form_and_its_call_is_answered_at_the_next_input(folder: Path):
    async with serving(application(folder)) as (client, _):
        seen = Client()
        body = {"message": "hi", "agentKey": "former", "chatId": "c"}
        async with client.stream("POST", "/api/query", json=body) as response:
            stream = frames(response)
            run_id = (await until(stream, "interrupt.request", seen))["runId"]
            assert (await client.post("/api/threads/c/cancel")).json()["code"] == 0
            await until(stream, "run.cancel", seen)
        late = await submit(client, run_id, {"days": 4})
        assert not late["accepted"]
        await ask(client, "again", chatId="c")
        raw = (await client.get("/api/chat", params={"chatId": "c", "includeRawMessages": "true"})).json()["data"]
        results = [message for message in raw["rawMessages"] if message["role"] == "tool"]
        assert [message["tool_call_id"] for message in results] == ["f1"]


async def test_without_a_stream_the_answer_says_what_waits(folder: Path):
    async with serving(application(folder)) as (client, _):
        body = {"message": "hi", "agentKey": "former", "chatId": "c", "stream": False}
        data = (await client.post("/api/query", json=body)).json()["data"]
        assert data["status"] == "waiting"
        assert [(i["kind"], i["toolName"]) for i in data["interrupts"]] == [("frontend", "leave_form")]


async def test_a_form_as_a_node_of_a_graph_is_streamed_once_and_goes_on_after_a_restart(folder: Path):
    graph = {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"days": {"type": "integer", "default": 0}}},
        "start": "form",
        "result": "state.days",
        "nodes": {
            "form": {
                "use": "tool:leave_form",
                "with": {"kind": "sick"},
                "set": {"days": "out.data.days"},
                "next": "end",
            }
        },
    }
    write(folder / "graphs" / "graphed.json", graph)
    write_form(folder, holdMs=1)
    async with serving(application(folder)) as (client, _):
        seen = await ask(client, agentKey="graphed", chatId="c")
        (start,) = [event for event in seen.events if event["type"] == "tool.start"]
        run_id = seen.events[-1]["runId"]
    async with serving(application(folder)) as (client, _):
        await submit(client, run_id, {"days": 2}, toolId=start["toolId"])
        rest = await take(client, "GET", f"/api/runs/{run_id}/events", headers={"Last-Event-ID": seen.last_id or ""})
        assert "tool.start" not in kinds_of(rest.events), "an id is never opened again"
        assert result_of(rest.events) == '{"days":2}'
        history = (await client.get("/api/chat", params={"chatId": "c"})).json()["data"]["events"]
        assert kinds_of(history).count("tool.snapshot") == 1


async def test_forms_of_one_turn_are_filled_in_one_after_another_and_no_result_is_told_twice(folder: Path):
    write_form(folder, holdMs=0)
    tools = {"tools": ["leave_form", "launch_fireworks", "math_eval"]}
    write(
        folder / "graphs" / "former.json", {**AGENT, **tools, "mode": "PLAIN_TOOLING", "plainTooling": AGENT["react"]}
    )
    agent = json.loads((folder / "graphs" / "former.json").read_text(encoding="utf-8"))
    del agent["react"]
    write(folder / "graphs" / "former.json", agent)
    calls = [
        {"name": "launch_fireworks", "arguments": {}, "id": "a1"},
        {"name": "math_eval", "arguments": {"expression": "2*3"}, "id": "m1"},
        {"name": "leave_form", "arguments": {"kind": "sick"}, "id": "f1"},
        {"name": "leave_form", "arguments": {"kind": "{{math_eval.expression}}"}, "id": "f2"},
    ]
    script = {"turns": [{"tool_calls": calls}, {"text": "Thank you."}]}
    seen = Client()
    for number, tool_id in enumerate((None, "f1", "f2")):
        async with serving(make_application(folder, script=script)) as (client, _):
            if tool_id is None:
                await take(
                    client, "POST", "/api/query", seen, json={"message": "hi", "agentKey": "former", "chatId": "c"}
                )
                run_id = seen.events[-1]["runId"]
            else:
                assert (await submit(client, run_id, {"n": number}, toolId=tool_id))["accepted"]
                headers = {"Last-Event-ID": seen.last_id or ""}
                await take(client, "GET", f"/api/runs/{run_id}/events", seen, headers=headers)
            last = seen.events[-1]
            if tool_id != "f2":
                assert [i["kind"] for i in last["interrupts"]] == ["frontend"]
    assert last["type"] == "run.complete"
    told = [event.get("toolId") or event["actionId"] for event in seen.events if event["type"].endswith(".result")]
    assert told == ["a1", "m1", "f1", "f2"]
    async with serving(make_application(folder, script=script)) as (client, _):
        history = (await client.get("/api/chat", params={"chatId": "c"})).json()["data"]["events"]
        told = [event.get("toolId") or event["actionId"] for event in history if event["type"].endswith(".result")]
        assert told == ["a1", "m1", "f1", "f2"]


# --- actions and sources ----------------------------------------------------------------------------------------------


async def test_an_action_is_streamed_with_its_parameters_and_is_ok_at_once(folder: Path):
    write(
        folder / "graphs" / "tools" / "lights.action",
        {"tools": [{"name": "dim_lights", "description": "Dims.", "parameters": {"type": "object"}}]},
    )
    write(folder / "graphs" / "former.json", {**AGENT, "tools": ["dim_lights"]})
    script = {
        "turns": [
            {"tool_calls": [{"name": "dim_lights", "arguments": {"to": 5}, "id": "a1"}]},
            {"text": "Done."},
        ]
    }
    async with serving(make_application(folder, script=script)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        actions = [event for event in seen.events if event["type"].startswith("action.")]
        assert kinds_of(actions)[0] == "action.start"
        assert set(kinds_of(actions)[1:-3]) == {"action.args"}
        assert kinds_of(actions)[-3:] == ["action.end", "action.param", "action.result"]
        assert (actions[0]["actionName"], actions[0]["description"]) == ("dim_lights", "Dims.")
        assert (actions[-2]["param"], actions[-1]["result"]) == ({"to": 5}, "OK")
        assert not any(kind.startswith(("tool.", "interrupt.")) for kind in kinds_of(seen.events))
        history = (await client.get("/api/chat", params={"chatId": "c"})).json()["data"]["events"]
        assert [k for k in kinds_of(history) if k.startswith("action.")] == [
            "action.snapshot", "action.param", "action.result",
        ]  # fmt: skip


async def test_an_action_whose_arguments_break_its_schema_still_shows_them(folder: Path):
    write(folder / "graphs" / "former.json", {**AGENT, "tools": ["switch_theme"]})
    call = {"name": "switch_theme", "arguments": {"theme": 7}, "id": "a1"}
    script = {"turns": [{"tool_calls": [call]}, {"text": "Done."}]}
    async with serving(make_application(folder, script=script)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        actions = [event for event in seen.events if event["type"].startswith("action.")]
        assert kinds_of(actions)[-3:] == ["action.end", "action.param", "action.result"]
        assert actions[-2]["param"] == {"theme": 7} and actions[-1]["result"] != "OK"


async def test_an_action_of_a_turn_that_was_cut_off_ends_as_the_action_that_it_is(folder: Path):
    write(folder / "graphs" / "former.json", {**AGENT, "tools": ["launch_fireworks"]})
    call = {"name": "launch_fireworks", "arguments": {}, "id": "a1"}
    script = {"turns": [{"tool_calls": [call], "finish": "length"}, {"text": "Done."}]}
    async with serving(make_application(folder, script=script)) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        assert not any(kind.startswith("tool.") for kind in kinds_of(seen.events))
        (result,) = [event["result"] for event in seen.events if event["type"] == "action.result"]
        assert "cut off at its length limit" in result


async def test_the_sources_of_a_result_follow_it_live_and_in_history(folder: Path):
    @tool(effects="read")
    async def look_up() -> ToolResult:
        """Looks up."""
        return ToolResult(text="found", sources=[{"title": "A", "url": "https://a.example"}, {"sourceId": "s2"}])

    write(folder / "graphs" / "former.json", {**AGENT, "tools": ["look_up"]})
    script = {"turns": [{"tool_calls": [{"name": "look_up", "arguments": {}, "id": "t1"}]}, {"text": "Done."}]}
    async with serving(make_application(folder, script=script, tools=[look_up])) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        for events in (seen.events, (await client.get("/api/chat", params={"chatId": "c"})).json()["data"]["events"]):
            at = kinds_of(events).index("tool.result")
            assert kinds_of(events)[at + 1 : at + 3] == ["source.snapshot", "source.snapshot"]
            assert [event["sourceId"] for event in events[at + 1 : at + 3]] == ["t1_source_1", "s2"]
            assert events[at + 1]["url"] == "https://a.example"


async def test_a_plain_dict_with_sources_shows_them_too(folder: Path):
    @tool(effects="read")
    async def look_up() -> dict[str, Any]:
        """Looks up."""
        return {"found": 3, "sources": [{"sourceId": "s1", "title": "A"}, "https://b.example", {"rows": 1}, 7]}

    write(folder / "graphs" / "former.json", {**AGENT, "tools": ["look_up"]})
    script = {"turns": [{"tool_calls": [{"name": "look_up", "arguments": {}, "id": "t1"}]}, {"text": "Done."}]}
    async with serving(make_application(folder, script=script, tools=[look_up])) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        sources = [event for event in seen.events if event["type"] == "source.snapshot"]
        assert [(event["sourceId"], event.get("title"), event.get("url")) for event in sources] == [
            ("s1", "A", None), ("t1_source_2", None, "https://b.example"),
        ]  # fmt: skip
        (result,) = [event["result"] for event in seen.events if event["type"] == "tool.result"]
        assert json.loads(result)["found"] == 3


@pytest.mark.parametrize(("environ", "limit"), [({}, 50_000), ({"AGENT_TOOLS_MAX_RESULT_CHARS": "100"}, 100)])
async def test_a_cut_result_is_kept_whole_and_can_be_fetched(folder: Path, environ: dict[str, str], limit: int):
    @tool(effects="read")
    async def long_list() -> str:
        """Gives much."""
        return "x" * 60_000

    write(folder / "graphs" / "former.json", {**AGENT, "tools": ["long_list"]})
    script = {"turns": [{"tool_calls": [{"name": "long_list", "arguments": {}, "id": "t1"}]}, {"text": "Done."}]}
    app = make_application(folder, script=script, tools=[long_list], environ=environ)
    async with serving(app) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        assert result_of(seen.events).startswith("x" * limit + "\n[CUT: ")
        assert f"{limit} of 60000 characters shown" in result_of(seen.events)
        whole = await client.get("/api/tool/result", params={"chatId": "c", "toolId": "t1"})
        assert whole.json()["data"] == {"toolId": "t1", "toolName": "long_list", "result": "x" * 60_000, "cut": True}
        raw = (await client.get("/api/chat", params={"chatId": "c", "includeRawMessages": "true"})).json()["data"]
        (message,) = [message for message in raw["rawMessages"] if message["role"] == "tool"]
        assert message["content"] == result_of(seen.events), "the model is sent the cut text only"
        unknown = await client.get("/api/tool/result", params={"chatId": "c", "toolId": "t9"})
        assert (unknown.status_code, unknown.json()["data"]["error"]["code"]) == (404, "not_found")


# --- files ------------------------------------------------------------------------------------------------------------


async def test_viewports_are_served_by_their_key_html_as_text_and_the_others_as_their_json(folder: Path):
    viewports = folder / "graphs" / "viewports"
    write(viewports / "Table.qlc", {"columns": ["a", 1]})
    write(viewports / "more.json_schema", ["x"])
    write(viewports / "broken.dqlc", "{")
    async with serving(application(folder)) as (client, _):
        found = {}
        for key in ("leave", "LEAVE", "table", "more"):
            found[key] = (await client.get("/api/viewport", params={"viewportKey": key})).json()
        assert found["leave"]["data"] == found["LEAVE"]["data"] == {"html": "<form>Ferien</form>"}
        assert (found["table"]["data"], found["more"]["data"]) == ({"columns": ["a", 1]}, ["x"])
        for key in ("broken", "none", "../former"):
            gone = await client.get("/api/viewport", params={"viewportKey": key})
            assert (gone.status_code, gone.json()["code"]) == (404, 404)
        assert (await client.get("/api/viewport")).status_code == 400


async def test_tools_are_listed_with_kind_schema_and_errors_both_of_two_of_a_name(folder: Path):
    tools = folder / "graphs" / "tools"
    write(tools / "a.action", {"tools": [{"name": "twice"}, {"name": "fine", "prompt": "p"}, {"name": "bad", "x": 1}]})
    write(tools / "b.action", {"tools": [{"name": "twice"}]})
    write(tools / "c.backend", "{")
    async with serving(application(folder)) as (client, _):
        lines = (await client.get("/api/tools")).json()["data"]
        by_name: dict[str, list[Mapping[str, Any]]] = {}
        for line in lines:
            by_name.setdefault(line["name"], []).append(line)
        (form,) = by_name["leave_form"]
        assert (form["kind"], form["toolType"], form["viewportKey"]) == ("frontend", "html", "leave")
        assert form["parameters"] == FORM
        assert by_name["fine"][0]["kind"] == "action"
        assert by_name["city_datetime"][0]["kind"] == "backend"
        assert sorted(Path(line["invalid"]["file"]).name for line in by_name["twice"]) == ["a.action", "b.action"]
        assert all("a.action/tools/0 and b.action/tools/0" in line["invalid"]["message"] for line in by_name["twice"])
        assert by_name["bad"][0]["invalid"]["pointer"] == "/tools/2/x"
        assert (by_name["c.backend"][0]["invalid"]["line"], by_name["c.backend"][0]["kind"]) == (1, "backend")
        one = (await client.get("/api/tool", params={"toolName": "leave_form"})).json()["data"]
        assert one == form
        unknown = await client.get("/api/tool", params={"toolName": "leave_from"})
        assert unknown.status_code == 400
        assert "leave_form" in unknown.json()["msg"]


async def test_a_run_keeps_the_tools_that_it_began_with_and_the_next_has_the_newest(folder: Path):
    app = application(folder)
    async with serving(
        app,
    ) as (client, _):
        seen = Client()
        body = {"message": "hi", "agentKey": "former", "chatId": "c"}
        async with client.stream("POST", "/api/query", json=body) as response:
            stream = frames(response)
            run_id = (await until(stream, "interrupt.request", seen))["runId"]
            (folder / "graphs" / "tools" / "Leave.html").unlink()
            write(folder / "graphs" / "tools" / "new.action", {"tools": [{"name": "brand_new"}]})
            await app.toolbox.refresh()
            names = [line["name"] for line in (await client.get("/api/tools")).json()["data"]]
            assert "brand_new" in names and "leave_form" not in names
            (former,) = [a for a in (await client.get("/api/agents")).json()["data"] if a["key"] == "former"]
            assert "leave_form" in former["invalid"]["message"], "the agent was checked again, and is reported"
            await submit(client, run_id, {"days": 1})
            await until(stream, "run.complete", seen)
        # The refused agent serves on, with the tools that it was checked with.
        second = {"message": "hi", "agentKey": "former", "chatId": "d", "stream": False}
        assert (await client.post("/api/query", json=second)).json()["data"]["status"] == "waiting"
        write_form(folder, description="Mended.")
        await app.toolbox.refresh()
        (former,) = [a for a in (await client.get("/api/agents")).json()["data"] if a["key"] == "former"]
        assert "invalid" not in former
        third = Client()
        async with client.stream("POST", "/api/query", json={**body, "chatId": "e"}) as response:
            await until(frames(response), "interrupt.request", third)
        (start,) = [event for event in third.events if event["type"] == "tool.start"]
        assert start["description"] == "Mended."


async def test_a_waiting_run_goes_on_with_the_tools_that_it_began_with(folder: Path):
    write_form(folder, holdMs=0, prompt="Old note.")
    sent: list[str] = []

    class Listening(ScriptedModel):
        async def stream(self, messages: Any, tools: Any = (), options: ChatOptions = ChatOptions()) -> Any:
            sent.append(messages[0].content)
            async for delta in super().stream(messages, tools, options):
                yield delta

    model = Listening(msgspec.convert(SCRIPT, Script))
    app = Application(load_settings(folder, environ={}), models=lambda provider, name: model)
    async with serving(app) as (client, _):
        seen = await ask(client, agentKey="former", chatId="c")
        write_form(folder, holdMs=0, prompt="New note.")
        await app.toolbox.refresh()
        run_id = seen.events[-1]["runId"]
        assert (await submit(client, run_id, {"days": 1}))["accepted"]
        rest = await take(client, "GET", f"/api/runs/{run_id}/events", headers={"Last-Event-ID": seen.last_id or ""})
        assert kinds_of(rest.events)[-1] == "run.complete"
        await ask(client, agentKey="former", chatId="d")
    assert ["Old note." in text for text in sent] == [True, True, False]
    assert "New note." in sent[-1]


async def test_a_watched_server_takes_a_file_that_is_renamed_into_place_without_a_restart(folder: Path):
    app = application(folder)
    async with serving(app) as (client, _):
        taken = asyncio.Event()
        app.agents.on_change(lambda change: taken.set() if "later" in change.added else None)
        write(folder / "graphs" / "later.json", {**AGENT, "tools": ["brand_new"]})
        half = folder / "graphs" / "tools" / "new.action.tmp"
        write(half, {"tools": [{"name": "brand_new"}]})
        half.rename(folder / "graphs" / "tools" / "new.action")
        async with asyncio.timeout(PATIENCE_S):
            await taken.wait()
        assert (await client.get("/api/tool", params={"toolName": "brand_new"})).json()["data"]["kind"] == "action"


async def test_a_form_open_on_a_killed_server_is_answered_on_the_next_and_its_result_comes_once(
    folder: Path, processes: Callable[[str], Process]
):
    async with upstream(SCRIPT) as model, asyncio.timeout(PATIENCE_S):
        model.gate.release_all()
        server = processes(model.url)
        client = await server.start()
        seen = Client()
        body = {"message": "hi", "agentKey": "former", "chatId": "c"}
        async with client.stream("POST", "/api/query", json=body) as response:
            run_id = (await until(frames(response), "interrupt.request", seen))["runId"]
            await server.kill()
        client = await server.start()
        (waiting,) = (await client.get("/api/inbox")).json()["data"]
        assert (waiting["kind"], waiting["toolId"]) == ("frontend", "f1")
        assert (await submit(client, run_id, {"days": 7}))["accepted"]
        await take(client, "GET", f"/api/runs/{run_id}/events", seen, headers={"Last-Event-ID": seen.last_id or ""})
        assert kinds_of(seen.events)[-1] == "run.complete"
        assert result_of(seen.events) == '{"days":7}'
        assert kinds_of(seen.events).count("tool.start") == 1
        assert not (await submit(client, run_id, {"days": 8}))["accepted"]
