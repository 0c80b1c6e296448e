"""What evaluates a syntax tree.

Paths are read by reference, and only what CEL itself must read is converted: `state.draft`, `[out.message]`, `{'text': out.text}` and
choices between these never reach CEL. Conditions and sums of paths and literals are answered in place (`native_eval.py`), and so are
comprehensions, item by item (`loops.py`). The library gets the rest, with what it reads as variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from graphflow.errors import LimitExceeded
from graphflow.excerpts import excerpt_of
from graphflow.graph.expressions import cel_library, parser
from graphflow.graph.expressions.ast import Choice, Constant, Index, ListOf, Loop, MapOf, Node, Outline, Path
from graphflow.graph.expressions.diagnostics import reworded_run
from graphflow.graph.expressions.doubles import SchemaPlace
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.finite import checked_finite, may_be_double
from graphflow.graph.expressions.growth import MOST_COPIED, Growth, items_in, key_of
from graphflow.graph.expressions.loops import COMPUTED, Items, budgeted, computed, is_taken, items_of, through
from graphflow.graph.expressions.native_calls import BUDGET
from graphflow.graph.expressions.native_eval import decided
from graphflow.graph.expressions.paths import Missing, Read, reader, show_path
from graphflow.graph.expressions.rewriting import rewrite

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]
Ref = tuple[str, ...]


def evaluator(outline: Outline, environment: Environment) -> Evaluate:
    """The function that evaluates the whole expression."""
    evaluate = compose(outline, outline.root, environment, whole=True)
    return budgeted(evaluate, outline.text, environment.bounds) if outline.loops else evaluate


def references(outline: Outline) -> Iterable[Ref]:
    """What an expression reads, as dotted paths."""
    seen: dict[Ref, None] = {}
    for path in outline.paths:
        seen.setdefault(path.names)
        for step in path.steps:
            if isinstance(step, Index):
                seen.update(dict.fromkeys(references(step.outline)))
    return seen


def compose(outline: Outline, node: Node, environment: Environment, *, whole: bool = False) -> Evaluate:
    """The function that evaluates the node: by reference if its form allows that, otherwise by CEL.

    Args:
        whole: its value is one that the expression gives, or a part of it, and not one that it computes with.
    """
    match node:
        case Constant(value=value):
            return lambda scope: value
        case Path():
            return path_reader(node, environment)
        case ListOf(items=items):
            parts = [compose(outline, item, environment, whole=whole) for item in items]
            # `[out.message]` is how nearly every log is written: no loop for its one item.
            if len(parts) == 1:
                only = parts[0]
                return lambda scope: [only(scope)]
            return lambda scope: [part(scope) for part in parts]
        case MapOf(entries=entries):
            values = [(key, compose(outline, item, environment, whole=whole)) for key, item in entries]
            return lambda scope: {key: part(scope) for key, part in values}
        case Choice():
            return _choice(outline, node, environment, whole)
    return _made(outline, node, environment, whole)


def _made(outline: Outline, node: Node, environment: Environment, whole: bool) -> Evaluate:
    """What computes a value."""
    if isinstance(node, Loop) and is_taken(node, outline.text):
        evaluate = _loop(outline, node, environment)
    else:
        converted = _converted(outline, node, environment)
        evaluate = decided(node, environment, path_reader, converted) or converted
    if not whole or not may_be_double(node, environment):
        return evaluate

    def finite(scope: Scope) -> Any:
        value = evaluate(scope)
        return value if type(value) in _FINITE else checked_finite(value)

    return finite


_FINITE = frozenset({bool, int, str, type(None)})


def _choice(outline: Outline, node: Choice, environment: Environment, whole: bool) -> Evaluate:
    condition = compose(outline, node.condition, environment)
    then, other = (compose(outline, part, environment, whole=whole) for part in (node.then, node.other))

    def evaluate(scope: Scope) -> Any:
        # No truthiness, as in CEL: a condition that is not a boolean is an error and never a branch (E16).
        chosen = condition(scope)
        if chosen is True:
            return then(scope)
        if chosen is False:
            return other(scope)
        raise cel_library.CelError(f"the condition before '?' is {excerpt_of(chosen, 60)}, not true or false")

    return evaluate


def _loop(outline: Outline, loop: Loop, environment: Environment) -> Evaluate:
    listed = outline.text[loop.target.start : loop.target.end]
    # Its items are plain and their numbers as the schemas say when they get here.
    within = msgspec.structs.replace(
        environment,
        names=environment.names | {loop.variable},
        items={**environment.items, loop.variable: environment.places.anything},
        bound={**environment.bound, loop.variable: listed},
    )
    bodies = []
    for start, end in loop.bodies:
        body = parser.parse_part(outline.text, start, end)
        bodies.append(compose(body, body.root, within))
    return through(loop, _items(outline, loop, environment), bodies)


def _items(outline: Outline, loop: Loop, environment: Environment) -> Callable[[Scope], Items]:
    """What reads the items of a comprehension; once, if they are the same in each step of those around it."""
    target, macro = loop.target, loop.macro
    if isinstance(target, Path) and not target.test:
        read, convert = path_reader(target, environment), _converting(target, environment)
        if convert is None:
            read, convert = _doubling(target, read, environment), _as_it_is
    else:
        taken = isinstance(target, Loop) and is_taken(target, outline.text)
        # By the library even where a reference would do: what is gone through is plain.
        read = compose(outline, target, environment) if taken else Converted(outline, target, environment).of_loop
        convert = _as_it_is

    def items(scope: Scope) -> Items:
        return items_of(read(scope), macro, convert)

    part = parser.parse_part(outline.text, target.start, target.end)
    if not environment.bound or any(name in environment.bound for name, *_ in references(part)):
        return items
    key = object()

    def kept(scope: Scope) -> Items:
        lists = scope[BUDGET].kept
        found: Items | None = lists.get(key)
        if found is None:
            found = lists[key] = items(scope)
        return found

    return kept


def _converted(outline: Outline, node: Node, environment: Environment) -> Evaluate:
    return Converted(outline, node, environment).evaluate


def _as_it_is(value: Any, _: int) -> Any:
    return value


def _converting(path: Path, environment: Environment) -> Callable[[Any, int], Any] | None:
    """What makes an item of the list at the path plain, with doubles where schemas say `number`; None if only a run knows where."""
    places, place = environment.places, environment.place(path)
    if not places.tells(place):
        return lambda value, _: cel_library.to_plain(value)
    if any(isinstance(step, Index) for step in path.steps):
        return None
    return lambda value, index: places.doubled(cel_library.to_plain(value), places.below(place, index))


def path_reader(path: Path, environment: Environment) -> Read:
    return reader(path, _nested(environment))


def _nested(environment: Environment) -> Callable[[Index], Evaluate]:
    return lambda index: compose(index.outline, index.outline.root, environment)


class Converted:
    """A span of the expression that CEL evaluates; compiled by its first evaluation."""

    __slots__ = (
        "_copies", "_environment", "_growth", "_keys", "_made", "_outline", "_paths", "_program", "_reads", "_text", "_width"
    )  # fmt: skip

    def __init__(self, outline: Outline, node: Node, environment: Environment) -> None:
        span, loops = computed(outline, node.start, node.end)
        rewritten = rewrite(span, node.start, node.end, environment.variable_type)
        self._outline = span
        self._growth = Growth(span, node, environment.bounds.value_bytes)
        self._text, self._width, self._environment = rewritten.text, rewritten.width, environment
        self._made = {
            name: compose(outline, loops[path], environment) for name, _, path in rewritten.variables if path in loops
        }
        self._reads = tuple(
            (name, _plain(self._made[name]) if path in loops else _loader(path, kind, environment))
            for name, kind, path in rewritten.variables
        )
        self._copies = any(loop.macro in ("map", "filter") for loop in span.loops)
        self._paths = {name: path for name, _, path in rewritten.variables}
        self._keys = {name: key_of(path) for name, path in self._paths.items()}
        self._program: cel_library.Program | None = None

    def evaluate(self, scope: Scope) -> Any:
        """The span's value; a path that is missing fails only if CEL needs it."""
        data: dict[str, Any] = {}
        missing: list[Exception] = []
        literals: dict[str, str] = {}
        for name, read in self._reads:
            try:
                data[name] = read(scope)
            except (Missing, cel_library.CelError, LimitExceeded) as error:
                # CEL may not need it: `has_error || out.text == 1` is true without `out`.
                missing.append(error)
            except cel_library.Unconvertible as error:
                missing.append(cel_library.Unconvertible(f"{self._shown(self._paths[name])}: {error}"))
            except cel_library.NullCharacter:
                again = self._made.get(name) or path_reader(self._paths[name], self._environment)
                literals[name] = cel_library.literal(cel_library.to_plain(again(scope)))
        self._check(scope, {**data, **literals}, len(literals))
        program = self._program
        try:
            if literals:
                # Not kept: the literals are part of this program, and the next evaluation may have others.
                program = cel_library.compile_with_literals(self._text, self._width, literals)
            elif program is None:
                program = self._program = cel_library.compile_program(self._text, self._width)
            return self._growth.check_made(program.run(data))
        except cel_library.CelError as error:
            if missing:
                # CEL needed the missing value after all; its own error would only name the rewritten variable.
                raise missing[0] from None
            told = reworded_run(str(error), self._outline)
            raise cel_library.CelError(_VARIABLE.sub(self._named, told)) from None

    def of_loop(self, scope: Scope) -> Any:
        """The list of a comprehension; one that is too long to be gone through is refused before any of it is converted."""
        for name, path in self._paths.items():
            if name not in self._made:
                try:
                    given = path_reader(path, self._environment)(scope)
                except (Missing, cel_library.CelError):  # `evaluate` tells what is missing, if it is needed
                    continue
                scope[BUDGET].check_conversion(given)
        return self.evaluate(scope)

    def _check(self, scope: Scope, data: Mapping[str, Any], literals: int) -> None:
        """Refuses what would make or take too much."""
        size = self._growth.check({self._keys[name]: value for name, value in data.items()})
        if self._environment.bound:
            scope[BUDGET].spend_conversion(data, size, literals)
        if self._copies and (items := sum(map(items_in, data.values()))) > MOST_COPIED:
            raise cel_library.CelError(
                f"map() that makes unsigned integers, timestamps, durations or types goes through at most {MOST_COPIED:,} items"
                f" and lists of items, and there are {items:,}; make text or numbers of them, or compute it in a Python node"
            )

    def _shown(self, path: Path) -> str:
        if path.variable == COMPUTED:
            return str(path.steps[0])
        listed = self._environment.bound.get(path.variable)
        return show_path(path.variable, path.steps) + (f", of {listed}" if listed else "")

    def _named(self, match: re.Match[str]) -> str:
        """The path behind a variable that the library names."""
        path = self._paths.get(match[1])
        return repr(match[1] if path is None else self._shown(path))


