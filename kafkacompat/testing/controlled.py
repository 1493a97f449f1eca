"""What the control API controls: a Kafka, its forks and its snapshots, and who may use them at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field

from kafkacompat.dataclass import dataclass
from kafkacompat.testing.control_arguments import Problem
from kafkacompat.testing.faults import Fault
from kafkacompat.testing.kafka import Kafka, Snapshot

TURN_S = 30.0
"""How long an operation that replaces nodes waits for those that ask them."""


class Turns:
    """Those who ask nodes, and those who start, stop or replace them, take turns: a node that does not serve yet answers nobody."""

    def __init__(self, changing: threading.Lock) -> None:
        """`changing`: held by whoever replaces nodes, those of forks too. They share snapshots."""
        self._changing = changing
        self._left = threading.Condition()
        self._asking = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._left:
            if not self._left.wait_for(lambda: not self._is_alone, TURN_S):
                raise _busy()
            self._asking += 1
        try:
            yield
        finally:
            with self._left:
                self._asking -= 1
                self._left.notify_all()

    @contextmanager
    def nodes(self) -> Iterator[None]:
        """For who ends nodes at once. They do not wait for those who ask, who may wait for a node."""
        if not self._changing.acquire(timeout=TURN_S):
            raise _busy()
        try:
            yield
        finally:
            self._changing.release()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self.nodes():
            try:
                with self._left:
                    self._is_alone = True
                    if not self._left.wait_for(lambda: self._asking == 0, TURN_S):
                        raise _busy()
                yield
            finally:
                with self._left:
                    self._is_alone = False
                    self._left.notify_all()

    def free(self) -> AbstractContextManager[None]:
        return nullcontext()


def _busy() -> Problem:
    return Problem(503, "another operation is still under way")


@dataclass(slots=True)
class Controlled:
    """A Kafka with what was made through the control API."""

    kafka: Kafka
    turns: Turns
    faults: dict[int, Fault] = field(default_factory=dict)
    _fault_count: int = 0

    def has_node(self) -> bool:
        """Whether a node runs that can be asked."""
        nodes, paused = self.kafka.nodes, self.kafka.paused
        return any(node.is_running and node_id not in paused for node_id, node in nodes.items())

    def node(self, node_id: int, argument: str, *, runs: bool | None = None) -> int:
        """The id, if there is such a node. `runs`: whether it must run."""
        nodes = self.kafka.nodes
        if node_id not in nodes:
            known = ", ".join(map(str, sorted(nodes)))
            raise Problem(
                404, f"there is no node {node_id}; those that there are: {known}", argument=argument
            )
        if runs is not None and nodes[node_id].is_running != runs:
            raise Problem(409, f"node {node_id} {'does not run' if runs else 'runs already'}")
        return node_id

    def topic(self, name: str) -> str:
        if name not in self.kafka.topics():
            raise Problem(404, f"topic {name} does not exist", argument="topic")
        return name

    def keep(self, fault: Fault) -> int:
        """The number of the fault."""
        self._fault_count += 1
        self.faults[self._fault_count] = fault
        return self._fault_count

    def fault(self, number: int) -> Fault:
        found = self.faults.get(number)
        if found is None:
            raise Problem(404, f"there is no fault {number}", argument="fault_id")
        return found


class Control:
    """One Kafka, with its forks and snapshots. For any thread."""

    def __init__(self, kafka: Kafka) -> None:
        """It has started, and records requests."""
        self._changing = threading.Lock()
        self._own = self.controlled(kafka)
        self.forks: dict[int, Controlled] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self._numbers = 0
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the forks, and forget the snapshots."""
        for fork in [self.forks.pop(number) for number in list(self.forks)]:
            fork.kafka.stop()
        for number in list(self.snapshots):
            self.snapshots.pop(number).close()

    def controlled(self, kafka: Kafka) -> Controlled:
        return Controlled(kafka, Turns(self._changing))

    def number(self) -> int:
        with self._lock:
            self._numbers += 1
            return self._numbers

    def fork(self, text: str | None) -> Controlled:
        """The fork with this number. None: the Kafka itself. Raises Problem."""
        if text is None:
            return self._own
        found = self.forks.get(int(text)) if text.isascii() and text.isdecimal() else None
        if found is None:
            raise Problem(404, f"there is no fork {text}", argument="fork")
        return found
