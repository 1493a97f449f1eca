"""Share sessions as members see them: what is fetched from one node, and the acknowledgements that it still has to get."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkacompat.ids import Uuid
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.clients import Key
from kafkacompat.sim.share_ledgers import RENEW
from kafkacompat.wire.messages import share_acknowledge_request as acknowledge
from kafkacompat.wire.messages import share_fetch_request as fetch

CLOSES = -1
"""The epoch of a session's last request."""


class Owed(NamedTuple):
    """An acknowledgement that the worker is going to send. `types`: one for all of the records, or one for each."""

    ready_us: int
    key: Key
    first: int
    last: int
    types: list[int]
    is_late: bool = False


class Session:
    """A share session with one node. Epoch 0: none is open."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.epoch = 0
        self.partitions: set[Key] = set()
        self.owed: list[Owed] = []
        self.is_busy = False
        """Whether a request is in flight."""

    def lose(self) -> int:
        """The session is over. Return how many records are not acknowledged."""
        count = sum(each.last - each.first + 1 for each in self.owed)
        self.epoch, self.partitions, self.owed = 0, set(), []
        return count

    def take_due(self, now_us: int | None) -> list[Owed]:
        """Take the acknowledgements that are due, in order. Of two for the same record, one waits for the next request.

        None: all of them are due.
        """
        taken, left = [], []
        ends: dict[Key, int] = {}
        for each in sorted(self.owed, key=lambda owed: (owed.key, owed.first)):
            is_early = now_us is not None and each.ready_us > now_us
            if is_early or each.first <= ends.get(each.key, -1):
                left.append(each)
                continue
            ends[each.key] = each.last
            taken.append(each)
        self.owed = left
        return taken

    def fetch_request(
        self,
        group_id: str,
        member_id: str,
        chance: Chance,
        wanted: set[Key],
        due: list[Owed],
        epoch: int,
    ) -> fetch.ShareFetchRequest:
        """A fetch of the wanted partitions with the acknowledgements that are due."""
        request = fetch.ShareFetchRequest(
            group_id=group_id,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=chance.randrange(250),
            min_bytes=1,
            max_bytes=(300, 2_000, 100_000)[chance.randrange(3)],
            max_records=chance.between(1, 30),
            batch_size=chance.between(1, 10),
            share_acquire_mode=chance.randrange(2),
        )
        partitions = {key: fetch.FetchPartition(partition_index=key[1]) for key in wanted - self.partitions}
        for each in due:
            one = partitions.setdefault(each.key, fetch.FetchPartition(partition_index=each.key[1]))
            one.acknowledgement_batches.append(_batch(fetch.AcknowledgementBatch, each))
        for topic_id, ones in _by_topic(partitions).items():
            request.topics.append(fetch.FetchTopic(topic_id=topic_id, partitions=ones))
        unwanted = {key: key[1] for key in self.partitions - wanted if key not in partitions}
        for topic_id, indexes in _by_topic(unwanted).items():
            request.forgotten_topics_data.append(fetch.ForgottenTopic(topic_id=topic_id, partitions=indexes))
        if any(RENEW in each.types for each in due):
            request.is_renew_ack = True
            request.max_wait_ms = request.min_bytes = request.max_bytes = request.max_records = 0
        self.partitions = (self.partitions | partitions.keys()) - unwanted.keys()
        return request


def acknowledge_request(
    group_id: str, member_id: str, due: list[Owed], epoch: int
) -> acknowledge.ShareAcknowledgeRequest:
    partitions: dict[Key, Any] = {}
    for each in due:
        one = partitions.setdefault(each.key, acknowledge.AcknowledgePartition(partition_index=each.key[1]))
        one.acknowledgement_batches.append(_batch(acknowledge.AcknowledgementBatch, each))
    return acknowledge.ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(RENEW in each.types for each in due),
        topics=[
            acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=ones)
            for topic_id, ones in _by_topic(partitions).items()
        ],
    )


def _batch(kind: Any, owed: Owed) -> Any:
    return kind(first_offset=owed.first, last_offset=owed.last, acknowledge_types=owed.types)


def types_of(owed: Owed) -> list[int]:
    return owed.types if len(owed.types) > 1 else owed.types * (owed.last - owed.first + 1)


def _by_topic(partitions: dict[Key, Any]) -> dict[Uuid, list[Any]]:
    topics: dict[Uuid, list[Any]] = {}
    for (topic_id, _), one in sorted(partitions.items(), key=lambda item: item[0]):
        topics.setdefault(topic_id, []).append(one)
    return topics
