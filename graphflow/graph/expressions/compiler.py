"""One expression, compiled: parsed, checked with the names of its place, and ready to be evaluated.

Documents that were validated before compile without CEL; the library is imported by the first evaluation that needs it (E20).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from graphflow.errors import DefinitionError, ExpressionFailed, Issue
from graphflow.excerpts import excerpt_of
from graphflow.graph.expressions import cel_library, parser
from graphflow.graph.expressions.ast import Constant, Index, ListOf, MapOf, Node, Outline, Path
from graphflow.graph.expressions.diagnostics import TRUE_OR_FALSE, literal_patterns, reworded, unknown_functions
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.evaluation import Evaluate, Ref, Scope, evaluator, references
from graphflow.graph.expressions.foreign_words import comments, compared, in_cel, sign_hint
from graphflow.graph.expressions.numbers import mixed_arithmetic
from graphflow.graph.expressions.parser import ExpressionSyntaxError
from graphflow.graph.expressions.paths import Missing
from graphflow.graph.expressions.rewriting import Rewritten, rewrite


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
    evaluate = evaluator(outline, environment)
    return Expression(
        source, tuple(references(outline)), kind, evaluate, is_constant=isinstance(outline.root, Constant)
    )


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
        if part == text:
            return None  # it is what is being compiled
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
    hint = f"write int({step.text})" if kind == "double" else None
    return [_issue(outline.text, f"an index is a whole number or a key, not {kind}", step.outline.root.start, hint)]


def _complaint(outline: Outline, rewritten: Rewritten, complaint: cel_library.Complaint) -> Issue:
    at = rewritten.offset(complaint.line, complaint.column)
    message, hint, kind = reworded(complaint.text, outline, at)
    return _issue(outline.text, message, at, hint, kind)
