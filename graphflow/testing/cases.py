"""Cases of an agent in a file: what goes in, what the scripted model says, what must come out (`graphflow test`).

```json
{"agent": "demo_react", "cases": [
  {"name": "asks the clock", "input": "Is it late?", "model": [{"text": "It is late."}],
   "expect": {"contains": ["late"], "tools": []}}]}
```
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.errors import ERROR_CODES, DefinitionError, GraphflowError, Issue
from graphflow.events import ActionStart, Event, NodeStart, ToolStart
from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.definition.source import read_source
from graphflow.graph.definition.struct_validation import check_shape
from graphflow.json_data import encode_json
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptError, ScriptRule, ScriptTurn, parse_script
from graphflow.runtime.result import RunResult, RunStatus
from graphflow.service.application import Application
from graphflow.settings import Settings
from graphflow.suggestions import choose

FORM = 'a file is {"agent": KEY, "cases": [{"name": …, "input": …, "model": SCRIPT, "expect": {…}}]}'


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a case's run must end with; what is left out is not looked at, but for the status."""

    status: RunStatus = "completed"
    output: Any = msgspec.UNSET
    """Exactly this."""
    contains: tuple[str, ...] = ()
    """Texts that the output has."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keys of the state with their values."""
    tools: tuple[str, ...] | None = None
    """Names of the tools and actions that were called, in order."""
    nodes: tuple[str, ...] | None = None
    """Names of the nodes that ran, in order."""
    asked: tuple[str, ...] = ()
    """Texts that one of the model's requests has in its messages."""
    error: str | None = None
    """Code of the error of a failed run, one of `ERROR_CODES`."""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of an agent."""

    name: str
    input: Any = None
    """A text or an object."""
    model: Any = None
    """A script; default: the file's."""
    answers: tuple[Any, ...] = ()
    """Answers to the questions that come, in order."""
    expect: Expected = Expected()


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cases of one agent."""

    agent: str
    """A key."""
    cases: tuple[Case, ...]
    model: Any = None
    """A script for cases that have none; default: the embedded one."""


def load_cases(path: Path) -> CaseFile:
    """The cases in a JSON file.

    Raises:
        DefinitionError: it can't be read, or breaks a rule of its form.
    """
    source = read_source(path)
    issues = [*check_shape(source.data, CaseFile), *_script_issues(source.data)]
    if not issues:
        found = msgspec.convert(source.data, CaseFile)
        issues += [
            Issue(
                pointer=f"/cases/{number}/expect/error",
                message=f"{case.expect.error!r} is not an error code",
                hint=choose(case.expect.error, ERROR_CODES),
            )
            for number, case in enumerate(found.cases)
            if case.expect.error is not None and case.expect.error not in ERROR_CODES
        ]
        if not found.cases:
            issues.append(Issue(pointer="/cases", message="`cases` is empty, so nothing would be tested", hint=FORM))
    if not issues:
        try:
            for case in found.cases:
                _script(found, case)
        except ScriptError as error:
            issues.append(Issue(pointer="", message=str(error)))
    if issues:
        raise DefinitionError([source.locate(issue) for issue in issues])
    return found


def _script_issues(data: Any) -> Iterator[Issue]:
    """What does not fit in the scripts of a file and its cases."""
    cases = data.get("cases") if isinstance(data, Mapping) else None
    listed = enumerate(cases) if isinstance(cases, list) else ()
    for place, holder in [("", data), *((f"/cases/{number}", case) for number, case in listed)]:
        script = holder.get("model") if isinstance(holder, Mapping) else None
        parts: list[tuple[str, Any, type]] = [("", script, Script)]
        if isinstance(script, list):  # rules and turns, mixed
            rule = (ScriptRule if isinstance(part, Mapping) and "match" in part else ScriptTurn for part in script)
            parts = [(f"/{number}", part, kind) for number, (part, kind) in enumerate(zip(script, rule, strict=True))]
        for at, part, kind in parts:
            for issue in check_shape(part, kind) if script is not None else ():
                yield replace(issue, pointer=f"{place}/model{at}{issue.pointer}")


async def check_names(settings: Settings, path: Path, file: CaseFile) -> None:
    """Checks what the cases name of their agent: a mistyped key whose value is null would pass.

    Raises:
        AgentNotFound: the agent does not exist, or its file was refused.
        DefinitionError: the agent has no such state key, node or tool.
    """
    application = Application(
        settings, checkpointer=MemoryCheckpointer(), models=lambda provider, name: ScriptedModel()
    )
    async with application:
        plan, tools = application.graph(file.agent).plan, application.tools.names()
    nodes = list(dict.fromkeys(name for each in (plan, *plan.graphs.values()) for name in each.nodes))
    issues = [*_step_issues("", file.model, tools)]
    for number, case in enumerate(file.cases):
        place, expect = f"/cases/{number}", case.expect
        issues += _step_issues(place, case.model, tools)
        issues += [
            _unknown(
                f"{place}/expect/state/{escape(key)}",
                f"key {key!r} of the state of",
                file,
                key,
                list(plan.schema.channels),
            )
            for key in expect.state
            if key not in plan.schema.channels
        ]
        issues += [
            _unknown(f"{place}/expect/nodes/{index}", f"node {name!r} of", file, name, nodes)
            for index, name in enumerate(expect.nodes or ())
            if name not in nodes
        ]
        # A script may call a tool that does not exist, to see what the agent makes of it.
        called = {*tools, *_called(_script(file, case))}
        issues += [
            _unknown(f"{place}/expect/tools/{index}", f"tool {name!r}, called by", file, name, sorted(called))
            for index, name in enumerate(expect.tools or ())
            if name not in called
        ]
    if issues:
        source = read_source(path)
        raise DefinitionError([source.locate(issue) for issue in issues])


def _unknown(pointer: str, what: str, file: CaseFile, name: str, known: Sequence[str]) -> Issue:
    return Issue(pointer=pointer, message=f"unknown {what} agent {file.agent!r}", hint=choose(name, known))


def _called(script: Script | None) -> Iterator[str]:
    """The tools that recorded turns call."""
    turns = () if script is None else (*script.turns, script.otherwise, *(rule.turn for rule in script.rules))
    for turn in turns:
        yield from (call.name for call in turn.tool_calls) if turn is not None else ()


def _step_issues(place: str, given: Any, tools: Sequence[str]) -> Iterator[Issue]:
    """Steps of rules that name no tool: they would be left out, as those of a tool that is not offered."""
    listed = given if isinstance(given, list) else given.get("rules", ()) if isinstance(given, Mapping) else ()
    at = f"{place}/model" if isinstance(given, list) else f"{place}/model/rules"
    for number, rule in enumerate(listed):
        for index, step in enumerate(rule.get("steps", ())):
            if step["tool"] not in tools:
                message = f"no tool is named {step['tool']!r}"
                yield Issue(
                    pointer=f"{at}/{number}/steps/{index}/tool", message=message, hint=choose(step["tool"], tools)
                )


def _script(file: CaseFile, case: Case) -> Script | None:
    given = case.model if case.model is not None else file.model
    return None if given is None else parse_script(given, name=f"case {case.name!r}")


async def run_case(settings: Settings, file: CaseFile, case: Case) -> list[str]:
    """What differs from what the case expects; empty if it passes. The thread is in memory and leaves nothing behind.

    Raises:
        AgentNotFound: the agent does not exist, or its file was refused.
    """
    model = ScriptedModel(_script(file, case))
    application = Application(settings, checkpointer=MemoryCheckpointer(), models=lambda provider, name: model)
    async with application:
        graph = application.graph(file.agent)
        try:
            events = await _all(graph.stream(case.input, "case"))
            result = await graph.thread("case").result()
            for number, answer in enumerate(case.answers):
                if result.status != "waiting":
                    left = len(case.answers) - number
                    return [f"{left} of the answers met no question", *_differences(case.expect, result, events, model)]
                events += await _all(graph.stream_answer("case", {result.interrupts[0].id: answer}))
                result = await graph.thread("case").result()
        except GraphflowError as refusal:  # of the input or of an answer: this case fails, and the others run
            return [f"{refusal.code}: {refusal.message}"]
        return _differences(case.expect, result, events, model)


async def _all(stream: AsyncGenerator[Event, None]) -> list[Event]:
    return [event async for event in stream]


def _differences(expect: Expected, result: RunResult, events: list[Event], model: ScriptedModel) -> list[str]:
    tools = [
        e.tool_name if isinstance(e, ToolStart) else e.action_name
        for e in events
        if isinstance(e, ToolStart | ActionStart)
    ]
    nodes = [event.node for event in events if isinstance(event, NodeStart)]
    asked = [message.content for request in model.requests for message in request.messages]
    output, state = thaw(result.output), thaw(result.state)
    status = "failed" if expect.error is not None and expect.status == "completed" else expect.status
    pairs: list[tuple[str, Any, Any]] = [("status", status, result.status)]
    if expect.error is not None:
        pairs.append(("error", expect.error, (result.error or {}).get("code")))
    if expect.output is not msgspec.UNSET:
        pairs.append(("output", expect.output, output))
    pairs += [(f"state.{key}", value, state.get(key)) for key, value in expect.state.items()]
    pairs += [(name, list(wanted), got) for name, wanted, got in (("tools", expect.tools, tools), ("nodes", expect.nodes, nodes)) if wanted is not None]  # fmt: skip
    out = [f"{name} is {_json(got)}, not {_json(wanted)}" for name, wanted, got in pairs if _plain(got) != wanted]
    text = output if isinstance(output, str) else _json(output)
    out += [f"the output has no {part!r}: {text:.200}" for part in expect.contains if part not in text]
    out += [f"no message to the model has {part!r}" for part in expect.asked if not any(part in said for said in asked)]
    if out and result.error is not None and expect.error is None:
        out.append(f"{result.error['code']}: {result.error['message']}")
    return out


def _plain(value: Any) -> Any:
    """The value as JSON has it, to compare with what a file says."""
    return msgspec.json.decode(encode_json(value))


def _json(value: Any) -> str:
    return encode_json(value).decode()
