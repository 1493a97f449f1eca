"""Causes faults of nodes. A seed determines the kinds, victims and lengths. Which node leads is found out when a fault
is due."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.network import Network
from interop_tests.faults.filling import fill
from interop_tests.harness.wire import Connection
from interop_tests.histories.clients import Key
from interop_tests.histories.history import Recorder

KINDS = ("kill", "kill-all", "pause", "cut", "mute", "deaf", "disk")
"""kill -9 of one or all nodes; SIGSTOP; a node disconnected in both directions, or in one of them; a full disk."""
NETWORK_KINDS = frozenset({"cut", "mute", "deaf"})
TARGETS = ("controller", "leader", "coordinator", "any")
AFTER_S = (1.0, 3.0)
FOR_S = (0.5, 8.0)
WHOLE_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Fault:
    kind: str
    target: str
    after_s: float
    """Seconds since all nodes were without faults."""
    for_s: float
    choice: int
    """The index of the victim, modulo the number of candidates."""


def plan(seed: int, kinds: Sequence[str], longest_s: float) -> Iterator[Fault]:
    """Faults without end. Each kind occurs once before any kind occurs again."""
    chance = random.Random(f"{seed} nemesis")
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            yield Fault(
                kind,
                chance.choice(TARGETS),
                chance.uniform(*AFTER_S),
                chance.uniform(FOR_S[0], min(FOR_S[1], longest_s)),
                chance.randrange(1 << 16),
            )


def coordinator(key: Key, connection: Connection) -> int:
    """The node that coordinates this group or transactional id. 0 if there is none."""
    reply = connection.call("FindCoordinator", 4, {"KeyType": key[0], "CoordinatorKeys": [key[1]]})
    (found,) = reply["Coordinators"]
    return int(found["NodeId"]) if found["ErrorCode"] == 0 else 0


class Nemesis:
    """Executes faults one after another. Each fault ends, and all replicas are in sync, before the next one."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        topics: Sequence[tuple[str, int]],
        coordinated: Sequence[Key],
        network: Network | None,
        disks: dict[int, Path],
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._topics = topics
        self._coordinated = coordinated
        self._network = network
        self._disks = disks

    def harm(self, fault: Fault, ended: threading.Event) -> None:
        """Keep the fault for its time. AssertionError if the replicas are not in sync in time afterwards."""
        victims = self._victims(fault)
        with self._recorder.operation("nemesis", "fault", [fault.kind, victims]) as done:
            for victim in victims:
                self._begin(fault.kind, victim)
            ended.wait(fault.for_s)
            for victim in victims:
                self._mend(fault.kind, victim)
            done.ok(done.value)
        self._cluster.wait_until_whole(WHOLE_TIMEOUT_S)

    def _victims(self, fault: Fault) -> list[int]:
        cluster = self._cluster
        everybody = sorted(cluster.nodes)
        if fault.kind == "kill-all":
            return everybody
        match fault.target:
            case "controller":
                return [cluster.active_controller()]
            case "leader":
                topic, partitions = self._topics[fault.choice % len(self._topics)]
                return [cluster.leader(topic, fault.choice % partitions)]
            case "coordinator":
                found = cluster.ask(
                    partial(coordinator, self._coordinated[fault.choice % len(self._coordinated)])
                )
                if found:
                    return [found]
        return [everybody[fault.choice % len(everybody)]]

    def _begin(self, kind: str, victim: int) -> None:
        node = self._cluster.nodes[victim]
        match kind:
            case "kill" | "kill-all":
                node.kill()
            case "pause":
                node.pause()
            case "disk":
                fill(self._disks[victim])
            case _:
                self._cut(kind, victim)

    def _cut(self, kind: str, victim: int) -> None:
        assert self._network is not None
        others = [each for each in self._cluster.nodes if each != victim]
        match kind:
            case "cut":
                self._network.separate(victim, *others)
            case "mute":
                self._network.lose(victim, *others)
            case "deaf":
                for other in others:
                    self._network.lose(other, victim)

    def _mend(self, kind: str, victim: int) -> None:
        node = self._cluster.nodes[victim]
        match kind:
            case "kill" | "kill-all":
                node.start()
            case "pause":
                node.resume()
            case "disk":
                (self._disks[victim] / "ballast").unlink()
                # In any case: a log directory that failed is used again only after a restart.
                node.kill()
                node.start()
            case _:
                assert self._network is not None
                self._network.heal()


@contextlib.contextmanager
def harming(
    nemesis: Nemesis, faults: Iterator[Fault], told: Callable[[str], None]
) -> Iterator[threading.Thread]:
    """Execute faults one after another in a thread until the block ends. Failures to recover are reported."""
    ended = threading.Event()

    def run() -> None:
        for fault in faults:
            if ended.wait(fault.after_s):
                return
            try:
                nemesis.harm(fault, ended)
            except AssertionError as error:
                told(f"after {fault.kind} of {fault.target}: {error}")
                return

    thread = threading.Thread(target=run, name="nemesis", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        ended.set()
        thread.join()
