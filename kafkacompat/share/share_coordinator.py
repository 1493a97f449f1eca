"""The share coordinator of this node: share.service.ShareCoordinatorService.

It finds the shard of each share-partition that a request names, runs the operations there, prunes the topic and
snapshots cold share-partitions. Follows Kafka's ShareCoordinatorService. Share-partitions of one request that are in
one shard are written as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.config.keys import Settings
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES, LoadCosts
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.coordinator.shard import Shard, ShardSettings, ShardTimers
from kafkacompat.coordinator.shards import Shards
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import report
from kafkacompat.ids import SHARE_STATE_TOPIC, Uuid
from kafkacompat.meters import RecentTimes
from kafkacompat.quota.rate import Counted
from kafkacompat.share.service import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateBatch,
    StateSummary,
    WriteState,
)
from kafkacompat.share.state.share_coordinator_shard import (
    Decision,
    Environment,
    Initialization,
    ShareCoordinatorShard,
    batches_if_due,
    delete_state,
    initialize_state,
    machine_of,
    read_state,
    read_state_summary,
    write_state,
)
from kafkacompat.share.state_sweeps import ShareSweeps
from kafkacompat.tasks import in_turns
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages import (
    delete_share_group_state_response,
    initialize_share_group_state_response,
    read_share_group_state_response,
    read_share_group_state_summary_response,
    write_share_group_state_response,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.wire.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
    from kafkacompat.wire.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
    from kafkacompat.wire.messages.initialize_share_group_state_request import (
        InitializeShareGroupStateRequest,
    )
    from kafkacompat.wire.messages.initialize_share_group_state_response import (
        InitializeShareGroupStateResponse,
    )
    from kafkacompat.wire.messages.read_share_group_state_request import ReadShareGroupStateRequest
    from kafkacompat.wire.messages.read_share_group_state_response import ReadShareGroupStateResponse
    from kafkacompat.wire.messages.read_share_group_state_summary_request import (
        ReadShareGroupStateSummaryRequest,
    )
    from kafkacompat.wire.messages.read_share_group_state_summary_response import (
        ReadShareGroupStateSummaryResponse,
    )
    from kafkacompat.wire.messages.write_share_group_state_request import WriteShareGroupStateRequest
    from kafkacompat.wire.messages.write_share_group_state_response import WriteShareGroupStateResponse

TOGETHER_BYTES_MAX = 16_384
"""Bytes of records that are written as one batch, except for a single record."""
LOAD_COSTS = LoadCosts(record=30, large_value_bytes=1_024)
"""An update is combined with the state before it, and 50 batches fit into a kilobyte."""
NOT_ACTIVE = ShareError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Share coordinator is not available.")
_ANSWER_COST = 3


Answers = dict[Uuid, dict[int, Any]]
"""By topic id and partition: an operation's answer, or a _One that has it later."""
PARTITION_COST = 60
"""Cost of the operation for one share-partition, its record included."""
BATCH_COST = 4
PARTITION_BYTES, BATCH_BYTES = 100, 21
"""An upper bound of what a share-partition and one of its batches take in a record, without the group's name."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    """Times in ms, sizes in bytes."""

    updates_per_snapshot: int = 500
    write_timeout_ms: int = 5_000
    compression: int = 0
    """share.coordinator.state.topic.compression.codec, as in a batch's attributes."""
    prune_interval_ms: int = 300_000
    cold_interval_ms: int = 300_000
    load_step_bytes: int = LOAD_STEP_BYTES


class _Together:
    """Share-partitions of one shard, to be written as one batch."""

    __slots__ = ("asked", "keys", "size")

    def __init__(self) -> None:
        self.asked: list[tuple[SharePartitionKey, Any]] = []
        self.keys: set[SharePartitionKey] = set()
        self.size = 0


