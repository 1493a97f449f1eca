"""A running cluster of Apache Kafka moves to kafkacompat and back, node by node, while clients of every kind are at work.

Nodes of the other kind join, take over the partitions by reassignment and the quorum by exchanging its voters (KIP-853),
and the nodes from before leave. No client is told about it.
"""

from __future__ import annotations

import shlex
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop_tests.cli.command import output_of
from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.cluster import views
from interop_tests.cluster.clusters import BOTH, Cluster
from interop_tests.cluster.conftest import MakeCluster, Measure
from interop_tests.cluster.node import ClusterNode
from interop_tests.cluster.test_mixed import COORDINATOR_MOVES, committed, coordinator_of_group
from interop_tests.cluster.workload import Follower, Progress, Work, assert_exact, parse
from interop_tests.consumer_groups.load import Load, group_of
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.chance import seeded_chance
from interop_tests.harness.kafka_jars import BEFORE, KAFKA_VERSION, OLDEST
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import read_from_start
from interop_tests.share_groups.sides import STATE_TOPIC
from interop_tests.share_groups.workers import CONFLUENT, EXPLICIT, Worker
from interop_tests.streams import application as streams
from interop_tests.streams.instances import BROKER_SETTINGS

AtWork = Callable[..., tuple[list[Work], Follower]]

pytestmark = pytest.mark.needs_control

SETTINGS = {
    **ONE_REPLICA,
    "group.share.assignment.interval.ms": "0",
    "auto.leader.rebalance.enable": "false",
    **BROKER_SETTINGS,
}
PAGE = text_of("docs/how-to/move-from-kafka.md")
MOVED, PAID, SHARE_GROUP = "moved", "paid", "workers"
PROTOCOLS = ("classic", "consumer")
PARTITIONS = 2
WITHOUT_SERVICE_S = 20.0
"""The machine of the tests is busy, and one pause of a JVM takes seconds there. What was measured is in the report."""
POLL_MS = 200
STUCK_POLLS = 50
"""Polls in a row without a record after which a member may have met Apache Kafka's lock, and another one takes its place."""
SILENT_POLLS = 300
"""The same after which the share group has stopped. They take a minute, and longer on a busy machine."""
WITH_EFFECT = ("kafkacompat reassign", "kafkacompat quorum remove", "kafkacompat quorum unregister")
"""The steps that clients could notice."""
TIMEOUT_S = 60.0
LONG_S = 600.0
"""Only the end of a wait that something else ends."""


class TransactionalWork(Work):
    """A producer that writes to all partitions in each transaction, and aborts every fifth one."""

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": 30_000,
                "topic.metadata.refresh.interval.ms": 2000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(TIMEOUT_S)
            turn = 0
            while not self._ended.is_set():
                turn += 1
                self._transaction(producer, is_aborted=turn % 5 == 0)
                self._ended.wait(0.02)
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")

    def _transaction(self, producer: Producer, is_aborted: bool) -> None:
        producer.begin_transaction()
        if is_aborted:
            for partition in self.acknowledged:
                producer.produce(
                    self.topic, b"%s:%d:0" % (self.name.encode(), partition), partition=partition
                )
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            return
        for partition in self.acknowledged:
            producer.produce(self.topic, self._value(partition), partition=partition)
        producer.commit_transaction(TIMEOUT_S)
        for partition in self.acknowledged:
            self._acknowledge(partition, self.sent[partition])


