"""What a read_committed consumer of a simulated cluster sees of transactions, held against what became of them.

Reads every partition as clients do: up to the last stable offset, without the ranges that the leader names as aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.sim.clients import FETCH_WAIT_MS, SESSIONLESS, Client, Key
from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.sim.transactional import Fate, Transaction
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

READ_COMMITTED = 1


class Transactions:
    """Every transaction begun, by name, and what a read_committed consumer was shown of it."""

    def __init__(self, simulation: ClusterSimulation) -> None:
        self._simulation = simulation
        self._all: dict[str, Transaction] = {}
        self.seen: dict[str, dict[Key, list[bytes]]] = {}
        self._owners: dict[int, str] = {}
        """Producer id -> its transactional id."""

    def identified(self, transactional_id: str, producer_id: int) -> None:
        if self._owners.setdefault(producer_id, transactional_id) != transactional_id:
            raise Breach("a producer id is given once", f"{producer_id} to {transactional_id}")

    def begun(self, name: str) -> Transaction:
        self._all[name] = transaction = Transaction(name)
        self.seen[name] = {}
        return transaction

    def settled(self, transaction: Transaction, fate: Fate) -> None:
        transaction.fate = fate
        counters = self._simulation.counters
        counters.transactions_committed += fate is Fate.COMMITTED
        counters.transactions_aborted += fate is Fate.ABORTED
        counters.transactions_in_doubt += fate is Fate.EITHER
        if fate is Fate.ABORTED and self.seen[transaction.name]:
            raise Breach("read_committed shows nothing aborted", f"{transaction.name} was shown")

    def shown(self, key: Key, value: bytes) -> None:
        name = value.decode().rpartition(":")[0]
        transaction, seen = self._all[name], self.seen[name].setdefault(key, [])
        if transaction.fate is Fate.ABORTED or not transaction.may_commit:
            raise Breach(
                "read_committed shows nothing aborted",
                f"{value!r}, whose transaction is {transaction.fate.value}",
            )
        expected = transaction.values.get(key, [])[len(seen) : len(seen) + 1]
        if expected != [value]:
            raise Breach("each record once and in order", f"{value!r} is shown where {expected} was due")
        seen.append(value)

    def check(self) -> None:
        """In the end, when everything committed can be read: transactions are whole, or not there at all."""
        for name, transaction in self._all.items():
            seen = self.seen[name]
            if transaction.fate is Fate.COMMITTED or (transaction.fate is Fate.EITHER and seen):
                if seen != transaction.values:
                    raise Breach(
                        "transactions are atomic",
                        f"of {name}, {transaction.fate.value}, {seen} is shown of {transaction.values}",
                    )
            elif seen:
                raise Breach("transactions are atomic", f"{name}, {transaction.fate.value}, is shown: {seen}")


class CommittedReader(Client):
    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self.positions: dict[Key, int] = {}

    def found(self, key: Key) -> None:
        self.positions[key] = 0
        self._fetch(key)

    def _fetch(self, key: Key) -> None:
        place = self.places[key]
        if place.leader == NO_LEADER:
            self._again(key)
            return
        partition = FetchPartition(
            partition=place.partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=self.positions[key],
            partition_max_bytes=self.simulation.options.fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=100_000,
            isolation_level=READ_COMMITTED,
            session_epoch=SESSIONLESS,
            topics=[FetchTopic(topic=place.topic, topic_id=place.topic_id, partitions=[partition])],
        )
        purpose = f"read committed {key[0].hex()} {key[1]}"
        self.ask(place.leader, request, purpose).on_done(lambda done: self._fetched(key, done))

    def _again(self, key: Key) -> None:
        self.refresh()
        self.later(lambda: self._fetch(key))

    def _fetched(self, key: Key, done: Deferred[Any]) -> None:
        try:
            response = done.result()
        except ChannelError:
            response = None
        if response is None or response.error_code or not response.responses:
            self._again(key)
            return
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            self._again(key)
            return
        if answer.last_stable_offset > answer.high_watermark:
            raise Breach(
                "stable is committed",
                f"{self.places[key]}: {answer.last_stable_offset} of {answer.high_watermark}",
            )
        self._take(key, answer)
        self.later(lambda: self._fetch(key), 20)

    def _take(self, key: Key, answer: Any) -> None:
        records = answer.records or b""
        ranges = sorted(answer.aborted_transactions or [], key=lambda each: each.first_offset)
        aborted: set[int] = set()
        for header in iterate_batches(records):
            while ranges and ranges[0].first_offset <= header.last_offset:
                aborted.add(ranges.pop(0).producer_id)
            batch = memoryview(records)[header.position : header.position + header.size]
            for offset, record in records_of(batch, header):
                if offset < self.positions[key]:
                    continue
                if offset >= answer.last_stable_offset:
                    raise Breach(
                        "read_committed ends at the last stable offset", f"{self.places[key]} at {offset}"
                    )
                self.positions[key] = offset + 1
                if header.is_transactional and not header.is_control and header.producer_id not in aborted:
                    self.simulation.transactions.shown(key, bytes(record.value or b""))
            if header.is_control:
                aborted.discard(header.producer_id)
