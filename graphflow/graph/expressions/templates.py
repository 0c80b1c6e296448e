"""`with` and other places that take `${expr}` (spec 2.1 rule 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from graphflow.errors import DefinitionError, ExpressionFailed, Issue
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.definition.types import Hole
from graphflow.graph.expressions import cel_library, parser
from graphflow.graph.expressions.compiler import Expression, compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.evaluation import Evaluate, Ref, Scope
from graphflow.graph.expressions.growth import too_large
from graphflow.graph.expressions.parser import ExpressionSyntaxError
from graphflow.value_size import size_of, text_size


class Template:
    """JSON with expressions in it; `evaluate(scope)` gives the JSON."""

    __slots__ = ("_evaluate", "constant", "refs", "sketch")

    def __init__(
        self, constant: Any = None, evaluate: Evaluate | None = None, sketch: Any = None, refs: Iterable[Ref] = ()
    ) -> None:
        self._evaluate = evaluate
        self.constant = constant
        """The value of a template without expressions, else None."""
        self.refs = tuple(dict.fromkeys(refs))
        self.sketch = constant if evaluate is None else sketch
        """The value with a `Hole` for each expression."""

    @property
    def is_constant(self) -> bool:
        return self._evaluate is None

    def evaluate(self, scope: Scope) -> Any:
        """The value; a template without expressions gives the same object each time, so do not change it.

        Raises:
            ExpressionFailed: one of its expressions failed.
        """
        return self.constant if self._evaluate is None else self._evaluate(scope)


def compile_template(value: Any, environment: Environment, *, check: bool = True) -> Template:
    """The template behind any JSON value.

    A string that is one `${expr}` keeps the expression's type; in a mixed one true and false, numbers,
    lists and maps are rendered as JSON, null as nothing. `$${` is a literal `${`.

    Raises:
        DefinitionError: with all errors; their pointers are relative to `value`.
    """
    issues: list[Issue] = []
    part = _compile(value, environment, check, "", issues)
    if issues:
        raise DefinitionError(issues)
    return part


def _compile(value: Any, environment: Environment, check: bool, pointer: str, issues: list[Issue]) -> Template:
    if isinstance(value, str):
        return _text(value, environment, check, pointer, issues) if "${" in value else Template(value)
    if isinstance(value, Mapping):
        return _map(value, environment, check, pointer, issues)
    if isinstance(value, list | tuple):
        return _list(value, environment, check, pointer, issues)
    return Template(value)


def _map(
    value: Mapping[str, Any], environment: Environment, check: bool, pointer: str, issues: list[Issue]
) -> Template:
    parts = {key: _compile(item, environment, check, f"{pointer}/{escape(key)}", issues) for key, item in value.items()}
    if all(part._evaluate is None for part in parts.values()):
        return Template({key: part.constant for key, part in parts.items()})
    # One copy of a finished dict and a few assignments are faster than building it key by key for each node run.
    fixed = {key: part.constant for key, part in parts.items()}  # keeps the order of keys
    moving = [(key, part._evaluate) for key, part in parts.items() if part._evaluate is not None]

    def evaluate(scope: Scope) -> Any:
        out = fixed.copy()
        for key, compute in moving:
            out[key] = compute(scope)
        return out

    sketch = {key: part.sketch for key, part in parts.items()}
    return Template(evaluate=evaluate, sketch=sketch, refs=[ref for part in parts.values() for ref in part.refs])


def _list(value: Any, environment: Environment, check: bool, pointer: str, issues: list[Issue]) -> Template:
    parts = [_compile(item, environment, check, f"{pointer}/{index}", issues) for index, item in enumerate(value)]
    if all(part._evaluate is None for part in parts):
        return Template([part.constant for part in parts])

    def evaluate(scope: Scope) -> Any:
        return [part.constant if part._evaluate is None else part._evaluate(scope) for part in parts]

    sketch = [part.sketch for part in parts]
    return Template(evaluate=evaluate, sketch=sketch, refs=[ref for part in parts for ref in part.refs])


def _text(text: str, environment: Environment, check: bool, pointer: str, issues: list[Issue]) -> Template:
    pieces: list[str | Expression] = []
    sound = True
    try:
        for is_expression, piece in _split(text):
            if not is_expression:
                pieces.append(piece)
                continue
            try:
                pieces.append(_folded(compile_expression(piece, environment, check=check)))
            # The other expressions are compiled all the same, so that one load reports every error of the text.
            except DefinitionError as error:
                sound = False
                issues += [_moved(issue, pointer) for issue in error.errors]
    except ExpressionSyntaxError as error:
        issues.append(Issue(pointer=pointer, message=error.message, hint=error.hint, kind="syntax"))
        sound = False
    return (
        _joined(pieces, environment.bounds.value_bytes)
        if sound
        else Template(evaluate=lambda scope: None, sketch=Hole("dyn", text))
    )


def _folded(expression: Expression) -> str | Expression:
    """A text literal is text: `${'$'}` costs nothing at run time."""
    return expression.evaluate({}) if expression.is_constant and expression.type == "string" else expression


def _joined(pieces: list[str | Expression], most: int) -> Template:
    if len(pieces) == 1 and isinstance(pieces[0], Expression):
        only = pieces[0]
        if only.is_constant:
            return Template(only.evaluate({}))
        return Template(evaluate=only.evaluate, sketch=Hole(only.type, only.source), refs=only.refs)
    merged: list[str | Expression] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    if all(isinstance(piece, str) for piece in merged):
        return Template("".join(piece for piece in merged if isinstance(piece, str)))
    makers: list[str | Evaluate] = [piece if isinstance(piece, str) else _rendering(piece, most) for piece in merged]
    shown = "".join(piece if isinstance(piece, str) else "${" + piece.source + "}" for piece in merged)

    def evaluate(scope: Scope) -> str:
        texts: list[str] = []
        size = 0
        for make in makers:
            text = make if isinstance(make, str) else make(scope)
            # Counted before they are joined: each may be as large as the state.
            size += text_size(text)
            if size > most:
                raise too_large(shown, most)
            texts.append(text)
        return "".join(texts)

    expressions = [piece for piece in merged if isinstance(piece, Expression)]
    refs = [ref for piece in expressions for ref in piece.refs]
    return Template(evaluate=evaluate, sketch=Hole("string", "".join(map(str, merged))), refs=refs)


def _rendering(expression: Expression, most: int) -> Evaluate:
    def make(scope: Scope) -> str:
        value = expression.evaluate(scope)
        if type(value) is str:
            return value
        if size_of(value, most) > most:
            raise too_large(expression.source, most)
        try:
            return render(value)
        except (cel_library.Unconvertible, TypeError, ValueError) as error:
            message = f"expression {expression.source!r} can't be rendered as text: {error}"
            raise ExpressionFailed(message, expression=expression.source) from None

    return make


def render(value: Any) -> str:
    """A value as the text that a mixed template shows."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    plain = cel_library.to_plain(value)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, bytes):
        raise TypeError("bytes are not text")
    return msgspec.json.encode(plain).decode()


