"""`@dataclass` of the standard library, whose methods are compiled when they are first called.

The standard library writes the text of six methods for each class and compiles them while the module is imported: a
fifth of a start, for methods of which most are never called. Here `__init__`, `__eq__` and `__hash__` are compiled at
their first call, into the same code, and the others are shared. Everything else is the standard library's: fields,
slots, `field`, `fields` and `replace`. mypy reads the decorator as the standard library's.

It has the options that nodes use. Whoever needs `order`, `kw_only` or `InitVar` takes the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        return _dataclass(cls, **options) if cls is not None else lambda cls: _dataclass(cls, **options)


_DEFAULT = object()
"""Stands for the default of a field that is made anew for each instance."""


def _dataclass(
    cls: type, *, frozen: bool = False, eq: bool = True, slots: bool = False, weakref_slot: bool = False
) -> Any:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # the standard library would write the signature, which takes long
    own = cls.__dict__
    has_eq, has_repr, has_hash = "__eq__" in own, "__repr__" in own, own.get("__hash__") is not None
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, weakref_slot=weakref_slot
    )(cls)
    if "__init__" not in own:
        _compile_later(made, "__init__", _text_of_init(frozen=frozen))
    if not has_repr:
        made.__repr__ = _repr
    if eq:
        if not has_eq:
            _compile_later(made, "__eq__", _text_of_eq)
        if frozen and not has_hash:
            _compile_later(made, "__hash__", _text_of_hash)
        elif not has_hash:
            made.__hash__ = None
    if frozen:
        _freeze(made)
        if slots and "__getstate__" not in own:
            made.__getstate__, made.__setstate__ = _getstate, _setstate
    return made


def _compile_later(cls: type, name: str, text_of: Callable[[type, dict[str, Any]], str]) -> None:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        names: dict[str, Any] = {}
        exec(text_of(cls, names), names)  # noqa: S102  # of names of fields
        compiled = names[name]
        compiled.__qualname__ = f"{cls.__qualname__}.{name}"
        compiled.__module__ = cls.__module__
        setattr(cls, name, compiled)
        return compiled(self, *arguments, **named)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)


def _text_of_init(*, frozen: bool) -> Callable[[type, dict[str, Any]], str]:
    def text(cls: Any, names: dict[str, Any]) -> str:
        parameters, lines = ["self"], []
        names["_DEFAULT"], names["_set"] = _DEFAULT, object.__setattr__
        for each in dataclasses.fields(cls):
            name, value = each.name, each.name
            given, made = f"_default_{name}", f"_new_{name}"
            if each.default_factory is not dataclasses.MISSING:
                names[made] = each.default_factory
                parameter = f"{name}=_DEFAULT"
                value = f"{made}() if {name} is _DEFAULT else {name}" if each.init else f"{made}()"
            elif each.default is not dataclasses.MISSING:
                names[given] = each.default
                parameter = f"{name}={given}"
                value = name if each.init else given
            else:
                parameter = name
                if not each.init:
                    continue
            if each.init:
                parameters.append(parameter)
            lines.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        return f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])

    return text


def _compared(cls: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(cls) if each.compare]


def _text_of_eq(cls: type, names: dict[str, Any]) -> str:
    mine, others = ("".join(f"{owner}.{name}, " for name in _compared(cls)) for owner in ("self", "other"))
    return (
        "def __eq__(self, other):\n"
        f" if other.__class__ is self.__class__: return ({mine}) == ({others})\n"
        " return NotImplemented"
    )


def _text_of_hash(cls: Any, names: dict[str, Any]) -> str:
    hashed = [
        each.name for each in dataclasses.fields(cls) if (each.compare if each.hash is None else each.hash)
    ]
    return f"def __hash__(self): return hash(({''.join(f'self.{name}, ' for name in hashed)}))"


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr
    )
    return f"{type(self).__qualname__}({values})"


def _freeze(cls: Any) -> None:
    names = {each.name for each in dataclasses.fields(cls)}

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
