"""Metadata, DescribeCluster, DescribeTopicPartitions and ApiVersions: what clients learn about the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.api import describe_topic_partitions
from kafkacompat.api._tests.kit import Api
from kafkacompat.api.access import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kafkacompat.api.registry import ENTRIES
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.partition._tests.kit import broker_image, image_of, partition_image, topic_image
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic

NOT_ASKED = -(2**31)


def named(*names: str | None, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def by_id(*ids: bytes) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in ids])


def errors(response: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


def test_all_topics_are_asked_for_by_empty_in_v0_and_null_later() -> None:
    api = Api(topic_image("b"), topic_image("a"))
    assert errors(api.call(MetadataRequest(topics=[]), 0)) == [("a", 0), ("b", 0)]
    for version in range(1, 14):
        assert errors(api.call(MetadataRequest(topics=None), version)) == [("a", 0), ("b", 0)]
        assert errors(api.call(MetadataRequest(topics=[]), version)) == []


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_brokers_leaders_and_all_partitions(version: int) -> None:
    partitions = {index: partition_image(epoch=5) for index in range(3)}
    api = Api(topic_image("t", partitions))
    response = api.call(named("t"), version)
    brokers = {broker.node_id for broker in response.brokers}
    assert [(one.node_id, one.host, one.port) for one in response.brokers] == [(1, "host-1", 9001)]
    (topic,) = response.topics
    assert [one.partition_index for one in topic.partitions] == [0, 1, 2]
    for one in topic.partitions:
        assert one.error_code == 0
        assert one.leader_id in brokers
        assert (one.replica_nodes, one.isr_nodes) == ([1], [1])
        assert one.leader_epoch == (5 if version >= 7 else -1)
    if version >= 1:
        assert response.controller_id in brokers
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 10:
        assert topic.topic_id == api.node.image.topics["t"].id


def test_missing_topics_are_made_and_first_answered_unknown() -> None:
    api = Api(topic_image("t"))
    response = api.call(named("new", "t", "new"), 12)
    assert errors(response) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("t", 0)]
    assert api.creator.asked == [["new"]]


def test_auto_creation_needs_flag_and_setting_and_a_legal_name() -> None:
    api = Api()
    api.call(named("new", allow_auto_topic_creation=False), 4)
    assert api.creator.asked == []
    assert errors(api.call(named("bad name", "ok"), 4))[0] == ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert api.creator.asked == [["ok"]]
    api.call(named("old"), 3)  # before version 4, creation is always allowed
    assert api.creator.asked[-1] == ["old"]
    refusing = Api(overrides={"auto.create.topics.enable": "false"})
    refusing.call(named("new"), 12)
    assert refusing.creator.asked == []


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "ä", "a/b", "a\n"])
def test_illegal_names(name: str) -> None:
    assert errors(Api().call(named(name), 12)) == [(name, ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_topics_by_id_from_version_12() -> None:
    api = Api(topic_image("t"))
    topic_id = api.node.image.topics["t"].id
    response = api.call(by_id(topic_id, b"?" * 16), 12)
    assert errors(response) == [("t", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert response.topics[1].topic_id == b"?" * 16


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_version_12_are_refused_without_brokers(version: int) -> None:
    response = Api(topic_image("t")).call(by_id(b"x" * 16), version)
    assert errors(response) == [("", ErrorCode.INVALID_REQUEST)]
    assert (response.brokers, response.cluster_id) == ([], None)


def test_no_name_and_no_id_is_an_error_not_a_crash() -> None:
    response = Api().call(named(None), 13)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def cluster() -> Api:
    return Api(
        topic_image(
            "t",
            {
                0: partition_image(replicas=(2, 1), isr=(1,), leader=-1, epoch=1),
                1: partition_image(replicas=(2, 1), leader=2),
                2: partition_image(replicas=(9, 1), leader=9),
                3: partition_image(replicas=(3, 1), leader=1),
            },
        ),
        brokers=[broker_image(1), broker_image(2, listeners=("OTHER",)), broker_image(3, fenced=True)],
    )


def test_missing_leaders_by_version() -> None:
    api = cluster()

    def told(version: int) -> list[tuple[int, int]]:
        return [(one.error_code, one.leader_id) for one in api.call(named("t"), version).topics[0].partitions]

    assert told(6) == [(5, -1), (72, -1), (5, -1), (0, 1)]
    assert told(5) == [(5, -1), (5, -1), (5, -1), (0, 1)]


def test_replicas_may_be_dead_but_brokers_are_alive_and_have_the_listener() -> None:
    response = cluster().call(named("t"), 8)
    assert [broker.node_id for broker in response.brokers] == [1]
    partitions = response.topics[0].partitions
    assert [one.replica_nodes for one in partitions] == [[2, 1], [2, 1], [9, 1], [3, 1]]
    assert [one.offline_replicas for one in partitions] == [[2], [2], [9], [3]]


def test_version_zero_names_living_replicas_only() -> None:
    partition = cluster().call(named("t"), 0).topics[0].partitions[3]
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE


def test_replicas_in_lost_directories_are_offline() -> None:
    here, gone, lost, unassigned = b"h" * 16, b"g" * 16, bytes(15) + b"\2", bytes(15) + b"\1"
    partitions = {
        index: replace(partition_image(), directories=(directory,))
        for index, directory in enumerate([here, gone, lost, unassigned])
    }
    api = Api(topic_image("t", partitions), brokers=[replace(broker_image(1), directories=(here,))])
    assert [one.offline_replicas for one in api.call(named("t"), 8).topics[0].partitions] == [
        [],
        [1],
        [1],
        [],
    ]


def test_endpoints_are_those_of_the_listener_asked_on() -> None:
    api = Api(brokers=[broker_image(1, listeners=("PLAINTEXT", "OUTSIDE"))])
    api.connection.listener_name = "OUTSIDE"
    assert [one.port for one in api.call(MetadataRequest(topics=None), 9).brokers] == [9101]


def test_authorised_operations_only_when_asked() -> None:
    api = Api(topic_image("t"))
    plain = api.call(named("t"), 8)
    assert (plain.cluster_authorized_operations, plain.topics[0].topic_authorized_operations) == (
        NOT_ASKED,
        NOT_ASKED,
    )
    asked = api.call(
        named("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 8
    )
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 0b110111111000


def test_authorised_operations_of_names_that_are_not_there() -> None:
    asked = [MetadataRequestTopic(name="absent")]
    request = MetadataRequest(topics=asked, include_topic_authorized_operations=True)
    (topic,) = Api().call(request, 9).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (3, TOPIC_OPERATIONS)


def test_internal_topics_say_so() -> None:
    api = Api(topic_image(OFFSETS_TOPIC), topic_image("t"))
    internal = [(topic.name, topic.is_internal) for topic in api.call(MetadataRequest(topics=None), 9).topics]
    assert internal == [(OFFSETS_TOPIC, True), ("t", False)]


def test_no_living_broker_means_no_controller() -> None:
    api = Api(brokers=[broker_image(1, fenced=True)])
    assert api.call(MetadataRequest(topics=None), 9).controller_id == -1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster(version: int) -> None:
    api = cluster()
    response = api.call(DescribeClusterRequest(), version)
    assert (response.cluster_id, response.controller_id, response.error_code) == ("cluster", 1, 0)
    assert [broker.broker_id for broker in response.brokers] == [1]
    assert response.cluster_authorized_operations == NOT_ASKED
    asked = api.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


def test_describe_cluster_shows_fenced_brokers_when_asked() -> None:
    response = cluster().call(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(broker.broker_id, broker.is_fenced) for broker in response.brokers] == [(1, False), (3, True)]


@pytest.mark.parametrize(("kind", "error"), [(2, 114), (3, 115)])
def test_wrong_endpoint_types(kind: int, error: int) -> None:
    response = Api().call(DescribeClusterRequest(endpoint_type=kind), 1)
    assert response.error_code == error
    assert response.brokers == []


def describe(api: Api, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return api.call(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        ),
        0,
    )


def page(response: Any) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    cursor = response.next_cursor
    return (
        [(topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics],
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
    )


def test_topic_partitions_come_page_by_page_sorted_by_name() -> None:
    api = Api(topic_image("b", 3), topic_image("a", 2))
    assert page(describe(api)) == ([("a", [0, 1]), ("b", [0, 1, 2])], None)
    assert page(describe(api, limit=1)) == ([("a", [0])], ("a", 1))
    assert page(describe(api, limit=2)) == ([("a", [0, 1])], ("b", 0))
    assert page(describe(api, limit=3, cursor=("a", 1))) == ([("a", [1]), ("b", [0, 1])], ("b", 2))
    assert page(describe(api, limit=9, cursor=("b", 2))) == ([("b", [2])], None)
    assert page(describe(api, "b", "a", limit=0)) == ([("a", [0])], ("a", 1))
    assert page(describe(api, cursor=("aa", 1))) == ([("b", [0, 1, 2])], None)


def test_the_node_bounds_a_page() -> None:
    api = Api(topic_image("a", 5), overrides={"max.request.partition.size.limit": "2"})
    assert page(describe(api)) == ([("a", [0, 1])], ("a", 2))


def test_described_partitions_have_no_error_whatever_their_leader() -> None:
    partitions = describe(cluster(), "t").topics[0].partitions
    assert [(one.error_code, one.leader_id) for one in partitions] == [(0, -1), (0, -1), (0, -1), (0, 1)]


def test_very_many_topics_that_are_not_there_come_page_by_page_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a million names fit into one request."""
    monkeypatch.setattr(describe_topic_partitions, "NAMED_A_STEP", 7)
    api = Api(topic_image("t050", 3), overrides={"max.request.partition.size.limit": "10"})
    asked = [f"t{number:03}" for number in range(99, -1, -1)] * 2
    told: list[tuple[str, list[int]]] = []
    cursor: tuple[str, int] | None = None
    pages = 0
    while cursor is not None or not pages:
        topics, cursor = page(describe(api, *asked, limit=10, cursor=cursor))
        assert len(topics) <= 11
        told += topics
        pages += 1
    assert [name for name, _ in told] == sorted(set(asked))
    assert dict(told)["t050"] == [0, 1, 2]
    assert pages == 10


