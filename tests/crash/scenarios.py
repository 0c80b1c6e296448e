"""Random graphs from a seed: nodes that act, ask, fail and try again, tools, models, loops and subgraphs.

Everything that a node does follows from the seed and the node's place, never from how often it was begun, so a run
that was killed many times must end like one that never was.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from graphflow import Context, HumanMessage, tool
from graphflow.content import LARGE_BYTES, ImagePart, TextPart
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.validation.validate import check_document
from graphflow.models.deltas import Delta, Finish, TextDelta, Usage
from graphflow.models.pool import ModelPool
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptTurn
from graphflow.nodes.kinds import NodeKinds
from graphflow.nodes.model import MODEL_SERVICES
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.tools.context import ToolContext
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.crash.boundaries import Boundaries
from tests.crash.diary import Diary

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "default": 0, "x-reducer": "sum"},
        "loops": {"type": "integer", "default": 0},
        "log": {"type": "array", "default": [], "x-reducer": "append"},
        "messages": {"type": "array", "default": [], "x-reducer": "messages"},
    },
}


class World:
    """Where this process's effects go; set in the child, used by every node and tool."""

    diary: Diary
    boundaries: Boundaries
    thread = "t"
    """The one thread of this seed."""

    @classmethod
    def act(cls, what: str, key: str, effects: str, *, idempotent: bool = False, place: Any = None) -> str:
        """Does it: after this, it has happened."""
        result = f"{what} is done"
        cls.boundaries.reach("act <")
        if effects == "write":
            cls.diary.effect(what=what, key=key, result=result, idempotent=idempotent, operation=place)
        else:
            cls.diary.note("read", what=what, operation=place)
        cls.boundaries.reach("act >")
        return result


class Scenario(msgspec.Struct, kw_only=True):
    """What one seed runs."""

    seed: int
    checked: CheckedDocument
    kinds: NodeKinds
    tools: ToolRegistry
    model: ScriptedModel
    options: dict[str, Any]

    def open(self, store: Any) -> CompiledGraph:
        """The graph over a store of this process."""
        models = {SPEAKER: Speaker()}
        services = {
            **MODEL_SERVICES,
            "model": ModelPool(lambda provider, name: models.get(name or "", self.model)),
            "tool": ToolRunner(self.tools),
        }
        return CompiledGraph(self.checked, kinds=self.kinds, checkpointer=store, services=services)


def make_scenario(seed: int) -> Scenario:
    """The scenario of a seed, checked and ready."""
    draw = random.Random(seed)
    builder = _Builder(draw)
    document = builder.graph("r", depth=0, stages=draw.randint(3, 7))
    kinds = NodeKinds(_tools, agents=_Documents(builder.graphs))
    for function in (step, effects, questions, both, flaky, wrong, loop, talks, talks_again):
        kinds.node(function.__name__, function)
    kinds.function("transfer", transfer)
    options: dict[str, Any] = {"durability": draw.choice(["async", "sync"])}
    if draw.random() < 0.2:
        options["interrupt_before"] = [draw.choice(list(document["nodes"]))]
    if draw.random() < 0.2:
        options["interrupt_after"] = [draw.choice(list(document["nodes"]))]
    registry = kinds.tools
    assert registry is not None
    return Scenario(
        seed=seed,
        checked=check_document(document, kinds),
        kinds=kinds,
        tools=registry,
        model=ScriptedModel(Script(turns=tuple(builder.turns))),
        options=options,
    )


class _Documents:
    def __init__(self, graphs: Mapping[str, Mapping[str, Any]]) -> None:
        self._graphs = graphs

    def document(self, key: str) -> Mapping[str, Any] | None:
        return self._graphs.get(key)


