"""Several quorum drivers in one thread: memory disks, a network of encoded messages, one clock set by the test.

Nothing sleeps: `run` delivers messages, syncs and fires timers in time order until a given time has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.raft.contracts import LoadedBatch, PeerUnavailable, PeerUnsupported
from kafkacompat.raft.metadata_log import metadata_log_config, open_metadata_log
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.quorum_driver import QuorumDriver
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.snapshot import SnapshotContent, format_snapshot, snapshot_file_name
from kafkacompat.raft.storage import METADATA_PARTITION
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import Endpoints
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages import (
    add_raft_voter_response,
    api_versions_response,
    begin_quorum_epoch_response,
    end_quorum_epoch_response,
    fetch_response,
    fetch_snapshot_response,
    remove_raft_voter_response,
    update_raft_voter_response,
    vote_response,
)
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest

DIRECTORY = "/meta"
PARTITION = f"{DIRECTORY}/{METADATA_PARTITION}"
LISTENER = "CONTROLLER"
CLUSTER_ID = "cluster"
LATENCY_MS = 1
RESPONSES: dict[str, Any] = {
    "VoteRequest": vote_response.VoteResponse,
    "BeginQuorumEpochRequest": begin_quorum_epoch_response.BeginQuorumEpochResponse,
    "EndQuorumEpochRequest": end_quorum_epoch_response.EndQuorumEpochResponse,
    "FetchRequest": fetch_response.FetchResponse,
    "FetchSnapshotRequest": fetch_snapshot_response.FetchSnapshotResponse,
    "AddRaftVoterRequest": add_raft_voter_response.AddRaftVoterResponse,
    "RemoveRaftVoterRequest": remove_raft_voter_response.RemoveRaftVoterResponse,
    "UpdateRaftVoterRequest": update_raft_voter_response.UpdateRaftVoterResponse,
    "ApiVersionsRequest": api_versions_response.ApiVersionsResponse,
}


def directory_id(node_id: int) -> bytes:
    return bytes([7, *bytes(14), node_id])


def address(node_id: int) -> Endpoints:
    return ((LISTENER, "127.0.0.1", 9000 + node_id),)


def voter(node_id: int) -> VoterNode:
    return VoterNode(node_id, directory_id(node_id), address(node_id))


def static_voter(node_id: int) -> VoterNode:
    return VoterNode(node_id, bytes(16), address(node_id))


class QuorumTime(HandTime):
    """The clock and all planned events."""

    def __init__(self) -> None:
        super().__init__(5_000)

    def run_until(self, condition: Callable[[], bool], within_ms: int = 20_000) -> None:
        for _ in range(within_ms // 5):
            if condition():
                return
            self.advance(5)
        raise AssertionError(f"not within {within_ms} ms")


class SlowWorkers:
    """A job takes a millisecond of the world's time. `stopped` delays it."""

    def __init__(self, world: QuorumTime) -> None:
        self._world = world
        self.stopped = False
        self.kept: list[Callable[[], None]] = []

    def submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()

        def work() -> None:
            if self.stopped:
                self.kept.append(work)
                return
            try:
                value = function()
            except Exception as error:
                deferred.fail(error)
            else:
                deferred.resolve(value)

        self._world.call_after(1, work)
        return deferred

    def resume(self) -> None:
        self.stopped = False
        kept, self.kept = self.kept, []
        for work in kept:
            work()


class SpreadRandom:
    """Deterministic and different for each node, so that elections do not tie forever."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 7919 + 13

    def randrange(self, stop: int) -> int:
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self._state >> 8) % stop

    def uuid(self) -> bytes:
        return bytes([self.randrange(256) for _ in range(16)])


class RecordingMachine:
    """Keeps the values it gets. A leader adds its own values when they are committed."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.parts: list[int] = []
        """Sizes of the parts."""
        self.events: list[Any] = []
        self.leader: tuple[int, int] = (-1, -1)
        self.active_epochs: list[int] = []
        self.last_offset = -1
        self.last_epoch = -1
        self.kraft_version: int | None = None
        self.when_active: Callable[[], None] | None = None

    def load_snapshot(self, batch: LoadedBatch) -> None:
        self.values = list(batch.values)
        self._note(batch)
        self.events.append(("snapshot", batch.last_offset))

    def apply_part(self, values: Sequence[bytes]) -> None:
        self.values += values
        self.parts.append(len(values))

    def apply(self, batch: LoadedBatch) -> None:
        assert batch.last_offset > self.last_offset
        self.values += batch.values
        self._note(batch)
        self.events.append(("apply", batch.last_offset))

    def _note(self, batch: LoadedBatch) -> None:
        self.last_offset, self.last_epoch = batch.last_offset, batch.epoch
        if batch.kraft_version is not None:
            self.kraft_version = batch.kraft_version

    def caught_up(self) -> None:
        self.events.append("caught up")

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self.leader = (epoch, leader_id)
        self.events.append(("leader", epoch, leader_id))

    def became_active(self, epoch: int) -> None:
        self.active_epochs.append(epoch)
        self.events.append(("active", epoch))
        if self.when_active is not None:
            self.when_active()


