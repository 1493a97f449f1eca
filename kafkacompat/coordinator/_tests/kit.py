"""Doubles of the ports, and a coordinator on top of them: a clock set by the test, timers that fire when time passes,
real logs on a memory disk. No test of coordinators sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CoroutineType, GeneratorType, SimpleNamespace
from typing import Any

from kafkacompat._tests.doubles import START_MS, CountingRandom, HandTime
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import LogConfig, broker_keys
from kafkacompat.controller.image import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.coordinator.shard import ShardState
from kafkacompat.deferred import Deferred
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_coordinator import CoordinatorSettings, GroupCoordinator, GroupServices
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition.service import ProduceResult
from kafkacompat.ports import FileSlice, LogRead, LogRefused, TransactionTerms, Workers
from kafkacompat.records.batch import iterate_batches, stamp_offset_and_epoch
from kafkacompat.records.plain_produce import BatchFacts
from kafkacompat.records.validate import Origin, validate_produce
from kafkacompat.tasks import Task, Tasks, at_once
from kafkacompat.wire.errors import ErrorCode

NODE_ID = 1


class KeptLog(UnifiedLog):
    """The real log, on its own memory disk. It returns its batches and counts reads."""

    def __init__(self, name: TopicPartition = TopicPartition(OFFSETS_TOPIC, 0)) -> None:
        self.disk, config = MemoryDisk(), LogConfig()
        directory = f"/logs/{name.topic}-{name.partition}"
        parts = open_directory(self.disk, directory, config, START_MS, clean=True)
        super().__init__(self.disk, directory, name, bytes(15) + b"\1", config, parts)
        self.reads = 0
        self._told: list[bytes] = []
        self._told_end = 0

    def append(self, batch: bytes | bytearray) -> int:
        """Append a batch as from another leader, without checks. Returns its last offset."""
        copy = bytearray(batch)
        stamp_offset_and_epoch(copy, self.log_end_offset, 0)
        return self.append_as_follower(copy, 0).last_offset

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        self.reads += 1
        return super().read(offset, max_bytes, upper_bound_offset, minimum_one_batch)

    def flip_last_byte(self) -> None:
        """Change a byte on the disk."""
        self.disk.files[f"{self.segments[-1].stem}.log"][-1] ^= 1

    @property
    def batches(self) -> list[bytes]:
        """All batches in order."""
        end = self.log_end_offset
        if end < self._told_end:
            self._told, self._told_end = [], 0
        while self._told_end < end:
            records = super().read(self._told_end, 1 << 30, end, True).records
            data = records.read() if isinstance(records, FileSlice) else records
            for header in iterate_batches(data):
                self._told.append(data[header.position : header.position + header.size])
                self._told_end = header.last_offset + 1
        return self._told


class Partitions:
    """PartitionService with one replica over real logs. `refusal` fails appends; `held` stops the high watermark."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, KeptLog] = {}
        self.now_ms: Callable[[], int] = lambda: START_MS
        self.led = True
        self.refusal: ErrorCode | None = None
        self.held = False
        self._waiting: list[tuple[dict[TopicPartition, int], Deferred[Any]]] = []

    def leader_error(self, partition: TopicPartition, current_leader_epoch: int = -1) -> ErrorCode:
        return ErrorCode.NONE

    def append(
        self,
        partition: TopicPartition,
        records: Any,
        acks: int,
        api_version: int,
        internal_allowed: bool,
        terms: TransactionTerms | None = None,
        origin: Origin = Origin.CLIENT,
    ) -> ProduceResult:
        assert acks == -1
        assert internal_allowed
        if self.refusal is not None:
            return ProduceResult(self.refusal)
        log, now_ms = self.log_of(partition), self.now_ms()
        try:
            info = log.append_as_leader(
                validate_produce(records, log.config, now_ms, origin=origin), 0, now_ms, terms
            )
        except LogRefused as refused:
            return ProduceResult(refused.code)
        if not self.held:
            log.set_high_watermark(log.log_end_offset)
        return ProduceResult(ErrorCode.NONE, last_offset=info.last_offset)

    def append_built(
        self, topic: str, batch: bytearray, facts: BatchFacts
    ) -> ProduceResult | tuple[int, bool] | None:
        if self.refusal is not None:
            return ProduceResult(self.refusal)
        log = self.log_of(TopicPartition(topic, facts[0]))
        if facts[3] > log.config.max_message_bytes:
            return None
        first_offset = log.append_next(memoryview(batch), facts[3], facts[5], *facts[7:11], 0)
        if first_offset < 0:
            return None
        if not self.held:
            log.set_high_watermark(log.log_end_offset)
        return first_offset, not self.held

    def log_of(self, partition: TopicPartition) -> KeptLog:
        """Created on first use."""
        if partition not in self.logs:
            self.logs[partition] = KeptLog(partition)
        return self.logs[partition]

    def hold_wakeups(self) -> None: ...

    def release_wakeups(self) -> None: ...

    def when_replicated(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> Deferred[Any] | None:
        if all(self.logs[name].high_watermark >= end for name, end in ends.items()):
            return None
        deferred: Deferred[Any] = Deferred()
        self._waiting.append((dict(ends), deferred))
        return deferred

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the high watermark advance, or fail the requests that wait for it."""
        self.held = False
        if error is ErrorCode.NONE:
            for log in self.logs.values():
                log.set_high_watermark(log.log_end_offset)
        waiting, self._waiting = self._waiting, []
        for ends, deferred in waiting:
            deferred.resolve(dict.fromkeys(ends, error))

    def hand_over(self, partition: TopicPartition, damaged_offset: int) -> bool:
        return False

    def log(self, partition: TopicPartition) -> KeptLog | None:
        return self.log_of(partition) if self.led else None


def topic_image(
    name: str, partitions: int, topic_id: bytes | None = None, leader: int = NODE_ID
) -> TopicImage:
    one = PartitionRegistration((NODE_ID,), (bytes(16),), (NODE_ID,), (), (), (), (), leader, False, 0, 0)
    given = name.encode()[:16].ljust(16, b"\1") if topic_id is None else topic_id
    return TopicImage(name, given, dict.fromkeys(range(partitions), one))


def image_of(topics: Iterable[TopicImage], offset: int = 1) -> MetadataImage:
    listed = list(topics)
    endpoint = BrokerEndpoint("broker.example", 9092, 0)
    broker = BrokerRegistration(
        NODE_ID, 1, bytes(16), {"PLAINTEXT": endpoint}, {}, None, False, False, (bytes(16),)
    )
    return MetadataImage(
        offset=offset,
        features={"group.version": 1, "share.version": 1, "streams.version": 1},
        brokers={NODE_ID: broker},
        topics={topic.name: topic for topic in listed},
        topics_by_id={topic.id: topic for topic in listed},
    )


def context(
    api_key: int = 0, version: int = 9, client_id: str | None = "client", connection_id: int = 1
) -> RequestContext:
    return RequestContext(api_key, version, 1, client_id, connection_id, "PLAINTEXT", "127.0.0.1")


class AutoCreate:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def request(self, topics: Iterable[str], asker: Any = None) -> None:
        self.asked += topics

    async def created(self, name: str) -> None:
        """It cannot be waited for."""


class NodeSettings:
    """The settings of a broker: Kafka's defaults, and what a test sets."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def value(self, name: str) -> Any:
        return self._values.get(name, broker_keys()[name].default)

    get_int = get_boolean = get_string = get_list = value


AT_ONCE = {"group.consumer.assignment.interval.ms": 0, "group.share.assignment.interval.ms": 0}
"""Settings of a broker that assigns partitions again without a delay."""


SESSIONS = {"heartbeat", "session"}
"""Of classic groups, and of the newer kinds."""
SET_AGAIN = {*SESSIONS, "rebalance"}
"""Timers of members that a load sets again, for the members that it finds."""
ENDED_BY_A_LOAD = {
    "join": "nobody has joined the group that is loaded, and a group that is stable waits for nobody",
    "sync": "a group is loaded without a generation that waits for its assignment",
    "consumer-join": "the next heartbeat of the member sets it again",
    "consumer-sync": "as in Kafka, the member has only its session until it joins again",
    "initial-rebalance": "the first heartbeat after the load assigns",
    "downgrade": "a load looks whether a group has only classic members (resume_downgrade)",
    "task": "what was being made is asked for again",
}
"""Other timers of groups, with the reason why nothing waits for them after a load."""


def timers_of(coordinator: GroupCoordinator) -> set[tuple[str, ...]]:
    """Keys, with the ids of groups."""
    keys: list[Any] = [key for shard in coordinator._shards for key in shard.timers._entries]
    return {tuple(part if isinstance(part, str) else part.group_id for part in key) for key in keys}


class LeadingCoordinator:
    """A coordinator that leads all partitions of the offsets topic, with topics `t` (3 partitions) and `u` (1)."""

    def __init__(
        self,
        group: GroupSettings | None = None,
        partitions: Partitions | None = None,
        count: int = 1,
        node: Mapping[str, int] | None = None,
        persister: Any = None,
    ) -> None:
        """`node`: settings of the broker."""
        self.time = HandTime()
        self.tasks = Tasks(self.time)
        self.partitions = partitions or Partitions()
        self.partitions.now_ms = self.time.now_ms
        self.random = CountingRandom()
        self.settings = CoordinatorSettings(group=group or GroupSettings())
        self.node_settings = NodeSettings(node or {})
        self.image = image_of([], offset=-1)
        self.count = count
        self.persister = persister
        self.ends: Any = None
        self.verifier: Any = None
        self.connection_id = 1
        """Of the requests from now on."""
        self.workers: Workers | None = None
        """Of coordinators that are made from now on."""
        self.kept = 0
        """How often the coordinator has reported that it loaded long-lived objects."""
        self.coordinator = self._make()
        self.auto_create = AutoCreate()
        self.publish([topic_image(OFFSETS_TOPIC, count), topic_image("t", 3), topic_image("u", 1)])
        self.time.advance(0)

    def _make(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            CoordinatorServices(
                NODE_ID,
                self.partitions,  # type: ignore[arg-type]  # it has as much of the service as is used
                self.time,
                self.time,
                self.tasks,
                self.workers,
                self._keep,
            ),
            GroupServices(
                self.random,
                lambda: self.node_settings,
                self.persister,
                self.ends,
                lambda: self.verifier,
            ),
            self.settings,
        )
        coordinator.start()
        return coordinator

    def _keep(self) -> None:
        self.kept += 1

    def publish(self, topics: Iterable[TopicImage]) -> None:
        old, self.image = self.image, image_of(topics, max(1, self.image.offset + 1))
        self.coordinator.on_image(old, self.image)

    def restart(self) -> None:
        """A new coordinator over the same logs."""
        before = timers_of(self.coordinator)
        self.coordinator.stop()
        self.coordinator = self._make()
        self.coordinator.on_image(image_of([], offset=-1), self.image)
        self.time.advance(0)
        self._check_timers(before)

    def _check_timers(self, before: set[tuple[str, ...]]) -> None:
        """A timer that a load forgets never fires, and nothing else would show it."""
        for kind, *_ in before:
            assert kind in SET_AGAIN | ENDED_BY_A_LOAD.keys(), (
                f"say what a load does with the timers {kind!r}"
            )
        if not all(shard.state is ShardState.ACTIVE for shard in self.coordinator._shards):
            return
        now = timers_of(self.coordinator)
        for kind, group_id, member_id in (key for key in before if key[0] in SET_AGAIN):
            for shard in self.coordinator._shards:
                group: Any = machine_of(shard).groups.get(group_id)
                member = None if group is None else group.members.get(member_id)
                if member is None or (kind == "rebalance" and member.revocation_timeout_ms is None):
                    continue
                # A load may go on with the conversion of a group, whose members then have the other timer.
                kept = SESSIONS if kind in SESSIONS else {kind}
                assert any((each, group_id, member_id) in now for each in kept), f"{kind} is forgotten"

    @property
    def node(self) -> Any:
        return SimpleNamespace(
            node_id=NODE_ID,
            image=self.image,
            groups=self.coordinator,
            auto_create=self.auto_create,
            authorizer=None,
            config=SimpleNamespace(get_list=lambda name: ("classic", "consumer", "streams")),
        )

    def call(self, handler: Any, request: Any, version: int, client_id: str | None = "client") -> Any:
        """A handler's answer, or the Deferred while it is parked."""
        assert request.MIN_VERSION <= version <= request.MAX_VERSION
        if handler.is_served is not None and not handler.is_served(self.node):
            return handler.error_response(request, ErrorCode.UNSUPPORTED_VERSION, version)
        sender = context(request.API_KEY, version, client_id, self.connection_id)
        answer = handler.function(self.node, sender, request)
        if isinstance(answer, GeneratorType):
            answer = at_once(answer)
        elif isinstance(answer, CoroutineType):
            answer = self.tasks.run("a request", answer)
        if isinstance(answer, Deferred) and answer.done:
            return answer.result()
        return answer

    def call_to_the_end(self, handler: Any, request: Any, version: int) -> Any:
        """Like `call`, but an answer that only pauses goes on."""
        answer = self.call(handler, request, version)
        while isinstance(answer, Task) and not answer.done and answer.waits_for is None:
            self.time.advance(0)
        return answer.result() if isinstance(answer, Deferred) and answer.done else answer

    def log(self, partition: int = 0) -> KeptLog:
        return self.partitions.logs[TopicPartition(OFFSETS_TOPIC, partition)]
