"""One expression, compiled.

Paths are read by reference, and only what CEL itself must read is converted: `state.draft`,
`[out.message]`, `{'text': out.text}` and choices between these never reach CEL; `size(path)` and
`has(path)` are answered in place, and so are plain conditions of paths and literals
(`native_eval.py`). Documents that were validated before compile without CEL; it is
imported by the first evaluation that needs it (E20).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from graphflow.errors import DefinitionError, ExpressionFailed, Issue
from graphflow.excerpts import excerpt_of
from graphflow.graph.expressions import cel_library, parser
from graphflow.graph.expressions.ast import Choice, Constant, Index, ListOf, MapOf, Node, Outline, Path
from graphflow.graph.expressions.diagnostics import (
    TRUE_OR_FALSE,
    literal_patterns,
    reworded,
    reworded_run,
    unknown_functions,
)
from graphflow.graph.expressions.doubles import SchemaPlace
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.foreign_words import comments, compared, in_cel, sign_hint
from graphflow.graph.expressions.growth import Growth, key_of
from graphflow.graph.expressions.native_eval import decided
from graphflow.graph.expressions.numbers import mixed_arithmetic
from graphflow.graph.expressions.parser import ExpressionSyntaxError
from graphflow.graph.expressions.paths import Missing, Read, reader, show_path

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]
Ref = tuple[str, ...]


class Expression:
    """A compiled expression; immutable and free of any run's data."""

    __slots__ = ("_evaluate", "is_constant", "refs", "source", "type")

    def __init__(
        self, source: str, refs: tuple[Ref, ...], type: str, evaluate: Evaluate, *, is_constant: bool = False
    ) -> None:
        self.source = source
        self.is_constant = is_constant
        """Whether it is just a literal."""
        self.refs = refs
        """What it reads, as dotted paths: `("state", "score")`, `("limits", "rounds")`."""
        self.type = type
        """`bool int double string list map null …`; `dyn` if the type is only known at run time."""
        self._evaluate = evaluate

    def evaluate(self, scope: Scope) -> Any:
        """The value; a bare path gives the very object that the scope holds.

        Args:
            scope: variable → value (`state`, `out`, …); variables that it does not name may be absent.

        Raises:
            ExpressionFailed: a missing field, a failed operation, or a value that CEL can't hold.
        """
        try:
            return self._evaluate(scope)
        except (Missing, cel_library.CelError, cel_library.Unconvertible) as error:
            raise ExpressionFailed(self.explain(error), expression=self.source) from None

    def explain(self, error: BaseException) -> str:
        """What went wrong, for people: the expression and the reason."""
        if isinstance(error, ExpressionFailed):
            return error.message
        return f"expression {self.source!r} failed: {error}"

    def __repr__(self) -> str:
        return f"Expression({self.source!r}: {self.type})"


def compile_expression(source: str, environment: Environment, *, check: bool = True) -> Expression:
    """The expression, its references and (with `check`) its type.

    Args:
        source: CEL.
        environment: what may be named where it stands.
        check: look every name up and let CEL check the types; `False` for documents that were
            checked before, and then `type` is `dyn` where only CEL could tell.

    Raises:
        DefinitionError: with all errors of the expression; their pointers are `""`.
    """
    if not isinstance(source, str):
        raise DefinitionError(
            [Issue(pointer="", message=f"an expression is text, not {excerpt_of(source, 60)}", kind="type")]
        )
    try:
        outline = parser.parse(source)
    except ExpressionSyntaxError as error:
        told = _foreign(source, environment) or _divided(source, environment)
        hint = error.hint or sign_hint(source, error.at)
        raise DefinitionError([told or _issue(source, error.message, error.at, hint, "syntax")]) from None
    try:
        kind = _check(outline, environment) if check else _known_type(outline.root, environment)
    except DefinitionError:
        if (foreign := _foreign(source, environment) or _divided(source, environment)) is None:
            raise
        raise DefinitionError([foreign]) from None  # the others only follow from it
    if check and (divided := _divided(source, environment)) is not None:
        raise DefinitionError([divided])
    evaluate = _compose(outline, outline.root, environment)
    return Expression(source, tuple(_refs(outline)), kind, evaluate, is_constant=isinstance(outline.root, Constant))


