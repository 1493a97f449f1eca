"""An unexpected exception anywhere in a step of the quorum: the node halts there, and a restart finds a valid state.

Every effect of the driver and every call of its state machine raises once, before or after its work. The quorum
meanwhile elects, writes, takes snapshots and changes its voters. Afterwards no voter has voted twice in an epoch, and
nothing was skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.raft import effects as effect
from kafkacompat.raft import wire_client
from kafkacompat.raft._tests.driver_support import (
    CLUSTER_ID,
    PARTITION,
    Cluster,
    Node,
    QuorumTime,
    RecordingMachine,
    directory_id,
)
from kafkacompat.raft.election_state import QUORUM_STATE_FILE, parse_election_state
from kafkacompat.raft.event_pump import EventPump
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.quorum_driver import _CARRY_OUT, QuorumDriver
from kafkacompat.wire.messages import vote_request

CALLS = ("load_snapshot", "apply", "caught_up", "leader_changed", "became_active")
PLACES = [*sorted(each.__name__ for each in _CARRY_OUT), *CALLS]
UNREACHED = {
    "RefuseProposal",
    "InstallSnapshot",
    "WriteSnapshotChunk",
    "ReplyWithSnapshot",
    "load_snapshot",
    "ProbeVoter",
}
"""Places that this workload does not reach. Each has a test below, or cannot be half done."""


class Fault:
    """Raises the n-th time that a node reaches a place, and only then."""

    def __init__(self, place: str, nth: int, *, after: bool) -> None:
        self.place = place
        self._left = nth
        self._after = after
        self.hit: Node | None = None

    def plant(self, patch: pytest.MonkeyPatch, cluster: Cluster) -> None:
        if self.place in CALLS:
            original = getattr(RecordingMachine, self.place)

            def call(machine: RecordingMachine, *arguments: Any) -> None:
                node = next(each for each in cluster.nodes.values() if each.machine is machine)
                self._around(node, lambda: original(machine, *arguments))

            patch.setattr(RecordingMachine, self.place, call)
            return
        kind = getattr(effect, self.place)
        carry_out = _CARRY_OUT[kind]

        def carried(driver: QuorumDriver, each: Any) -> None:
            node = next(one for one in cluster.nodes.values() if one.driver is driver)
            self._around(node, lambda: carry_out(driver, each))

        patch.setitem(_CARRY_OUT, kind, carried)

    def _around(self, node: Node, call: Callable[[], None]) -> None:
        self._left -= 1
        strikes = self._left == 0
        if strikes:
            self.hit = node
        if strikes and not self._after:
            raise MemoryError(self.place)
        call()
        if strikes:
            raise MemoryError(self.place)


class Votes:
    """Each voter's vote in each epoch, from its answers and its file."""

    def __init__(self) -> None:
        self.given: dict[tuple[int, int], set[int]] = {}

    def look(self, cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            data = node.disk.files.get(f"{PARTITION}/{QUORUM_STATE_FILE}")
            if data:
                state = parse_election_state(bytes(data))
                if state.voted_id >= 0:
                    self.given.setdefault((node.id, state.leader_epoch), set()).add(state.voted_id)

    def watch(self, patch: pytest.MonkeyPatch, cluster: Cluster) -> None:
        original = QuorumDriver.handle

        def handle(driver: QuorumDriver, message: Any, api_version: int) -> Any:
            answer = original(driver, message, api_version)
            if type(message).__name__ == "VoteRequest":
                asked = message.topics[0].partitions[0]

                def told(done: Any) -> None:
                    granted = done.result().topics[0].partitions[0].vote_granted
                    if granted and not asked.pre_vote:
                        node = next(each for each in cluster.nodes.values() if each.driver is driver)
                        key = (node.id, asked.replica_epoch)
                        self.given.setdefault(key, set()).add(asked.replica_id)

                answer.on_done(told)
            return answer

        patch.setattr(QuorumDriver, "handle", handle)


def work(cluster: Cluster, fault: Fault, votes: Votes) -> list[bytes]:
    """Elections, records, snapshots, a resignation, kills. Returns the acknowledged records."""
    acknowledged: list[bytes] = []

    def until(condition: Callable[[], bool]) -> None:
        for _ in range(4000):
            votes.look(cluster)
            stop_halted()
            if fault.hit is not None and fault.hit.driver is None:
                return
            if condition():
                return
            cluster.world.advance(5)
        raise AssertionError("the quorum stands still")

    def stop_halted() -> None:
        for node in cluster.nodes.values():
            if node.failures and node.driver is not None:
                node.kill()

    def leader() -> Node | None:
        found = [
            node
            for node in cluster.nodes.values()
            if node.driver is not None
            and node.driver.is_leader
            and node.machine.active_epochs[-1:] == [node.driver.epoch]
        ]
        return found[0] if len(found) == 1 else None

    for turn in range(4):
        until(lambda: leader() is not None)
        leads = leader()
        if leads is None:
            break
        for index in range(3):
            value = b"%d-%d" % (turn, index)
            if not leads.up.is_leader:
                break
            machine = leads.machine

            def committed(value: bytes = value, machine: RecordingMachine = machine) -> None:
                machine.values.append(value)
                acknowledged.append(value)

            leads.up.propose(PackedValues([value]), committed, lambda: None)
        cluster.world.advance(30)
        stop_halted()
        if turn % 2 == 0 and leads.driver is not None:
            leads.driver.resign()
        elif leads.driver is not None:
            leads.kill()
            cluster.world.advance(50)
            leads.start()
        votes.look(cluster)
        stop_halted()
    return acknowledged


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("place", [each for each in PLACES if each not in UNREACHED])
def test_whatever_is_raised_halts_the_node_and_a_restart_breaks_no_rule(
    place: str, nth: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    fault, votes = Fault(place, nth, after=after), Votes()
    fault.plant(monkeypatch, cluster)
    votes.watch(monkeypatch, cluster)
    for node in cluster.nodes.values():
        try:
            node.start()
        except MemoryError:
            node.kill()  # a failed start is a refused one
            node.failures.append(MemoryError(place))
    acknowledged = work(cluster, fault, votes)
    if fault.hit is not None:
        assert [type(each) for each in fault.hit.failures] == [MemoryError]
    for node in cluster.nodes.values():
        node.failures.clear()
        if node.driver is None:
            node.start()
    cluster.settle()
    votes.look(cluster)
    assert {key: given for key, given in votes.given.items() if len(given) > 1} == {}
    (values,) = {tuple(node.machine.values) for node in cluster.nodes.values()}
    assert set(acknowledged) <= set(values)
    assert len(set(values)) == len(values)


def ask_for_a_vote(cluster: Cluster, node: Node, candidate: int, epoch: int) -> bool:
    """Whether the node votes for the candidate. False without an answer."""
    partition = vote_request.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=directory_id(candidate),
        voter_directory_id=directory_id(node.id),
        last_offset_epoch=epoch - 1,
        last_offset=1_000,
    )
    topic = vote_request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    request = vote_request.VoteRequest(cluster_id=CLUSTER_ID, voter_id=node.id, topics=[topic])
    answer = node.up.handle(request, 2)
    return answer.done and bool(answer.result().topics[0].partitions[0].vote_granted)


def two_candidates_ask(patch: pytest.MonkeyPatch) -> list[int]:
    """Two candidates ask one node in one epoch, and no memory is left while the first vote is persisted. Returns the
    candidates that got a vote."""
    cluster = Cluster()
    node = cluster.nodes[1]
    node.start()
    fault = Fault("PersistElection", 1, after=False)
    promised: list[int] = []
    with patch.context() as planted:
        fault.plant(planted, cluster)
        # The shell of requests logs a handler's exception, and the candidate retries.
        for _ in range(2):
            with contextlib.suppress(MemoryError):
                if ask_for_a_vote(cluster, node, 2, 100):
                    promised.append(2)
    node.kill()
    node.start()
    if ask_for_a_vote(cluster, node, 3, 100):
        promised.append(3)
    return promised


def run_on(pump: EventPump, problem: BaseException) -> None:
    """The behaviour of a list of known problems for all other exceptions."""
    raise problem


def test_a_vote_that_could_not_be_persisted_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert two_candidates_ask(monkeypatch) == [3]


def test_a_pump_that_runs_on_gives_two_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above finds the bug if it is put back."""
    monkeypatch.setattr(EventPump, "halt", run_on)
    assert two_candidates_ask(monkeypatch) == [2, 3]


def test_an_exception_of_a_call_from_outside_of_a_step_halts_the_node() -> None:
    """The applier and finished snapshots call from a timer or a worker."""
    world, failures = QuorumTime(), []
    pump = EventPump(world, world, lambda effects: None, failures.append)

    def out_of_memory() -> None:
        raise MemoryError

    pump.guarded(out_of_memory)
    pump.guarded(lambda: failures.append(AssertionError("called after the halt")))
    assert [type(each) for each in failures] == [MemoryError]
    assert pump.is_closed


def test_the_quorum_ticks_although_a_timer_could_not_be_set_for_want_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A voter that does not tick calls no election for good."""
    world, failures, ticks = QuorumTime(), [], []
    pump = EventPump(world, world, lambda effects: None, failures.append)

    def step(event: object, now_ms: int) -> list[Any]:
        ticks.append(now_ms)
        core.wake_ms = now_ms + 100
        return []

    core: Any = SimpleNamespace(wake_ms=world.monotonic_ms() + 1_000, step=step)
    pump.boot(core, [], lambda: None)
    core.wake_ms = world.monotonic_ms() + 100
    with monkeypatch.context() as patched:
        patched.setattr(world, "call_at", lacks_memory)
        with contextlib.suppress(MemoryError):
            pump.run()
    pump.run()
    world.advance(1_000)
    assert failures == []
    assert len(ticks) == 10


def lacks_memory(*_: object) -> Any:
    raise MemoryError


def test_a_batch_that_does_not_fit_halts_the_node_instead_of_being_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    follower = cluster.followers()[0]

    def apply(machine: RecordingMachine, batch: Any) -> None:
        raise ReplayError("does not fit")

    monkeypatch.setattr(follower.machine, "apply", apply.__get__(follower.machine))
    leader.propose(b"a")
    cluster.world.advance(1_000)
    assert [type(each) for each in follower.failures] == [ReplayError]
    follower.failures.clear()
    follower.kill()
    follower.start()
    cluster.settle()
    assert follower.machine.values == [b"a"]


class ReplayError(Exception):
    """The state machine's error, which the quorum does not know."""


def test_a_peers_answer_that_cannot_be_read_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step has begun: it is the peer's error, and does not halt this node."""
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    original = wire_client.decode_response
    left = [3]

    def decode_response(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise IndexError("beyond the end")
        return original(*arguments)

    monkeypatch.setattr(wire_client, "decode_response", decode_response)
    leader.propose(b"a")
    cluster.settle()
    assert [node.machine.values for node in cluster.nodes.values()] == [[b"a"]] * 3
    assert any("cannot be read" in note for node in cluster.nodes.values() for note in node.notes)


def test_the_places_not_worked_through_are_named() -> None:
    """The workload above must reach a new place, or the list must name it."""
    assert set(PLACES) > UNREACHED
