"""The order in which a HashSet of Java gives its texts. Ids of subscriptions depend on it, and brokers must agree on them.

Texts whose hashes meet stay in the order in which they came, as long as there are few of them.
"""

from __future__ import annotations

from collections.abc import Sequence

CAPACITY_MIN = 16
MASK = 0xFFFFFFFF


def hash_code(text: str) -> int:
    """String.hashCode, without a sign: over the UTF-16 code units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & MASK
    return code


def in_hash_order(texts: Sequence[str], *, at_once: bool = False, spare: int = 0) -> list[str]:
    """The different texts, in the order of a HashSet to which they were added one by one, or that was made of them.

    A set that is made of a list may have more room than one to which as many texts were added. `spare`: the room is for
    so many more.
    """
    different = list(dict.fromkeys(texts))
    capacity = CAPACITY_MIN
    while at_once and capacity < 4 * len(texts) // 3 + 1:
        capacity *= 2
    while 4 * (len(different) + spare) > 3 * capacity:  # it grows when more than three quarters are in use
        capacity *= 2

    def place(text: str) -> int:
        code = hash_code(text)
        return (code ^ code >> 16) & capacity - 1

    return sorted(different, key=place)