def _foreign(source: str, environment: Environment) -> Issue | None:
    """The error of a text with words of another language; its hint was tried."""
    found = in_cel(source)
    if found is None:
        return None
    word, at, text = found
    hint: str | None = f"write {text!r}"
    try:
        compile_expression(text, environment)
    except DefinitionError as error:
        more = error.errors[0]
        tried = more.hint is not None and more.hint.startswith("write ")
        hint = more.hint if tried else more.hint and f"in CEL it is {text!r}, and there: {more.hint}"
    return _issue(
        source, f"{word!r} is not {'a word of expressions' if word.isalpha() else 'an operator'}", at, hint, "syntax"
    )


def _divided(source: str, environment: Environment) -> Issue | None:
    """The error of a text with `//` for a division: in CEL it begins a comment, and all that follows would be lost.

    What follows may be words about the expression. A comment that would itself be a part of it is none.
    """
    places = comments(source)
    begun = [at for at, before in zip(places, [-1, *places], strict=False) if before < 0 or "\n" in source[before:at]]
    for some in [places, *([at] for at in begun[:_MOST_COMMENTS])] if places else ():
        text = source
        for at in reversed(some):
            text = text[:at] + text[at + 1 :]
        try:
            _check(parser.parse(text), environment)
        except ExpressionSyntaxError:
            continue
        except DefinitionError as error:
            if any(issue.kind != "type" for issue in error.errors):
                continue
            more = error.errors[0].hint
            hint = more and f"in CEL it is {text!r}, and there: {more}"
        else:
            hint = f"write {text!r}"
        return _issue(source, "'//' begins a comment, so what follows it is not read", some[0], hint, "syntax")
    return None


_MOST_COMMENTS = 8
"""Lines of one expression in which a division is looked for alone."""


def _issue(source: str, message: str, at: int, hint: str | None = None, kind: str = "type") -> Issue:
    shown = source if len(source) <= 80 else source[:79] + "…"
    where = f", character {at + 1}" if at > 0 else ""
    return Issue(pointer="", message=f"expression {shown!r}{where}: {message}", hint=hint, kind=kind)


def _refs(outline: Outline) -> Iterable[Ref]:
    seen: dict[Ref, None] = {}
    for path in outline.paths:
        seen.setdefault(path.names)
        for step in path.steps:
            if isinstance(step, Index):
                seen.update(dict.fromkeys(_refs(step.outline)))
    return seen


# --- what is evaluated ----------------------------------------------------------------------------


def _compose(outline: Outline, node: Node, environment: Environment) -> Evaluate:
    """The function that evaluates the node: by reference if its form allows that, otherwise by CEL."""
    match node:
        case Constant(value=value):
            return lambda scope: value
        case Path():
            return _reader(node, environment)
        case ListOf(items=items):
            parts = [_compose(outline, item, environment) for item in items]
            # `[out.message]` is how nearly every log is written: no loop for its one item.
            if len(parts) == 1:
                only = parts[0]
                return lambda scope: [only(scope)]
            return lambda scope: [part(scope) for part in parts]
        case MapOf(entries=entries):
            values = [(key, _compose(outline, item, environment)) for key, item in entries]
            return lambda scope: {key: part(scope) for key, part in values}
        case Choice():
            return _choice(outline, node, environment)
    converted = _Converted(outline, node, environment).evaluate
    return decided(node, environment, _reader, converted) or converted


def _choice(outline: Outline, node: Choice, environment: Environment) -> Evaluate:
    condition, then, other = (_compose(outline, part, environment) for part in (node.condition, node.then, node.other))

    def evaluate(scope: Scope) -> Any:
        # No truthiness, as in CEL: a condition that is not a boolean is an error and never a branch (E16).
        chosen = condition(scope)
        if chosen is True:
            return then(scope)
        if chosen is False:
            return other(scope)
        raise cel_library.CelError(f"the condition before '?' is {excerpt_of(chosen, 60)}, not true or false")

    return evaluate


def _reader(path: Path, environment: Environment) -> Read:
    return reader(path, _nested(environment))


def _nested(environment: Environment) -> Callable[[Index], Evaluate]:
    return lambda index: _compose(index.outline, index.outline.root, environment)


class _Converted:
    """A span of the expression that CEL evaluates; compiled by its first evaluation."""

    __slots__ = ("_environment", "_growth", "_keys", "_outline", "_paths", "_program", "_reads", "_text", "_width")

    def __init__(self, outline: Outline, node: Node, environment: Environment) -> None:
        rewritten = rewrite(outline, node.start, node.end, environment.variable_type)
        self._outline = outline
        self._growth = Growth(outline, node, environment.bounds.value_bytes)
        self._text, self._width, self._environment = rewritten.text, rewritten.width, environment
        self._reads = tuple((name, _loader(path, kind, environment)) for name, kind, path in rewritten.variables)
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
            except Missing as error:
                # CEL may not need it: `has_error || out.text == 1` is true without `out`.
                missing.append(error)
            except cel_library.Unconvertible as error:
                path = self._paths[name]
                missing.append(cel_library.Unconvertible(f"{show_path(path.variable, path.steps)}: {error}"))
            except cel_library.NullCharacter:
                literals[name] = cel_library.literal(
                    cel_library.to_plain(_reader(self._paths[name], self._environment)(scope))
                )
        self._growth.check({self._keys[name]: value for name, value in (*data.items(), *literals.items())})
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

    def _named(self, match: re.Match[str]) -> str:
        """The path behind a variable that the library names."""
        path = self._paths.get(match[1])
        return repr(match[1] if path is None else show_path(path.variable, path.steps))


_VARIABLE = re.compile(r"'([difsblm]\d+)'")


def _loader(path: Path, kind: str, environment: Environment) -> Read:
    read = _reader(path, environment)
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


class Rewritten:
    """An expression with its paths replaced by typed variables, and the way back for columns."""

    def __init__(self, text: str, variables: list[tuple[str, str, Path]], places: list[tuple[int, int]]) -> None:
        self.text = text
        self.variables = variables
        """Name, CEL type and path of each."""
        self._places = places
        self.width = max((int(name[1:]) + 1 for name, _, _ in variables), default=0)

    def offset(self, line: int, column: int) -> int:
        """Offset in the expression of a place in the rewritten text (both 1-based)."""
        lines = self.text.split("\n")
        at = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
        inside, outside = max((place for place in self._places if place[0] <= at), default=(0, 0))
        return outside + (at - inside)


def rewrite(outline: Outline, start: int, end: int, type_of: Callable[[Path], str]) -> Rewritten:
    """The span with each path as a variable named by its type: `state.score > 1.0` → `f0 > 1.0`."""
    out: list[str] = []
    places = [(0, start)]
    names: dict[tuple[Any, ...], str] = {}
    counts: dict[str, int] = {}
    variables: list[tuple[str, str, Path]] = []
    at, length = start, 0
    for path in outline.paths:
        # Paths of other parts of the expression, such as the branches of a choice that are read by reference.
        if not start <= path.start < end:
            continue
        kind = type_of(path)
        # The same path twice is one variable: it is read and converted once.
        same = (path.variable, path.steps, path.test, kind)
        name = names.get(same)
        if name is None:
            letter = cel_library.VARIABLE_LETTERS[kind.removesuffix("[]")]
            name = f"{letter}{counts.get(letter, 0)}"
            counts[letter] = counts.get(letter, 0) + 1
            variables.append((name, kind, path))
            name = names[same] = f"[{name}]" if kind.endswith("[]") else name
        between = outline.text[at : path.start]
        out += (between, name)
        length += len(between)
        places.append((length, path.start))
        length += len(name)
        places.append((length, path.end))
        at = path.end
    out.append(outline.text[at:end])
    return Rewritten("".join(out), variables, places)


