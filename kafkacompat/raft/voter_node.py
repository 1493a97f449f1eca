"""The voter set of the metadata quorum, as in the Voters control record and the static setting.

It has identities and addresses, but no roles. Follows KIP-853. In a static quorum (controller.quorum.voters) directory
ids are ZERO.
"""

from __future__ import annotations

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid


@dataclass(frozen=True, slots=True)
class VoterNode:
    id: int
    directory_id: Uuid
    listeners: tuple[tuple[str, str, int], ...] = ()
    """(listener name, host, port), the default controller listener first."""
    min_kraft_version: int = 0
    max_kraft_version: int = 1
