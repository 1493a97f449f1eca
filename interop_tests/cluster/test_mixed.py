"""Nodes of kafkacompat and of Apache Kafka 4.4 in one cluster: replication in both directions, and controllers that
vote together.

All features have Kafka's default levels. These tests start both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from interop_tests.cluster import views
from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.moving import elect
from interop_tests.cluster.node import ClusterNode
from interop_tests.cluster.quotas import mutations_refused_alike, throttled_alike
from interop_tests.cluster.test_quorum import directory_id, observers, quorum, voters
from interop_tests.cluster.workload import Follower, Work, assert_exact, closing_consumer
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.chance import seeded_chance
from interop_tests.harness.java_tools import KafkaTools, dump_faults
from interop_tests.harness.stable import wait_until_stable
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.letters import TAKES_LETTERS, RejectedJobs
from interop_tests.streams import application as streams
from interop_tests.streams.instances import BROKER_SETTINGS
from interop_tests.streams_groups.held_groups import told_of_group

AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]
SETTINGS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    # The bytes of a few topics' records, or of ten seconds of NoOpRecords.
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.assignment.interval.ms": "0",
    **BROKER_SETTINGS,
}
KAFKA_VERSION = "4.4-IV2"
OF_JAVA = 60
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_MOVES = (14, 15, 16)
"""The coordinator is loading, is not available, or has moved."""
COORDINATOR_S = 60.0
OFFSETS_TOPIC = "__consumer_offsets"
ELECTION_NOT_NEEDED = 84
NO_REASSIGNMENT_IN_PROGRESS = 85
INVALID_UPDATE_VERSION = 95
BROKER_ID_NOT_REGISTERED = 102


@pytest.fixture(scope="module")
def _clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Only one of the two clusters runs at a time, because each has Java processes."""
    alive: dict[str, Cluster] = {}

    def get(name: str, kinds: list[str], roles: list[str]) -> Cluster:
        if name not in alive:
            while alive:
                alive.popitem()[1].close()
            root = tmp_path_factory.mktemp(name)
            alive[name] = Cluster(kinds, root, len(kinds), roles, SETTINGS).start()
        else:
            alive[name].mend()
        return alive[name]

    yield get
    for cluster in alive.values():
        cluster.close()


@pytest.fixture
def apache_quorum(_clusters: Callable[..., Cluster]) -> Cluster:
    """Controllers 1 and 2 and broker 3 of Apache Kafka, and broker 4 of kafkacompat."""
    return _clusters("apache-quorum", [APACHE] * 3 + [KAFKACOMPAT], [CONTROLLER] * 2 + [BROKER] * 2)


@pytest.fixture
def our_quorum(_clusters: Callable[..., Cluster]) -> Cluster:
    """Controller 1 and broker 2 of kafkacompat, and broker 3 of Apache Kafka."""
    return _clusters("our-quorum", [KAFKACOMPAT] * 2 + [APACHE], [CONTROLLER] + [BROKER] * 2)


def elect_preferred(tools: KafkaTools, cluster: Cluster, topic: str, folder: Path) -> None:
    """Run kafka-leader-election for both partitions of a topic."""
    path = folder / "election.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": each} for each in range(2)]}))
    words = ["--bootstrap-server", cluster.bootstrap, "--election-type", "preferred"]
    words += ["--path-to-json-file", str(path)]
    cluster.wait(
        lambda: tools.run("LeaderElectionCommand", *words, status=None).status == 0,
        f"preferred replicas of {topic} lead",
    )


def reassign(
    tools: KafkaTools, cluster: Cluster, topic: str, replicas: list[list[int]], folder: Path
) -> None:
    """Run kafka-reassign-partitions, and verify until it is complete."""
    path = folder / "reassignment.json"
    moves = [
        {"topic": topic, "partition": number, "replicas": wanted} for number, wanted in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": moves}))
    command = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path))

    def run(*words: str, status: int | None = 0) -> str:
        return tools.run("reassign.ReassignPartitionsCommand", *command, *words, status=status).out

    assert "Successfully started partition reassignments for" in run("--execute")
    said = cluster.wait(
        lambda: (said := run("--verify", status=None)) and "in progress" not in said and said,
        f"the move of {topic} is complete",
    )
    for number in range(len(replicas)):
        assert f"Reassignment of partition {topic}-{number} is completed." in said


