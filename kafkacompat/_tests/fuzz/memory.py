"""What the author of hostile requests has learned from the answers: without true ids and epochs no request gets far.

Learns by the names of fields, and beside them the ids that belong together. Forgets what is old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkacompat.wire.message import Struct

KEPT = 6
"""Values of one name."""
SUBJECTS_KEPT = 8
LOOKED_AT_MAX = 60
"""Fields of an answer."""
ALIASES = {
    "leader": "member_id",
    "base_offset": "offset",
    "end_offset": "offset",
    "offset": "offset",
    "high_watermark": "offset",
    "last_stable_offset": "offset",
    "log_start_offset": "offset",
    "committed_offset": "offset",
    "low_watermark": "offset",
    "current_leader_epoch": "leader_epoch",
    "leader_epoch": "leader_epoch",
    "topic_id": "topic_id",
    "session_id": "session_id",
    "directory_id": "directory_id",
    "broker_epoch": "broker_epoch",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "coordinator_epoch": "coordinator_epoch",
    "partition_epoch": "partition_epoch",
    "protocol_name": "protocol_name",
    "member_epoch": "generation_id",
    "generation_id": "generation_id",
    "voter_directory_id": "directory_id",
    "replica_directory_id": "directory_id",
    "log_dir": "path",
}


class ProducerKnown(NamedTuple):
    transactional_id: str | None
    producer_id: int
    epoch: int


class MemberKnown(NamedTuple):
    group_id: str
    member_id: str
    generation_id: int


class Memory:
    aliases: Mapping[str, str] = ALIASES

    def __init__(self) -> None:
        self.values: dict[str, deque[Any]] = {}
        self.producers: deque[ProducerKnown] = deque(maxlen=SUBJECTS_KEPT)
        self.members: deque[MemberKnown] = deque(maxlen=SUBJECTS_KEPT)
        self.topics: dict[str, bytes] = {}
        """Ids by name."""
        self.next_sequences: dict[tuple[int, int, str, int], int] = {}
        """Of producer id, epoch, topic and partition."""

    def learn(self, request: Any, response: Any) -> None:
        """From what was asked and what was answered."""
        name = type(response).__name__
        self._walk(response, LOOKED_AT_MAX)
        if (name == "InitProducerIdResponse" and not response.error_code) or (
            name == "EndTxnResponse" and not response.error_code and response.producer_id >= 0
        ):
            self._producer(request.transactional_id, response.producer_id, response.producer_epoch)
        elif name == "JoinGroupResponse" and response.member_id:
            learn_member(self.members, request.group_id, response.member_id, response.generation_id)
        elif name == "MetadataResponse":
            for topic in response.topics:
                if topic.name and any(topic.topic_id):
                    self.topics[topic.name] = topic.topic_id

    def produced(self, key: tuple[int, int, str, int], following: int) -> None:
        """A batch of this producer was taken."""
        if len(self.next_sequences) > 200:
            self.next_sequences.clear()
        self.next_sequences[key] = following

    def _producer(self, transactional_id: str | None, producer_id: int, epoch: int) -> None:
        for known in list(self.producers):
            if known.producer_id == producer_id:
                self.producers.remove(known)
        self.producers.append(ProducerKnown(transactional_id, producer_id, epoch))

    def _walk(self, struct: Struct, budget: int) -> int:
        for name in struct.__slots__:
            value = getattr(struct, name)
            if type(value) is list:
                for item in value[:4]:
                    if budget <= 0:
                        return 0
                    if isinstance(item, Struct):
                        budget = self._walk(item, budget)
                continue
            if isinstance(value, Struct):
                budget = self._walk(value, budget)
                continue
            budget -= 1
            alias = self.aliases.get(name)
            if alias is None or value is None or value in ("", -1):
                continue
            known = self.values.get(alias)
            if known is None:
                known = self.values[alias] = deque(maxlen=KEPT)
            if value not in known:
                known.append(value)
        return budget


def learn_member(members: deque[MemberKnown], group_id: str, member_id: str, generation_id: int) -> None:
    for known in list(members):
        if known.member_id == member_id:
            members.remove(known)
    members.append(MemberKnown(group_id, member_id, generation_id))
