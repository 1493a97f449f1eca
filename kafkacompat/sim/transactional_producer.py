"""Transactional producers of a simulated cluster, and the outcome of each of their transactions.

A transactional producer (KIP-98, KIP-890 part 2) writes to several partitions, sometimes in one request, and commits
or aborts. From time to time a successor replaces it in the middle of a transaction, while its requests are in flight.
It knows brokers by address, leaders by Metadata, and its coordinator by FindCoordinator. If it cannot know the outcome
(the answer to a commit was lost before it was fenced), the transaction may end either way, but as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, OFFSETS_TOPIC, Uuid, partition_for_key
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import (
    GROUP,
    PRODUCE_TIMEOUT_MS,
    TRANSACTIONAL_ID,
    Client,
    CoordinatorConnection,
    Place,
    outcome_of,
)
from kafkacompat.sim.cluster_options import is_for_transactions
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.consumers import Fate, Transaction, Transactions
from kafkacompat.sim.links import Links
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.end_txn_request import EndTxnRequest
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

OFFSETS_REPEATED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""A client expects no other errors than these and those that end the transaction."""
OFFSETS_GIVEN_UP = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
Still = Callable[[], bool]


class TransactionalOffsets:
    """All commits are for one partition, the `place` of the first commit. `still` returns whether the result is still needed."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._group_id = f"group-of-{transactional_id}"
        self._coordinator = CoordinatorConnection(client, GROUP, self._group_id, "offsets")
        self.place: Place | None = None

    def commit(
        self, identity: tuple[int, int], number: int, place: Place, still: Still, done: Callable[[bool], None]
    ) -> None:
        """Commit. `done` gets whether the transaction may continue."""
        if self.place is None:
            self.place = place
        at = self.place
        partition = TxnOffsetCommitRequestPartition(partition_index=at.partition, committed_offset=number)

        def send() -> None:
            if still():
                # Handlers may change the request.
                request = TxnOffsetCommitRequest(
                    transactional_id=self._transactional_id,
                    group_id=self._group_id,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    topics=[
                        TxnOffsetCommitRequestTopic(
                            name=at.topic, topic_id=at.topic_id, partitions=[partition]
                        )
                    ],
                )
                self._coordinator.send(request, still, answered)

        def answered(sent: Deferred[Any]) -> None:
            try:
                error = ErrorCode(sent.result().topics[0].partitions[0].error_code)
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error is ErrorCode.NONE:
                done(True)
            elif error in OFFSETS_GIVEN_UP:
                done(False)
            else:
                self._again(error, send)

        send()

    def read(self, still: Still, done: Callable[[int], None]) -> None:
        """Read the committed number, -1 without one, from a leader that still leads when its answer arrives. A deposed
        leader that does not know it yet may lack its successor's writes."""
        at = self.place
        assert at is not None
        asked_in = -1

        def send() -> None:
            nonlocal asked_in
            if still():
                asked_in = self._led()[1]
                topic = OffsetFetchRequestTopics(
                    name=at.topic, topic_id=at.topic_id, partition_indexes=[at.partition]
                )
                group = OffsetFetchRequestGroup(group_id=self._group_id, topics=[topic])
                request = OffsetFetchRequest(groups=[group], require_stable=True)
                self._coordinator.send(request, still, answered)

        def answered(sent: Deferred[Any]) -> None:
            try:
                (group,) = sent.result().groups
            except ChannelError:
                self._again(ErrorCode.REQUEST_TIMED_OUT, send)
                return
            error, number = ErrorCode(group.error_code), -1
            if error is ErrorCode.NONE:
                found = group.topics[0].partitions[0]
                error, number = ErrorCode(found.error_code), found.committed_offset
            if error is not ErrorCode.NONE:
                self._again(error, send)
            elif self._led() != (self._coordinator.node_id, asked_in):
                self._again(ErrorCode.NOT_COORDINATOR, send)
            else:
                done(number)

        send()

    def _led(self) -> tuple[int, int]:
        """Return the leader of the group's partition and its leader epoch. (-1, -1) without one."""
        topic = self._client.env.metadata.newest.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return -1, -1
        partition = topic.partitions[partition_for_key(self._group_id, len(topic.partitions))]
        return partition.leader, partition.leader_epoch

    def _again(self, error: ErrorCode, send: Callable[[], None]) -> None:
        if error not in OFFSETS_REPEATED:
            raise Breach("producers are understood", f"{self._group_id} gets {error.name}")
        self._coordinator.forget()
        self._client.later(send)