def test_unknown_topics_and_bad_cursors() -> None:
    api = Api(topic_image("a"))
    assert [(topic.name, topic.error_code) for topic in describe(api, "x", "a").topics] == [
        ("a", 0),
        ("x", 3),
    ]
    assert describe(api, "a", cursor=("b", 0)).topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert describe(api, "a", cursor=("a", -1)).topics[0].error_code == ErrorCode.INVALID_REQUEST


def api_versions(api: Api, version: int, name: str = "lib-x.y", software: str = "1.2.3") -> Any:
    return api.call(ApiVersionsRequest(client_software_name=name, client_software_version=software), version)


def test_api_versions_advertise_produce_from_zero_and_only_what_is_served() -> None:
    for version in range(5):
        response = api_versions(Api(), version)
        ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        assert ranges[0] == (0, 13)
        assert ranges[1] == (4, 18)
        assert set(ranges) == {entry.key for entry in ENTRIES}
        assert not set(ranges) & {71, 72}


def test_api_versions_of_what_is_sent_on_are_those_that_the_controller_serves_too() -> None:
    api = Api()
    # As a controller of Kafka 3.9 has them. It has no UnregisterController, and serves CreateTopics from version 0 on.
    api.controller.versions = {19: (0, 7), 20: (1, 6), 45: (0, 0), 57: (0, 1), 94: (0, -1), 3: (0, 12)}
    response = api_versions(api, 4)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert (ranges[19], ranges[20], ranges[45], ranges[57]) == ((2, 7), (1, 6), (0, 0), (0, 1))
    assert 94 not in ranges
    assert ranges[3] == (0, 13)  # the broker itself answers