def dump(tools: KafkaTools, node: ClusterNode, topic: str, number: int) -> list[str]:
    """The output of DumpLogSegments for a replica's log: positions, batches and records, without faults."""
    (log,) = (node.log_dirs[0] / f"{topic}-{number}").glob("*.log")
    output = tools.run("DumpLogSegments", "--print-data-log", "--files", str(log))
    assert not dump_faults(output), dump_faults(output)[:5]
    return output.lines[1:]


def leads(cluster: Cluster, topic: str, *leaders: int) -> None:
    """Wait until each partition has this leader."""

    def probe() -> bool:
        found = [cluster.partition(topic, number) for number in range(len(leaders))]
        return [each.leader for each in found if each is not None] == list(leaders)

    cluster.wait(probe, f"the leaders of {topic} are {leaders}")


class Commits:
    """A classic group's offset of a topic. It is read back and then committed again, whichever node is the
    coordinator."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._bootstrap = cluster.bootstrap
        self._partition = TopicPartition(topic, 0)
        self._count = 0

    def goes_on(self) -> None:
        """Read back the last committed offset, and commit the next one. If the coordinator moves, find it again."""
        deadline = time.monotonic() + COORDINATOR_S
        while True:
            try:
                return self._go_on()
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _go_on(self) -> None:
        with closing_consumer(self._bootstrap, **{"group.id": self._partition.topic}) as consumer:
            if self._count:
                (found,) = consumer.committed([self._partition], timeout=COORDINATOR_S)
                # The offset may be one higher than known, if the response to a commit was lost.
                assert found.offset in (self._count, self._count + 1)
            to_be = TopicPartition(self._partition.topic, 0, self._count + 1)
            (done,) = consumer.commit(offsets=[to_be], asynchronous=False)
            assert done.error is None, done
            self._count += 1


def every_broker_passes_on(cluster: Cluster, unique: Unique) -> None:
    """Send each broker requests that only the active controller can execute. Afterwards all brokers show the same."""
    names = []
    producer_ids = set()
    for node in cluster.brokers:
        names.append(unique(f"by-{node.node_id}"))
        with Connection(node.bootstrap, timeout_s=20) as connection:
            asked_of_the_controller(connection, names[-1])
            producer_ids.add(
                cluster.wait(lambda wire=connection: producer_id(wire), "there are producer ids")
            )
    assert len(producer_ids) == len(names)
    cluster.wait_until_replicated()

    def is_agreed() -> bool:
        seen = [views.ask([node], views.all_partitions) for node in cluster.brokers]
        shown = seen[0]
        return (
            bool(shown)
            and all(each == shown for each in seen)
            and not [topic for topic, _ in shown if topic.endswith("-gone")]
            and all(sorted(number for topic, number in shown if topic == name) == [0, 1, 2] for name in names)
        )

    cluster.wait(is_agreed, "every broker shows the same partitions, those that were made and are not gone")


def producer_id(connection: Connection) -> tuple[int] | None:
    """A new producer id. None while the broker waits for its first block."""
    body = {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1}
    reply = connection.call("InitProducerId", 4, body)
    assert reply["ErrorCode"] in (0, COORDINATOR_LOAD_IN_PROGRESS), reply
    return None if reply["ErrorCode"] else (reply["ProducerId"],)


def asked_of_the_controller(connection: Connection, name: str) -> None:
    """Create a topic with two partitions, add a third and a setting; create and delete another topic; describe them."""

    def made(topic: str) -> None:
        body = {"Name": topic, "NumPartitions": 2, "ReplicationFactor": 2, "Assignments": [], "Configs": []}
        reply = connection.call("CreateTopics", 7, {"Topics": [body], "timeoutMs": 15000})
        assert reply["Topics"][0]["ErrorCode"] == 0, reply

    made(name)
    made(f"{name}-gone")
    more = {"Name": name, "Count": 3, "Assignments": None}
    reply = connection.call("CreatePartitions", 3, {"Topics": [more], "TimeoutMs": 15000})
    assert reply["Results"][0]["ErrorCode"] == 0, reply
    change = {"Name": "retention.ms", "ConfigOperation": 0, "Value": "86400000"}
    resource = {"ResourceType": 2, "ResourceName": name, "Configs": [change]}
    reply = connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
    assert reply["Responses"][0]["ErrorCode"] == 0, reply
    moves = {"PartitionIndex": 0, "Replicas": None}
    cancel = {"TimeoutMs": 15000, "Topics": [{"Name": name, "Partitions": [moves]}]}
    reply = connection.call("AlterPartitionReassignments", 0, cancel)
    assert reply["Responses"][0]["Partitions"][0]["ErrorCode"] == NO_REASSIGNMENT_IN_PROGRESS, reply
    reply = connection.call("ListPartitionReassignments", 0, {"TimeoutMs": 15000, "Topics": None})
    assert (reply["ErrorCode"], reply["Topics"]) == (0, [])
    election = {
        "ElectionType": 0,
        "TopicPartitions": [{"Topic": name, "Partitions": [0]}],
        "TimeoutMs": 15000,
    }
    reply = connection.call("ElectLeaders", 2, election)
    (result,) = reply["ReplicaElectionResults"][0]["PartitionResult"]
    assert result["ErrorCode"] == ELECTION_NOT_NEEDED, reply
    unknown = [{"Feature": "no.such.feature", "MaxVersionLevel": 1, "UpgradeType": 1}]
    reply = connection.call("UpdateFeatures", 2, {"timeoutMs": 15000, "FeatureUpdates": unknown})
    assert reply["ErrorCode"] == INVALID_UPDATE_VERSION, reply
    reply = connection.call("UnregisterBroker", 0, {"BrokerId": 99})
    assert reply["ErrorCode"] == BROKER_ID_NOT_REGISTERED, reply
    assert views.quorum(connection) is not None
    reply = connection.call("DeleteTopics", 6, {"Topics": [{"Name": f"{name}-gone"}], "TimeoutMs": 15000})
    assert reply["Responses"][0]["ErrorCode"] == 0, reply


def coordinated_by(cluster: Cluster, node_id: int, stem: str) -> str:
    """A transactional id whose coordinator is this broker."""

    def coordinator(connection: Connection, name: str) -> int:
        reply = connection.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [name]})
        return int(reply["Coordinators"][0]["NodeId"])

    names = [f"{stem}-{number}" for number in range(30)]

    def probe() -> str | None:
        for name in names:
            if cluster.ask(lambda connection, name=name: coordinator(connection, name)) == node_id:
                return name
        return None

    return cluster.wait(probe, f"broker {node_id} coordinates one of {len(names)} transactional ids")


def transactional(cluster: Cluster, name: str) -> Producer:
    """librdkafka's producer, which adds partitions to its transactions itself."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer({**settings, "reconnect.backoff.max.ms": 500, "socket.timeout.ms": 5000})
    producer.init_transactions(COORDINATOR_S)
    return producer


