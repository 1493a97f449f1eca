"""What the members of all simulated groups have in common, and how clients commit offsets and read them.

A reader asks until it gets an answer from a coordinator that still leads the group's partition when the answer arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, Uuid, partition_for_key
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import Client, CoordinatorConnection
from kafkacompat.sim.cluster_options import TOPIC
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.group_oracles import GroupHistory
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

HEARTBEAT_MS, AWAY_MS = 150, 1_500
GROUP_SESSION_MS = 800


class GroupClient(Client):
    """A client that knows its topics from Metadata."""

    def topic(self) -> tuple[Uuid, int] | None:
        """Return the id and number of partitions of the topic that is always there. None while they are unknown."""
        return self.layout([TOPIC]).get(TOPIC)

    def layout(self, topics: Iterable[str]) -> dict[str, tuple[Uuid, int]]:
        """Return the id and number of partitions of those of these topics that are known."""
        wanted, found = set(topics), dict[str, tuple[Uuid, int]]()
        for place in self.places.values():
            if place.topic in wanted and not self.env.metadata.is_deleted(place.key):
                count = found[place.topic][1] if place.topic in found else 0
                found[place.topic] = place.topic_id, count + 1
        return found


def by_topic(keys: Iterable[Key]) -> dict[Uuid, list[int]]:
    """Partitions by their topics' ids, in order."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(keys):
        topics.setdefault(topic_id, []).append(index)
    return topics


def commit_request(
    group_id: str,
    numbers: Mapping[Key, int],
    generation: int,
    member_id: str,
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Topics are told by their ids."""
    topics = [
        OffsetCommitRequestTopic(
            topic_id=topic_id,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=numbers[topic_id, index])
                for index in indexes
            ],
        )
        for topic_id, indexes in by_topic(numbers).items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


def commit_errors(done: Deferred[Any], keys: Iterable[Key]) -> dict[Key, ErrorCode]:
    """Return the error of each partition. Without an answer, REQUEST_TIMED_OUT."""
    try:
        topics = done.result().topics
    except ChannelError:
        return dict.fromkeys(keys, ErrorCode.REQUEST_TIMED_OUT)
    return {
        (topic.topic_id, row.partition_index): ErrorCode(row.error_code)
        for topic in topics
        for row in topic.partitions
    }


def commit_error(done: Deferred[Any]) -> ErrorCode:
    """Return the first error of any partition, or NONE. Without an answer, REQUEST_TIMED_OUT."""
    try:
        rows = [row for topic in done.result().topics for row in topic.partitions]
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode(next((row.error_code for row in rows if row.error_code), 0))


IN_DOUBT = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""After these errors it is unknown whether the request was carried out, or it must be repeated. A client expects no
other errors."""


def leads(client: Client, group_id: str) -> tuple[int, int]:
    """Return the leader of the group's partition and its leader epoch. (-1, -1) without one."""
    topic = client.env.metadata.newest.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return -1, -1
    partition = topic.partitions[partition_for_key(group_id, len(topic.partitions))]
    return partition.leader, partition.leader_epoch


def read_offsets(
    client: Client,
    coordinator: CoordinatorConnection,
    ledger: GroupHistory,
    keys: Callable[[], Iterable[Key]],
    still: Callable[[], bool],
    done: Callable[[], None],
    member: tuple[str, int] | None = None,
    refused: Callable[[ErrorCode], bool] = lambda _: False,
) -> None:
    """`keys` is called before each request is sent. The ledger gets the numbers of those partitions whose topic was not
    deleted meanwhile, -1 without a commit, and what was settled when they were asked for. `member`: id and epoch. `refused`
    gets an error that is not IN_DOUBT, and returns whether the member expects it."""
    group_id = ledger.group_id
    asked_in = (-1, -1)
    asked_when: dict[Hashable, int] = {}

    def send() -> None:
        nonlocal asked_in, asked_when
        if not still():
            return
        asked = by_topic(key for key in keys() if not client.env.metadata.is_deleted(key))
        if not asked:
            found({})
            return
        asked_when = dict(ledger.settled)
        asked_in = leads(client, group_id)
        topics = [
            OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)
            for topic_id, indexes in asked.items()
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        if member is not None:
            group.member_id, group.member_epoch = member
        coordinator.send(OffsetFetchRequest(groups=[group]), still, answered)

    def answered(sent: Deferred[Any]) -> None:
        try:
            (group,) = sent.result().groups
        except ChannelError:
            again(ErrorCode.REQUEST_TIMED_OUT)
            return
        rows = {
            (topic.topic_id, row.partition_index): row
            for topic in group.topics
            if not client.env.metadata.is_deleted((topic.topic_id, 0))
            for row in topic.partitions
        }
        error = ErrorCode(next((row.error_code for row in rows.values() if row.error_code), group.error_code))
        if error is not ErrorCode.NONE:
            again(error)
        elif asked_in != leads(client, group_id) or asked_in[0] != coordinator.node_id:
            again(ErrorCode.NOT_COORDINATOR)
        else:
            found({key: row.committed_offset for key, row in rows.items()})

    def found(numbers: dict[Key, int]) -> None:
        ledger.fetched(asked_when, numbers)
        done()

    def again(error: ErrorCode) -> None:
        if error not in IN_DOUBT:
            if refused(error):
                return
            raise Breach("members are understood", f"OffsetFetch of {group_id} is answered {error.name}")
        coordinator.forget()
        client.later(send)

    send()
