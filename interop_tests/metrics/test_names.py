"""Names and labels of the metrics, compared with Apache Kafka under the JMX exporter, after the same work.

What Apache Kafka has and kafkacompat does not is listed by name in docs/reference/metrics.md.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from interop_tests.harness.broker import APACHE, CHECKOUT, KAFKACOMPAT, BrokerProcess, chosen_bootstrap
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.jmx_exporter import exporting
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import Hand, Leader, initialize, read_from_start

PAGE = CHECKOUT / "docs" / "reference" / "metrics.md"
TOPIC = "orders"
RECORDS = 20
SHARE_GROUP, SHARED = "workers", "jobs"
"""A topic of its own, because a member of a share group may read it once or twice."""
NO_ID = uuid.UUID(int=0)
SOFTWARE = "kafka_server_socket_server_metrics_connections"
WAITED = "kafka_server_delayedfetchmetrics_expires_total"
ODD_CLIENT = 'a "b" *c, d'
ODD_CLIENT_LABEL = '"a \\"b\\" \\*c, d"'
QUOTAS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"),
        "producer_byte_rate=10000000",
    ),
    (("--entity-type", "users", "--entity-default"), "consumer_byte_rate=10000000"),
    (
        ("--entity-type", "clients", "--entity-default"),
        "request_percentage=1000,controller_mutation_rate=100",
    ),
)
TIMEOUT_S = 30.0
MEMBERS_S = 60.0

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two brokers of its own"),
]


class Series(NamedTuple):
    name: str
    labels: frozenset[tuple[str, str]]


MANY_PARTITIONS = {"offsets.topic.num.partitions": "50", "transaction.state.log.num.partitions": "50"}
"""Kafka's defaults, so that the series of each partition are many."""


