"""Read-only instances of the classes that users declare: what nodes get, with the methods that the classes have.

A view's class is a subclass made without calling the user's metaclass or `__init_subclass__`; it refuses changes, and says
that it is the declared class, so that `isinstance`, `==`, `dataclasses.replace` and `model_copy` work as ever. Copies are
plain instances that may be changed.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from types import GetSetDescriptorType
from typing import Any, NoReturn

from graphflow.errors import StateError, described
from graphflow.graph.core.immutable import FrozenDict, FrozenList, FrozenSet, State, thaw
from graphflow.graph.typed_state.annotations import is_pydantic
from graphflow.graph.typed_state.plain_form import OWN_CLASS

set_attribute: Callable[[Any, str, Any], None] = object.__setattr__
_SOURCE, _OPEN = "_graphflow_source", "_graphflow_open"


def _refuse(self: Any, name: str, *value: Any) -> NoReturn:
    raise TypeError(f"state is read-only: return {{{name!r}: …}} from the node instead of changing it in place")


class ReadOnly:
    """What refuses to change a nested model or a state."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Nothing: classes made here are none of the user's."""

    def __copy__(self) -> Any:
        return _mutable(self, copy.copy)

    def __deepcopy__(self, memo: Any) -> Any:
        return _mutable(self, lambda value: copy.deepcopy(value, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _mutable(self, lambda value: value).__reduce_ex__(protocol)


class LazyField:
    """A field of a state that is made from what the machine keeps when it is first read."""

    __slots__ = ("_kept", "_name", "_read")

    def __init__(self, name: str, kept: Any, read: Callable[[str, Any], Any]) -> None:
        self._name, self._kept, self._read = name, kept, read

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._kept is not None:  # a slot of the user's class
            try:
                return self._kept.__get__(instance)
            except AttributeError:
                pass
        value = self._read(self._name, getattr(instance, _SOURCE))
        if self._kept is not None:
            self._kept.__set__(instance, value)
        else:
            dict_of(instance)[self._name] = value
        return value


class StateView(ReadOnly):
    """The state itself: `state.k` is the class's own, `state["k"]` is the field."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        source = getattr(self, _SOURCE)
        if isinstance(key, str) and key in source:
            return getattr(self, key) if key in type(self).__graphflow_fields__ else source[key]  # type: ignore[attr-defined]
        own = getattr(super(), "__getitem__", None)
        if own is not None:
            return own(key)
        raise KeyError(f"the state has no key {key!r}; it has {', '.join(sorted(source)) or 'none'}")


@functools.cache
def _dict_of(kind: Any) -> Any:
    for base in kind.__mro__:
        found = base.__dict__.get("__dict__")
        if isinstance(found, GetSetDescriptorType):
            return found
    return None


def dict_of(instance: Any) -> dict[str, Any]:
    """The instance's own dict, also where the class shows another."""
    kind: Any = type(instance)
    found: dict[str, Any] = _dict_of(kind).__get__(instance)
    return found


def _complete_dict(self: Any) -> dict[str, Any]:
    own, fields = dict_of(self), type(self).__graphflow_fields__
    if any(name not in own for name in fields):
        values = {name: getattr(self, name) for name in fields}
        more = {name: value for name, value in own.items() if name not in values}
        own.clear()
        own.update(values | more)  # in the order of the class
    return own


def _subclass(cls: type, base: type, names: Mapping[str, Any]) -> Any:
    namespace = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__class__": property(lambda self: cls),
        "__slots__": (),
        OWN_CLASS: cls,
        **names,
    }
    # Not by calling the metaclass: pydantic would build another schema, and registries would hold our classes.
    return type.__new__(type(cls), cls.__name__, (base, cls), namespace)


@functools.cache
def read_only(cls: Any) -> Any:
    """The read-only class of a nested model."""
    return _subclass(cls, ReadOnly, {"__setattr__": _refuse, "__delattr__": _refuse})


def shown_class(cls: type, lazy: frozenset[str], fields: tuple[str, ...], read: Callable[[str, Any], Any]) -> Any:
    """The read-only class of a state.

    Args:
        lazy: fields that are made when they are first read.
        read: `(field, state) → value`.
    """

    def change(self: Any, name: str, value: Any) -> None:
        if getattr(self, _OPEN, None) is not True:
            _refuse(self, name)
        set_attribute(self, name, value)

    names: dict[str, Any] = {name: LazyField(name, _slot(cls, name), read) for name in lazy}
    names |= {
        "__setattr__": change,
        "__delattr__": _refuse,
        "__slots__": (_SOURCE, _OPEN),
        "__graphflow_fields__": fields,
    }
    if _dict_of(cls) is not None:
        names["__dict__"] = property(_complete_dict)
    return _subclass(cls, StateView, names)


def _slot(cls: type, name: str) -> Any:
    found = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    return found if hasattr(found, "__set__") and hasattr(found, "__objclass__") else None


def show(kind: Any, cls: Any, state: State, values: Mapping[str, Any]) -> Any:
    """The view of a state: an instance of `kind` with these values; its other fields are lazy."""
    out = object.__new__(kind)
    set_attribute(out, _SOURCE, state)
    if is_pydantic(cls) and hasattr(cls, "model_fields"):
        set_attribute(out, "__pydantic_fields_set__", set(cls.model_fields))
        set_attribute(out, "__pydantic_extra__", {} if cls.model_config.get("extra") == "allow" else None)
        set_attribute(out, "__pydantic_private__", None)
    for name, value in values.items():
        set_attribute(out, name, value)
    # What a class derives from its fields, methods rely on.
    after = getattr(cls, "__post_init__", None)
    argument: tuple[None, ...] = ()
    if after is None and (named := getattr(cls, "__pydantic_post_init__", None)) is not None:
        after, argument = getattr(cls, named), (None,)
    if after is not None:
        set_attribute(out, _OPEN, True)
        try:
            after(out, *argument)
        except Exception as error:
            raise StateError(
                f"the state can't be shown as {cls.__qualname__}, whose `{after.__name__}` failed with "
                f"{described(error)}; give its keys defaults that it accepts"
            ) from error
        finally:
            set_attribute(out, _OPEN, False)
    return out


def locked(value: Any, classes: frozenset[type]) -> Any:
    """The value, which nobody else has, with every list, dict and instance of these classes in it read-only."""
    kind = type(value)
    if kind in classes:
        return _lock(value, kind, classes)
    if kind is list:
        return FrozenList([locked(item, classes) for item in value])
    if kind is dict:
        return FrozenDict({key: locked(item, classes) for key, item in value.items()})
    if kind is set:
        return FrozenSet(value)
    if kind is tuple:
        return tuple([locked(item, classes) for item in value])
    return value


def _lock(value: Any, kind: Any, classes: frozenset[type]) -> Any:
    if not (hasattr(kind, "__dataclass_fields__") or is_pydantic(kind)):
        return value  # an enum member, a struct, a named tuple
    return _remade(value, kind, read_only(kind), lambda item: locked(item, classes))


def _mutable(view: Any, inner: Callable[[Any], Any]) -> Any:
    """A plain instance of the declared class with the view's values."""
    cls = getattr(type(view), OWN_CLASS)
    return _remade(view, cls, cls, lambda item: inner(thawed(item)))


def _remade(value: Any, cls: Any, made: Any, inner: Callable[[Any], Any]) -> Any:
    """An instance of `made` with what a `cls` has in its dict and its slots; no constructor is called."""
    out = object.__new__(made)
    if _dict_of(cls) is not None:
        dict_of(out).update({name: inner(item) for name, item in value.__dict__.items()})
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                item = getattr(value, name)
                set_attribute(out, name, item if name.startswith("__pydantic_") else inner(item))
    return out


def thawed(value: Any) -> Any:
    """A frozen container as one that may be changed; models in it stay read-only until they are copied."""
    return (
        set(value) if type(value) is FrozenSet else thaw(value) if isinstance(value, FrozenDict | FrozenList) else value
    )
