"""Settings that concern very many partitions: the logs get them a few at a time, and before anything that the controller
decides by them."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.config.topic import MIRROR_STATE, MIRRORING
from kafkacompat.controller.image import MetadataImage
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import batch_of
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import LEADER_EPOCH_FILE
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.cluster import Cluster
from kafkacompat.partition._tests.kit import (
    NODE_ID,
    LedPartitions,
    image_of,
    partition_image,
    topic_image,
    with_partitions,
)
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition._tests.test_changes import turn
from kafkacompat.partition._tests.test_followers import batch
from kafkacompat.partition.hosted_partitions import GIVEN_A_STEP, GIVEN_AT_ONCE_MAX
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode

COUNT = GIVEN_AT_ONCE_MAX + 2 * GIVEN_A_STEP
BROKERS = (int(ConfigResourceType.BROKER), "")
CHANGED = LogConfig(retention_ms=7)


def opened(*, isr: tuple[int, ...] = (1,), topics: int = 1) -> LedPartitions:
    """Many partitions of a few topics, with their logs open."""
    replicas = (1, 2) if isr != (1,) or topics == 1 else (1,)
    one = partition_image(replicas=replicas, isr=isr)
    each = COUNT // topics
    world = LedPartitions(
        *(topic_image(f"t{topic}", dict.fromkeys(range(each), one)) for topic in range(topics))
    )
    for topic in range(topics):
        for index in range(each):
            world.manager.core((f"t{topic}", index))
    while any(not core.log.is_durable for core in world.manager.by_id.values()):
        turn(world)
        world.workers.run_all()
    for timer in world.time.pending():
        timer.cancel()
    return world


def restate(
    world: LedPartitions, config: LogConfig, *, image: MetadataImage | None = None, number: int = 1
) -> None:
    """The cluster's default has changed."""
    world.log_configs = dict.fromkeys(world.manager.image.topics, config)
    image = world.manager.image if image is None else image
    world.manager.on_image(world.manager.image, replace(image, configs={BROKERS: {"k": str(number)}}))


def with_config(world: LedPartitions, config: LogConfig) -> int:
    return sum(core.log.config is config for core in world.manager.by_id.values())


def test_all_partitions_get_a_clusters_settings_a_few_at_a_time() -> None:
    world = opened(topics=3)
    restate(world, CHANGED)
    given = [with_config(world, CHANGED)]
    assert given == [GIVEN_AT_ONCE_MAX]
    while given[-1] < COUNT:
        turn(world)
        given.append(with_config(world, CHANGED))
        assert 0 < given[-1] - given[-2] <= GIVEN_A_STEP
    before = len(world.time.pending())
    turn(world)
    assert len(world.time.pending()) <= before


def test_settings_that_change_again_meanwhile_are_the_last_ones() -> None:
    world = opened()
    restate(world, CHANGED)
    last = LogConfig(retention_ms=8)
    restate(world, last, number=2)
    for _ in range(5):
        turn(world)
    assert with_config(world, last) == COUNT


def test_a_partition_that_waits_takes_its_settings_before_its_next_role() -> None:
    """The controller uses the raised min.insync.replicas: replicas that left the ISR stay eligible (KIP-966), and would lack
    the newly committed records."""
    world = opened(isr=(1, 2))
    world.produce("t0", COUNT - 1)
    raised = LogConfig(min_insync_replicas=2)
    restate(world, raised)
    log = world.log("t0", COUNT - 1)
    assert log.config is not raised
    alone = replace(partition_image(replicas=(1, 2), isr=(1,)), partition_epoch=1)
    image = with_partitions(
        world.manager.image, "t0", {**world.manager.image.topics["t0"].partitions, COUNT - 1: alone}
    )
    world.manager.on_image(world.manager.image, image)
    assert log.config is raised
    assert log.high_watermark == 0
    for _ in range(5):
        turn(world)
    assert log.high_watermark == 0


def test_a_lowered_min_isr_lets_high_watermarks_advance_in_later_steps() -> None:
    world = opened(isr=(1, 2))
    alone = replace(partition_image(replicas=(1, 2), isr=(1,)), partition_epoch=1)
    restate(world, LogConfig(min_insync_replicas=2))
    for _ in range(5):
        turn(world)
    world.manager.on_image(
        world.manager.image, with_partitions(world.manager.image, "t0", dict.fromkeys(range(COUNT), alone))
    )
    for index in range(COUNT):
        world.produce("t0", index)
    for _ in range(9):
        turn(world)
    logs = [core.log for core in world.manager.by_id.values()]
    assert {log.high_watermark for log in logs} == {0}
    restate(world, LogConfig(min_insync_replicas=1), number=2)
    for _ in range(5):
        turn(world)
    assert {log.high_watermark for log in logs} == {1}


