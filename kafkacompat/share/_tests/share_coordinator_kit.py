"""The share coordinator over the real partition manager and real logs on the memory disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.coordinator._tests.kit import NODE_ID, image_of
from kafkacompat.coordinator._tests.kit import topic_image as topic_of
from kafkacompat.coordinator._tests.real_log import at_once
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.deferred import Deferred
from kafkacompat.ids import SHARE_STATE_TOPIC, TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_manager import LogManager
from kafkacompat.partition._tests.kit import partition_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.ports import FileSlice
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.scan import walk_records
from kafkacompat.share.service import StateBatch
from kafkacompat.share.share_coordinator import ShareCoordinator, ShareCoordinatorSettings
from kafkacompat.share.state.records import ShareRecord, decode_record
from kafkacompat.tasks import Tasks
from kafkacompat.wire.messages import initialize_share_group_state_request as init
from kafkacompat.wire.messages import read_share_group_state_request as read
from kafkacompat.wire.messages import write_share_group_state_request as write

FOLLOWER = NODE_ID + 1
TOPIC = bytes(15) + b"\x07"


def partition_name(partition: int = 0) -> TopicPartition:
    return TopicPartition(SHARE_STATE_TOPIC, partition)


class ShareCoordinatorNode:
    """Topic `t` with 3 partitions, and the state topic. With `followed` it has a second in-sync replica, which fetches
    when told to."""

    def __init__(
        self,
        settings: ShareCoordinatorSettings | None = None,
        *,
        partitions: int = 1,
        followed: bool = False,
        config: LogConfig | None = None,
    ) -> None:
        """`config` is that of the state topic."""
        self.time = HandTime()
        self.tasks = Tasks(self.time)
        self.settings = settings or ShareCoordinatorSettings()
        self.config = config or LogConfig()
        self.count = partitions
        self.followed = followed
        self.leader_epoch = 0
        self.disk = MemoryDisk()
        self.disk.make_directory("/data")
        self.image: MetadataImage = image_of([], offset=-1)
        self.restart()

    def restart(self) -> None:
        """A new process on the same disk."""
        logs = LogManager(self.disk, [("/data", bytes(15) + b"\1")], self.config, self.time)
        logs.load_all()
        self.manager = ReplicaManager(
            partition_services(
                NODE_ID, logs, self.time, SimpleNamespace(submit=at_once), lambda topic: self.config
            )
        )
        self.coordinator = ShareCoordinator(
            CoordinatorServices(
                NODE_ID,
                self.manager,  # type: ignore[arg-type]  # it has as much of the service as is used
                self.time,
                self.time,
                self.tasks,
                None,
            ),
            self.settings,
        )
        self.coordinator.start()
        self.image = image_of([], offset=-1)
        self.publish(self.state_topic(), topic_of("t", 3, TOPIC))
        self.time.advance(0)

    def state_topic(self, leader: int = NODE_ID) -> TopicImage:
        replicas = (NODE_ID, FOLLOWER) if self.followed else (NODE_ID,)
        one = partition_image(replicas=replicas, leader=leader, epoch=self.leader_epoch)
        known = topic_of(SHARE_STATE_TOPIC, self.count)
        return TopicImage(SHARE_STATE_TOPIC, known.id, dict.fromkeys(range(self.count), one))

    def publish(self, *topics: TopicImage, deleted: Sequence[str] = ()) -> None:
        old = self.image
        known = {**old.topics, **{topic.name: topic for topic in topics}}
        self.image = replace(
            image_of(each for name, each in known.items() if name not in deleted),
            offset=old.offset + 2,
            features={"share.version": 1},
        )
        self.manager.on_image(old, self.image)
        self.coordinator.on_image(old, self.image)

    def resign(self) -> None:
        self.leader_epoch += 1
        self.publish(self.state_topic(FOLLOWER))

    def lead_again(self) -> None:
        self.leader_epoch += 1
        self.publish(self.state_topic())
        self.time.advance(0)

    def follow(self, partition: int = 0) -> None:
        """The follower has everything."""
        core = self.manager.by_name[partition_name(partition)]
        self.manager.follower_fetched(core, FOLLOWER, core.log.log_end_offset)

    def log(self, partition: int = 0) -> Any:
        log = self.manager.log(partition_name(partition))
        assert log is not None
        return log

    def records(self, partition: int = 0) -> list[tuple[int, ShareRecord]]:
        """Offsets and records of the log."""
        log = self.log(partition)
        if log.log_end_offset == log.log_start_offset:
            return []
        found = log.read(log.log_start_offset, 1 << 30, log.log_end_offset, True).records
        data = found.read() if isinstance(found, FileSlice) else bytes(found)
        records = []
        for header in iterate_batches(data):
            body = data[header.position + 61 : header.position + header.size]
            for each in walk_records(body, header.record_count, header.base_timestamp_ms, 0):
                offset = header.base_offset + each.offset_delta
                if offset >= log.log_start_offset:
                    record = decode_record(bytes(each.key), None if each.value is None else bytes(each.value))
                    assert record is not None
                    records.append((offset, record))
        return records

    def batch_count(self, partition: int = 0) -> int:
        log = self.log(partition)
        found = log.read(0, 1 << 30, log.log_end_offset, True).records
        return len(list(iterate_batches(found.read() if isinstance(found, FileSlice) else found)))

    # Requests.

    def initialize(self, *partitions: int, group: str = "g", epoch: int = 0, start: int = 0) -> Any:
        return self.coordinator.initialize_state(
            initialization(*partitions, group=group, epoch=epoch, start=start)
        )

    def read(self, partition: int = 0, leader: int = 0, group: str = "g") -> Any:
        return self.coordinator.read_state(reading(partition, leader=leader, group=group))

    def write(self, batches: Mapping[int, Sequence[StateBatch]], group: str = "g", **fields: int) -> Any:
        return self.coordinator.write_state(writing(batches, group, **fields))


def initialization(*partitions: int, group: str = "g", epoch: int = 0, start: int = 0) -> Any:
    return init.InitializeShareGroupStateRequest(
        group_id=group,
        topics=[
            init.InitializeStateData(
                topic_id=TOPIC,
                partitions=[
                    init.PartitionData(partition=each, state_epoch=epoch, start_offset=start)
                    for each in partitions
                ],
            )
        ],
    )


def reading(*partitions: int, leader: int = 0, group: str = "g") -> Any:
    return read.ReadShareGroupStateRequest(
        group_id=group,
        topics=[
            read.ReadStateData(
                topic_id=TOPIC,
                partitions=[read.PartitionData(partition=each, leader_epoch=leader) for each in partitions],
            )
        ],
    )


def writing(batches: Mapping[int, Sequence[StateBatch]], group: str = "g", **fields: int) -> Any:
    return write.WriteShareGroupStateRequest(
        group_id=group,
        topics=[
            write.WriteStateData(
                topic_id=TOPIC,
                partitions=[
                    write.PartitionData(
                        partition=partition,
                        state_batches=[
                            write.StateBatch(
                                first_offset=first,
                                last_offset=last,
                                delivery_state=state,
                                delivery_count=count,
                            )
                            for first, last, state, count in each
                        ],
                        **fields,
                    )
                    for partition, each in batches.items()
                ],
            )
        ],
    )


def results(answer: Deferred[Any]) -> dict[int, tuple[int, str | None]]:
    """Error and text of each partition of topic `t`."""
    return {
        each.partition: (each.error_code, each.error_message)
        for topic in answer.result().results
        for each in topic.partitions
    }