class ShareCoordinator:
    def __init__(
        self,
        services: CoordinatorServices,
        settings: ShareCoordinatorSettings,
    ) -> None:
        """Serves nothing before `start`."""
        self._clock = services.clock
        self._tasks = services.tasks
        self._settings = settings
        self._image: MetadataImage | None = None
        self.write_times = RecentTimes()
        """Of requests that write states."""
        self.writes = Counted()
        """States written, and reads that recorded a newer leader."""
        self._shards = Shards(
            services,
            ShardSettings(
                SHARE_STATE_TOPIC,
                settings.write_timeout_ms,
                settings.compression,
                load_step_bytes=settings.load_step_bytes,
                load_costs=LOAD_COSTS,
                # As in Kafka nothing is answered from, or pruned for, records that an earlier leader did not commit.
                is_patient=True,
            ),
            self._make_machine,
            lambda shard: self.sweeps.drop_topics(shard),
        )
        self.load_times = self._shards.load_times
        self._env = Environment(
            partition_count=self._partition_count,
            updates_per_snapshot=settings.updates_per_snapshot,
            cold_interval_ms=settings.cold_interval_ms,
        )
        self._active = False
        self.sweeps = ShareSweeps(services.clock, services.tasks, self._shards, services.partitions)

    # --- life

    def start(self) -> None:
        self._active = True
        self.sweeps.start(self._settings.prune_interval_ms, self._settings.cold_interval_ms)

    def stop(self) -> None:
        """Stop serving."""
        self._active = False
        self.sweeps.stop()
        self._shards.close()

    def shard_states(self) -> list[str]:
        return self._shards.states()

    def is_active(self) -> bool:
        return self._active

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partition service has applied the same image, because that must know the logs it leads."""
        self._image = new
        self._shards.on_image(old, new)
        self.sweeps.on_image(old, new)

    def partition_for(self, coordinator_key: str) -> int:
        """Raises OperationRefused COORDINATOR_NOT_AVAILABLE while the topic does not exist."""
        return self._shards.partition_for(coordinator_key)

    def _make_machine(self, partition: int, epoch: int, timers: ShardTimers) -> ShareCoordinatorShard:
        return ShareCoordinatorShard(self._env)

    def _partition_count(self, topic_id: Uuid) -> int | None:
        topic = None if self._image is None else self._image.topics_by_id.get(topic_id)
        return None if topic is None else len(topic.partitions)

    # --- requests

    def initialize_state(
        self, request: InitializeShareGroupStateRequest
    ) -> Deferred[InitializeShareGroupStateResponse]:
        return self._serve(INITIALIZE, request, without_partitions=True)

    def read_state(self, request: ReadShareGroupStateRequest) -> Deferred[ReadShareGroupStateResponse]:
        return self._serve(READ, request)

    def write_state(self, request: WriteShareGroupStateRequest) -> Deferred[WriteShareGroupStateResponse]:
        return self._serve(WRITE, request)

    def delete_state(self, request: DeleteShareGroupStateRequest) -> Deferred[DeleteShareGroupStateResponse]:
        return self._serve(DELETE, request)

    def read_state_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> Deferred[ReadShareGroupStateSummaryResponse]:
        return self._serve(READ_SUMMARY, request)

    def _serve(self, api: StateApi, request: Any, without_partitions: bool = False) -> Deferred[Any]:
        """An empty response if the request names no group, no topic, or a topic without partitions, as in Kafka."""
        if not self._active:
            return Deferred.of(refusal(api, request, NOT_ACTIVE))
        is_whole = without_partitions or all(topic.partitions for topic in request.topics)
        if not request.group_id or not request.topics or not is_whole:
            return Deferred.of(api.response())
        return self._tasks.run(f"carrying out a request to {api.verb}", self._answer(api, request))

    async def _answer(self, api: StateApi, request: Any) -> Any:
        began_ms = self._clock.monotonic_ms()
        try:
            answers = await in_turns(self._carry_out(api, request))
            await when_all_done(_written_together(answers))
            return await in_turns(_respond(api, answers))
        finally:
            if api is WRITE:
                now_ms = self._clock.monotonic_ms()
                self.write_times.note(now_ms - began_ms, now_ms)

    def _carry_out(self, api: StateApi, request: Any) -> Generator[int, None, Answers]:
        """Of a share-partition that is named twice the last answer counts."""
        answers: Answers = {}
        waiting: dict[int, _Together] = {}
        for topic in request.topics:
            of_topic = answers.setdefault(topic.topic_id, {})
            for partition in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition)
                batches = len(getattr(partition, "state_batches", ()))
                size = len(key.group_id) * 3 + PARTITION_BYTES + batches * BATCH_BYTES
                try:
                    shard = self._shards.partition_for(key.coordinator_key)
                    size += self._batches_of_snapshot(api, shard, key) * BATCH_BYTES
                except OperationRefused:  # without the topic no node is the coordinator
                    of_topic[key.partition] = api.refused(
                        _told(api, OperationRefused(ErrorCode.NOT_COORDINATOR))
                    )
                    yield _ANSWER_COST
                    continue
                together = waiting.get(shard)
                if together is not None and (
                    key in together.keys or together.size + size > TOGETHER_BYTES_MAX
                ):
                    self._write(api, shard, together, answers)
                    together = None
                if together is None:
                    together = waiting[shard] = _Together()
                together.asked.append((key, api.asked(partition)))
                together.keys.add(key)
                together.size += size
                yield PARTITION_COST + batches * BATCH_COST
        for shard, together in waiting.items():
            self._write(api, shard, together, answers)
            yield PARTITION_COST
        return answers

    def _batches_of_snapshot(self, api: StateApi, partition: int, key: SharePartitionKey) -> int:
        """How many batches the record has besides those of the request, because it is a snapshot."""
        shard = self._shards.get(partition)
        if shard is None or not (api is WRITE or api is READ):
            return 0
        return batches_if_due(machine_of(shard), key)

    def _write(self, api: StateApi, partition: int, together: _Together, answers: Answers) -> None:
        refused = partial(_refused, api, together.asked)
        answer: Deferred[list[Any]]
        try:
            shard = self._shards.shard_for(together.asked[0][0].coordinator_key)
            answer = shard.write(lambda now_ms: self._decide(api, shard, together.asked, now_ms))
        except OperationRefused as refusal:
            answer = Deferred.of(refused(refusal))
        except Exception as error:
            report(f"carrying out a request to {api.verb}", error)
            answer = Deferred.of(refused(OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)))
        for position, (key, _) in enumerate(together.asked):
            answers[key.topic_id][key.partition] = _One(answer, position, refused)

    def _decide(
        self, api: StateApi, shard: Shard, asked: list[tuple[SharePartitionKey, Any]], now_ms: int
    ) -> CoordinatorResult[Any, list[Any]]:
        machine = machine_of(shard)
        records, found = [], []
        for key, value in asked:
            record, answer = api.operation(machine, key, value, now_ms)
            if record is not None:
                records.append(record)
            found.append(answer)
        if api is WRITE or api is READ:
            number = len(asked) if api is WRITE else len(records)
            self.writes.note(self._clock.monotonic_ms(), number)
        return CoordinatorResult(tuple(records), found)


class _One:
    """The answer for one share-partition among those that were written together."""

    __slots__ = ("answer", "position", "refused")

    def __init__(self, answer: Deferred[list[Any]], position: int, refused: Any) -> None:
        self.answer = answer
        self.position = position
        self.refused = refused

    def value(self) -> Any:
        try:
            return self.answer.result()[self.position]
        except OperationRefused as refusal:
            return self.refused(refusal)[self.position]


def _written_together(answers: Answers) -> list[Deferred[list[Any]]]:
    """What the answers wait for, each once."""
    waits = {
        id(each.answer): each.answer
        for of_topic in answers.values()
        for each in of_topic.values()
        if isinstance(each, _One)
    }
    return list(waits.values())


def _respond(api: StateApi, answers: Answers) -> Generator[int, None, Any]:
    results = []
    for topic_id, of_topic in answers.items():
        partitions = []
        for partition, found in of_topic.items():
            value = found.value() if isinstance(found, _One) else found
            partitions.append(api.answered(partition, value))
            yield _ANSWER_COST + len(getattr(value, "batches", ()))
        if partitions:
            results.append(api.topic_result(topic_id=topic_id, partitions=partitions))
    return api.response(results=results)


def _told(api: StateApi, refusal: OperationRefused) -> ShareError:
    reason = refusal.message or error_text(refusal.code)
    return ShareError(refusal.code, f"Unable to {api.verb}: {reason}")


def _refused(
    api: StateApi, asked: list[tuple[SharePartitionKey, Any]], refusal: OperationRefused
) -> list[Any]:
    return [api.refused(_told(api, refusal))] * len(asked)


def refusal(api: StateApi, request: Any, error: ShareError) -> Any:
    """The same error for every share-partition of a request."""
    return api.response(
        results=[
            api.topic_result(
                topic_id=topic.topic_id,
                partitions=[api.error(each.partition, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


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


def share_settings(config: Settings) -> ShareCoordinatorSettings:
    """The settings in force at the start."""
    return ShareCoordinatorSettings(
        updates_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
        write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
        compression=config.get_int("share.coordinator.state.topic.compression.codec"),
        prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
        cold_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
        load_step_bytes=min(config.get_int("share.coordinator.load.buffer.size"), LOAD_STEP_BYTES),
    )
