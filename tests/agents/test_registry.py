"""The agents of a folder: last good versions, errors, references between files, hot reload (spec 1.1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from graphflow.agents.registry import AgentRegistry
from graphflow.agents.reload import AgentChanges
from graphflow.errors import AgentNotFound
from graphflow.nodes.kinds import NodeKinds
from tests.agents.fakes import PROVIDERS, TOOLS, FakeKinds
from tests.patience import PATIENCE_S


def plain(**fields: Any) -> dict[str, Any]:
    return {"mode": "PLAIN", "plain": {"systemPrompt": "Help."}, **fields}


def calling(key: str) -> dict[str, Any]:
    """A graph whose only node is the subgraph `key`."""
    node = {"graph": key, "with": {"query": "${input.query}"}, "next": "end"}
    return {"graphflow": "1", "start": "ask", "nodes": {"ask": node}}


def delegating(key: str) -> dict[str, Any]:
    """A graph whose only node hands over to the agent `key`."""
    node = {"use": f"agent:{key}", "with": {"query": "${input.query}"}, "next": "end"}
    return {"graphflow": "1", "start": "ask", "nodes": {"ask": node}}


def write(folder: Path, key: str, data: Any) -> Path:
    file = folder / f"{key}.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return file


def registry_of(folder: Path, **options: Any) -> AgentRegistry:
    options.setdefault("tools", lambda: TOOLS)
    return AgentRegistry(folder, kinds=lambda agents: FakeKinds(agents.document), providers=PROVIDERS, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def registry(folder: Path) -> AgentRegistry:
    return registry_of(folder)


# --- loading ----------------------------------------------------------------------------------------------------------


def test_every_json_file_is_an_agent_and_nothing_else_is(folder, registry):
    write(folder, "b", plain())
    write(folder, "a", plain())
    (folder / ".hidden.json").write_text("{")
    (folder / "notes.txt").write_text("no agent")
    (folder / "tools").mkdir()
    (folder / "folder.json").mkdir()
    assert registry.reload().added == ("a", "b")
    assert [agent.key for agent in registry.list()] == ["a", "b"]
    assert registry.invalid() == ()


def test_a_folder_that_does_not_exist_has_no_agents(tmp_path):
    registry = registry_of(tmp_path / "none")
    assert not registry.reload()
    assert registry.list() == ()


def test_a_broken_file_takes_no_other_agent_down(folder, registry):
    write(folder, "good", plain())
    write(folder, "bad", "{")
    registry.reload()
    assert [agent.key for agent in registry.list()] == ["good"]
    [refused] = registry.invalid()
    assert (refused.key, refused.in_service) == ("bad", False)
    assert refused.errors[0].file == str(folder / "bad.json")


def test_the_last_good_version_stays_in_service_until_the_file_is_mended(folder, registry):
    write(folder, "a", plain(name="one"))
    registry.reload()
    write(folder, "a", plain(name="two", providerKey="nope"))
    change = registry.reload()
    assert [refused.in_service for refused in change.invalid] == [True]
    assert registry.get("a").name == "one"
    write(folder, "a", plain(name="three"))
    assert registry.reload() == AgentChanges(changed=("a",), fixed=("a",))
    assert registry.get("a").name == "three"


def test_what_was_handed_out_does_not_change(folder, registry):
    write(folder, "a", plain(name="one"))
    registry.reload()
    held = registry.get("a")
    write(folder, "a", plain(name="two"))
    registry.reload()
    assert (held.name, registry.get("a").name) == ("one", "two")


def test_a_removed_file_removes_its_agent_and_its_errors(folder, registry):
    good, bad = write(folder, "good", plain()), write(folder, "bad", "{")
    registry.reload()
    good.unlink()
    bad.unlink()
    assert registry.reload().removed == ("good",)
    assert (registry.list(), registry.invalid()) == ((), ())


def test_nothing_changed_is_no_change_and_tells_nobody(folder, registry):
    write(folder, "a", plain())
    write(folder, "bad", "{")
    registry.reload()
    heard: list[AgentChanges] = []
    registry.on_change(heard.append)
    assert not registry.reload()
    assert heard == []


def test_a_listener_hears_changes_until_it_leaves(folder, registry):
    heard: list[AgentChanges] = []
    leave = registry.on_change(heard.append)
    write(folder, "a", plain())
    registry.reload()
    leave()
    write(folder, "b", plain())
    registry.reload()
    assert heard == [AgentChanges(added=("a",))]


def test_a_listener_that_fails_keeps_the_news_from_nobody(folder, registry):
    def fail(change: AgentChanges) -> None:
        raise RuntimeError("defect")

    heard: list[AgentChanges] = []
    registry.on_change(fail)
    registry.on_change(heard.append)
    write(folder, "a", plain())
    assert registry.reload() == AgentChanges(added=("a",))
    assert heard == [AgentChanges(added=("a",))]


def test_only_the_files_that_are_asked_for_are_reloaded(folder, registry):
    write(folder, "b", plain())
    assert registry.reload([write(folder, "a", plain())]).added == ("a",)
    assert registry.reload().added == ("b",)


def test_a_recheck_sees_tools_that_came_or_went(folder):
    tools = {"bash"}
    registry = registry_of(folder, tools=lambda: tools)
    write(folder, "a", {"mode": "REACT", "react": {"systemPrompt": "x"}, "tools": ["bash"]})
    registry.reload()
    assert not registry.invalid()
    tools.clear()
    assert not registry.reload()
    assert [refused.key for refused in registry.reload(recheck=True).invalid] == ["a"]


def test_an_unreadable_file_is_reported_with_the_reason(folder, registry, monkeypatch):
    file = write(folder, "a", plain())

    def refuse(path: Path, max_bytes: int) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("graphflow.agents.registry.read_authored", refuse)
    registry.reload()
    [refused] = registry.invalid()
    assert refused.errors[0].render() == f"{file}: can't be read: Permission denied"


# --- looking up -------------------------------------------------------------------------------------------------------


def test_an_unknown_key_names_the_near_one_and_all_that_exist(folder, registry):
    write(folder, "demo_react", plain())
    write(folder, "other", plain())
    registry.reload()
    with pytest.raises(AgentNotFound, match=r"did you mean 'demo_react'\? agents are demo_react, other"):
        registry.get("demo_reakt")


def test_asking_for_a_refused_agent_tells_its_error(folder, registry):
    write(folder, "a", plain(providerKey="nope"))
    registry.reload()
    with pytest.raises(AgentNotFound, match="no provider is named 'nope'"):
        registry.get("a")


# --- files that refer to each other -----------------------------------------------------------------------------------


@pytest.mark.parametrize("refer", [calling, delegating])
def test_agents_may_refer_to_agents_in_any_order_of_files(folder, registry, refer):
    write(folder, "a", refer("z"))
    write(folder, "z", plain())
    registry.reload()
    assert registry.invalid() == ()


@pytest.mark.parametrize("refer", [calling, delegating])
def test_a_reference_to_an_agent_that_does_not_exist_is_an_error(folder, registry, refer):
    write(folder, "a", refer("z"))
    registry.reload()
    [refused] = registry.invalid()
    assert refused.errors[0].pointer.startswith("/nodes/ask/")


@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("inner", "graph 'inner' has errors of its own", "correct that document first"),
        ("inner@7", "graph 'inner' has errors of its own", "correct that document first"),
        ("fine@7", "graph 'fine' has no version '7'", "write 'fine' for its newest version"),
        ("inne", "no graph is named 'inne'", "one of fine, inner, outer"),
    ],
)
def test_a_graph_that_can_not_be_taken_is_reported_with_the_reason(folder, key, message, hint):
    """Of one that is there, but broken, the error said that there is none, and listed it."""
    registry = AgentRegistry(
        folder, kinds=lambda agents: NodeKinds(agents=agents), providers=PROVIDERS, tools=lambda: TOOLS
    )
    write(folder, "inner", plain(temprature=1))
    asking = {"ask": {"message": "Well?"}, "next": "end"}
    write(folder, "fine", {"graphflow": "1", "start": "ask", "nodes": {"ask": asking}})
    write(folder, "outer", calling(key))
    registry.reload()
    (issue,) = next(refused for refused in registry.invalid() if refused.key == "outer").errors
    assert issue.message == message
    assert str(issue.hint).startswith(hint)


@pytest.mark.parametrize("refer", [calling, delegating])
def test_a_reference_mends_when_its_agent_comes(folder, registry, refer):
    write(folder, "a", refer("z"))
    registry.reload()
    write(folder, "z", plain())
    assert registry.reload() == AgentChanges(added=("a", "z"), fixed=("a",))


@pytest.mark.parametrize("refer", [calling, delegating])
def test_a_changed_agent_changes_the_version_of_those_that_refer_to_it(folder, registry, refer):
    write(folder, "a", refer("z"))
    write(folder, "z", plain(name="one"))
    registry.reload()
    write(folder, "z", plain(name="two"))
    assert registry.reload().changed == ("a", "z")


def test_agents_that_contain_each_other_are_refused_both(folder, registry):
    write(folder, "a", calling("b"))
    write(folder, "b", calling("a"))
    write(folder, "good", plain())
    registry.reload()
    assert [refused.key for refused in registry.invalid()] == ["a", "b"]
    assert [agent.key for agent in registry.list()] == ["good"]


def test_a_broken_agent_serves_others_in_its_last_good_version(folder, registry):
    write(folder, "a", calling("z"))
    write(folder, "z", plain())
    registry.reload()
    version = registry.get("a").version
    write(folder, "z", "{")
    registry.reload()
    assert [refused.key for refused in registry.invalid()] == ["z"]
    assert registry.get("a").version == version


def test_a_version_may_be_named_and_must_then_be_there(folder, registry):
    write(folder, "z", {**delegating("plain"), "version": "3"})
    write(folder, "plain", plain())
    registry.reload()
    assert registry.document("z@3") is not None
    assert registry.document(f"z@{registry.get('z').version}") is not None
    assert registry.document("z@4") is None


# --- hot reload -------------------------------------------------------------------------------------------------------


class Heard:
    """What the registry told, one change at a time."""

    def __init__(self, registry: AgentRegistry) -> None:
        self._changes: asyncio.Queue[AgentChanges] = asyncio.Queue()
        registry.on_change(self._changes.put_nowait)

    async def next(self) -> AgentChanges:
        async with asyncio.timeout(PATIENCE_S):
            return await self._changes.get()

    @property
    def nothing(self) -> bool:
        return self._changes.empty()


@asynccontextmanager
async def watching(registry: AgentRegistry) -> AsyncIterator[Heard]:
    heard = Heard(registry)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(registry.watch())
        yield heard
        task.cancel()


async def test_added_changed_and_removed_files_take_effect_while_running(folder, registry):
    registry.reload()
    async with watching(registry) as heard:
        file = write(folder, "a", plain(name="one"))
        assert await heard.next() == AgentChanges(added=("a",))
        file.write_text(json.dumps(plain(name="two")))
        assert await heard.next() == AgentChanges(changed=("a",))
        assert registry.get("a").name == "two"
        file.unlink()
        assert await heard.next() == AgentChanges(removed=("a",))


async def test_a_file_written_by_rename_takes_effect(folder, registry):
    write(folder, "a", plain(name="one"))
    registry.reload()
    async with watching(registry) as heard:
        new = folder / "a.json.tmp"
        new.write_text(json.dumps(plain(name="two")))
        new.replace(folder / "a.json")
        assert await heard.next() == AgentChanges(changed=("a",))


async def test_a_broken_change_is_reported_and_the_last_good_version_serves(folder, registry):
    write(folder, "a", plain(name="one"))
    registry.reload()
    async with watching(registry) as heard:
        write(folder, "a", '{"mode": ')
        [refused] = (await heard.next()).invalid
        assert (refused.key, refused.in_service) == ("a", True)
        assert registry.get("a").name == "one"


async def test_a_folder_that_comes_later_is_seen_by_the_poll(tmp_path):
    folder = tmp_path / "later"
    registry = registry_of(folder, refresh_interval_ms=20)
    async with watching(registry) as heard:
        folder.mkdir()
        write(folder, "a", plain())
        assert await heard.next() == AgentChanges(added=("a",))


class HalfWritten:
    """Stands in for the wait before a second look: the writer finishes during it."""

    def __init__(self, *writes: Any) -> None:
        self.writes = list(writes)
        self.waits = 0

    async def __call__(self, seconds: float) -> None:
        self.waits += 1
        if self.writes:
            self.writes.pop(0)()


async def test_a_file_written_in_two_halves_is_never_reported(folder):
    text = json.dumps(plain())
    second_half = HalfWritten(lambda: write(folder, "a", text))
    registry = registry_of(folder, sleep=second_half)
    heard = Heard(registry)
    write(folder, "a", text[:10])
    await registry.refresh()
    assert await heard.next() == AgentChanges(added=("a",))
    assert heard.nothing
    assert second_half.waits == 1


async def test_an_empty_file_on_the_way_is_never_reported(folder):
    registry = registry_of(folder, sleep=HalfWritten(lambda: None, lambda: write(folder, "a", plain(name="two"))))
    write(folder, "a", plain(name="one"))
    registry.reload()
    heard = Heard(registry)
    write(folder, "a", "")
    await registry.refresh()
    assert await heard.next() == AgentChanges(changed=("a",))
    assert heard.nothing


async def test_a_file_that_vanishes_for_a_moment_is_never_removed(folder):
    registry = registry_of(folder, sleep=HalfWritten(lambda: write(folder, "a", plain(name="two"))))
    file = write(folder, "a", plain(name="one"))
    registry.reload()
    heard = Heard(registry)
    file.unlink()
    await registry.refresh()
    assert await heard.next() == AgentChanges(changed=("a",))
    assert heard.nothing


async def test_a_doubtful_file_does_not_hold_up_the_others(folder):
    seen: list[tuple[str, ...]] = []
    look = HalfWritten()
    agents = registry_of(folder, sleep=look)
    look.writes.append(lambda: seen.append(agents.keys()))
    write(folder, "a", "{")
    write(folder, "b", plain())
    await agents.refresh()
    assert seen == [("b",)]
    assert [refused.key for refused in agents.invalid()] == ["a"]
