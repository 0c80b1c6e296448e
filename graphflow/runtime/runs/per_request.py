"""What a request chooses for its run: a model, options of its calls, prompt variables; all of it only where the document allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import GraphflowError
from graphflow.graph.definition.document import PerRequest
from graphflow.graph.definition.whole_numbers import whole_numbers
from graphflow.runtime.run_request import RunRequest

NOTHING = PerRequest()
_TEXT = {"type": "string", "minLength": 1}
_OPTIONS: dict[str, Any] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "topP": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "maxOutputTokens": {"type": "integer", "minimum": 1},
    "maxTokens": {"type": "integer", "minimum": 1},
    "seed": {"type": "integer"},
    "reasoningEffort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]},
    "timeoutMs": {"type": "number", "exclusiveMinimum": 0},
    "stop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
}


def chosen_by(request: RunRequest, allowed: PerRequest | None) -> dict[str, Any] | None:
    """The model and options of the request, checked; None when it chooses nothing.

    Raises:
        GraphflowError: `invalid_input` for what the document does not allow, naming what it does.
    """
    allowed = allowed or NOTHING
    out: dict[str, Any] = {}
    if request.model is not None:
        if request.model not in allowed.models:
            raise _refused("model", repr(request.model), allowed.models)
        out["model"] = request.model
    if request.options:
        for name in request.options:
            if name not in allowed.options:
                raise _refused("options", repr(name), allowed.options)
        out["options"] = {
            name: _checked("options", name, value, _OPTIONS[name]) for name, value in request.options.items()
        }
    return out or None


def with_variables(given: Any, request: RunRequest, allowed: PerRequest | None) -> Any:
    """The input with the prompt variables that the document declares: the request's, else their defaults, else null.

    Raises:
        GraphflowError: `invalid_input` for a variable that the document does not declare, or a value that does not fit.
    """
    declared = (allowed or NOTHING).variables
    for name in request.variables or ():
        if name not in declared:
            raise _refused("variables", repr(name), tuple(declared))
    if not declared:
        return given
    before = given.get("variables") if isinstance(given, Mapping) else None
    named = {**(before if isinstance(before, Mapping) else {}), **(request.variables or {})}
    for name, value in named.items():
        if name in declared and value is not None:
            _checked("variables", name, value, declared[name])
    values = {name: whole_numbers(named.get(name, schema.get("default")), schema) for name, schema in declared.items()}
    return {**(given if isinstance(given, Mapping) else {}), "variables": values}


def _checked(field: str, name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    from graphflow.graph.definition.json_schema import compile_schema  # most requests choose nothing

    checker = compile_schema(schema)
    if issues := checker.errors(value):
        raise _wrong(field, f"{name}: {issues[0].message}")
    return checker.taken(value)


def _refused(field: str, what: str, allowed: tuple[str, ...]) -> GraphflowError:
    named = (
        f"it allows {', '.join(allowed)}"
        if allowed
        else f"it allows no {field} (`perRequest.{_PLURAL[field]}` of its document)"
    )
    return _wrong(field, f"{what:.100} is not allowed by the agent; {named}")


_PLURAL = {"model": "models", "options": "options", "variables": "variables"}


def _wrong(field: str, rule: str) -> GraphflowError:
    return GraphflowError(f"{field}: {rule}", code="invalid_input", fields={field: rule})
