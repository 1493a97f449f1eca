"""Images that change many partitions: roles are applied a few at a time, no request sees an old role, and a failure
halts the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.partition._tests.kit import LedPartitions, image_of, partition_image, topic_image
from kafkacompat.partition._tests.test_fetch import parked, rows, want
from kafkacompat.partition.hosted_partitions import TAKEN_AT_ONCE_MAX, TAKEN_US, RoleChanges
from kafkacompat.partition.partition import Partition
from kafkacompat.tasks import TURN_COST
from kafkacompat.wire.errors import ErrorCode

TAKEN_A_STEP = TURN_COST // TAKEN_US
COUNT = 3 * TAKEN_A_STEP + TAKEN_AT_ONCE_MAX


def following(topic: str = "t") -> LedPartitions:
    """Partitions that another node leads, with their logs open."""
    partitions = {index: partition_image(replicas=(1, 2), leader=2, epoch=1) for index in range(COUNT)}
    world = LedPartitions(topic_image(topic, partitions))
    for index in range(COUNT):
        world.manager.core((topic, index))
    for timer in world.time.pending():
        timer.cancel()
    return world


def led_here(world: LedPartitions) -> MetadataImage:
    """The image after node 2 was fenced."""
    topic = world.manager.image.topics["t"]
    partitions = {
        index: replace(each, leader=1, isr=(1,), leader_epoch=2, partition_epoch=each.partition_epoch + 1)
        for index, each in topic.partitions.items()
    }
    return image_of(replace(topic, partitions=partitions))


def turn(world: LedPartitions) -> None:
    """Run one turn of the loop."""
    for timer in world.time.pending():
        if timer.at_ms <= world.time.ms:
            timer.fire()


def lead(world: LedPartitions) -> int:
    return sum(core.is_leader for core in world.manager.by_id.values())


def test_leadership_of_many_partitions_is_taken_in_steps() -> None:
    world = following()
    world.manager.on_image(world.manager.image, led_here(world))
    taken = [lead(world)]
    assert taken == [TAKEN_AT_ONCE_MAX]
    while taken[-1] < COUNT:
        turn(world)
        taken.append(lead(world))
        assert 0 < taken[-1] - taken[-2] <= TAKEN_A_STEP


def test_a_request_meets_the_newest_role_of_its_partition() -> None:
    world = following()
    world.manager.on_image(world.manager.image, led_here(world))
    last = COUNT - 1
    assert not world.manager.by_name["t", last].is_leader
    assert world.produce("t", last).error is ErrorCode.NONE
    assert world.manager.leader_error(TopicPartition("t", last - 1)) is ErrorCode.NONE
    topic_id = world.manager.image.topics["t"].id
    core = world.manager.core_by_id(topic_id, last - 2)
    assert core is not None
    assert core.is_leader
    assert lead(world) == TAKEN_AT_ONCE_MAX + 3


def test_a_topic_that_goes_lets_go_of_its_logs_in_steps_and_is_not_met_again() -> None:
    world = following()
    manager = world.manager
    gone = MetadataImage(offset=manager.image.offset + 1)
    manager.on_image(manager.image, gone)
    assert len(manager.by_id) == COUNT - TAKEN_AT_ONCE_MAX
    assert world.produce("t", COUNT - 1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(manager.by_id) == COUNT - TAKEN_AT_ONCE_MAX - 1
    manager.hosted.finish_changes()
    assert manager.by_id == {}


def test_a_topic_made_anew_comes_after_the_one_of_its_name_has_gone() -> None:
    world = following()
    manager = world.manager
    old = manager.image
    manager.on_image(old, MetadataImage(offset=old.offset + 1))
    anew = topic_image("t", {index: partition_image() for index in range(COUNT)}, generation=1)
    manager.on_image(manager.image, image_of(anew))
    last = TopicPartition("t", COUNT - 1)
    core = manager.core(last)
    assert core is not None
    assert core.topic_id == anew.id
    assert (old.topics["t"].id, last.partition) not in manager.by_id
    manager.hosted.finish_changes()
    assert {core.topic_id for core in manager.by_id.values()} == {anew.id}


def test_a_topic_that_goes_twice_before_its_logs_are_let_go_of_leaves_the_last_of_its_name() -> None:
    world = following()
    manager = world.manager
    manager.on_image(manager.image, led_here(world))
    for generation in (1, 2):
        manager.on_image(manager.image, MetadataImage(offset=manager.image.offset + 1))
        anew = topic_image("t", {index: partition_image() for index in range(COUNT)}, generation=generation)
        manager.on_image(manager.image, image_of(anew))
    core = manager.core(TopicPartition("t", COUNT - 1))
    assert core is not None
    assert core.topic_id == anew.id
    manager.hosted.finish_changes()
    for index in range(COUNT):
        manager.core(TopicPartition("t", index))
    assert [core.topic_id for core in manager.by_id.values()] == [anew.id] * COUNT
    assert not manager.hosted.changes


def test_the_deletion_of_a_topic_is_noted_without_a_look_at_each_partition() -> None:
    class Many(dict[int, PartitionRegistration]):
        """Too many to be looked at."""

        def __len__(self) -> int:
            return 10**9

    world = following()
    taken: list[tuple[TopicPartition, bool]] = []
    changes = RoleChanges(
        world.manager.hosted._services,
        lambda name, topic_id, image, is_new: taken.append((name, image is None)),
    )
    changes.add_deletion(TopicImage("u", b"u" * 16, Many()), now=False)
    last = TopicPartition("u", 10**9 - 1)
    assert len(taken) == TAKEN_AT_ONCE_MAX
    assert last in changes
    changes.take_now(last)
    assert last not in changes
    turn(world)
    assert [name.partition for name, _ in taken] == [
        *range(TAKEN_AT_ONCE_MAX),
        last.partition,
        *range(TAKEN_AT_ONCE_MAX, TAKEN_AT_ONCE_MAX + TAKEN_A_STEP),
    ]
    assert all(is_gone for _, is_gone in taken)


def test_what_coordinators_lean_on_is_taken_at_once() -> None:
    world = following(OFFSETS_TOPIC)
    topic = world.manager.image.topics[OFFSETS_TOPIC]
    partitions = {
        index: replace(each, leader=1, leader_epoch=9, partition_epoch=9)
        for index, each in topic.partitions.items()
    }
    world.manager.on_image(world.manager.image, image_of(replace(topic, partitions=partitions)))
    assert lead(world) == COUNT


def test_a_role_that_cannot_be_taken_halts_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = following()
    halted: list[BaseException] = []
    world.halt = halted.append
    world.manager.on_image(world.manager.image, led_here(world))

    def broken(core: Partition, *arguments: object) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(Partition, "become", broken)
    turn(world)
    assert [type(each) for each in halted] == [KeyError]


def test_a_role_that_cannot_be_taken_when_it_is_asked_for_halts_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request is only one client's, but the role would be lost for all."""
    world = following()
    halted: list[BaseException] = []
    world.halt = halted.append
    world.manager.on_image(world.manager.image, led_here(world))

    def broken(core: Partition, *arguments: object) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(Partition, "become", broken)
    with pytest.raises(KeyError):
        world.manager.core(("t", COUNT - 1))
    assert [type(each) for each in halted] == [KeyError]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "led by another node"])
