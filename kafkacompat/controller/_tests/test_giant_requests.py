"""Requests to the controller with the largest number of elements: none is handled completely between two turns of the
loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat import tasks
from kafkacompat.controller import configuration_control_manager, replication_control_manager, topics
from kafkacompat.controller._tests.harness import Harness, context
from kafkacompat.controller._tests.test_steps import pauses, settle, with_partitions
from kafkacompat.controller.configuration_control_manager import MAX_VALUE_LENGTH
from kafkacompat.controller.controller_result import RECORDS_A_STEP, SCANNED_A_STEP
from kafkacompat.controller.partition_change_builder import BrokerChange, generate_leader_and_isr_updates
from kafkacompat.raft import describe
from kafkacompat.tasks import Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterableConfig as OldConfig
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsResource as OldResource
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
)
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

MANY = 20_000
SCANNED = 5 * SCANNED_A_STEP
TOPIC, BROKER = 2, 4


@pytest.fixture(scope="module")
def harness() -> Harness:
    return with_partitions(2)


def altered(harness: Harness, *resources: AlterConfigsResource) -> tuple[Any, int]:
    request = IncrementalAlterConfigsRequest(resources=list(resources))
    settings = harness.controller._settings
    return pauses(configuration_control_manager.incremental_alter_configs(harness.image, settings, request))


def resource(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> AlterConfigsResource:
    found = [AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=found)


def test_too_many_settings_of_one_resource_are_refused_without_a_look_at_them(harness: Harness) -> None:
    many = [(f"x{index}", 0, "1") for index in range(MANY)]
    made, paused = altered(harness, resource("t", *many))
    assert made.response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert paused == 0
    assert made.records == ()


def test_the_settings_of_many_resources_are_changed_in_steps(harness: Harness) -> None:
    many = [(f"x{index}", 0, "1") for index in range(configuration_control_manager.SETTINGS_MAX)]
    made, paused = altered(harness, *[resource(f"t{number}", *many) for number in range(10)])
    assert {each.error_code for each in made.response.responses} == {ErrorCode.INVALID_CONFIG}
    # Read from the request and checked.
    assert paused >= 2 * 10 * len(many) // configuration_control_manager.STEP
    assert made.records == ()


@pytest.mark.parametrize(
    "count", [configuration_control_manager.SETTINGS_MAX, configuration_control_manager.SETTINGS_MAX + 1]
)
def test_one_resource_has_a_bounded_number_of_settings(harness: Harness, count: int) -> None:
    """They are compared and written in one step. A broker may have settings of any name."""
    many = [(f"x{index}", 0, "1") for index in range(count)]
    made, _ = altered(harness, resource("", *many, kind=BROKER))
    (answer,) = made.response.responses
    if count > configuration_control_manager.SETTINGS_MAX:
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert answer.error_message == "More than 2000 settings of one resource in one request."
    else:
        assert (answer.error_code, len(made.records)) == (ErrorCode.NONE, count)


@pytest.mark.parametrize(
    ("count", "value"),
    [(1_500, "1"), (20, "x" * (configuration_control_manager.CHARACTERS_MAX // 30))],
    ids=["settings", "characters"],
)
def test_the_settings_of_a_broker_are_bounded_over_all_requests(
    harness: Harness, count: int, value: str
) -> None:
    """All of them are compared, checked and read in one step."""
    settings = harness.controller._settings
    before = {f"x{index}": value for index in range(count)}
    image = replace(harness.image, configs={(BROKER, ""): before})

    def altered_to(*changes: tuple[str, int, str | None]) -> tuple[int, int]:
        request = IncrementalAlterConfigsRequest(resources=[resource("", *changes, kind=BROKER)])
        made, _ = pauses(configuration_control_manager.incremental_alter_configs(image, settings, request))
        return made.response.responses[0].error_code, len(made.records)

    more = [(f"y{index}", 0, value) for index in range(count)]
    assert altered_to(*more) == (ErrorCode.INVALID_CONFIG, 0)
    assert altered_to(more[0]) == (ErrorCode.NONE, 1)
    # Of what is too much already, something may be taken away.
    image = replace(image, configs={(BROKER, ""): {**before, **{name: value for name, _, value in more}}})
    assert altered_to(("x0", 1, None)) == (ErrorCode.NONE, 1)
    assert altered_to(("z", 0, value)) == (ErrorCode.INVALID_CONFIG, 0)


def test_a_new_topic_with_too_many_settings_is_refused_without_a_look_at_them(harness: Harness) -> None:
    many = [CreatableTopicConfig(name=f"x{index}", value="1") for index in range(MANY)]
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new", configs=many)])
    made, paused = pauses(
        topics.create_topics(harness.image, harness.controller._settings, harness.random, request)
    )
    (answer,) = made.response.topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert answer.error_message == "More than 2000 settings of one resource in one request."
    assert paused == 0


def test_the_settings_of_many_new_topics_are_read_in_steps(harness: Harness) -> None:
    count = configuration_control_manager.SETTINGS_MAX
    many = [CreatableTopicConfig(name=f"x{index}", value="1") for index in range(count)]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=f"new{index}", configs=many) for index in range(topics.TOPICS_A_STEP)]
    )
    made, paused = pauses(
        topics.create_topics(harness.image, harness.controller._settings, harness.random, request)
    )
    assert {each.error_code for each in made.response.topics} == {ErrorCode.INVALID_CONFIG}
    assert paused >= topics.TOPICS_A_STEP * count // (2 * topics.NAMED_A_STEP)


def test_resources_without_settings_are_looked_at_in_steps(harness: Harness) -> None:
    made, paused = altered(harness, *[resource("x")] * MANY)
    assert {each.error_code for each in made.response.responses} == {ErrorCode.INVALID_REQUEST}
    assert paused >= MANY * configuration_control_manager.RESOURCE_UNITS // configuration_control_manager.STEP


def test_settings_of_the_old_call_are_changed_in_steps(harness: Harness) -> None:
    count = configuration_control_manager.SETTINGS_MAX
    found = [OldConfig(name=f"x{index}", value="1") for index in range(count)]
    request = AlterConfigsRequest(
        resources=[
            OldResource(resource_type=TOPIC, resource_name=f"t{number}", configs=found)
            for number in range(10)
        ]
    )
    settings = harness.controller._settings
    made, paused = pauses(
        configuration_control_manager.legacy_alter_configs(harness.image, settings, request)
    )
    assert made.response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert paused >= 2 * 10 * count // configuration_control_manager.STEP


def test_long_values_count_by_their_characters(harness: Harness) -> None:
    long = ",".join(["a"] * 16_000)
    one = resource("t", ("cleanup.policy", 3, long))
    made, paused = altered(
        harness, *[resource(f"x{index}", ("cleanup.policy", 3, long)) for index in range(20)]
    )
    assert {each.error_code for each in made.response.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (
        paused
        >= 20
        * len(long)
        // configuration_control_manager.CHARACTERS_A_UNIT
        // configuration_control_manager.STEP
    )
    assert altered(harness, one)[0].response.responses[0].error_code == ErrorCode.NONE


def test_the_first_fault_of_a_resource_is_told_in_kafkas_order(harness: Harness) -> None:
    """Repeated names, then nulls, then operations, then lengths."""
    long = "1" * (MAX_VALUE_LENGTH + 1)
    faults = [("a", 0, "1"), ("a", 0, "1"), ("b", 0, None), ("c", 9, "1"), ("d", 0, long)]
    texts = []
    while len(faults) > 1:
        made, _ = altered(harness, resource("t", *faults))
        (refused,) = made.response.responses
        texts.append(refused.error_message)
        del faults[1]
    assert [str(text).split(" : ")[0][:40] for text in texts] == [
        "Error due to duplicate config keys",
        "Null value not supported for",
        "Unknown operations type 9",
        "The configuration value cannot be added ",
    ]


def elected(harness: Harness, kind: int, topics: int, partitions: int) -> tuple[Any, int]:
    named = [
        TopicPartitions(topic=f"x{index}", partitions=list(range(partitions))) for index in range(topics)
    ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=named)
    settings = harness.controller._settings
    return pauses(replication_control_manager.elect_leaders(harness.image, settings, request))


@pytest.mark.parametrize(
    ("kind", "topics", "partitions", "least"),
    [
        (0, MANY, 0, MANY // (RECORDS_A_STEP * replication_control_manager.RECORDS_LIKE_COST)),
        (0, 1, MANY, MANY // RECORDS_A_STEP),
        (7, 1, MANY, MANY // replication_control_manager.REFUSED_A_STEP),
        (7, MANY, 0, MANY // replication_control_manager.REFUSED_A_STEP),
    ],
)
def test_elections_that_come_to_nothing_take_steps(
    harness: Harness, kind: int, topics: int, partitions: int, least: int
) -> None:
    made, paused = elected(harness, kind, topics, partitions)
    assert paused >= least
    results = made.response.replica_election_results
    assert [len(each.partition_result) for each in results] == [partitions] * topics


def test_topics_of_which_nothing_is_reassigned_take_steps(harness: Harness) -> None:
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t")] * MANY)
    settings = harness.controller._settings
    made, paused = pauses(
        replication_control_manager.alter_partition_reassignments(harness.image, settings, request)
    )
    assert paused >= MANY // RECORDS_A_STEP
    assert len(made.response.responses) == MANY


@pytest.mark.parametrize(("topics", "partitions"), [(SCANNED, 0), (1, SCANNED)])
def test_reassignments_are_listed_in_steps(harness: Harness, topics: int, partitions: int) -> None:
    asked = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0] * partitions)
    request = ListPartitionReassignmentsRequest(topics=[asked] * topics)
    made, paused = pauses(replication_control_manager.list_partition_reassignments(harness.image, request))
    assert paused >= SCANNED // SCANNED_A_STEP
    assert made.response.topics == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeleteTopicsRequest(topic_names=["x"] * SCANNED),
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name="x")] * SCANNED),
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name=None)] * SCANNED),
    ],
    ids=["names", "named", "neither"],
)
def test_topics_that_are_to_go_are_counted_in_steps(
    harness: Harness, make: Callable[[], DeleteTopicsRequest]
) -> None:
    _, paused = pauses(topics.delete_topics(harness.image, make()))
    assert paused >= SCANNED // topics.NAMED_A_STEP


@pytest.mark.parametrize(
    ("make", "version", "code"),
    [
        (lambda: DeleteTopicsRequest(topic_names=["x"] * SCANNED), 1, ErrorCode.INVALID_REQUEST),
        (lambda: DeleteTopicsRequest(topic_names=["x"] * SCANNED), 3, ErrorCode.TOPIC_DELETION_DISABLED),
        (
            lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name="x")] * SCANNED),
            6,
            ErrorCode.TOPIC_DELETION_DISABLED,
        ),
    ],
    ids=["version 1", "names", "named"],
)
def test_disabled_deletions_are_refused_in_steps_and_without_a_text_as_in_kafka(
    make: Callable[[], DeleteTopicsRequest], version: int, code: ErrorCode
) -> None:
    harness = Harness(properties={"delete.topic.enable": "false"}).start()
    answer = harness.controller.delete_topics(make(), context(version))
    assert not answer.done
    settle(harness)
    found = answer.result().responses
    assert len(found) == SCANNED
    assert {(each.name, each.error_code, each.error_message) for each in found} == {("x", code, None)}
    _, paused = pauses(topics.deletion_disabled(make(), code))
    assert paused >= SCANNED // topics.NAMED_A_STEP


@pytest.mark.parametrize(("topics", "partitions"), [(MANY, 0), (1, MANY)])
def test_a_description_of_other_quorums_is_refused_in_steps(
    harness: Harness, topics: int, partitions: int
) -> None:
    asked = TopicData(topic_name="x", partitions=[PartitionData(partition_index=0)] * partitions)
    request = DescribeQuorumRequest(topics=[asked] * topics)
    response, paused = pauses(describe.describe_quorum(request, None))
    assert paused >= MANY // describe.REFUSED_A_STEP
    assert [len(topic.partitions) for topic in response.topics] == [partitions] * topics
    answer = harness.controller.describe_quorum(request, context())
    assert not answer.done
    settle(harness)
    assert len(answer.result().topics) == topics


class Name(str):
    """Counts how often names are compared to be sorted."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Name.compared += 1
        return str.__lt__(self, other)


WALKS: dict[str, Callable[[Any, Any], Work[Any]]] = {
    "elections": lambda image, settings: replication_control_manager.elect_leaders(
        image, settings, ElectLeadersRequest(topic_partitions=None)
    ),
    "reassignments": lambda image, settings: replication_control_manager.list_partition_reassignments(
        image, ListPartitionReassignmentsRequest(topics=None)
    ),
    "balance": replication_control_manager.maybe_balance_partition_leaders,
    "a broker that goes": lambda image, settings: generate_leader_and_isr_updates(
        image, settings, BrokerChange(to_remove=7), lambda partition: 7 in partition.isr
    ),
}


@pytest.mark.parametrize("name", WALKS)
def test_the_names_of_all_topics_are_sorted_in_steps(
    harness: Harness, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SORTED_A_STEP", 20)
    topic = harness.image.topics["t"]
    names = [Name(f"t{7_919 * each % 10_007}") for each in range(1_000)]
    image = replace(harness.image, topics={each: replace(topic, name=each) for each in names})
    before, most = Name.compared, 0
    for _ in WALKS[name](image, harness.controller._settings):
        most, before = max(most, Name.compared - before), Name.compared
    assert 0 < max(most, Name.compared - before) < 1_000
