"""How many topics the member of a consumer or share group may name."""

from __future__ import annotations

from collections.abc import Sequence

NAMES_MAX = 50_000
NAMES_LENGTH_MAX = 524_288
"""Characters of all names. Each name takes the loop for a microsecond or more. Kafka too refuses a subscription that does
not fit into a record, with the same error."""


def are_too_many(names: Sequence[str] | None) -> bool:
    return names is not None and (len(names) > NAMES_MAX or sum(map(len, names)) > NAMES_LENGTH_MAX)