class Node:
    """A broker with a port for scrapes."""

    def __init__(self, kind: str, root: Path) -> None:
        self.port = free_port()
        metrics = {"metrics.listener.port": str(self.port)} if kind == KAFKACOMPAT else {}
        self.broker = BrokerProcess(kind, root, metrics | MANY_PARTITIONS)
        if kind == APACHE:
            self.broker.jvm_options = exporting(self.port)
        self.root = root
        self.hand: Hand | None = None
        """A member of a share group. It stays, because Apache Kafka forgets share-partitions that nobody fetches."""

    def text(self, path: str = "metrics") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def scrape(self) -> dict[Series, float]:
        """With the folder of the node left out of labels."""
        found: dict[Series, float] = {}
        for family in text_string_to_metric_families(self.text()):
            for each in family.samples:
                labels = {name: value.replace(str(self.root), "") for name, value in each.labels.items()}
                found[Series(each.name, frozenset(labels.items()))] = each.value
        return found

    @cached_property
    def scraped(self) -> dict[Series, float]:
        """One scrape after the work, for all tests: Apache Kafka computes half a second for each."""
        return self.scrape()

    def work(self) -> None:
        """Quotas of all kinds for users, for clients, and for both, a topic, records, a group that reads and commits."""
        bootstrap = self.broker.bootstrap
        self._limit(bootstrap)
        admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="reader")
        admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
        admin.create_topics([NewTopic(SHARED, num_partitions=1, replication_factor=1)])
        admin.close()
        producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=ODD_CLIENT)
        for number in range(RECORDS):
            producer.send(TOPIC, b"x" * 100, partition=number % 3).get(TIMEOUT_S)
        for _ in range(5):
            producer.send(SHARED, b"x", partition=0).get(TIMEOUT_S)
        producer.close()
        consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest", client_id="reader"
        )
        read = 0

        def all_read() -> bool:
            nonlocal read
            read += sum(map(len, consumer.poll(500).values()))
            return read >= RECORDS

        wait_until(all_read, "all records are read")
        consumer.commit()

        def has_waited() -> bool:
            """Apache Kafka has the metric only after a fetch has waited as long as it may."""
            consumer.poll(500)
            return WAITED in self.text()

        wait_until(has_waited, "a fetch has waited")
        consumer.close()
        self._work_of_members(bootstrap)

    def _work_of_members(self, bootstrap: str) -> None:
        """A consumer group of the new protocol that reads and commits, and a share group that accepts and holds records."""
        options = {"bootstrap.servers": bootstrap, "group.id": "g848", "group.protocol": "consumer"}
        # Apache Kafka takes metrics of clients only with a plugin.
        own = {"auto.offset.reset": "earliest", "client.id": "reader", "enable.metrics.push": False}
        member = Consumer(options | own)
        member.subscribe([SHARED])
        wait_until(lambda: member.poll(0.5), "a member of the new protocol reads", MEMBERS_S)
        member.commit(asynchronous=False)
        member.close()
        with Connection(bootstrap, client_id="reader") as connection:
            read_from_start(connection, SHARE_GROUP)
            asked = {"Topics": [{"TopicId": NO_ID, "Name": SHARED}]}
            topics = connection.call("Metadata", 12, asked)["Topics"]
        initialize(lambda: bootstrap, [SHARE_GROUP], SHARED)
        hand = self.hand = Hand(lambda: Leader(bootstrap), SHARE_GROUP, "m", topics[0]["TopicId"])

        def accepts() -> bool:
            return any(hand.acknowledge(first, last) == 0 for first, last, _ in hand.fetch())

        wait_until(accepts, "a member of the share group accepts a record", MEMBERS_S)
        wait_until(hand.fetch, "it holds another one", MEMBERS_S)

    def _limit(self, bootstrap: str) -> None:
        """The quota of user and client is the first one that applies, then the user's, then the client's."""
        tools = KafkaTools()  # the names of its clients are numbered, and are labels
        try:
            for entity, quotas in QUOTAS:
                tools.run(
                    "ConfigCommand",
                    "--bootstrap-server",
                    bootstrap,
                    *entity,
                    "--alter",
                    "--add-config",
                    quotas,
                )
        finally:
            tools.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    yield from _at_work(KAFKACOMPAT, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    try:
        yield from _at_work(APACHE, tmp_path_factory.mktemp("theirs"))
    except MissingTool as missing:
        pytest.skip(str(missing))


def _at_work(kind: str, root: Path) -> Iterator[Node]:
    node = Node(kind, root)
    node.broker.start()
    try:
        node.work()
        yield node
    finally:
        if node.hand is not None:
            node.hand.hang_up()
        node.broker.kill()


def of_kafka(series: dict[Series, float]) -> dict[Series, float]:
    return {each: value for each, value in series.items() if each.name.startswith("kafka_")}


def comparable(each: Series) -> Series:
    """Nodes may speak other versions of the protocol among themselves, and answer with other errors while a topic is made. Which
    of Kafka's network threads a connection has is chance. By `_objectname` the exporter tells two MBeans of one name apart."""
    shown = [(name, value) for name, value in each.labels if name != "_objectname"]
    labels = {name: value for name, value in shown if name not in ("version", "error", "networkProcessor")}
    return Series(each.name, frozenset((labels | dict.fromkeys(dict(shown).keys() - labels, "")).items()))


def test_every_series_is_one_of_kafka_s(ours: Node, theirs: Node) -> None:
    known = {comparable(each) for each in of_kafka(theirs.scraped)}
    unknown = sorted({comparable(each) for each in of_kafka(ours.scraped)} - known)
    assert not unknown


def listed_as_missing() -> list[str]:
    text = PAGE.read_text("utf-8")
    block = re.search(r"## Not served\n.*?```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block.group(1).split()


def test_missing_metrics_are_listed_by_name(ours: Node, theirs: Node) -> None:
    served = {each.name for each in ours.scraped}
    missing = {each.name for each in of_kafka(theirs.scraped)} - served
    patterns = listed_as_missing()
    unlisted = sorted(name for name in missing if not any(fnmatchcase(name, each) for each in patterns))
    assert not unlisted
    stale = [each for each in patterns if not any(fnmatchcase(name, each) for name in missing)]
    assert not stale
    hidden = sorted({each for each in patterns for name in served if fnmatchcase(name, each)})
    assert not hidden, "these say that something is missing that is served"


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("kafka_server_brokertopicmetrics_messagesin_total", {"topic": TOPIC}),
        ("kafka_server_brokertopicmetrics_bytesin_total", {"topic": TOPIC}),
        ("kafka_server_brokertopicmetrics_bytesout_total", {"topic": TOPIC}),
        ("kafka_log_log_size", {"topic": TOPIC, "partition": "1"}),
        ("kafka_log_log_logendoffset", {"topic": TOPIC, "partition": "1"}),
        ("kafka_log_log_numlogsegments", {"topic": TOPIC, "partition": "1"}),
        ("kafka_cluster_partition_insyncreplicascount", {"topic": TOPIC, "partition": "0"}),
        ("kafka_cluster_partition_atminisr", {"topic": TOPIC, "partition": "0"}),
        ("kafka_server_replicamanager_partitioncount", {}),
        ("kafka_server_replicamanager_leadercount", {}),
        ("kafka_server_replicamanager_underreplicatedpartitions", {}),
        ("kafka_server_replicamanager_atminisrpartitioncount", {}),
        ("kafka_controller_kafkacontroller_activecontrollercount", {}),
        ("kafka_controller_kafkacontroller_globalpartitioncount", {}),
        ("kafka_controller_kafkacontroller_brokerregistrationstate", {"broker": "1"}),
        ("kafka_server_raft_metrics_current_state", {"state": "leader"}),
        ("kafka_server_kafkaserver_brokerstate", {}),
        ("kafka_server_raft_metrics_number_of_voters", {}),
        ("kafka_coordinator_group_groupmetadatamanager_numoffsets", {}),
        ("kafka_server_group_coordinator_metrics_offset_deletion_count", {}),
        (
            "kafka_server_sharepartitionmetrics_inflightmessagecount",
            {"group": SHARE_GROUP, "topic": SHARED, "partition": "0"},
        ),
        (
            "kafka_server_sharepartitionmetrics_inflightbatchcount",
            {"group": SHARE_GROUP, "topic": SHARED, "partition": "0"},
        ),
        ("kafka_server_metadataloader_currentmetadataversion", {}),
        ("kafka_server_metadataloader_currentcontrollerid", {}),
        ("kafka_server_metadataloader_finalizedlevel", {"featureName": "shareVersion"}),
        ("kafka_server_node_metrics_feature_name_metadata_version_maximum_supported_level", {}),
        ("kafka_server_node_metrics_feature_name_transaction_version_minimum_supported_level", {}),
        ("kafka_controller_controllerstats_uncleanleaderelections_total", {}),
        ("kafka_controller_kafkacontroller_newactivecontrollerscount", {}),
        ("kafka_server_replicamanager_partitionswithlatetransactionscount", {}),
        ("kafka_log_log_retentionsizeinpercent", {"topic": TOPIC, "partition": "1"}),
        ("kafka_log_logmanager_cordonedlogdirectorycount", {}),
    ],
)
def test_values_are_equal_after_the_same_work(
    ours: Node, theirs: Node, name: str, labels: dict[str, str]
) -> None:
    series = Series(name, frozenset(labels.items()))
    assert ours.scraped[series] == theirs.scraped[series]


