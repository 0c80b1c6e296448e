"""How a tool's arguments are described and checked: by pydantic from a function's signature, or by a given JSON Schema.

pydantic is loaded at the first look at a signature's schema or at its first arguments, never on import.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from graphflow.graph.definition.types import show
from graphflow.tools.context import ToolContext
from graphflow.tools.result import ArgumentsRefused
from graphflow.tools.schema import MOST_ERRORS, argument_place, did_you_mean, taken_arguments

OPEN_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
"""The schema of a tool that declares no parameters."""


class Signature(Protocol):
    """The description and check of a tool's arguments."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema that a model gets."""

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments to call with; raises `ArgumentsRefused` with every error."""


class SchemaSignature:
    """Arguments checked against a JSON Schema and passed as they are."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(taken_arguments(arguments, self.parameters))


def context_parameter(function: Callable[..., Any]) -> str | None:
    """The parameter that gets the `ToolContext`: annotated so, or named `ctx`."""
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        if name == "ctx" or annotation is ToolContext:
            return name
        # `from __future__ import annotations` leaves texts; resolving them here would need every name at import.
        if isinstance(annotation, str) and annotation.rpartition(".")[2] == "ToolContext":
            return name
    return None


class FunctionSignature:
    """Arguments by a function's typed parameters: pydantic makes the schema, converts and checks.

    Raises:
        TypeError: for parameters that can't be given by name.
    """

    def __init__(self, function: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        self._function = function
        self._descriptions = descriptions
        self._context = context_parameter(function)
        self._takes: dict[str, inspect.Parameter] = {}
        self._open = False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"tool {function.__name__!r}: parameter {name!r} can't be given by name; "
                    "a model names its arguments, so use ordinary or keyword-only parameters"
                )
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif name != self._context:
                self._takes[name] = parameter

    @cached_property
    def parameters(self) -> dict[str, Any]:
        from pydantic.json_schema import GenerateJsonSchema

        class Untitled(GenerateJsonSchema):
            """Without titles, which repeat the names; defaults that are not JSON are left out silently."""

            ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - typed by the base

            def field_title_should_be_set(self, schema: Any) -> bool:
                return False

        schema: dict[str, Any] = self._model.model_json_schema(schema_generator=Untitled)
        schema.pop("title", None)
        schema.pop("description", None)
        return {"type": "object", "properties": {}, **schema}

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        model = self._model
        unknown = 0 if self._open else len(arguments.keys() - self._takes.keys())
        if unknown > MOST_ERRORS:  # of a few of them pydantic says enough
            some = (name for name in arguments if name not in self._takes)
            known = {name: value for name, value in arguments.items() if name in self._takes}
            arguments = {**known, **dict.fromkeys(islice(some, MOST_ERRORS))}
        try:
            checked = model.model_validate(dict(arguments))
        except ValidationError as error:
            found = error.errors(include_url=False)
            more = max(0, len(found) - MOST_ERRORS) + max(0, unknown - MOST_ERRORS)
            raise ArgumentsRefused([self._issue(item) for item in found[:MOST_ERRORS]], more) from None
        given = {name: getattr(checked, self._fields[name]) for name in self._takes}
        return {**given, **(checked.model_extra or {})}

    def _issue(self, error: Any) -> str:
        """One error of pydantic's list: which field, what value, what rule."""
        place = argument_place(error["loc"])
        if error["type"] == "missing":
            return f"{place}: required and not given"
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            listed = ", ".join(self._takes) or "none"
            return f"{place}: no such argument; arguments are {listed}.{did_you_mean(place, list(self._takes))}"
        rule = error["msg"][:1].lower() + error["msg"][1:]
        return f"{place}: {show(error['input'])} was given; {rule}"

    @cached_property
    def _fields(self) -> dict[str, str]:
        """Parameter → field: aliased, because a model can't have fields called `json` or `_x`."""
        return {name: f"p{index}" for index, name in enumerate(self._takes)}

    @cached_property
    def _model(self) -> Any:
        from pydantic import ConfigDict, Field, create_model

        hints = self._hints()
        fields: dict[str, Any] = {}
        for name, parameter in self._takes.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            described = self._descriptions.get(name)
            fields[self._fields[name]] = (hints.get(name, Any), Field(default, alias=name, description=described))
        # An unknown argument is refused, not dropped: the model meant something by it.
        config = ConfigDict(extra="allow" if self._open else "forbid", arbitrary_types_allowed=True)
        return create_model(f"{self._function.__name__}_arguments", __config__=config, **fields)

    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._function, localns={"ToolContext": ToolContext}, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"tool {self._function.__name__!r}: the annotation {error.name!r} is not known at run time; "
                "import it outside of `if TYPE_CHECKING`"
            ) from error
