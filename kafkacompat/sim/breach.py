"""What an oracle finds."""

from __future__ import annotations


class Breach(Exception):
    """A violation found by an oracle. `oracle` is its short name, the same for every seed."""

    def __init__(self, oracle: str, message: str) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle
