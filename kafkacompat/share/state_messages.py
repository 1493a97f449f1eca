"""The requests of the persister: how each is made of operations on share-partitions, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkacompat.api.share_services import ReadState, ShareError, StateBatch, StateSummary, WriteState
from kafkacompat.ids import NO_OFFSET
from kafkacompat.wire.messages import (
    delete_share_group_state_request,
    initialize_share_group_state_request,
    read_share_group_state_request,
    read_share_group_state_summary_request,
    write_share_group_state_request,
)

if TYPE_CHECKING:
    from kafkacompat.api.share_services import ShareCoordinatorService, SharePartitionKey
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import Uuid

BATCHES_TOGETHER_MAX = 1_000
"""State batches of writes that are sent as one."""
LIFE = "life"
"""The order of what makes a state and deletes it."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    name: str
    """As in Kafka's texts."""
    colon: str
    """Punctuation that Kafka has in one of the texts of some requests."""
    request: Callable[..., Any]
    topic: Callable[..., Any]
    partition: Callable[[int, Any], Any]
    """A request's partition of an operation's value."""
    taken: Callable[[Any], Any]
    """An operation's result of a response's partition without error."""
    refused: Callable[[ShareError], Any]
    ask: Callable[[ShareCoordinatorService, Any], Deferred[Any]]
    """Send the message to this node's own coordinator."""
    together: Callable[[Sequence[Any]], tuple[Any, int]] = lambda values: (values[0], same_prefix(values))
    """One value for the first of these operations on one share-partition, and how many it stands for."""
    line: str = ""
    """Operations with the same one are carried out in order, whatever their kinds. Without one, those of a kind are."""

    @property
    def order(self) -> str:
        return self.line or self.name

    def message(self, group_id: str, asked: Sequence[tuple[SharePartitionKey, Any]]) -> Any:
        topics: dict[Uuid, list[Any]] = {}
        for key, value in asked:
            topics.setdefault(key.topic_id, []).append(self.partition(key.partition, value))
        return self.request(
            group_id=group_id,
            topics=[
                self.topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )


def same_prefix(values: Sequence[Any]) -> int:
    """How many of the first operations are the same."""
    return next((n for n, value in enumerate(values) if value != values[0]), len(values))


def one_write(states: Sequence[WriteState]) -> tuple[WriteState, int]:
    """Writes of one leader that wait for each other, as one: the newest start offset with the batches of all. The
    coordinator combines them by their states, so their order is not needed."""
    first = states[0]
    batches, start_offset, count = list(first.batches), first.start_offset, 1
    for state in states[1:]:
        is_same = (state.state_epoch, state.leader_epoch) == (first.state_epoch, first.leader_epoch)
        if not is_same or len(batches) + len(state.batches) > BATCHES_TOGETHER_MAX:
            break
        batches += state.batches
        start_offset = start_offset if state.start_offset == NO_OFFSET else state.start_offset
        count += 1
    if count == 1:
        return first, 1
    complete = states[count - 1].delivery_complete_count
    return WriteState(first.state_epoch, first.leader_epoch, start_offset, complete, batches), count


def _initialized(partition: int, value: tuple[int, int]) -> Any:
    state_epoch, start_offset = value
    return initialize_share_group_state_request.PartitionData(
        partition=partition, state_epoch=state_epoch, start_offset=start_offset
    )


def _written(partition: int, state: WriteState) -> Any:
    return write_share_group_state_request.PartitionData(
        partition=partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=[
            write_share_group_state_request.StateBatch(
                first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count
            )
            for first, last, delivery, count in state.batches
        ],
    )


def _state(result: Any) -> ReadState:
    return ReadState(
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        batches=[
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ],
    )


def _summary(result: Any) -> StateSummary:
    return StateSummary(
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.delivery_complete_count,
    )


def _done(result: Any) -> ShareError:
    return ShareError()


def _same(error: ShareError) -> ShareError:
    return error


INITIALIZE = StateRequest(
    "initialize state",
    ":",
    initialize_share_group_state_request.InitializeShareGroupStateRequest,
    initialize_share_group_state_request.InitializeStateData,
    _initialized,
    _done,
    _same,
    lambda coordinator, message: coordinator.initialize_state(message),
    line=LIFE,
)
READ = StateRequest(
    "read state",
    "",
    read_share_group_state_request.ReadShareGroupStateRequest,
    read_share_group_state_request.ReadStateData,
    lambda partition, epoch: read_share_group_state_request.PartitionData(
        partition=partition, leader_epoch=epoch
    ),
    _state,
    ReadState,
    lambda coordinator, message: coordinator.read_state(message),
)
WRITE = StateRequest(
    "write state",
    ":",
    write_share_group_state_request.WriteShareGroupStateRequest,
    write_share_group_state_request.WriteStateData,
    _written,
    _done,
    _same,
    lambda coordinator, message: coordinator.write_state(message),
    one_write,
)
DELETE = StateRequest(
    "delete state",
    ":",
    delete_share_group_state_request.DeleteShareGroupStateRequest,
    delete_share_group_state_request.DeleteStateData,
    lambda partition, _: delete_share_group_state_request.PartitionData(partition=partition),
    _done,
    _same,
    lambda coordinator, message: coordinator.delete_state(message),
    line=LIFE,
)
READ_SUMMARY = StateRequest(
    "read state summary",
    "",
    read_share_group_state_summary_request.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary_request.ReadStateSummaryData,
    lambda partition, epoch: read_share_group_state_summary_request.PartitionData(
        partition=partition, leader_epoch=epoch
    ),
    _summary,
    StateSummary,
    lambda coordinator, message: coordinator.read_state_summary(message),
)
