"""New logs on a disk that loses unsynced data: what is acknowledged, and when a follower fetches."""

from __future__ import annotations

import errno
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.disks import refusing
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.flush import make_durable
from kafkacompat.log.log_manager import LogManager
from kafkacompat.partition._tests.kit import NODE_ID, batch_of, image_of, partition_image, topic_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.fetch_session import FetchSessionCache
from kafkacompat.partition.hosted_partitions import OPENED_AT_ONCE_MAX
from kafkacompat.partition.list_offsets import LATEST
from kafkacompat.partition.log_syncs import ANCHORED_AT_ONCE, LEAST_MS, RETRY_MS
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.replica_manager import DURABLE_WAIT_MS, ReplicaManager
from kafkacompat.partition.service import FetchParameters, FetchRequestPartition
from kafkacompat.ports import WorkersBusy
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import PartitionData

T0 = TopicPartition("t", 0)
DIRECTORIES = [("/a", b"\1" * 16), ("/b", b"\2" * 16)]


class Followers:
    """Records who must follow."""

    def __init__(self) -> None:
        self.taken: list[TopicPartition] = []

    def attach(self, manager: object) -> None: ...

    def on_image(self, image: object) -> None: ...

    def role_taken(self, core: Partition) -> None:
        self.taken.append(core.topic_partition)

    def gone(self, core: Partition) -> None: ...


class Node:
    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        for path, _ in DIRECTORIES:
            self.disk.make_directory(path)
        self.time = HandTime()
        self.workers = HandWorkers()
        self.followers = Followers()
        self.logs = LogManager(self.disk, DIRECTORIES, LogConfig(), self.time)
        self.manager = ReplicaManager(
            partition_services(NODE_ID, self.logs, self.time, self.workers),
            self.followers,  # type: ignore[arg-type]
        )
        self.image = MetadataImage()

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.manager.on_image(old, image)

    def lead(self, partitions: int = 1) -> None:
        self.publish(image_of(topic_image("t", partitions)))

    def produce(self, name: TopicPartition = T0) -> Any:
        return self.manager.append(name, batch_of(b"value", now_ms=self.time.now_ms()), -1, 13, False)

    def fetch(self, max_wait_ms: int) -> list[PartitionData]:
        """A consumer's immediate answer for the first partition from its beginning on."""
        sessions = FetchSessionCache(10, lambda: 1, lambda held: None)
        engine = FetchEngine(self.manager.hosted._services, self.manager, sessions, 1 << 20)
        asked = FetchRequestPartition(self.image.topics["t"].id, "t", 0, 0, 1 << 20)
        answer: Any = engine.fetch(
            FetchParameters(
                replica_id=-1,
                replica_epoch=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                read_committed=False,
                rack_id="",
                session_id=0,
                session_epoch=-1,
                uses_topic_ids=True,
                version=17,
                listener_name="L",
            ),
            [asked],
            (),
        )
        return [row for topic in answer.responses for row in topic.partitions]

    def work(self) -> None:
        """Run until nothing is left to do at once."""
        for _ in range(100):
            self.time.advance(1)
            self.workers.run()

    def after_power_loss(self) -> list[TopicPartition]:
        found = LogManager(self.disk.lose_power(), DIRECTORIES, LogConfig(), self.time)
        return sorted(found.load_all())


def started_after_a_kill() -> Node:
    """A node that leads, whose log of one record is not durable yet."""
    node = Node()
    node.lead()
    node.work()
    assert node.produce().error is ErrorCode.NONE
    node.work()
    again = Node(node.disk.copy())
    again.logs.load_all()
    again.lead()
    return again


def test_a_new_log_is_durable_before_anything_in_it_is_acknowledged() -> None:
    node = Node()
    node.lead()
    assert node.produce().error is ErrorCode.NONE
    replicated, flushed = (
        node.manager.when_replicated({T0: 1}, 1000),
        node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False),
    )
    assert replicated is not None
    assert flushed is not None
    assert not replicated.done
    assert not flushed.done
    assert node.after_power_loss() == []
    node.work()
    assert replicated.result() == {T0: ErrorCode.NONE}
    assert flushed.result() == {T0: ErrorCode.NONE}
    assert node.after_power_loss() == [T0]
    assert node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False) is None


