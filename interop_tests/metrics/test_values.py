"""The values of metrics after the same requests to kafkacompat and to Apache Kafka under the JMX exporter.

Whatever both show is compared: counters by what the requests added, gauges as they are in the end. What differs for a
reason is excused by name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from math import isclose, isnan
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.groups import Member, coordinator
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.raw_kafka import (
    ErrorCode,
    create_topic,
    fetch_body,
    list_offset,
    produce,
)
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.metrics.test_names import Node, Series, of_kafka
from interop_tests.transactions.by_hand import OLD, Producer

ORDERS, COMPACTED, SMALL, EMPTY, DELETED, MADE = "orders", "compacted", "small", "empty", "deleted", "made"
GROUP, CLASSIC = "by-hand", "classic"
QUOTA_CLIENT = "limited"
TIMEOUT_S = 30.0
SETTLED_S = 20.0
STEADY = ("_total", "_count")
"""Ends of the names of what only grows."""
TOPICS_IN_THE_END = 7
"""With the two internal ones."""
LEAST_COMPARED, LEAST_GROWN = 1500, 150
NEAR = 0.02
UNLIKE = ("networkProcessor", "_objectname", "version")
"""Labels that are left out."""
EXCUSED = (
    # Times, and what depends on how long the script took.
    r"kafka_network_requestmetrics_\w+timems \w+",
    r"kafka_\w+(?:time_?ms|timeus|rateandtimems)",
    r"kafka_\w+_(?:latency|load_time|throttle_time)_?(?:avg|max)?",
    r"kafka_\w+_rate",
    r"kafka_\w+(?:idle\w*|idlepercent|ratio_avg)",
    r"kafka_\w+(?:agems|lag_?ms|timestamp|start_time_ms|last_run_ms|heartbeatreceivedms)",
    r"kafka_server_\w+_linux_disk_\w+",
    r"kafka_server_quota_(?:tokens|request_time)",
    # The controller writes records without content every half second, and Kafka's has events of its own.
    r"kafka_\w+(?:applied|committed)_?record_?offset",
    r"kafka_server_raft_metrics_(?:high_watermark|log_end_offset)",
    r"kafka_server_brokermetadatalistener_\w+",
    r"kafka_controller_controllereventmanager_\w+_count_total",
    r"kafka_controller_kafkacontroller_eventqueueoperationsstartedcount",
    # They are asked for until they are there.
    r"kafka_network_requestmetrics_requestbytes (?:FindCoordinator|InitProducerId|ListOffsets|Metadata|OffsetFetch)",
    # A node of Kafka with both roles asks itself over the network: forwarded requests, markers and verifications.
    r"kafka_network_requestmetrics_\w+ (?:ApiVersions|CreateTopics|DeleteTopics)",
    r"kafka_server_socket_server_metrics_listener_\w+",
    r"kafka_server_socket_server_metrics_\w*connections?\w*",
    # Kafka counts groups once a minute, and takes fetches that are over out of its purgatory now and then.
    r"kafka_coordinator_group_groupmetadatamanager_numgroups\w*",
    r"kafka_server_group_coordinator_metrics_\w+_group_count",
    r"kafka_server_delayedoperationpurgatory_purgatorysize",
    # It shows the time since 1970 before the first cleaning.
    r"kafka_log_logcleaner_max_clean_time_secs",
    # A flush is one of a whole log; Kafka counts segments.
    r"kafka_log_logflushstats_\w+_count_total",
)
"""Patterns of names, with the request behind those of requests."""

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two brokers of its own"),
]


class Script:
    """Requests that leave nothing to chance: none is repeated until it succeeds."""

    def __init__(self, node: Node) -> None:
        self.node = node
        bootstrap = self.bootstrap = node.broker.bootstrap
        self.connection = Connection(bootstrap, TIMEOUT_S, client_id="script")
        create_topic(bootstrap, ORDERS, 3)
        create_topic(bootstrap, COMPACTED, 1, {"cleanup.policy": "compact"})
        create_topic(bootstrap, SMALL, 1, {"max.message.bytes": "200"})
        create_topic(bootstrap, EMPTY, 1)
        create_topic(bootstrap, DELETED, 2)
        for group in (GROUP, CLASSIC):
            coordinator(self.connection, group)
        self.producers = {
            name: Producer(self.connection, name, OLD).init() for name in ("commits", "aborts", "stays")
        }
        self._limit()

    def close(self) -> None:
        self.connection.close()

    def _limit(self) -> None:
        entity = [{"EntityType": "client-id", "EntityName": QUOTA_CLIENT}]
        ops = [{"Key": "controller_mutation_rate", "Value": 100.0, "Remove": False}]
        answer = self.call(
            "AlterClientQuotas", 1, {"Entries": [{"Entity": entity, "Ops": ops}], "ValidateOnly": False}
        )
        assert [each["ErrorCode"] for each in answer["Entries"]] == [0], answer

    def call(self, api: str, version: int, body: dict[str, Any]) -> Any:
        return self.connection.call(api, version, body)

    def run(self) -> None:
        for part in (
            self.produce,
            self.fetch,
            self.look_up,
            self.commit_offsets,
            self.be_a_member,
            self.transact,
            self.administer,
        ):
            part()

    def produce(self) -> None:
        now_ms = time.time_ns() // 1_000_000

        def batch(count: int = 4, **fields: Any) -> BatchPlan:
            return BatchPlan([b"x" * 50] * count, base_timestamp_ms=now_ms, **fields)

        own = {"producer_id": 4711, "producer_epoch": 0}
        for topic, plan, code in (
            (ORDERS, batch(), 0),
            (ORDERS, batch(7), 0),
            (ORDERS, batch(base_sequence=0, **own), 0),
            (ORDERS, batch(base_sequence=0, **own), 0),
            (ORDERS, batch(base_sequence=9, **own), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (ORDERS, batch(crc=1), ErrorCode.CORRUPT_MESSAGE),
            (ORDERS, batch(last_offset_delta=9), None),
            (SMALL, batch(9), ErrorCode.MESSAGE_TOO_LARGE),
            (SMALL, batch(1), 0),
            (COMPACTED, batch(2), ErrorCode.INVALID_RECORD),
            (COMPACTED, batch(2, keys=[b"a", b"b"]), 0),
            ("nowhere", batch(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            answer = produce(self.connection, topic, plan)
            assert code is None or answer["ErrorCode"] == code, (topic, answer)
        assert produce(self.connection, ORDERS, batch(), 1, acks=1)["ErrorCode"] == 0

    def fetch(self) -> None:
        for topic, offset, options in (
            (ORDERS, 0, {}),
            (ORDERS, 4, {"partition_max_bytes": 300}),
            (ORDERS, 999, {}),
            ("nowhere", 0, {}),
            (EMPTY, 0, {"MaxWaitMs": 50}),
            (COMPACTED, 0, {"IsolationLevel": 1}),
        ):
            self.call("Fetch", 12, fetch_body(topic, offset, **options))
        opened = self.call("Fetch", 12, fetch_body(ORDERS, 0, SessionEpoch=0))
        session = {"SessionId": opened["SessionId"], "Topics": [], "MaxWaitMs": 50}
        self.call("Fetch", 12, fetch_body(ORDERS, 0, SessionEpoch=1) | session)
        other = self.call("Fetch", 12, fetch_body(SMALL, 0, SessionEpoch=0))
        self.call("Fetch", 12, fetch_body(SMALL, 0, SessionEpoch=-1) | {"SessionId": other["SessionId"]})

    def look_up(self) -> None:
        for timestamp in (-1, -2, -3, 5):
            list_offset(self.connection, ORDERS, 0, timestamp)
        self.call("ApiVersions", 3, {"ClientSoftwareName": "script", "ClientSoftwareVersion": "1"})

    def commit_offsets(self) -> None:
        partitions = [
            {
                "PartitionIndex": index,
                "CommittedOffset": 1,
                "CommittedLeaderEpoch": -1,
                "CommittedMetadata": "",
            }
            for index in range(3)
        ]
        body = {
            "GroupId": GROUP,
            "GenerationIdOrMemberEpoch": -1,
            "MemberId": "",
            "GroupInstanceId": None,
            "Topics": [{"Name": ORDERS, "Partitions": partitions}],
        }
        for _ in range(2):
            self.call("OffsetCommit", 8, body)
        one = [{"Name": ORDERS, "Partitions": [{"PartitionIndex": 1}]}]
        self.call("OffsetDelete", 0, {"GroupId": GROUP, "Topics": one})

    def be_a_member(self) -> None:
        member = Member(self.bootstrap, CLASSIC)
        member.get_id()
        assert member.join()["ErrorCode"] == 0
        assert member.sync({member.member_id: b""})["ErrorCode"] == 0
        for _ in range(4):
            assert member.heartbeat() == 0
        member.leave()
        member.close()

    def transact(self) -> None:
        for name, commits in (("commits", True), ("aborts", False), ("stays", None)):
            producer = self.producers[name]
            assert producer.add(ORDERS, 2) == 0
            assert producer.produce(ORDERS, b"a", b"b", partition=2)["ErrorCode"] == 0
            if commits is not None:
                assert producer.end(commits)["ErrorCode"] == 0
                wait_until(lambda: not self._open_records(), "the marker is written")

    def _open_records(self) -> float:
        """From the metrics, because requests are counted."""
        labels = frozenset({"topic": ORDERS, "partition": "2"}.items())
        return self.node.scrape()[Series("kafka_cluster_partition_laststableoffsetlag", labels)]

    def administer(self) -> None:
        partition = {"PartitionIndex": 0, "Offset": 5}
        topics = [{"Name": ORDERS, "Partitions": [partition]}]
        self.call("DeleteRecords", 2, {"Topics": topics, "TimeoutMs": 5000})
        with Connection(self.bootstrap, TIMEOUT_S, client_id=QUOTA_CLIENT) as limited:
            made = {"NumPartitions": 4, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
            for name in (MADE, ORDERS):
                limited.call("CreateTopics", 7, {"Topics": [{"Name": name, **made}], "timeoutMs": 15000})
            limited.call("DeleteTopics", 5, {"TopicNames": [DELETED], "TimeoutMs": 15000})
        resource = {"ResourceType": 2, "ResourceName": ORDERS, "ConfigurationKeys": None}
        self.call("DescribeConfigs", 4, {"Resources": [resource]})


class Side:
    """One broker, before and after the script."""

    def __init__(self, kind: str, root: Path) -> None:
        self.node = Node(kind, root)
        self.values: dict[Series, float] = {}
        """What has grown, and gauges."""

    def run(self) -> None:
        self.node.broker.start()
        script = Script(self.node)
        try:
            before = self._scraped()
            script.run()
            after = self._settled()
        finally:
            script.close()
        self.values = {
            each: value - before.get(each, 0.0) if each.name.endswith(STEADY) else value
            for each, value in after.items()
        }

    def _scraped(self) -> dict[Series, float]:
        """With the sums over all network threads, of which ours has one."""
        found: dict[Series, float] = {}
        for series, value in of_kafka(self.node.scrape()).items():
            labels = frozenset((name, of) for name, of in series.labels if name not in UNLIKE)
            name = re.sub("_networkprocessor_[0-9]+_", "_networkprocessor_", series.name)
            summed = Series(name, labels)
            found[summed] = found.get(summed, 0.0) + value
        return found

    def _settled(self) -> dict[Series, float]:
        """A scrape is not of one instant, so it is repeated when everything is there."""

        def is_settled() -> bool:
            found = self._scraped()
            counts = found[Series("kafka_controller_kafkacontroller_globaltopiccount", frozenset())]
            shown = {dict(each.labels).get("topic") for each in found if each.name == "kafka_log_log_size"}
            return counts == TOPICS_IN_THE_END and MADE in shown and DELETED not in shown

        wait_until(is_settled, "the topics are made and deleted", SETTLED_S)
        return self._scraped()


def _sides(kind: str, root: Path) -> Iterator[Side]:
    try:
        side = Side(kind, root)
    except MissingTool as missing:
        pytest.skip(str(missing))
    try:
        side.run()
        yield side
    finally:
        side.node.broker.kill()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    yield from _sides(KAFKACOMPAT, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    yield from _sides(APACHE, tmp_path_factory.mktemp("theirs"))


def excused(series: Series) -> bool:
    shown = f"{series.name} {dict(series.labels).get('request', '')}".strip()
    return any(re.fullmatch(pattern, shown) for pattern in EXCUSED)


def are_equal(series: Series, one: float, other: float) -> bool:
    """Percentiles lie between values by weights, which need not be the same."""
    if any(name == "quantile" for name, _ in series.labels):
        return isclose(one, other, rel_tol=NEAR)
    return one == other or (isnan(one) and isnan(other))


def test_the_same_requests_give_the_same_values(ours: Side, theirs: Side) -> None:
    both = [each for each in ours.values.keys() & theirs.values.keys() if not excused(each)]
    different = [
        f"{each.name} {dict(each.labels)}: {ours.values[each]:g}, and {theirs.values[each]:g} of Apache Kafka"
        for each in sorted(both)
        if not are_equal(each, ours.values[each], theirs.values[each])
    ]
    assert not different
    grown = [each for each in both if each.name.endswith(STEADY) and ours.values[each]]
    assert (len(both), len(grown)) > (LEAST_COMPARED, LEAST_GROWN)


def test_excused_metrics_exist(ours: Side, theirs: Side) -> None:
    both = ours.values.keys() & theirs.values.keys()
    shown = {f"{each.name} {dict(each.labels).get('request', '')}".strip() for each in both}
    stale = [pattern for pattern in EXCUSED if not any(re.fullmatch(pattern, each) for each in shown)]
    assert not stale


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("kafka_server_brokertopicmetrics_messagesin_total", {"topic": ORDERS}, 31),
        ("kafka_server_brokertopicmetrics_totalfetchrequests_total", {"topic": EMPTY}, 1),
        ("kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total", {}, 1),
        ("kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total", {}, 2),
        ("kafka_server_delayedfetchmetrics_expires_total", {"fetcherType": "consumer"}, 1),
        ("kafka_server_group_coordinator_metrics_offset_commit_count", {}, 6),
        ("kafka_server_group_coordinator_metrics_group_completed_rebalance_count", {}, 1),
        ("kafka_server_addpartitionstotxnmanager_verificationtimems_count_total", {}, 3),
        ("kafka_cluster_partition_laststableoffsetlag", {"topic": ORDERS, "partition": "2"}, 2),
        ("kafka_log_log_logstartoffset", {"topic": ORDERS, "partition": "0"}, 5),
        ("kafka_controller_kafkacontroller_globalpartitioncount", {}, 110),
    ],
)
def test_the_script_does_what_it_says(
    ours: Side, theirs: Side, name: str, labels: dict[str, str], value: float
) -> None:
    """Numbers that follow from the script: two zeros would be equal too."""
    series = Series(name, frozenset(labels.items()))
    assert (ours.values[series], theirs.values[series]) == (value, value)