_VARIABLE = re.compile(r"'([difsblm]\d+)'")


def _plain(evaluate: Evaluate) -> Evaluate:
    return lambda scope: cel_library.to_cel(evaluate(scope))


def _loader(path: Path, kind: str, environment: Environment) -> Read:
    read = path_reader(path, environment)
    # `has` and `size` give a boolean and an integer, which need no conversion.
    if path.test:
        return read
    if kind in ("dyn", "list", "map") and environment.places.tells(environment.place(path)):
        read, convert = _doubling(path, read, environment), cel_library.to_cel
    else:
        convert = cel_library.to_double if environment.is_number(path) else cel_library.to_cel
    if kind == "dyn":
        return lambda scope: convert(read(scope))

    def load(scope: Scope) -> Any:
        value = read(scope)
        if value is None:
            raise Missing(
                f"{show_path(path.variable, path.steps)} is null: nothing has written it, and it has no default"
            )
        return convert(value)

    return load


def _doubling(path: Path, read: Read, environment: Environment) -> Read:
    """Reads the value with doubles for the whole numbers at and below it that a schema calls `number`."""
    places, fixed = environment.places, environment.place(path)

    def place(scope: Scope) -> SchemaPlace:
        steps = tuple(step(scope) if callable(step) else step for step in parts)
        return environment.place(path, steps)

    parts = [_nested(environment)(step) if isinstance(step, Index) else step for step in path.steps]
    known = not any(map(callable, parts))

    def load(scope: Scope) -> Any:
        # Plain first: what the state and Python nodes give has classes of its own.
        value = cel_library.to_plain(read(scope))
        return places.doubled(value, fixed if known else place(scope))

    return load