class ShareReader:
    """A member of a share group in a process of its own. It accepts whatever it gets."""

    def __init__(self, bootstrap: str, folder: Path, may_be_stuck: Callable[[], bool]) -> None:
        settings = {"bootstrap": bootstrap, "group": SHARE_GROUP, "client": "share", "topic": MOVED}
        self._make = lambda: Worker(CONFLUENT, folder / "share.log", **settings, mode=EXPLICIT)
        self._may_be_stuck = may_be_stuck
        self.delivered: set[tuple[int, int]] = set()
        self.faults: list[str] = []
        self.progress = Progress([0])
        self._silent = 0
        """Polls since the last record."""
        self._doing = "it has not begun"
        self._outcomes: deque[object] = deque(maxlen=5)
        """Of the last acknowledgements."""
        self._members = 1
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="share reader", daemon=True)

    def start(self) -> ShareReader:
        self._thread.start()
        self.wait_for(1)
        self.progress.reset()
        return self

    def goes_on(self) -> None:
        self.wait_for(len(self.delivered) + 1)

    def wait_for(self, count: int) -> None:
        """Wait until it has had this number of records, as long as its polls are answered."""

        def is_over() -> bool:
            return bool(len(self.delivered) >= count or self.faults or self._silent >= SILENT_POLLS)

        wait_until(is_over, "the share group goes on", LONG_S)
        assert not self.faults, self.faults
        assert len(self.delivered) >= count, self.describe()

    def describe(self) -> str:
        return (
            f"the share group had {len(self.delivered)} records, and none in {self._silent} polls. "
            f"Member {self._members} of it now: {self._doing}. The last acknowledgements: {list(self._outcomes)}"
        )

    def end(self) -> None:
        self._ended.set()

    def stop(self) -> None:
        self.end()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the share group's member hangs"
        assert not self.faults, self.faults

    def _run(self) -> None:
        worker = self._make()
        empty = 0
        try:
            while not self._ended.is_set():
                self._doing = "a poll"
                records = worker.poll(POLL_MS)
                if records:
                    self._silent = empty = 0
                    self.progress.note(0)
                    self.delivered.update((each.partition, each.offset) for each in records)
                    self._doing = "an acknowledgement"
                    worker.acknowledge("accept", records)
                    # If a leader moves meanwhile, the outcome is an error, and it may have been taken or come again.
                    self._outcomes.append(worker.commit().outcome)
                    continue
                self._silent += 1
                empty += 1
                if empty >= STUCK_POLLS and self._may_be_stuck():
                    # Apache Kafka keeps the lock of a share fetch that expires while it reads the state.
                    self._doing = "another member takes its place"
                    worker.kill()
                    worker = self._make()
                    self._members += 1
                    self.progress.pass_over(0)
                    empty = 0
        except AssertionError as error:
            self.faults.append(str(error))
        finally:
            worker.kill()


class Life:
    """Clients of every kind at work. They know only the nodes that are there when they start."""

    def __init__(self, cluster: Cluster, folder: Path, at_work: AtWork) -> None:
        self._cluster = cluster
        bootstrap = cluster.bootstrap
        names = (MOVED, PAID, *PROTOCOLS)
        for topic in names:
            cluster.create_topic(topic, PARTITIONS, replication_factor=1)
        with Connection(bootstrap) as connection:
            cluster.wait(lambda: coordinator_of_group(connection, "any"), "there is a group coordinator")
            read_from_start(connection, SHARE_GROUP)
        self.application = streams.WordCount(folder, bootstrap, "words", 1, "streams")
        self.application.start(0)
        self._lines = streams.Lines(self.application, seeded_chance())
        self._outputs = streams.Outputs(bootstrap, self.application.counts)
        self._works, self._follower = at_work(cluster, MOVED, PARTITIONS)
        self._transactional = TransactionalWork(bootstrap, PAID, PARTITIONS, "transactional")
        self._share = ShareReader(bootstrap, folder, self._may_be_stuck)
        self._loads = [Load(bootstrap, each, PARTITIONS, self._teller(each), each) for each in PROTOCOLS]
        with ThreadPoolExecutor() as threads:
            starts = [threads.submit(each.start) for each in (self._transactional, self._share)]
            starts += [threads.submit(each.start, 1) for each in self._loads]
            for each in starts:
                each.result()
        self._count_words()

    def _may_be_stuck(self) -> bool:
        """Whether Apache Kafka leads what the share group reads."""
        nodes = self._cluster.nodes
        led = (self._cluster.ask(lambda wire: views.partitions(wire, MOVED)) or {}).values()
        return any(node.kind == APACHE for each in led if (node := nodes.get(each.leader)) is not None)

    def _teller(self, protocol: str) -> Callable[[], dict[int, int] | None]:
        """What the coordinator of a group at work tells of its commits. None while there is none."""
        group = group_of(protocol)
        asked = {"GroupId": group, "MemberId": None, "MemberEpoch": -1, "Topics": None}

        def told() -> dict[int, int] | None:
            address = self._cluster.ask(lambda wire: coordinator_of_group(wire, group))
            if address is None:
                return None
            try:
                with Connection(address, timeout_s=5) as connection:
                    body = {"Groups": [asked], "RequireStable": True}
                    (found,) = connection.call("OffsetFetch", 9, body)["Groups"]
            except views.BROKEN:
                return None
            if found["ErrorCode"] in COORDINATOR_MOVES:
                return None
            assert found["ErrorCode"] == 0, found
            return {
                each["PartitionIndex"]: each["CommittedOffset"]
                for topic in found["Topics"]
                for each in topic["Partitions"]
            }

        return told

    def _count_words(self) -> None:
        self._lines.write(20)
        self._lines.flush()
        streams.wait_for_counts(self.application, self._outputs, self._lines.counts.total())

    def goes_on(self) -> None:
        """Each client does something new."""
        for work in (*self._works, self._transactional):
            work.wait_for_progress(records=5)
        for load in self._loads:
            load.goes_on()
        try:
            self._share.goes_on()
        except AssertionError as error:
            led = self._cluster.ask(views.all_partitions) or {}
            shown = {key: each for key, each in led.items() if key[0] in (MOVED, STATE_TOPIC)}
            raise AssertionError(f"{self._cluster.logs()}\n{shown}\n{error}") from None
        self._count_words()

    def _clocks(self) -> dict[str, Progress]:
        works = {each.name: each.progress for each in (*self._works, self._transactional)}
        return {**works, "a consumer": self._follower.progress, "a share group": self._share.progress}

    def forget_gaps(self) -> None:
        for each in self._clocks().values():
            each.reset()

    def gaps(self) -> dict[str, float]:
        """The longest time without service of those that work without a pause, in seconds."""
        return {name: each.longest_gap_s() for name, each in self._clocks().items()}

    def end(self) -> None:
        """Nothing is lost and nothing is doubled."""
        bootstrap = self._cluster.bootstrap
        for work in self._works:
            work.stop()
            self._follower.wait_for(work)
        assert_exact(bootstrap, MOVED, *self._works)
        self._transactional.stop()
        paid: dict[int, list[int]] = {}
        for value in committed(self._cluster, PAID):
            _, partition, number = parse(value)
            paid.setdefault(partition, []).append(number)
        assert paid == {each: list(range(1, sent + 1)) for each, sent in self._transactional.sent.items()}
        for load in self._loads:
            load.end()
        sent = sum(sum(work.sent.values()) for work in self._works)
        self._share.wait_for(sent)
        self._share.stop()
        # Who starts now has to know the nodes of now.
        self.application.bootstrap = bootstrap
        streams.assert_exact(self.application, self._lines)
        assert self.application.stop(0) == 0

    def close(self) -> None:
        self._share.end()
        self._transactional._ended.set()
        for load in self._loads:
            load.abandon()
        self._outputs.close()
        self.application.close()


