"""Members of share groups at work while leaders and coordinators change: stock clients, and a crew over raw sockets.

A writer gives them numbered records. Everything that is written is delivered and ended, and what was accepted is not
delivered again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import Crew, Hand, initialize, read_from_start
from interop_tests.share_groups.scene import LOAD, LOCK_S, OFFSETS_TOPIC, STUCK_S, Scene
from interop_tests.share_groups.workers import EXPLICIT, JAVA, Worker

CREW, STOCK = "crew", "stock"
DELIVERIES = "10"
"""No record is given up because leaders died too often."""
POLL_MS = 300
WAIT_S = 120.0


class StockMember:
    """A stock client in a process of its own, driven by a thread. It accepts all that it gets."""

    def __init__(self, make: Callable[[], Worker], ledger: StockLedger, name: str) -> None:
        self.polls = 0
        self.name = name
        self.begins_anew = False
        """Set to have its process killed, and another one started."""
        self._make = make
        self._worker = make()
        self._ledger = ledger
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(120)
        self._worker.kill()
        if self._thread.is_alive():
            self._ledger.faults.append(f"{self.name} hangs")

    def kill(self) -> None:
        self._ends.set()
        self._worker.kill()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                if self.begins_anew:
                    self.begins_anew = False
                    self._worker.kill()
                    self._worker = self._make()
                term = self._ledger.term
                records = self._worker.poll(POLL_MS)
                self._ledger.note_delivered(self.name, [each.offset for each in records], term)
                if records:
                    self._worker.acknowledge("accept", records)
                    outcome = self._worker.commit().outcome
                    if outcome == {f"{LOAD}-0": None}:
                        self._ledger.note_accepted([each.offset for each in records])
                self.polls += 1
        except AssertionError as error:
            if not self._ends.is_set():
                self._ledger.faults.append(f"{self.name}: {error}")


class StockLedger:
    """What the stock members got and accepted. A term in which nothing happens to the nodes is quiet."""

    def __init__(self) -> None:
        self.term = 0
        """Even if it is quiet."""
        self.delivered: set[int] = set()
        self.accepted: dict[int, int] = {}
        """In which term."""
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def note_delivered(self, name: str, offsets: Sequence[int], term: int) -> None:
        """A client may give a record that it got from a leader that was deposed, but not in a quiet term."""
        with self._lock:
            for offset in offsets:
                if term % 2 == 0 and self.accepted.get(offset) == term:
                    self.faults.append(f"{name} gets {offset} after it was accepted")
            self.delivered.update(offsets)

    def note_accepted(self, offsets: Sequence[int]) -> None:
        with self._lock:
            for offset in offsets:
                self.accepted.setdefault(offset, self.term)


class AtWork:
    """Two stock members and a crew of three, each in a group of its own, on the topic `LOAD`."""

    def __init__(self, scene: Scene, folder: Path, stock: int = 2, hands: int = 3) -> None:
        self._scene = scene
        address = scene.address(OFFSETS_TOPIC)
        found = address()
        assert found is not None
        with Connection(found) as connection:
            for group in (CREW, STOCK):
                more = {"share_delivery_count_limit": DELIVERIES}
                more["share_record_lock_duration_ms"] = str(int(LOCK_S * 1000))
                read_from_start(connection, group, **more)
        initialize(address, [CREW], LOAD)
        find = scene.find(LOAD)
        made = [Hand(find, CREW, f"hand-{number}", scene.ids[LOAD]) for number in range(hands)]
        self.crew = Crew(made, find, LOCK_S).start()
        self.ledger = StockLedger()
        self._members = []
        for number in range(stock):
            name = f"stock-{number}"
            settings = {"bootstrap": scene.cluster.bootstrap, "group": STOCK, "client": name, "topic": LOAD}
            make = partial(Worker, JAVA, folder / f"{name}.log", **settings, mode=EXPLICIT)
            self._members.append(StockMember(make, self.ledger, name))
        self._written = 0

    def write(self, count: int) -> None:
        self._written = self._scene.fill(LOAD, count, self._written)

    def go_on(self, count: int) -> None:
        """So many records are written, and both groups get them."""
        self.write(count)
        wanted = {*range(self._written)}
        self._wait(lambda: {*self.crew.delivered} >= wanted, f"the crew gets all {self._written}")
        if self._members:
            self._wait(lambda: self.ledger.delivered >= wanted, f"the stock members get all {self._written}")

    def turmoil(self) -> None:
        """Something is about to happen to the nodes."""
        self.ledger.term += 1

    def calm(self) -> None:
        """Nothing happens any more. The term is quiet when no member has anything from before."""
        before = {member: member.polls for member in self._members}
        self._wait(lambda: all(each.polls > polls + 1 for each, polls in before.items()), "members poll")
        self.ledger.term += 1

    def finish(self) -> None:
        """Everything is delivered and ended."""
        self.go_on(5)
        for group in (CREW, STOCK) if self._members else (CREW,):
            self._wait(lambda group=group: self._scene.is_done(group, LOAD), f"{group} has ended all records")
        for member in self._members:
            member.stop()
        self.crew.finish()
        self._check()

    def abandon(self) -> None:
        """The test ends, maybe with a failure."""
        for member in self._members:
            member.kill()
        self.crew.abandon()

    def _faults(self) -> list[str]:
        return self.ledger.faults + self.crew.wrong

    def _check(self) -> None:
        assert not self._faults(), self._faults()[:5]

    def _wait(self, probe: Callable[[], bool], what: str) -> None:
        begun = [time.monotonic()]

        def is_so() -> bool:
            if self._faults() or probe():
                return True
            if time.monotonic() > begun[0] + STUCK_S and self._scene.may_be_stuck(LOAD):
                begun[0] = time.monotonic()
                for each in (*self.crew.hands, *self._members):
                    each.begins_anew = True  # type: ignore[attr-defined]
            return False

        wait_until(is_so, what, WAIT_S)
        self._check()