def test_a_produce_to_a_new_log_is_answered_when_another_node_leads_although_the_disk_stands_still() -> None:
    node = Node()
    node.lead()
    node.produce()
    assert node.manager.when_flushed({T0: 1}, 1000, is_replicated=True) is None
    replicated = node.manager.when_replicated({T0: 1}, 1000)
    assert replicated is not None
    node.publish(image_of(topic_image("t", {0: partition_image(replicas=(NODE_ID, 2), leader=2, epoch=1)})))
    assert replicated.result() == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_produce_to_a_new_log_waits_for_a_disk_no_longer_than_its_timeout() -> None:
    node = Node()
    node.lead()
    node.produce()
    flushed = node.manager.when_flushed({T0: 1}, 1000, is_replicated=False)
    at_once = node.manager.when_flushed({T0: 1}, 0, is_replicated=False)
    assert flushed is not None
    assert at_once is not None
    node.time.advance(LEAST_MS - 1)
    assert not flushed.done
    assert not at_once.done
    node.time.advance(1)
    assert flushed.result() == at_once.result() == {T0: ErrorCode.REQUEST_TIMED_OUT}
    node.work()
    assert node.logs.logs[T0].is_durable


@pytest.mark.parametrize("timestamp_ms", [LATEST, 0])
def test_list_offsets_of_a_log_that_a_kill_left_waits_until_it_is_durable(
    timestamp_ms: int,
) -> None:
    """librdkafka reports an error to the application."""
    again = started_after_a_kill()
    asked = again.manager.list_offset(T0, timestamp_ms, False, -1, -1)
    assert isinstance(asked, Deferred)
    assert not asked.done
    again.work()
    assert (asked.result().error, asked.result().offset) == (
        ErrorCode.NONE,
        1 if timestamp_ms == LATEST else 0,
    )


