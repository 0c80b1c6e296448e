"""What a state that is a pydantic model checks; imported only where one is, and pydantic with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from graphflow.graph.typed_state.annotations import Check, Misfit, misfit_of


class _Quiet:
    """Keeps the hooks of the user's class from a subclass that only checks."""

    def __init_subclass__(cls, **options: Any) -> None: ...

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None: ...


class AssignmentCheck:
    """The check of one field with its validators, as an assignment to the model makes it."""

    __slots__ = ("_draft", "_key", "_looks_around")

    def __init__(self, draft: type[BaseModel], key: str, looks_around: bool) -> None:
        self._draft, self._key, self._looks_around = draft, key, looks_around

    def __call__(self, value: Any) -> Any:
        return self._assigned({}, value)

    @property
    def within(self) -> Callable[[Callable[[], dict[str, Any]]], Check] | None:
        """The check beside the other fields, for validators that look at them."""
        if not self._looks_around:
            return None
        return lambda values: lambda value: self._assigned(values(), value)

    def _assigned(self, values: dict[str, Any], value: Any) -> Any:
        scratch = object.__new__(self._draft)
        for name, part in (("__dict__", values), ("__pydantic_fields_set__", set[str]()), *_EMPTY):
            object.__setattr__(scratch, name, part)
        kept = list(value) if isinstance(value, list) else value
        check = self._draft.__pydantic_validator__.validate_assignment
        try:
            check(scratch, self._key, kept, by_alias=True, by_name=True)
        except ValidationError as error:
            misfit = misfit_of(error)
            raise Misfit(misfit.place.removeprefix(f".{self._key}"), misfit.why) from None
        return scratch.__dict__[self._key]


_EMPTY = (("__pydantic_extra__", None), ("__pydantic_private__", None))


_drafts: dict[type, type[BaseModel]] = {}


def _draft_of(cls: Any) -> type[BaseModel]:
    """The model without what looks at several fields at once, and open to assignment."""
    draft = _drafts.get(cls)
    if draft is None:
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "model_config": {"frozen": False}}
        draft = type(cls)(cls.__name__, (_Quiet, cls), names)
        draft.__pydantic_decorators__.model_validators.clear()
        draft.__pydantic_decorators__.root_validators.clear()
        draft.__pydantic_post_init__ = None
        for field in draft.model_fields.values():
            field.frozen = None
        draft.model_rebuild(force=True)
        _drafts[cls] = draft
    return draft


def field_check(cls: Any, key: str, hint: Any) -> tuple[Any, Check | None, bool]:
    """A field's whole annotation, its check if it needs one of the model's, and whether that is for the whole value."""
    field = cls.__pydantic_fields__[key]
    decorators = cls.__pydantic_decorators__
    own = any(
        key in decorator.info.fields or "*" in decorator.info.fields
        for table in (decorators.field_validators, decorators.validators)
        for decorator in table.values()
    )
    whole = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    if not issubclass(cls, BaseModel):
        return whole, None, bool(field.metadata)
    if not own and not field.metadata and not (set(cls.model_config) - {"extra", "frozen", "title"}):
        return whole, None, False
    return whole, AssignmentCheck(_draft_of(cls), key, own), own


def checks_together(cls: Any) -> bool:
    """Whether the model looks at several fields at once."""
    found = cls.__pydantic_decorators__
    several = found.model_validators or found.root_validators
    if issubclass(cls, BaseModel):
        return bool(several) or cls.model_post_init is not BaseModel.model_post_init
    return bool(several or found.field_validators or found.validators) or hasattr(cls, "__post_init__")
