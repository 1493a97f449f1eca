"""The machine under any sequence of requests, failures and restarts, compared with a small model.

The model has the guarantees for a client: epochs increase, a prepared outcome is final, the markers go to the added
partitions, and a replaced producer can do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.ids import TopicPartition
from kafkacompat.txn.operations import (
    NO_EXPECTATION,
    Ended,
    EndRequest,
    Initialised,
    ProducerIdAndEpoch,
    abort_timed_out,
    add_partitions,
    end_transaction,
    expired_id_records,
    has_timed_out,
    init_producer_id,
    verify_partitions,
)
from kafkacompat.txn.transaction_log import TransactionRecord, decode_record, encode_record
from kafkacompat.txn.transaction_metadata import AT_REST, PREPARED
from kafkacompat.txn.transaction_metadata import TransactionState as S
from kafkacompat.txn.transaction_state_manager import (
    Environment,
    Markers,
    TransactionResult,
    TransactionSettings,
    TransactionStateManager,
)
from kafkacompat.wire.errors import ErrorCode as E

TIMEOUT_MS = 10_000
EXPIRATION_MS = 100_000
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]


@dataclass
class Client:
    """The state that one process of the application believes."""

    producer_id: int
    epoch: int
    replaced: bool = False
    added: set[TopicPartition] = field(default_factory=set)


def expect(refusal: OperationRefused, *codes: E) -> None:
    assert refusal.code in codes, refusal


class Transactions(RuleBasedStateMachine):
    """One transactional id, and its successive clients. `version` is the cluster's and the clients'."""

    @initialize(version=st.sampled_from([0, 2]), near_the_end=st.booleans())
    def begin(self, version: int, near_the_end: bool) -> None:
        self.version = version
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.sent: list[Markers] = []
        self.next_id = 100
        self.clients: list[Client] = []
        self.outcomes: dict[tuple[int, int], bool] = {}
        """(producer id, epoch) of markers -> committed."""
        self.machine = self.make_machine()
        self.near_the_end = near_the_end

    def make_machine(self) -> TransactionStateManager:
        settings = TransactionSettings(900_000, EXPIRATION_MS)
        return TransactionStateManager(
            Environment(settings, self.fresh_id, lambda: self.version, self.sent.append)
        )

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def write(self, result: TransactionResult[object], fails: bool) -> None:
        """Append, then report the result, as the shard does."""
        if fails and result.records:
            assert result.committed is not None
            result.committed(E.COORDINATOR_NOT_AVAILABLE, self.now_ms)
            return
        for record in result.records:
            self.log.append(encode_record(record))
        if result.committed is not None:
            result.committed(E.NONE, self.now_ms)

    @property
    def current(self) -> Client | None:
        return self.clients[-1] if self.clients and not self.clients[-1].replaced else None

    # --- what clients do

    @rule(fails=st.booleans())
    def a_new_client_comes(self, fails: bool) -> None:
        for client in self.clients:
            client.replaced = True
        try:
            result = init_producer_id(self.machine, "tx", TIMEOUT_MS, NO_EXPECTATION, self.now_ms)
        except OperationRefused as refusal:
            expect(refusal, E.CONCURRENT_TRANSACTIONS)
            return
        answer: Initialised = result.response
        before = self.machine.transactions["tx"].values.epoch
        self.write(result, fails)
        if fails:
            return
        if answer.error is not E.NONE:
            assert answer.error is E.CONCURRENT_TRANSACTIONS  # the open transaction is being aborted
            for client in self.clients:
                client.added = set()
            return
        known = [(client.producer_id, client.epoch) for client in self.clients]
        assert all((answer.producer_id, answer.epoch) > one for one in known), "epochs rise, or the id does"
        if self.near_the_end and before == -1:
            self.jump_to_the_last_epochs()
            answer = answer._replace(epoch=self.machine.transactions["tx"].values.epoch)
        self.clients.append(Client(answer.producer_id, answer.epoch))

    def jump_to_the_last_epochs(self) -> None:
        """As after thirty thousand transactions."""
        transaction = self.machine.transactions["tx"]
        transaction.values = replace(transaction.values, epoch=32_763)
        self.log.append(encode_record(TransactionRecord("tx", transaction.values)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_asks_for_its_next_epoch(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        expected = ProducerIdAndEpoch(client.producer_id, client.epoch)
        try:
            result = init_producer_id(self.machine, "tx", TIMEOUT_MS, expected, self.now_ms)
        except OperationRefused as refusal:
            expect(refusal, E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED)
            return
        self.write(result, False)
        answer: Initialised = result.response
        if answer.error is not E.NONE:
            for other in self.clients:
                other.added = set()
            return
        # A repeated request with the last epoch gets the first answer, because it is from the same client.
        for other in self.clients:
            other.replaced = (other.producer_id, other.epoch) != (answer.producer_id, answer.epoch)
            other.added = set()
        if all(other.replaced for other in self.clients):
            self.clients.append(Client(answer.producer_id, answer.epoch))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), fails=st.booleans())
    def a_client_writes(self, data: st.DataObject, partition: TopicPartition, fails: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        who = "tx", client.producer_id, client.epoch
        try:
            result = add_partitions(self.machine, *who, frozenset({partition}), self.version, self.now_ms)
        except OperationRefused as refusal:
            expect(refusal, E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING)
            return
        values = self.machine.transactions["tx"].values
        assert (client.producer_id, client.epoch) == (values.producer_id, values.epoch)
        self.write(result, fails)
        if not (fails and result.records):
            client.added.add(partition)
            assert verify_partitions(self.machine, *who, frozenset({partition})) == {partition: E.NONE}

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), fails=st.booleans(), again=st.booleans())
    def a_client_ends(self, data: st.DataObject, commit: bool, fails: bool, again: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        request = EndRequest(client.producer_id, client.epoch, commit, self.version)
        try:
            result = end_transaction(self.machine, "tx", request, self.now_ms)
        except OperationRefused as refusal:
            expect(
                refusal,
                E.CONCURRENT_TRANSACTIONS,
                E.PRODUCER_FENCED,
                E.INVALID_PRODUCER_ID_MAPPING,
                E.INVALID_TXN_STATE,
            )
            return
        answer: Ended = result.response
        before = len(self.sent)
        self.write(result, fails)
        if result.records and not fails:
            (markers,) = self.sent[before:]
            assert markers.committed is commit
            assert markers.partitions == frozenset(client.added)
            client.added = set()
        if not fails and self.version == 2:
            assert (answer.producer_id, answer.epoch) != (client.producer_id, client.epoch)
            if again:
                self.write_all_markers()
                repeated = end_transaction(self.machine, "tx", request, self.now_ms)
                assert (repeated.records, repeated.response) == ((), answer), "a retry gives the same answer"
            client.producer_id, client.epoch = answer.producer_id, answer.epoch

    # --- what the world does

    @rule()
    def write_all_markers(self) -> None:
        for markers in self.sent:
            key = markers.producer_id, markers.epoch
            if self.version == 2 and markers.epoch < 32_767:
                assert self.outcomes.setdefault(key, markers.committed) is markers.committed
            transaction = self.machine.transactions["tx"]
            if transaction.values.state in PREPARED:
                self.write(self.machine.complete("tx"), False)
                assert transaction.values.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        self.sent.clear()

    @rule(ms=st.sampled_from([1, TIMEOUT_MS + 1, EXPIRATION_MS]), fails=st.booleans())
    def time_passes(self, ms: int, fails: bool) -> None:
        self.now_ms += ms
        for transactional_id, open_one in list(self.machine.transactions.items()):
            if not has_timed_out(self.machine, open_one, self.now_ms):
                continue
            transaction = self.machine.transactions[transactional_id]
            # The old protocol has already incremented the epoch if a fence could not be written.
            raised = transaction.has_failed_epoch_fence and self.version < 2
            expected = transaction.values.epoch + (0 if raised else 1)
            self.write(abort_timed_out(self.machine, transactional_id, self.now_ms), fails)
            if not fails:
                for client in self.clients:
                    client.added = set()
                assert transaction.values.epoch == min(expected, 32_767)

    @rule(fails=st.booleans())
    def unused_ids_are_forgotten(self, fails: bool) -> None:
        transaction = self.machine.transactions.get("tx")
        idle = (
            transaction is not None
            and transaction.pending_state is None
            and transaction.values.state in AT_REST
            and transaction.values.last_update_ms + EXPIRATION_MS <= self.now_ms
        )
        results = expired_id_records(self.machine, list(self.machine.transactions.values()), self.now_ms)
        assert bool(results) is idle
        for result in results:
            self.write(result, fails)
        if idle and not fails:
            assert not self.machine.transactions
            for client in self.clients:
                client.replaced = True

    @rule()
    def the_coordinator_moves(self) -> None:
        """Another node loads the log. Prepared outcomes do not change and are completed."""
        before = self.machine.transactions.get("tx")
        assert not list(self.machine.unload(self.now_ms))
        self.sent.clear()
        self.machine = self.make_machine()
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.machine.replay(record, offset, -1)
        assert all(result is None or not result.records for result in self.machine.on_loaded(self.now_ms))
        after = self.machine.transactions.get("tx")
        if before is not None and after is not None and before.values.state in PREPARED:
            assert after.values.state is before.values.state
            assert [markers.partitions for markers in self.sent] == [before.values.partitions]

    # --- what always holds

    @invariant()
    def nobody_who_was_replaced_can_write(self) -> None:
        transaction = getattr(self, "machine", None) and self.machine.transactions.get("tx")
        if not transaction or transaction.pending_state is not None:
            return
        values = transaction.values
        current = [
            client
            for client in self.clients
            if (client.producer_id, client.epoch) == (values.producer_id, values.epoch)
        ]
        assert len(current) <= 1 or self.version < 2

    @invariant()
    def an_open_transaction_knows_every_partition_that_was_added(self) -> None:
        transaction = getattr(self, "machine", None) and self.machine.transactions.get("tx")
        if not transaction or transaction.values.state is not S.ONGOING:
            return
        for client in self.clients:
            if (client.producer_id, client.epoch) == (
                transaction.values.producer_id,
                transaction.values.epoch,
            ):
                assert client.added <= transaction.values.partitions


Transactions.TestCase.settings = settings(max_examples=300, stateful_step_count=40)
TestTransactions = Transactions.TestCase
