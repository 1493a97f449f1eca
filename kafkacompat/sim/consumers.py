"""Consumers of a simulated cluster: they read every partition from its start and continue after errors.

If a consumer finds an error itself (a record missed or seen twice), that is a breach. Records that a cleaning or
retention has removed are skipped. A read_committed consumer reads up to the last stable offset, without the ranges that the
leader lists as aborted, and what it sees of each transaction is compared with the transaction's outcome.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, SHARE_STATE_TOPIC
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import Client, Place
from kafkacompat.sim.cluster_options import APART, RETAINED, UNCLEAN, is_for_producers, is_mirrored, rack_of
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.links import Links
from kafkacompat.sim.partition_oracles import ClientOracles
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer


FETCH_WAIT_MS = 250
SESSIONLESS = CONSUMER = -1
EARLIEST = -2


class Reader(Client, ABC):
    """Reads every partition from its start, for ever. Subclasses handle the answers."""

    def __init__(self, links: Links, client_id: int, oracle: ClientOracles) -> None:
        super().__init__(links, client_id)
        self._oracle = oracle
        self.positions: dict[Key, int] = {}

    def found(self, key: Key) -> None:
        if is_mirrored(self.places[key].topic):
            return  # what a turn of mirrors gives up is read again
        self.positions[key] = 0
        self._fetch(key)

    def _source(self, place: Place) -> int:
        """Return the node to read from."""
        return place.leader

    def _request(self, partition: FetchPartition, place: Place) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=100_000,
            session_epoch=SESSIONLESS,
            topics=[FetchTopic(topic=place.topic, topic_id=place.topic_id, partitions=[partition])],
        )

    def _fetch(self, key: Key) -> None:
        if self.env.metadata.is_deleted(key):
            del self.positions[key]
            return
        place = self.places[key]
        if place.leader == NO_LEADER:
            self._again(key)
            return
        partition = FetchPartition(
            partition=place.partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=self.positions[key],
            partition_max_bytes=self.env.options.fetch_bytes,
        )
        request = self._request(partition, place)
        purpose = f"consume {key[0].hex()} {key[1]}"
        self.ask(self._source(place), request, purpose).on_done(lambda done: self._fetched(key, done))

    def _fetched(self, key: Key, done: Deferred[Any]) -> None:
        try:
            response = done.result()
        except ChannelError:
            response = None
        if response is None or response.error_code or not response.responses:
            self._again(key)
            return
        answer = response.responses[0].partitions[0]
        self._check(key, answer)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._may_be_gone(key):
            self._seek_beginning(key)
            return
        if answer.error_code:
            self._again(key)
            return
        self._read(key, answer)
        self.later(lambda: self._fetch(key), 20)

    def _may_be_gone(self, key: Key) -> bool:
        """Whether the next record may have been deleted."""
        return self.places[key].topic in (RETAINED, UNCLEAN, SHARE_STATE_TOPIC)

    def _seek_beginning(self, key: Key) -> None:
        """auto.offset.reset=earliest."""
        place = self.places[key]
        partition = ListOffsetsPartition(
            partition_index=place.partition, current_leader_epoch=place.leader_epoch, timestamp=EARLIEST
        )
        topic = ListOffsetsTopic(name=place.topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=[topic])
        purpose = f"consume {key[0].hex()} {key[1]}"
        self.ask(place.leader, request, purpose).on_done(lambda done: self._sought(key, done))

    def _sought(self, key: Key, done: Deferred[Any]) -> None:
        try:
            answer = done.result().topics[0].partitions[0]
        except ChannelError:
            answer = None
        is_unclean = self.places[key].topic == UNCLEAN
        if (
            answer is not None
            and not answer.error_code
            and (is_unclean or answer.offset > self.positions[key])
        ):
            self.positions[key] = answer.offset
            self.env.counters.positions_reset += 1
        self._again(key)

    def _check(self, key: Key, answer: Any) -> None:
        """Check any answer, also an error."""

    @abstractmethod
    def _read(self, key: Key, answer: Any) -> None:
        """Take the records of an answer without an error."""

    def _again(self, key: Key) -> None:
        self.refresh()
        self.later(lambda: self._fetch(key))

    def _advance(self, key: Key, offset: int) -> None:
        """Advance to this offset, skipping records that a cleaning has removed, and then past it."""
        if offset != self.positions[key]:
            if offset < self.positions[key]:
                raise Breach(
                    "consumers miss nothing",
                    f"{self.places[key]} went from {self.positions[key]} back to {offset}",
                )
            self._oracle.passed(key, self.positions[key], offset)
        self.positions[key] = offset + 1

    def _pass(self, key: Key, header: BatchHeader) -> None:
        """Count a batch as read. A cleaning may have removed some of its records."""
        if header.last_offset >= self.positions[key]:
            self._advance(key, header.last_offset + 1)
            self.positions[key] = header.last_offset + 1


class Consumer(Reader):
    """Reads to the high watermark, from the leader or a nearby replica."""

    def __init__(self, links: Links, client_id: int, oracle: ClientOracles) -> None:
        super().__init__(links, client_id, oracle)
        self.next_sequences: dict[tuple[Key, int], int] = {}
        """By partition and producer."""
        self._rack = rack_of(self.chance.randrange(3))
        self._nearby: dict[Key, int] = {}
        """Partition -> the preferred read replica that its leader has named. Forgotten at the first error."""

    def _source(self, place: Place) -> int:
        return self._nearby.get(place.key, place.leader)

    def _request(self, partition: FetchPartition, place: Place) -> FetchRequest:
        request = super()._request(partition, place)
        request.rack_id = self._rack
        return request

    def _may_be_gone(self, key: Key) -> bool:
        return key not in self._nearby and super()._may_be_gone(key)

    def _check(self, key: Key, answer: Any) -> None:
        is_gone = answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not super()._may_be_gone(key)
        if is_gone and key not in self._nearby:
            raise Breach(
                "consumers go on",
                f"{self.places[key]} has no offset {self.positions[key]} any more, "
                f"high watermark {answer.high_watermark}",
            )

    def _read(self, key: Key, answer: Any) -> None:
        if answer.preferred_read_replica >= 0:
            self._nearby[key] = answer.preferred_read_replica
        records = answer.records or b""
        if key in self._nearby and records:
            self.env.counters.reads_from_followers += 1
        self._oracle.consumed(key, records)
        for header in iterate_batches(records):
            batch = memoryview(records)[header.position : header.position + header.size]
            for offset, record in records_of(batch, header):
                if offset >= self.positions[key]:
                    self._take(key, header, offset, record.value or b"")
            self._pass(key, header)

    def _take(self, key: Key, header: BatchHeader, offset: int, value: Buffer) -> None:
        self._advance(key, offset)
        producer_id = header.producer_id
        if header.is_transactional or producer_id not in self.env.producer_ids:
            return
        if self.places[key].topic in APART:
            # The ledgers of these topics check which records must be there.
            self.env.counters.consumed += 1
            return
        expected = self.next_sequences.get((key, producer_id), 0)
        if bytes(value) != b"%d" % expected:
            raise Breach(
                "each record once and in order",
                f"{self.places[key]} at {offset} has {value!r} of producer "
                f"{producer_id}, expected is {expected}",
            )
        self.next_sequences[key, producer_id] = expected + 1
        self.env.counters.consumed += 1

    def _again(self, key: Key) -> None:
        self._nearby.pop(key, None)
        super()._again(key)


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