def _moved(issue: Issue, pointer: str) -> Issue:
    return replace(issue, pointer=pointer + issue.pointer)


def _split(text: str) -> list[tuple[bool, str]]:
    """`(is an expression, piece)` in order.

    Raises:
        ExpressionSyntaxError: a `${` without its `}`.
    """
    out: list[tuple[bool, str]] = []
    at = 0
    plain = ""
    while (found := text.find("${", at)) >= 0:
        if found > 0 and text[found - 1] == "$" and found - 1 >= at:
            plain += text[at : found - 1] + "${"
            at = found + 2
            continue
        plain += text[at:found]
        end = _closing(text, found + 2)
        out += [(False, plain)] if plain else []
        out.append((True, text[found + 2 : end].strip()))
        plain, at = "", end + 1
    plain += text[at:]
    return [*out, (False, plain)] if plain or not out else out


def _closing(text: str, start: int) -> int:
    """Offset of the `}` that closes an expression, past braces and texts inside it."""
    depth = 0
    try:
        # By tokens: a text literal inside the expression may contain braces.
        for kind, word, at in parser.tokens(text, start):
            if kind != "op":
                continue
            if word == "{":
                depth += 1
            elif word == "}":
                if depth == 0:
                    return at
                depth -= 1
    except ExpressionSyntaxError as error:
        shown = text[start - 2 : start + 40]
        raise ExpressionSyntaxError(f"in {shown!r}: {error.message}", start, error.hint or _UNBALANCED) from None
    raise ExpressionSyntaxError(f"the '${{' in {text[start - 2 : start + 40]!r} has no '}}'", start, _UNBALANCED)


_UNBALANCED = "close it with '}', or write '$${' for a literal '${'"
