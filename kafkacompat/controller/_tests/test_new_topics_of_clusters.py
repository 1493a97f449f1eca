"""Placement of new partitions' replicas in a cluster of many brokers in racks, some of them fenced or shutting down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.controller._tests.clusters import after, broker, cluster, directory, partition, settings
from kafkacompat.controller.configuration_control_manager import incremental_alter_configs
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.topics import create_partitions, create_topics
from kafkacompat.ids import DIRECTORY_UNASSIGNED
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkacompat.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


def create(image: MetadataImage, topic: CreatableTopic, **properties: str) -> tuple[Any, Any]:
    """(answer, partitions of the new topic by index)."""
    result = at_once(
        create_topics(image, settings(**properties), CountingRandom(), CreateTopicsRequest(topics=[topic]))
    )
    made = after(image, result).topics.get(topic.name)
    return result.response.topics[0], None if made is None else made.partitions


def of(*brokers: Any) -> MetadataImage:
    return cluster(partition(1), brokers=brokers)


def asked(partitions: int = 6, factor: int = -1) -> CreatableTopic:
    return CreatableTopic(name="new", num_partitions=partitions, replication_factor=factor)


def by_hand(*replicas: list[int]) -> CreatableTopic:
    return CreatableTopic(
        name="new",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=each)
            for index, each in enumerate(replicas)
        ],
    )


def test_the_controllers_default_replication_factor_is_used() -> None:
    answer, made = create(of(1, 2, 3), asked(), default_replication_factor="3")
    assert (answer.error_code, answer.replication_factor) == (0, 3)
    assert all(set(each.replicas) == {1, 2, 3} == set(each.isr) for each in made.values())
    assert sorted(each.leader for each in made.values()) == [1, 1, 2, 2, 3, 3]


def test_more_replicas_than_brokers_are_refused() -> None:
    answer, made = create(of(1, 2), asked(), default_replication_factor="3")
    assert (answer.error_code, made) == (38, None)
    assert answer.error_message == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 2 broker(s) are registered or some brokers have all their log directories cordoned."
    )


def test_a_fenced_broker_gets_replicas_when_it_is_needed_but_is_neither_leader_nor_in_sync() -> None:
    _, made = create(of(1, 2, broker(3, fenced=True)), asked(factor=3))
    for each in made.values():
        assert set(each.replicas) == {1, 2, 3}
        assert set(each.isr) == {1, 2}
        assert each.leader == each.replicas[0] != 3
    _, fewer = create(of(1, 2, broker(3, fenced=True)), asked(factor=2))
    assert all(set(each.replicas) == {1, 2} for each in fewer.values())


def test_with_every_broker_fenced_nothing_can_be_placed() -> None:
    answer, _ = create(of(broker(1, fenced=True)), asked(factor=1))
    assert answer.error_code == 38
    assert answer.error_message == (
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their log "
        "directories cordoned."
    )


@pytest.mark.parametrize(
    ("only", "usable"),
    [(broker(1, fenced=True), 1), (broker(1, cordoned_directories=(directory(1),)), 0)],
)
def test_too_few_brokers_are_told_before_that_none_can_lead(only: Any, usable: int) -> None:
    answer, _ = create(of(only), asked(factor=2))
    assert answer.error_message == (
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
        f"only {usable} broker(s) are registered or some brokers have all their log directories cordoned."
    )


@pytest.mark.parametrize(
    "third", [broker(3, in_controlled_shutdown=True), broker(3, cordoned_directories=(directory(3),))]
)
def test_brokers_that_leave_or_take_nothing_more_get_no_replicas(third: Any) -> None:
    _, made = create(of(1, 2, third), asked(factor=2))
    assert all(3 not in each.replicas for each in made.values())
    answer, _ = create(of(1, 2, third), asked(factor=3))
    assert answer.error_code == 38


def test_a_broker_with_one_directory_of_two_cordoned_still_takes_replicas() -> None:
    half = broker(2, directories=(directory(2), directory(3)), cordoned_directories=(directory(2),))
    _, made = create(of(1, half), asked(factor=2))
    for each in made.values():
        assert each.directories[each.replicas.index(2)] == DIRECTORY_UNASSIGNED
        assert each.directories[each.replicas.index(1)] == directory(1)


def test_each_partition_is_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    _, made = create(of(*(broker(each, rack=rack) for each, rack in racks.items())), asked(12, 3))
    assert all({racks[each] for each in found.replicas} == {"a", "b", "c"} for found in made.values())
    leaders = [each.leader for each in made.values()]
    assert all(leaders.count(each) == 2 for each in racks)


def test_an_assignment_by_hand_is_taken_as_it_is() -> None:
    answer, made = create(of(1, 2, broker(3, fenced=True)), by_hand([3, 2], [1, 3]))
    assert (answer.num_partitions, answer.replication_factor) == (2, 2)
    assert [(each.replicas, each.isr, each.leader) for each in made.values()] == [
        ((3, 2), (2,), 2),
        ((1, 3), (1,), 1),
    ]


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        (
            ([1, 9],),
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            ([1, 2], [1]),
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s).",
        ),
        (
            ([1], [3]),
            "All brokers specified in the manual partition assignment for partition 1 are fenced or in controlled "
            "shutdown.",
        ),
        (
            ([1, 4],),
            "The manual partition assignment includes broker 4, but all its log directories are cordoned.",
        ),
    ],
)
def test_an_assignment_by_hand_that_names_who_is_not_there_is_refused(replicas: Any, text: str) -> None:
    cordoned = broker(4, cordoned_directories=(directory(4),))
    answer, made = create(of(1, 2, broker(3, fenced=True), cordoned), by_hand(*replicas))
    assert (answer.error_code, answer.error_message, made) == (39, text, None)


def test_added_partitions_have_as_many_replicas_as_the_first_and_leaders_that_are_there() -> None:
    image = cluster(partition(1, 2, 3), brokers=(1, 2, broker(3, fenced=True)))
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)])
    result = at_once(create_partitions(image, CountingRandom(), request))
    assert result.response.results[0].error_code == 0
    added = list(after(image, result).topics["t"].partitions.values())[1:]
    assert len(added) == 4
    assert all(len(each.replicas) == 3 and set(each.isr) == {1, 2} for each in added)


@pytest.mark.parametrize(("room", "refused"), [(None, False), (6, False), (5, True), (0, True)])
def test_what_this_node_could_not_open_is_not_created(room: int | None, refused: bool) -> None:
    """Node 1 is the controller. Of others it does not know what room they have."""
    image = of(1, 2)
    both = CreateTopicsRequest(topics=[asked(6, factor=2)])
    result = at_once(create_topics(image, settings(), CountingRandom(), both, logs_left=room))
    (answer,) = result.response.topics
    assert answer.error_code == (ErrorCode.POLICY_VIOLATION if refused else ErrorCode.NONE)
    assert bool(result.records) is not refused
    if refused:
        assert answer.error_message == (
            f"Node 1 would have 6 new replicas, but its limit of open files leaves room for {room}."
        )
    elsewhere = CreateTopicsRequest(topics=[by_hand(*[[2]] * 6)])
    (answer,) = at_once(
        create_topics(image, settings(), CountingRandom(), elsewhere, logs_left=room)
    ).response.topics
    assert answer.error_code == ErrorCode.NONE


def test_topics_of_one_request_share_the_room() -> None:
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "abc"]
    request = CreateTopicsRequest(topics=topics)
    result = at_once(create_topics(of(1), settings(), CountingRandom(), request, logs_left=5))
    codes = [each.error_code for each in result.response.topics]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize(("room", "refused"), [(None, False), (2, False), (1, True)])
def test_nor_does_a_topic_grow_beyond_what_this_node_can_open(room: int | None, refused: bool) -> None:
    image = of(1)
    (name,) = image.topics
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=3, assignments=None)])
    result = at_once(create_partitions(image, CountingRandom(), request, node_id=1, logs_left=room))
    (answer,) = result.response.results
    assert answer.error_code == (ErrorCode.POLICY_VIOLATION if refused else ErrorCode.NONE)
    assert bool(result.records) is not refused


MIRROR = {
    "mirror.state": "mirroring",
    "mirror.leader.epoch": "1048576",
    "mirror.source.bootstrap.servers": "elsewhere:9092",
    "mirror.source.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ",
}


def mirror_of(configs: dict[str, str]) -> CreatableTopic:
    topic = asked(2, 1)
    topic.configs = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    return topic


def test_the_partitions_of_a_mirror_begin_above_the_epochs_of_its_source() -> None:
    image = of(1, 2)
    made = at_once(
        create_topics(image, settings(), CountingRandom(), CreateTopicsRequest(topics=[mirror_of(MIRROR)]))
    )
    image = after(image, made)
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="new", count=3, assignments=None)])
    image = after(image, at_once(create_partitions(image, CountingRandom(), more)))
    assert [each.leader_epoch for each in image.topics["new"].partitions.values()] == [1048576] * 3


def test_internal_topics_are_no_mirrors() -> None:
    topic = mirror_of(MIRROR)
    topic.name = "__consumer_offsets"
    answer, records = create(of(1), topic)
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert not records


@pytest.mark.parametrize("missing", sorted(MIRROR.keys() - {"mirror.state"}))
def test_a_mirror_needs_all_of_its_settings(missing: str) -> None:
    answer, _ = create(of(1), mirror_of({name: value for name, value in MIRROR.items() if name != missing}))
    assert answer.error_code == ErrorCode.INVALID_CONFIG


def made_with(configs: dict[str, str]) -> MetadataImage:
    image = of(1)
    request = CreateTopicsRequest(topics=[mirror_of(configs)])
    return after(image, at_once(create_topics(image, settings(), CountingRandom(), request)))


def alter(image: MetadataImage, **changes: str | None) -> tuple[int, MetadataImage]:
    """The code, and the image then. None deletes a setting. An underscore stands for a dot."""
    configs = [
        AlterableConfig(
            name=f"mirror.{name.replace('_', '.')}", config_operation=int(value is None), value=value
        )
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name="new", configs=configs)
    result = at_once(
        incremental_alter_configs(image, settings(), IncrementalAlterConfigsRequest(resources=[resource]))
    )
    return int(result.response.responses[0].error_code), after(image, result)


def epochs(image: MetadataImage) -> list[int]:
    return [each.leader_epoch for each in image.topics["new"].partitions.values()]


@pytest.mark.parametrize("is_mirror", [False, True])
def test_the_first_leader_epoch_is_not_changed_by_itself(is_mirror: bool) -> None:
    image = made_with(MIRROR if is_mirror else {})
    assert alter(image, leader_epoch="2097152")[0] == ErrorCode.INVALID_CONFIG
    assert alter(image, leader_epoch=None)[0] == (ErrorCode.INVALID_CONFIG if is_mirror else ErrorCode.NONE)
    assert alter(image, state="paused")[0] == (ErrorCode.NONE if is_mirror else ErrorCode.INVALID_CONFIG)


def test_deleting_the_state_of_a_mirror_does_not_let_it_take_over() -> None:
    image = made_with(MIRROR)
    for state in ("mirroring", "paused"):
        code, image = alter(image, state=state)
        assert code == ErrorCode.NONE
        assert alter(image, state=None)[0] == ErrorCode.INVALID_CONFIG
    code, image = alter(image, state="stopped")
    assert code == ErrorCode.NONE
    assert alter(image, state=None)[0] == ErrorCode.NONE


BACK = {
    "state": "mirroring",
    "leader_epoch": "2097152",
    "source_bootstrap_servers": "elsewhere:9092",
    "source_topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
}


@pytest.mark.parametrize("was_mirror", [False, True])
def test_a_topic_that_turns_back_begins_above_the_epochs_of_its_source(was_mirror: bool) -> None:
    image = made_with(MIRROR if was_mirror else {})
    if was_mirror:
        image = alter(image, state="stopped")[1]
    before = image.topics["new"].partitions
    code, image = alter(image, **BACK)
    assert code == ErrorCode.NONE
    assert epochs(image) == [2097152] * len(before)
    for index, begun in image.topics["new"].partitions.items():
        former = before[index]
        assert begun == replace(former, leader_epoch=2097152, partition_epoch=former.partition_epoch + 1)


@pytest.mark.parametrize(
    "changes",
    [
        {**BACK, "state": "stopped"},
        {**BACK, "leader_epoch": "1048575"},
        {**BACK, "leader_epoch": "0"},
        {**BACK, "source_topic_id": ""},
    ],
)
def test_a_topic_turns_back_with_higher_epochs_and_a_source(changes: dict[str, str | None]) -> None:
    image = alter(made_with(MIRROR), state="stopped")[1]
    code, then = alter(image, **changes)
    assert code == ErrorCode.INVALID_CONFIG
    assert epochs(then) == [1048576, 1048576]


def test_a_topic_that_follows_does_not_turn_to_another_source_with_new_epochs() -> None:
    assert alter(made_with(MIRROR), **BACK)[0] == ErrorCode.INVALID_CONFIG
