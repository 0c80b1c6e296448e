"""The codec's registry: types of the user's own under names that never change (spec 4.3).

`register` is called where the type is defined. Stored data names the type by its registered name and carries the
version that wrote it; upgrade functions lead from each older version to the next.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from graphflow.errors import CodecError, described, text_of

T = TypeVar("T")
Upgrade = Callable[[Any], Any]
"""Content of one version → content of the next; content is a dict of fields (an enum's: its member name or value)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """How one type is taken apart and put together."""

    kind: type
    name: str
    version: int
    upgrade: Mapping[int, Upgrade]
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


_by_type: dict[type, Entry] = {}
_by_name: dict[str, Entry] = {}


def register(
    cls: type[T],
    name: str,
    version: int = 1,
    upgrade: Mapping[int, Upgrade] | None = None,
    *,
    dump: Callable[[T], Any] | None = None,
    load: Callable[[Any], T] | None = None,
) -> type[T]:
    """Makes a type storable under a name; the type, so that it can be used on the line below a class.

    Dataclasses, msgspec structs, pydantic models, enums and named tuples need no more than a name. Their fields are
    stored as they are and come back without a call of `__init__` or a validator (a struct's `__post_init__` runs);
    a field that the stored value does not have gets its default.

    Args:
        name: what stored data calls the type; it never changes, though class and module may.
        version: raised whenever stored fields no longer fit the class.
        upgrade: old version → function from its content (a dict of fields; of an enum the member's name, of a flag
            its value) to that of the next version.
        dump: for any other class: the value as storable data.
        load: for any other class: the way back.

    Raises:
        ValueError: the name belongs to another type, the version is below 1, an upgrade is missing, or the class is of no
            known kind and `dump` and `load` are missing.
    """
    upgrade = dict(upgrade or {})
    _check(cls, name, version, upgrade)
    if dump is None or load is None:
        dump, load = _dump_and_load(cls)
    entry = Entry(kind=cls, name=name, version=version, upgrade=upgrade, dump=dump, load=load)
    _by_type[cls] = _by_name[name] = entry
    return cls


def entry_of(kind: type) -> Entry | None:
    return _by_type.get(kind)


def restore(name: str, version: int, content: Any) -> Any:
    """The value that was stored under this name and version.

    Raises:
        CodecError: the name is not registered, the version is newer, an upgrade is missing or fails, or the fields don't fit.
    """
    entry = _by_name.get(name)
    if entry is None:
        raise CodecError(
            f"a stored value has the type {name!r}, which is not registered: import the module that registers it"
            " before loading",
            code="store_failed",
        )
    if version > entry.version:
        raise CodecError(
            f"a stored {name!r} has version {version}, registered is version {entry.version}: newer code wrote it",
            code="store_version_unsupported",
        )
    # One step at a time, so that each upgrade function only knows two neighbouring versions.
    for step in range(version, entry.version):
        if step not in entry.upgrade:
            raise CodecError(
                f"a stored {name!r} has version {version}: register an upgrade from version {step}",
                code="store_failed",
            )
        try:
            content = entry.upgrade[step](content)
        except Exception as error:  # a function of the user's may raise anything, also through its own lookups
            raise CodecError(
                f"a stored {name!r} has version {version}: its upgrade from version {step} failed with"
                f" {described(error)}; correct that function",
                code="store_failed",
            ) from error
    try:
        return entry.load(content)
    except Exception as error:  # `load=` and `__post_init__` are the user's too
        raise CodecError(
            f"a stored {name!r} does not fit {entry.kind.__qualname__}: {text_of(error)}; register it with version"
            f" {entry.version + 1} and an upgrade from version {entry.version}",
            code="store_failed",
        ) from error


def _check(cls: type, name: str, version: int, upgrade: Mapping[int, Upgrade]) -> None:
    if not name or version < 1:
        raise ValueError(
            f"register({cls.__qualname__}, {name!r}, version={version}): a name and a version from 1 are needed"
        )
    missing = [old for old in range(1, version) if old not in upgrade]
    if upgrade and missing:
        raise ValueError(f"register({cls.__qualname__}, {name!r}): upgrades from versions {missing} are missing")
    other = _by_name.get(name)
    if other is not None and _path(other.kind) != _path(cls):  # the same path is a module that was loaded anew
        raise ValueError(
            f"the name {name!r} belongs to {'.'.join(_path(other.kind))}: choose another for {cls.__qualname__}"
        )
    known = _by_type.get(cls)
    if known is not None and known.name != name:
        raise ValueError(f"{cls.__qualname__} is registered as {known.name!r} already, and stored data may name it so")


def _path(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _dump_and_load(cls: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How a type of a known kind is taken apart and put together."""
    if issubclass(cls, enum.Flag):
        return (lambda value: value.value), cls
    if issubclass(cls, enum.Enum):
        # Not `cls.__getitem__`: of a StrEnum that is the text's.
        return (lambda value: value.name), lambda name: cls[name]
    if issubclass(cls, msgspec.Struct):
        return msgspec.structs.asdict, lambda content: cls(**content)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
        return (lambda value: {name: getattr(value, name) for name in names}), lambda c: _restore_dataclass(cls, c)
    if hasattr(cls, "__pydantic_fields__"):
        return _pydantic_state, lambda content: _restore_pydantic(cls, content)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return (lambda value: value._asdict()), lambda content: cls(**content)
    raise ValueError(
        f"{cls.__qualname__} is not a dataclass, struct, pydantic model, enum or named tuple: pass dump= and load= too"
    )


def _restore_dataclass(cls: Any, content: Mapping[str, Any]) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    _refuse_unknown(content, fields)
    value = object.__new__(cls)
    for name, field in fields.items():
        if name in content:
            item = content[name]
        elif field.default is not dataclasses.MISSING:
            item = field.default
        elif field.default_factory is not dataclasses.MISSING:
            item = field.default_factory()
        else:
            raise KeyError(f"field {name!r} is missing")
        object.__setattr__(value, name, item)  # also right for frozen ones
    return value


def _pydantic_state(value: Any) -> dict[str, Any]:
    """Fields under their names; what else makes two models equal under names that no field can have."""
    state = value.__getstate__()
    out = dict(state["__dict__"])
    out["__set__"] = sorted(state["__pydantic_fields_set__"])
    for name in ("extra", "private"):
        part = state[f"__pydantic_{name}__"]
        if part is not None:
            out[f"__{name}__"] = dict(part)
    return out


def _restore_pydantic(cls: Any, content: Mapping[str, Any]) -> Any:
    values = {name: item for name, item in content.items() if not name.startswith("__")}
    _refuse_unknown(values, cls.__pydantic_fields__)
    for name, field in cls.__pydantic_fields__.items():
        if name not in values:
            if field.is_required():
                raise KeyError(f"field {name!r} is missing")
            values[name] = field.get_default(call_default_factory=True, validated_data=values)
    value = cls.__new__(cls)
    value.__setstate__(
        {
            "__dict__": values,
            "__pydantic_fields_set__": set(content.get("__set__", ())),
            "__pydantic_extra__": content.get("__extra__"),
            "__pydantic_private__": content.get("__private__"),
        }
    )
    return value


def _refuse_unknown(content: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    # Unknown fields are an error: dropping them would lose data with the next save.
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise KeyError(f"there is no field {unknown[0]!r}")