class _Builder:
    """Strings stages of random kinds into documents."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.graphs: dict[str, dict[str, Any]] = {}
        self.turns: list[ScriptTurn] = []
        self._calls = 0
        self._shared = 0
        """How many `map` and `parallel` nodes are around."""

    def graph(self, prefix: str, *, depth: int, stages: int) -> dict[str, Any]:
        names = [f"{prefix}{index}" for index in range(stages)]
        nodes: dict[str, Any] = {}
        for name, following in zip(names, [*names[1:], "end"], strict=True):
            nodes |= self._stage(name, following, depth)
        return {
            "graphflow": "1",
            "key": prefix,
            "state": STATE,
            "budget": {"maxSteps": 500, "maxRounds": 50},
            "result": "state.log",
            "start": names[0],
            "nodes": nodes,
        }

    def _stage(self, name: str, following: str, depth: int) -> dict[str, Any]:
        kinds: list[Callable[[str, str, int], dict[str, Any]]] = [
            self._plain, self._tools, self._tool, self._ask, self._flaky, self._routed, self._talks,
        ]  # fmt: skip
        if not self._shared:  # nodes that write a plain key, or that the world knows by their name alone
            kinds += [self._loop, self._transfer]
        if depth == 0:
            kinds += [self._react]  # the script counts the root's turns
        if depth < 2:
            kinds += [self._sub, self._map, self._parallel]
        return self._draw.choice([self._acting, *kinds])(name, following, depth)

    # one function per kind of stage

    def _plain(self, name: str, following: str, depth: int) -> dict[str, Any]:
        return {name: {"use": "node:step", "next": following}}

    def _acting(self, name: str, following: str, depth: int) -> dict[str, Any]:
        use = self._draw.choice(["effects", "effects", "questions", "both"])
        return {name: {"use": f"node:{use}", "next": following}}

    def _flaky(self, name: str, following: str, depth: int) -> dict[str, Any]:
        retry = {"max": 3, "on": ["node_error"], "backoffMs": self._draw.choice([0, 1])}
        return {name: {"use": "node:flaky", "retry": retry, "next": following}}

    def _talks(self, name: str, following: str, depth: int) -> dict[str, Any]:
        if self._draw.random() < 0.7:
            return {name: {"use": "node:talks", "next": following}}
        retry = {"max": 3, "on": ["node_error"], "backoffMs": 0}
        return {name: {"use": "node:talks_again", "retry": retry, "next": following}}

    def _loop(self, name: str, following: str, depth: int) -> dict[str, Any]:
        times = self._draw.randint(2, 4)
        return {
            name: {"use": "node:loop", "next": [{"if": f"state.loops % {times} != 0", "to": name}, {"to": following}]}
        }

    def _routed(self, name: str, following: str, depth: int) -> dict[str, Any]:
        """A node that always fails, and the one that its error leads to."""
        return {
            name: {"use": "node:wrong", "error": [{"on": ["node_error"], "to": f"{name}_mend"}]},
            f"{name}_mend": {"use": "node:effects", "next": following},
        }

    def _transfer(self, name: str, following: str, depth: int) -> dict[str, Any]:
        """A function node that says itself that it writes."""
        return {
            name: {
                "use": "fn:transfer",
                "effects": "write",
                "with": {"what": name, "loops": "${state.n}"},
                "set": {"log": "[out]"},
                "next": following,
            }
        }

    def _tools(self, name: str, following: str, depth: int) -> dict[str, Any]:
        calls = [self._call() for _ in range(self._draw.randint(1, 3))]
        given = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]
        return {
            name: {"use": "tools", "with": {"calls": given}, "set": {"messages": "out.messages"}, "next": following}
        }

    def _tool(self, name: str, following: str, depth: int) -> dict[str, Any]:
        call = self._call()
        return {
            name: {"use": f"tool:{call.name}", "with": call.arguments, "set": {"log": "[out.text]"}, "next": following}
        }

    def _ask(self, name: str, following: str, depth: int) -> dict[str, Any]:
        return {
            name: {"ask": {"message": name, "schema": {"type": "integer"}}, "set": {"n": "answer"}, "next": following}
        }

    def _react(self, name: str, following: str, depth: int) -> dict[str, Any]:
        rounds = self._draw.randint(0, 2)
        for index in range(rounds):
            calls = tuple(self._call() for _ in range(self._draw.randint(1, 2)))
            self.turns.append(ScriptTurn(text=f"{name} turn {index} says", tool_calls=calls, piece=4))
        self.turns.append(ScriptTurn(text=f"{name} is answered", piece=5))
        return {
            name: {
                "use": "model",
                "with": {"tools": ["pay", "look", "stamp", "careful"]},
                "set": {"messages": "[out.message]"},
                "next": [{"if": "size(out.toolCalls) > 0", "to": f"{name}_do"}, {"to": following}],
            },
            f"{name}_do": {"use": "tools", "set": {"messages": "out.messages"}, "next": name},
        }

    def _sub(self, name: str, following: str, depth: int) -> dict[str, Any]:
        key = f"{name}g"
        self.graphs[key] = self.graph(f"{name}x", depth=depth + 1, stages=self._draw.randint(1, 3))
        return {name: {"graph": key, "set": {"log": "out"}, "next": following}}

    def _map(self, name: str, following: str, depth: int) -> dict[str, Any]:
        items = self._draw.randint(1, 3)
        fan: dict[str, Any] = {"map": str(list(range(items))), "as": f"item_{name}", "do": f"{name}m0"}
        if self._draw.random() < 0.4:
            fan["max"] = self._draw.randint(1, 2)
        return {
            name: {**fan, "set": {"log": "[size(out)]"}, "next": following},
            **self._body(f"{name}m", depth),
        }

    def _parallel(self, name: str, following: str, depth: int) -> dict[str, Any]:
        names = [f"{name}{letter}" for letter in "pqs"[: self._draw.randint(1, 3)]]
        branches: dict[str, Any] = {branch: f"{branch}0" for branch in names}
        if len(names) > 1 and self._draw.random() < 0.4:
            branches[names[-1]] = {"do": f"{names[-1]}0", "after": [names[0]]}
        bodies = [self._body(branch, depth) for branch in names]
        fan = {"parallel": branches, "set": {"log": "[size(out)]"}, "next": following}
        return {name: fan} | {node: keys for body in bodies for node, keys in body.items()}

    def _body(self, prefix: str, depth: int) -> dict[str, Any]:
        """The nodes of one branch, from its first to its end."""
        self._shared += 1
        names = [f"{prefix}{index}" for index in range(self._draw.randint(1, 2))]
        nodes: dict[str, Any] = {}
        for name, following in zip(names, [*names[1:], "end"], strict=True):
            nodes |= self._stage(name, following, depth + 1)
        self._shared -= 1
        return nodes

    def _call(self) -> ScriptedCall:
        self._calls += 1
        name = self._draw.choice(["pay", "pay", "look", "stamp", "careful"])
        return ScriptedCall(id=f"c{self._calls}", name=name, arguments={"what": f"{name} {self._calls}"})


# --- nodes ---------------------------------------------------------------------------------------


def _begin(ctx: Context) -> tuple[random.Random, str]:
    """What this node run does, drawn from its place alone."""
    path = ctx.path
    World.diary.note("start", place=[path, ctx.node, ctx.visit], attempt=ctx.attempt)
    label = f"{path}/{ctx.node}#{ctx.visit}"
    return random.Random(label), label


def _next_key(ctx: Any, kind: str) -> str:
    """What an operation without a key of its own is about to be called."""
    return f"{kind}:{1 + ctx.keys._counts.get(kind, 0)}"


async def _once(ctx: Any, draw: random.Random, label: str, number: int) -> str:
    kind = draw.choice(["write", "write", "read", "idempotent"])
    key = f"op {number}" if draw.random() < 0.5 else None
    what = f"{label} {kind} {number}"
    effects = "write" if kind == "idempotent" else kind
    path = ctx.path
    known = key or _next_key(ctx, "once")
    place = [path, ctx.node, ctx.visit, known]
    pause = draw.random() < 0.3

    async def act() -> str:
        if pause:
            await asyncio.sleep(0)
        return World.act(what, ctx.idempotency_key(known), effects, idempotent=kind == "idempotent", place=place)

    return str(await ctx.step(key, act, effects=effects, idempotent=kind == "idempotent"))


async def step(state: Any, ctx: Context) -> dict[str, Any]:
    """Says something and writes."""
    draw, label = _begin(ctx)
    for word in range(draw.randint(0, 3)):
        await ctx.content(f"{label} {word} ")
    if draw.random() < 0.3:
        await asyncio.sleep(0)
    return {"n": 1, "log": [label], **_picture(label)}


def _picture(label: str) -> dict[str, Any]:
    """Perhaps a message with a picture, one of few, so that many nodes show the same."""
    draw = random.Random(f"picture of {label}")
    if draw.random() < 0.5:
        return {}
    part = ImagePart(data=PICTURES[draw.randrange(len(PICTURES))], media_type="image/png")
    return {"messages": [HumanMessage(content=(TextPart(text=label), part))]}


PICTURES = [random.Random(number).randbytes(LARGE_BYTES + number) for number in range(3)]


async def effects(state: Any, ctx: Context) -> dict[str, Any]:
    """Does several things, each once."""
    draw, label = _begin(ctx)
    done = [await _once(ctx, draw, label, number) for number in range(draw.randint(1, 3))]
    return {"n": 1, "log": done}


async def questions(state: Any, ctx: Context) -> dict[str, Any]:
    """Acts, asks, acts, asks."""
    draw, label = _begin(ctx)
    first = await _once(ctx, draw, label, 0)
    number = await ctx.ask(f"how many at {label}?", schema={"type": "integer"})
    second = await _once(ctx, draw, label, 1)
    word = await ctx.ask(f"what of {label}?", schema={"type": "string"})
    return {"n": number, "log": [first, second, word]}


async def both(state: Any, ctx: Context) -> dict[str, Any]:
    """Asks two questions at once."""
    draw, label = _begin(ctx)
    done = await _once(ctx, draw, label, 0)
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(ctx.ask(f"{key} of {label}?", key=key, schema={"type": "integer"})) for key in ("x", "y")
        ]
    x, y = (task.result() for task in asked)
    return {"n": x, "log": [done, f"{label} {x} {y}"]}


async def flaky(state: Any, ctx: Context) -> dict[str, Any]:
    """Fails once or twice after it has done something."""
    draw, label = _begin(ctx)
    times = draw.randint(1, 2)
    first = await _once(ctx, draw, label, 0)
    if ctx.attempt <= times:
        raise RuntimeError(f"attempt {ctx.attempt} of {label} fails")
    second = await _once(ctx, draw, label, 1)
    return {"n": 1, "log": [first, second]}


async def _talk(ctx: Any, draw: random.Random, label: str, number: int, attempt: int | None = None) -> Any:
    """A call of the model that only says what follows from its place; with an attempt it may be forgotten by the next one."""
    key = f"talk {number}" if draw.random() < 0.5 else None
    known = key or _next_key(ctx, "model")
    shown = draw.choice([True, False, None])
    schema = draw.choice([None, None, {"type": "object", "required": ["said"]}])
    said = f"{label} says {number}" + (f" in attempt {attempt}" if attempt else "")
    place = [ctx.path, ctx.node, ctx.visit, known]
    asked: dict[str, Any] = {
        "say": said if schema is None else json.dumps({"said": said}),
        "place": None if attempt else place,
    }
    asked["shown"] = ctx.speaks if shown is None else shown
    answer = await ctx.call_model(json.dumps(asked), model=SPEAKER, key=key, stream=shown, schema=schema)
    return answer.content if schema is None else answer["said"]


async def talks(state: Any, ctx: Context) -> dict[str, Any]:
    """Calls a model before and after what it does and asks."""
    draw, label = _begin(ctx)
    said = [await _talk(ctx, draw, label, 0)]
    if draw.random() < 0.5:
        said.append(await _once(ctx, draw, label, 0))
    if draw.random() < 0.3:
        said.append(await ctx.ask(f"what of {label}?", schema={"type": "string"}))
    said += [await _talk(ctx, draw, label, number) for number in range(1, draw.randint(2, 3))]
    return {"n": 1, "log": said}


async def talks_again(state: Any, ctx: Context) -> dict[str, Any]:
    """Fails after a call whose answer was used, which stays, and one whose answer may have been the reason."""
    draw, label = _begin(ctx)
    kept = await _talk(ctx, draw, label, 0)
    done = await _once(ctx, draw, label, 0)
    last = await _talk(ctx, draw, label, 1, ctx.attempt)
    if ctx.attempt == 1:
        raise RuntimeError(f"{label} did not like {last!r}")
    return {"n": 1, "log": [kept, done, last]}


async def wrong(state: Any, ctx: Context) -> None:
    """Acts, then fails for good."""
    draw, label = _begin(ctx)
    await _once(ctx, draw, label, 0)
    raise RuntimeError(f"{label} is always wrong")


async def loop(state: Any, ctx: Context) -> dict[str, Any]:
    """Comes back until its count is round."""
    draw, label = _begin(ctx)
    done = [await _once(ctx, draw, label, 0)] if draw.random() < 0.4 else []
    return {"loops": state.loops + 1, "log": [*done, label]}


async def transfer(what: str, loops: int) -> str:
    """A write that the node's own `effects` declares."""
    return World.act(f"transfer {what} at {loops}", f"transfer {what}", "write")


