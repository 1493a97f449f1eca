"""Kafka's tools print the same about Apache Kafka and about kafkacompat, with every option that they have for groups,
features, settings and the cluster. Ports are replaced, and so are the ids and times that a broker chooses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from interop_tests.harness import streams_groups
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.groups import coordinator
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import create_topic, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.side_by_side.brokers import started_brokers

pytestmark = pytest.mark.needs_control

STREAMS = "streams.StreamsGroupCommand"
SHARE = "consumer.group.ShareGroupCommand"
GROUPS = "GroupsCommand"
FEATURES = "FeatureCommand"
CLUSTER = "ClusterTool"
CONFIGS = "ConfigCommand"
SESSION_MS = "1800000"
"""Members send no heartbeats while the tools run."""
SETTINGS = {
    "log.retention.ms": "-1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.max.session.timeout.ms": SESSION_MS,
    "group.share.session.timeout.ms": SESSION_MS,
    "group.share.max.session.timeout.ms": SESSION_MS,
}
TIME_MS = 1_700_000_000_000
"""Of the first record. Each next record is a second later."""
RECORDS = 10
EPOCH = re.compile(r"Epoch: \d+")
LOG_TIME = re.compile(r"^\[\d{4}-[^]]*\] ", re.M)
HELP = re.compile(r"^Option +Description.*", re.M | re.S)
"""What a tool prints after a wrong argument."""


class BothBrokers:
    """Apache Kafka and kafkacompat."""

    def __init__(self, tools: KafkaTools, brokers: Sequence[BrokerProcess]) -> None:
        self.tools = tools
        self.brokers = brokers
        self.connections = [Connection(each.bootstrap, client_id="member") for each in brokers]
        self.told: list[str] = []

    def close(self) -> None:
        for each in self.connections:
            each.close()

    def same(self, tool: str, *arguments: str, asks_controllers: bool = False) -> str:
        """Run a tool on both. Return what it prints about Apache Kafka, and note whether that of the other differs."""
        outputs = []
        for broker in self.brokers:
            server = ["--bootstrap-server", broker.bootstrap]
            if asks_controllers:
                server = ["--bootstrap-controller", f"127.0.0.1:{broker.controller_port}"]
            # The cluster tool takes them after its action only.
            where = [arguments[0], *server, *arguments[1:]] if tool == CLUSTER else [*server, *arguments]
            done = self.tools.run(tool, *where, status=None)
            # Of a set, Java prints the elements in any order.
            # How Java calls the tool by reflection changes with the number of calls, and is in each stack.
            lines = LOG_TIME.sub("", HELP.sub("", done.err)).splitlines()
            said = sorted(line for line in lines if not line.startswith("\tat "))
            text = "\n".join([done.out, "--- stderr", *said, f"--- status {done.status}"])
            text = text.replace(str(broker.port), "PORT").replace(
                str(broker.controller_port), "CONTROLLER_PORT"
            )
            outputs.append(EPOCH.sub("Epoch: E", text))
        theirs, ours = outputs
        if theirs != ours:
            self.told.append(
                f"{tool} {' '.join(arguments)}\n--- Apache Kafka\n{theirs}\n--- kafkacompat\n{ours}"
            )
        return theirs

    def are_alike(self) -> None:
        told, self.told = self.told, []
        assert not told, "\n\n".join(told)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, tools: KafkaTools) -> Iterator[BothBrokers]:
    def prepare(broker: BrokerProcess) -> None:
        broker.hides_settings = True  # so that both have the same cluster id

    with started_brokers(tmp_path_factory.mktemp("tools"), settings=SETTINGS, prepare=prepare) as brokers:
        both = BothBrokers(tools, brokers)
        yield both
        both.close()


@pytest.fixture
def both(running: BothBrokers) -> Iterator[BothBrokers]:
    yield running
    running.are_alike()


def make_topic(both: BothBrokers, name: str, partitions: int = 2) -> None:
    """With ten records in each partition."""
    for broker, connection in zip(both.brokers, both.connections, strict=True):
        create_topic(broker.bootstrap, name, partitions)
        for partition in range(partitions):
            values: list[bytes | None] = [b"%d" % n for n in range(RECORDS)]
            deltas = [1000 * n for n in range(RECORDS)]
            plan = BatchPlan(values, base_timestamp_ms=TIME_MS, timestamp_deltas=deltas)
            produce(connection, name, plan, partition=partition)


def begin_streams_group(both: BothBrokers, group: str, topic: str, changelog: str) -> int:
    """The epoch of its member, which is the same on both."""
    (epoch,) = {
        streams_groups.begin_streams_group(connection, group, topic, changelog)
        for connection in both.connections
    }
    return epoch


def commit(both: BothBrokers, group: str, topic: str, offsets: list[int], epoch: int = -1) -> None:
    for connection in both.connections:
        streams_groups.commit(connection, group, topic, offsets, epoch)


def leave(both: BothBrokers, group: str) -> None:
    for connection in both.connections:
        streams_groups.leave(connection, group)


DESCRIPTIONS = [
    [*what, *verbose]
    for what, verbose in itertools.product(
        ([], ["--offsets"], ["--members"], ["--state"], ["--topology"]), ([], ["--verbose"])
    )
]
SELECTORS = [
    ["--to-earliest"],
    ["--to-latest"],
    ["--to-current"],
    ["--to-offset", "4"],
    ["--to-offset", "400"],
    ["--shift-by", "2"],
    ["--shift-by", "-1"],
    ["--shift-by", "-100"],
    ["--to-datetime", "2023-11-14T22:13:24.000"],
    ["--to-datetime", "2033-11-14T22:13:24.000"],
    ["--by-duration", "PT1H"],
    ["--by-duration", "P90000D"],
]


def test_streams_groups(both: BothBrokers, tmp_path: Path) -> None:
    topic, group, changelog = "orders", "shop", "shop-store-changelog"
    make_topic(both, topic)
    make_topic(both, "others", 1)

    def streams(*arguments: str) -> str:
        return both.same(STREAMS, *arguments)

    streams("--list")
    streams("--describe", "--group", group)
    streams("--describe", "--all-groups")
    epoch = begin_streams_group(both, group, topic, changelog)
    commit(both, group, topic, [4, 7], epoch)
    for arguments in ([], ["--state"], ["--state", "Stable"], ["--state", "Empty,NotReady"]):
        streams("--list", *arguments)
    for each in DESCRIPTIONS:
        streams("--describe", "--group", group, *each)
    streams("--describe", "--all-groups", "--state")
    streams("--describe", "--group", "nobody")
    streams("--describe", "--group", group, "--group", "nobody", "--state")
    scope = ["--group", group, "--input-topic", topic]
    streams("--reset-offsets", *scope, "--to-earliest", "--execute")
    streams("--reset-offsets", *scope, "--to-earliest", "--dry-run")
    streams("--delete-offsets", *scope)
    streams("--delete", "--group", group)
    leave(both, group)
    for each in DESCRIPTIONS:
        streams("--describe", "--group", group, *each)
    for selector in SELECTORS:
        streams("--reset-offsets", *scope, *selector, "--dry-run")
        streams("--reset-offsets", *scope, *selector, "--execute")
        streams("--describe", "--group", group, "--offsets")
    streams("--reset-offsets", *scope, "--to-earliest")
    streams("--reset-offsets", *scope, "--to-earliest", "--to-latest", "--execute")
    for where in (
        ["--input-topic", f"{topic}:1"],
        ["--input-topic", "others"],
        ["--input-topic", "missing"],
        ["--input-topic", topic, "--input-topic", "others"],
        ["--all-input-topics"],
        [],
    ):
        streams("--reset-offsets", "--group", group, *where, "--to-offset", "3", "--execute")
        streams("--reset-offsets", "--group", group, *where, "--to-offset", "3", "--dry-run", "--export")
    plan = tmp_path / "plan.csv"
    for lines in (f"{topic},0,5\n{topic},1,6\n", f"{topic},0,500\n", f"{group},{topic},0,1\n", "nothing\n"):
        plan.write_text(lines)
        streams("--reset-offsets", "--group", group, "--from-file", str(plan), "--dry-run")
        streams("--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    streams("--reset-offsets", "--all-groups", "--input-topic", topic, "--to-earliest", "--execute")
    streams("--reset-offsets", "--group", "nobody", "--input-topic", topic, "--to-earliest", "--execute")
    streams("--delete-offsets", "--group", group, "--input-topic", f"{topic}:0")
    streams("--delete-offsets", "--group", group, "--input-topic", "missing")
    streams("--delete-offsets", "--group", group, "--all-input-topics")
    streams("--delete-offsets", "--group", "nobody", "--input-topic", topic)
    streams("--delete-offsets", "--group", group)
    streams("--describe", "--group", group)
    streams("--delete", "--group", "nobody")
    streams("--delete", "--group", group, "--group", "nobody")
    streams("--list", "--state")
    streams("--describe", "--group", group)
    streams("--delete", "--all-groups")
    streams("--list")


def test_internal_topics_of_streams_groups(both: BothBrokers) -> None:
    topic, changelog = "parts", "-store-changelog"
    make_topic(both, topic)
    for group in ("first", "second", "third"):
        epoch = begin_streams_group(both, group, topic, group + changelog)
        commit(both, group, topic, [4, 7], epoch)
        leave(both, group)

    def reset(group: str, *arguments: str) -> None:
        both.same(STREAMS, "--reset-offsets", "--group", group, "--input-topic", topic, *arguments)

    reset("first", "--to-earliest", "--dry-run", "--delete-all-internal-topics")
    reset("first", "--to-earliest", "--execute", "--delete-internal-topic", topic)
    reset("first", "--to-earliest", "--execute", "--delete-internal-topic", "first" + changelog)
    reset("second", "--to-earliest", "--execute", "--delete-all-internal-topics")
    both.same("TopicCommand", "--list")
    both.same(STREAMS, "--delete", "--all-groups", "--delete-all-internal-topics")
    until_gone(both, *[group + changelog for group in ("first", "second", "third")])
    both.same("TopicCommand", "--list")
    both.same(STREAMS, "--list", "--state")


def until_gone(both: BothBrokers, *topics: str) -> None:
    """A deletion is answered before the broker knows of it."""
    for connection, name in zip(both.connections, ("Apache Kafka", "kafkacompat"), strict=True):

        def are_gone(connection: Connection = connection) -> bool:
            listed = connection.call("Metadata", 12, {"Topics": None})["Topics"]
            return not {each["Name"] for each in listed} & set(topics)

        wait_until(are_gone, f"{', '.join(topics)} are gone from {name}", 30, 0.1)


def begin_share_group(both: BothBrokers, group: str, topic: str) -> None:
    """A group with a member that has all partitions."""
    for connection in both.connections:
        coordinator(connection, group)
        body = {"GroupId": group, "MemberId": "one"}
        answer = connection.call(
            "ShareGroupHeartbeat", 1, body | {"MemberEpoch": 0, "SubscribedTopicNames": [topic]}
        )
        assert answer["ErrorCode"] == 0, answer

        def has_partitions(connection: Connection = connection, body: dict[str, str] = body) -> bool:
            nonlocal answer
            beat = body | {"MemberEpoch": answer["MemberEpoch"]}
            answer = connection.call("ShareGroupHeartbeat", 1, beat)
            assert answer["ErrorCode"] == 0, answer
            return bool(answer["Assignment"] and answer["Assignment"]["TopicPartitions"])

        wait_until(has_partitions, "the member has partitions", 30, 0.2)


def test_share_groups(both: BothBrokers, tmp_path: Path) -> None:
    topic, group = "shared", "sharers"
    make_topic(both, topic)
    make_topic(both, "others-shared", 1)

    def share(*arguments: str) -> str:
        return both.same(SHARE, *arguments)

    share("--list")
    share("--describe", "--group", group)
    begin_share_group(both, group, topic)
    for arguments in ([], ["--state"], ["--state", "Stable"], ["--state", "Empty"]):
        share("--list", *arguments)
    for each in DESCRIPTIONS:
        share("--describe", "--group", group, *each)
    share("--describe", "--all-groups", "--state")
    scope = ["--group", group, "--topic", topic]
    share("--reset-offsets", *scope, "--to-earliest", "--execute")
    share("--delete-offsets", *scope)
    share("--delete", "--group", group)
    for connection in both.connections:
        body = {"GroupId": group, "MemberId": "one", "MemberEpoch": -1}
        assert connection.call("ShareGroupHeartbeat", 1, body)["ErrorCode"] == 0
    for each in DESCRIPTIONS:
        share("--describe", "--group", group, *each)
    for selector in SELECTORS:
        share("--reset-offsets", *scope, *selector, "--dry-run")
        share("--reset-offsets", *scope, *selector, "--execute")
        share("--describe", "--group", group, "--offsets")
    share("--reset-offsets", *scope, "--to-earliest")
    for where in (
        ["--topic", f"{topic}:1"],
        ["--topic", "others-shared"],
        ["--topic", "missing"],
        ["--topic", topic, "--topic", "others-shared"],
        ["--all-topics"],
        [],
    ):
        share("--reset-offsets", "--group", group, *where, "--to-offset", "3", "--dry-run", "--export")
        share("--reset-offsets", "--group", group, *where, "--to-offset", "3", "--execute", "--export")
    plan = tmp_path / "plan.csv"
    for lines in (f"{topic},0,5\n{topic},1,6\n", f"{topic},0,500\n", f"{group},{topic},0,1\n", "nothing\n"):
        plan.write_text(lines)
        share("--reset-offsets", "--group", group, "--from-file", str(plan), "--dry-run")
        share("--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    share("--reset-offsets", "--group", "new-sharers", "--topic", topic, "--to-earliest", "--execute")
    share("--delete-offsets", "--group", group, "--topic", "missing")
    share("--delete-offsets", "--group", group, "--topic", topic, "--topic", "others-shared")
    share("--delete-offsets", "--group", "nobody", "--topic", topic)
    share("--describe", "--group", group)
    share("--delete", "--group", "nobody")
    share("--delete", "--group", group, "--group", "nobody")
    share("--delete", "--all-groups")
    share("--list", "--state")


def test_groups_of_all_kinds(both: BothBrokers) -> None:
    topic = "grouped"
    make_topic(both, topic)
    begin_streams_group(both, "a-streams", topic, "a-streams-store-changelog")
    begin_share_group(both, "b-share", topic)
    commit(both, "c-classic", topic, [1, 2])
    for connection in both.connections:
        coordinator(connection, "d-consumer")
        beat = {
            "GroupId": "d-consumer",
            "MemberId": "one",
            "MemberEpoch": 0,
            "RebalanceTimeoutMs": 60_000,
            "SubscribedTopicNames": [topic],
            "TopicPartitions": [],
        }
        assert connection.call("ConsumerGroupHeartbeat", 1, beat)["ErrorCode"] == 0
    for arguments in (
        [],
        ["--consumer"],
        ["--share"],
        ["--streams"],
        *(["--group-type", kind] for kind in ("classic", "consumer", "share", "streams", "Streams", "no")),
        ["--protocol", "consumer"],
        ["--protocol", "streams"],
        ["--group-type", "streams", "--protocol", "consumer"],
    ):
        both.same(GROUPS, "--list", *arguments)
    both.same("consumer.group.ConsumerGroupCommand", "--list", "--state", "--type")
    for group in ("a-streams", "b-share", "c-classic", "d-consumer", "nobody"):
        both.same("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
        both.same("consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
        both.same(STREAMS, "--describe", "--group", group)
        both.same(SHARE, "--describe", "--group", group)
    for tool in (STREAMS, SHARE):
        for group in ("a-streams", "b-share", "c-classic", "d-consumer"):
            both.same(tool, "--delete", "--group", group)
    both.same(GROUPS, "--list")


def test_settings_of_groups(both: BothBrokers) -> None:
    def configs(*arguments: str) -> str:
        return both.same(CONFIGS, *arguments)

    group = ["--entity-type", "groups", "--entity-name", "set-group"]
    configs("--entity-type", "groups", "--describe")
    configs(*group, "--describe")
    for setting in (
        "streams.num.standby.replicas=1",
        "streams.num.standby.replicas=9",
        "streams.heartbeat.interval.ms=4999",
        "streams.heartbeat.interval.ms=6000",
        "streams.session.timeout.ms=60000",
        "streams.session.timeout.ms=1",
        "streams.initial.rebalance.delay.ms=100",
        "streams.task.offset.interval.ms=20000",
        "streams.num.warmup.replicas=3",
        "streams.assignor.name=sticky",
        "streams.assignor.name=other",
        "streams.rack.aware.assignment.tags=zone",
        "streams.assignment.interval.ms=500",
        "streams.assignor.offload.enable=false",
        "streams.assignor.offload.enable=maybe",
        "streams.task.offset.interval.ms=14999",
        "streams.num.warmup.replicas=21",
        "streams.acceptable.recovery.lag=5",
        "streams.acceptable.recovery.lag=-1",
        "streams.acceptable.recovery.lag=99999999999",
        "consumer.assignor.offload.enable=true",
        "share.assignor.offload.enable=true",
        "share.auto.offset.reset=never",
        "share.isolation.level=no",
        "streams.num.standby.replicas=many",
        "streams.rack.aware.assignment.tags=[zone,zone]",
        "streams.rack.aware.assignment.tags=[zone,,rack]",
        "streams.no=1",
        "errors.deadletterqueue.topic.name=dlq.set",
        "errors.deadletterqueue.topic.name=bad name",
        "errors.deadletterqueue.topic.name=__bad",
        "errors.deadletterqueue.copy.record.enable=true",
        "share.renew.acknowledge.enable=false",
        "consumer.heartbeat.interval.ms=5001",
    ):
        configs(*group, "--alter", "--add-config", setting)
    configs(*group, "--describe")
    configs("--entity-type", "groups", "--describe")
    configs(
        *group, "--alter", "--delete-config", "streams.num.standby.replicas,errors.deadletterqueue.topic.name"
    )
    configs(*group, "--alter", "--delete-config", "streams.no")
    configs(
        "--entity-type",
        "groups",
        "--entity-default",
        "--alter",
        "--add-config",
        "streams.num.standby.replicas=1",
    )
    configs(*group, "--describe", "--all")
    configs("--group", "set-group", "--describe")
    make_topic(both, "set-topic", 1)
    topic = ["--entity-type", "topics", "--entity-name", "set-topic"]
    for setting in (
        "errors.deadletterqueue.group.enable=true",
        "max.decompressed.message.bytes=1000",
        "max.decompressed.message.bytes=-1",
        "max.decompressed.message.bytes=2147483647",
        "remote.copy.lag.ms=-2",
        "remote.copy.lag.ms=1000",
        "remote.copy.lag.ms=-1",
        "remote.copy.lag.bytes=-2",
        "remote.copy.lag.bytes=99",
    ):
        configs(*topic, "--alter", "--add-config", setting)
    configs(*topic, "--describe")
    configs(*topic, "--describe", "--all")
    for broker in (["--entity-default"], ["--entity-name", "1"]):
        where = ["--entity-type", "brokers", *broker]
        for setting in (
            "errors.deadletterqueue.auto.create.topics.enable=true",
            "errors.deadletterqueue.topic.name.prefix=dead.",
            "errors.deadletterqueue.topic.name.prefix=bad prefix",
            "max.decompressed.message.bytes=500000",
            "max.decompressed.message.bytes=0",
            "group.streams.assignor.offload.enable=false",
            "group.consumer.assignor.offload.enable=false",
            "group.share.assignor.offload.enable=false",
            "group.streams.assignors=sticky",
            "log.remote.copy.lag.ms=50",
            "log.remote.copy.lag.bytes=-5",
            "cordoned.log.dirs=*",
            "cordoned.log.dirs=[*,/nowhere]",
            "group.streams.assignor.offload.enable=no",
            "compression.type=none",
            "log.cleanup.policy=no",
            "log.cleanup.policy=",
            "log.cleaner.io.buffer.load.factor=x",
            "cordoned.log.dirs=/nowhere",
        ):
            configs(*where, "--alter", "--add-config", setting)
        configs(*where, "--describe")
        configs(*where, "--alter", "--delete-config", "cordoned.log.dirs,max.decompressed.message.bytes")


def test_features(both: BothBrokers) -> None:
    def features(*arguments: str, controllers: bool = False) -> str:
        return both.same(FEATURES, *arguments, asks_controllers=controllers)

    for controllers in (False, True):
        features("describe", controllers=controllers)
        features("describe", "--node-id", "1", controllers=controllers)
    for release in ("3.3-IV3", "4.3-IV0", "4.4-IV1", "4.4-IV2", "4.5-IV0", "9.9"):
        features("upgrade", "--release-version", release, "--dry-run")
        features("downgrade", "--release-version", release, "--dry-run")
        features("downgrade", "--release-version", release, "--unsafe", "--dry-run")
        features("upgrade", "--metadata", release, "--dry-run")
    for feature in (
        "share.version=2",
        "share.version=3",
        "streams.version=1",
        "streams.version=0",
        "metadata.version=30",
        "metadata.version=34",
        "kraft.version=1",
        "transaction.version=1",
        "eligible.leader.replicas.version=0",
        "nope=1",
    ):
        features("upgrade", "--feature", feature, "--dry-run")
        features("downgrade", "--feature", feature, "--dry-run")
        features("downgrade", "--feature", feature, "--unsafe", "--dry-run")
    features("disable", "--feature", "streams.version", "--dry-run")
    features("disable", "--feature", "share.version")
    features("describe")
    features("upgrade", "--feature", "share.version=2")
    features("upgrade", "--feature", "share.version=2")
    features("upgrade")


def test_the_cluster(both: BothBrokers) -> None:
    for controllers in (False, True):

        def cluster(*arguments: str, controllers: bool = controllers) -> str:
            return both.same(CLUSTER, *arguments, asks_controllers=controllers)

        cluster("cluster-id")
        cluster("list-endpoints")
        cluster("list-endpoints", "--include-fenced-brokers")
        cluster("unregister", "--id", "9")
        cluster("unregister-controller", "--id", "9")
        cluster("unregister-controller", "--id", "1")
    # Controllers of Apache Kafka name two APIs that they do not serve, DescribeDelegationToken and
    # DescribeUserScramCredentials.
    both.same(CLUSTER, "api-versions")
    both.same("BrokerApiVersionsCommand")
    for controllers in (False, True):
        quorum = ["remove-controller", "--controller-id", "9", "--controller-directory-id", "A" * 22]
        for options in ([], ["--dry-run"], ["--unregister"], ["--dry-run", "--unregister"]):
            both.same("MetadataQuorumCommand", *quorum, *options, asks_controllers=controllers)
