"""Migrates a thread to another version: what would change, what prevents it, and the tick (spec 2.4, E17).

`plan_migration` is pure and finds every problem at once; what it found goes into a `Migrated` tick, which the core
applies as one checkpoint. Node names are mapped, states get the keys that are new, open questions are issued anew
(E8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from graphflow.errors import NodeFailed, StateError
from graphflow.graph.core.channels import Channel, Update, initial_update
from graphflow.graph.core.commands import Request, Resolve
from graphflow.graph.core.immutable import ListView, State, freeze, thaw
from graphflow.graph.core.machine import ROOT, Frame, FramePatch, Interrupt, Machine, of_frame
from graphflow.graph.core.plan import Plan, is_known
from graphflow.graph.core.scope import Scope, limits_in
from graphflow.graph.core.ticks import Migrated
from graphflow.graph.core.unit_of_work import UnitOfWork
from graphflow.graph.definition.document import END, FAIL, NODE_FORMS, GraphDefinition, GraphRef, NodeDefinition
from graphflow.graph.definition.regions import bodies_of, survey
from graphflow.messages import MESSAGE_TYPES
from graphflow.suggestions import choose

Facts = Mapping[int, Mapping[str, int]]
"""Frame → what `invariants` must know of the run so far, under keys as in `core/invariants.py`, with the old names."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why the migration is not possible."""

    where: str
    """`node NAME`, `state KEY`, `question ID`, `input`, `map OLD`, with the frame's path before it below the root."""
    message: str
    hint: str | None = None


class FrameMove(msgspec.Struct, frozen=True, kw_only=True):
    """What changes in one frame."""

    node: tuple[str, str]
    """The node it stands on: old name, new name."""
    path: str
    """The frame's new path."""
    fields: dict[str, Any]
    update: Update | None = None
    state: State | None = None
    """The state after the update."""
    added: tuple[str, ...] = ()
    """Keys that begin at their default."""
    dropped: tuple[str, ...] = ()
    """Keys that the new version does not have: their values stay in the state, and no node may write them."""
    rewritten: tuple[str, ...] = ()
    """Lists that are stored as entries from now on."""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration would do with one thread."""

    problems: tuple[Problem, ...]
    frames: dict[int, FrameMove]
    interrupts: dict[str, Interrupt]
    """Id of an open question → the question that is asked in its place, still under the old id."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    """Nodes of the run's own breakpoints that the new version does not have."""


def plan_migration(
    machine: Machine,
    old: Mapping[str, GraphDefinition],
    new: Plan,
    names: Mapping[str, str],
    *,
    at: int,
    facts: Facts | None = None,
) -> Migration:
    """What it would take to go on with this machine under the new plan.

    Args:
        old: the graphs of the version that it was made under, see `graphs_of` of `definition/versions.py`.
        names: old node name → new one; names that stay need not be there.
        at: epoch ms, for expiries that begin now.
    """
    return _Planner(machine, old, new, names, at, facts or {}).planned()


