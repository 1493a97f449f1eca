"""The common base of the quorum core's events and effects.

It has equality and text, for tests and messages. It is not a dataclass, because creating thirty dataclasses slows down
every start.
"""

from __future__ import annotations


class Step:
    """An immutable value, compared by its fields. `__slots__` names them."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # its fields may be unhashable

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"