class Mover:
    """Carries out what `kafkacompat migrate plan` says until the move is complete, as an operator does."""

    def __init__(
        self, cluster: Cluster, nodes: Sequence[ClusterNode], clients_go_on: Callable[[], None]
    ) -> None:
        """`nodes`: all that ever run, by their ids from 1 on. They name each other's controllers."""
        self._cluster = cluster
        self._clients_go_on = clients_go_on
        self._nodes = {node.node_id: node for node in nodes}

    def move_to(self, node_id: int) -> list[str]:
        """The commands that were carried out."""
        done: list[str] = []
        while commands := self.next_commands(node_id):
            assert commands[0] not in done, commands
            for command in commands:
                self._carry_out(command)
                done.append(command)
            if commands[0].startswith(WITH_EFFECT):
                self._clients_go_on()
        return done

    def next_commands(self, node_id: int) -> list[str]:
        said = self._run("migrate", "plan", "--to", str(node_id))
        commands = [line.removeprefix("$ ") for line in said.splitlines() if line.startswith("$ ")]
        assert commands or "the move is complete" in said
        return commands

    def _run(self, *words: str) -> str:
        return output_of(*words, "--bootstrap", self._cluster.bootstrap)

    def _carry_out(self, command: str) -> None:
        program, *words = shlex.split(command)
        node = next((each for each in self._nodes.values() if f"node-{each.node_id}." in command), None)
        if words[0] == "format":
            assert node is not None
            text = command.replace(f"node-{node.node_id}.properties", "")
            options = [each for each in shlex.split(text)[2:] if each != "-c"]
            assert options[1] == self._cluster.cluster_id
            done = node.format(*options[2:], cluster_id=self._cluster.cluster_id)
            assert done.returncode == 0, done
        elif words[0] == "start" or program == "kafka-server-start.sh":
            assert node is not None
            self._cluster.nodes[node.node_id] = node
            node.start()
            self._cluster.wait_for_brokers(node.node_id)
        elif program in ("kill", "kafka-server-stop.sh"):
            gone = next(each for each in self._nodes.values() if str(each.node_id) in command)
            assert self._cluster.nodes.pop(gone.node_id).stop() in (0, 143)
        else:
            assert program == "kafkacompat", command
            self._run(*words)


def name_all_controllers(nodes: Sequence[ClusterNode]) -> None:
    addresses = ",".join(each.controller_bootstrap for each in nodes)
    for node in nodes:
        node.settings["controller.quorum.bootstrap.servers"] = addresses


