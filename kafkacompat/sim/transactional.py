"""Transactional producers of a simulated cluster, and what became of each of their transactions.

A producer of transactions (KIP-98, KIP-890 part 2) writes to several partitions, commits or aborts, and is now and then replaced by
a successor in the middle, its requests still on their way. It knows brokers by address, leaders by Metadata and its coordinator by
FindCoordinator. What it cannot know (a commit whose answer was lost before it was fenced) may end either way, never half of it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.sim.clients import PRODUCE_TIMEOUT_MS, Client, Key
from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.end_txn_request import EndTxnRequest
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

TRANSACTIONAL_ID = 1
"""Key type of FindCoordinator."""
BATCHES_MAX = 3
"""To one partition, in one transaction."""
REPLACED = 0.12
"""Share of the steps at which a producer is replaced by its successor."""
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
"""What a producer does not repeat a batch after."""


class Fate(Enum):
    OPEN = "neither committed nor aborted"
    EITHER = "asked to commit, and not known whether it was"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """`values` are what was acknowledged, or may have been written, by partition and in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fate = Fate.OPEN
        self.may_commit = False
        """A request to commit has left."""
        self.values: dict[Key, list[bytes]] = {}


class TransactionalProducer(Client):
    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self.transactional_id = f"tx-{client_id}"
        self.is_idle = False
        self._coordinator: int | None = None
        self._life = 0
        """Answers to a life that was replaced are not heard any more."""
        self._producer = (-1, -1)
        self._sequences: dict[Key, int] = {}
        self._count = 0
        self._current: Transaction | None = None
        self._lost_answers = 0
        """To requests to end the transaction."""

    # Who I am.

    def start(self) -> None:
        self.refresh()
        self._initialise()

    def _coordinated(self, request: Any, then: Callable[[Deferred[Any]], None]) -> None:
        """Send it to the coordinator, once found; `then` hears nothing when this life was replaced meanwhile."""
        life = self._life

        def found(done: Deferred[Any]) -> None:
            if life != self._life:
                return
            try:
                answer = done.result().coordinators[0]
            except ChannelError:
                answer = None
            if answer is None or answer.error_code:
                self.later(find, 200)
                return
            self._coordinator = answer.node_id
            send()

        def find() -> None:
            if life != self._life:
                return
            asked = FindCoordinatorRequest(
                key_type=TRANSACTIONAL_ID, coordinator_keys=[self.transactional_id]
            )
            self.ask(self.any_broker(), asked, "metadata").on_done(found)

        def send() -> None:
            assert self._coordinator is not None
            self.ask(self._coordinator, request, "transactions").on_done(answered)

        def answered(done: Deferred[Any]) -> None:
            if life == self._life:
                then(done)

        if self._coordinator is None:
            find()
        else:
            send()

    def _initialise(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.simulation.options.transaction_ms,
        )
        self._coordinated(request, self._initialised)

    def _initialised(self, done: Deferred[Any]) -> None:
        error, answer = _outcome(done)
        if error is not ErrorCode.NONE:
            if error not in COORDINATOR_RETRIES | FENCED:
                raise Breach("producers are let in", f"{self.transactional_id} is refused with {error.name}")
            self._coordinator = None
            self.later(self._initialise)
            return
        self._become(answer)
        self._tell("begins")
        self._settle(Fate.EITHER if self._current is not None and self._current.may_commit else Fate.ABORTED)
        self._begin()

    def _become(self, answer: Any) -> None:
        identity = answer.producer_id, answer.producer_epoch
        if identity != self._producer:
            self._producer = identity
            self._sequences = {}
            self.simulation.transactions.identified(self.transactional_id, answer.producer_id)

    def _replace(self) -> None:
        """A successor begins; what this life has sent may still arrive."""
        self._tell("is replaced")
        self.simulation.counters.producers_replaced += 1
        self._life += 1
        self._coordinator = None
        self._initialise()

    def _settle(self, fate: Fate) -> None:
        self._tell(f"{self._current and self._current.name} is {fate.name}")
        transaction, self._current = self._current, None
        if transaction is not None:
            self.simulation.transactions.settled(transaction, fate)

    def _tell(self, what: str) -> None:
        if self.simulation.tell is not None:
            self.simulation.tell(f"{self.transactional_id} as {self._producer}: {what}")

    # One transaction after the other.

    def _begin(self) -> None:
        if self.simulation.is_over_for_producers:
            self.is_idle = True
            return
        keys = [key for key, place in self.places.items() if self.simulation.is_for_producers(place.topic)]
        if not keys:
            self.refresh()
            self.later(self._begin, 300)
            return
        self._count += 1
        self._lost_answers = 0
        name = f"{self.transactional_id}:{self._count}"
        self._current = transaction = self.simulation.transactions.begun(name)
        chosen = {keys[self.chance.randrange(len(keys))] for _ in range(3)}
        plan = {key: self.chance.between(1, BATCHES_MAX) for key in sorted(chosen)}
        waiting = len(plan)
        given_up = False
        life = self._life

        def lane_done(ok: bool) -> None:
            nonlocal waiting, given_up
            waiting -= 1
            given_up = given_up or not ok
            if not waiting:
                self._end(transaction, not given_up and self.chance.happens(COMMITS))

        for key, batches in plan.items():
            self._write(life, transaction, key, batches, lane_done)

    def _write(
        self, life: int, transaction: Transaction, key: Key, batches: int, done: Callable[[bool], None]
    ) -> None:
        """So many batches, each after the other was acknowledged."""
        if life != self._life:
            return
        if not batches:
            done(True)
            return
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

        def send() -> None:
            if life != self._life:
                return
            place = self.places[key]
            if place.leader == NO_LEADER:
                self.refresh()
                self.later(send)
                return
            data = PartitionProduceData(index=key[1], records=records)
            request = ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=PRODUCE_TIMEOUT_MS,
                topic_data=[TopicProduceData(name=place.topic, topic_id=key[0], partition_data=[data])],
            )
            self.ask(place.leader, request, f"produce {key[0].hex()} {key[1]}").on_done(answered)
            if self.chance.happens(REPLACED / 4):
                self._replace()

        def answered(sent: Deferred[Any]) -> None:
            if life != self._life:
                return
            try:
                error = ErrorCode(sent.result().responses[0].partition_responses[0].error_code)
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            self._tell(f"produce to {key[0][-1]}-{key[1]} of {values} gets {error.name}")
            if error is ErrorCode.NONE:
                self._sequences[key] = sequence + len(values)
                self.later(lambda: self._write(life, transaction, key, batches - 1, done), 50)
            elif error in GIVEN_UP:
                done(False)
            else:
                self.refresh()
                self.later(send)

        send()

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
        error, answer = _outcome(done)
        self._tell(f"{'commit' if commits else 'abort'} of {transaction.name} gets {error.name}")
        if error is ErrorCode.NONE:
            self._become(answer)
            self._settle(Fate.COMMITTED if commits else Fate.ABORTED)
            self.later(self._begin, self.simulation.options.think_ms)
        elif error in COORDINATOR_RETRIES:
            # Also without an answer it may have been carried out.
            self._lost_answers += 1
            self._coordinator = None
            self.simulation.counters.transactions_asked_again += 1
            self.later(lambda: self._end_again(transaction, commits))
        elif error in GIVEN_UP:
            if commits and not self._lost_answers:
                transaction.may_commit = False
            self._life += 1
            self._initialise()
        else:
            raise Breach("transactions end", f"{transaction.name} is refused with {error.name}")

    def _end_again(self, transaction: Transaction, commits: bool) -> None:
        if transaction is self._current:
            self._end(transaction, commits)


def _outcome(done: Deferred[Any]) -> tuple[ErrorCode, Any]:
    try:
        answer = done.result()
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT, None
    return ErrorCode(answer.error_code), answer
