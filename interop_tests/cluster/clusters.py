"""A cluster of node processes: creates, formats (with one cluster id), starts and repairs it, and waits for it.

Kinds may be mixed, and each node may be a broker, a controller or both. The tests decide what happens to the nodes.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop_tests.cluster import views
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.broker import without_retention
from interop_tests.harness.kafka_jars import KAFKA_VERSION
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

BOTH = "broker,controller"
BROKER = "broker"
CONTROLLER = "controller"
READY_TIMEOUT_S = 60.0
LOG_TAIL_CHARACTERS = 2500

REPLICATED_BY_THREE = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
}


@dataclass(frozen=True)
class Place:
    """Where a node runs: its address, and words in front of its command, for example `ip netns exec NAME`."""

    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


def new_uuid() -> str:
    """A random UUID in Kafka's text form that does not begin with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class Cluster:
    """Nodes by id. `kinds` and `roles` are those of nodes 1, 2, ... A single value is for all nodes."""

    def __init__(
        self,
        kinds: str | Sequence[str],
        root: Path,
        nodes: int = 3,
        roles: str | Sequence[str] = BOTH,
        settings: dict[str, str] | None = None,
        static_voters: bool = False,
        places: Sequence[Place] | None = None,
        format_options: Sequence[str] = (),
        version: str | None = None,
    ) -> None:
        """version is the release of Apache Kafka's nodes, by default the reference."""
        self.root = root
        self.cluster_id = new_uuid()
        self.static_voters = static_voters
        self.is_spoiled = False
        """A test has left the cluster in a state that `mend` cannot repair."""
        self._settings = REPLICATED_BY_THREE | (settings or {})
        self._format_options = tuple(format_options)
        self.nodes: dict[int, ClusterNode] = {}
        self.directory_ids: dict[int, str] = {}
        kinds = [kinds] * nodes if isinstance(kinds, str) else kinds
        roles = [roles] * nodes if isinstance(roles, str) else roles
        self._version = version or KAFKA_VERSION
        places = places or [Place()] * nodes
        for node_id, (kind, role, place) in enumerate(zip(kinds, roles, places, strict=True), 1):
            self._make_node(node_id, kind, role, place, {})
        voters = [node for node in self.nodes.values() if node.is_controller]
        self.initial_controllers = ",".join(
            f"{node.node_id}@{node.controller_bootstrap}:{self.directory_ids[node.node_id]}"
            for node in voters
        )
        for node in self.nodes.values():
            node.settings.update(self._quorum_settings(voters))

    # creating

    def _make_node(
        self, node_id: int, kind: str, roles: str, place: Place, settings: dict[str, str]
    ) -> ClusterNode:
        port, controller_port = free_port(place.host), free_port(place.host)
        # A node that was added and removed leaves its folder and its log.
        tries = (self.root / f"node-{node_id}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 100))))
        folder = next(each for each in tries if not each.exists())
        listeners = {
            BROKER: f"PLAINTEXT://{place.host}:{port}",
            CONTROLLER: f"CONTROLLER://{place.host}:{controller_port}",
        }
        node = ClusterNode(
            kind,
            node_id,
            folder,
            {
                "process.roles": roles,
                "node.id": str(node_id),
                "listeners": ",".join(listeners[role] for role in roles.split(",")),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(folder / "data"),
                **({"inter.broker.listener.name": "PLAINTEXT"} if BROKER in roles else {}),
                **without_retention(kind),
                **self._settings,
                **settings,
            },
            host=place.host,
            port=port,
            controller_port=controller_port,
            prefix=place.prefix,
            version=self._version,
        )
        self.nodes[node_id] = node
        self.directory_ids[node_id] = new_uuid()
        return node

    def _quorum_settings(self, voters: Iterable[ClusterNode]) -> dict[str, str]:
        if self.static_voters:
            return {
                "controller.quorum.voters": ",".join(
                    f"{node.node_id}@{node.controller_bootstrap}" for node in voters
                )
            }
        return {"controller.quorum.bootstrap.servers": ",".join(node.controller_bootstrap for node in voters)}

    def format(self, node: ClusterNode) -> None:
        """Format a node of the first set."""
        options = [*self._format_options]
        if not self.static_voters:
            options += ["--initial-controllers", self.initial_controllers]
        done = node.format(*options, cluster_id=self.cluster_id)
        assert done.returncode == 0, f"format of node {node.node_id}:\n{done.stdout}\n{done.stderr}"

    def start(self) -> Cluster:
        """Format and start every node, and wait until all brokers are unfenced."""
        for node in self.nodes.values():
            self.format(node)
        for node in self.nodes.values():
            node.start()
        try:
            self.wait_until_whole()
        except BaseException as error:
            error.add_note(self.logs())
            self.close()
            raise
        return self

    def add_node(
        self,
        kind: str,
        node_id: int,
        roles: str = BROKER,
        settings: dict[str, str] | None = None,
        place: Place | None = None,
        environment: dict[str, str] | None = None,
    ) -> ClusterNode:
        """Format and start an additional node. If it is a broker, wait until it is unfenced."""
        return self.join(self.prepare_node(kind, node_id, roles, settings, place, environment))

    def prepare_node(
        self,
        kind: str,
        node_id: int,
        roles: str = BROKER,
        settings: dict[str, str] | None = None,
        place: Place | None = None,
        environment: dict[str, str] | None = None,
    ) -> ClusterNode:
        """A node that has its address already, and joins later."""
        voters = [node for node in self.nodes.values() if node.is_controller]
        node = self._make_node(node_id, kind, roles, place or Place(), settings or {})
        del self.nodes[node_id]
        node.environment.update(environment or {})
        node.settings.update(self._quorum_settings(voters))
        return node

    def join(self, node: ClusterNode) -> ClusterNode:
        """Format and start a node. If it is a broker, wait until it is unfenced."""
        self.nodes[node.node_id] = node
        self.format_joining(node)
        node.start()
        if node.is_broker:
            self.wait_for_brokers(node.node_id)
        return node

    def format_joining(self, node: ClusterNode) -> None:
        """Format a node that finds the quorum by its bootstrap servers: a broker, or a controller that will be added
        as a voter."""
        options = ["--no-initial-controllers"] if node.is_controller and not self.static_voters else []
        done = node.format(*options, *self._format_options, cluster_id=self.cluster_id)
        assert done.returncode == 0, f"format of node {node.node_id}:\n{done.stdout}\n{done.stderr}"

    def forget(self, node: ClusterNode) -> None:
        """Kill the node and forget it. If it had replicas, the cluster can no longer have all replicas in sync."""
        left = self.ask(views.all_partitions) or {}
        self.is_spoiled |= any(node.node_id in each.replicas for each in left.values())
        node.kill()
        del self.nodes[node.node_id]

    def close(self) -> None:
        """Kill every node."""
        for node in self.nodes.values():
            node.kill()

    # observing

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in list(self.nodes.values()) if node.is_broker]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, running or not, as bootstrap servers for a client."""
        return ",".join(node.bootstrap for node in self.brokers)

    def logs(self) -> str:
        """The end of every node's log, for the message of a failure."""
        return "\n".join(
            f"=== node {node.node_id} ({node.kind}, {'running' if node.is_running else 'ended'})\n"
            f"{node.log_text()[-LOG_TAIL_CHARACTERS:]}"
            for node in self.nodes.values()
        )

    def ask(self, question: Callable[[Connection], views.T]) -> views.T | None:
        return views.ask(self.brokers, question)

    def wait(self, probe: Callable[[], views.T], what: str, timeout_s: float = READY_TIMEOUT_S) -> views.T:
        """wait_until with an interval that does not burden the nodes."""
        return wait_until(probe, what, timeout_s, interval_s=0.1)

    def partition(self, topic: str, number: int = 0) -> views.Partition | None:
        found = self.ask(lambda connection: views.partitions(connection, topic))
        return found.get(number) if found else None

    def leader(self, topic: str, number: int = 0, timeout_s: float = READY_TIMEOUT_S) -> int:
        """The id of the partition's leader. Waits until there is one."""

        def probe() -> int:
            found = self.partition(topic, number)
            return found.leader if found else -1

        return self.wait(lambda: max(probe(), 0), f"{topic}-{number} has a leader", timeout_s)

    def quorum(self) -> views.Quorum | None:
        """None while the broker that is asked knows no active controller."""
        return self.ask(views.quorum)

    def known_quorum(self) -> views.Quorum:
        """The state of the quorum. Waits until it is known."""
        return self.wait(self.quorum, "the quorum can be described")

    def active_controller(self, timeout_s: float = READY_TIMEOUT_S) -> int:
        """The id of the active controller. Waits until there is one."""

        def probe() -> int:
            found = self.quorum()
            return max(found.leader, 0) if found else 0

        return self.wait(probe, "there is an active controller", timeout_s)

    def wait_for_brokers(self, *node_ids: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every serving broker lists at least these brokers."""

        def probe() -> bool:
            serving = [node for node in self.brokers if node.serves]
            seen = [views.ask([node], views.brokers) for node in serving]
            return bool(seen) and all(each is not None and set(node_ids) <= set(each) for each in seen)

        self.wait(probe, f"brokers {node_ids} are there", timeout_s)

    def wait_until_gone(self, node_id: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until no serving broker lists this one."""

        def probe() -> bool:
            serving = [node for node in self.brokers if node.serves and node.node_id != node_id]
            seen = [views.ask([node], views.brokers) for node in serving]
            return bool(seen) and all(each is not None and node_id not in each for each in seen)

        self.wait(probe, f"broker {node_id} is gone", timeout_s)

    def wait_until_replicated(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every partition has a leader and all replicas in sync, in the metadata of every broker."""

        def probe() -> bool:
            serving = [node for node in self.brokers if node.serves]
            for node in serving:
                found = views.ask([node], views.all_partitions)
                if found is None or any(
                    each.leader < 0 or set(each.isr) != set(each.replicas) for each in found.values()
                ):
                    return False
            return bool(serving)

        self.wait(probe, "every partition is fully replicated", timeout_s)

    def wait_until_whole(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every node runs, every broker is unfenced, and every partition is fully replicated."""

        def no_node_ended() -> bool:
            ended = [node.node_id for node in self.nodes.values() if not node.is_running]
            assert not ended, f"nodes {ended} have ended"
            serving = [node for node in self.brokers if node.serves]
            seen = [views.ask([node], views.brokers) for node in serving]
            return all(each is not None and len(each) == len(self.brokers) for each in seen)

        self.wait(no_node_ended, "every broker is there", timeout_s)
        self.wait_until_replicated(timeout_s)

    def mend(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Resume paused nodes, start stopped nodes, and wait until all replicas are in sync."""
        for node in self.nodes.values():
            if node.is_running and node.is_paused:
                node.resume()
            if not node.is_running:
                node.start()
        self.wait_until_whole(timeout_s)

    # changing

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 3,
        configs: dict[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> str:
        """Create a topic and wait until every broker knows its leaders. `assignment` lists each partition's replicas."""
        body = {
            "Topics": [
                {
                    "Name": name,
                    "NumPartitions": -1 if assignment else partitions,
                    "ReplicationFactor": -1 if assignment else replication_factor,
                    "Assignments": [
                        {"PartitionIndex": number, "BrokerIds": list(replicas)}
                        for number, replicas in enumerate(assignment or ())
                    ],
                    "Configs": [{"Name": key, "Value": value} for key, value in (configs or {}).items()],
                }
            ],
            "timeoutMs": 15000,
        }
        count = len(assignment) if assignment else partitions
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            reply = self.ask(lambda connection: connection.call("CreateTopics", 7, body, timeout_s=20))
            result = reply["Topics"][0] if reply else {"ErrorCode": None}
            if result["ErrorCode"] in (0, 36):
                break
            # Retry while there is no active controller, or brokers are still fenced.
            retriable = (None, 7, 38, 41)
            assert result["ErrorCode"] in retriable, (result, name)
            assert time.monotonic() < deadline, (result, name)
            time.sleep(0.2)

        def is_led() -> bool:
            for node in self.brokers:
                if node.serves:
                    found = views.ask([node], lambda connection: views.partitions(connection, name))
                    if not found or len(found) != count or any(each.leader < 0 for each in found.values()):
                        return False
            return True

        self.wait(is_led, f"{name} has its leaders")
        return name
