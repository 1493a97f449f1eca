"""How a simulated client reads the committed offsets of a group.

It asks until it gets an answer from a coordinator that still leads the group's partition when the answer arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, partition_for_key
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import Client
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.coordinated import Coordinated
from kafkacompat.sim.group_commits import by_topic
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

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
    coordinator: Coordinated,
    group_id: str,
    keys: Callable[[], Iterable[Key]],
    still: Callable[[], bool],
    asks: Callable[[], None],
    done: Callable[[dict[Key, int]], None],
    member: tuple[str, int] | None = None,
    refused: Callable[[ErrorCode], bool] = lambda _: False,
) -> None:
    """`keys` is called before each request is sent, and then `asks`. `done` gets the numbers of those partitions whose topic
    was not deleted meanwhile, -1 without a commit. `member`: id and epoch. `refused` gets an error that is not IN_DOUBT, and
    returns whether the member expects it."""
    asked_in = (-1, -1)

    def send() -> None:
        nonlocal asked_in
        if not still():
            return
        asked = by_topic(key for key in keys() if not client.env.metadata.is_deleted(key))
        if not asked:
            done({})
            return
        asks()
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
            done({key: row.committed_offset for key, row in rows.items()})

    def again(error: ErrorCode) -> None:
        if error not in IN_DOUBT:
            if refused(error):
                return
            raise Breach("members are understood", f"OffsetFetch of {group_id} is answered {error.name}")
        coordinator.forget()
        client.later(send)

    send()
