"""The pattern of ListTransactions: a whole transactional id against a regular expression (KIP-1152).

Duty: pattern to matcher, within bounds. Must not know: ids, requests. Python's own matcher is not used: there
`.*.*.*.*x` takes a time that rises with a power of the text's length, and a client must not hold up the broker with a pattern.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.txn.pattern_program import Program
from kafkacompat.txn.pattern_syntax import Reader
from kafkacompat.txn.pattern_tree import InvalidPattern

__all__ = ["PATTERN_LENGTH_MAX", "InvalidPattern", "id_matcher"]

PATTERN_LENGTH_MAX = 1_000


def id_matcher(pattern: str) -> Callable[[str], bool]:
    """Raises InvalidPattern, and so does the matcher where a pattern takes more steps than are given to one."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(f"a pattern of {len(pattern)} characters")
    return Program(Reader(pattern).tree()).matches