class _Planner:
    def __init__(
        self,
        machine: Machine,
        old: Mapping[str, GraphDefinition],
        new: Plan,
        names: Mapping[str, str],
        at: int,
        facts: Facts,
    ) -> None:
        self._machine, self._old, self._new, self._names = machine, old, new, names
        self._at, self._facts = at, facts
        # Once per graph: thousands of branches may be open, and each asks where its node belongs.
        self._homes = {key: survey(plan.document).home for key, plan in new.graphs.items()}
        self._problems: list[Problem] = []
        self._moves: dict[int, FrameMove] = {}
        self._frames: dict[int, Frame] = {}
        """As they will be; a frame with a problem is missing, and so are those below it."""

    def planned(self) -> Migration:
        self._check_names()
        for frame in self._machine.frames.values():
            self._move(frame)
        interrupts = {}
        for interrupt in self._machine.interrupts.values():
            if interrupt.frame in self._frames and (again := self._ask_again(interrupt)) is not None:
                interrupts[interrupt.id] = again
        self._check_input()
        self._check_kept()
        before, after = self._breakpoints(self._machine.before), self._breakpoints(self._machine.after)
        stops = {*self._machine.before, *self._machine.after} - {"*"}
        return Migration(
            problems=tuple(self._problems),
            frames=self._moves,
            interrupts=interrupts,
            before=before,
            after=after,
            forgotten=tuple(sorted(name for name in stops if not is_known(self._new, self._breakpoint(name)))),
        )

    def _problem(self, frame: Frame | None, what: str, message: str, hint: str | None = None) -> None:
        where = f"{frame.path}: {what}" if frame is not None and frame.path else what
        self._problems.append(Problem(where=where, message=message, hint=hint))

    def _named(self, name: str) -> str:
        return self._names.get(name, name)

    def _check_names(self) -> None:
        known = {name for document in self._old.values() for name in document.nodes}
        offered = {name for plan in self._new.graphs.values() for name in plan.nodes}
        for old, new in self._names.items():
            if old not in known:
                self._problem(None, f"map {old}", f"the old version has no node {old!r}", choose(old, known))
            if new not in offered:
                self._problem(None, f"map {old}", f"the new version has no node {new!r}", choose(new, offered))

    # --- frames

    def _move(self, frame: Frame) -> None:
        parent = self._frames.get(frame.parent)
        if frame.number != ROOT and parent is None:
            return  # reported for a frame above it
        key = "" if parent is None else self._graph_below(frame, parent)
        if key is None:
            return
        plan = self._new.graphs[key]
        node = self._node(frame, plan, parent)
        update, state, added, rewritten = self._state(frame, plan)
        if frame.join is not None:
            self._check_branches(frame, plan)
        if node is None:
            return
        path = self._path(frame, parent)
        fields: dict[str, Any] = {"graph": key, "path": path, "node": node, "visits": self._visits(frame, plan, node)}
        if frame.passed:
            fields["passed"] = self._named(frame.passed)
        if frame.operations and not self._keeps_operations(frame, plan, node):
            fields["operations"] = {}
        if self._old[frame.graph].approval != plan.document.approval and self._asks_people(frame):
            about = "people were asked about its calls under another `approval`, which may take fewer of them"
            self._problem(frame, f"node {frame.node}", about, "let the node finish first, or rewind to before it")
        changed = {name: value for name, value in fields.items() if value != getattr(frame, name)}
        self._moves[frame.number] = FrameMove(
            node=(frame.node, node),
            path=path,
            fields=changed,
            update=update,
            state=state,
            added=added,
            dropped=tuple(name for name in frame.state if name not in plan.schema.channels),
            rewritten=rewritten,
        )
        moved = msgspec.structs.replace(frame, **changed)
        self._frames[frame.number] = moved if state is None else msgspec.structs.replace(moved, state=state)

    def _graph_below(self, frame: Frame, parent: Frame) -> str | None:
        """The graph that a frame below another one runs from now on."""
        before = self._machine.frames[frame.parent]
        node = self._new.graphs[parent.graph].nodes[parent.node]
        if node.fan is None or frame.branch is None:
            return node.graph
        old = self._old[before.graph].nodes[before.node]
        new = self._new.graphs[parent.graph].document.nodes[parent.node]
        if _bodies(old) != _bodies(new) or old.as_ != new.as_:
            self._problem(
                frame,
                f"node {before.node}",
                f"the branches of {before.node!r} are open, and the new version opens others",
                "let them end first, or keep `do`, the branches and `as`",
            )
            return None
        return node.fan.body(frame.branch.index).graph or parent.graph

    def _check_branches(self, frame: Frame, plan: Plan) -> None:
        """Open branches have begun with the keys that there were, and their join reduces what they wrote to them."""
        channels = plan.schema.channels
        rewritten = {
            name for name in channels if name in frame.state and becomes_log(channels[name], frame.state[name])
        }
        changed = sorted(set(frame.state) ^ set(channels) | rewritten)
        if changed:
            self._problem(
                frame,
                f"node {frame.node}",
                f"the branches of {frame.node!r} are open, and the new version has other state keys: {', '.join(changed)}",
                "let them end first",
            )

    def _node(self, frame: Frame, plan: Plan, parent: Frame | None) -> str | None:
        """The node that the frame stands on from now on."""
        if frame.node in ("", END, FAIL):
            return frame.node
        node = self._named(frame.node)
        if node not in plan.nodes:
            hint = choose(node, plan.nodes)
            self._problem(
                frame,
                f"node {frame.node}",
                f"the thread stands on {frame.node!r}, and the new version has no node {node!r}",
                f"give --map {frame.node}=NODE; {hint}",
            )
            return None
        old, new = self._old[frame.graph].nodes[frame.node], plan.document.nodes[node]
        # A node with open branches or questions must keep its kind: they belong to it.
        fixed = frame.status == "open" or (frame.status == "waiting" and self._asks_inside(frame))
        if fixed and (_form(old) != _form(new) or (_form(old) == "use" and old.use != new.use)):
            self._problem(
                frame,
                f"node {frame.node}",
                f"the thread is inside {frame.node!r} ({_what(old)}), and the new version's {node!r} is {_what(new)}",
                "answer or cancel it first, or map it to a node of the same kind",
            )
            return None
        region = self._homes[plan.key].get(node)
        place = None if parent is None or parent.graph != plan.key else (parent.node, _branch_name(frame, parent, plan))
        if place != (None if region is None else (region.fan, region.branch)):
            self._problem(
                frame,
                f"node {frame.node}",
                f"the new version's {node!r} runs "
                + (f"in the branches of {region.fan!r}" if region else "outside any branch"),
                "map it to a node of the same region",
            )
            return None
        return node

    def _asks_inside(self, frame: Frame) -> bool:
        return any(asked.kind != "breakpoint" for asked in of_frame(self._machine.interrupts, frame.number))

    def _asks_people(self, frame: Frame) -> bool:
        kinds = {asked.kind for asked in of_frame(self._machine.interrupts, frame.number)}
        return "approval" in kinds or any(key.startswith("approval:") for key in frame.operations)

    def _keeps_operations(self, frame: Frame, plan: Plan, node: str) -> bool:
        """Recorded operations stay with a node that is still the same; a write's record must not be lost."""
        old, new = self._old[frame.graph].nodes[frame.node], plan.document.nodes.get(node)
        if new is not None and _form(old) == _form(new) and old.use == new.use:
            return True
        written = [key for key, operation in frame.operations.items() if operation.effects == "write"]
        if written:
            self._problem(
                frame,
                f"node {frame.node}",
                f"{frame.node!r} has recorded write effects ({', '.join(written)}), which {node!r} would not know of",
                "let the node finish first, or map it to a node of the same kind",
            )
        return False

    def _path(self, frame: Frame, parent: Frame | None) -> str:
        if parent is None:
            return frame.path
        own = frame.path.rpartition("/")[2]
        place = own[own.index("#") :] if "#" in own else ""
        return f"{parent.path}/{parent.node}{place}" if parent.path else f"{parent.node}{place}"

    def _visits(self, frame: Frame, plan: Plan, node: str) -> dict[str, int]:
        out: dict[str, int] = {}
        for key, count in {**frame.visits, **self._facts.get(frame.number, {})}.items():
            *words, name = key.split(" ")
            if len(words) == 2:  # `joined fan#1[a] Y`
                fan, mark, rest = words[1].partition("#")
                words[1] = f"{self._named(fan)}{mark}{rest}"
            name = self._named(name)
            if name in plan.nodes and (words or plan.nodes[name].counted):
                # Several old nodes may map to one: its entries are the sum, because `at most N` counts all of them.
                kept = " ".join((*words, name))
                out[kept] = max(out.get(kept, 0), count) if words[:1] != ["entered"] else out.get(kept, 0) + count
        if node in plan.nodes and plan.nodes[node].counted:
            out[node] = max(out.get(node, 0), frame.visit)
        return out

    # --- state

    def _state(self, frame: Frame, plan: Plan) -> tuple[Update | None, State | None, tuple[str, ...], tuple[str, ...]]:
        """The update that gives the frame the new version's keys, and the state after it."""
        state, schema = frame.state, plan.schema
        rewritten = []
        for name, channel in schema.channels.items():
            if name not in state:
                continue
            if (why := misfit(channel, state[name])) is not None:
                self._problem(frame, f"state {name}", why, "edit the thread first, or change the key's schema")
            elif becomes_log(channel, state[name]):
                rewritten.append(name)
        # No run keys: a migration starts no run, so they keep their values.
        update = initial_update(schema, state, ())
        added = (*update.sets, *update.logs)
        changes: dict[str, Any] = dict(update.sets)
        for name, entries in update.logs.items():
            changes[name] = ListView([]).changed(entries)
        for name in rewritten:
            items = list(state[name] or ())
            update.logs[name] = [("*", items)]
            changes[name] = ListView(list(items), ordinals=1)
        if not changes:
            return None, None, (), ()
        return update, state.evolve(changes), tuple(added), tuple(rewritten)

    def _check_input(self) -> None:
        """Checks the input of an unfinished run: its nodes go on reading it under the new version."""
        root = self._machine.frames.get(ROOT)
        if root is None or self._machine.status == "idle":
            return
        for issue in self._new.input_checker.errors(thaw(root.input)):
            where = f"input{issue.pointer}"
            self._problem(None, where, f"the run's input does not fit: {issue.message}", "begin a new run instead")

    # --- questions

    def _ask_again(self, interrupt: Interrupt) -> Interrupt | None:
        """The question under the new version; an `ask` node's question takes its schema and text from the new node."""
        frame = self._frames[interrupt.frame]
        plan = self._new.graphs[frame.graph]
        again = msgspec.structs.replace(interrupt, node=self._named(interrupt.node), path=frame.path)
        if interrupt.kind == "breakpoint":
            return msgspec.structs.replace(again, payload=freeze({**interrupt.payload, "next": frame.node}))
        if interrupt.on_expire is not None:
            again = msgspec.structs.replace(again, on_expire=self._named(interrupt.on_expire))
        question = plan.nodes[frame.node].question if frame.node in plan.nodes else None
        if interrupt.key or question is None:
            return again
        scope = Scope(frame, limits_in(plan, frame, self._machine.limits), self._machine.usage, {})
        payload: dict[str, Any] = {}
        try:
            payload["message"] = question.message.evaluate(scope)
            if question.show is not None:
                payload["show"] = question.show.evaluate(scope)
        except NodeFailed as failure:
            self._problem(frame, f"question {interrupt.id}", f"it can't be asked anew: {failure.message}")
            return None
        expires = None
        if question.expires_ms is not None:
            # A running deadline stays: a migration must not give the person more or less time.
            expires = interrupt.expires_at if interrupt.expires_at is not None else self._at + question.expires_ms
        return msgspec.structs.replace(
            again,
            schema=freeze(question.schema),
            payload=freeze(payload),
            owner=question.owner,
            role=question.role,
            hold_ms=question.hold_ms,
            expires_at=expires,
            on_expire=question.on_expire,
        )

    def _breakpoints(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in map(self._breakpoint, names) if is_known(self._new, name))

    def _breakpoint(self, name: str) -> str:
        """The breakpoint by the new names of its nodes."""
        return re.sub(r"[^/#\[\]]+(?=[/#\[]|$)", lambda found: self._named(found[0]), name)

    def _check_kept(self) -> None:
        """No frame may stand on a node that an invariant forbids it to be on."""
        machine = msgspec.structs.replace(self._machine, frames=dict(self._frames))
        work = UnitOfWork(self._new, machine, Migrated(id="", at=self._at, run_id=""))
        for number, frame in self._frames.items():
            kept = self._new.graphs[frame.graph].monitor
            if kept is not None and frame.node not in ("", END) and (error := kept.breach(work, number)) is not None:
                self._problem(frame, f"node {frame.node}", error["message"], "rewind the thread before it is migrated")


