"""How a simulated client reads the committed offsets of a group.

It asks until it gets an answer from a coordinator that still leads the group's partition when the answer arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, Uuid, partition_for_key
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import Client
from kafkacompat.sim.coordinated import Coordinated
from kafkacompat.sim.quorum_oracles import Breach
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
    topic = client.simulation.image_oracles.newest.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return -1, -1
    partition = topic.partitions[partition_for_key(group_id, len(topic.partitions))]
    return partition.leader, partition.leader_epoch


def read_offsets(
    client: Client,
    coordinator: Coordinated,
    group_id: str,
    topic: tuple[str, Uuid],
    partitions: Sequence[int],
    still: Callable[[], bool],
    asks: Callable[[], None],
    done: Callable[[dict[int, int]], None],
    member: tuple[str, int] | None = None,
    refused: Callable[[ErrorCode], bool] = lambda _: False,
) -> None:
    """`asks` is called before each request is sent. `done` gets partition -> number, -1 without a commit. `member`: id and
    epoch. `refused` gets an error that is not IN_DOUBT, and returns whether the member expects it."""
    asked_in = (-1, -1)

    def send() -> None:
        nonlocal asked_in
        if not still():
            return
        asks()
        asked_in = leads(client, group_id)
        named = OffsetFetchRequestTopics(name=topic[0], topic_id=topic[1], partition_indexes=list(partitions))
        group = OffsetFetchRequestGroup(group_id=group_id, topics=[named])
        if member is not None:
            group.member_id, group.member_epoch = member
        coordinator.send(OffsetFetchRequest(groups=[group]), still, answered)

    def answered(sent: Deferred[Any]) -> None:
        try:
            (group,) = sent.result().groups
        except ChannelError:
            again(ErrorCode.REQUEST_TIMED_OUT)
            return
        rows = [row for each in group.topics for row in each.partitions]
        error = ErrorCode(next((row.error_code for row in rows if row.error_code), group.error_code))
        if error is not ErrorCode.NONE:
            again(error)
        elif asked_in != leads(client, group_id) or asked_in[0] != coordinator.node_id:
            again(ErrorCode.NOT_COORDINATOR)
        else:
            done({row.partition_index: row.committed_offset for row in rows})

    def again(error: ErrorCode) -> None:
        if error not in IN_DOUBT:
            if refused(error):
                return
            raise Breach("members are understood", f"OffsetFetch of {group_id} is answered {error.name}")
        coordinator.forget()
        client.later(send)

    send()
