"""The pattern of ListTransactions: a regular expression that must match a whole transactional id (KIP-1152).

It compiles a pattern to a matcher within bounds. As in Kafka, which uses RE2/J, the language is RE2's. Python's own
matcher is not used: for `.*.*.*.*x` its time grows with a power of the text's length, and a client must not block the
broker with a pattern.
"""

from __future__ import annotations

from collections.abc import Callable

PATTERN_LENGTH_MAX = 1_000
MEMORY_BYTES_MAX = 1 << 20
"""For the program and the matcher's cache. A pattern that needs more is refused."""
PROGRAM_SIZE_MAX = 10_000
"""Instructions. The time per character of an id grows with them. `a{100}` takes about a hundred, `.{100}` a thousand."""


class InvalidPattern(ValueError):
    """The pattern is not a regular expression, or exceeds a bound."""


def id_matcher(pattern: str) -> Callable[[str], bool]:
    """A matcher whose time is linear in the text. Raises InvalidPattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(f"a pattern of {len(pattern)} characters")
    # Imported here, because few brokers need it.
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from error
    finally:
        # re2 caches 128 patterns, each with its full memory allowance.
        re2.purge()
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise InvalidPattern(f"a pattern of {compiled.programsize} instructions")
    return lambda text: compiled.fullmatch(text) is not None