def _form(node: NodeDefinition) -> str:
    return next(form for form in NODE_FORMS if getattr(node, form) is not None)


def _what(node: NodeDefinition) -> str:
    form = _form(node)
    return f"a node with use {node.use!r}" if form == "use" else f"a node with {form!r}"


def _bodies(node: NodeDefinition) -> list[tuple[str, bool]]:
    """A fan's branches, and whether each is a subgraph."""
    return [(body.branch, isinstance(body.do, GraphRef)) for body in bodies_of("", node)]


def _branch_name(frame: Frame, parent: Frame, plan: Plan) -> str:
    """The name by which the document knows the frame's branch; `""` in a map."""
    fan = plan.nodes[parent.node].fan
    return "" if fan is None or frame.branch is None else fan.body(frame.branch.index).name


# --- the tick ------------------------------------------------------------------------------------


def on_migrated(work: UnitOfWork, tick: Migrated) -> None:
    """Moves the thread to the new version at the same place; nothing runs until it is resumed or answered."""
    migration: Migration = tick.migration
    work.source, work.facts = "migrate", tick.facts
    work.go_on_as(tick.run_id)
    work.fields["document"] = work.plan.digest
    work.fields.pop("active_ms", None)
    for name in ("before", "after"):
        if getattr(migration, name) != getattr(work.before, name):
            work.fields[name] = getattr(migration, name)
    for number, move in migration.frames.items():
        if number == ROOT:
            work.node = move.node[1]
        if move.fields:
            work.change(number, move.fields)
        if move.update is not None:
            # The plan has applied the update already, and append logs grow in place: it must not be applied twice.
            work.table[number] = msgspec.structs.replace(work.table[number], state=move.state)
            work.remember(number, FramePatch({}, move.update))
    for old, question in migration.interrupts.items():
        again = msgspec.structs.replace(
            question,
            id=work.new_interrupt_id(),
            run_id=tick.run_id,
            reissue_of=old,
            opened_at=tick.at,
            node_run_id=question.node_run_id if tick.run_id == work.before.run_id else "",
        )
        work.put_interrupt(old, None)
        work.put_interrupt(again.id, again)
        work.commands += [Resolve(work.before.interrupts[old], "reissued"), Request(again)]
    if work.before.status not in ("idle", "waiting"):
        work.fields |= {"status": "stopped", "error": None}


# --- whether stored values fit the state schema of another version (E23)


def misfit(channel: Channel, value: Any) -> str | None:
    """Why a stored value can't become the value of this key; None if it fits as it is.

    A key with reducer `append`, `messages` or `union` is stored as a log of entries, any other as one value. A version
    that changes a log into a value can't read it.
    """
    try:
        channel.check(value, "stored value")
    except StateError as error:
        return error.message
    if isinstance(value, ListView) and not channel.is_log:
        return (
            f"state key {channel.key!r} is stored as a list that grows, and this version replaces it as a whole "
            f"(x-reducer {channel.reduce!r}); keep x-reducer, or use another key"
        )
    if channel.reduce == "messages" and not all(isinstance(item, MESSAGE_TYPES) for item in value):
        return f"state key {channel.key!r} takes messages, and the stored list holds something else"
    return None


def becomes_log(channel: Channel, value: Any) -> bool:
    """Whether a stored list must be written anew as entries, which only a migration does."""
    return channel.is_log and not isinstance(value, ListView)
