"""The `quorum-state` file: the durable part of a raft role, in Kafka's two versions.

Version 0 belongs to kraft.version 0 (static quorum), version 1 to kraft.version 1 (KIP-853). This module handles the
text only.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text

QUORUM_STATE_FILE = "quorum-state"


@dataclass(frozen=True, slots=True)
class ElectionState:
    """Leader and vote in an epoch. -1 and ZERO_UUID mean none."""

    leader_epoch: int = 0
    leader_id: int = -1
    voted_id: int = -1
    voted_directory_id: Uuid = ZERO_UUID
    voters: tuple[int, ...] = field(default=())
    """Only in version 0."""


class BrokenElectionState(Exception):
    """The file exists but is not a quorum state. The message describes the flaw."""


def parse_election_state(data: bytes) -> ElectionState:
    try:
        content: Any = json.loads(data)
        version = content["data_version"]
        if version not in (0, 1):
            raise BrokenElectionState(f"quorum-state has data_version {version!r}; 0 and 1 are known")
        return ElectionState(
            leader_epoch=int(content["leaderEpoch"]),
            leader_id=int(content["leaderId"]),
            voted_id=int(content["votedId"]),
            voted_directory_id=uuid_from_text(content["votedDirectoryId"]) if version == 1 else ZERO_UUID,
            voters=tuple(int(voter["voterId"]) for voter in content.get("currentVoters") or ()),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenElectionState(f"quorum-state is not readable: {error!r}") from error


def format_election_state(state: ElectionState, kraft_version: int) -> bytes:
    content: dict[str, Any]
    if kraft_version == 0:
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.voters],
            "data_version": 0,
        }
    else:
        content = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_to_text(state.voted_directory_id),
            "data_version": 1,
        }
    return json.dumps(content, separators=(",", ":")).encode("ascii")