def test_features_that_are_not_served_are_not_shown_though_finalized() -> None:
    response = api_versions(Api(), 4)
    assert [(one.name, one.min_version, one.max_version) for one in response.supported_features] == [
        ("kraft.version", 0, 1),
        ("metadata.version", 7, 33),
        ("transaction.version", 0, 2),
    ]
    finalized = [(one.name, one.max_version_level) for one in response.finalized_features]
    assert finalized == [("group.version", 1), ("metadata.version", 30), ("transaction.version", 2)]
    assert response.finalized_features_epoch == 100


def test_minimum_zero_is_hidden_from_older_clients() -> None:
    names = [one.name for one in api_versions(Api(), 3).supported_features]
    assert names == ["metadata.version"]


@pytest.mark.parametrize(
    ("name", "software"), [("", "1"), ("a", ""), ("-a", "1"), ("a.", "1"), ("a b", "1"), ("a", "1\n")]
)
def test_bad_software_names_are_refused_with_an_empty_list(name: str, software: str) -> None:
    response = api_versions(Api(), 3, name, software)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


def test_a_connection_keeps_the_beginning_of_what_its_client_says_of_its_software() -> None:
    """A client says it before it has logged in."""
    api = Api()
    assert not api_versions(api, 3, "n" * 32_000, "1" * 32_000).error_code
    assert api.connection.client_software == f"{'n' * 1_000} {'1' * 1_000}"


def test_software_is_remembered_by_connection() -> None:
    api = Api()
    api_versions(api, 3)
    assert api.connection.client_software == "lib-x.y 1.2.3"


def test_a_node_without_registration_answers_too() -> None:
    api = Api()
    api.publish(replace(image_of(), brokers={}))
    assert api_versions(api, 4).error_code == 0