def shown(heading: str) -> list[str]:
    """The commands of a section of the page, without what only a shell or another address needs."""
    (block,) = blocks(section(PAGE, heading))
    lines = [line.partition(" > ")[0].partition(" & ")[0] for line, _ in commands(block)]
    return [line.replace(" --bootstrap $BROKERS", "") for line in lines]


@pytest.mark.parametrize("version", [KAFKA_VERSION, BEFORE])
def test_a_cluster_moves_to_kafkacompat_and_back(
    make_cluster: MakeCluster, at_work: AtWork, version: str, tmp_path: Path, measure: Measure
) -> None:
    """The commands are those of the guide. 4.3 does not unregister controllers. It is left for good, to save time."""
    cluster = make_cluster(APACHE, nodes=1, settings=SETTINGS, version=version, start=False)
    nodes = [
        *cluster.nodes.values(),
        cluster.prepare_node(KAFKACOMPAT, 2, BOTH),
        cluster.prepare_node(APACHE, 3, BOTH),
    ]
    name_all_controllers(nodes)
    cluster.start()

    def here(line: str) -> str:
        places = {"127.0.0.1:10093": nodes[1], "127.0.0.1:10094": nodes[2]}
        for address, node in places.items():
            line = line.replace(address, node.controller_bootstrap)
        return line.replace("$CLUSTER", cluster.cluster_id)

    life = Life(cluster, tmp_path, at_work)
    mover = Mover(cluster, nodes, life.goes_on)
    try:
        ways = ((2, "### To kafkacompat"), (3, "### Back to Apache Kafka"))
        for node_id, heading in ways if version == KAFKA_VERSION else ways[:1]:
            life.forget_gaps()
            done = mover.move_to(node_id)
            expected = [here(line) for line in shown(heading)]
            if version == BEFORE:
                expected = [line for line in expected if "unregister-controller" not in line]
            assert done == expected
            for name, gap in life.gaps().items():
                measure(f"{version}, {heading.strip('# ').lower()}, {name}", gap)
                assert gap < WITHOUT_SERVICE_S, (name, gap)
        life.end()
    finally:
        life.close()


def test_a_cluster_of_the_oldest_release_moves_to_kafkacompat(
    make_cluster: MakeCluster, at_work: AtWork
) -> None:
    """Kafka 3.9 is the first release whose voters can be exchanged. It has neither share groups nor streams groups."""
    cluster = make_cluster(APACHE, nodes=1, settings=ONE_REPLICA, version=OLDEST, start=False)
    ours = cluster.prepare_node(KAFKACOMPAT, 2, BOTH)
    nodes = [*cluster.nodes.values(), ours]
    name_all_controllers(nodes)
    cluster.start()
    cluster.create_topic(MOVED, PARTITIONS, replication_factor=1)
    works, follower = at_work(cluster, MOVED, PARTITIONS)

    def clients_go_on() -> None:
        for work in works:
            work.wait_for_progress()

    Mover(cluster, nodes, clients_go_on).move_to(2)
    for work in works:
        work.stop()
        follower.wait_for(work)
    assert_exact(cluster.bootstrap, MOVED, *works)
    assert "got no answer" not in ours.log_text()


def test_a_node_moves_by_its_directory_and_back(
    make_cluster: MakeCluster, at_work: AtWork, measure: Measure
) -> None:
    """The commands are those of the guide. The only node is away while one program stops and the other one starts."""
    cluster = make_cluster(APACHE, nodes=1, settings=ONE_REPLICA)
    (node,) = cluster.nodes.values()
    cluster.create_topic(MOVED, PARTITIONS, replication_factor=1)
    works, follower = at_work(cluster, MOVED, PARTITIONS)
    starts = {"kafkacompat": KAFKACOMPAT, "kafka-server-start.sh": APACHE}
    there, back = blocks(section(PAGE, "## By directory"))
    for block in (there, back):
        (stop, _), (start, _) = commands(block)
        assert stop.split()[0] == ("kill" if node.kind == KAFKACOMPAT else "kafka-server-stop.sh")
        assert node.stop() in (0, 143)
        node.kind = starts[start.split()[0]]
        node.start()
        cluster.wait_for_brokers(1)
        for work in works:
            work.wait_for_progress()
            measure(f"by directory to {node.kind}, {work.name}", work.progress.longest_gap_s())
            work.progress.reset()
    for work in works:
        work.stop()
        follower.wait_for(work)
    assert_exact(cluster.bootstrap, MOVED, *works)