def test_quotas_have_the_labels_of_kafka_s(ours: Node, theirs: Node) -> None:
    """Compared by hand, because clients of the tools have ids of their own, and Kafka forgets idle ones only after an hour."""

    def of_quotas(node: Node) -> set[Series]:
        wanted = {ODD_CLIENT_LABEL, "reader", None}
        return {
            each
            for each in node.scraped
            if each.name.startswith("kafka_server_quota_") and dict(each.labels).get("clientId") in wanted
        }

    found = of_quotas(ours)
    names = ("byte_rate", "request_time", "tokens", "mutation_rate", "throttle_time")
    assert {each.name for each in found} == {f"kafka_server_quota_{name}" for name in names}
    resources = {dict(each.labels)["resource"] for each in found}
    assert resources == {"Produce", "Fetch", "Request", "ControllerMutation"}
    assert any(dict(each.labels).get("clientId") == ODD_CLIENT_LABEL for each in found)
    assert found <= of_quotas(theirs)


def test_connections_have_the_software_of_their_clients(ours: Node, theirs: Node) -> None:
    """Apart from those of the nodes among themselves."""

    def software(node: Node) -> set[tuple[str, str, str]]:
        names = ("clientSoftwareName", "clientSoftwareVersion", "listener")
        found = [
            dict(each.labels) for each, count in node.scrape().items() if each.name == SOFTWARE and count
        ]
        return {tuple(labels[name] for name in names) for labels in found}  # type: ignore[misc]

    def differences(node: Node) -> set[tuple[str, str, str]]:
        before = software(node)
        consumer = KafkaConsumer(TOPIC, bootstrap_servers=node.broker.bootstrap)
        consumer.poll(0)
        new = wait_until(lambda: software(node) - before, "the software is known", TIMEOUT_S)
        consumer.close()
        wait_until(lambda: not new & software(node), "the connections are gone", TIMEOUT_S)
        return new

    found = differences(ours)
    assert {(name, listener) for name, _, listener in found} == {("kafka-python", "PLAINTEXT")}
    assert found == differences(theirs)


def test_live_and_ready(ours: Node) -> None:
    assert ours.text("live") == "live\n"
    assert ours.text("ready") == "ready\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ours.text("other")