BATCHES_MAX = 3
"""Maximum number of batches to one partition in one transaction."""
TOGETHER = 0.5
"""Share of the transactions that write to all their partitions at once, with one request to each leader."""
WITH_OFFSETS = 0.5
LOOKS = 0.3
"""Share of the ends after which the offset is read at once, while the markers may still be in flight."""
WIDENS = 0.3
"""Share of the other partitions that a transaction adds whenever it repeats a request."""
MISLED = 0.5
"""Share of the rounds in which a producer sends everything to one broker, which may not lead, or not yet."""
REPLACED = 0.12
"""Share of the steps at which a successor replaces a producer."""
COMMITS = 0.7
COORDINATOR_RETRIES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
GIVEN_UP = FENCED | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}
"""Errors after which a producer does not repeat a batch."""
REPEATED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which a producer repeats a batch. It expects no other errors."""


class Batch(NamedTuple):
    """A batch to one partition. A leader changes a copy; these bytes stay."""

    records: bytes
    values: list[bytes]
    next_sequence: int


class TransactionalProducer(Client):
    def __init__(self, links: Links, client_id: int, transactions: Transactions) -> None:
        super().__init__(links, client_id)
        self._transactions = transactions
        self.transactional_id = f"tx-{client_id}"
        self.is_idle = False
        self._coordinator = CoordinatorConnection(
            self, TRANSACTIONAL_ID, self.transactional_id, "transactions"
        )
        self._life = 0
        """Answers to requests of a replaced life are ignored."""
        self._producer = (-1, -1)
        self._sequences: dict[Key, int] = {}
        self._count = 0
        self._current: Transaction | None = None
        self._lost_answers = 0
        """The number of lost answers to requests that end the transaction."""
        self._offsets = TransactionalOffsets(self, self.transactional_id)
        self._number = -1
        """The last number that was committed."""

    # The producer's identity.

    def start(self) -> None:
        self.refresh()
        self._initialise()

    def _coordinated(self, request: Any, then: Callable[[Deferred[Any]], None]) -> None:
        """Send a request to the coordinator. `then` is not called if this life is replaced in the meantime."""
        self._coordinator.send(request, self._still(), then)

    def _still(self) -> Callable[[], bool]:
        life = self._life
        return lambda: life == self._life

    def _initialise(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.env.options.transaction_ms,
        )
        self._coordinated(request, self._initialised)

    def _initialised(self, done: Deferred[Any]) -> None:
        error, answer = outcome_of(done)
        if error is not ErrorCode.NONE:
            if error not in COORDINATOR_RETRIES | FENCED:
                raise Breach("producers are let in", f"{self.transactional_id} is refused with {error.name}")
            self._coordinator.forget()
            self.later(self._initialise)
            return
        self._become(answer)
        self._tell("begins")
        if self._offsets.place is None:
            self._go_on(self._number)
        else:
            self._offsets.read(self._still(), self._go_on)

    def _go_on(self, number: int) -> None:
        """Continue after the predecessor's transaction, which has ended by now. The committed number shows how it
        ended, if there was one."""
        transaction = self._current
        fate = Fate.EITHER if transaction is not None and transaction.may_commit else Fate.ABORTED
        if fate is Fate.EITHER and transaction is not None and transaction.number is not None:
            fate = Fate.COMMITTED if number == transaction.number else Fate.ABORTED
        self._settle(fate)
        self._check_number(number)
        self._begin()

    def _check_number(self, number: int) -> None:
        if number != self._number:
            raise Breach(
                "offsets are of committed transactions",
                f"{self.transactional_id} finds {number}, committed is {self._number}",
            )

    def _become(self, answer: Any) -> None:
        identity = answer.producer_id, answer.producer_epoch
        if identity != self._producer:
            self._producer = identity
            self._sequences = {}
            self._transactions.identified(self.transactional_id, answer.producer_id)

    def _replace(self) -> None:
        """Start a successor. Requests of this life may still arrive."""
        self._tell("is replaced")
        self.env.counters.producers_replaced += 1
        self._life += 1
        self._coordinator.forget()
        self._initialise()

    def _settle(self, fate: Fate) -> None:
        self._tell(f"{self._current and self._current.name} is {fate.name}")
        transaction, self._current = self._current, None
        if transaction is not None:
            if fate is Fate.COMMITTED and transaction.number is not None:
                self._number = transaction.number
            self._transactions.settled(transaction, fate)

    def _tell(self, what: str) -> None:
        if self.env.tell is not None:
            self.env.tell(f"{self.transactional_id} as {self._producer}: {what}")

    # One transaction after the other.

    def _begin(self) -> None:
        if self.env.is_over_for_producers:
            if self._offsets.place is None:
                self._finish(self._number)
            else:
                self._offsets.read(self._still(), self._finish)
            return
        keys = self._keys()
        if not keys:
            self.refresh()
            self.later(self._begin, 300)
            return
        self._count += 1
        self._lost_answers = 0
        name = f"{self.transactional_id}:{self._count}"
        self._current = transaction = self._transactions.begun(name)
        chosen = sorted({keys[self.chance.randrange(len(keys))] for _ in range(3)})
        lanes = [chosen] if self.chance.happens(TOGETHER) else [[key] for key in chosen]
        waiting = len(lanes)
        given_up = False
        life = self._life
        if self.chance.happens(WITH_OFFSETS):
            waiting += 1
            transaction.number = self._count

        def lane_done(ok: bool) -> None:
            nonlocal waiting, given_up
            waiting -= 1
            given_up = given_up or not ok
            if not waiting:
                self._end(transaction, not given_up and self.chance.happens(COMMITS))

        if transaction.number is not None:
            place = self.places[chosen[0]]
            self._offsets.commit(self._producer, transaction.number, place, self._still(), lane_done)
        for lane in lanes:
            self._write(life, transaction, lane, self.chance.between(1, BATCHES_MAX), lane_done)

    def _finish(self, number: int) -> None:
        self._check_number(number)
        self.is_idle = True

    def _write(
        self, life: int, transaction: Transaction, lane: list[Key], batches: int, done: Callable[[bool], None]
    ) -> None:
        """Write `batches` batches to each partition of a lane. The next batches follow when all previous ones are acknowledged."""
        if life != self._life:
            return
        if not batches:
            done(True)
            return
        left = {key: self._next_batch(transaction, key) for key in lane}
        asked = 0
        refused = False

        def send() -> None:
            nonlocal asked
            if life != self._life:
                return
            by_leader: dict[int, list[Key]] = {}
            for key in left:
                by_leader.setdefault(self.places[key].leader, []).append(key)
            by_leader.pop(NO_LEADER, None)
            if by_leader and self.chance.happens(MISLED):
                by_leader = {list(by_leader)[self.chance.randrange(len(by_leader))]: list(left)}
            if not by_leader:
                again()
                return
            asked = len(by_leader)
            for leader, keys in by_leader.items():
                request = self._produce_request({key: left[key].records for key in keys})
                purpose = f"produce {lane[0][0].hex()} {lane[0][1]}"
                self.ask(leader, request, purpose).on_done(partial(answered, keys))
            if self.chance.happens(REPLACED / 4):
                self._replace()

        def again() -> None:
            self.refresh()
            self.later(send)

        def answered(keys: list[Key], sent: Deferred[Any]) -> None:
            nonlocal asked, refused
            if life != self._life:
                return
            errors = _errors_of(sent)
            for key in keys:
                error = errors.get(key, ErrorCode.REQUEST_TIMED_OUT)
                self._tell(f"produce to {key[0][-1]}-{key[1]} of {left[key].values} gets {error.name}")
                if error is ErrorCode.NONE:
                    self._sequences[key] = left.pop(key).next_sequence
                elif error in GIVEN_UP:
                    refused = True
                elif error not in REPEATED:
                    raise Breach("producers are understood", f"{transaction.name} gets {error.name}")
            asked -= 1
            if asked:
                return
            if refused:
                done(False)
            elif left:
                # The transaction adds other partitions in the meantime.
                for key in self._keys():
                    if key not in transaction.values and self.chance.happens(WIDENS):
                        lane.append(key)
                        left[key] = self._next_batch(transaction, key)
                again()
            else:
                self.later(lambda: self._write(life, transaction, lane, batches - 1, done), 50)

        send()

    def _keys(self) -> list[Key]:
        return [key for key, place in self.places.items() if is_for_transactions(place.topic)]

    def _next_batch(self, transaction: Transaction, key: Key) -> Batch:
        written = transaction.values.setdefault(key, [])
        values = [
            f"{transaction.name}:{len(written) + each}".encode() for each in range(self.chance.between(1, 3))
        ]
        written += values
        sequence = self._sequences.get(key, 0)
        producer_id, producer_epoch = self._producer
        records = build_batch(
            [Record(index, self.now_ms(), None, value, ()) for index, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return Batch(bytes(records), values, sequence + len(values))

    def _produce_request(self, batches: dict[Key, bytes]) -> ProduceRequest:
        topics: dict[Uuid, list[PartitionProduceData]] = {}
        for (topic_id, index), records in batches.items():
            topics.setdefault(topic_id, []).append(PartitionProduceData(index=index, records=records))
        names = {key[0]: self.places[key].topic for key in batches}
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=names[topic_id], topic_id=topic_id, partition_data=data)
                for topic_id, data in topics.items()
            ],
        )

    def _end(self, transaction: Transaction, commits: bool) -> None:
        if transaction is not self._current:
            return
        if self.chance.happens(REPLACED):
            self._replace()
            return
        producer_id, producer_epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commits,
        )
        transaction.may_commit = transaction.may_commit or commits
        self._coordinated(request, lambda done: self._ended(transaction, commits, done))
        if self.chance.happens(REPLACED / 2):
            self._replace()

    def _ended(self, transaction: Transaction, commits: bool, done: Deferred[Any]) -> None:
        error, answer = outcome_of(done)
        self._tell(f"{'commit' if commits else 'abort'} of {transaction.name} gets {error.name}")
        if error is ErrorCode.NONE:
            self._become(answer)
            self._settle(Fate.COMMITTED if commits else Fate.ABORTED)
            if self._offsets.place is not None and self.chance.happens(LOOKS):
                self._offsets.read(self._still(), self._look)
            else:
                self.later(self._begin, self.env.options.think_ms)
        elif error in COORDINATOR_RETRIES:
            # The request may have been carried out although its answer was lost.
            self._lost_answers += 1
            self._coordinator.forget()
            self.env.counters.transactions_asked_again += 1
            self.later(lambda: self._end_again(transaction, commits))
        elif error in GIVEN_UP:
            if commits and not self._lost_answers:
                transaction.may_commit = False
            self._life += 1
            self._initialise()
        else:
            raise Breach("transactions end", f"{transaction.name} is refused with {error.name}")

    def _look(self, number: int) -> None:
        self._check_number(number)
        self._begin()

    def _end_again(self, transaction: Transaction, commits: bool) -> None:
        if transaction is self._current:
            self._end(transaction, commits)


def _errors_of(sent: Deferred[Any]) -> dict[Key, ErrorCode]:
    """Return each partition's error code. None without an answer."""
    try:
        topics = sent.result().responses
    except ChannelError:
        return {}
    return {
        (topic.topic_id, each.index): ErrorCode(each.error_code)
        for topic in topics
        for each in topic.partition_responses
    }
