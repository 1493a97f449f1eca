"""What the quorum core's events and effects have in common.

Equality and text, for tests and messages to people. Not a dataclass, since making thirty of those is felt at every start.
"""

from __future__ import annotations


class Step:
    """A value by its fields, which nobody changes. `__slots__` names them."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # its fields need not have one

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"
