"""The base classes of the typed messages.

All generated messages and nested structs inherit their equality, representation and constants from here.
"""

from typing import Any, ClassVar

EMPTY: list[Any] = []
"""Means "a new empty list" as the default of a list argument. It is never changed and never stored in a message."""


class Struct:
    """A struct nested in a message. Equality and representation use its fields. Mutable and therefore not hashable."""

    __slots__: tuple[str, ...] = ()

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """The fields of the definition. A subclass that adds a slot of its own says which are."""
        return cls.__slots__

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.field_names())

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.field_names())
        return f"{type(self).__name__}({inner})"


class Encoded(bytes):
    """One element of a top-level array, already encoded for the version that will be sent.

    Made by `codec.encoded_element`. An encoder copies it unchanged. Only encoders may look at it.
    """

    __slots__ = ()


class Message(Struct):
    """A whole message: a request, response, header, or record key or value."""

    __slots__ = ()
    API_KEY: ClassVar[int | None] = None
    """The API's key, or the record's type. None for headers and data without one."""
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    """The first version with compact types and tagged fields. 32767 if there is none."""
    DEFINITION: ClassVar[str] = ""
    """The text of the definition. It comes with the class, so whoever has the class needs no further file for a codec."""
