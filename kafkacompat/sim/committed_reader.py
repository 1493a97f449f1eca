"""The transactions that a read_committed consumer of a simulated cluster sees, compared with their outcome.

It reads every partition as clients do: up to the last stable offset, without the ranges that the leader lists as
aborted.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.client_oracles import ClientOracles
from kafkacompat.sim.clients import Place
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.links import Links
from kafkacompat.sim.readers import Reader
from kafkacompat.sim.topics import is_for_producers
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest

READ_COMMITTED = 1


class Fate(Enum):
    OPEN = "neither committed nor aborted"
    EITHER = "asked to commit, and not known whether it was"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """`values`: by partition and in order, the values that were acknowledged or may have been written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fate = Fate.OPEN
        self.may_commit = False
        """True once a commit request has been sent."""
        self.values: dict[Key, list[bytes]] = {}
        self.number: int | None = None
        """The number that the transaction commits as an offset."""


class Transactions:
    """Every transaction by name, and what a read_committed consumer was shown of it."""

    def __init__(self, counters: ClusterCounters) -> None:
        self._counters = counters
        self._all: dict[str, Transaction] = {}
        self.seen: dict[str, dict[Key, list[bytes]]] = {}
        self._owners: dict[int, str] = {}
        """The transactional id of each producer id."""

    def identified(self, transactional_id: str, producer_id: int) -> None:
        if self._owners.setdefault(producer_id, transactional_id) != transactional_id:
            raise Breach("a producer id is given once", f"{producer_id} to {transactional_id}")

    def begun(self, name: str) -> Transaction:
        self._all[name] = transaction = Transaction(name)
        self.seen[name] = {}
        return transaction

    def settled(self, transaction: Transaction, fate: Fate) -> None:
        transaction.fate = fate
        counters = self._counters
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
        """At the end, when everything committed can be read: each transaction is visible completely or not at all."""
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


class CommittedReader(Reader):
    """Reads to the last stable offset, from the leader."""

    def __init__(
        self, links: Links, client_id: int, oracle: ClientOracles, transactions: Transactions
    ) -> None:
        super().__init__(links, client_id, oracle)
        self._transactions = transactions

    def _request(self, partition: FetchPartition, place: Place) -> FetchRequest:
        request = super()._request(partition, place)
        request.isolation_level = READ_COMMITTED
        return request

    def _read(self, key: Key, answer: Any) -> None:
        if answer.last_stable_offset > answer.high_watermark:
            raise Breach(
                "stable is committed",
                f"{self.places[key]}: {answer.last_stable_offset} of {answer.high_watermark}",
            )
        records = answer.records or b""
        is_ours = is_for_producers(self.places[key].topic)
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
                self._advance(key, offset)
                is_data = header.is_transactional and not header.is_control
                if is_ours and is_data and header.producer_id not in aborted:
                    self._transactions.shown(key, bytes(record.value or b""))
            self._pass(key, header)
            if header.is_control:
                aborted.discard(header.producer_id)