class Transport:
    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self.on_refused: Callable[[int], None] = lambda node_id: None

    def request(
        self, node_id: int, host: str, port: int, message: Any, timeout_ms: int, *, min_version: int = 0
    ) -> Deferred[Any]:
        return self._cluster.carry(self._node_id, node_id, port - 9000, message, timeout_ms, min_version)


class Node:
    """One node's disk, and its driver while it runs."""

    def __init__(self, cluster: Cluster, node_id: int, *, can_vote: bool = True) -> None:
        self.joins = False
        self.directory_id = directory_id(node_id)
        self.cluster = cluster
        self.id = node_id
        self.can_vote = can_vote
        self.disk = MemoryDisk()
        self.disk.make_directory(DIRECTORY)
        self.failures: list[BaseException] = []
        self.notes: list[str] = []
        self.driver: QuorumDriver | None = None
        self.machine = RecordingMachine()
        self.workers = SlowWorkers(cluster.world)
        self.max_version: int | None = None

    def start(self) -> None:
        cluster = self.cluster
        self.machine = RecordingMachine()
        self.workers = SlowWorkers(cluster.world)
        self.transport = Transport(cluster, self.id)
        self.log = open_metadata_log(self.disk, DIRECTORY, cluster.log_config, cluster.world, clean=False)
        bootstrap = tuple((-2 - index, address(each)) for index, each in enumerate(cluster.bootstrap))
        self.driver = QuorumDriver(
            member=Member(
                self.id,
                self.directory_id,
                address(self.id) if self.can_vote else (),
                self.can_vote,
                CLUSTER_ID,
                bootstrap,
                joins=self.joins,
            ),
            settings=cluster.settings,
            listener_name=LISTENER,
            directory=PARTITION,
            log=self.log,
            disk=self.disk,
            workers=self.workers,
            clock=cluster.world,
            timers=cluster.world,
            random=SpreadRandom(self.id),
            static_voters=[static_voter(each) for each in cluster.static],
            transport=self.transport,
            fail=self.failures.append,
            note=self.notes.append,
        )
        self.driver.start(self.machine)

    @property
    def up(self) -> QuorumDriver:
        assert self.driver is not None
        return self.driver

    def kill(self) -> None:
        """kill -9: written data stays, work in progress is lost."""
        self.up.close()
        self.driver = None
        self.disk = self.disk.copy()
        self.cluster.connections_close(self)

    def lose_power(self) -> None:
        """Unsynced data is lost."""
        self.up.close()
        self.driver = None
        self.disk = self.disk.lose_power()

    def begin_snapshot(self) -> None:
        """Write a snapshot of everything applied here. It exists once a worker has written it."""
        writer = self.up.begin_snapshot(self.up.applied_offset, self.machine.last_epoch)
        assert writer is not None
        writer.add(self.machine.values)
        writer.finish()

    def write_snapshot(self) -> None:
        self.begin_snapshot()
        self.cluster.run(3)

    def propose(self, value: bytes) -> list[str]:
        """The outcome of a proposal, once known."""
        outcome: list[str] = []

        def committed() -> None:
            self.machine.values.append(value)
            outcome.append("committed")

        self.up.propose(PackedValues([value]), committed, lambda: outcome.append("lost"))
        return outcome


