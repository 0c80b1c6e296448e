"""What a question or a model is asked for: a JSON Schema, or a class, whose objects callers get."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from graphflow.errors import NodeFailed
from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.json_schema import check_schema
from graphflow.graph.definition.state_classes import value_schema
from graphflow.graph.definition.types import show
from graphflow.graph.typed_state.annotations import Misfit, below, check_of, is_pydantic


class AnswerForm(NamedTuple):
    """A schema that is checked, and what makes an answer of plain data the object that was asked for."""

    schema: Mapping[str, Any] | None
    made: Callable[[Any], Any]


def answer_form(schema: Any, node: str, call: str) -> AnswerForm:
    """The form of the answers that `call` of a node asks for.

    Raises:
        NodeFailed: `validation`: it is neither a schema nor a class that has one, or no value could fit it.
    """
    if schema is None:
        return _ANY
    if isinstance(schema, Mapping):
        if _is_fine(schema) or not (issues := check_schema(schema)):
            return AnswerForm(schema, _as_it_is)
        found = "; ".join(f"{issue.pointer or 'schema'}: {issue.message}{_hint(issue.hint)}" for issue in issues[:3])
        raise NodeFailed(f"node {node!r} calls ctx.{call} with a schema that has errors: {found}", code="validation")
    described = None if isinstance(schema, str | bytes | int | float | list | tuple) else _schema_of(schema)
    if not described:
        raise NodeFailed(
            f"node {node!r} calls ctx.{call} with schema={show(schema)}; give a JSON Schema, or a pydantic model, dataclass"
            " or TypedDict",
            code="validation",
        )
    check = check_of(schema)

    def made(answer: Any) -> Any:
        if check is None:
            return thaw(answer)
        try:
            return below(check, "", thaw(answer))
        except Misfit as misfit:
            name = getattr(schema, "__name__", str(schema))
            raise NodeFailed(
                f"node {node!r}: the answer of ctx.{call} is no {name}: {misfit}", code="validation"
            ) from misfit

    return AnswerForm(described, made)


def _is_fine(schema: Mapping[str, Any]) -> bool:
    """Whether this very schema was checked before: a node asks with the same one again and again."""
    try:
        return _checked(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError):  # not JSON: the check says what is wrong
        return False


@functools.lru_cache(maxsize=256)
def _checked(encoded: bytes) -> bool:
    return not check_schema(msgspec.json.decode(encoded))


def _schema_of(cls: Any) -> Mapping[str, Any] | None:
    if is_pydantic(cls):
        from pydantic import TypeAdapter

        return TypeAdapter(cls).json_schema()
    try:
        return value_schema(cls)
    except (TypeError, NameError):
        return None


def _hint(hint: str | None) -> str:
    return f" ({hint})" if hint else ""


def _as_it_is(answer: Any) -> Any:
    return answer


_ANY = AnswerForm(None, _as_it_is)
