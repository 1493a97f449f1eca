"""The voter set of the metadata quorum, as the Voters control record and the static setting carry it.

Knows identities and addresses, not roles. Follows KIP-853; a static quorum (controller.quorum.voters) has ZERO directory ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkacompat.ids import Uuid


@dataclass(frozen=True, slots=True)
class VoterNode:
    id: int
    directory_id: Uuid
    listeners: tuple[tuple[str, str, int], ...] = ()
    """(listener name, host, port), the default controller listener first."""
    min_kraft_version: int = 0
    max_kraft_version: int = 1