def test_partitions_that_go_meanwhile_get_nothing() -> None:
    world = opened()
    cores = list(world.manager.by_id.values())
    restate(world, CHANGED)
    world.manager.on_image(world.manager.image, image_of())
    for _ in range(COUNT // 100 + 5):
        turn(world)
    assert sum(core.log.config is CHANGED for core in cores) < COUNT
    assert not world.manager.by_id
    assert not world.manager.hosted.reconfiguring._waiting


def test_a_failure_halts_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = opened()
    failures: list[BaseException] = []
    world.halt = failures.append
    restate(world, CHANGED)

    def fail(topic: str) -> LogConfig:
        raise KeyError(topic)

    monkeypatch.setattr(world.manager.hosted._services.settings, "log_config", fail)
    turn(world)
    assert [type(each) for each in failures] == [KeyError]


def test_an_isr_that_the_controller_has_accepted_comes_after_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer does not wait for the image."""
    monkeypatch.setattr("kafkacompat.partition.hosted_partitions.GIVEN_AT_ONCE_MAX", 0)
    cluster = Cluster((1, 2), replica_lag_time_max_ms=1_000)
    cluster.settle()
    leader = cluster.nodes[1]
    cluster.cut.add(frozenset((1, 2)))
    waiting = leader.produce(b"a")
    cluster.min_isr = 2
    leader.take_image(replace(leader.image, configs={BROKERS: {"min.insync.replicas": "2"}}))
    (step,) = [timer for timer in cluster.time.pending() if timer.at_ms <= cluster.time.ms]
    step.cancel()
    assert leader.log().config.min_insync_replicas == 1
    cluster.settle(4_000)
    assert leader.manager.by_name["t", 0].isr == (1,)
    assert leader.log().config.min_insync_replicas == 2
    assert not waiting.done or waiting.result() is not ErrorCode.NONE
    assert leader.log().high_watermark == 0


def test_a_log_of_a_node_with_remote_storage_that_is_not_tiered_begins_where_its_files_do() -> None:
    """Topics without settings of their own have the node's default config, which their logs have from the start already."""
    disk, time, config = MemoryDisk(), HandTime(), LogConfig()
    disk.make_directory("/a")
    name = TopicPartition("t", 0)

    def started() -> UnifiedLog:
        logs = LogManager(disk, [("/a", b"\xa0" * 16)], config, time, remote_storage=True)
        logs.load_all()
        manager = ReplicaManager(partition_services(NODE_ID, logs, time, HandWorkers(), lambda topic: config))
        manager.on_image(MetadataImage(), image_of(topic_image("t", {0: partition_image()})))
        log = logs.get(name)
        assert log is not None
        return log

    log = started()
    log.append_as_leader(batch_of([b"x"]), 0, 0)
    log.roll(1, 0)
    log.is_durable = True
    log.set_high_watermark(1)
    log.increment_log_start_offset(1)
    assert log.enforce_retention(0) == 1
    log.close()
    log = started()
    assert log.segments[0].base_offset == 1
    assert log.log_start_offset == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
def test_a_topic_that_becomes_a_mirror_is_served_although_its_epochs_cannot_be_written_now(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=3)}))
    world.produce()
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=4)}))
    first = 1 << 20
    world.log_configs["t"] = LogConfig(mirror_state=MIRRORING, mirror_leader_epoch=first)
    mirror = with_partitions(world.image, "t", {0: partition_image(epoch=first)})
    key = int(ConfigResourceType.TOPIC), "t"
    path = f"{world.log().directory}/{LEADER_EPOCH_FILE}"

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDisk, "write_atomic", refused)
        world.publish(replace(mirror, configs={key: {MIRROR_STATE: MIRRORING}}))
    core = world.manager.core(("t", 0))
    assert core is not None
    assert (core.is_read_only, core.leader_epoch) == (True, first)
    assert core.log.latest_epoch() == 3
    core.log.append_as_follower(batch(1, epoch=5), first)
    assert world.disk.read_bytes(path) == b"0\n2\n3 0\n5 1\n"