def produce(producer: Producer, topic: str, stem: str) -> list[bytes]:
    values = [f"{stem}:{partition}:{number}".encode() for partition in range(2) for number in range(5)]
    for value in values:
        producer.produce(topic, value, partition=int(value.split(b":")[-2]))
    return values


def committed(cluster: Cluster, topic: str) -> list[bytes]:
    """The records up to the end of both partitions for a consumer with read_committed, after all transactions have
    ended."""
    wait_until_stable(cluster.bootstrap, topic, 2)
    found = []
    options = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with closing_consumer(cluster.bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        ended: set[int] = set()
        deadline = time.monotonic() + COORDINATOR_S
        while len(ended) < 2:
            assert time.monotonic() < deadline, (ended, len(found))
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    found.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    return found


def transactions_hold(cluster: Cluster, tools: KafkaTools, unique: Unique) -> None:
    """Committed and aborted transactions over partitions of both brokers, coordinated by each broker. For the Java
    producer the brokers add the partitions (KIP-890)."""
    one, other = (node.node_id for node in cluster.brokers)
    topic = cluster.create_topic(unique("transactions"), assignment=[[one, other], [other, one]])
    expected: list[bytes] = []
    for node_id in (one, other):
        name = coordinated_by(cluster, node_id, unique("librdkafka"))
        producer = transactional(cluster, name)
        for turn in range(4):
            producer.begin_transaction()
            values = produce(producer, topic, f"{name}:{turn}")
            if turn % 2:
                assert producer.flush(COORDINATOR_S) == 0
                producer.abort_transaction(COORDINATOR_S)
            else:
                producer.commit_transaction(COORDINATOR_S)
                expected += values
        tools.run(
            "ProducerPerformance",
            *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--throughput", "200"),
            *("--num-records", str(OF_JAVA), "--record-size", "10", "--transaction-duration-ms", "50"),
            *("--transactional-id", coordinated_by(cluster, node_id, unique("java"))),
        )
    found = committed(cluster, topic)
    of_java = [value for value in found if b":" not in value]
    assert sorted(value for value in found if b":" in value) == sorted(expected)
    assert len(of_java) == 2 * OF_JAVA
    cluster.wait_until_replicated()
    for number in range(2):
        logs = [dump(tools, node, topic, number) for node in cluster.brokers]
        assert logs[0] == logs[1]


def quotas_hold(cluster: Cluster, unique: Unique, asked: int) -> None:
    """Broker `asked` passes quotas on to a controller of the other kind. Both brokers apply them to a partition that
    they lead, and pass mutations on that the controller refuses."""
    ids = [node.node_id for node in cluster.brokers]
    topic = cluster.create_topic(unique("quotas"), assignment=[ids, ids[::-1]])
    leads(cluster, topic, *ids)
    throttled_alike(cluster, cluster.nodes[asked], topic, unique)
    mutations_refused_alike(cluster, cluster.nodes[asked], unique)


def streams_groups_hold(cluster: Cluster, unique: Unique, folder: Path) -> None:
    """A streams group (KIP-1071) whose coordinator moves between both kinds of broker, once while an instance dies, and
    once because the coordinator dies. Each word is counted once."""
    one, other = (node.node_id for node in cluster.brokers)
    application = streams.WordCount(folder, cluster.bootstrap, unique("streams"), 2, "streams")
    lines = streams.Lines(application, seeded_chance())
    outputs = streams.Outputs(cluster.bootstrap, application.counts)

    def move_coordinators(node: int) -> None:
        for number in range(3):
            cluster.leader(OFFSETS_TOPIC, number)
            elect(cluster, OFFSETS_TOPIC, node, number)

    def goes_on() -> None:
        lines.write(50)
        lines.flush()
        streams.wait_for_counts(application, outputs, lines.counts.total())

    def is_settled() -> dict[str, Any] | None:
        """The group with its members and tasks, when both instances share them."""
        found = described_streams_group(cluster, application.name)
        stands = found is not None and found["GroupState"] == "Stable" and len(found["Members"]) == 2
        return found if stands else None

    try:
        cluster.wait(
            lambda: cluster.ask(lambda wire: coordinator_of_group(wire, application.name)), "coordinators"
        )
        move_coordinators(one)
        for number in (0, 1):
            application.start(number)
        goes_on()
        for node in (other, one):
            before = cluster.wait(is_settled, "both instances have tasks")
            move_coordinators(node)
            goes_on()
            after = cluster.wait(is_settled, "the group is there")
            assert told_of_group(after) == told_of_group(before)
        application.kill(0)
        move_coordinators(other)
        goes_on()
        application.start(0)
        cluster.nodes[other].kill()
        goes_on()
        cluster.mend()
        goes_on()
        streams.assert_exact(application, lines)
        assert [application.stop(number) for number in (0, 1)] == [0, 0]
    finally:
        outputs.close()
        application.close()


def coordinator_of_group(connection: Connection, group: str) -> str | None:
    """host:port"""
    reply = connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
    (found,) = reply["Coordinators"]
    return f"{found['Host']}:{found['Port']}" if found["ErrorCode"] == 0 else None


def described_streams_group(cluster: Cluster, group: str) -> dict[str, Any] | None:
    """None while there is no coordinator."""
    address = cluster.ask(lambda wire: coordinator_of_group(wire, group))
    if address is None:
        return None
    asked = {"GroupIds": [group], "IncludeAuthorizedOperations": False}
    try:
        with Connection(address, timeout_s=5) as connection:
            (found,) = connection.call("StreamsGroupDescribe", 1, asked)["Groups"]
    except views.BROKEN:
        return None
    if found["ErrorCode"] in COORDINATOR_MOVES:
        return None
    assert found["ErrorCode"] == 0, found
    return dict(found)


def dead_letters_hold(cluster: Cluster, unique: Unique) -> None:
    """KIP-1191: a broker of each kind leads the records while the other one leads their dead letters, and dies. The dead
    letters are the same, whoever wrote them. One of their topics is created when a broker needs it."""
    found = []
    ids = [node.node_id for node in cluster.brokers]
    for one, other in (ids, ids[::-1]):
        topic, group, queue = unique("jobs"), unique("workers"), f"dlq.{unique('jobs')}"
        cluster.create_topic(topic, assignment=[[one, other]])
        if not found:
            cluster.create_topic(queue, assignment=[[other, one]], configs=TAKES_LETTERS)
        jobs = RejectedJobs(
            lambda group=group: cluster.ask(lambda wire: coordinator_of_group(wire, group)),
            lambda topic=topic: cluster.nodes[cluster.leader(topic)].bootstrap,
            *(topic, group, queue),
        ).begin()
        jobs.reject(4)
        cluster.nodes[one].kill()
        leads(cluster, topic, other)
        cluster.wait(
            lambda queue=queue, other=other: cluster.leader(queue) == other, "the dead letters have a leader"
        )
        jobs.reject(4)
        cluster.mend()
        letters = jobs.letters(lambda queue=queue: cluster.nodes[cluster.leader(queue)].bootstrap)
        found.append({*letters})
    assert found[0] == found[1]


def leadership_goes_to_and_fro(
    cluster: Cluster,
    tools: KafkaTools,
    at_work: AtWork,
    topic: str,
    folder: Path,
    measure: Measure,
    theirs: int,
    ours: int,
) -> None:
    """Each of two brokers is killed or stopped while the other one leads, and comes back, while clients continue."""
    cluster.create_topic(topic, assignment=[[theirs, ours], [ours, theirs]])
    leads(cluster, topic, theirs, ours)
    works, follower = at_work(cluster, topic, 2)
    group = Commits(cluster, topic)

    def goes_on() -> None:
        group.goes_on()
        try:
            for work in works:
                work.wait_for_progress()
            # Before the only broker that a client knows is killed.
            serving = {node.node_id for node in cluster.brokers if node.serves}
            cluster.wait(lambda: all(work.knows(serving) for work in works), f"clients know {serving}")
        except AssertionError as error:
            nodes = [node for node in cluster.brokers if node.is_running]
            seen = {node.node_id: views.ask([node], views.all_partitions) for node in nodes}
            shown = [f"node {node_id} shows {partitions}" for node_id, partitions in seen.items()]
            # The end of a long message is what is kept of it.
            raise AssertionError("\n".join([cluster.logs(), *shown, str(error)])) from None

    goes_on()
    for gone, left in ((ours, theirs), (theirs, ours)):
        cluster.nodes[gone].kill()
        leads(cluster, topic, left, left)
        goes_on()
        cluster.mend()
        elect_preferred(tools, cluster, topic, folder)
        leads(cluster, topic, theirs, ours)
        goes_on()
    for gone, left in ((ours, theirs), (theirs, ours)):
        cluster.nodes[gone].terminate()
        leads(cluster, topic, left, left)
        assert cluster.nodes[gone].wait_until_ended() in (0, 143)
        goes_on()
        cluster.mend()
        elect_preferred(tools, cluster, topic, folder)
        leads(cluster, topic, theirs, ours)
    goes_on()
    reassign(tools, cluster, topic, [[ours], [theirs]], folder)
    leads(cluster, topic, ours, theirs)
    goes_on()
    reassign(tools, cluster, topic, [[ours, theirs], [theirs, ours]], folder)
    goes_on()
    for work in works:
        measure(f"leadership to and fro, {work.name}", work.stop())
        follower.wait_for(work)
    follower.stop()
    assert_exact(cluster.bootstrap, topic, *works)
    cluster.wait_until_replicated()
    for number in range(2):
        one, other = (dump(tools, cluster.nodes[node_id], topic, number) for node_id in (theirs, ours))
        assert one == other
        assert sum("| offset:" in line for line in one) >= sum(
            len(work.acknowledged[number]) for work in works
        )


def test_our_broker_in_a_quorum_of_apache_kafka(
    apache_quorum: Cluster,
    tools: KafkaTools,
    at_work: AtWork,
    unique: Unique,
    tmp_path: Path,
    measure: Measure,
) -> None:
    """It gets partitions, replicates from and to the broker of Apache Kafka, becomes leader and hands leadership back."""
    leadership_goes_to_and_fro(
        apache_quorum, tools, at_work, unique("to-and-fro"), tmp_path, measure, theirs=3, ours=4
    )


def test_our_broker_passes_requests_on_to_apache_kafka(apache_quorum: Cluster, unique: Unique) -> None:
    every_broker_passes_on(apache_quorum, unique)


def test_transactions_over_our_broker_and_apache_kafkas(
    apache_quorum: Cluster, tools: KafkaTools, unique: Unique
) -> None:
    transactions_hold(apache_quorum, tools, unique)


def test_both_kinds_of_broker_hold_a_client_to_its_quota_alike(
    apache_quorum: Cluster, unique: Unique
) -> None:
    quotas_hold(apache_quorum, unique, asked=4)


def test_streams_groups_and_dead_letters_over_our_broker_and_apache_kafkas(
    apache_quorum: Cluster, unique: Unique, tmp_path: Path
) -> None:
    streams_groups_hold(apache_quorum, unique, tmp_path)
    dead_letters_hold(apache_quorum, unique)


def snapshots(node: ClusterNode) -> dict[str, bytes]:
    """The contents of the metadata log's snapshots by file name, except the one from formatting."""
    found = (node.log_dirs[0] / "__cluster_metadata-0").glob("*.checkpoint")
    return {path.name: path.read_bytes() for path in found if not path.name.startswith("0" * 20)}


def shared_snapshots(one: ClusterNode, other: ClusterNode) -> list[str]:
    """The names of the snapshots that both nodes have with the same bytes."""
    theirs = snapshots(other)
    return [name for name, content in snapshots(one).items() if theirs.get(name) == content]


def test_our_controller_votes_with_apache_kafkas(
    apache_quorum: Cluster, tools: KafkaTools, at_work: AtWork, unique: Unique
) -> None:
    """Our controller joins from a snapshot of Apache Kafka, votes, leads, sends a snapshot to a controller of Apache
    Kafka, and leaves."""
    cluster = apache_quorum
    topic = cluster.create_topic(unique("voters"), assignment=[[3, 4], [4, 3]])
    works, follower = at_work(cluster, topic, 2)
    first = cluster.active_controller()
    cluster.wait(lambda: snapshots(cluster.nodes[first]), "the active controller has a snapshot", 60)
    ours = cluster.add_node(KAFKACOMPAT, 5, CONTROLLER)
    cluster.wait(lambda: observers(cluster) >= {5}, "node 5 observes")
    cluster.wait(lambda: shared_snapshots(ours, cluster.nodes[first]), "node 5 has their snapshot", 60)
    add_controller(tools, cluster, ours)
    cluster.wait(lambda: voters(cluster) == {1, 2, 5}, "node 5 votes")

    # One of three voters is gone, so no leader can be elected without the vote of our controller.
    second = 3 - first
    cluster.nodes[first].kill()
    epoch = cluster.wait(
        lambda: (found := cluster.quorum()) and found.leader in (second, 5) and found.epoch,
        "another controller is active",
    )
    cluster.create_topic(unique("voted"), assignment=[[3, 4]])
    for work in works:
        work.wait_for_progress()
    cluster.mend()

    # When the leader dies, the controller of Apache Kafka that lacks committed records cannot be elected.
    active = cluster.active_controller()
    if active != 5:
        behind = cluster.nodes[3 - active]
        follows(cluster, behind.node_id)
        behind.pause()
        cluster.create_topic(unique("missed"), assignment=[[4, 3]])
        follows(cluster, 5)
        cluster.nodes[active].kill()
        behind.resume()
        cluster.wait(lambda: (found := cluster.quorum()) and found.leader == 5, "node 5 is active")
        cluster.mend()
    assert cluster.known_quorum().epoch >= epoch
    cluster.create_topic(unique("led"), 4, replication_factor=2)
    assert "LeaderId: 5" in quorum(tools, cluster, "describe", "--status")
    for work in works:
        work.wait_for_progress()

    # A controller of Apache Kafka starts with an empty disk, and gets a snapshot from ours.
    follows(cluster, second)
    lost = cluster.nodes[first]
    old = directory_id(lost)
    cluster.wait(lambda: snapshots(ours), "node 5 has a snapshot", 60)
    lost.kill()
    lost.lose_disk()
    remove = ["remove-controller", "--controller-id", str(first), "--controller-directory-id", old]
    assert f"Removed KRaft controller {first}" in quorum(tools, cluster, *remove, "--unregister")
    unregister(tools, cluster, first, status=1)
    cluster.format_joining(lost)
    lost.start()
    cluster.wait(lambda: observers(cluster) >= {first}, "the new disk's controller observes")
    cluster.wait(lambda: shared_snapshots(ours, lost), "it has a snapshot of ours", 60)
    add_controller(tools, cluster, lost)
    cluster.wait(lambda: voters(cluster) == {1, 2, 5}, "the new disk's controller votes")
    table = tools.run(
        "MetadataQuorumCommand", "--bootstrap-server", cluster.bootstrap, "describe", "--replication"
    )
    # The lost directory may be listed as an observer for a while.
    rows = {
        int(row["NodeId"]): row["Status"]
        for row in table.rows("NodeId", "DirectoryId")
        if row["DirectoryId"] != old
    }
    assert rows == {1: "Follower", 2: "Follower", 5: "Leader", 3: "Observer", 4: "Observer"}

    # A controller of Apache Kafka leads again, and ours is removed.
    ours.terminate()
    cluster.wait(lambda: (found := cluster.quorum()) and found.leader in (1, 2), "theirs lead")
    assert ours.wait_until_ended() == 0
    ours.start()
    follows(cluster, 5)
    remove = ["remove-controller", "--controller-id", "5", "--controller-directory-id", directory_id(ours)]
    assert "Removed KRaft controller 5 with directory id" in quorum(tools, cluster, *remove)
    cluster.wait(lambda: voters(cluster) == {1, 2}, "node 5 votes no longer")
    cluster.forget(ours)
    unregister(tools, cluster, 5)
    unregister(tools, cluster, 5, status=1)
    for work in works:
        work.wait_for_progress()
        work.stop()
        follower.wait_for(work)
    assert_exact(cluster.bootstrap, topic, *works)
    assert re.search(r"streams.version.*FinalizedVersionLevel: 1", features(tools, cluster))
    assert f"FinalizedVersionLevel: {KAFKA_VERSION}" in features(tools, cluster)
    assert re.search(r"transaction.version.*FinalizedVersionLevel: 2", features(tools, cluster))
    assert re.search(r"share.version.*FinalizedVersionLevel: 2", features(tools, cluster))


def unregister(tools: KafkaTools, cluster: Cluster, node_id: int, *, status: int = 0) -> None:
    """Run kafka-cluster unregister-controller (KIP-1312). `status` 1: it is not registered."""
    words = ["unregister-controller", "--bootstrap-server", cluster.bootstrap, "--id", str(node_id)]
    done = tools.run("ClusterTool", *words, status=status)
    assert ("is not currently registered" in done.out + done.err) is (status == 1), done


def add_controller(tools: KafkaTools, cluster: Cluster, node: ClusterNode) -> None:
    """Run kafka-metadata-quorum add-controller. The leader refuses it until the node has caught up with its log once."""
    add = ["--command-config", str(node.settings_path), "add-controller"]
    said = f"Added controller {node.node_id} with directory id {directory_id(node)}"
    told = [""]

    def is_added() -> bool:
        told[0] = quorum(tools, cluster, *add, status=None)
        return said in told[0]

    try:
        cluster.wait(is_added, f"node {node.node_id} is added")
    except AssertionError as error:
        raise AssertionError(
            f"{error}; the tool says {told[0]!r}, the quorum is {cluster.quorum()}"
        ) from None


def follows(cluster: Cluster, node_id: int) -> None:
    """Wait until this voter's log is beyond the present end of the leader's log. NoOpRecords make it grow."""
    before = cluster.known_quorum()
    end = before.voters[before.leader]

    def is_beyond() -> bool:
        found = cluster.quorum()
        return found is not None and found.leader > 0 and found.voters[node_id] > end

    cluster.wait(is_beyond, f"voter {node_id} follows")


def features(tools: KafkaTools, cluster: Cluster) -> str:
    return tools.run("FeatureCommand", "--bootstrap-server", cluster.bootstrap, "describe").out


def test_a_broker_of_apache_kafka_in_our_quorum(
    our_quorum: Cluster, tools: KafkaTools, at_work: AtWork, unique: Unique, tmp_path: Path, measure: Measure
) -> None:
    """The same with a broker of Apache Kafka and a controller of kafkacompat."""
    leadership_goes_to_and_fro(
        our_quorum, tools, at_work, unique("to-and-fro"), tmp_path, measure, theirs=3, ours=2
    )


def test_a_broker_of_apache_kafka_passes_requests_on_to_ours(our_quorum: Cluster, unique: Unique) -> None:
    every_broker_passes_on(our_quorum, unique)


def test_a_quota_from_our_controller_holds_on_both_kinds_of_broker(
    our_quorum: Cluster, unique: Unique
) -> None:
    quotas_hold(our_quorum, unique, asked=3)


def test_transactions_survive_coordinators_of_either_kind(
    our_quorum: Cluster, tools: KafkaTools, unique: Unique
) -> None:
    transactions_hold(our_quorum, tools, unique)
    topic = our_quorum.create_topic(unique("survivors"), assignment=[[2, 3], [3, 2]])
    expected = []
    for node in our_quorum.brokers:
        name = coordinated_by(our_quorum, node.node_id, unique("survivor"))
        producer = transactional(our_quorum, name)
        producer.begin_transaction()
        expected += produce(producer, topic, f"{name}:before")
        assert producer.flush(COORDINATOR_S) == 0
        node.kill()
        expected += produce(producer, topic, f"{name}:after")
        producer.commit_transaction(COORDINATOR_S)
        our_quorum.mend()
    assert sorted(committed(our_quorum, topic)) == sorted(expected)


def test_streams_groups_and_dead_letters_with_our_controller(
    our_quorum: Cluster, unique: Unique, tmp_path: Path
) -> None:
    streams_groups_hold(our_quorum, unique, tmp_path)
    dead_letters_hold(our_quorum, unique)
