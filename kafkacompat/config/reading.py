"""What a part needs to read its settings."""

from __future__ import annotations

from typing import Protocol


class Settings(Protocol):
    def get_int(self, name: str) -> int: ...

    def get_boolean(self, name: str) -> bool: ...

    def get_string(self, name: str) -> str | None: ...

    def get_list(self, name: str) -> tuple[str, ...]: ...