def test_many_fetches_that_wait_for_what_changes_take_its_roles_no_sooner(is_deleted: bool) -> None:
    """Each answer names all partitions. If it took their new roles, it would wake the next fetch within the same step."""
    partitions, fetches = TAKEN_AT_ONCE_MAX + 4 * TAKEN_A_STEP, 150
    world = LedPartitions(
        topic_image("t", {index: partition_image(replicas=(1, 2)) for index in range(partitions)})
    )
    for index in range(partitions):
        world.manager.core(("t", index))
    asked = [want(world, index, current_leader_epoch=0) for index in range(partitions)]
    waiting = [parked(world, *asked, max_wait_ms=60_000) for _ in range(fetches)]
    halted: list[BaseException] = []
    world.halt = halted.append
    image = MetadataImage(offset=world.image.offset + 1)
    if not is_deleted:
        topic = world.image.topics["t"]
        moved = {
            index: replace(each, leader=2, leader_epoch=9, partition_epoch=9)
            for index, each in topic.partitions.items()
        }
        image = image_of(replace(topic, partitions=moved))
    world.manager.on_image(world.image, image)
    left = [lead(world)]
    assert left == [partitions - TAKEN_AT_ONCE_MAX]
    while left[-1]:
        turn(world)
        left.append(lead(world))
        assert left[-2] - left[-1] <= TAKEN_A_STEP
    for _ in range(fetches):
        turn(world)
    assert all(each.done for each in waiting)
    assert all(any(row.error_code for row in rows(each.result())) for each in waiting)
    assert not halted
