"""The pattern of ListTransactions: a whole transactional id against a regular expression (KIP-1152).

Pattern to matcher, within bounds. Kafka's language is RE2's, as RE2/J has it. Python's own matcher is not used: there
`.*.*.*.*x` takes a time that rises with a power of the text's length, and a client must not hold up the broker with a
pattern.
"""

from __future__ import annotations

from collections.abc import Callable

PATTERN_LENGTH_MAX = 1_000
MEMORY_BYTES_MAX = 1 << 20
"""For the program and what is remembered while matching; a pattern that needs more is refused."""
PROGRAM_SIZE_MAX = 10_000
"""Instructions, with which the time for each character of an id rises; `a{100}` takes about a hundred, `.{100}` a thousand."""


class InvalidPattern(ValueError):
    """It is no regular expression, or one that is not taken."""


def id_matcher(pattern: str) -> Callable[[str], bool]:
    """A matcher whose time is linear in the text. Raises InvalidPattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(f"a pattern of {len(pattern)} characters")
    # Here, because few brokers are ever asked.
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from error
    finally:
        # It remembers 128 patterns, each with the memory that it may have.
        re2.purge()
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise InvalidPattern(f"a pattern of {compiled.programsize} instructions")
    return lambda text: compiled.fullmatch(text) is not None