def test_list_offsets_waits_no_longer_for_a_disk_that_stands_still() -> None:
    again = started_after_a_kill()
    asked = again.manager.list_offset(T0, LATEST, False, -1, -1)
    assert isinstance(asked, Deferred)
    again.time.advance(DURABLE_WAIT_MS - 1)
    assert not asked.done
    again.time.advance(1)
    assert asked.result().error is ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_log_that_another_sync_made_durable_first_is_not_read_as_empty() -> None:
    """The high watermark moves when the log is durable, not when a flush of closed segments does."""
    again = started_after_a_kill()
    again.time.advance(1)
    again.logs.logs[T0].flush()
    asked = asked_for_the_end(again)
    (row,) = again.fetch(0)
    assert (row.error_code, len(row.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    again.work()
    assert (asked.result().error, asked.result().offset) == (ErrorCode.NONE, 1)
    (row,) = again.fetch(0)
    assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_a_log_that_a_kill_left_is_not_read_as_empty_before_it_is_durable(max_wait_ms: int) -> None:
    """A client takes an empty answer at the high watermark for the end of the partition."""
    again = started_after_a_kill()
    (row,) = again.fetch(max_wait_ms)
    assert (row.error_code, len(row.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    again.work()
    (row,) = again.fetch(max_wait_ms)
    assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 1)
    assert len(row.records) > 0


def asked_for_the_end(node: Node) -> Deferred[Any]:
    asked = node.manager.list_offset(T0, LATEST, False, -1, -1)
    assert isinstance(asked, Deferred)
    return asked


FULL = "write create write_atomic rename"


def test_on_a_full_disk_a_log_that_a_kill_left_is_read_whole_and_written_once_there_is_room() -> None:
    """Making the log durable needs no space."""
    again = started_after_a_kill()
    again.disk.refuse = refusing(FULL, "/", errno.ENOSPC)
    asked = asked_for_the_end(again)
    assert again.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not asked.done
    again.work()
    assert (asked.result().error, asked.result().offset) == (ErrorCode.NONE, 1)
    (row,) = again.fetch(0)
    assert (row.error_code, row.high_watermark, len(row.records) > 0) == (ErrorCode.NONE, 1, True)
    assert again.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    again.disk.refuse = None
    assert again.produce().base_offset == 1
    assert again.logs.logs[T0].high_watermark == 2


def test_a_full_disk_that_others_can_stand_in_for_ends_the_wait_of_who_asks_for_offsets() -> None:
    again = started_after_a_kill()
    again.logs._spares_full = lambda: False
    again.disk.refuse = refusing(FULL, "/", errno.ENOSPC)
    asked = asked_for_the_end(again)
    assert again.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    again.work()
    assert asked.result().error is ErrorCode.KAFKA_STORAGE_ERROR
    (row,) = again.fetch(0)
    assert (row.error_code, len(row.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_log_that_a_kill_left_is_not_empty_where_its_sync_finds_no_room(error: int) -> None:
    again = started_after_a_kill()
    again.disk.refuse = refusing("sync sync_directory", "/", error)
    asked = asked_for_the_end(again)
    again.work()
    again.time.advance(RETRY_MS)
    again.work()
    assert asked.result().error is ErrorCode.KAFKA_STORAGE_ERROR
    (row,) = again.fetch(0)
    assert (row.error_code, len(row.records)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert again.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    third = Node(again.disk.copy())
    third.logs.load_all()
    third.lead()
    third.work()
    (row,) = third.fetch(0)
    assert (row.error_code, row.high_watermark, len(row.records) > 0) == (ErrorCode.NONE, 1, True)
    assert third.produce().base_offset == 1


def test_a_log_that_a_kill_left_is_tried_again_while_its_sync_cannot_begin() -> None:
    again = started_after_a_kill()
    again.disk.refuse = refusing("open", f"{again.logs.logs[T0].directory}/partition.metadata", errno.ENOSPC)
    asked = asked_for_the_end(again)
    for _ in range(3):
        again.work()
        (row,) = again.fetch(0)
        assert (row.error_code, len(row.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        again.time.advance(RETRY_MS)
    # librdkafka retries OFFSET_NOT_AVAILABLE.
    assert asked.result().error is ErrorCode.OFFSET_NOT_AVAILABLE
    again.disk.refuse = None
    again.time.advance(RETRY_MS)
    again.work()
    (row,) = again.fetch(0)
    assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 1)


def test_a_new_log_is_read_before_it_is_durable() -> None:
    node = Node()
    node.lead()
    (row,) = node.fetch(0)
    assert (row.error_code, row.high_watermark) == (ErrorCode.NONE, 0)


def test_a_follower_fetches_once_its_log_is_durable() -> None:
    node = Node()
    follower = partition_image(replicas=(NODE_ID + 1, NODE_ID), leader=NODE_ID + 1)
    node.publish(image_of(topic_image("t", {0: follower})))
    assert node.followers.taken == []
    node.work()
    assert node.followers.taken == [T0]
    assert node.after_power_loss() == [T0]


def test_a_large_topic_is_made_durable_slice_by_slice() -> None:
    node = Node()
    synced: list[str] = []
    node.disk.refuse = lambda operation, path: synced.append(path) if operation == "sync_directory" else None
    count = OPENED_AT_ONCE_MAX + 3 * ANCHORED_AT_ONCE
    node.lead(count)
    for _ in range(4):
        node.work()
    assert len(node.logs.logs) == count
    assert all(log.is_durable for log in node.logs.logs.values())
    above = sum(path in ("/a", "/b") for path in synced)
    assert len(synced) - above == count
    assert len(node.after_power_loss()) == count


@pytest.mark.parametrize("request_kind", ["produce", "list offsets"])
def test_requests_repeated_while_a_disk_stands_still_leave_nothing_in_memory(request_kind: str) -> None:
    node = started_after_a_kill()

    def ask() -> Deferred[Any]:
        answer: Any = (
            node.manager.when_flushed({T0: 1}, 1000, is_replicated=False)
            if request_kind == "produce"
            else node.manager.list_offset(T0, LATEST, False, -1, -1)
        )
        assert not answer.done
        return answer

    last = ask()
    tracemalloc.start()
    try:
        for _ in range(1000):
            waiting = ask()
            node.time.advance(DURABLE_WAIT_MS)
            assert waiting.done
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert last.done
    assert taken < 50_000


def test_logs_that_one_image_opens_share_one_job_a_directory() -> None:
    node = Node()
    synced: list[str] = []
    node.disk.refuse = lambda operation, path: synced.append(path) if operation == "sync_directory" else None
    node.lead(OPENED_AT_ONCE_MAX)
    node.time.advance(0)
    assert len(node.workers.submitted) == 2
    node.workers.run()
    assert sorted(path for path in synced if path in ("/a", "/b")) == ["/a", "/b"]


def test_a_sync_that_fails_takes_the_directory_and_the_produce_is_told() -> None:
    node = Node()
    node.lead()
    node.produce()
    flushed = node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert flushed is not None
    replicated = node.manager.when_replicated({T0: 1}, 60_000)
    assert replicated is not None
    node.disk.refuse = refusing("sync", node.logs.logs[T0].directory)
    node.work()
    assert flushed.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert replicated.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert [directory.online for directory in node.logs.directories] == [False, True]
    assert node.manager.leader_error(T0) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_sync_that_cannot_begin_is_tried_again() -> None:
    node = Node()
    node.lead()
    node.produce()
    flushed = node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert flushed is not None
    node.disk.refuse = refusing("open", f"{node.logs.logs[T0].directory}/partition.metadata", errno.EMFILE)
    node.work()
    assert flushed.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert node.logs.logs[T0].high_watermark == 0
    node.disk.refuse = None
    node.time.advance(RETRY_MS)
    node.work()
    assert node.logs.logs[T0].high_watermark == 1


def test_without_a_free_worker_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    node.lead()

    def busy(function: object) -> Deferred[None]:
        answer: Deferred[None] = Deferred()
        answer.fail(WorkersBusy("jobs wait for worker threads"))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(node.workers, "submit", busy)
        node.work()
    assert not node.logs.logs[T0].is_durable
    node.time.advance(RETRY_MS)
    node.work()
    assert node.logs.logs[T0].is_durable


@pytest.mark.parametrize(
    ("problem", "is_a_bug"), [(WorkersBusy("64 wait"), False), (KeyError("a bug"), True)]
)
def test_a_role_that_is_taken_while_a_job_fails_as_a_whole_leaves_nobody_waiting(
    problem: Exception, is_a_bug: bool, faults: Faults
) -> None:
    """The role asks for another sync while the job runs. Both are waited for."""
    node = Node()
    node.lead()
    node.produce()
    first = node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    node.time.advance(1)
    epoch = node.image.topics["t"].partitions[0].leader_epoch
    node.publish(image_of(topic_image("t", {0: partition_image(epoch=epoch + 1)})))
    second = node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert first is not None
    assert second is not None
    ((_, job),) = [each for each in node.workers.submitted if makes_durable(each[0])]
    job.fail(problem)
    assert faults.take() == [problem] * is_a_bug
    node.workers.submitted = [each for each in node.workers.submitted if not each[1].done]
    node.time.advance(RETRY_MS)
    node.work()
    assert first.result() == second.result() == {T0: ErrorCode.NONE}
    assert node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False) is None


def test_a_bug_after_the_sync_of_a_new_log_halts_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    halted: list[BaseException] = []
    syncs = node.manager.hosted.new_log_syncs
    syncs._services = replace(syncs._services, halt=halted.append)
    bug = KeyError("a bug")

    def made_durable(core: Partition) -> None:
        raise bug

    monkeypatch.setattr(syncs, "_made_durable", made_durable)
    node.lead()
    node.work()
    assert halted == [bug]


def makes_durable(job: Any) -> bool:
    return getattr(job, "func", None) is make_durable


def test_a_topic_that_goes_meanwhile_is_no_longer_waited_for() -> None:
    node = Node()
    node.lead()
    node.produce()
    flushed = node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert flushed is not None
    node.time.advance(1)
    node.publish(image_of())
    node.lead()
    node.work()
    assert flushed.done
    assert node.manager.when_flushed({T0: 1}, 60_000, is_replicated=False) is None
    assert node.after_power_loss() == [T0]


def test_a_slow_directory_holds_up_the_new_logs_of_no_other() -> None:
    node = Node()
    places = {path: HandWorkers() for path, _ in DIRECTORIES}
    services = node.manager.hosted._services
    pools = replace(services.workers, log_sync=SimpleNamespace(at=places.__getitem__))
    node.manager.hosted.new_log_syncs._services = replace(services, workers=pools)
    node.lead(OPENED_AT_ONCE_MAX)
    for number in range(OPENED_AT_ONCE_MAX):
        node.produce(TopicPartition("t", number))
    for _ in range(10):
        node.time.advance(1)
        places["/b"].run()
    durable = {log.directory[:2] for log in node.logs.logs.values() if log.is_durable}
    assert durable == {"/b"}
    assert {log.directory[:2] for log in node.logs.logs.values() if not log.is_durable} == {"/a"}
    assert len(places["/a"].submitted) == 1