# --- the model that nodes call themselves ------------------------------------------------------------

SPEAKER = "speaker"


class Speaker(ScriptedModel):
    """Says what it is asked to say, and notes that it was asked."""

    async def stream(self, messages: Any, tools: Any = (), options: Any = None) -> AsyncGenerator[Delta, None]:
        asked = json.loads(messages[-1].content)
        reach, say = World.boundaries.reach, asked["say"]
        reach("talk <")
        World.diary.note("read", what=say, operation=asked["place"], shown=asked["shown"])
        for begin in range(0, len(say), 9):
            reach("talk -")
            yield TextDelta(say[begin : begin + 9])
            await asyncio.sleep(0)
        reach("talk >")
        yield Finish("stop", "stop", Usage(prompt_tokens=10, completion_tokens=len(say)))


# --- tools ---------------------------------------------------------------------------------------

_WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


def _tools() -> ToolRegistry:
    return ToolRegistry([pay, look, stamp, careful], builtins=())


@tool(parameters=_WHAT)
async def pay(what: str, ctx: ToolContext) -> str:
    """Pays."""
    return World.act(what, ctx.idempotency_key, "write")


@tool(parameters=_WHAT, effects="read")
async def look(what: str, ctx: ToolContext) -> str:
    """Looks."""
    return World.act(what, ctx.idempotency_key, "read")


@tool(parameters=_WHAT, idempotent=True)
async def stamp(what: str, ctx: ToolContext) -> str:
    """Stamps, and stamping twice is stamping once."""
    return World.act(what, ctx.idempotency_key, "write", idempotent=True)


@tool(parameters=_WHAT, approval_hint="It is dear.")
async def careful(what: str, ctx: ToolContext) -> str:
    """Does what a person must allow."""
    return World.act(what, ctx.idempotency_key, "write")
