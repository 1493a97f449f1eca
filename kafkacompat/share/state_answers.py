"""What differs between the five requests for the state of share-partitions: their messages, and how each is asked and
answered for one share-partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkacompat.api.share_services import ReadState, ShareError, StateBatch, StateSummary, WriteState
from kafkacompat.share.state.operations import (
    Decision,
    Initialization,
    delete_state,
    initialize_state,
    read_state,
    read_state_summary,
    write_state,
)
from kafkacompat.wire.messages import (
    delete_share_group_state_response,
    initialize_share_group_state_response,
    read_share_group_state_response,
    read_share_group_state_summary_response,
    write_share_group_state_response,
)

if TYPE_CHECKING:
    from kafkacompat.api.share_services import SharePartitionKey
    from kafkacompat.share.state.share_coordinator_shard import ShareCoordinatorShard

PARTITION_COST = 60
"""Cost of the operation for one share-partition, its record included."""
BATCH_COST = 4
PARTITION_BYTES, BATCH_BYTES = 100, 21
"""An upper bound of what a share-partition and one of its batches take in a record, without the group's name."""


@dataclass(frozen=True, slots=True)
class StateApi:
    """`asked` takes the value of an operation from a request's partition."""

    verb: str
    """As in Kafka's texts."""
    operation: Callable[[ShareCoordinatorShard, SharePartitionKey, Any, int], Decision[Any]]
    asked: Callable[[Any], Any]
    fields: Callable[[Any], dict[str, Any]]
    """The fields of a response's partition for an operation's answer without error."""
    refused: Callable[[ShareError], Any]
    """The answer of an operation that could not be carried out."""
    response: Callable[..., Any]
    topic_result: Callable[..., Any]
    partition_result: Callable[..., Any]

    def answered(self, partition: int, answer: Any) -> Any:
        error: ShareError = answer if isinstance(answer, ShareError) else answer.error
        if error.code:
            return self.error(partition, error)
        return self.partition_result(partition=partition, **self.fields(answer))

    def error(self, partition: int, error: ShareError) -> Any:
        return self.partition_result(partition=partition, error_code=error.code, error_message=error.message)


def _batches(partition: Any) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in partition.state_batches
    ]


def _write(partition: Any) -> WriteState:
    return WriteState(
        partition.state_epoch,
        partition.leader_epoch,
        partition.start_offset,
        partition.delivery_complete_count,
        _batches(partition),
    )


def _state(state: ReadState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": [
            read_share_group_state_response.StateBatch(
                first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count
            )
            for first, last, delivery, count in state.batches
        ],
    }


def _summary(summary: StateSummary) -> dict[str, Any]:
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.delivery_complete_count,
    }


def _nothing(_: Any) -> dict[str, Any]:
    return {}


def _same(error: ShareError) -> ShareError:
    return error


INITIALIZE = StateApi(
    "initialize share group state",
    initialize_state,
    lambda partition: Initialization(partition.state_epoch, partition.start_offset),
    _nothing,
    _same,
    initialize_share_group_state_response.InitializeShareGroupStateResponse,
    initialize_share_group_state_response.InitializeStateResult,
    initialize_share_group_state_response.PartitionResult,
)
READ = StateApi(
    "read share group state",
    read_state,
    lambda partition: partition.leader_epoch,
    _state,
    ReadState,
    read_share_group_state_response.ReadShareGroupStateResponse,
    read_share_group_state_response.ReadStateResult,
    read_share_group_state_response.PartitionResult,
)
WRITE = StateApi(
    "write share group state",
    write_state,
    _write,
    _nothing,
    _same,
    write_share_group_state_response.WriteShareGroupStateResponse,
    write_share_group_state_response.WriteStateResult,
    write_share_group_state_response.PartitionResult,
)
DELETE = StateApi(
    "delete share group state",
    delete_state,
    lambda partition: None,
    _nothing,
    _same,
    delete_share_group_state_response.DeleteShareGroupStateResponse,
    delete_share_group_state_response.DeleteStateResult,
    delete_share_group_state_response.PartitionResult,
)
READ_SUMMARY = StateApi(
    "read share group state summary",
    read_state_summary,
    lambda partition: partition.leader_epoch,
    _summary,
    StateSummary,
    read_share_group_state_summary_response.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary_response.ReadStateSummaryResult,
    read_share_group_state_summary_response.PartitionResult,
)