# --- what is checked ------------------------------------------------------------------------------


def _known_type(node: Node, environment: Environment) -> str:
    """The type as far as the outline shows it; `dyn` for anything else."""
    match node:
        case Constant(type=kind):
            return kind
        case Path():
            return environment.variable_type(node)
        case ListOf():
            return "list"
        case MapOf():
            return "map"
    return "dyn"


def _check(outline: Outline, environment: Environment) -> str:
    """The type of the whole expression; raises every error at once."""
    if unknown := [_issue(outline.text, *problem) for problem in unknown_functions(outline)]:
        raise DefinitionError(unknown)  # errors about the variables of a misspelt macro would only add noise
    issues = [_issue(outline.text, *problem) for path in outline.paths for problem in environment.problems(path)]
    for path in outline.paths:
        for step in path.steps:
            if isinstance(step, Index):
                issues += _index_issues(outline, step, environment)
    if issues:
        raise DefinitionError(issues)
    if isinstance(outline.root, Constant):
        return outline.root.type
    if isinstance(outline.root, Path):
        return environment.checked_type(outline.root)
    rewritten = rewrite(outline, outline.root.start, outline.root.end, environment.variable_type)
    try:
        kind = cel_library.compile_program(rewritten.text, rewritten.width).type
    except cel_library.CompileFailed as error:
        told = _mixed_arithmetic(outline, environment)  # first: what follows from it would hide the mistake
        told = told or [_complaint(outline, rewritten, complaint) for complaint in error.complaints]
        if any(issue.hint == TRUE_OR_FALSE for issue in told):
            hint = _comparing(outline.text, environment)
            told = [replace(issue, hint=hint) if issue.hint == TRUE_OR_FALSE else issue for issue in told]
        raise DefinitionError(list(dict.fromkeys(told))) from None
    if told := _mixed_arithmetic(outline, environment):
        raise DefinitionError(told)
    if kind == "type":
        raise DefinitionError([_issue(outline.text, "the result is a type, not a value", 0)])
    if wrong := list(_wrong_patterns(outline)):
        raise DefinitionError(wrong)
    return kind


def _mixed_arithmetic(outline: Outline, environment: Environment) -> list[Issue]:
    problems = mixed_arithmetic(outline, environment)
    return list(dict.fromkeys(_issue(outline.text, *problem) for problem in problems))


def _comparing(text: str, environment: Environment) -> str:
    """The hint for parts that stand for true or false and are not: the text with comparisons, if they are all it needs."""

    def type_of(part: str) -> str | None:
        try:
            return compile_expression(part, environment).type
        except DefinitionError:
            return None

    better = compared(text, type_of)
    if better is None or better == text:
        return TRUE_OR_FALSE
    try:
        compile_expression(better, environment)
    except DefinitionError:
        return TRUE_OR_FALSE
    return f"write {better!r}"


def _wrong_patterns(outline: Outline) -> Iterable[Issue]:
    """Patterns of `matches` that stand in the expression and that CEL can't read; it would say so only when a run gets there."""
    for at, text in literal_patterns(outline):
        try:
            cel_library.compile_program(f"''.matches({text})", 0).run({})
        except cel_library.CelError as error:
            yield _issue(outline.text, str(error), at, "patterns are RE2: https://github.com/google/re2/wiki/Syntax")


def _index_issues(outline: Outline, step: Index, environment: Environment) -> list[Issue]:
    try:
        kind = _check(step.outline, environment)
    except DefinitionError as error:
        return list(error.errors)
    if kind in ("int", "uint", "string", "dyn"):
        return []
    return [_issue(outline.text, f"an index is a whole number or a key, not {kind}", step.outline.root.start)]


def _complaint(outline: Outline, rewritten: Rewritten, complaint: cel_library.Complaint) -> Issue:
    at = rewritten.offset(complaint.line, complaint.column)
    message, hint, kind = reworded(complaint.text, outline, at)
    return _issue(outline.text, message, at, hint, kind)