class Cluster:
    def __init__(
        self,
        voters: tuple[int, ...] = (1, 2, 3),
        *,
        dynamic: bool = True,
        observers: tuple[int, ...] = (),
        settings: QuorumSettings | None = None,
        segment_bytes: int = 1 << 30,
    ) -> None:
        """`dynamic`: the voters are in each voter's 0-0 snapshot. Otherwise they are the static setting."""
        self.world = QuorumTime()
        self.settings = settings if settings is not None else QuorumSettings()
        self.log_config: LogConfig = metadata_log_config(segment_bytes, 1 << 40)
        self.static = () if dynamic else voters
        self.bootstrap = voters if dynamic else ()
        self.cut: set[tuple[int, int]] = set()
        """(from, to) pairs without a connection."""
        self.carried: list[tuple[int, int, str]] = []
        self._unanswered: list[tuple[Node, QuorumDriver, int, int, Deferred[Any]]] = []
        """(requesting node, its driver, node id used, target, answer)."""
        self.nodes = {each: Node(self, each) for each in voters}
        for each in observers:
            self.nodes[each] = Node(self, each, can_vote=False)
        if dynamic:
            for each in voters:
                self.format_dynamic(self.nodes[each], voters)

    def format_dynamic(self, node: Node, voters: tuple[int, ...]) -> None:
        content = SnapshotContent(kraft_version=1, voters=tuple(voter(each) for each in voters))
        node.disk.make_directory(PARTITION)
        path = f"{PARTITION}/{snapshot_file_name(0, 0)}"
        node.disk.write_atomic(path, format_snapshot(content, 0, 0))

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def run(self, for_ms: int) -> None:
        self.world.advance(for_ms)
        for node in self.nodes.values():
            assert not node.failures, node.failures

    def run_until(self, condition: Callable[[], bool], within_ms: int = 20_000) -> None:
        self.world.run_until(condition, within_ms)

    def leader(self) -> Node:
        """The active leader, waiting until there is one."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [
                node
                for node in self.nodes.values()
                if node.driver is not None
                and node.driver.is_leader
                and node.machine.active_epochs[-1:] == [node.driver.epoch]
            ]
            return len(found) == 1

        self.run_until(look)
        return found[0]

    def followers(self) -> list[Node]:
        leader = self.leader()
        return [node for node in self.nodes.values() if node is not leader and node.driver is not None]

    def settle(self) -> Node:
        """Wait until all nodes have applied everything the leader has."""
        leader = self.leader()
        self.run_until(
            lambda: all(
                node.driver is None or node.driver.applied_offset == leader.up.next_offset
                for node in self.nodes.values()
            )
        )
        return leader

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            if other != node_id:
                self.cut |= {(node_id, other), (other, node_id)}

    def connections_close(self, gone: Node) -> None:
        """Close the connections to a node: waiting requests fail, and new connections are refused."""
        waiting, self._unanswered = self._unanswered, []
        for entry in waiting:
            asking, driver, node_id, target, answer = entry
            if answer.done or asking.driver is not driver:
                continue
            if target == gone.id and (gone.id, asking.id) not in self.cut:
                answer.fail(PeerUnavailable("closed"))
                asking.transport.on_refused(node_id)
            else:
                self._unanswered.append(entry)

    def carry(
        self, source: int, node_id: int, target: int, message: Any, timeout_ms: int, min_version: int
    ) -> Deferred[Any]:
        """Deliver a message through its encoding, in both directions."""
        answer: Deferred[Any] = Deferred()
        world = self.world
        name = type(message).__name__
        self.carried.append((source, target, name))
        asking = self.nodes[source]
        version = message.MAX_VERSION
        known = self.nodes[target].max_version
        if known is not None and name == "VoteRequest":
            version = min(version, known)

        def give_up() -> None:
            if not answer.done:
                answer.fail(PeerUnavailable("no answer in time"))

        world.call_after(timeout_ms, give_up)
        if version < min_version:
            answer.fail(PeerUnsupported(f"{name} {min_version}"))
            return answer
        data = bytes(encode(message, version))
        asking_driver = asking.up
        self._unanswered.append((asking, asking_driver, node_id, target, answer))

        def arrive() -> None:
            node = self.nodes[target]
            if (source, target) in self.cut:
                return
            if node.driver is None:
                if not answer.done:
                    answer.fail(PeerUnavailable("refused"))
                if asking.driver is asking_driver:
                    asking.transport.on_refused(node_id)
                return
            received = decode(type(message), version, data)
            if isinstance(received, ApiVersionsRequest):
                feature = api_versions_response.SupportedFeatureKey(
                    name="kraft.version", min_version=0, max_version=1
                )
                respond(api_versions_response.ApiVersionsResponse(supported_features=[feature]))
            else:
                node.driver.handle(received, version).on_done(lambda done: respond(done.result()))

        def respond(response: Any) -> None:
            assert type(response) is RESPONSES[name]
            encoded = bytes(encode(response, version))

            def return_it() -> None:
                if (target, source) not in self.cut and not answer.done and asking.driver is asking_driver:
                    answer.resolve(decode(type(response), version, encoded))

            world.call_after(LATENCY_MS, return_it)

        world.call_after(LATENCY_MS, arrive)
        return answer

    def ask(self, node: Node, message: Any, version: int | None = None) -> Any:
        """A node's answer to an outside request."""
        wanted = message.MAX_VERSION if version is None else version
        received = decode(type(message), wanted, bytes(encode(message, wanted)))
        answer = node.up.handle(received, wanted)
        self.run_until(lambda: answer.done)
        response = answer.result()
        return decode(type(response), wanted, bytes(encode(response, wanted)))
